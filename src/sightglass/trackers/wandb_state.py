"""What a run of W&B's interface holds: its config, its summary, and how its metrics are summarised."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from sightglass.core.errors import SightglassError
from sightglass.core.values import array_kind, to_host

from .wandb_values import plain

Changed = Callable[[Mapping[str, Any]], None]

KINDS: Final = ("min", "max", "mean", "first", "last", "best", "copy", "none")
"""What `define_metric(summary=…)` takes."""


class WandbConfig(MutableMapping[str, Any]):
    """The configuration: entries are attributes, too. An entry changes only with `allow_val_change`."""

    _entries: dict[str, Any]
    _changed: Changed
    _allows: bool

    def __init__(self, entries: Mapping[str, Any], changed: Changed, *, allows: bool = False) -> None:
        """Begin with entries, which have been read by `plain`; `changed` is called with later ones."""
        vars(self).update(_entries=dict(entries), _changed=changed, _allows=allows)

    def update(self, d: Any = (), allow_val_change: bool | None = None, **entries: Any) -> None:  # type: ignore[override]
        """Set entries, from a mapping, a namespace of `argparse`, flags of absl, or a file of YAML.

        Raises:
            SightglassError: An entry would change, which `allow_val_change` allows.
        """
        given = entries_of(d) | plain(entries)
        changes = {name: value for name, value in given.items() if self._entries.get(name, self) != value}
        known = next((name for name in changes if name in self._entries), None)
        if known is not None and not (self._allows if allow_val_change is None else allow_val_change):
            raise SightglassError(
                f"Entry {known!r} of the config is {self._entries[known]!r:.100}, and would become"
                f" {changes[known]!r:.100}. Pass allow_val_change=True to config.update"
            )
        self._entries.update(changes)
        if changes:
            self._changed(changes)

    def setdefaults(self, d: Any) -> None:
        """Set the entries that are not there yet."""
        self.update({name: value for name, value in entries_of(d).items() if name not in self._entries})

    def as_dict(self) -> dict[str, Any]:
        """Return the entries."""
        return dict(self._entries)

    def __getitem__(self, name: str) -> Any:
        return self._entries[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __delitem__(self, name: str) -> None:
        raise SightglassError(f"Expected a config that keeps its entries, and {name!r} among them")

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __getattr__(self, name: str) -> Any:
        if name in vars(self).get("_entries", ()):
            return self._entries[name]
        raise AttributeError(f"The config has no entry {name!r}")

    __setattr__ = __setitem__

    def __repr__(self) -> str:
        return repr(self._entries)


def entries_of(given: Any) -> dict[str, Any]:
    """Return what programs pass as a config as plain entries.

    Raises:
        TypeError: It is not a mapping, nor an object with attributes.
    """
    if isinstance(given, str | Path):
        import yaml

        found = yaml.safe_load(Path(given).read_text("utf-8")) or {}
        given = {name: one["value"] if isinstance(one, dict) and "value" in one else one for name, one in found.items()}
    elif hasattr(given, "flag_values_dict"):
        given = given.flag_values_dict()
    elif not isinstance(given, Mapping) and hasattr(given, "__dict__"):
        given = vars(given)
    try:
        return {str(name): plain(value) for name, value in dict(given or {}).items()}
    except (TypeError, ValueError):
        raise TypeError(f"Expected a mapping or a namespace as config, got {type(given).__name__}") from None


class WandbSummary(MutableMapping[str, Any]):
    """The summary: the last value of each series, or what the program sets; entries are attributes, too."""

    _entries: dict[str, Any]
    _changed: Changed

    def __init__(self, changed: Changed) -> None:
        """Begin empty; `changed` is called with what the program sets."""
        vars(self).update(_entries={}, _changed=changed)

    def keep(self, name: str, value: Any) -> Any:
        """Set an entry without telling, and return it; mappings become summaries of their own."""
        if isinstance(value, Mapping):
            inner = WandbSummary(lambda changes: self._changed({name: changes}))
            for key, item in value.items():
                inner.keep(str(key), item)
            value = inner
        self._entries[name] = value
        return value

    def inner(self, name: str) -> WandbSummary:
        """Return the summary that an entry is, in place of what it was."""
        found = self._entries.get(name)
        return found if isinstance(found, WandbSummary) else self.keep(name, {})

    def update(self, d: Any = (), **entries: Any) -> None:  # type: ignore[override]
        """Set entries."""
        changes = {**dict(d), **entries}
        for name, value in changes.items():
            self.keep(str(name), value)
        if changes:
            self._changed(changes)

    def __getitem__(self, name: str) -> Any:
        found = self._entries[name]  # a number may be on a device, which is waited for here, and not for each row
        if isinstance(found, np.generic) or array_kind(found) is not None:
            host = to_host(found)
            return host.item() if isinstance(host, np.generic) else host
        return found

    def __setitem__(self, name: str, value: Any) -> None:
        self.update({name: value})

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __getattr__(self, name: str) -> Any:
        if name in vars(self).get("_entries", ()):
            return self[name]
        raise AttributeError(f"The summary has no entry {name!r}")

    __setattr__ = __setitem__

    def __repr__(self) -> str:
        return repr(self._entries)


@dataclass(kw_only=True, eq=False)
class Metric:
    """What a program says of a metric, or of all whose names begin alike (`val/*`).

    Attributes:
        name: Its name.
        step_metric: The metric that is its x axis.
        kinds: How it is summarised, of `KINDS`.
        goal: "minimize" or "maximize", for the kind "best".
    """

    name: str
    step_metric: str = ""
    kinds: dict[str, None] = field(default_factory=dict)
    goal: str = "minimize"

    def fits(self, name: str) -> bool:
        """Return whether it is said of a name."""
        return name == self.name or (self.name.endswith("*") and name.startswith(self.name[:-1]))


class Metrics:
    """The metrics that a program has defined, and the last values of those that are x axes."""

    def __init__(self) -> None:
        self._defined: dict[str, Metric] = {}
        self._axes: dict[str, Any] = {}
        self._means: dict[str, tuple[int, float]] = {}

    def define(self, name: str, step_metric: Any, summary: str | None, goal: str | None, *, anew: bool) -> Metric:
        """Define a metric, or add to what is defined.

        Raises:
            SightglassError: A kind of summary is unknown.
        """
        kinds = [kind.strip() for kind in (summary or "").split(",") if kind.strip()]
        if unknown := {*kinds} - {*KINDS}:
            raise SightglassError(f"Expected a summary of {', '.join(KINDS)}, got {', '.join(sorted(unknown))}")
        if anew or name not in self._defined:
            self._defined[name] = Metric(name=name)
        metric = self._defined[name]
        metric.step_metric = getattr(step_metric, "name", step_metric) or metric.step_metric
        metric.goal = goal or metric.goal
        metric.kinds |= dict.fromkeys(kinds)
        if metric.step_metric:
            self._axes.setdefault(metric.step_metric, 0)
        return metric

    def tracks(self, row: dict[str, Any]) -> dict[str, float]:
        """Return the x axes of a row; those that it lacks are added, with their last values."""
        for name in [*row] if self._axes else ():
            axis = "" if (metric := self._of(name)) is None or name in self._axes else metric.step_metric
            if axis and axis not in row:
                row[axis] = self._axes[axis]
        found = {name: to_host(row[name]) for name in self._axes if name in row}
        self._axes |= found
        return {name: at for name, at in found.items() if name not in NOT_TRACKS and isinstance(at, int | float)}

    def summarise(self, row: Mapping[str, Any], into: WandbSummary, within: str = "") -> None:
        """Take a row into a summary."""
        for name, value in row.items():
            path = f"{within}.{name}" if within else name
            if isinstance(value, Mapping):
                self.summarise(value, into.inner(name), path)
                continue
            metric = self._of(path) if self._defined else None
            kinds = [] if metric is None else [kind for kind in metric.kinds if kind not in ("none", "copy")]
            if metric is None or not (kinds or "none" in metric.kinds):
                into.keep(name, value)
            elif kinds and isinstance(number := to_host(value), int | float):
                self._aggregate(metric, kinds, path, number, into.inner(name))

    def _aggregate(self, metric: Metric, kinds: list[str], path: str, number: float, into: WandbSummary) -> None:
        n, mean = self._means.get(path, (0, 0.0))
        self._means[path] = n + 1, mean + (number - mean) / (n + 1)
        for kind in kinds:
            before = into.get(kind, number)
            larger = kind == "max" or (kind == "best" and metric.goal.startswith("max"))
            if kind == "mean":
                into.keep(kind, self._means[path][1])
            elif kind == "last" or before is number or math.isnan(number):
                into.keep(kind, number)
            elif kind != "first" and not math.isnan(before):
                into.keep(kind, max(before, number) if larger else min(before, number))

    def _of(self, name: str) -> Metric | None:
        exact = self._defined.get(name)
        return exact or next((metric for metric in self._defined.values() if metric.fits(name)), None)


NOT_TRACKS: Final = ("data", "self", "step")  # the parameters of `Run.log`


def variable(name: str) -> str | None:
    """Return a variable of the environment, `None` if it is not set or empty."""
    return os.environ.get(f"WANDB_{name}") or None
