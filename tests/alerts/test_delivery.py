"""The delivery of alerts: order, retries, the end; by rounds that the test runs itself."""

from __future__ import annotations

import threading
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightglass.alerts.alert import Alert
from sightglass.alerts.delivery import MAX_RETRY_S, MAX_WAITING, AlertDelivery
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

    def __init__(self, problem=""):
        self.up = True
        self.got = []
        self.n_tries = 0
        self.problem = problem

    def check(self):
        if self.problem:
            raise ValueError(self.problem)

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
    assert one.got == other.got == done == [str(i) for i in range(n)]


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


def test_a_receiver_that_can_never_get_any_is_told_of_at_once_and_costs_the_others_nothing():
    bad, good = Inbox("no such program"), Inbox()
    delivery, clock = quiet(bad, good)
    with pytest.warns(RuntimeWarning, match="no such program"):
        delivery.round(clock.monotonic())
    delivery.put(alert(0))
    turn(delivery, clock)
    assert good.got == ["0"]


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
