"""Events enter: what they cost, what they may not do to the training, and what queries see of them."""

from __future__ import annotations

import re
import sys
import threading

import numpy as np
import pytest

import sightglass as sg
from sightglass.core.columns import CLOSED, COMPLETE, Columns, of_rows
from sightglass.core.values import Histogram, Tensor, Text
from sightglass.training.evaluation.budget import Turns
from sightglass.training.serving.client_subscriptions import StreamBacklog

pytestmark = pytest.mark.smoke


class Bomb:
    """An object that does not want to be looked at."""

    n_touched = 0

    def _touch(self, *args, **kwargs):
        Bomb.n_touched += 1
        raise AssertionError("touched")

    __getattribute__ = _touch
    __repr__ = __str__ = __len__ = __iter__ = __bool__ = __float__ = __array__ = __eq__ = __getitem__ = _touch
    __hash__ = None


class Lazy(dict):
    """A mapping that computes its items when they are asked for."""

    def items(self):
        raise AssertionError("computed")

    __getitem__ = __iter__ = keys = values = items


class NoLock:
    """A lock that fails when it is taken."""

    def acquire(self, *args, **kwargs):
        raise AssertionError("a lock was taken")

    __enter__ = __exit__ = release = acquire


def test_idle_events_are_counted_and_nothing_else(bench, monkeypatch):
    b = bench()
    b.observe("batch", loss=1.0)
    with monkeypatch.context() as patch:
        patch.setattr(b.telemetry.events, "_mutex", NoLock())
        for _ in range(10):
            b.observe("batch", bomb=Bomb())
    assert b.telemetry.subscriptions.sources["batch"].n_events == 11


def test_the_lock_stub_would_show_a_lock(bench, monkeypatch):
    b = bench()
    monkeypatch.setattr(b.telemetry.events, "_mutex", NoLock())
    with pytest.raises(AssertionError, match="lock"):
        b.observe("batch", loss=1.0)
    monkeypatch.undo()


def test_what_no_query_touches_is_not_touched(bench, values):
    b = bench()
    subscription = b.ask("batch.loss")
    bomb = Bomb()
    b.observe("batch", loss=9.0, bomb=1, lazy=2)
    n_touched = Bomb.n_touched
    for i in range(3):
        b.observe("batch", loss=float(i), bomb=bomb, lazy=Lazy(a=1))
    assert values(subscription) == [9.0, 0.0, 1.0, 2.0]
    assert Bomb.n_touched == n_touched


ODD = {
    "an integer too long to print": lambda: 10**5_000,
    "a mapping that computes": lambda: Lazy(a=1),
    "such a one in another": lambda: {"inner": Lazy(a=1)},
    "a text that explodes": lambda: type("Text", (str,), {"__repr__": Bomb._touch})("x"),
    "anything that explodes": Bomb,
}


@pytest.mark.parametrize("kind", ODD)
def test_a_first_look_never_raises(bench, kind):
    b = bench()
    b.observe("batch", odd=ODD[kind](), loss=1.0)
    assert set(b.telemetry.subscriptions.sources["batch"].observables) == {"odd", "loss", "step"}


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("even this fails")


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(3), Unspeakable(), RecursionError(), MemoryError()])
def test_a_query_that_raises_does_not_hurt(bench, error):
    def explode(x):
        raise error

    b = bench({"explode": explode})
    subscription = b.ask("explode(batch.loss)")
    other = b.ask("batch.loss")
    for _ in range(4):
        b.observe("batch", loss=1.0)
    assert (subscription.n_errors, subscription.suspended, len(other.rows)) == (3, True, 4)


def test_an_interrupt_comes_through(bench):
    def interrupt(x):
        raise KeyboardInterrupt

    b = bench({"interrupt": interrupt})
    b.ask("interrupt(batch.loss)")
    with pytest.raises(KeyboardInterrupt):
        b.observe("batch", loss=1.0)


def test_three_errors_in_a_row_suspend_and_two_do_not(bench, values):
    b = bench()
    subscription = b.ask("batch.loss")
    for good in (False, False, True, False, False, True):
        b.observe("batch", **({"loss": 1.0} if good else {"los": 1.0}))
    assert (subscription.n_errors, subscription.suspended, values(subscription)) == (4, False, [1.0, 1.0])
    for _ in range(5):
        b.observe("batch", step=7, los=1.0)
    assert (subscription.n_errors, subscription.suspended) == (7, True)
    assert re.search("'loss' at event 'batch'.*'los'.*step 7", str(subscription.last_error))
    assert (subscription.last_error.event, subscription.last_error.step) == ("batch", 7.0)


