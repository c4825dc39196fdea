"""What a program prints, as texts of its run.

The `write` of `sys.stdout` and `sys.stderr` is followed, and not the file descriptors: the program keeps its streams,
with their terminal, buffers and order, and what holds one of them already, such as a handler of `logging`, is followed,
too. What libraries print in C is not.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from sightglass.core.redact import redact_text

STREAMS: Final = {"out": "stdout", "err": "stderr"}
MAX_WAITING: Final = 2**20  # characters, for half a second
MAX_LINES: Final = 2_000  # in half a second: more is not for people to read
MAX_LINE: Final = 2_000  # characters
_COLOURS: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")

Take = Callable[[str, Sequence[str]], None]


class Console:
    """Follows both streams, and hands on the lines that were finished."""

    def __init__(self, take: Take) -> None:
        """Begin to follow.

        Args:
            take: Gets "out" or "err" and the lines since the last time, on the thread of `tick`.
        """
        self._take = take
        self._followed = {name: Followed(getattr(sys, stream)) for name, stream in STREAMS.items()}

    def tick(self, now_s: float) -> None:
        """Hand on the lines that were finished. If that fails, follow no more: nobody will call again."""
        try:
            self._hand_on(at_end=False)
        except BaseException:
            self._leave()
            raise

    def close(self) -> None:
        """Follow no more, and hand on the rest."""
        self._leave()
        self._hand_on(at_end=True)

    def _leave(self) -> None:
        for followed in self._followed.values():
            followed.leave()

    def _hand_on(self, *, at_end: bool) -> None:
        for name, followed in self._followed.items():
            if lines := followed.lines(at_end=at_end):
                self._take(name, lines)


class Followed:
    """A text stream whose writes are followed. Where the stream does not allow it, there is nothing to see."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._pieces: deque[str] = deque()
        self._n_waiting = self._n_lost = 0
        self._rest = ""
        self._write: Callable[[str], Any] | None = None
        with contextlib.suppress(AttributeError):  # no console, or a class of the program's without room for it
            before = stream.write

            def write(text: str) -> Any:
                written = before(text)
                self._note(text)
                return written

            stream.write = self._write = write

    def leave(self) -> None:
        """Give the stream its own `write` again, unless somebody else follows it, too."""
        if self._write is not None and getattr(self._stream, "__dict__", {}).get("write") is self._write:
            del self._stream.write
        self._write = None

    def lines(self, *, at_end: bool) -> list[str]:
        """Return the lines that were finished; of one that was written over, such as a progress bar, the last state."""
        pieces = [self._rest]
        while self._pieces:
            pieces.append(self._pieces.popleft())
        self._n_waiting = 0
        *lines, rest = "".join(pieces).split("\n")
        if at_end and rest:
            lines, rest = [*lines, rest], ""
        self._rest = rest[rest.rfind("\r", 0, -1) + 1 :][-MAX_LINE:]
        n_lost, self._n_lost = self._n_lost, 0
        n_left = max(0, len(lines) - MAX_LINES)
        left_out = [f"… {n:,} {what} left out" for n, what in ((n_left, "lines"), (n_lost, "characters")) if n]
        return left_out + [_plain(line) for line in lines[n_left:]]

    def _note(self, text: object) -> None:
        if self._write is None or not isinstance(text, str):
            return
        if self._n_waiting + len(text) > MAX_WAITING:
            self._n_lost += len(text)
            return
        self._n_waiting += len(text)
        self._pieces.append(text)


def _plain(line: str) -> str:
    """Return a line as a terminal would show it, without colours and secrets."""
    shown = _COLOURS.sub("", line).rstrip("\r").rpartition("\r")[2].rstrip()
    return redact_text(shown if len(shown) <= MAX_LINE else shown[:MAX_LINE] + "…")
