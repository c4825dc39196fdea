"""Waiting for the end of a writer."""

from __future__ import annotations

import io
import sys

import pytest

from sightglass.core.errors import StorageError
from sightglass.storage.write.writer import LossReport, wait_for_end


class Slow:
    """A writer that writes one record in so many waits, and ends with the last; it stops at `stuck`."""

    def __init__(self, n: int, *, each: int = 1, stuck: int = 0) -> None:
        self.n, self.stuck, self.each = n, stuck, each
        self.waits: list[float] = []

    def close(self, timeout_s: float) -> bool:
        self.waits.append(timeout_s)
        if self.n > self.stuck and len(self.waits) % self.each == 0:
            self.n -= 1
        return self.n == 0

    def n_waiting(self) -> int:
        return self.n


@pytest.mark.parametrize("each", [1, 7])
def test_it_waits_as_long_as_there_is_progress(each: int) -> None:
    slow = Slow(500, each=each)
    assert wait_for_end(slow.close, slow.n_waiting, 4.0)
    assert sum(slow.waits) > 100  # much longer than without progress


def test_it_gives_up_when_nothing_is_written_any_more() -> None:
    slow = Slow(50, stuck=20)
    assert not wait_for_end(slow.close, slow.n_waiting, 10.0)
    assert slow.n == 20
    assert 10 <= sum(slow.waits[30:]) <= 11


def test_a_short_wait_is_one_wait() -> None:
    slow = Slow(1)
    assert wait_for_end(slow.close, slow.n_waiting, 0.5)
    assert slow.waits == [0.5]


def test_a_terminal_shows_what_is_left_and_is_clean_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", terminal)
    slow = Slow(1_235)
    assert wait_for_end(slow.close, slow.n_waiting, 10.0)
    lines = terminal.getvalue().split("\r\033[K")
    assert lines[1] == "sightglass: 1,234 records are still to be written"
    assert lines[-1] == ""


def test_what_waits_at_the_end_is_lost_and_counted() -> None:
    losses = LossReport()
    with pytest.raises(StorageError, match=r"stuck; 3 wait.*0 are lost$"):
        losses.check(3, unfinished="stuck")
    with pytest.raises(StorageError, match=r"stuck; 0 wait.*3 are lost$"):
        losses.check(3, unfinished="stuck", over=True)
    assert losses.n_dropped == 3
    losses.check(0)
