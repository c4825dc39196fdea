"""Outboxes deliver in order on another thread, and count what they lose."""

from __future__ import annotations

import threading

import pytest

from sightglass.core.counts import Statistics
from sightglass.core.errors import StorageError
from sightglass.storage import delivery_queue
from sightglass.storage.delivery_queue import DeliveryQueue

pytestmark = pytest.mark.smoke


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
    assert box.statistics() == Statistics(n_events=1_001)


def test_an_unused_queue_starts_no_thread():
    ended = []
    box = DeliveryQueue(
        "test", print, settle=lambda: pytest.fail("settled"), end=lambda: ended.append(threading.get_ident())
    )
    box.flush(30)
    box.close(30)
    box.close(30)
    assert ended == [threading.get_ident()]


def test_a_failed_delivery_is_warned_about_once_counted_and_raised():
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
        pytest.warns(RuntimeWarning, match="^test: .*ValueError: odd: 1") as warned,
        pytest.raises(StorageError, match=r"3 lost: ValueError: odd: 5$"),
    ):
        run()
    assert len(warned) == 1
    assert seen == [0, 2, 4]
    assert box.statistics().n_dropped == 3
    box.flush(30)
    box.close(30)


def test_a_failure_at_the_end_is_raised_too():
    def end():
        raise StorageError("the disk is full")

    box = DeliveryQueue("test", lambda item: None, end=end)
    box.put(1)
    with (
        pytest.warns(RuntimeWarning, match="disk is full"),
        pytest.raises(StorageError, match=r"0 lost: .*disk"),
    ):
        box.close(30)


def test_the_queue_is_bounded(monkeypatch):
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
    with pytest.warns(RuntimeWarning, match="queue is full"):
        [box.put(size, size) for size in (60, 60, 20, 10, 1)]
    assert box.statistics().n_dropped == 2
    go.set()
    with pytest.raises(StorageError, match="2 lost"):
        box.close(30)
    assert seen == ["first", 60, 20, 10]


def test_items_put_after_close_are_lost():
    box = DeliveryQueue("test", print)
    box.close(30)
    with pytest.warns(RuntimeWarning, match="queue is closed"):
        box.put(1)
    assert box.statistics().n_dropped == 1


def test_a_flush_that_takes_too_long_says_so():
    go = threading.Event()
    box = DeliveryQueue("test", lambda item: go.wait(30))
    box.put(1)
    box.put(2)
    with pytest.raises(StorageError, match=r"0.01 s, \d waiting"):
        box.flush(0.01)
    go.set()
    box.close(30)
