"""Streams of one's own data: iterables, tables and files, beside those of runs."""

from __future__ import annotations

import itertools
import threading
from typing import NamedTuple

import numpy as np
import pytest

import sightglass as sg
from sightglass.client.streams.own_data import AHEAD

PATIENCE_S = 60.0


def pairs(stream):
    """Return the (step, value) of all records."""
    return [(record.step, record.value) for record in stream]


class Reading(NamedTuple):
    at: int
    kelvin: float


@pytest.mark.parametrize(
    ("data", "options", "expected"),
    [
        ([3, 1, 2], {}, [(0, 3), (1, 1), (2, 2)]),
        ((x for x in "ab"), {}, [(0, "a"), (1, "b")]),
        (range(2), {"step": lambda x: 10 * x}, [(0, 0), (10, 1)]),
        ([(5, 0.5), (7, 0.7)], {"step": 0, "value": 1}, [(5, 0.5), (7, 0.7)]),
        ([{"t": 4, "x": 1.5}], {"step": "t", "value": "x"}, [(4, 1.5)]),
        ([Reading(3, 290.0)], {"step": "at", "value": "kelvin"}, [(3, 290.0)]),
        (iter([{"x": 2}]), {"value": lambda item: item["x"] + 1}, [(0, 3)]),
        (np.array([0.5, 1.5]), {}, [(0, 0.5), (1, 1.5)]),
        ({"loss": [1.0, 0.5]}, {}, [(0, 1.0), (1, 0.5)]),
        ({"step": [10, 20], "loss": np.array([1.0, 0.5])}, {}, [(10, 1.0), (20, 0.5)]),
        ({"epoch": [1.5], "a": [1], "b": ["x"]}, {"step": "epoch"}, [(1.5, {"a": 1, "b": "x"})]),
        ({"step": [3], "a": [1], "b": ["x"]}, {"value": "b"}, [(3, "x")]),
        ([], {}, []),
        ({"loss": []}, {}, []),
        (iter(()), {}, []),
    ],
)
def test_what_is_given_comes_back_in_order(data, options, expected):
    made = sg.stream(data, **options)
    assert pairs(made) == expected
    assert [record.index for record in made.records()] == list(range(len(expected)))
    assert made.ended


def test_a_stream_of_records_keeps_their_steps_and_values():
    first = sg.stream([(5, 0.5), (7, 0.7)], step=0, value=1)
    assert pairs(sg.stream(first.records())) == [(5, 0.5), (7, 0.7)]


def frames():
    """Return a function for each library of data frames that is installed."""
    columns = {"step": [10, 20], "loss": [0.5, 0.25], "name": ["a", "b"]}
    for library, make in (
        ("pandas", lambda pandas: pandas.DataFrame(columns)),
        ("polars", lambda polars: polars.DataFrame(columns)),
        ("pyarrow", lambda pyarrow: pyarrow.table(columns)),
    ):
        yield pytest.param(library, make, id=library)


@pytest.mark.parametrize(("library", "make"), list(frames()))
def test_a_data_frame_is_read_by_column(library, make):
    frame = make(pytest.importorskip(library))
    assert pairs(sg.stream(frame, value="loss")) == [(10, 0.5), (20, 0.25)]
    assert pairs(sg.stream(frame)) == [(10, {"loss": 0.5, "name": "a"}), (20, {"loss": 0.25, "name": "b"})]
    assert pairs(sg.stream(frame["loss"])) == [(0, 0.5), (1, 0.25)]


def test_a_csv_file_is_read_with_the_types_that_its_cells_have(tmp_path):
    path = tmp_path / "base.csv"
    path.write_text('﻿step,loss,n,note\n1,0.5,3,"a, b"\n\n2,,4,\n', encoding="utf-8")
    made = sg.stream(path)
    assert made.run == "base"
    (one, first), (two, second) = pairs(made)
    assert (one, first, two) == (1, {"loss": 0.5, "n": 3, "note": "a, b"}, 2)
    assert (np.isnan(second["loss"]), second["n"], second["note"]) == (True, 4, "")
    (tmp_path / "t.tsv").write_text("a\tstep\n5\t7\n")
    assert pairs(sg.stream(str(tmp_path / "t.tsv"))) == [(7, 5)]


