# ruff: noqa: PLR0917  the parameters are W&B's
"""A run of W&B's interface, which records in a run.

Rule 1: a row is what the program logs at one step, by however many calls. It is logged when the step advances, as W&B
does it, or after `HELD_S`, whichever comes first: so it is seen soon, and a kill loses no more than that.
Rule 2: a row whose step is lower than the newest is dropped with a warning, as W&B does it.
Rule 3: nothing that W&B takes raises here. What a run has no place for is warned of once.
"""

from __future__ import annotations

import datetime
import glob as globs
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

from sightglass.alerts.alert import Level
from sightglass.core.description import Ending
from sightglass.core.errors import SightglassError, StorageError, warn
from sightglass.core.process.current_run import Handle
from sightglass.core.process.unpatched import threading
from sightglass.core.program_values.copier import snapshot
from sightglass.core.program_values.guarded import FAILURES, LostValue, message
from sightglass.core.values import PLAIN, to_host
from sightglass.storage import object_file
from sightglass.storage.read.recording import Recording
from sightglass.training.run import FIGURES_OF, Run, wiring

from .wandb_state import Metric, Metrics, WandbConfig, WandbSummary
from .wandb_values import Unkept, own, own_row, unkept

HELD_S: Final = 1.0  # as long as records wait to be written
FILES: Final = "files"
MAX_SAVED_BYTES: Final = 64 * 2**20  # of one file: checkpoints belong elsewhere
LEVELS: Final[Mapping[str, Level]] = {"INFO": "info", "WARN": "warning", "ERROR": "error"}
WAIT_S: Final = 60.0  # between two alerts of one title, as of W&B
SCALARS: Final = ("int", "float", "bool", "str")
LEFT_OUT: Final = (
    "log_artifact", "use_artifact", "upsert_artifact", "finish_artifact", "link_artifact", "log_model", "use_model",
    "link_model", "log_code", "restore", "display", "to_html", "write_logs", "pin_config_keys", "status",
)  # fmt: skip


def alert(run: Run, title: str, text: str, level: Any, wait: Any, *, step: float | None) -> None:
    """Raise an alert as W&B takes it: the level as its enum or its name, the wait in seconds or as a timedelta."""
    named = str(getattr(level, "value", level) or "INFO").upper()
    wait_s = wait.total_seconds() if isinstance(wait, datetime.timedelta) else float(wait or WAIT_S)
    run.alert(str(title), str(text), level=LEVELS.get(named, "info"), wait_s=wait_s, step=step)


class AlertLevel(Enum):
    """How urgent an alert is."""

    INFO = "INFO"
    WARN = "WARN"
    ERROR = "ERROR"


