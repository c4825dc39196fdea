"""Waiting for the end of a writer: as long as it makes progress, which a terminal shows."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Final

MOMENT_S: Final = 1.0  # a shorter wait is not worth a line
LOOK_S: Final = 0.25


def wait_for_end(close: Callable[[float], bool], n_waiting: Callable[[], int], timeout_s: float) -> bool:
    """Wait until a writer has ended, or has written nothing for `timeout_s`; return whether it has ended.

    Args:
        close: Waits for the end, for so many seconds at most, and returns whether it is there.
        n_waiting: Returns how many records wait to be written.
        timeout_s: For how long nothing may happen.
    """
    idle_s = min(MOMENT_S, timeout_s)
    finished, n_left = close(idle_s), n_waiting()
    try:
        while not finished and idle_s < timeout_s:
            _show(f"sightglass: {n_left:,} records are still to be written")
            finished = close(min(LOOK_S, timeout_s))
            n_before, n_left = n_left, n_waiting()
            idle_s = idle_s + LOOK_S if n_left == n_before else 0.0
    finally:
        _show("")
    return finished


def _show(line: str) -> None:
    """Replace the last line of a terminal."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # there is none, or it was closed
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\033[K{line}")
            sys.stderr.flush()
