"""An internal error costs the stream, the socket or the run that it came from; all others go on."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import sys
from pathlib import Path

import pytest
from tests.growing import Growing

from sightglass.core.errors import TransportError
from sightglass.protocol import discovery
from sightglass.server import http_errors
from sightglass.server.http_errors import log_error
from sightglass.server.live.hub import Hub
from sightglass.server.live.shared_stream import StreamCursor, StreamReader
from sightglass.server.runs import run_table
from sightglass.server.runs.served_run import ServedRun

from .conftest import floats, record, wait_until


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """Let the server look at the directories whenever it is asked, and log every error."""
    monkeypatch.setattr(run_table, "FRESH_S", 0.0)
    monkeypatch.setattr(run_table, "FRESH_REST", 0)
    monkeypatch.setattr(http_errors, "_logged", {})


def fail_for(monkeypatch, cls, name, is_bad, error):
    """Let a method raise for some objects."""
    real = getattr(cls, name)

    def method(self, *arguments, **options):
        if is_bad(self):
            raise error
        return real(self, *arguments, **options)

    monkeypatch.setattr(cls, name, method)


def open_two(page, begin, is_closed=False):
    """Return a run and a socket with the streams "bad" and "good"."""
    run = begin("job")
    socket = page.socket()
    key = page.key("job")
    for id in ("good", "bad"):
        socket.send(type="open", id=id, run=key, query=f"batch.{id}")
        if not (is_closed and id == "bad"):
            socket.hears("opened", id=id)
    return run, socket


VALUES = itertools.count(1.0)


def goes_on(run, socket, id="good"):
    """Check that a stream goes on, by a value that it did not have before."""
    value, heard = next(VALUES), []
    run.observe("batch", good=value, bad=2.0)
    while value not in heard:
        heard = floats(socket.hears("data", id=id)["y"])
        socket.send(type="ack", id=id, n=1)


@pytest.mark.parametrize("method", ["pull", "statistics"])
def test_a_stream_that_fails_ends_alone(page, begin, monkeypatch, method):
    run, socket = open_two(page, begin)
    goes_on(run, socket)
    fail_for(monkeypatch, StreamReader, method, lambda reader: reader.query == "batch.bad", RecursionError("deep"))
    said = socket.finds(lambda m: m["type"] in ("refused", "ended") and m["id"] == "bad")
    assert said["error"] in ("RecursionError", "InternalError")
    for _ in range(3):
        goes_on(run, socket)


@pytest.mark.parametrize("method", ["_send_new", "send_statistics", "opened", "acknowledge"])
def test_a_cursor_that_fails_ends_alone(page, begin, monkeypatch, capsys, method):
    early = method == "opened"
    if early:
        fail_for(monkeypatch, StreamCursor, method, lambda cursor: cursor.id == "bad", ZeroDivisionError("odd"))
    run, socket = open_two(page, begin, is_closed=early)
    if not early:
        goes_on(run, socket)
        fail_for(monkeypatch, StreamCursor, method, lambda cursor: cursor.id == "bad", ZeroDivisionError("odd"))
        run.observe("batch", good=1.0, bad=2.0)
        socket.send(type="ack", id="bad", n=1)
    assert socket.hears("refused", id="bad")["error"] == "InternalError"
    for _ in range(3):
        goes_on(run, socket)
    assert capsys.readouterr().err.count("ZeroDivisionError: odd") == 1


def test_another_socket_of_the_same_stream_goes_on(page, begin, monkeypatch):
    run = begin("job")
    key, bad, good = page.key("job"), page.socket(), page.socket()
    for id, socket in (("bad", bad), ("good", good)):
        socket.send(type="open", id=id, run=key, query="batch.good")
        socket.hears("opened", id=id)
    with monkeypatch.context() as patch:
        fail_for(patch, StreamCursor, "_send_new", lambda cursor: cursor.id == "bad", ZeroDivisionError("odd"))
        goes_on(run, good)
        assert bad.hears("refused", id="bad")["error"] == "InternalError"
        goes_on(run, good)
    bad.send(type="open", id="bad", run=key, query="batch.good")
    bad.hears("opened", id="bad")
    goes_on(run, bad, "bad")


def test_streams_that_nobody_wakes_look_by_themselves(page, begin):
    run, socket = open_two(page, begin)
    tried = []

    class Broken:
        def call_soon_threadsafe(self, wake):
            tried.append(wake)
            raise OSError("no")

    page.hub.streams._loop = Broken()
    wait_until(lambda: goes_on(run, socket) or tried)  # a record that comes while a stream rests wakes nobody
    goes_on(run, socket)


def test_the_hub_watches_on_even_without_a_terminal(page, begin, monkeypatch):
    class Closed(io.StringIO):
        def write(self, text):
            raise ValueError("I/O operation on closed file")

    socket, errors, look = page.socket(), [OSError("once"), KeyError("twice")], Hub._news

    def fail(self):
        if errors:
            raise errors.pop()
        return look(self)

    monkeypatch.setattr(sys, "stderr", Closed())
    monkeypatch.setattr(Hub, "_news", fail)
    socket.send(type="runs")
    socket.hears("runs")
    begin("late")
    socket.finds(lambda m: m["type"] == "runs" and [run["name"] for run in m["runs"]] == ["late"])
    assert not errors


def test_logging_an_error_never_raises(capsys):
    class Mute(RuntimeError):
        def __str__(self):
            raise self

    for error in (Mute(), Mute()):
        with contextlib.suppress(Mute):
            raise error
        log_error(error)


@pytest.mark.parametrize("method", ["read_details", "summary"])
def test_an_odd_run_is_listed_with_its_problem(page, monkeypatch, method):
    record("odd", n=3)
    record("even", n=3)
    fail_for(
        monkeypatch, ServedRun, method,
        lambda run: run.recorded is not None and run.recorded.name == "odd", UnicodeError("what is this"),
    )  # fmt: skip

    def listed():
        runs = page.json("/runs")["runs"]  # what takes long to find out is told later
        return sorted((run["last_step"] or 0, run["problem"], run["name"]) for run in runs)

    (_, problem, name), even = wait_until(lambda: (found := listed())[1][0] == 200 and found[0][1] and found)
    assert ("what is this" in problem, name in ("odd", page.runs()[name]["key"])) == (True, True)
    assert even == (200, "", "even")


@pytest.mark.parametrize("method", ["read_details", "summary"])
def test_an_odd_run_does_not_keep_the_growth_of_others_back(page, monkeypatch, method):
    odd, even = Growing(Path("runs"), "ms"), Growing(Path("runs"), "tb")
    keys = [page.key("ms"), page.key("tb")]
    fail_for(
        monkeypatch, ServedRun, method,
        lambda run: run.key == keys[0], UnicodeError("what is this"),
    )  # fmt: skip
    socket = page.socket()
    socket.send(type="watch", runs=keys)
    assert socket.hears("changed")["runs"] == []
    for file, key in zip((odd, even), keys, strict=True):
        file.append()
        # The other one may be in the same message: its details are read at the same time.
        assert socket.finds(lambda m, key=key: m["type"] == "changed" and key in [run["key"] for run in m["runs"]])


def test_a_registry_that_cannot_be_read_now_leaves_the_list(page, begin, monkeypatch):
    begin("job")
    assert page.runs()["job"]["live"]

    def fail():
        raise TransportError("Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(discovery, "entries", fail)
        assert page.runs()["job"]["live"]
        begin("late")
    assert set(page.runs()) == {"job", "late"}


def test_pipes_and_devices_among_the_files_hold_up_nothing(page):
    """A pipe blocks its reader, and a device may never end."""
    record("whole")
    for name, odd in (("piped", "1-rank0-0009.sgr"), ("told", "run.json"), ("endless", "0001-rank0.sgr")):
        path = Path("runs", name)
        path.mkdir()
        if name == "endless":
            (path / odd).symlink_to("/dev/zero")
        else:
            os.mkfifo(path / odd)
    listed = {run["name"]: run for run in page.json("/runs")["runs"]}
    assert {"whole", "piped"} <= set(listed)
    assert "endless" not in listed  # its only file is a link that leads out of it
    assert page.json(f"/runs/{listed['whole']['key']}/tags")["tags"]
    wait_until(lambda: "Expected a regular file" in page.runs()["piped"]["problem"])
