"""The table of the runs on a hub, with as many as a hub is meant for: messages alone, without a server."""

from __future__ import annotations

import dataclasses
import types

import msgspec
import pytest

from sightglass.client.hub_runs import ON_ITS_WAY_S, replaces
from sightglass.client.live_runs import RunRoute
from sightglass.hub import presence
from sightglass.hub.address import HubAddress
from sightglass.hub.presence import GONE_S, Announced, HubDirectory

N_RUNS = 10_000


@pytest.fixture
def table(monkeypatch):
    link = types.SimpleNamespace(
        join=lambda _: None, leave=lambda _: None, send=lambda *_: True,
        is_foreign=False, connected=True, reason="",
    )  # fmt: skip
    monkeypatch.setattr(presence, "use_connected_link", lambda _: link)
    monkeypatch.setattr(presence, "drop_link", lambda _: None)
    clock = types.SimpleNamespace(now_s=0.0)
    directory = HubDirectory(HubAddress(url="nats://h:1"), clock=lambda: clock.now_s)
    yield directory, clock
    directory.close()


def says(directory, n, *, id=None, name="", age_s=0.0):
    entry = Announced(
        name=name or f"run-{n}", id=f"{n:012x}", pid=n, host="h", started=float(n), endpoint="", age_s=age_s
    )
    directory.received(f"sightglass.live.node.{id or entry.id}", msgspec.json.encode(entry))


def test_ten_thousand_runs_come_live_and_go(table):
    directory, clock = table
    for n in range(N_RUNS):
        says(directory, n, age_s=float(N_RUNS - n))
    runs = directory.runs()
    assert [run.entry.pid for run in runs] == list(range(N_RUNS - 1, -1, -1))  # the newest first
    clock.now_s = GONE_S / 2
    for n in range(0, N_RUNS, 2):  # the others' node was killed
        says(directory, n)
    clock.now_s = GONE_S + 1.0
    assert {run.entry.pid for run in directory.runs()} == set(range(0, N_RUNS, 2))
    directory.received(f"sightglass.live.node.{2:012x}", b"")  # it says that it ends
    assert len(directory.runs()) == N_RUNS // 2 - 1


def test_the_newest_run_is_the_one_that_began_last_whatever_its_clock_says(table):
    directory, _ = table
    says(directory, 300, name="the same", age_s=60.0)  # on a machine whose clock is 5 minutes ahead
    says(directory, 1, name="the same", age_s=1.0)
    assert [run.entry.pid for run in directory.runs()] == [1, 300]


def test_what_is_no_entry_or_too_much_is_refused_and_counted(table, monkeypatch):
    monkeypatch.setattr(presence, "MAX_RUNS", 3)
    directory, _ = table
    for n in range(3):
        says(directory, n)
    says(directory, 1)  # one that is known has its place
    assert directory.n_refused == 0
    says(directory, 4)
    says(directory, 2, id="another")  # nobody speaks for another run
    directory.received("sightglass.live.node.x", b"junk")
    assert (len(directory.runs()), directory.n_refused) == (3, 3)


def test_a_run_replaces_one_of_its_name_that_was_not_heard_of_since_it_began(table):
    directory, clock = table
    clock.now_s = 100.0
    says(directory, 1, name="again", age_s=50.0)
    first_heard_s, clock.now_s = clock.now_s, 120.0
    says(directory, 2, name="again", age_s=5.0)
    says(directory, 3, name="other", age_s=4.0)
    clock.now_s += 3.0
    says(directory, 2, name="again", age_s=6.0)  # this message took 2 s; the earliest time is the best
    route = RunRoute(run="again", id=f"{1:012x}", owner="node", connect=pytest.fail)
    other, second = directory.runs()
    assert second.began_s == 115.0
    assert replaces(second, route, first_heard_s)
    assert not replaces(second, route, 115.0 + ON_ITS_WAY_S)  # they lived beside each other
    assert not replaces(other, route, first_heard_s)
    assert not replaces(dataclasses.replace(second, owner="another"), route, first_heard_s)


def test_while_the_hub_is_away_no_run_is_gone(table):
    directory, clock = table
    says(directory, 1)
    says(directory, 2)
    directory._link.connected, directory._link.reason = False, "no hub answers"
    directory.broken("the connection was lost")
    clock.now_s = 10 * GONE_S
    directory.beat()  # an attempt to connect has failed
    assert (len(directory.runs()), directory.problem) == (2, "no hub answers")
    directory._link.connected = True
    directory.beat()
    clock.now_s += GONE_S - 1.0
    directory.beat()
    says(directory, 2)
    assert (len(directory.runs()), directory.problem) == (2, "")
    clock.now_s += 2.0
    assert [run.entry.pid for run in directory.runs()] == [2]
