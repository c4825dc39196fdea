"""The socket: streams that are opened, shared, slowed down, lost and found."""

from __future__ import annotations

import json
import random
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.profiles import examples

import sightglass as sg
from sightglass.core.columns import Columns
from sightglass.core.errors import RunLostError
from sightglass.server.live import frame_queue, shared_stream
from sightglass.server.live.shared_stream import StreamReader
from sightglass.views import encoding

from .conftest import floats, raises_closed, record, wait_until


def collect(socket, id, n):
    """Read binary messages until they stand for `n` records, and return their columns."""
    records = {name: [] for name in ("step", "wall", "y", "index")}
    seen = 0
    while seen < n:
        message = socket.hears("data", id=id)
        assert message["first"] == seen
        seen += message["n"]
        for name in ("step", "wall", "y"):
            records[name] += floats(message[name])
        records["index"] += np.frombuffer(message["index"], "<i8").tolist()
        socket.send(type="ack", id=id, n=1)
    return records


def test_events_without_a_partner_are_counted(page, begin):
    run = begin("job")
    key = page.key("job")
    query = "on('batch').join('epoch').map(lambda b: b.loss - b.epoch.loss)"
    socket = page.socket("viewer")
    socket.send(type="open", id="a", run=key, query=query)
    socket.hears("opened", id="a")
    run.observe("batch", loss=1.0)
    run.observe("batch", loss=2.0)
    run.observe("epoch", loss=0.5)
    run.observe("batch", loss=3.0)
    assert collect(socket, "a", 1)["y"] == [2.5]
    socket.hears("statistics", id="a", n_unpaired=2, n_records=1)


def test_a_stream_of_numbers(page, begin):
    run = begin("job")
    key = page.key("job")
    socket = page.socket("viewer")
    socket.send(type="open", id="a", run=key, query="batch.loss")
    opened = socket.hears("opened", id="a")
    assert opened["tag"] == "batch.loss"
    values = [0.5, float("nan"), float("inf"), 3, True]
    for step, value in enumerate(values):
        run.observe("batch", step=10 * step, loss=value)
    view = socket.hears("view", id="a")
    assert (view["view"], view["kinds"]) == ("line", ["number"])
    assert "histogram" in view["possible"]
    records = collect(socket, "a", 5)
    assert records["y"] == pytest.approx([0.5, float("nan"), float("inf"), 3, 1], nan_ok=True)
    assert records["step"] == [0, 10, 20, 30, 40]
    assert records["index"] == [0, 1, 2, 3, 4]
    statistics = socket.hears("statistics", id="a", n_records=5)
    assert statistics["n_left_out"] == statistics["n_lost"] == 0
    run.close()
    ended = socket.hears("ended", id="a")
    assert "error" not in ended
    wait_until(lambda: len(page.hub.streams) == 0)


def test_equal_queries_share_a_stream_until_the_last_closes_it(page, begin):
    run = begin("job")
    key = page.key("job")
    one, other = page.socket(), page.socket("viewer")
    one.send(type="open", id=1, run=key, query="batch.loss")
    one.send(type="open", id=2, run=key, query='on("batch").map(lambda b: b.loss)')
    other.send(type="open", id=1, run=key, query="batch.loss")
    for socket, id in ((one, 1), (one, 2), (other, 1)):
        socket.hears("opened", id=id)
    assert len(page.hub.streams) == 1
    client = sg.connect(run)
    assert [stream.tag for stream in client.describe().streams] == ["batch.loss"]
    run.observe("batch", loss=1.0)
    for socket, id in ((one, 1), (one, 2), (other, 1)):
        assert collect(socket, id, 1)["y"] == [1.0]
    late = page.socket()
    late.send(type="open", id=9, run=key, query="batch.loss")
    assert collect(late, 9, 1)["y"] == [1.0]
    for id in (1, 2):
        one.send(type="close", id=id)
    late.raw.close()
    run.observe("batch", loss=2.0)
    assert floats(other.hears("data")["y"]) == [2.0]
    assert len(page.hub.streams) == 1
    other.raw.close()
    wait_until(lambda: len(page.hub.streams) == 0)
    wait_until(lambda: not client.describe().streams)
    client.close()


