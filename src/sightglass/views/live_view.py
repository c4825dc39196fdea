"""What every live view has, on whatever surface: its streams, the `with` block, and waiting for the end."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import ClassVar, Self

from sightglass.core.source import Source

from .stream_set import StreamSet


class View(ABC):
    """A live drawing of some streams, on any surface.

    A surface sets `_streams`, and defines `start`, `show`, `close` and, unless it has its own `wait`, `_poll_s`.
    """

    _streams: StreamSet
    _poll_s: ClassVar[float]  # how long `wait` sleeps between two checks

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        labels = ", ".join(self._streams.labels) or "nothing"
        return f"<{type(self).__name__} of {labels}: {self._streams.view or 'waiting'}>"

    @property
    def sources(self) -> tuple[Source, ...]:
        """The streams of the view."""
        return self._streams.sources

    @property
    def ended(self) -> bool:
        """Whether all streams have ended and all their records are drawn."""
        return self._streams.ended

    def add(self, source: Source, *, second: bool = False) -> None:
        """Draw another stream too. A stream that is drawn already is ignored.

        Args:
            source: The stream.
            second: Draw it against a second y axis, on the right.

        Raises:
            ViewError: Its values cannot share the view with those of the others.
        """
        self._streams.add(source, second=second)
        self._streams_changed()

    def remove(self, source: Source) -> None:
        """Stop drawing a stream. A stream that is not drawn is ignored."""
        self._streams.remove(source)
        self._streams_changed()

    @abstractmethod
    def start(self) -> Self:
        """Draw in the background from now on."""

    @abstractmethod
    def show(self) -> None:
        """Draw until the streams end or the user stops it."""

    @abstractmethod
    def close(self) -> None:
        """Stop drawing. The last drawing stays. Closing twice is allowed."""

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the streams have ended, and return whether they have."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.ended:
            if deadline is not None and time.monotonic() >= deadline:
                return False
            if not self._is_pulled():
                self._streams.pull()
            time.sleep(self._poll_s)
        return True

    def _is_pulled(self) -> bool:
        """Return whether another thread pulls the streams."""
        return False

    def _streams_changed(self) -> None:  # noqa: B027  a hook that not every surface needs
        """React to a stream that was added or removed."""
