"""Values on a device: the training never waits for them, and what is made of them keeps its order."""

from __future__ import annotations

import itertools
import re
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from sightglass.core.columns import CLOSED, COMPLETE
from sightglass.query.costs import MODEL
from sightglass.query.meter import MAX_BYTES


class Device:
    """A device whose work is not done until its gate opens."""

    def __init__(self):
        self.gate = threading.Event()
        self.readers: list[str] = []


class Buffer:
    """An array on a device; reading it waits."""

    def __init__(self, device, value, error=None):
        self.device_, self.value, self.error = device, np.asarray(value), error

    dtype = property(lambda self: self.value.dtype)
    shape = property(lambda self: self.value.shape)
    ndim = property(lambda self: self.value.ndim)
    size = property(lambda self: self.value.size)

    def __array_namespace__(self, *, api_version=None):
        return SimpleNamespace()

    def __array__(self, dtype=None, copy=None):
        self.device_.readers.append(threading.current_thread().name)
        assert self.device_.gate.wait(60)
        if self.error is not None:
            raise self.error
        return self.value

    def copy(self):
        return Buffer(self.device_, self.value.copy(), self.error)

    def __mul__(self, other):
        return Buffer(self.device_, self.value * other, self.error)

    def __gt__(self, other):
        return Buffer(self.device_, self.value > other, self.error)


@pytest.fixture
def device():
    device = Device()
    yield device
    device.gate.set()


def rows(subscription):
    return [(row[0], row[1], float(row[3])) for row in subscription.rows]


def test_the_training_thread_does_not_wait(bench, device):
    b = bench()
    subscription = b.ask("batch.loss")
    for i in range(5):
        b.observe("batch", loss=Buffer(device, float(i)))
    assert (list(subscription.rows), subscription.n_errors) == ([], 0)
    device.gate.set()
    b.telemetry.flush(10)
    assert rows(subscription) == [(i, i, float(i)) for i in range(5)]
    assert set(device.readers) == {"sightglass-drain"}


def test_host_values_after_device_values_keep_their_place(bench, device):
    b = bench()
    subscription = b.ask("batch.loss")
    b.observe("batch", loss=Buffer(device, 0.0))
    for i in range(1, 4):
        b.observe("batch", loss=float(i))
    assert not subscription.rows
    device.gate.set()
    b.telemetry.flush(10)
    assert rows(subscription) == [(i, i, float(i)) for i in range(4)]


def test_steps_and_conditions_on_the_device(bench, device):
    b = bench()
    subscription = b.ask("on('batch').where(lambda e: e.loss > 1.0).map(lambda e: e.loss * 2)")
    group = b.ask("on('batch').map(lambda e: e.loss).sum(when=lambda e: e.loss > 1.5)")
    for i in range(4):
        b.observe("batch", step=Buffer(device, 10 * i), loss=Buffer(device, float(i)))
    device.gate.set()
    b.telemetry.flush(10)
    assert rows(subscription) == [(0, 20, 4.0), (1, 30, 6.0)]
    assert rows(group) == [(0, 20, 3.0), (1, 30, 3.0)]


def test_per_end_group_and_the_end_keep_their_place(bench, device):
    b = bench()
    per = b.ask("on('batch').map(lambda e: e.loss).sum(per='epoch')")
    group = b.ask("on('batch').map(lambda e: e.loss).sum()")
    for epoch in range(2):
        for i in range(3):
            b.observe("batch", loss=Buffer(device, float(10 * epoch + i)))
        b.observe("epoch")
        b.telemetry.events.end_group("batch")
    b.observe("batch", loss=Buffer(device, 7.0))
    device.gate.set()
    b.telemetry.close()
    for subscription in (per, group):
        assert [(float(row[3]), bool(row[4][1] & CLOSED)) for row in subscription.rows] == [
            (3.0, True), (33.0, True), (7.0, False),
        ]  # fmt: skip


def test_the_program_may_overwrite_its_buffers(bench, device):
    b = bench()
    subscription = b.ask("batch.loss")
    buffer = Buffer(device, 1.0)
    b.observe("batch", loss=buffer)
    buffer.value[()] = 99.0
    device.gate.set()
    b.telemetry.flush(10)
    assert rows(subscription) == [(0, 0, 1.0)]


