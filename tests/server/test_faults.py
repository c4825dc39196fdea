"""What goes wrong around the server: runs that die, directories that change, files that are no such, restarts."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import numpy as np
import pytest

import sightglass as sg
from sightglass.client.recorded.tag_expression import Evaluated
from sightglass.core.columns import Columns
from sightglass.core.errors import RunLostError
from sightglass.server.runs import open_files, run_table
from sightglass.server.runs.run_table import Runs
from sightglass.storage import run_file
from sightglass.storage.format.block import Key
from sightglass.storage.write.segment import SegmentWriter

from .conftest import floats, place_foreign, record, wait_until

VICTIM = """
import sightglass as sg, time
run = sg.init("victim", record=["batch.loss"])
print("ready", flush=True)
for step in range(10**9):
    run.observe("batch", step=step, loss=float(step))
    time.sleep(0.001)
"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Let the server look at the directories whenever it is asked."""
    monkeypatch.setattr(run_table, "FRESH_S", 0.0)


def error(answer):
    return answer.status_code, answer.json()["error"]["type"]


@pytest.mark.slow
def test_a_run_that_is_killed_while_it_is_shown(page):
    with subprocess.Popen([sys.executable, "-c", VICTIM], stdout=subprocess.PIPE, env=dict(os.environ)) as child:
        assert child.stdout is not None
        child.stdout.readline()
        key = page.key("victim")
        socket = page.socket()
        socket.send(type="runs")
        socket.send(type="open", id=1, run=key, query="batch.loss")
        socket.hears("data", id=1)
        scalars = f"/runs/{key}/scalars"
        wait_until(lambda: page.get(scalars, tag="batch.loss").json().get("n", 0) >= 20)  # on disk, for two maxima
        child.send_signal(signal.SIGKILL)
        child.wait()
    reply = socket.finds(lambda m: m["type"] in ("ended", "data") and socket.send(type="ack", id=1) is None
                        and m["type"] == "ended")  # fmt: skip
    assert (reply["error"], "died" in reply["reason"]) == (RunLostError.__name__, True)
    wait_until(lambda: page.runs()["victim"]["state"] == "died")
    run = page.runs()["victim"]
    assert (run["key"], run["live"], run["state"]) == (key, False, "died")
    assert page.json(f"/runs/{key}/scalars", tag="batch.loss")["n"] > 0
    assert error(page.post(f"/runs/{key}/commands", {"kind": "stop"})) == (409, "RunLostError")
    detail = page.json(f"/runs/{key}")
    assert detail["description"]["state"] == "died"
    socket.send(type="open", id=2, run=key, query="batch.loss.max(every=10)")
    assert floats(socket.hears("data", id=2)["y"])[:2] == [9, 19]


def test_after_a_restart_the_gap_can_be_filled(serve, begin):
    run = begin("job", record=["batch.loss"])

    def go_on(steps):
        for step in steps:
            run.observe("batch", step=step, loss=float(step))
        run.flush()

    first = serve(port=0)
    port = first.server.port
    first.end()
    first = serve(port=port)
    key = first.key("job")
    socket = first.socket("viewer")
    socket.send(type="open", id=1, run=key, query="batch.loss")
    socket.hears("opened")
    go_on(range(5))
    assert floats(socket.hears("data", id=1)["y"])[0] == 0
    tokens = first.server.tokens
    first.end()
    go_on(range(5, 10))
    second = serve(port=port)
    assert (second.server.tokens.controller, second.server.tokens.viewer) == (tokens.controller, tokens.viewer)
    assert second.key("job") == key
    socket = second.socket("viewer")
    socket.send(type="open", id=1, run=key, query="batch.loss")
    socket.hears("opened", id=1)
    kept = second.json(f"/runs/{key}/scalars", tag="batch.loss")
    assert kept["step"] == [*range(10)]
    go_on(range(10, 15))
    seen = []
    while not seen or seen[-1] < 14:
        seen += floats(socket.hears("data", id=1)["step"])
    assert seen[0] <= kept["step"][-1] + 1
    assert seen == [*range(int(seen[0]), 15)]
    third = serve(port=0)
    assert third.server.tokens.controller != tokens.controller


