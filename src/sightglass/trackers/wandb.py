"""Adopt a run of Weights & Biases: what the program logs there can be queried while it runs, and is recorded.

W&B tells of changes of its config and summary by private callbacks, one each, so ours call those that they replace.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from sightglass.core import plotly_json
from sightglass.core.errors import StorageError, warn
from sightglass.core.program_values.guarded import FAILURES, LostValue, message
from sightglass.core.values import Figure, Histogram, Text
from sightglass.storage.foreign.wandb_messages import OWN
from sightglass.storage.format.wav import decode_wav
from sightglass.storage.wandb import SHARED, before_finish
from sightglass.training.process_runs import init
from sightglass.training.run import Run, wiring

from . import media
from .wandb_run import alert
from .wandb_values import WandbImage

KINDS: Final = ("Histogram", "Image", "Table", "Html", "Plotly", "CustomChart")
"""The types of W&B for which a run has a value type, besides sounds, which have to be in WAV files."""
IN_CELLS: Final = ("Image", "Audio", "Html", "Plotly")  # of which a table keeps more than the name of the type


def adopt(wandb_run: Any, run: Run | None = None, **options: Any) -> Run:
    """Log everything that goes into a W&B run, by `wandb.log` or its own `log`, in a run of Sightglass, too.

    What the program sets in the W&B run's summary is logged as `summary/{name}`, and its alerts are alerts of the run,
    too. The steps are W&B's. Numbers, texts,
    arrays, histograms, pictures, sounds in WAV files, tables and custom charts, which become their tables, Plotly's and
    Matplotlib's figures and HTML, as text, are logged; W&B's other types, such as videos, are left out: the first of
    each type warns.

    Args:
        wandb_run: The W&B run, such as `wandb.run`.
        run: The run to log into; by default one with the W&B run's name and config, which follows changes of the config
            and ends with the W&B run.
        **options: Arguments of `sightglass.init` for that run.

    Returns:
        The run; if the W&B run was adopted before, the same one.

    Raises:
        TypeError: This is not a W&B run, or a run is given, and options as well.
        ValueError: The run's mirror is W&B: records would go round in a circle.
    """
    if not (callable(getattr(wandb_run, "log", None)) and hasattr(wandb_run, "define_metric")):
        raise TypeError(f"Expected a W&B run, such as wandb.run after wandb.init(), got {wandb_run!r:.100}")
    if run is not None and options:
        raise TypeError(f"Expected no options for a run that exists, got {', '.join(options)}")
    mirror = options.get("mirror", ()) if run is None else wiring(run).settings.mirror
    if mirror == "wandb" or (isinstance(mirror, list | tuple) and "wandb" in mirror):
        raise ValueError("Expected a run whose mirror is not W&B: what it adopts would go back there")
    known: Run | None = getattr(wandb_run.log, "adopted_by", None)
    if known is not None:
        return known
    values = _Values()
    if run is None:
        name = wandb_run.name or wandb_run.id or "wandb"
        run = init(name, **{"config": dict(wandb_run.config), **options})
        before_finish(wandb_run, functools.partial(_close, run))
        if "config" not in options:
            _follow_config(wandb_run, run)
    _follow_log(wandb_run, run, values)
    _follow_alerts(wandb_run, run)
    _follow_summary(wandb_run, run, values)
    return run


def _follow_log(wandb_run: Any, run: Run, values: _Values) -> None:
    """Replace the `log` of a W&B run, and the module's if it is that of this run, by one that logs in a run, too."""
    log = wandb_run.log
    disabled = getattr(wandb_run, "disabled", False)  # its own step stays 0

    @functools.wraps(log)
    def log_in_both(data: Mapping[str, Any], *arguments: Any, **keywords: Any) -> Any:
        step = arguments[0] if arguments else keywords.get("step")
        at = getattr(wandb_run, "step", None) if step is None and not disabled else step
        own = values.of_row(data)  # before W&B replaces values in nested mappings
        result = log(data, *arguments, **keywords)
        if own:
            run.log(own, step=at)
        return result

    log_in_both.adopted_by = run  # type: ignore[attr-defined]
    wandb_run.log = log_in_both
    module: Any = sys.modules.get("wandb")
    if module is not None and module.run is wandb_run:
        module.log = log_in_both


def _follow_alerts(wandb_run: Any, run: Run) -> None:
    """Replace the `alert` of a W&B run, and the module's if it is that of this run, by one that tells both."""
    tell = wandb_run.alert

    @functools.wraps(tell)
    def alert_in_both(
        title: str, text: str, level: Any = None, wait_duration: Any = None, *more: Any, **others: Any
    ) -> Any:
        result = tell(title, text, level, wait_duration, *more, **others)
        alert(run, title, text, level, wait_duration, step=wandb_run.step)
        return result

    wandb_run.alert = alert_in_both
    module: Any = sys.modules.get("wandb")
    if module is not None and module.run is wandb_run:
        module.alert = alert_in_both


