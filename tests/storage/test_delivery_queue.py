"""Outboxes deliver in order on another thread, and count what they lose."""

from __future__ import annotations

import threading

import pytest

from sightglass.core.errors import StorageError
from sightglass.storage import delivery_queue
from sightglass.storage.delivery_queue import DeliveryQueue


def test_everything_is_delivered_in_order_on_another_thread():
    seen, threads = [], set()

    def deliver(item):
        seen.append(item)
        threads.add(threading.get_ident())

    box = DeliveryQueue("test", deliver, settle=lambda: seen.append("settled"), end=lambda: seen.append("ended"))
    for i in range(1_000):
        box.put(i)
    box.flush(30)
    assert seen == [*range(1_000), "settled"]
    box.put("last")
    box.close(30)
    box.close(30)
    assert seen[1_001:] == ["last", "settled", "ended"]
    assert threading.get_ident() not in threads
    assert box.statistics().n_delivered == 1_001


def test_nothing_is_started_for_nothing():
    ended = []
    box = DeliveryQueue(
        "test", print, settle=lambda: pytest.fail("settled"), end=lambda: ended.append(threading.get_ident())
    )
    box.flush(30)
    box.close(30)
    box.close(30)
    assert ended == [threading.get_ident()]


def test_what_cannot_be_delivered_is_warned_of_once_counted_and_raised():
    seen = []

    def deliver(item):
        if item % 2:
            raise ValueError(f"odd: {item}")
        seen.append(item)

    box = DeliveryQueue("test", deliver)

    def run():
        for i in range(6):
            box.put(i)
        box.flush(30)

    with (
        pytest.warns(RuntimeWarning, match=r"^test: not all can be written: ValueError: odd: 1; further") as told,
        pytest.raises(StorageError, match=r"^test: not all could be written, 3 lost: ValueError: odd: 5$"),
    ):
        run()
    assert len(told) == 1
    assert seen == [0, 2, 4]
    assert box.statistics().n_lost == 3
    box.flush(30)
    box.close(30)


def test_a_failure_at_the_end_is_raised_too():
    def end():
        raise StorageError("the disk is full")

    box = DeliveryQueue("test", lambda item: None, end=end)
    box.put(1)
    with (
        pytest.warns(RuntimeWarning, match="the disk is full"),
        pytest.raises(StorageError, match=r"0 lost: the disk is full$"),
    ):
        box.close(30)


def test_it_holds_so_many_and_no_more(monkeypatch):
    monkeypatch.setattr(delivery_queue, "MAX_WAITING", 3)
    monkeypatch.setattr(delivery_queue, "MAX_WAITING_BYTES", 100)
    begun, go, seen = threading.Event(), threading.Event(), []

    def deliver(item):
        begun.set()
        go.wait(30)
        seen.append(item)

    box = DeliveryQueue("test", deliver)
    box.put("first", 10)
    begun.wait(30)
    with pytest.warns(RuntimeWarning, match="too much waits to be written"):
        [box.put(size, size) for size in (60, 60, 20, 10, 1)]
    assert box.statistics().n_lost == 2
    go.set()
    with pytest.raises(StorageError, match="2 lost"):
        box.close(30)
    assert seen == ["first", 60, 20, 10]


def test_what_comes_after_the_end_is_lost():
    box = DeliveryQueue("test", print)
    box.close(30)
    with pytest.warns(RuntimeWarning, match="it is closed"):
        box.put(1)
    assert box.statistics().n_lost == 1


def test_a_flush_that_takes_too_long_says_so():
    go = threading.Event()
    box = DeliveryQueue("test", lambda item: go.wait(30))
    box.put(1)
    box.put(2)
    with pytest.raises(StorageError, match=r"not within 0.01 s, \d wait$"):
        box.flush(0.01)
    go.set()
    box.close(30)
