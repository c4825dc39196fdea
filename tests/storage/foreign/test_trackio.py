"""Runs of Trackio: what Trackio itself returns of them is what is read, and its databases stay as they are."""

from __future__ import annotations

import json
import math
import sqlite3
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sightglass as sg
from sightglass.core.errors import DamagedError, RunNotFoundError, StorageError
from sightglass.storage import object_file
from sightglass.storage.foreign import sqlite_file
from sightglass.storage.read.recording import Recording

ROOT = Path(__file__).parents[3]
FIXTURE = Path(__file__).parents[1] / "fixtures" / "trackio.zip"
SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
EARLIER = "CREATE TABLE metrics (id INTEGER PRIMARY KEY, timestamp TEXT, run_name TEXT, step INTEGER, metrics TEXT)"
CONFIGS = "CREATE TABLE configs (id INTEGER PRIMARY KEY, run_name TEXT, config TEXT, created_at TEXT)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with zipfile.ZipFile(FIXTURE) as file:
        file.extractall(tmp_path)
    return tmp_path


def project(path: Path, *, journal: str = "WAL") -> sqlite3.Connection:
    """Make a project as earlier versions of Trackio did, which knew runs by their names."""
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA journal_mode = {journal}")
    connection.execute(EARLIER)
    connection.execute(CONFIGS)
    connection.commit()
    return connection


def log(connection: sqlite3.Connection, name: str, step: int, metrics: Any) -> None:
    body = metrics if isinstance(metrics, str) else json.dumps(metrics)
    row = (f"2026-01-01T00:00:{step:02}+00:00", name, step, body)
    connection.execute("INSERT INTO metrics (timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?)", row)
    connection.commit()


