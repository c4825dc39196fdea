"""Whether a run has gone: told by its lock, its silence and the note of its end; the time is given."""

from __future__ import annotations

import pytest

from sightglass.client.connection import LATE_POLLS, POLL_S, SILENCE_S, PresenceCheck

pytestmark = pytest.mark.smoke


class Process:
    """A run's process, as a client on the same machine sees it."""

    def __init__(self) -> None:
        self.alive, self.closed = True, False
        self.check = PresenceCheck(lambda: self.alive, lambda: self.closed)


@pytest.mark.parametrize(("closed", "verdict"), [(True, "ended"), (False, "died")])
def test_a_dead_process_is_told_after_all_it_sent_was_read(closed, verdict):
    process = Process()
    assert process.check(0.0, heard=False) == "there"
    process.alive, process.closed = False, closed
    assert process.check(POLL_S, heard=False) == "there"
    assert process.check(1.5 * POLL_S, heard=True) == "there"
    assert process.check(2.5 * POLL_S, heard=False) == "there"
    assert process.check(2.9 * POLL_S, heard=False) == "there"
    assert process.check(3.5 * POLL_S, heard=False) == verdict


def test_wakes_do_not_shorten_the_last_look():
    process = Process()
    process.alive = False
    verdicts = [process.check(n * 0.001, heard=False) for n in range(2 * round(POLL_S * 1000))]
    assert verdicts.index("died") == round(POLL_S * 1000)


def test_the_lock_is_looked_at_no_more_than_twice_a_second():
    looks = []
    check = PresenceCheck(lambda: bool(looks.append(1)) or True, lambda: False)
    for n in range(10_000):
        check(n * 0.001, heard=False)
    assert len(looks) == 20


def test_silence_counts_from_the_last_word():
    check = PresenceCheck(None, lambda: False)
    assert check(100.0, heard=False) == "there"
    for n in range(round(SILENCE_S)):
        assert check(101.0 + n, heard=n == 0) == "there"
    assert check(101.0 + SILENCE_S, heard=False) == "there"
    assert check(101.1 + SILENCE_S, heard=False) == "silent"


def test_a_client_that_was_stopped_reads_first():
    check = PresenceCheck(None, lambda: False)
    assert check(0.0, heard=True) == "there"
    assert check(1000.0, heard=False) == "there"
    process = Process()
    process.alive = False
    assert process.check(0.0, heard=False) == "there"
    late_s = POLL_S + LATE_POLLS * POLL_S
    assert process.check(late_s, heard=False) == "there"
    assert process.check(late_s + POLL_S / 2, heard=False) == "there"
    assert process.check(late_s + POLL_S, heard=False) == "died"