def test_parquet_comes_back_as_it_was_written(tmp_path):
    pytest.importorskip("polars")
    data = sg.stream([(5, 0.5), (7, 0.25)], step=0, value=1)
    data.to_polars().write_parquet(tmp_path / "data.parquet")
    again = sg.stream(tmp_path / "data.parquet")
    assert pairs(again) == pairs(data)
    assert [r.wall_time for r in again] == [r.wall_time for r in data]


def test_without_polars_parquet_names_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "polars", None)
    with pytest.raises(sg.MissingExtraError, match=r"'x.parquet'.*'polars'.*'sightglass\[ex"):
        sg.stream(tmp_path / "x.parquet")


def test_it_reduces_zips_and_saves_like_any_other(tmp_path):
    a = sg.stream([{"s": i, "x": i} for i in range(10)], step="s", value="x")
    b = sg.stream(10 * i for i in range(10))
    assert [record.value for record in a.mean(every=5)] == [2.0, 7.0]
    assert [record.value for record in a.zip(b).map(lambda pair: pair[1] - pair[0])] == [9 * i for i in range(10)]
    with a.save(tmp_path / "a.sgr") as saving:
        assert saving.wait(PATIENCE_S)
    assert saving.n_records == 10


def test_it_is_published_to_a_run(begin, ask):
    run = begin()
    client = ask(run)
    heard = client.stream("best.value")
    client.publish("best", sg.stream([0.5, 0.25]))
    assert [record.value for record in heard.wait(2, timeout_s=PATIENCE_S)] == [0.5, 0.25]


def test_an_endless_iterable_is_read_a_little_ahead_and_stops():
    n_pulled = itertools.count()
    closed = threading.Event()

    def endless():
        try:
            while True:
                yield next(n_pulled)
        finally:
            closed.set()

    made = sg.stream(endless())
    n = 3 * AHEAD
    taken = list(itertools.islice((record.value for record in made), n))
    assert taken == list(range(n))
    made.close()
    assert closed.wait(PATIENCE_S)
    assert next(n_pulled) <= made.statistics().n_records + 2 * AHEAD + 1
    assert made.ended


def test_one_that_nobody_reads_waits():
    n_pulled = itertools.count()
    reached = threading.Event()

    def endless():
        for n in n_pulled:
            if n == AHEAD:
                reached.set()
            yield n

    made = sg.stream(endless())
    assert reached.wait(PATIENCE_S)
    assert made.statistics().n_waiting <= AHEAD
    made.close()


def test_an_iterable_that_raises_ends_the_stream_with_its_error():
    def broken():
        yield 1
        raise OSError("the sensor is gone")

    made = sg.stream(broken())
    assert [record.value for record in made.wait(1, timeout_s=PATIENCE_S)] == [1]
    with pytest.raises(OSError, match="sensor"):
        list(made)
    other = sg.stream(iter([{"x": 1}]), step="y")
    with pytest.raises(KeyError):
        list(other)


@pytest.mark.parametrize(
    ("data", "options", "error", "message"),
    [
        (5, {}, TypeError, "got int 5"),
        ({"a": 5}, {}, TypeError, "got int as 'a'"),
        ({"a": [1], "b": [1, 2]}, {}, sg.QueryError, "{'a': 1, 'b': 2}"),
        ({"a": [1]}, {"value": "b"}, sg.QueryError, "columns 'a', got 'b'"),
        ({"a": ["x"], "b": [1]}, {"step": "a"}, TypeError, "column 'a' of <U1"),
        (["x"], {"step": lambda x: x}, TypeError, "as step, got str 'x'"),
        ("table.xlsx", {}, sg.QueryError, ".csv, .tsv or .parquet, got 'table.xlsx'"),
    ],
)
def test_what_is_no_data_is_refused_at_once(data, options, error, message):
    with pytest.raises(error) as caught:
        sg.stream(data, **options)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n3\n", "2 cells in line 3"),
        ("a,a\n1,2\n", "the first line"),
        ("", "the first line"),
    ],
)
def test_a_csv_file_that_is_no_table_is_refused(tmp_path, content, message):
    path = tmp_path / "bad.csv"
    path.write_text(content)
    with pytest.raises(sg.QueryError) as caught:
        sg.stream(path)
    assert message in str(caught.value)
    with pytest.raises(FileNotFoundError):
        sg.stream(tmp_path / "none.csv")