def test_new_links_make_the_old_ones_worthless(serve):
    page = serve()
    port, old = page.server.port, page.server.tokens
    page.end()
    page = serve(port=port)
    kept = page.server.tokens
    page.end()
    page = serve(port=port, new_links=True)
    assert len({old.controller, kept.controller, page.server.tokens.controller}) == 3
    page.end()
    assert serve(port=port).server.tokens.controller == page.server.tokens.controller


def test_a_directory_that_goes_away_while_it_is_shown(page, begin):
    directory = record()
    run = begin("live", record=["batch.loss"])
    socket = page.socket()
    keys = {name: page.key(name) for name in ("mnist", "live")}
    socket.send(type="open", id=1, run=keys["live"], query="batch.loss")
    socket.hears("opened", id=1)
    run.observe("batch", loss=1.0)
    run.flush()
    assert floats(socket.hears("data", id=1)["y"]) == [1.0]
    shutil.rmtree(directory)
    shutil.rmtree(run.directory)
    run.observe("batch", loss=2.0)
    assert floats(socket.hears("data", id=1)["y"]) == [2.0]  # what lives goes on
    reply = page.runs()
    assert reply["mnist"]["problem"].endswith("is gone")
    assert (reply["live"]["live"], reply["live"]["key"]) == (True, keys["live"])
    socket.send(type="open", id=2, run=keys["mnist"], query="batch.loss")
    assert socket.finds(lambda m: m.get("id") == 2 and m["type"] in ("refused", "opened"))["error"] == "RunLostError"
    assert error(page.get(f"/runs/{keys['mnist']}/tags")) == (409, "RunLostError")


def test_a_directory_that_is_renamed_keeps_its_key(page):
    directory = record()
    key = page.key("mnist")
    assert page.json(f"/runs/{key}/scalars", tag="batch.loss")["n"] == 300
    directory.rename(directory.with_name("elsewhere"))
    reply = page.runs()["mnist"]
    assert (reply["key"], reply["problem"], Path(reply["directory"]).name) == (key, "", "elsewhere")
    assert page.json(f"/runs/{key}/scalars", tag="batch.loss")["n"] == 300
    assert page.json(f"/runs/{key}")["description"]["directory"].endswith("elsewhere")


def test_a_directory_that_another_run_takes_is_that_run_s(page):
    directory = record("one", seed=1)
    key = page.key("one")
    before = page.json(f"/runs/{key}/tensor", tag="kernel", slice="[0, 0]", step=0)
    shutil.rmtree(directory)
    shutil.move(record("two", n=20, seed=2), directory)
    reply = page.runs()
    assert reply["one"]["key"] == key
    assert "another run's now" in reply["one"]["problem"]
    assert reply["two"]["key"] != key
    assert (reply["two"]["problem"], reply["two"]["directory"]) == ("", reply["one"]["directory"])
    assert error(page.get(f"/runs/{key}/tags")) == (409, "RunLostError")
    other = f"/runs/{reply['two']['key']}"
    assert page.json(f"{other}/scalars", tag="batch.loss")["n"] == 20
    assert page.json(f"{other}/tensor", tag="kernel", slice="[0, 0]", step=0)["values"] != before["values"]


def test_replaced_foreign_files_are_read_again(page):
    place_foreign()
    key = page.key("tb")
    tags = page.json(f"/runs/{key}/tags")["tags"]
    shutil.rmtree("runs/tb")
    shutil.copytree("runs/ms", "runs/tb")
    names = {tag["tag"] for tag in page.json(f"/runs/{page.key('tb')}/tags")["tags"]}
    assert names == {tag["tag"] for tag in page.json(f"/runs/{page.key('ms')}/tags")["tags"]}
    assert names != {tag["tag"] for tag in tags}


