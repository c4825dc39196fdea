"""Many viewers at once: what they share, what ends with whom, and who is too slow."""

from __future__ import annotations

import contextlib
import json
import os
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.profiles import examples

import sightglass as sg
from sightglass.server.app import MAX_HEAD_BYTES, MAX_MESSAGE_BYTES
from sightglass.server.live import frame_queue, shared_stream
from sightglass.server.runs.served_run import PACE_S

from .conftest import floats, raises_closed, record, wait_until
from .test_access import raw

QUERIES = ["batch.loss", "batch.x", "batch.loss.mean(every=10)", "batch.loss.count(every=5)"]


def test_fifty_sockets_share_one_connection_and_four_streams(page, begin):
    run = begin("job")
    key = page.key("job")
    client = sg.connect(run)
    sockets = [page.socket("viewer" if i % 2 else "controller") for i in range(50)]
    for socket in sockets:
        for id, query in enumerate(QUERIES):
            socket.send(type="open", id=id, run=key, query=query)
    for socket in sockets:
        for id in range(4):
            socket.hears("opened", id=id)
    about = client.describe()
    assert sorted(stream.tag for stream in about.streams) == sorted(QUERIES)
    assert {len(stream.clients) for stream in about.streams} == {1}
    assert len({name for stream in about.streams for name in stream.clients}) == 1
    assert about.n_clients == 2
    assert len(page.hub.streams) == 4
    for step in range(10):
        run.observe("batch", step=step, loss=float(step), x=1.0)
    for socket in sockets:
        assert floats(socket.hears("data", id=2)["y"]) == [4.5]
        socket.send(type="close", id=0)
    wait_until(lambda: sorted(stream.tag for stream in client.describe().streams) == sorted(QUERIES[1:]))
    for socket in sockets[1:]:
        socket.raw.close()
    wait_until(lambda: len(page.hub.sockets) == 1)
    assert len(client.describe().streams) == 3
    sockets[0].send(type="close", id=1)
    sockets[0].send(type="close", id=2)
    wait_until(lambda: [stream.tag for stream in client.describe().streams] == [QUERIES[3]])
    sockets[0].raw.close()
    wait_until(lambda: not client.describe().streams)
    assert len(page.hub.streams) == 0
    client.close()


def test_each_tab_has_a_share_of_the_budget_of_its_own(page, begin):
    run = begin("job")
    key = page.key("job")
    one, other = page.socket(), page.socket("viewer")

    def holders():
        active = list(run._wiring.telemetry.subscriptions.active.values())
        return {one.query.tag: {client for _, client in one.holders} for one in active}

    for socket in (one, other):
        socket.send(type="open", id=1, run=key, query="batch.loss")
        socket.hears("opened", id=1)
    other.send(type="open", id=2, run=key, query="batch.x")
    other.hears("opened", id=2)
    wait_until(
        lambda: {len(tabs) for tabs in holders().values()} == {1, 2} and holders()["batch.x"] < holders()["batch.loss"]
    )
    one.raw.close()
    wait_until(lambda: holders()["batch.loss"] == holders()["batch.x"])


def test_viewers_of_several_runs_share_a_stream_of_each_and_hear_of_later_runs(page, begin):
    first, second = begin("sweep-a"), begin("sweep-b")
    keys = {run: page.key(run.name) for run in (first, second)}
    sockets = [page.socket("viewer"), page.socket()]
    for socket in sockets:
        socket.send(type="runs")
        for key in keys.values():
            socket.send(type="open", id=key, run=key, query="batch.loss")
            socket.hears("opened", id=key)
    for run in keys:
        with sg.connect(run) as client:
            assert [len(stream.clients) for stream in client.describe().streams] == [1]
    first.close()
    second.observe("batch", loss=2.0)
    begin("sweep-c")
    for socket in sockets:
        assert "error" not in socket.hears("ended", id=keys[first])
        assert floats(socket.hears("data", id=keys[second])["y"]) == [2.0]
        socket.finds(lambda m: any(run["name"] == "sweep-c" and run["live"] for run in m.get("runs", ())))


def test_clients_and_costs_of_streams_are_reported(page, begin):
    run = begin("job")
    key = page.key("job")
    client = sg.connect(run)
    stream = client.stream("batch.loss.mean(every=2)")
    socket = page.socket()
    socket.send(type="open", id=1, run=key, query="batch.loss")
    socket.hears("opened")
    for _ in range(4):
        run.observe("batch", loss=1.0)
    stream.wait(2)
    reply = {one["tag"]: one for one in page.json(f"/runs/{key}")["streams"]}
    assert set(reply) == {"batch.loss", "batch.loss.mean(every=2)"}
    for one in reply.values():
        assert len(one["clients"]) == 1
        assert one["clients"][0].endswith(f"[{os.getpid()}]")
        assert one["n_events"] == 4
        assert one["spent_s"] > 0
    client.close()


