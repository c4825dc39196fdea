"""The lock of a run: other threads get it, and a program that leaves it alone for a moment does not wait for them."""

from __future__ import annotations

import threading

from sightglass.training.evaluation.lock import HANDOVER_S, TurnLock


def test_a_thread_gets_its_turn_while_the_lock_is_taken_again_and_again() -> None:
    lock, served, over = TurnLock(), threading.Event(), threading.Event()

    def wait_for_a_turn() -> None:
        for _ in range(20):
            with lock.turn():
                pass
        served.set()

    def train() -> None:
        while not over.is_set():
            with lock.mutex:
                pass
            lock.give_way()

    threads = [threading.Thread(target=target) for target in (train, wait_for_a_turn)]
    for thread in threads:
        thread.start()
    assert served.wait(60)
    over.set()
    for thread in threads:
        thread.join()


def test_only_a_thread_that_waits_for_a_second_event_is_waited_for() -> None:
    lock, taken = TurnLock(), threading.Event()

    def take() -> None:
        with lock.turn():
            taken.set()

    for n_slept in (0, 1):
        taken.clear()
        lock.mutex.acquire()
        thread = threading.Thread(target=take)
        thread.start()
        while not lock.n_waiting:
            pass
        before_s = lock.handover_s
        lock.give_way()  # the first event since it waits
        assert lock.handover_s == before_s
        for _ in range(n_slept):
            lock.give_way()
        assert lock.handover_s == before_s + n_slept * HANDOVER_S
        lock.mutex.release()
        assert taken.wait(60)
        thread.join()
