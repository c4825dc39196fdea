"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 90.0  # a machine that runs all tests at once is slow
PAUSE_S = 0.005


def wait_until(condition: Callable[[], Any], what: object = "the condition", *, timeout_s: float = PATIENCE_S) -> Any:
    """Ask again and again until the answer is true, and return it; fail when the time is over."""
    deadline_s = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline_s, f"Expected within {timeout_s:g} s: {what}"
        time.sleep(PAUSE_S)
    return found