def test_a_stream_that_is_closed_and_opened_again_at_once_is_not_mixed_up(page, begin):
    run = begin("job")
    key = page.key("job")
    socket = page.socket()
    for i in range(20):
        socket.send(type="open", id="a", run=key, query=QUERIES[i % 2])
        socket.send(type="close", id="a")
    socket.send(type="open", id="a", run=key, query="batch.x * 2")  # a query of its own: earlier ones may be told late
    socket.hears("opened", id="a", query=sg.parse("batch.x * 2").key)
    wait_until(lambda: len(page.hub.streams) == 1)
    run.observe("batch", loss=1.0, x=7.0)
    assert floats(socket.hears("data", id="a")["y"]) == [14.0]
    socket.raw.close()
    wait_until(lambda: len(page.hub.streams) == 0)


def test_joining_a_recorded_stream_that_waits_for_an_acknowledgement(page):
    """A feed that has ended is closed too, however many came for it, one after the other."""
    record(n=100)
    key = page.key("mnist")
    slow, other = page.socket(), page.socket()
    slow.send(type="open", id=1, run=key, query="batch.loss")
    slow.hears("opened")
    other.send(type="open", id=1, run=key, query="batch.loss")
    other.hears("ended", id=1)
    slow.hears("ended", id=1)
    wait_until(lambda: len(page.hub.streams) == 0)
    sources = list(page.hub._runs._served.values())
    wait_until(lambda: all(source._files is None or source._files.n_borrowed == 0 for source in sources))


@pytest.mark.slow
def test_a_slow_reader_costs_the_others_nothing_and_is_cut_off(page, begin, monkeypatch):
    monkeypatch.setattr(frame_queue, "STUCK_S", 5.0)  # `fast` reads, but not at once on a busy machine
    monkeypatch.setattr(frame_queue, "ENOUGH_BYTES", 2**20)
    run = begin("job")
    key = page.key("job")
    stuck = page.socket(max_queue=1)
    fast = page.socket()
    stuck.send(type="open", id=1, run=key, query="batch.x")
    stuck.hears("opened")
    fast.send(type="open", id=1, run=key, query="batch.loss")
    fast.hears("opened")
    (slow,) = [one for one in page.hub.sockets if any(c.stream.reader.query == "batch.x" for c in one.cursors.values())]
    vector = np.random.default_rng(0).normal(size=2**18)  # 2 MiB
    most = 0
    for step in range(200):
        run.observe("batch", step=step, loss=float(step), x=vector)
        message = fast.hears("data")
        fast.send(type="ack", id=1, n=1)
        assert floats(message["step"])[-1] == step
        most = max(most, slow.queue._n_bytes)
        if len(page.hub.sockets) == 1:
            break
    assert most < 24 * 2**20  # and not the 400 MiB that came
    wait_until(lambda: len(page.hub.sockets) == 1)
    wait_until(lambda: len(page.hub.streams) == 1)
    fast.send(type="runs")
    assert fast.hears("runs")["runs"]


WORDS = st.sampled_from(["type", "id", "run", "query", "open", "close", "ack", "runs", "hello", "token", "n", "points"])
WILD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=30), st.binary(max_size=30), WORDS
)


def wild_message(key):
    value = WILD.filter(lambda one: not isinstance(one, bytes)) | st.just(key) | st.sampled_from(QUERIES) | st.just(1)
    opens = st.fixed_dictionaries({"type": st.just("open"), "id": st.sampled_from([1, 2, "a"]) | value,
                                   "run": st.just(key) | value, "query": st.sampled_from(QUERIES) | value},
                                  optional={"points": value, "confirm": value})  # fmt: skip
    closes = st.fixed_dictionaries({"type": st.just("close"), "id": st.sampled_from([1, 2, "a"]) | value})
    acks = st.fixed_dictionaries({"type": st.just("ack"), "id": st.sampled_from([1, 2, "a"]) | value,
                                  "n": st.integers(-5, 2**60) | value})  # fmt: skip
    return opens | closes | acks | st.dictionaries(WORDS, value, max_size=5)


def test_no_client_can_disturb_the_others(page, begin):
    """Random text, bytes, and messages in any order with any values; somebody else's stream goes on meanwhile."""
    run = begin("job")
    key = page.key("job")
    decent = page.socket("viewer")
    decent.send(type="open", id=1, run=key, query="batch.loss")
    decent.hears("opened")
    n = 0

    @settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.lists(wild_message(key) | st.text(max_size=50) | st.binary(max_size=50), max_size=12), st.randoms(),
           st.booleans())  # fmt: skip
    def attack(messages: list[object], rng: random.Random, greet: bool) -> None:
        nonlocal n
        socket = page.socket("viewer", greet=greet)
        with contextlib.suppress(Exception):  # it may be sent away
            for message in messages:
                socket.raw.send(json.dumps(message) if isinstance(message, dict) else message)
        run.observe("batch", step=n, loss=float(n), x=1.0)
        heard = []
        while not heard or heard[-1] < n:
            heard += floats(decent.hears("data", id=1)["y"])
            decent.send(type="ack", id=1, n=1)
        n += 1
        socket.raw.close()

    attack()
    assert n >= examples(40)
    assert not run.stopping
    wait_until(lambda: len(page.hub.streams) == 1)
    wait_until(lambda: len(page.hub.sockets) == 1)