def test_a_stream_over_files_that_are_replaced_ends(page, monkeypatch):
    """A run on another machine, which may still grow; somebody moves its directory and puts another there."""
    directory = Path("runs/far")
    directory.mkdir(parents=True)

    def write(id, n):
        run_file.create(directory, run_file.RunFile(name="far", id=id, started=1e9, host="elsewhere"))
        writer = SegmentWriter(directory / "1000-rank0-0000.sgr")
        rows = np.arange(n)
        columns = Columns(index=0, steps=rows, wall_times=1e9 + rows, values=rows + 0.5, ordinals=rows)
        writer.append(Key(kind="logged", tag="loss"), columns)
        writer.flush()
        return writer

    writer = write("0" * 12, 10)
    key = page.key("far")
    assert page.runs()["far"]["state"] == "running"
    socket = page.socket()
    socket.send(type="open", id=1, run=key, query="loss")
    assert len(floats(socket.hears("data", id=1)["y"])) == 10
    writer.close()
    directory.rename("runs/moved")
    directory.mkdir()
    write("1" * 12, 3).close()
    assert len({run["key"] for run in page.json("/runs")["runs"]}) == 2
    page.json(f"/runs/{key}/tags")  # whoever comes next is given the files where they are now
    ended = socket.hears("ended", id=1)
    assert (ended["error"], "moved or replaced" in ended["reason"]) == ("RunLostError", True)
    socket.send(type="open", id=1, run=key, query="loss")
    assert len(floats(socket.hears("data", id=1)["y"])) == 10


DAMAGES = {
    "flipped": (lambda data: data[:-60] + bytes([data[-60] ^ 8]) + data[-59:], "damaged"),
    "torn": (lambda data: data[:-5], "interrupted"),
    "empty": (lambda data: b"", "is empty"),
    "foreign": (lambda data: b"\x89PNG\r\n\x1a\n" + bytes(range(256)), "damaged"),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_damaged_files_are_listed_with_their_problem(page, what):
    """One intact file and a damaged one: the intact data are there, and the damage is reported."""
    directory = record()
    damage, words = DAMAGES[what]
    (segment,) = directory.glob("*.sgr")
    bad = directory / segment.name.replace("-0000", "-0001")
    writer = SegmentWriter(bad)
    rows = np.arange(50)
    for tag in ("more", "most"):
        columns = Columns(index=0, steps=rows, wall_times=1e9 + rows, values=np.sqrt(rows), ordinals=rows)
        writer.append(Key(kind="logged", tag=tag), columns)
        writer.flush()
    writer.close()
    bad.write_bytes(damage(bad.read_bytes()))
    for index in directory.glob("*.idx"):
        index.unlink()
    key = page.key("mnist")
    tags = {tag["tag"] for tag in page.json(f"/runs/{key}/tags")["tags"]}
    assert {"batch.loss", "kernel"} <= tags
    assert page.json(f"/runs/{key}/scalars", tag="batch.loss")["n"] == 300
    if "more" in tags:
        assert page.json(f"/runs/{key}/scalars", tag="more")["y"][-1] == 7.0
    page.get(f"/runs/{key}/scalars", tag="most")  # some damage is found by reading
    reply = page.runs()["mnist"]
    assert words in reply["problem"]
    assert reply["last_step"] == 299
    for path in ("scalars", "steps", "tensor", "histograms", "media", "texts"):
        assert page.get(f"/runs/{key}/{path}", tag="most").status_code in (200, 400, 404, 422)


def test_unreadable_files_are_reported(page, monkeypatch):
    directory = record()
    (segment,) = directory.glob("*.sgr")
    secret = directory / segment.name.replace("-0000", "-0001")
    secret.write_bytes(b"")
    (directory / "run-1-rank1.json").write_text("{")
    usual = os.access
    for module in (open_files,):  # whoever runs the tests may be allowed to read everything
        monkeypatch.setattr(
            module.os, "access", lambda path, mode: Path(path) != secret.resolve() and usual(path, mode)
        )
    reply = page.runs()["mnist"]
    assert f"{secret.name}: Permission denied" in reply["problem"]
    assert "run-1-rank1.json: Expected a run file" in reply["problem"]
    assert page.json(f"/runs/{reply['key']}/scalars", tag="batch.loss")["n"] == 300


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="whoever may read everything is not refused")
def test_a_directory_that_may_not_be_entered(page):
    directory = record()
    key = page.key("mnist")
    directory.chmod(0)
    try:
        assert "cannot be read" in page.runs()["mnist"]["problem"]
        assert error(page.get(f"/runs/{key}/tags"))[0] in (200, 409)
    finally:
        directory.chmod(0o700)