@pytest.mark.parametrize("step", ["seven", None, np.zeros(3), object(), [1]])
def test_a_step_that_is_no_number_costs_its_event(bench, step, values):
    b = bench()
    subscription = b.ask("batch.loss")
    b.observe("batch", step=step, loss=1.0)
    b.observe("batch", step=3, loss=2.0)
    b.telemetry.flush(5.0)
    assert (subscription.n_errors, values(subscription), subscription.rows[0][1]) == (1, [2.0], 3)
    assert "number as step" in str(subscription.last_error)


def test_events_after_the_end_are_ignored(bench, values):
    b = bench()
    subscription = b.ask("batch.loss")
    b.observe("batch", loss=1.0)
    b.telemetry.close()
    b.telemetry.subscriptions.close(subscription)
    b.telemetry.subscriptions.open(subscription)
    b.observe("batch", loss=2.0)
    b.observe("fresh", loss=2.0)
    assert (values(subscription), "fresh" in b.telemetry.subscriptions.sources) == ([1.0], False)


@pytest.mark.parametrize(
    ("misuse", "error", "message"),
    [
        (lambda b: b.observe(5, loss=1.0), TypeError, "event as text, got int 5"),
        (lambda b: b.log([1]), TypeError, "got list"),
        (lambda b: b.log({1: 2}), TypeError, "as text, got int 1"),
        (lambda b: b.log({"a": {1: 2}}), TypeError, "as text, got int 1"),
        (lambda b: b.log({"a": 1}, "x"), TypeError, "number as 'step', got str 'x'"),
        (lambda b: b.log({"a": 1}, epoch="x"), TypeError, "number as 'epoch', got str 'x'"),
        (lambda b: (b.log({"a": 1}), b.observe("log", a=1)), ValueError,
         "Event 'log' comes from log"),
    ],
)  # fmt: skip
def test_misuse_raises_at_the_call(bench, misuse, error, message):
    with pytest.raises(error) as caught:
        misuse(bench())
    assert message in str(caught.value)


def test_many_threads_lose_nothing_and_keep_their_order(bench, clock):
    b = bench()
    # On the bench's clock: a collection of garbage within an event would cost the second query its turn, counted.
    b.telemetry.subscriptions._turns = lambda: Turns(cpu_s=clock.cpu)
    subscription = b.ask("on('batch').map(lambda e: (e.thread, e.i))")
    other = b.ask("on('batch').count(every=100)")
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    start = threading.Barrier(4)

    def work(thread: int) -> None:
        start.wait()
        for i in range(5_000):
            b.observe("batch", thread=thread, i=i)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(before)
    rows = list(subscription.rows)
    assert [row[0] for row in rows] == list(range(20_000))
    assert [row[1] for row in rows] == list(range(20_000))
    for n in range(4):
        assert [i for thread, i in (row[3] for row in rows) if thread == n] == list(range(5_000))
    assert [row[3] for row in other.rows] == [100] * 200


def test_queries_see_values_at_the_time_of_the_event(bench, values):
    b = bench()
    array = np.zeros(3)
    kept, nested, computed = (
        b.ask(text)
        for text in (
            "batch.x",
            "on('batch').map(lambda e: {'x': e.x, 'first': e.x[0]})",
            "on('batch').map(lambda e: e.x.sum()).max(every=2)",
        )
    )
    for i in range(2):
        array[:] = i
        b.observe("batch", x=array)
    array[:] = 99
    assert [list(value) for value in values(kept)] == [[0, 0, 0], [1, 1, 1]]
    assert [(list(v["x"]), v["first"]) for v in values(nested)] == [([0, 0, 0], 0.0), ([1, 1, 1], 1.0)]
    assert values(computed) == [3.0]


def test_end_group_closes_at_the_last_event_before_it(bench):
    b = bench()
    subscription = b.ask("on('batch').map(lambda e: e.loss).sum()")
    for loss in (1.0, 2.0):
        b.observe("batch", loss=loss)
    b.telemetry.events.end_group("batch")
    b.telemetry.events.end_group("batch")
    b.telemetry.events.end_group("unknown")
    b.observe("batch", loss=5.0)
    b.telemetry.close()
    assert [(row[1], row[3], row[4][:2]) for row in subscription.rows] == [
        (1, 3.0, (2, COMPLETE | CLOSED)),
        (2, 5.0, (1, 0)),
    ]


def test_per_closes_at_another_event(bench, values):
    b = bench()
    subscription = b.ask("on('batch').map(lambda e: e.loss).mean(per='epoch')")
    for epoch in range(2):
        for loss in (1.0, 2.0):
            b.observe("batch", loss=loss + epoch)
        b.observe("epoch")
    assert values(subscription) == [1.5, 2.5]


