"""Runs of other programs that are not files of records: on the page they are runs as any other."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

from click.testing import CliRunner
from tests.growing import FIXTURES

import sightglass as sg
from sightglass.cli import main

from .conftest import place_foreign, record, wait_until


def test_they_have_their_configuration_and_no_problem(page):
    for program in ("mlflow", "trackio"):
        with zipfile.ZipFile(FIXTURES / f"{program}.zip") as file:
            file.extractall(f"runs/{program}")
    shutil.copytree(FIXTURES / "wandb.out", "runs/offline-run-20240101_000000-made")
    programs = {"a: 'b' \"c\" # d": ("mlflow", "ended"), "a/b %": ("trackio", "recorded"), "nice": ("wandb", "failed")}
    for name, (program, state) in programs.items():
        run = wait_until(lambda name=name: (one := page.runs().get(name)) and one["last_step"] is not None and one)
        assert run["config"]["lr"] == 0.1, program
        assert (run["source"], run["state"], run["problem"]) == (program, state, "")
        assert page.json(f"/runs/{run['key']}/scalars", tag="loss")["n"] >= 10


def test_rows_that_are_added_to_a_database_are_shown(page):
    with zipfile.ZipFile(FIXTURES / "trackio.zip") as file:
        file.extractall("runs")
    key = page.key("media")
    with closing(sqlite3.connect(Path("runs", "digits.db"))) as trackio:
        [[id]] = trackio.execute("SELECT DISTINCT run_id FROM metrics WHERE run_name = 'media'").fetchall()
        row = (id, "2030-01-01T00:00:00+00:00", "media", 7, json.dumps({"loss": 0.25}))
        trackio.execute("INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?, ?)", row)
        trackio.commit()
    wait_until(lambda: page.runs()["media"]["last_step"] == 7)
    assert page.json(f"/runs/{key}/scalars", tag="loss")["y"] == [0.25]


def test_a_run_has_one_state_start_and_end_wherever_one_looks(page):
    record("ours", n=3)
    place_foreign()
    for program in ("mlflow", "trackio"):
        with zipfile.ZipFile(FIXTURES / f"{program}.zip") as file:
            file.extractall(f"runs/{program}")
    shutil.copytree(FIXTURES / "wandb.out", "runs/offline-run-20240101_000000-made")
    for file in Path("runs", "tb").glob("*"):
        os.utime(file, (1.0, 1.0))  # of copied files, the time says nothing
    wait_until(
        lambda: all(
            run["last_step"] is not None for run in page.runs().values() if run["name"] not in ("killed", "gone")
        )
    )
    shown = {run["directory"]: run for run in page.json("/runs")["runs"]}
    listed = {os.path.realpath(info.directory): info for info in sg.runs("runs")}
    told = json.loads(CliRunner().invoke(main, ["runs", "runs", "--json"]).stdout)
    assert len(listed) == len(told) > 10
    for path, info in listed.items():
        with sg.open(path) as run:
            described = run.describe()
        [row] = (row for row in told if os.path.realpath(row["directory"]) == path)
        states = [info.state, row["state"], described.state, shown[path]["state"]]
        starts = [info.started, row["started"], described.started, shown[path]["started"]]
        ends = [info.ended, row["ended"], shown[path]["ended"]]
        assert (len(set(states)), len({*map(int, starts)}), len(set(ends))) == (1, 1, 1), (path, states, starts, ends)
