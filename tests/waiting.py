"""Waits for facts: what another thread, process or page does. No test waits for a time, and none asserts a duration."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 90.0  # a machine that runs all tests at once is slow
PAUSE_S = 0.005


class PatienceError(AssertionError):
    """A fact did not come true in time; only this failure of a test of real processes lets it run again, see `gate`."""


def wait_until(
    condition: Callable[[], Any],
    what: object = "the condition",
    *,
    timeout_s: float = PATIENCE_S,
    pause: Callable[[], object] | None = None,
) -> Any:
    """Ask again and again until the answer is true, and return it.

    Args:
        condition: Returns something true once the fact is there.
        what: What is waited for, for the error; a function is called when the time is over.
        timeout_s: How long, in seconds.
        pause: What happens between two looks beside a short sleep, such as the next event of a run.

    Raises:
        PatienceError: It did not come true in time.
    """
    deadline_s = time.monotonic() + timeout_s
    while not (found := condition()):
        if time.monotonic() >= deadline_s:
            raise PatienceError(f"Expected within {timeout_s:g} s: {what() if callable(what) else what}")
        if pause is not None:
            pause()
        time.sleep(PAUSE_S)
    return found