def test_runs_come_and_go_without_a_trace(monkeypatch):
    record()
    runs = Runs([Path("runs")])
    assert [run.name for run in runs.summaries()] == ["mnist"]
    shutil.rmtree("runs")
    assert [run.problem.endswith("is gone") for run in runs.summaries()] == [True]
    monkeypatch.setattr(run_table, "GONE_S", -1.0)
    assert runs.summaries() == []
    runs.close()


def test_no_more_files_are_open_than_allowed(serve, monkeypatch):
    monkeypatch.setattr(run_table, "MAX_OPEN", 4)
    for i in range(12):
        with sg.init(f"run{i}") as run:
            run.log({"x": float(i)}, step=0)
    page = serve()
    runs = page.json("/runs")["runs"]
    body = {"requests": [{"run": run["key"], "tag": "x"} for run in runs]}
    reply = msgspec.msgpack.decode(page.post("/scalars", body).content)
    assert sorted(floats(one["y"])[0] for one in reply) == [*range(12)]
    folder = str(Path("runs").resolve())

    def n_open():
        places = [os.readlink(f"/proc/self/fd/{one}") for one in os.listdir("/proc/self/fd") if one.isdigit()
                  and os.path.lexists(f"/proc/self/fd/{one}")]  # fmt: skip
        return sum(place.startswith(folder) for place in places)

    page.runs()
    assert n_open() <= 8


def test_a_long_expression_keeps_no_other_request_of_its_run_waiting(page, monkeypatch):
    """An expression over tags is evaluated without the lock of the run's files."""
    record()
    path = f"/runs/{page.key('mnist')}/scalars"
    begun, hanging, answers = threading.Event(), threading.Event(), []
    usual = Evaluated.since

    def long(self, cursor):
        begun.set()
        assert hanging.wait(300)
        return usual(self, cursor)

    monkeypatch.setattr(Evaluated, "since", long)
    asking = threading.Thread(target=lambda: answers.append(page.json(path, tag="val/accuracy * 2")))
    asking.start()
    try:
        assert begun.wait(60)
        assert page.json(path, tag="batch.loss")["n"] == 300
        assert page.json(path, tag="norm(kernel)")["n"] == 3
        assert not answers
    finally:
        hanging.set()
        asking.join()
    assert answers[0]["y"] == [1.0, 201.0, 401.0]


def test_a_run_that_does_not_answer_delays_no_request(page, begin, monkeypatch):
    """A disk or a run that hangs keeps nobody from the rest."""
    record()
    key, hanging = page.key("mnist"), threading.Event()
    usual = run_table.runs_in
    monkeypatch.setattr(run_table, "runs_in", lambda *given, **more: hanging.wait(300) and usual(*given, **more))
    asking = threading.Thread(target=page.runs)
    asking.start()
    try:
        assert page.json("/session")["role"] == "controller"
        assert page.json(f"/runs/{key}/scalars", tag="batch.loss")["n"] == 300
    finally:
        hanging.set()
        asking.join()
