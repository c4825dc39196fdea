"""What people come for, walked by `bench.page_tasks` in one look: each answer is checked, and takes few actions."""

from __future__ import annotations

from bench import sweep
from bench.page_tasks import LIVE, MAX_ACTIONS, TASKS, walked


def test_tasks_of_newcomers_take_few_actions(browser, own_place):
    with own_place.recording() as folder:
        made = sweep.make(folder)
    training = own_place.train(LIVE, pace_s=0.5)  # it stays within the steps of the sweep
    server = own_place.serve()
    taken = {task.name: n for task, n in walked(browser, server.controller, made, "light", None)}
    assert len(taken) == len(TASKS)
    assert {name: n for name, n in taken.items() if n > MAX_ACTIONS} == {}
    training.hears("done")
