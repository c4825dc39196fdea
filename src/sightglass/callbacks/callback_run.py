"""The run of a callback: one that the user passed, or one that begins and ends with the training."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sightglass.core.process.current_run import Handle
from sightglass.training.process_runs import init
from sightglass.training.run import Run

if TYPE_CHECKING:
    from sightglass.torch import Watched

runs_of_loggers: weakref.WeakSet[Run] = weakref.WeakSet()
"""The runs that a logger of the same training logs in, so that its callback does not do it again."""


class CallbackRun(Handle):
    """The run of one training.

    Attributes:
        run: The run; `None` before the training begins, unless the user passed a run.
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
        self._name = run if isinstance(run, str) else None
        self._options = dict(options)
        self._watched: Watched | None = None

    def begin(self, facts: Callable[[], Mapping[str, Any]] = dict) -> Run:
        """Return the run; begin it unless the user passed one.

        Args:
            facts: Returns what is known of the training: the config of a run that begins, beside the user's own.
        """
        if self.run is None:
            assert self._name is not None
            given = self._options.get("config")
            config = {**facts(), **given} if isinstance(given, Mapping) else given or facts()
            self.run = init(self._name, **{**self._options, "config": config})
        return self.run

    def log_hyper_parameters(self, parameters: Mapping[str, Any]) -> None:
        """Log hyper-parameters as `hparams/{name}`; what is neither a number nor a text, as its `repr`."""
        if shown := {k: v if isinstance(v, int | float | str) else repr(v) for k, v in parameters.items()}:
            self.begin().log({"hparams": shown})

    def watch(self, module: Any, optimizer: Any = None) -> None:
        """Watch a module until the run ends."""
        from sightglass.torch import watch  # which loads PyTorch

        self._watched = watch(module, self.run, optimizer=optimizer)

    def end(self) -> None:
        """Stop watching, and end the run, unless the user passed it."""
        if self._watched is not None:
            self._watched.close()
            self._watched = None
        if self.run is not None and self._name is not None:
            run, self.run = self.run, None
            run.close()

    @property
    def stopping(self) -> bool:
        """Whether a client has stopped the run."""
        return self.run is not None and self.run.stopping

    def observe(self, event: str, metrics: Mapping[str, object] | None = None, /, **own: object) -> None:
        """Observe an event, with the metrics whose names are free; do nothing before the training begins."""
        if self.run is not None:
            taken = {*own, "snapshot", "event", "self"}
            self.run.observe(event, **own, **{str(k): v for k, v in (metrics or {}).items() if k not in taken})

    def end_epoch(self) -> None:
        """Close the groups of "batch"."""
        if self.run is not None:
            self.run.end_group("batch")
