"""What the callbacks share: a run that is the user's own, or is begun and ended with the training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sightglass.training.run import Run, init


class CallbackRun:
    """The run of one training.

    Attributes:
        run: The run; `None` before the training begins, if it is not the user's own.
    """

    def __init__(self, run: Run | str, options: Mapping[str, Any]) -> None:
        """Remember what to do when the training begins.

        Raises:
            TypeError: It is neither a run nor the name of one; or there are options for a run that has begun already.
        """
        if not isinstance(run, Run | str):
            raise TypeError(f"Expected a run or the name of one, got {type(run).__name__} {run!r:.100}")
        if isinstance(run, Run) and options:
            raise TypeError(f"Expected no options for a run that has begun, got {', '.join(options)}")
        self.run = run if isinstance(run, Run) else None
        self._name = run if isinstance(run, str) else None
        self._options = dict(options)

    def begin(self) -> Run:
        """Return the run, which begins now if it is not the user's own."""
        if self.run is None:
            assert self._name is not None
            self.run = init(self._name, **self._options)
        return self.run

    def end(self) -> None:
        """End the run, if it is not the user's own."""
        if self.run is not None and self._name is not None:
            run, self.run = self.run, None
            run.close()

    @property
    def stopping(self) -> bool:
        """Whether a client has asked to stop."""
        return self.run is not None and self.run.stopping

    def observe(self, event: str, **observables: Any) -> None:
        """Announce an event, once the training has begun."""
        if self.run is not None:
            self.run.observe(event, **observables)


def named(values: Mapping[str, Any] | None, taken: Mapping[str, Any]) -> dict[str, Any]:
    """Return metrics as observables, but for those whose names are taken."""
    return {str(k): v for k, v in (values or {}).items() if k not in taken and k not in ("snapshot", "event", "self")}
