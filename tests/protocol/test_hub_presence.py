"""The table of the runs on a hub, with as many as a hub is meant for: messages alone, without a server."""

from __future__ import annotations

import types

import msgspec
import pytest

from sightglass.protocol import hub_presence
from sightglass.protocol.discovery import LiveRun
from sightglass.protocol.hub_address import HubAddress
from sightglass.protocol.hub_presence import GONE_S, HubDirectory

N_RUNS = 10_000


@pytest.fixture
def table(monkeypatch):
    link = types.SimpleNamespace(
        wait_connected=lambda _: True, join=lambda _: None, leave=lambda _: None, send=lambda *_: True, is_foreign=False
    )
    monkeypatch.setattr(hub_presence, "use_link", lambda _: link)
    monkeypatch.setattr(hub_presence, "drop_link", lambda _: None)
    clock = types.SimpleNamespace(now_s=0.0)
    directory = HubDirectory(HubAddress(url="nats://h:1"), clock=lambda: clock.now_s)
    return directory, clock


def says(directory, n, *, id=None):
    entry = LiveRun(name=f"run-{n}", id=f"{n:012x}", pid=n, host="h", started=float(n), endpoint="", directory="")
    directory.received(f"sightglass.live.node.{id or entry.id}", msgspec.json.encode(entry))


def test_ten_thousand_runs_come_live_and_go(table):
    directory, clock = table
    for n in range(N_RUNS):
        says(directory, n)
    runs = directory.runs()
    assert [run.entry.pid for run in runs] == list(range(N_RUNS - 1, -1, -1))  # the newest first
    clock.now_s = GONE_S / 2
    for n in range(0, N_RUNS, 2):  # the others' node was killed
        says(directory, n)
    clock.now_s = GONE_S + 1.0
    assert {run.entry.pid for run in directory.runs()} == set(range(0, N_RUNS, 2))
    directory.received(f"sightglass.live.node.{2:012x}", b"")  # it says that it ends
    assert len(directory.runs()) == N_RUNS // 2 - 1


def test_what_is_no_entry_or_too_much_is_refused_and_counted(table, monkeypatch):
    monkeypatch.setattr(hub_presence, "MAX_RUNS", 3)
    directory, _ = table
    for n in range(3):
        says(directory, n)
    says(directory, 1)  # one that is known has its place
    assert directory.n_refused == 0
    says(directory, 4)
    says(directory, 2, id="another")  # nobody speaks for another run
    directory.received("sightglass.live.node.x", b"junk")
    assert (len(directory.runs()), directory.n_refused) == (3, 3)
