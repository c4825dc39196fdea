"""Whatever grows is told: the server looks at the files of the runs that its clients show, whoever writes them."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest
from tests.growing import FOREIGN, Growing
from tests.waiting import PATIENCE_S

import sightglass as sg
from sightglass.server.live import hub
from sightglass.server.live.frame_queue import MAX_WATCHED
from sightglass.server.runs import growth, served_run
from sightglass.server.runs.growth import MAX_LATEST, Growth, WatchedDirectory
from sightglass.server.runs.run_table import Runs
from sightglass.storage import run_listing

from .conftest import floats, wait_until

DIALECTS = ("ms", "tb", "sg")
RUNS = Path("runs")


def growth_of(socket, key, before):
    """Wait until the socket tells that a run has another version, and return the run."""
    found = []

    def tells(message):
        found[:] = [run for run in message.get("runs", ()) if run["key"] == key and run["version"] != before]
        return message["type"] == "changed" and found

    socket.finds(tells)
    return found[0]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_file_that_grows_is_told_to_those_who_watch_it(page, dialect):
    file = Growing(RUNS, dialect)
    key = page.key(dialect)
    socket, other = page.socket(), page.socket()
    socket.send(type="watch", runs=[key])
    assert socket.hears("changed")["runs"] == []  # the answer
    run = page.runs()[dialect]
    while file.parts:
        file.append()
        run = growth_of(socket, key, run["version"])
    last = page.runs()[dialect]
    assert (last["version"], last["title"]) == (run["version"], dialect)
    wait_until(lambda: page.runs()[dialect]["last_step"] == file.step)
    other.send(type="watch", runs=[])
    assert other.next()["runs"] == []  # nothing was told to a client that watches no run


def test_what_is_said_of_a_run_follows_its_growth(page):
    file = Growing(RUNS, "ms")
    socket, key = page.socket(), page.key("ms")
    socket.send(type="watch", runs=[key])
    file.append()
    assert socket.finds(lambda m: m["type"] == "changed" and [run["last_step"] for run in m["runs"]] == [file.step])


def test_the_last_step_is_told_however_long_the_threads_for_files_are_busy(page, monkeypatch):
    monkeypatch.setattr(hub, "WATCH_S", 1e-7)
    file = Growing(RUNS, "ms")
    socket, key = page.socket(), page.key("ms")
    socket.send(type="watch", runs=[key])
    file.append()
    assert socket.finds(lambda m: file.step in [run["last_step"] for run in m.get("runs", ())])


def test_the_last_step_is_told_of_a_run_that_grows_while_its_details_are_read(page, monkeypatch):
    file = Growing(RUNS, "ms")
    wait_until(lambda: page.runs()["ms"]["last_step"] == file.step)
    socket, key = page.socket(), page.key("ms")
    run, read = page.hub._runs.known(key), served_run.read_inside

    def reading(details, recording):
        found = read(details, recording)
        if len(began) == 1:
            began.append(file.append())
            wait_until(lambda: run.recorded.version != details.version)
        return found

    monkeypatch.setattr(served_run, "read_inside", reading)
    socket.send(type="watch", runs=[key])
    socket.hears("changed")
    began = [file.append()]
    assert socket.finds(lambda m: file.step in [run["last_step"] for run in m.get("runs", ())] and len(began) == 2)


def test_the_last_step_is_told_of_a_run_that_grows_faster_than_it_is_read(page, monkeypatch):
    file = Growing(RUNS, "ms")
    wait_until(lambda: page.runs()["ms"]["last_step"] == file.step)
    socket, key = page.socket(), page.key("ms")
    run, read, told, n_reads = page.hub._runs.known(key), served_run.read_inside, threading.Event(), [0]

    def reading(details, recording):
        found = read(details, recording)
        n_reads[0] += 1
        if n_reads[0] == 1:
            file.append()
            wait_until(lambda: run.recorded.version != details.version)
        else:
            told.wait(PATIENCE_S)  # the first reading is told before the second one is over
        return found

    monkeypatch.setattr(served_run, "read_inside", reading)
    socket.send(type="watch", runs=[key])
    socket.hears("changed")
    file.append()
    step = file.step
    try:
        assert socket.finds(lambda m: step in [run["last_step"] for run in m.get("runs", ())])
    finally:
        told.set()


def test_the_last_step_is_told_if_a_search_noticed_the_growth_first(page):
    file = Growing(RUNS, "ms")
    wait_until(lambda: page.runs()["ms"]["last_step"] == file.step)
    socket, key = page.socket(), page.key("ms")
    run = page.hub._runs.known(key)
    file.append()
    run.recorded = run_listing.run_at(run.recorded.path, alive=lambda id: False)
    socket.send(type="watch", runs=[key])
    assert socket.finds(lambda m: file.step in [run["last_step"] for run in m.get("runs", ())])


def test_what_changed_is_told_without_the_whole_list(page):
    file, _ = Growing(RUNS, "ms"), Growing(RUNS, "tb")
    wait_until(lambda: None not in [run["last_step"] for run in page.runs().values()])  # these would be news, too
    socket = page.socket()
    socket.send(type="runs")
    wait_until(lambda: {run["name"] for run in socket.hears("runs")["runs"]} == {"ms", "tb"})
    wait_until(lambda: len(page.hub._listed) == 2, "the list that later ones are compared with is sent, too")
    file.append()
    changed = socket.finds(lambda m: "runs" in m and file.step in [run["last_step"] for run in m["runs"]])
    assert (changed["type"], [run["name"] for run in changed["runs"]]) == ("changed", ["ms"])


def test_the_description_of_a_live_run_is_told_when_it_changes(page, begin):
    run = begin("job")
    run.observe("batch", loss=1.0)
    socket, key = page.socket(), page.key("job")
    socket.send(type="runs")
    socket.hears("runs")  # or it may be told as a part of the first list
    first = wait_until(lambda: (n := page.json(f"/runs/{key}")["described"]) == page.runs()["job"]["described"] and n)
    run.control("lr", 0.1)
    # With the whole list if that changes in the same turn, such as by the run's files.
    assert socket.finds(lambda m: any(one["described"] > first for one in m.get("runs", ())))


def test_only_a_bounded_number_of_runs_is_watched(page):
    socket = page.socket()
    socket.send(type="watch", runs=["x"] * MAX_WATCHED)
    assert socket.hears("changed")["runs"] == []
    socket.send(type="watch", runs=["x"] * (MAX_WATCHED + 1))
    assert "1000" in socket.hears("refused", id=None)["message"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_query_of_files_that_are_being_written_goes_on_with_them(page, dialect):
    file = Growing(RUNS, dialect)
    key, socket = page.key(dialect), page.socket()
    socket.send(type="open", id=1, run=key, query="log['loss']")
    steps = floats(socket.hears("data", id=1)["step"])
    while file.parts:
        file.append()
        with sg.open(file.path.parent) as run:
            expected = run.series("loss").steps.tolist()
        while len(steps) < len(expected):
            steps += floats(socket.hears("data", id=1)["step"])
        assert steps == expected
    os.utime(file.path, (1e9, 1e9))
    assert "error" not in socket.hears("ended", id=1)


@pytest.mark.parametrize("dialect", ["ms", "tb"])
def test_a_torn_tail_is_a_problem_only_when_the_file_grows_no_more(dialect):
    file = Growing(RUNS, dialect)
    file.tear()
    runs = Runs([RUNS])
    [run] = runs.summaries()
    assert (run.state, run.problem) == ("writing", "")
    for age_s, state in ((run_listing.WRITING_S - 30, "writing"), (run_listing.WRITING_S + 30, "recorded")):
        os.utime(file.path, (time.time() - age_s,) * 2)
        runs.refresh(at_once=True)
        [run] = runs.summaries()
        assert run.state == state
    assert "interrupted" in run.problem
    runs.close()


def test_an_empty_file_is_a_problem_only_when_it_stays_so():
    (RUNS / "new").mkdir(parents=True)
    path = (RUNS / "new") / FOREIGN["tb"][1]
    path.touch()
    runs = Runs([RUNS])
    assert [run.problem for run in runs.summaries()] == [""]
    os.utime(path, (1e9, 1e9))
    runs.refresh(at_once=True)
    assert [run.problem for run in runs.summaries()] == [f"{path.name}: The file is empty"]
    runs.close()


def test_a_look_reads_only_what_changed(monkeypatch):
    files = [Growing(RUNS, dialect) for dialect in DIALECTS]
    runs = Runs([RUNS])
    keys = {run.key: run.name for run in runs.summaries()}
    looks = Growth(runs)
    assert looks.look(keys) == []
    read = []
    usual = run_listing.run_at
    monkeypatch.setattr(
        run_listing, "run_at", lambda path, **options: (read.append(path.name), usual(path, **options))[1]
    )
    assert (looks.look(keys), read) == ([], [])
    for file in files:
        file.append()
        [changed] = looks.look(keys)
        assert (keys[changed.key], read) == (file.name, [file.name])
        assert changed.summary().version != ""
        read.clear()
    assert looks.look([]) == []
    runs.close()


def test_a_run_that_grows_keeps_the_name_of_its_folders():
    file = Growing(RUNS / "sweep", "tb")
    runs = Runs([RUNS])
    [before] = runs.summaries()
    looks = Growth(runs)
    looks.look([before.key])
    file.append()
    [changed] = looks.look([before.key])
    assert (changed.summary().name, before.name) == (f"sweep/{file.name}", f"sweep/{file.name}")
    runs.close()


def test_a_search_that_began_before_a_look_does_not_undo_it(monkeypatch):
    file = Growing(RUNS, "ms")
    runs = Runs([RUNS])
    [before] = runs.summaries()
    looks = Growth(runs)
    looks.look([before.key])
    found = runs._found({})
    began_s = time.monotonic()
    file.append()
    [changed] = looks.look([before.key])
    grown = changed.summary().version
    runs._take(found, {}, began_s)
    assert changed.summary().version == grown != before.version
    runs.close()


def test_growth_is_told_even_if_a_search_saw_it_first():
    file = Growing(RUNS, "ms")
    runs = Runs([RUNS])
    [run] = runs.summaries()
    looks = Growth(runs)
    looks.look([run.key])
    file.append()
    runs.refresh(at_once=True)
    assert [changed.key for changed in looks.look([run.key])] == [run.key]
    assert looks.look([run.key]) == []
    runs.close()


def test_a_directory_that_goes_and_comes_is_no_growth():
    Growing(RUNS, "ms")
    runs = Runs([RUNS])
    [run] = runs.summaries()
    looks = Growth(runs)
    looks.look([run.key])
    (RUNS / "ms").rename(RUNS / "away")
    assert looks.look([run.key]) == []
    (RUNS / "away").rename(RUNS / "ms")
    assert looks.look([run.key]) == []
    runs.close()


def test_of_many_files_the_latest_are_looked_at(tmp_path):
    paths = [tmp_path / f"{1000 + i}-rank0-0000.sgr" for i in range(MAX_LATEST + 2)]
    for i, path in enumerate(paths):
        path.write_bytes(b"x")
        os.utime(path, (1e9 + i,) * 2)
    directory = WatchedDirectory(tmp_path, "")
    assert [directory.changed(), directory.changed()] == [True, False]
    with paths[-1].open("ab") as file:
        file.write(b"y")
    assert [directory.changed(), directory.changed()] == [True, False]
    (tmp_path / "2000-rank0-0000.sgr").write_bytes(b"z")
    assert [directory.changed(), directory.changed()] == [True, False]


def test_looking_takes_a_bounded_share_of_the_time(monkeypatch):
    clock = iter([0.0, 0.5, 1.0, 1.0])
    monkeypatch.setattr(growth.time, "thread_time", lambda: next(clock))
    runs = Runs([RUNS])
    looks = Growth(runs)
    looks.look([])
    assert looks.rest_s == pytest.approx(25.0)
    looks.look([])
    assert looks.rest_s == growth.LOOK_S
    runs.close()
