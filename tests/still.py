"""A worker without a thread: the test runs the rounds."""

from __future__ import annotations

from sightglass.core.process.threads import Worker


class Still(Worker):
    """Rests until the test runs a round: `worker.supervised.round(now_s)`."""

    def wake(self) -> None:
        """Do nothing."""

    def close(self, timeout_s: float) -> bool:
        """Do nothing; return whether the loop is over, which is not known."""
        self.supervised.closing = True
        return False