def _follow_config(wandb_run: Any, run: Run) -> None:
    """Have changes of a W&B run's config change that of a run."""

    def changed(key: Any = None, val: Any = None, data: Mapping[str, Any] | None = None) -> None:
        changes = {name: value for name, value in ({key: val} if data is None else data).items() if _is_own(name)}
        if changes:
            run.config = {**run.config, **changes}
            wiring(run).change_config(changes)

    _call_too(changed, wandb_run, "config", "_callback", "_set_callback")


def _follow_summary(wandb_run: Any, run: Run, values: _Values) -> None:
    """Log changes of a W&B run's summary in a run, as `summary/{name}`."""

    def changed(record: Any) -> None:
        found = {"/".join(item.key): item.value for item in record.update if _is_own(item.key[0])}
        if found:
            run.log(values.of_row({"summary": found}), step=wandb_run.step)

    _call_too(changed, wandb_run, "summary", "_update_callback", "_set_update_callback")


def _call_too(function: Callable[..., None], wandb_run: Any, part: str, callback: str, setter: str) -> None:
    """Have a part of a W&B run call a function before the callback that it has; warn if this version cannot."""
    owner = getattr(wandb_run, part)
    try:
        call, replace = object.__getattribute__(owner, callback), getattr(type(owner), setter)
    except AttributeError:
        if not getattr(wandb_run, "disabled", False):
            warn(f"This version of wandb does not tell of changes of the {part}: they are not followed")
        return

    def call_both(*arguments: Any, **keywords: Any) -> None:
        try:
            function(*arguments, **keywords)
        finally:
            if call is not None:
                call(*arguments, **keywords)

    replace(owner, call_both)


def _is_own(name: object) -> bool:
    """Return whether an entry is the program's, and not one of W&B's own."""
    return isinstance(name, str) and name not in OWN


class _Values:
    """Values for W&B as those of a run."""

    def __init__(self) -> None:
        self._n_left_out: Counter[str] = Counter()

    def of_row(self, data: object) -> dict[str, Any]:
        """Return a row as `Run.log` takes it; empty for what W&B refuses, or has from one of this package."""
        if not isinstance(data, Mapping) or any(not isinstance(name, str) or name.startswith(SHARED) for name in data):
            return {}
        return {_tag(name, value): self.own(value) for name, value in data.items() if not self.is_left_out(value)}

    def is_left_out(self, value: object) -> bool:
        """Return whether a run has no value type for an object of W&B, or a list of these; warn once of each type."""
        if isinstance(value, list | tuple) and value:
            return all(self.is_left_out(item) for item in value)
        name = _wandb_type(value)
        if not name or name in KINDS or (name == "Audio" and _path(value).lower().endswith(".wav")):
            return False
        self._n_left_out[name] += 1
        if self._n_left_out[name] == 1:
            warn(f"A run has no value type for wandb.{name}: such values go to W&B only")
        return True

    def own(self, value: Any) -> Any:
        """Return a value as `Run.log` takes it; what cannot be read is lost, and counted there."""
        try:
            match _wandb_type(value):
                case "":
                    pass
                case "Histogram":
                    return Histogram.from_counts(np.rint(value.histogram), value.bins)
                case "Image":
                    return WandbImage(value.image, caption=_caption(value)).kept
                case "Audio":
                    return decode_wav(Path(_path(value)).read_bytes())
                case "Plotly":
                    return Figure(Path(_path(value)).read_bytes(), plotly_json.MEDIA_TYPE)
                case "Html":
                    return Text(value.html)
                case "Table":
                    return media.table(value.columns, [[self._cell(cell) for cell in row] for row in value.data])
                case "CustomChart":
                    return self.own(value.table)
            if isinstance(value, Mapping):
                return {_tag(name, item): self.own(item) for name, item in value.items() if not self.is_left_out(item)}
            if isinstance(value, list | tuple) and value and all(map(_wandb_type, value)):
                return media.together([self.own(item) for item in value if not self.is_left_out(item)])
        except FAILURES as error:
            return LostValue(message(error))
        return value

    def _cell(self, cell: Any) -> Any:
        """Return a cell of a table; what a table cannot hold is the name of its type."""
        name = _wandb_type(cell)
        if not name:
            return cell
        held = name in IN_CELLS and not self.is_left_out(cell)
        own = self.own(cell) if held else f"wandb.{name}"
        return own.value if isinstance(own, Text) else own


def _tag(name: Any, value: object) -> Any:
    """Return the name of a value in a run: W&B logs a chart as its table, under this name."""
    return f"{name}_table" if _wandb_type(value) == "CustomChart" else name


def _wandb_type(value: object) -> str:
    """Return the name of a class of W&B; empty for other values."""
    cls = type(value)
    return cls.__name__ if cls.__module__.partition(".")[0] == "wandb" else ""


def _path(held: Any) -> str:
    """Return the path of the file in which an object of W&B holds what it is."""
    return str(getattr(held, "_path", None) or "")


def _caption(picture: Any) -> str:
    return str(getattr(picture, "_caption", None) or "")


def _close(run: Run) -> None:
    """Close a run before W&B ends its own, which an exception here would prevent."""
    try:
        run.close()
    except StorageError as error:
        warn(str(error))