def test_a_message_that_is_too_large_closes_the_socket(page, begin):
    begin("job")
    socket = page.socket()
    socket.raw.send("x" * (MAX_MESSAGE_BYTES + 1))
    with raises_closed(1009):
        while True:
            socket.next()
    assert page.get("/session").status_code == 200


def test_huge_heads_are_refused(page):
    with contextlib.suppress(ConnectionResetError):  # it does not even read all of it
        status, _ = raw(page, "/api/v1/session", "X-Long: " + "y" * (2 * MAX_HEAD_BYTES) + "\r\n")
        assert status == 400
    status, _ = raw(page, "/api/v1/session?" + "y" * 20_000)
    assert status == 413
    for length in ("9" * 30, "-1", "x"):
        status, _ = raw(page, "/api/v1/session", f"Content-Length: {length}\r\n")
        assert status in (400, 413)
    assert page.get("/session").status_code == 200


def test_viewers_can_neither_send_commands_nor_record_not_through_the_socket_either(page, begin):
    run = begin("job")
    lr = run.control("lr", 0.1)
    done = []
    run.action("save", lambda: done.append(1))
    key = page.key("job")
    commands = [{"kind": kind} for kind in ("pause", "resume", "stop")]
    commands += [
        {"kind": "set", "name": "lr", "value": 1.0},
        {"kind": "call", "name": "save"},
        {"kind": "stop", "at": "x"},
        {},
    ]
    for body in commands:
        answer = page.post(f"/runs/{key}/commands", body, role="viewer")
        assert (answer.status_code, answer.json()["error"]["type"]) == (403, "RefusedError")
    for on in (True, False):
        assert page.post(f"/runs/{key}/record", {"query": "batch.loss", "record": on}, role="viewer").status_code == 403
    socket = page.socket("viewer")
    for message in ({"type": "commands", "kind": "stop"}, {"type": "record", "query": "batch.loss"}, {"type": "stop"}):
        socket.send(**message)
        assert socket.hears("refused", id=None)["error"] == "RequestError"
    run.observe("batch", loss=1.0)
    assert (lr.value, done, run.stopping) == (0.1, [], False)
    assert page.json(f"/runs/{key}")["history"] == []
    assert not any(stream["recorded"] for stream in page.json(f"/runs/{key}")["streams"])


@pytest.mark.parametrize("broken", [True, False])
def test_a_stream_lingers_after_a_lost_connection(page, begin, monkeypatch, broken):
    run = begin("job")
    socket = page.socket()
    socket.send(type="open", id=1, run=page.key("job"), query="batch.loss")
    socket.hears("opened")
    run.observe("batch", step=0, loss=0.0)
    socket.hears("data")
    if broken:
        socket.raw.close_socket()
    else:
        socket.raw.close()
    wait_until(lambda: not page.hub.sockets)
    if not broken:
        assert len(page.hub.streams) == 0
        return
    run.observe("batch", step=1, loss=1.0)  # nobody is there
    assert len(page.hub.streams) == 1
    again = page.socket()
    again.send(type="open", id=1, run=page.key("job"), query="batch.loss")
    steps = []
    while len(steps) < 2:
        steps += floats(again.hears("data")["step"])
    assert steps == [0, 1]
    monkeypatch.setattr(shared_stream, "LINGER_S", 0.05)
    again.raw.close_socket()
    wait_until(lambda: len(page.hub.streams) == 0)


def test_a_stream_rests_for_most_of_the_pace_and_as_long_as_its_turn_took_but_its_charts_move_on():
    assert shared_stream.rest_s(0.001, 0.02) == pytest.approx(0.015)  # it is over when the run sends again
    assert shared_stream.rest_s(0.15, 0.02) == 0.15
    assert shared_stream.rest_s(9.0, 0.02) == shared_stream.rest_s(0.0, 9.0) == shared_stream.MAX_REST_S


def test_the_more_streams_of_a_run_are_read_the_longer_it_holds_records_back(page, begin):
    run, key, sockets = begin("job"), page.key("job"), [page.socket() for _ in range(8)]
    clients = run._wiring.service.clients
    for n, socket in enumerate(sockets, 1):
        socket.send(type="open", id=1, run=key, query=f"batch.loss + {n // 3}")
        socket.hears("opened")
        pace_s = max(PACE_S, n * shared_stream.CURSOR_PACE_S)
        wait_until(lambda pace_s=pace_s: clients.pace_s == pace_s)
    for socket in sockets[1:]:
        socket.raw.close()
    wait_until(lambda: clients.pace_s == PACE_S)
