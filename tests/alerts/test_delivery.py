"""The delivery of alerts: order, retries, the end; by rounds that the test runs itself."""

from __future__ import annotations

import threading
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightglass.alerts.alert import Alert
from sightglass.alerts.delivery import EXIT_S, MAX_RETRY_S, MAX_WAITING, PATIENCE, AlertDelivery
from sightglass.core.process.clock import SystemClock
from sightglass.core.process.threads import UNTIL_WOKEN, Worker


class HandWorker(Worker):
    """Starts no thread: the test calls `round`."""

    def wake(self):
        """Wait for the test."""


class HandClock(SystemClock):
    """A clock that stands still until it is moved."""

    now_s = 100.0

    def monotonic(self):
        return self.now_s

    def wall(self):
        return 1_000.0 + self.now_s


class Inbox:
    """A receiver that takes alerts while it is up."""

    kind = "test"

    def __init__(self):
        self.up = True
        self.got = []
        self.n_tries = 0

    def check(self):
        """It can."""

    def send(self, alert, *, now):
        self.n_tries += 1
        if not self.up:
            raise ConnectionError("down")
        self.got.append(alert.id)


def alert(i):
    return Alert(id=str(i), title=f"alert {i}")


def quiet(*receivers, **more):
    clock = HandClock()
    return AlertDelivery(receivers, clock=clock, worker=HandWorker, **more), clock


def turn(delivery, clock):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return delivery.round(clock.monotonic())


def test_what_a_receiver_does_not_take_is_sent_again_after_growing_rests():
    inbox = Inbox()
    inbox.up = False
    delivery, clock = quiet(inbox)
    delivery.put(alert(0))
    rests = []
    for _ in range(9):
        rests.append(turn(delivery, clock))
        clock.now_s += rests[-1]
    assert rests == [1, 2, 4, 8, 16, 32, MAX_RETRY_S, MAX_RETRY_S, MAX_RETRY_S]
    assert delivery.statistics().n_waiting == 1
    assert delivery.failures.n == 9
    inbox.up = True
    assert turn(delivery, clock) == UNTIL_WOKEN
    assert inbox.got == ["0"]
    assert delivery.statistics().n_records == 1


def test_a_receiver_that_is_down_is_left_alone_until_its_rest_is_over():
    inbox = Inbox()
    inbox.up = False
    delivery, clock = quiet(inbox)
    delivery.put(alert(0))
    turn(delivery, clock)
    delivery.put(alert(1))
    clock.now_s += 0.5
    assert turn(delivery, clock) == 0.5
    assert inbox.n_tries == 1


@given(st.lists(st.sampled_from(["put", "turn", "first", "second", "later"]), max_size=40))
def test_every_receiver_gets_every_alert_once_and_in_order(acts):
    done = []
    one, other = Inbox(), Inbox()
    delivery, clock = quiet(one, other, delivered=lambda alert: done.append(alert.id))
    n = 0
    for act in acts:
        match act:
            case "put":
                delivery.put(alert(n))
                n += 1
            case "turn":
                turn(delivery, clock)
            case "first":
                one.up = not one.up
            case "second":
                other.up = not other.up
            case "later":
                clock.now_s += MAX_RETRY_S
    one.up = other.up = True
    clock.now_s += MAX_RETRY_S
    turn(delivery, clock)
    every = [str(i) for i in range(n)]  # in order, unless one is refused for ten minutes
    assert [sorted(ids, key=int) for ids in (one.got, other.got, done)] == [every] * 3


def test_the_end_tries_once_more_and_says_what_is_lost():
    up, down = Inbox(), Inbox()
    down.up = False
    delivery, clock = quiet(up, down)
    for i in range(3):
        delivery.put(alert(i))
    turn(delivery, clock)
    up.got.clear()
    delivery.put(alert(3))
    with pytest.warns(RuntimeWarning, match="not delivered: 4") as said:
        delivery.close()
    assert up.got == ["3"]
    assert down.n_tries == 2
    assert delivery.statistics().n_dropped == 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        delivery.close()
    assert [str(one.message) for one in said if "ConnectionError" in str(one.message)]


def test_a_receiver_that_is_down_holds_a_bounded_number():
    inbox = Inbox()
    inbox.up = False
    delivery, _ = quiet(inbox)
    for i in range(MAX_WAITING + 10):
        delivery.put(alert(i))
    assert delivery.statistics().n_waiting == MAX_WAITING
    assert delivery.statistics().n_dropped == 10


def test_an_alert_that_is_refused_again_and_again_lets_the_others_pass():
    class Picky(Inbox):
        def send(self, alert, *, now):
            if alert.id == "0":
                raise ValueError("what is this?")
            self.got.append(alert.id)

    inbox = Picky()
    delivery, clock = quiet(inbox)
    for i in range(3):
        delivery.put(alert(i))
    for _ in range(PATIENCE):
        turn(delivery, clock)
        clock.now_s += MAX_RETRY_S
    turn(delivery, clock)
    assert inbox.got == ["1", "2"]
    assert delivery.statistics().n_waiting == 1


def test_without_receivers_an_alert_counts_as_delivered():
    done = []
    delivery, _ = quiet(delivered=done.append)
    delivery.put(alert(0))
    assert [one.id for one in done] == ["0"]


def test_deliveries_that_end_together_hold_up_the_program_once():
    class Slow(Worker):
        def close(self, timeout_s):
            waited.append(timeout_s)
            clock.now_s += timeout_s
            return False

    waited, clock = [], HandClock()
    clock.now_s = 1e6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(3):
            AlertDelivery([Inbox()], clock=clock, worker=Slow).close()
        clock.now_s += 60
        AlertDelivery([Inbox()], clock=clock, worker=Slow).close()
    assert waited == [EXIT_S, 0, 0, EXIT_S]


def test_a_receiver_that_hangs_holds_up_nobody():
    class Hanging(Inbox):
        def send(self, alert, *, now):
            entered.set()
            go_on.wait()

    entered, go_on = threading.Event(), threading.Event()
    delivery = AlertDelivery([Hanging()], clock=SystemClock())
    delivery.put(alert(0))
    entered.wait()
    delivery.put(alert(1))
    with pytest.warns(RuntimeWarning, match="not delivered: 2"):
        delivery.close(timeout_s=0.0)
    go_on.set()
