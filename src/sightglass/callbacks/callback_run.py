"""The run of a plug-in, of a callback, a logger or a tracker: one that the user passed, or one that it begins.

A run that a plug-in begins ends with each stage of the training, and the next stage continues it in its directory: one
training is one run, whatever stages it has.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightglass.core.process.current_run import Handle
from sightglass.core.process.ranks import is_first_rank
from sightglass.query.parser import as_query
from sightglass.storage.run_file import read_all
from sightglass.training.options import Files
from sightglass.training.process_runs import init
from sightglass.training.run import MuteRun, Run, wiring

from .hyper_parameters import as_config

if TYPE_CHECKING:
    from sightglass.torch import Watched

runs_of_loggers: weakref.WeakSet[Run] = weakref.WeakSet()
"""The runs that a logger of the same training logs in, so that its callback does not do it again."""


class CallbackRun(Handle):
    """The run of one training.

    Attributes:
        run: The run while it is live, or the one that the user passed; `None` before the first stage and between two.
        name: The run's name.
        id: The id of the first run in the directory; empty before that has begun.
        directory: The run's directory; `None` before the run has begun.
    """

    def __init__(self, run: Run | str, options: Mapping[str, Any]) -> None:
        """Take a run, or the name and the options of a run to begin with the training.

        Raises:
            TypeError: `run` is neither a run nor a name, or options are given for a run that exists.
        """
        if not isinstance(run, Run | str):
            raise TypeError(f"Expected a run or the name of one, got {type(run).__name__} {run!r:.100}")
        if isinstance(run, Run) and options:
            raise TypeError(f"Expected no options for a run that exists, got {', '.join(options)}")
        self.run = run if isinstance(run, Run) else None
        self.name = run.name if isinstance(run, Run) else run
        self.id = run.id if isinstance(run, Run) else ""
        self.directory: Path | None = run.directory if isinstance(run, Run) else None
        self._owns = self.run is None
        self._begun = False
        self._options = dict(options)
        self._config: dict[str, Any] = {}
        self._saved: set[tuple[str | bytes, int]] = set()
        self._watched: Watched | None = None

    def begin(self, facts: Callable[[], Mapping[str, Any]] = dict) -> Run:
        """Return the run; begin or continue it, unless the user passed one.

        Args:
            facts: Returns what is known of the training: the config of a run that begins, beside the user's own.
        """
        if self._ended():
            given, files = as_config(self._options.get("config")), self._options.get("files") or Files()
            known = {name: value for name, value in as_config(facts()).items() if name not in given}
            if self.directory is not None:
                files = replace(files, into=self.directory, repeats=False)
            earlier = read_all(Path(files.into)) if files.into is not None else []
            written = earlier[-1].config if earlier else {}  # perhaps by another process
            self._config = {**written, **({} if self._begun else given), **self._config, **known}
            self._begun = True
            self.run = run = init(self.name, **{**self._options, "files": files, "config": self._config})
            if is_first_rank():
                wiring(run).keep()
            self.id, self.directory = self.id or (earlier[0].id if earlier else run.id), run.directory
        assert self.run is not None
        return self.run

    def _ended(self) -> bool:
        """Return whether the run has to begin, or to continue: what was sent from another process has ended here."""
        run = self.run
        return self._owns and (run is None or isinstance(run, MuteRun) or (run.ended and not run.disabled))

    def forget(self) -> None:
        """Begin a new run next, in a directory of its own, unless the user passed the run."""
        self.end()
        if self._owns:
            self.id, self.directory, self._config, self._begun = "", None, {}, False

    def settle(self) -> None:
        """Make the run's directory now, and leave it to the processes that this object is sent to, to train there."""
        if self._owns and not self.id:
            self.begin()
        if self._watched is None:  # else it is in the middle of a training
            self.end()

    def or_meant(self, other: object) -> CallbackRun:
        """Return the run of another plug-in of the trainer, if this one has its name and says no more; else this one.

        Queries to record are recorded there.
        """
        if not isinstance(other, CallbackRun) or other is self or not self._owns or self.name != other.name:
            return self
        mine, theirs = ({k: v for k, v in of._options.items() if k != "record"} for of in (self, other))
        if mine and mine != theirs:
            return self
        known = other._options.get("record", ())
        queries = [query for query in self._options.get("record", ()) if query not in known]
        if queries and other._owns:
            other._options["record"] = [*known, *queries]
        service = None if other.run is None else wiring(other.run).service
        if service is not None:
            for query in queries:
                service.record(as_query(query))
        return other

    def log(self, data: Mapping[str, Any], *, step: float | None = None, **steps: float) -> None:
        """Log metrics, on rank 0: the metrics of a program are the same on all ranks."""
        if data and is_first_rank():
            self.begin().log(data, step=step, **steps)

    def file(self, path: object, *, step: float | None = None) -> None:
        """Record a file that the training has saved, on rank 0, once; other values are left out."""
        if not isinstance(path, str | os.PathLike) or not is_first_rank():
            return
        with contextlib.suppress(OSError):
            saved = os.fspath(path), os.stat(path).st_mtime_ns
            if saved not in self._saved:
                continues = self._ended()
                self.begin().file(path, step=step)
                self._saved.add(saved)
                if continues:  # after the training
                    self.end()

    def log_hyper_parameters(self, parameters: object) -> None:
        """Make hyper-parameters part of the run's config: new values replace those of the same names."""
        found = as_config(parameters)
        self._config |= found
        if self._ended():
            self.begin()
        elif found:
            run = self.begin()
            run.config = {**run.config, **found}
            wiring(run).change_config(found)
            wiring(run).keep()

    def watch(self, module: Any, optimizer: Any = None) -> None:
        """Watch a module until the run ends."""
        from sightglass.torch import watch  # which loads PyTorch

        self._watched = watch(module, self.run, optimizer=optimizer)

    def end(self, error: BaseException | None = None) -> None:
        """Stop watching, and end the run, unless the user passed it; `error` is what ends the training, if anything."""
        if self._watched is not None:
            self._watched.close()
            self._watched = None
        if self.run is not None and self._owns:
            run, self.run = self.run, None
            self.directory = run.directory
            run.__exit__(None if error is None else type(error), error)

    @property
    def stopping(self) -> bool:
        """Whether a client has stopped the run."""
        return self.run is not None and self.run.stopping

    def observe(self, event: str, metrics: Mapping[str, object] | None = None, /, **own: object) -> None:
        """Observe an event, with the metrics whose names are free; do nothing while there is no run."""
        if self.run is not None:
            taken = {*own, "snapshot", "event", "self"}
            self.run.observe(event, **own, **{str(k): v for k, v in (metrics or {}).items() if k not in taken})

    def end_epoch(self) -> None:
        """Close the groups of "batch"."""
        if self.run is not None:
            self.run.end_group("batch")