def test_a_snapshot_has_the_values_of_its_time(bench, values):
    b = bench()
    array = np.arange(3.0)
    step = np.array(4)
    b.observe("init", snapshot=True, step=step, params={"w": array}, model=sg.Tensor(array))
    array[:], step[()] = 99, 99
    subscription = b.ask("init.params.w")
    assert [(row[1], list(row[3])) for row in subscription.rows] == [(4, [0.0, 1.0, 2.0])]
    b.telemetry.close_subscription(subscription)
    b.observe("init", snapshot=True, params={"w": array})
    late = b.ask("init.params.w")
    assert [list(value) for value in values(late)] == [[99.0] * 3]


def test_log_flattens_unwraps_and_carries_step_tracks(bench):
    b = bench()
    tags = {tag: b.ask(f"on('log').map(lambda e: e[{tag!r}])") for tag in ("a", "val/acc", "w", "h", "t", "snapshot")}
    array = np.arange(4.0)
    logged = {
        "a": 1,
        "val": {"acc": 0.5},
        "w": Tensor(array),
        "h": Histogram(array, bins=2),
        "t": Text("hello"),
        "snapshot": 7,
    }
    b.log(logged, 3, epoch=1)
    array[:] = 99
    row = {tag: subscription.rows[0] for tag, subscription in tags.items()}
    assert {tag: r[1] for tag, r in row.items()} == dict.fromkeys(tags, 3)
    assert all(r[4] == (1, 3, {"epoch": 1}) for r in row.values())
    assert (row["a"][3], row["val/acc"][3], row["t"][3], row["snapshot"][3]) == (1, 0.5, "hello", 7)
    assert list(row["w"][3]) == [0, 1, 2, 3]
    assert list(row["h"][3].counts) == [2, 2]
    assert logged["val"] == {"acc": 0.5}


def test_an_events_own_counter_is_its_step(bench):
    b = bench()
    b.observe("batch", loss=0.0)
    subscription = b.ask("batch.loss")
    b.observe("batch", loss=1.0)
    b.observe("batch", step=2.5, loss=1.0)
    b.log({"a": 1})
    assert [row[1] for row in subscription.rows] == [1, 2.5]


def test_unsent_rows_are_bounded_and_counted(bench, clock, monkeypatch):
    monkeypatch.setattr("sightglass.training.evaluation.tail.MAX_UNSENT_ROWS", 100)
    b = bench()
    subscription = b.ask("batch.loss")
    for i in range(300):
        clock.pass_(0.001)
        b.observe("batch", loss=float(i))
    assert subscription.rows.n_dropped == 300 - len(subscription.rows) > 0
    n = len(subscription.rows.take())
    b.observe("batch", loss=1.0)
    assert [row[0] for row in subscription.rows] == [300]
    assert n <= 102


def test_a_mapping_of_numbers_that_a_query_makes_is_a_row_and_that_of_the_program_is_copied(bench, monkeypatch):
    b = bench()
    made, own = b.ask("on('batch').map(lambda e: e.stats.map(lambda v: v + 1))"), b.ask("batch.stats")
    stats = {"a": 1.0, "b": 2}
    b.observe("batch", stats=stats)
    stats["a"] = 9.0
    assert [row[3] for row in made.rows] == [{"a": 2.0, "b": 3}]
    assert [row[3] for row in own.rows] == [{"a": 1.0, "b": 2}]
    assert made.rows.n_bytes == 2 * 8

    monkeypatch.setattr("sightglass.training.evaluation.tail.MAX_UNSENT_BYTES", 1_000)
    many = {str(i): float(i) for i in range(100)}
    for _ in range(10):
        b.observe("batch", stats=many)
        made.rows.look_for_room()
    assert made.rows.n_dropped == 10 - 2


def test_the_backlog_is_bounded_in_rows_and_bytes(bench):
    b = bench()
    numbers, arrays, few = (StreamBacklog() for _ in range(3))
    loss, drawn = b.ask("batch.loss"), b.ask("batch.x")
    x = np.zeros(2**17)
    for i in range(1_100):
        b.observe("batch", loss=float(i), x=x if i < 40 else 0.0)
        arrays.add(of_rows(drawn.rows.take()))
        numbers.add(of_rows(loss.rows.take()))
    numbers.add(Columns(index=1_100, steps=np.arange(20_000), wall_times=np.arange(2e4), values=np.arange(2e4)))
    held = numbers.since(0).numbers.tolist()
    assert len(held) <= 8_192
    assert (held[0], held[-2_048:]) == (0, list(range(21_100 - 2_048, 21_100)))
    assert sum(value.nbytes for value in arrays.since(0).values if np.ndim(value)) <= 16 * 2**20
    same = b.ask("on('batch').map(lambda e: e.x)")
    for _ in range(40):
        b.observe("batch", x=x)
        few.add(of_rows(same.rows.take()))
    assert 8 <= len(few.records) <= 16