def test_a_buffer_that_cannot_be_read_costs_its_event(bench, device):
    b = bench()
    subscription = b.ask("batch.loss")
    total = b.ask("on('batch').map(lambda e: e.loss).sum(every=2)")
    device.gate.set()
    for i in range(4):
        error = RuntimeError("Array has been deleted.") if i == 1 else None
        b.observe("batch", step=10 * i, loss=Buffer(device, float(i), error))
    b.telemetry.flush(10)
    assert rows(subscription) == [(0, 0, 0.0), (1, 20, 2.0), (2, 30, 3.0)]
    assert (subscription.n_errors, subscription.suspended) == (1, False)
    assert re.match("RuntimeError: Array .*at event 'batch', step 10", str(subscription.last_error))
    assert [(float(row[3]), row[4][0], row[4][1] & COMPLETE) for row in total.rows] == [(0.0, 1, 0), (5.0, 2, 1)]


def test_a_step_that_cannot_be_read_costs_its_event_and_not_the_drain_thread(bench, device):
    b = bench()
    subscription = b.ask("batch.loss")
    device.gate.set()
    b.observe("batch", step=Buffer(device, 0, RuntimeError("Array has been deleted.")), loss=1.0)
    b.observe("batch", step=5, loss=2.0)
    b.telemetry.flush(10)
    assert (rows(subscription), subscription.n_errors) == ([(0, 5, 2.0)], 1)


def test_three_unreadable_buffers_in_a_row_suspend(bench, device):
    b = bench()
    subscription = b.ask("batch.loss")
    device.gate.set()
    for i, bad in enumerate((True, True, False, True, True, True, False)):
        b.observe("batch", loss=Buffer(device, float(i), RuntimeError("deleted") if bad else None))
        b.telemetry.flush(10)
    assert (subscription.n_errors, subscription.suspended) == (5, True)
    assert rows(subscription) == [(0, 2, 2.0)]


def test_what_waits_is_bounded_and_counted(bench, device, monkeypatch):
    monkeypatch.setattr("sightglass.training.evaluation.tail.MAX_DEFERRED", 10)
    b = bench()
    subscription = b.ask("batch.loss")
    count = b.ask("on('batch').map(lambda e: e.loss).count(every=20)")
    for i in range(40):
        b.observe("batch", loss=Buffer(device, float(i)))
    device.gate.set()
    b.telemetry.flush(10)
    assert rows(subscription) == [(i, i, float(i)) for i in range(10)]
    assert (subscription.rows.n_dropped, count.rows.n_dropped) == (30, 30)
    assert [(row[3], row[4][1] & COMPLETE) for row in count.rows] == [(10, 0), (0, 0)]
    b.observe("batch", loss=Buffer(device, 40.0))
    b.telemetry.flush(10)
    assert len(subscription.rows) == 11


def test_what_waits_is_bounded_in_bytes_and_costs_small_results_nothing(bench, device, monkeypatch):
    monkeypatch.setattr(MODEL, "new_ns", 0.0)  # nothing takes long here
    b = bench(aside=True)
    b.telemetry.memory._now_s = itertools.count().__next__  # so that each look counts
    large, small = [b.ask(f"batch.x{i}") for i in range(9)], b.ask("batch.loss")
    x = np.broadcast_to(1.0, (2_000_000,))  # 16 MB in name only
    arrays = {f"x{i}": Buffer(device, x) for i in range(9)}
    monkeypatch.setattr(Buffer, "copy", lambda self: self)
    for i in range(5):
        b.observe("batch", **arrays, loss=Buffer(device, float(i)))
        waiting = sum(one.waiting_bytes for one in (*large, small))
        assert 48 * 10**6 <= waiting <= MAX_BYTES + x.nbytes
    assert sum(one.rows.n_dropped for one in large) == 45 - waiting // x.nbytes
    device.gate.set()
    b.telemetry.flush(10)
    assert rows(small) == [(i, i, float(i)) for i in range(5)]
    for one in large:
        assert len(one.rows.take()) == 5 - one.rows.n_dropped
        assert one.waiting_bytes == 0
    b.observe("batch", **arrays, loss=Buffer(device, 5.0))
    b.telemetry.flush(10)
    assert sum(len(one.rows) for one in large) == waiting // x.nbytes
    assert not any(one.n_errors for one in large)


def test_a_fork_gets_what_is_on_its_way(bench, device):
    b = bench()
    shared = b.ask("on('batch').map(lambda e: e.loss).sum()")
    for i in range(3):
        b.observe("batch", loss=Buffer(device, float(i)))
    own = shared.fork(99)
    b.telemetry.open(own)
    own.tail.end_group()
    b.observe("batch", loss=Buffer(device, 10.0))
    b.telemetry.events.end_group("batch")
    device.gate.set()
    b.telemetry.flush(10)
    assert [float(row[3]) for row in own.rows] == [3.0, 10.0]
    assert [float(row[3]) for row in shared.rows] == [13.0]