def test_values_of_all_kinds(page, begin):
    run = begin("job")
    key = page.key("job")
    socket = page.socket()
    queries = {
        "x": "batch.x", "h": "batch.x.histogram(bins=4)", "pair": 'on("batch").map(lambda b: (b.loss, 2.0))',
        "m": "batch.grads", "t": "batch.text", "image": "batch.image", "big": "batch.big",
    }  # fmt: skip
    for id, query in queries.items():
        socket.send(type="open", id=id, run=key, query=query)
        socket.hears("opened", id=id)
    picture = sg.Image(np.zeros((2, 2)))
    big = np.zeros(encoding.MAX_VALUE_BYTES // 8 + 1)
    run.observe("batch", x=np.arange(3.0), loss=1.0, grads={"a": 1.0}, text="<b>", image=picture, big=big)
    records = {id: socket.hears("data", id=id)["values"][0] for id in queries}
    assert records["x"]["dtype"] == "float64"
    assert (records["x"]["shape"], floats(records["x"]["data"])) == ([3], [0.0, 1.0, 2.0])
    assert (records["pair"], records["m"], records["t"]) == ([1.0, 2.0], {"a": 1.0}, "<b>")
    assert set(records["h"]) == {"counts", "edges", "n_nan", "n_posinf", "n_neginf"}
    assert records["image"]["png"].startswith(b"\x89PNG")
    assert records["big"] == {"too_large": f"float64[{len(big)}]"}
    views = {id: socket.hears("view", id=id)["view"] for id in ("pair", "m", "t", "h")}
    assert views == {"pair": "xy", "m": "bars", "t": "log", "h": "histogram"}


def test_refusals_say_where(page, begin):
    run = begin("job")
    key = page.key("job")
    socket = page.socket()
    socket.send(type="open", id=1, run=key, query="batch.loss +")
    refused = socket.hears("refused", id=1)
    assert (refused["error"], refused["position"] > 5) == ("QuerySyntaxError", True)
    socket.send(type="open", id=1, run="none", query="batch.loss")
    assert socket.hears("refused", id=1)["error"] == "UnknownNameError"
    socket.send(type="open", id=1, run=key, query="batch.loss")
    socket.hears("opened", id=1)
    socket.send(type="open", id=1, run=key, query="batch.loss")
    assert "already open" in socket.hears("refused", id=1)["message"]
    socket.send(type="jump")
    assert socket.hears("refused", id=None)["error"] == "RequestError"
    socket.raw.send("{")
    socket.raw.send(b"\x00")
    for _ in range(2):
        assert socket.hears("refused", id=None)["error"] == "RequestError"
    run.observe("batch", loss=1.0)
    assert collect(socket, 1, 1)["y"] == [1.0]


def test_a_viewer_of_the_page_may_ask_what_a_viewer_may(page, begin):
    run = begin("job")
    run.function("secret", lambda x: x + 1.0)
    run.function("shown", lambda x: x + 2.0, viewers=True)
    key, viewer, controller = page.key("job"), page.socket("viewer"), page.socket()
    viewer.send(type="open", id=1, run=key, query="batch.loss", confirm=True)
    assert "Expected a controller's link to accept a cost" in viewer.hears("refused", id=1)["message"]
    viewer.send(type="open", id=2, run=key, query='on("batch").map(lambda b: secret(b.loss))')
    assert "viewers may not call it" in viewer.hears("refused", id=2)["message"]
    viewer.send(type="open", id=3, run=key, query='on("batch").map(lambda b: shown(b.loss))')
    viewer.hears("opened", id=3)
    controller.send(type="open", id=4, run=key, query='on("batch").map(lambda b: secret(b.loss))')
    controller.hears("opened", id=4)
    run.observe("batch", loss=1.0)
    assert collect(viewer, 3, 1)["y"] == [3.0]
    assert collect(controller, 4, 1)["y"] == [2.0]


def test_a_query_that_fails_in_the_run_ends_with_its_error(page, begin):
    run = begin("job")
    socket = page.socket()
    socket.send(type="open", id=1, run=page.key("job"), query="batch.los")
    socket.hears("opened", id=1)
    for _ in range(4):
        run.observe("batch", loss=1.0)
    ended = socket.hears("ended", id=1)
    assert ended["error"].endswith("Error")
    assert "Did you mean 'loss'" in ended["reason"]


def test_without_acknowledgements_later_records_come_thinned_in_one_message(page, begin):
    run = begin("job")
    socket = page.socket()
    socket.send(type="open", id=1, run=page.key("job"), query="batch.loss", points=10)
    socket.hears("opened", id=1)
    seen = 0
    for i in range(shared_stream.MAX_UNACKNOWLEDGED):
        run.observe("batch", step=i, loss=1.0)
        seen += socket.hears("data", id=1)["n"]
    assert seen == shared_stream.MAX_UNACKNOWLEDGED
    for i in range(1000):
        run.observe("batch", step=100 + i, loss=-5.0 if i == 500 else 9.0 if i == 501 else i / 1000)
    statistics = socket.hears("statistics", id=1, n_waiting=1000)
    assert statistics["n_unacknowledged"] == shared_stream.MAX_UNACKNOWLEDGED
    assert not [message for message in socket.kept if message["type"] == "data"]
    socket.send(type="ack", id=1, n=1)
    message = socket.hears("data", id=1)
    shown = floats(message["y"])
    assert (message["first"], message["n"]) == (seen, 1000)
    assert len(shown) <= 22
    assert {-5.0, 9.0} <= set(shown)
    n_left_out = 1000 - len(shown)
    socket.hears(
        "statistics", id=1, n_waiting=0, n_unacknowledged=shared_stream.MAX_UNACKNOWLEDGED, n_left_out=n_left_out
    )


def test_recorded_runs_answer_too(page):
    record(n=5000)
    key = page.key("mnist")
    socket = page.socket()
    socket.send(type="open", id=1, run=key, query="batch.loss", points=100_000)
    records = collect(socket, 1, 5000)
    assert records["y"][:2] == [1.0, 0.5]
    assert records["step"] == [*map(float, range(5000))]
    assert "error" not in socket.hears("ended", id=1)
    socket.send(type="open", id=2, run=key, query="batch.loss.count(every=1000)")
    assert collect(socket, 2, 5)["y"] == [1000] * 5
    socket.send(type="open", id=3, run=key, query="val/accuracy")
    assert collect(socket, 3, 3)["y"] == [0.5, 100.5, 200.5]
    socket.send(type="open", id=4, run=key, query="kernel")
    message = socket.hears("data", id=4)
    assert [value["shape"] for value in message["values"]] == [[3, 8, 5]] * 3
    socket.send(type="open", id=5, run=key, query="batch.nothing")
    refused = socket.hears("refused", id=5)
    assert (refused["error"], "cannot be answered" in refused["message"]) == ("QueryError", True)


def test_changes_of_the_runs_are_sent(page, begin):
    socket = page.socket()
    socket.send(type="runs")
    assert socket.hears("runs")["runs"] == []
    run = begin("job")
    assert socket.finds(lambda m: m["type"] == "runs" and [r["name"] for r in m["runs"]] == ["job"])
    stopper = sg.connect(run)
    asking = threading.Thread(target=stopper.stop)
    asking.start()
    wait_until(lambda: not asking.is_alive(), "the answer", pause=lambda: run.observe("batch", loss=1.0))
    stopper.close()
    assert socket.finds(lambda m: "runs" in m and [r["state"] for r in m["runs"]] == ["stopping"])
    run.close()
    assert socket.finds(lambda m: m["type"] in ("runs", "changed") and not any(r["live"] for r in m["runs"]))


def test_a_lost_connection_is_made_again_and_nothing_comes_twice(page, begin):
    run = begin("job")
    key = page.key("job")
    socket = page.socket()
    socket.send(type="open", id=1, run=key, query="batch.loss")
    socket.hears("opened", id=1)
    for step in range(5):
        run.observe("batch", step=step, loss=float(step))
    records = collect(socket, 1, 5)
    (shared,) = page.hub.streams
    reader = shared.reader
    session = reader.run.connection._remote._session

    def unplugged():
        raise OSError("The cable was pulled")

    session.connection._channel.receive = unplugged
    wait_until(lambda: session.n_reconnects)
    wait_until(lambda: [one.tag for one in reader.run.describe().streams] == ["batch.loss"])
    for step in range(5, 10):
        run.observe("batch", step=step, loss=float(step))
    while len(records["y"]) < 10:
        message = socket.hears("data", id=1)
        assert message["first"] == len(records["y"])
        records["y"] += floats(message["y"])
        socket.send(type="ack", id=1, n=1)
    assert records["y"] == [*map(float, range(10))]


@pytest.mark.slow
def test_a_run_that_dies_is_reported(page, tmp_path):
    import os
    import signal
    import subprocess
    import sys

    script = ("import sightglass as sg, time\nrun = sg.init('victim')\nprint('ready', flush=True)\n"
              "while True:\n    run.observe('batch', loss=1.0)\n    time.sleep(0.001)\n")  # fmt: skip
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=dict(os.environ)) as child:
        assert child.stdout is not None
        child.stdout.readline()
        socket = page.socket()
        socket.send(type="open", id=1, run=page.key("victim"), query="batch.loss")
        socket.hears("data", id=1)
        child.send_signal(signal.SIGKILL)
        child.wait()
    ended = socket.hears("ended", id=1)
    assert (ended["error"], "died" in ended["reason"]) == (RunLostError.__name__, True)