def files_in(folder: Path) -> dict[str, tuple[int, int]]:
    return {path.name: (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.iterdir()}


def flat(row: dict[str, Any], *names: str) -> Iterator[tuple[str, Any]]:
    for name, value in row.items():
        if isinstance(value, dict) and "_type" not in value:
            yield from flat(value, *names, name)
        else:
            yield "/".join((*names, name)), value


def test_every_value_is_the_one_that_trackio_returns(folder: Path) -> None:
    expected: list[tuple[str, list[dict[str, Any]]]] = json.loads((folder / "expected.json").read_text())
    with sg.open(folder) as runs:
        found = {name: runs[name] for name in runs}
        assert sorted(run.name for run in found.values()) == sorted(name for name, _ in expected)
        for name, rows in expected:
            values: dict[str, list[tuple[int, str]]] = {}
            for row in rows:
                step = row.pop("step")
                row.pop("timestamp")
                for tag, value in flat(row):
                    if isinstance(value, bool | int | float | str):
                        values.setdefault(tag, []).append((step, repr(value)))
            ours = [
                {tag: [(one.step, repr(one.value)) for one in run.series(tag)] for tag in values}
                for run in found.values()
                if run.name == name and values.keys() <= set(run.tags())
            ]
            assert values in ours, name


def test_what_a_run_says_of_itself(folder: Path) -> None:
    database = folder / "digits.db"
    assert [run.directory.removeprefix(f"{database}/").split()[0] for run in sg.runs(database)] == [
        "twice", "twice", "media", "a%2Fb"
    ]  # fmt: skip
    with sg.open(database / "a%2Fb %25") as run:
        assert (run.name, run.config) == ("a/b %", {"lr": 0.1, "opt": "adam", "deep": {"x": 1e-5}})
        assert run.facts == {"group": "sweep"}
        assert run.describe().state == "recorded"
        assert [record.value for record in run.series("system/gpu/0/power")] == [80.5]
        assert [(record.step, record.value) for record in run.series("alerts")] == [(2**40, "Diverged: loss is NaN")]
        np.testing.assert_equal(next(iter(run.series("list"))).value, [1, 2.5, math.inf])
        assert [record.value for record in run.stream("log.loss * log.n")][:3] == [0.0, 0.5, 2 / 3]


def test_media_are_read_on_demand(folder: Path) -> None:
    path = folder / "digits.db" / "media"
    with sg.open(path) as run:
        picture, sound, table, weights, note, empty = (
            next(iter(run.series(tag))).value for tag in ("picture", "sound", "answers", "weights", "note", "empty")
        )
        assert picture.media_type == "image/png"
        assert sound.value.tolist() == list(range(100))
        assert table.value["q"] == ["1 + 1", "?"]
        np.testing.assert_equal(table.value["a"], [2, math.nan])
        assert weights.counts.tolist() == [5, 5, 5, 5]
        assert (note, int(empty.counts.sum())) == ("# Title", 0)
        report = run.check()
        assert report.intact
        assert report.files[0].passed_over == {"trace": 1}
    for file in (folder / "media").rglob("*.png"):
        file.unlink()
    with Recording(path) as recording:
        assert not len(recording.series("picture").columns())
        assert [damage.tag for damage in recording.damages] == ["picture"]


def test_runs_are_compared_exported_and_checked(folder: Path) -> None:
    with sg.open(folder / "digits.db") as runs:
        assert len(runs.where(lambda run: run.config.lr < 1)) == 1
        assert "0.1" in str(runs.table("loss.min", best="loss.min"))
        assert all(report.intact for report in (runs[name].check() for name in runs))
    with sg.open(folder / "digits.db" / "a%2Fb %25") as run:
        run.export("csv", out=folder / "out.csv")
    assert "val/acc" in (folder / "out.csv").read_text()
    with pytest.raises(StorageError):
        object_file.edit_annotations(folder / "digits.db" / "media", object_file.Edit(name="other"))
    with pytest.raises(RunNotFoundError):
        sg.open(folder / "digits.db" / "none")


def test_nothing_is_written_beside_a_database(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    before = files_in(folder)
    with sg.open(folder) as runs:
        assert [record for name in runs for tag in runs[name].tags() for record in runs[name].series(tag)]
        runs.table("loss.min")
    assert files_in(folder) == before
    lone = tmp_path_factory.mktemp("lone")
    with closing(project(lone / "p.db")) as writer:
        log(writer, "a", 0, {"loss": 1.0})
        before = files_in(lone)
        assert "p.db-shm" in before
        with sg.open(lone / "p.db" / "a") as run:
            assert [record.value for record in run.series("loss")] == [1.0]
        assert files_in(lone) == before


@pytest.mark.parametrize("journal", ["WAL", "DELETE"])
def test_a_run_that_grows_is_followed(tmp_path: Path, journal: str) -> None:
    with closing(project(tmp_path / "p.db", journal=journal)) as writer:
        log(writer, "a", 0, {"loss": 1.0})
        with Recording(tmp_path / "p.db" / "a") as recording:
            assert not recording.refresh()
            log(writer, "a", 1, {"loss": 0.5, "new": 3})
            assert recording.changed()
            assert recording.refresh()
            assert list(recording.series("loss").columns().values) == [1.0, 0.5]
            assert list(recording.series("new").columns().values) == [3]
            log(writer, "b", 2, {"loss": 9.0})
            assert not recording.changed()  # another run of the project
            assert [info.name for info in sg.runs(tmp_path)] == ["b", "a"]


@pytest.mark.parametrize("journal", ["WAL", "DELETE"])
def test_what_a_killed_writer_committed_is_read(tmp_path: Path, journal: str) -> None:
    program = f"""
        import os, signal
        from tests.storage.foreign.test_trackio import log, project
        from pathlib import Path
        writer = project(Path({str(tmp_path)!r}) / "p.db", journal={journal!r})
        for step in range(20):
            log(writer, "a", step, {{"loss": step}})
        writer.execute("PRAGMA cache_size = 1")
        writer.execute("PRAGMA cache_spill = 1")
        for step in range(2000):
            writer.execute("INSERT INTO metrics (run_name, step, metrics) VALUES ('a', 0, '{{}}')")
        os.kill(os.getpid(), signal.SIGKILL)
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], check=False, timeout=60, cwd=Path(__file__).parents[3]
    )
    assert (tmp_path / f"p.db-{'wal' if journal == 'WAL' else 'journal'}").stat().st_size
    for shared_memory in (True, False):
        if not shared_memory:
            (tmp_path / "p.db-shm").unlink(missing_ok=True)
        before = files_in(tmp_path)
        with sg.open(tmp_path / "p.db" / "a") as run:
            assert [record.value for record in run.series("loss")] == list(range(20))
        assert files_in(tmp_path) == before


def test_other_databases_are_no_runs(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as connection:
        connection.execute("CREATE TABLE metrics (key TEXT, value REAL, timestamp INTEGER, step INTEGER)")
        connection.commit()
    (tmp_path / "thumbs.db").write_bytes(b"not a database" * 100)
    (tmp_path / "folder.db").mkdir()
    assert sg.runs(tmp_path) == []
    for path in tmp_path.iterdir():
        with pytest.raises((RunNotFoundError, DamagedError)):
            sg.open(path)


def test_a_database_without_configurations_is_a_project(tmp_path: Path) -> None:
    with closing(project(tmp_path / "p.db")) as writer:
        writer.execute("DROP TABLE configs")
        log(writer, "a", 1, {"loss": 0.5})
        row = ("2026-01-01", "a", "not a number", '{"loss": 0.25}')
        writer.execute("INSERT INTO metrics (timestamp, run_name, step, metrics) VALUES (?, ?, ?, ?)", row)
        writer.commit()
    with sg.open(tmp_path / "p.db" / "a") as run:
        assert run.config == {}
        assert [(record.step, record.value) for record in run.series("loss")] == [(1, 0.5), (1, 0.25)]


def test_a_view_that_computes_without_end_is_not_read(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "p.db")) as connection:
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i"
        connection.execute(
            f"CREATE VIEW metrics AS {endless} AS timestamp, i AS run_name, i AS step, i AS metrics FROM n"
        )
        connection.commit()
    assert sg.runs(tmp_path) == []


def test_rows_that_are_not_mappings_cost_themselves_only(tmp_path: Path) -> None:
    with closing(project(tmp_path / "p.db")) as writer:
        for step, metrics in enumerate(({"loss": 1.0}, "nonsense", "[1]", {"loss": 2.0, "other": {"_type": "x"}})):
            log(writer, "a", step, metrics)
    with sg.open(tmp_path / "p.db" / "a") as run:
        assert [record.value for record in run.series("loss")] == [1.0, 2.0]
        report = run.check()
        assert [damage.step for damage in report.damages] == [1, 2]
        assert report.files[0].passed_over == {"x": 1}


def test_a_database_that_changes_all_the_time_is_said_to_do_so(tmp_path: Path) -> None:
    path = tmp_path / "p.db"
    project(path, journal="DELETE").close()

    def ask(connection: sqlite3.Connection) -> int:
        path.touch()
        return 0

    with pytest.raises(OSError, match=r"p\.db"):
        sqlite_file.read(path, ask)