class WandbRun(Handle):
    """What `init` returns.

    Attributes:
        run: The run that records: clients ask it, and it has `observe` and controls.
        id: Its id for `resume`.
        project: Its project, the folder of its directory.
        entity: Who owns it, as given.
        group: Its group.
        job_type: Its kind of job.
        tags: Its tags: labels of the recorded run.
        notes: Its notes: those of the recorded run.
        config: Its configuration.
        summary: Its summary; what the program sets there is recorded as `summary/{name}`.
        resumed: Whether it continues an earlier run.
        starting_step: Its first step.
        start_time: When it began, in seconds since the Unix epoch.
        settings: What was passed as `settings`.
    """

    url = sweep_id = None
    offline = True

    def __init__(self, run: Run, *, config: WandbConfig, ended: Callable[[WandbRun], None], **about: Any) -> None:
        """Log into a run.

        Args:
            run: The run, which ends with this one.
            config: Its configuration.
            ended: Called when it ends.
            **about: The other attributes.
        """
        self.run, self.config, self._ended = run, config, ended
        self.id, self.project, self.entity, self.settings = (about[k] for k in ("id", "project", "entity", "settings"))
        self.group, self.job_type = about["group"] or "", about["job_type"] or ""
        self.summary = WandbSummary(self._set)
        self.start_time = time.time()
        self.resumed: bool = about["resumed"]
        self.tags, self.notes = tuple(dict.fromkeys(about["tags"] or ())), about["notes"]
        self._noted: tuple[tuple[str, ...], str] | None = None if self.group or self.job_type else ((), "")
        self._metrics, self._watched = Metrics(), False
        self._saved: dict[Path, Path] = {}
        self._lock = threading.RLock()
        self._row: dict[str, Any] | None = None
        self._began_s = 0.0
        self._step = self._written = self.starting_step = self._last_step() + 1 if self.resumed else 0
        self._annotate()
        wiring(run).host(self)

    # Rows

    def log(
        self, data: Mapping[str, Any], step: int | None = None, commit: bool | None = None, sync: bool | None = None
    ) -> None:
        """Log values; nested mappings become names with slashes.

        Args:
            data: Names to values: numbers, texts, arrays, figures, and the types of this interface.
            step: The step; by default one more than that of the last row.
            commit: Whether the row ends here; by default, if no step is given.
            sync: Has no effect.

        Raises:
            TypeError: `data` is not a mapping, or a name in it is not a text.
        """
        if not isinstance(data, Mapping) or not all(isinstance(name, str) for name in data):
            raise TypeError(f"Expected a mapping of names to values, got {data!r:.100}")
        with self._lock:
            at = self._step if step is None else int(step)
            if at < self._step:
                warn(f"Dropped what was logged at step {at}: the run is at step {self._step}, and steps only increase")
                return
            if at > self._step:
                self._write()
                self._step = at
            ends = step is None if commit is None else commit
            if self._watched and self._row is None:
                self.run.observe("batch", step=at)
            row = own_row(data)
            if self._row is None:
                self._row, self._began_s = {}, time.monotonic()
            _merge(self._row, row if ends else _copied(row))
            if ends:
                self._write()
                self._step += 1

    def tick(self, now_s: float) -> None:
        """Write a row that has waited, on the thread that serves clients."""
        if self._row and time.monotonic() - self._began_s > HELD_S and self._lock.acquire(blocking=False):
            try:
                self._write()
            finally:
                self._lock.release()

    def close(self) -> None:
        """Write the last row, before the run ends."""
        if self._lock.acquire(timeout=HELD_S):
            try:
                self._write()
                self._annotate()
                self._copy(self._saved)
            finally:
                self._lock.release()

    def _write(self) -> None:
        row, self._row = self._row, None
        if row is None:
            return
        self._written = self._step
        tracks = self._metrics.tracks(row)
        if row:
            self.run.log(row, step=self._step, **tracks)
            self._metrics.summarise(row, self.summary)

    def _set(self, changes: Mapping[str, Any]) -> None:
        self.run.log({"summary": own(changes)}, step=self._written)

    def define_metric(
        self, name: str, step_metric: Any = None, step_sync: Any = None, hidden: Any = None, summary: str | None = None,
        overwrite: bool | None = None, goal: str | None = None,
    ) -> Metric:  # fmt: skip
        """Say how a metric is summarised, and which one is its x axis: the step track of its rows.

        Args:
            name: The metric, or `val/*` for all whose names begin alike.
            step_metric: The metric on its x axis; a row without it has its last value.
            step_sync: Has no effect.
            hidden: Has no effect: charts are chosen in the page.
            summary: Some of "min", "max", "mean", "first", "last", "best" and "none", with commas between them.
            overwrite: Whether this replaces what was said of the metric.
            goal: What is "best": "minimize" or "maximize".

        Raises:
            SightglassError: `summary` has an unknown kind.
        """
        return self._metrics.define(str(name), step_metric, summary, goal, anew=bool(overwrite))

    # What else programs call

    def watch(
        self, models: Any, criterion: Any = None, log: Any = None, log_freq: int = 1000, idx: Any = None,
        log_graph: bool = False,
    ) -> None:  # fmt: skip
        """Let clients ask for gradients, parameters and activations of PyTorch's modules, as the event "batch".

        Nothing is logged: `batch.grads.map(lambda name, g: norm(g))` asks. The other arguments have no effect.
        """
        from sightglass.torch import watch

        modules = [*models] if isinstance(models, list | tuple) else [models]
        for i, module in enumerate(modules):
            watch(module, self.run, name=f"model_{i}" if len(modules) > 1 else "")
        self._watched = True

    def unwatch(self, models: Any = None) -> None:
        """Change nothing: what nobody asks for costs nothing."""

    def alert(self, title: str, text: str = "", level: Any = "INFO", wait_duration: Any = None) -> None:
        """Tell people something, see `sightglass.Run.alert`; what W&B takes as a wait or a level is taken here."""
        alert(self.run, title, text, level, wait_duration, step=self._step)

    def save(
        self, glob_str: Any = None, base_path: Any = None, policy: str = "live", glob: bool = True
    ) -> list[str] | bool:
        """Copy files into `dir`, below their places relative to `base_path`; again at the end, if not "now".

        Returns:
            The paths of the copies.
        """
        found = globs.glob(os.fspath(glob_str or "")) if glob else [os.fspath(glob_str or "")]
        base = base_path or (os.path.dirname(os.path.dirname(found[0])) if found and os.path.isabs(found[0]) else ".")
        places = {
            Path(path): Path(self.dir, *_inside(os.path.relpath(path, base))) for path in filter(os.path.isfile, found)
        }
        self._saved |= {} if policy == "now" else places
        self._copy({} if policy == "end" else places)
        return [*map(os.fspath, places.values())]

    def _copy(self, places: Mapping[Path, Path]) -> None:
        for path, target in places.items():
            try:
                if path.stat().st_size > MAX_SAVED_BYTES:
                    unkept("save", f"{path} is larger than {MAX_SAVED_BYTES >> 20} MiB")
                elif Path(self.dir) not in path.resolve().parents:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(path, target)
            except OSError as error:
                warn(f"Cannot copy {path} into the run's directory: {error}")

    def mark_preempting(self) -> None:
        """Change nothing."""

    def __getattr__(self, name: str) -> Any:
        if name in LEFT_OUT:
            return lambda *arguments, **options: unkept(name, "write files into run.dir")
        raise AttributeError(f"A run has no attribute {name!r}")

    # Names

    @property
    def name(self) -> str:
        """Its name."""
        return self.run.name

    @property
    def step(self) -> int:
        """The step of the row that comes next, or is open; 0 if the run is disabled."""
        return 0 if self.disabled else self._step

    @property
    def dir(self) -> str:
        """A folder in the run's directory for files of the program."""
        folder = Path(tempfile.mkdtemp()) if self.disabled else self.run.directory / FILES
        folder.mkdir(parents=True, exist_ok=True)
        return os.fspath(folder.resolve())

    @property
    def disabled(self) -> bool:
        """Whether every call is a no-op."""
        return self.run.disabled

    def _annotate(self) -> None:
        """Note tags and notes, if they have changed."""
        now = tuple(map(str, self.tags or ())), str(self.notes or "")
        if self.disabled or now == self._noted:
            return
        before, self._noted = self._noted or ((), ""), now
        kinds = [f"{kind}: {name}" for kind, name in (("group", self.group), ("job", self.job_type)) if name]
        try:
            change = object_file.edit_of(
                remove_labels=[*{*before[0]} - {*now[0]}], add_labels=(*dict.fromkeys(now[0]), *kinds), notes=now[1]
            )
            self.run.directory.mkdir(parents=True, exist_ok=True)
            object_file.edit_annotations(self.run.directory, change)
        except (OSError, ValueError) as error:
            warn(f"Cannot note tags and notes: {error}")

    # The end

    def finish(self, exit_code: int | None = None, quiet: bool | None = None) -> None:
        """End the run; one with an exit code other than 0 has failed."""
        if exit_code and not self.run.ended:
            wiring(self.run).ends("failed", Ending(error=f"exit code {exit_code}"))
        self.__exit__(None)

    def __enter__(self) -> WandbRun:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: Any) -> None:
        try:
            self.run.__exit__(kind, *exception)
        except StorageError as error:
            warn(str(error))
        finally:
            self._ended(self)

    def _elsewhere(self) -> tuple[Any, ...]:
        return (Unkept,)

    def __repr__(self) -> str:
        return f"<wandb.Run {self.id!r} of {self.run!r}>"

    def _last_step(self) -> int:
        """Return the last step in the run's directory, -1 without any, and take the last numbers as the summary."""
        last = -1
        try:
            with Recording(self.run.directory) as recording:
                for key in [*recording.keys()]:
                    series = recording.series(key)
                    if key.kind != "logged" or not len(series):
                        continue
                    own_name = key.tag.removeprefix("summary/")
                    last = max(last, int(series[-1].step)) if own_name == key.tag else last
                    if series.type in SCALARS and (own_name == key.tag or own_name not in self.summary):
                        self.summary.keep(own_name, to_host(series[-1].value))
        except (OSError, SightglassError) as error:
            warn(f"Cannot read what run {self.id!r} has recorded: {error}")
        return last


def _merge(row: dict[str, Any], further: Mapping[str, Any]) -> None:
    for name, value in further.items():
        inner = row.get(name)
        if isinstance(value, Mapping) and isinstance(inner, dict):
            _merge(inner, value)
        else:
            row[name] = value


def _copied(row: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a row, whose values the program may overwrite before it is written."""
    if any(map(sys.modules.__contains__, FIGURES_OF)):
        from sightglass.views.frames import encode_figures

        row = encode_figures(row)
    return {name: value if type(value) in PLAIN else _copy(value, name) for name, value in row.items()}


def _copy(value: Any, name: str) -> Any:
    try:
        return (
            {key: _copy(item, key) for key, item in value.items()} if isinstance(value, dict) else snapshot(value, name)
        )
    except FAILURES as error:
        return LostValue(message(error))


def _inside(path: str) -> list[str]:
    """Return the parts of a path that do not lead out of a folder."""
    return [part for part in Path(path).parts if part not in ("..", os.sep)]