def test_backlogs_stay_small(monkeypatch):
    monkeypatch.setattr(encoding, "MAX_POINTS", 4096)

    class LiveRun:
        live = True

    reader = StreamReader(LiveRun(), "x", confirm=False)
    for start in range(0, 40_000, 1000):
        steps = np.arange(start, start + 1000)
        reader._add(Columns(index=start, steps=steps, wall_times=steps / 1e3, values=np.where(steps == 777, 100.0, 0)))
    assert reader.backlog.n == 40_000
    taken = reader.backlog.take(0, 100_000)
    assert (taken.cursor, taken.n <= 4096, len(floats(taken.message["y"]))) == (40_000, True, taken.n)
    assert max(floats(taken.message["y"])) == 100.0
    few = reader.backlog.take(0, 100)
    assert few.n <= 8 * 100
    assert max(floats(few.message["y"])) == 100.0
    assert reader.backlog.take(40_000, 10) is None


def test_a_stuck_client_is_disconnected(page, monkeypatch):
    monkeypatch.setattr(frame_queue, "MAX_WAITING", 3)
    socket = page.socket()
    (stuck,) = page.hub.sockets
    loop = page.hub.streams._loop

    def flood():
        for _ in range(10):
            stuck.queue.send({"type": "runs", "runs": []})

    loop.call_soon_threadsafe(flood)
    with raises_closed(4408):
        while True:
            socket.next()


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
TYPES = st.sampled_from(["hello", "open", "close", "runs", "watch", "ack", "jump"])
MESSAGES = st.fixed_dictionaries(
    {"type": TYPES}, optional={"id": JSONS | st.sampled_from([1, "a"]), "run": JSONS | st.just("KEY"),
    "query": JSONS | st.sampled_from(["batch.loss", "batch", "log['x']", "(" * 500, "x.y.z(1)"]), "points": JSONS,
    "n": JSONS, "token": JSONS, "runs": JSONS | st.just(["KEY"]), "confirm": st.booleans()},
)  # fmt: skip


def test_no_message_kills_the_server(page, begin):
    run = begin("job")
    key = page.key("job")

    @settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(MESSAGES | JSONS, max_size=8), st.randoms(use_true_random=False))
    def attack(messages: list[object], rng: random.Random) -> None:
        socket = page.socket()
        for message in messages:
            text = json.dumps(message).replace('"KEY"', f'"{key}"')
            if rng.random() < 0.2:
                text = text[: rng.randrange(len(text) + 1)]
            socket.raw.send(text if rng.random() < 0.9 else text.encode())
            run.observe("batch", loss=1.0)
        socket.send(type="runs")
        assert socket.hears("runs")["runs"]
        socket.raw.close()

    attack()
    assert page.get("/session").status_code == 200
    wait_until(lambda: len(page.hub.streams) == 0)
