"""What a run of W&B's interface holds: its config, its summary, and how its metrics are summarised."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from sightglass.core.errors import SightglassError
from sightglass.core.values import array_kind, to_host

from .wandb_values import plain

Changed = Callable[[Mapping[str, Any]], None]

KINDS: Final = ("min", "max", "mean", "first", "last", "best", "copy", "none")
"""What `define_metric(summary=…)` takes."""
NOT_TRACKS: Final = ("data", "self", "step")  # the parameters of `Run.log`


class Entries(MutableMapping[str, Any]):
    """Entries that are attributes, too; what the program sets is told to a function."""

    _entries: dict[str, Any]
    _changed: Changed

    def __init__(self, changed: Changed, entries: Mapping[str, Any] | None = None) -> None:
        """Begin with entries; `changed` is called with what the program sets."""
        vars(self).update(_entries=dict(entries or {}), _changed=changed)

    def __getitem__(self, name: str) -> Any:
        return self._entries[name]

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
        raise AttributeError(f"There is no entry {name!r}")

    __setattr__ = __setitem__

    def __repr__(self) -> str:
        return repr(self._entries)


class WandbConfig(Entries):
    """The configuration. An entry changes only with `allow_val_change`."""

    def update(self, d: Any = (), allow_val_change: bool | None = None) -> None:  # type: ignore[override]
        """Set entries, of what `entries_of` takes.

        Raises:
            SightglassError: An entry would change, which `allow_val_change` allows.
        """
        changes = {name: value for name, value in entries_of(d).items() if self.get(name, self) != value}
        known = next(filter(self._entries.__contains__, changes), None)
        if known is not None and not allow_val_change:
            raise SightglassError(
                f"Entry {known!r} of the config would change from {self[known]!r:.100} to {changes[known]!r:.100}."
                " Pass allow_val_change=True to config.update"
            )
        self._entries.update(changes)
        self._changed(changes)

    def setdefaults(self, d: Any) -> None:
        """Set the entries that are not there yet."""
        self.update({name: value for name, value in entries_of(d).items() if name not in self})

    def as_dict(self) -> dict[str, Any]:
        """Return the entries."""
        return dict(self._entries)


def entries_of(given: Any) -> dict[str, Any]:
    """Return a config as plain entries: a mapping, a namespace, or flags of absl.

    Raises:
        TypeError: It is something else.
    """
    if hasattr(given, "flag_values_dict"):
        given = given.flag_values_dict()
    elif not isinstance(given, Mapping) and hasattr(given, "__dict__"):
        given = vars(given)
    try:
        return {str(name): plain(value) for name, value in dict(given or {}).items()}
    except (TypeError, ValueError):
        raise TypeError(f"Expected a mapping or a namespace as config, got {type(given).__name__}") from None


class WandbSummary(Entries):
    """The summary: the last value of each series, or what the program sets."""

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

    def update(self, d: Any = ()) -> None:  # type: ignore[override]
        """Set entries."""
        for name, value in dict(d).items():
            self.keep(str(name), value)
        self._changed(dict(d))

    def __getitem__(self, name: str) -> Any:
        found = self._entries[name]  # a number may be on a device, which is waited for here, and not for each row
        host = to_host(found) if array_kind(found) is not None else found
        return host.item() if isinstance(host, np.generic) else host


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


class Metrics:
    """The metrics that a program has defined, and the last values of those that are x axes."""

    def __init__(self) -> None:
        self._defined: dict[str, Metric] = {}
        self._axes: dict[str, Any] = {}
        self._n: dict[str, int] = {}

    def define(self, name: str, step_metric: Any, summary: str | None, goal: str | None, *, anew: bool) -> Metric:
        """Define a metric, or add to what is defined.

        Raises:
            SightglassError: A kind of summary is unknown.
        """
        kinds = dict.fromkeys(kind.strip() for kind in (summary or "").split(",") if kind.strip())
        if unknown := kinds.keys() - {*KINDS}:
            raise SightglassError(f"Expected a summary of {', '.join(KINDS)}, got {', '.join(sorted(unknown))}")
        before = Metric(name=name) if anew else self._defined.get(name) or Metric(name=name)
        axis = getattr(step_metric, "name", step_metric) or before.step_metric
        metric = Metric(name=name, step_metric=axis, kinds=before.kinds | kinds, goal=goal or before.goal)
        self._defined[name] = metric
        if axis:
            self._axes.setdefault(axis, 0)
        return metric

    def tracks(self, row: dict[str, Any]) -> dict[str, float]:
        """Return the x axes of a row; those that it lacks are added, with their last values."""
        for name in [*row] if self._axes else ():
            metric = self._of(name)
            if metric is not None and metric.step_metric and name not in self._axes:
                row.setdefault(metric.step_metric, self._axes[metric.step_metric])
        found = {name: to_host(row[name]) for name in self._axes if name in row}
        self._axes |= found
        return {name: at for name, at in found.items() if name not in NOT_TRACKS and isinstance(at, int | float)}

    def summarise(self, row: Mapping[str, Any], into: WandbSummary, within: str = "") -> None:
        """Take a row into a summary."""
        for name, value in row.items():
            if isinstance(value, Mapping):
                self.summarise(value, into.inner(name), f"{within}{name}.")
                continue
            metric = self._of(within + name) if self._defined else None
            kinds = {} if metric is None else metric.kinds
            if metric is None or not kinds.keys() - {"copy"}:
                into.keep(name, value)
            elif kinds.keys() - {"none"} and isinstance(number := to_host(value), int | float):
                self._aggregate(metric, within + name, number, into.inner(name))

    def _aggregate(self, metric: Metric, path: str, number: float, into: WandbSummary) -> None:
        n = self._n[path] = self._n.get(path, 0) + 1
        for kind in metric.kinds.keys() - {"none", "copy"}:
            before = into.get(kind, number)
            larger = kind == "max" or (kind == "best" and metric.goal.startswith("max"))
            if kind == "mean":
                number_now = before + (number - before) / n
            elif kind in ("first", "last"):
                number_now = before if kind == "first" else number
            else:  # NaN stays
                number_now = next(filter(math.isnan, (before, number)), (max if larger else min)(before, number))
            into.keep(kind, number_now)

    def _of(self, name: str) -> Metric | None:
        globs = (one for key, one in self._defined.items() if key.endswith("*") and name.startswith(key[:-1]))
        return self._defined.get(name) or next(globs, None)
