"""Tables: logged, read back, found and sorted, drawn as text, exported."""

from __future__ import annotations

import csv
import datetime
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import sightglass as sg
from sightglass.core.table import column_type
from sightglass.storage.export.media_files import as_parquet
from sightglass.storage.format import png
from sightglass.views.sheets import find_rows

DAYS = [datetime.datetime(2026, 1, 1), None, datetime.datetime(2026, 1, 3)]
PIXELS = np.arange(48, dtype=np.uint8).reshape(3, 4, 4)


def columns() -> dict[str, Any]:
    return {
        "name": ["cat", "dog", None],
        "loss": np.array([0.5, np.nan, 0.25], np.float32),
        "n": [3, 1, 2],
        "big": np.array([2**64 - 1, 0, 1], np.uint64),
        "day": DAYS,
        "right": [True, False, True],
        "seen": sg.Images(PIXELS, captions=("a", "b", "c")),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with sg.init("tables", dir=tmp_path) as run:
        run.log({"worst": sg.Table(columns())}, step=5)
        directory = run.directory
    assert directory is not None
    return directory


def same(one: Any, other: Any) -> bool:
    if not isinstance(one, list):
        return bool(one.dtype == other.dtype and one.tobytes() == other.tobytes())
    pixels = [(np.asarray(item.value).tolist(), item.caption) if isinstance(item, sg.Image) else item for item in one]
    return pixels == [
        (np.asarray(item.value).tolist(), item.caption) if isinstance(item, sg.Image) else item for item in other
    ]


def test_a_table_comes_back_as_it_was(folder: Path) -> None:
    with sg.open(folder) as run:
        series = run.series("worst")
        read = series.at(5)
    assert series.type == "Table"
    assert repr(read) == (
        "Table(3 rows: name text, loss float32, n int64, big uint64, day datetime64[us], right bool, seen image)"
    )
    assert read["day"].tolist() == DAYS
    given = sg.Table(columns())
    assert list(read.value) == list(given.value)
    assert all(same(read[name], given[name]) for name in given.value)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_frames_are_tables(library: str) -> None:
    module = pytest.importorskip(library)
    frame = {name: columns()[name] for name in ("name", "n", "day", "right")} | {"part": [1, None, 3]}
    table = sg.Table(module.table(frame) if library == "pyarrow" else module.DataFrame(frame))
    assert table["name"] == ["cat", "dog", None]
    assert table["n"].tolist() == [3, 1, 2]
    assert table["day"].astype("M8[us]").tolist() == DAYS
    assert table["right"].tolist() == [True, False, True]
    np.testing.assert_array_equal(table["part"], [1, np.nan, 3])


def test_times_with_a_zone_are_in_utc() -> None:
    zone = datetime.timezone(datetime.timedelta(hours=2))
    assert sg.Table({"at": [datetime.datetime(2026, 1, 1, 2, tzinfo=zone)]})["at"].tolist() == [DAYS[0]]


@pytest.mark.parametrize(
    ("items", "type_"),
    [
        ([1, 2.5], "float64"), ([2**53 + 1, 0.5], "mixed"), ([1, None], "float64"), ([True, 2], "mixed"),
        ([True, None], "bool"), ([1.5, "a"], "mixed"), ([2**70], "mixed"), ([2**53 + 1, None], "mixed"),
        ([np.float32(0.1), np.float32(2)], "float32"),
    ],
)  # fmt: skip
def test_items_of_several_types_stay_what_they_are(items: list[Any], type_: str) -> None:
    column = sg.Table({"a": items})["a"]
    assert column_type(column) == type_
    back = [None if item != item else item for item in (column if isinstance(column, list) else column.tolist())]
    assert back == [float(item) if type_ == "float32" else item for item in items]
    assert type_ == "float64" or [type(item) for item in column] == [type(item) for item in items]


def test_what_the_training_overwrites_is_kept_as_it_was(tmp_path: Path) -> None:
    loss, names = np.ones(20_000), ["a"] * 20_000
    with sg.init("reused", dir=tmp_path) as run:
        run.log({"t": sg.Table({"loss": loss, "name": names})}, step=0)
        loss[:], names[0] = 0, "b"
        directory = run.directory
    assert directory is not None
    with sg.open(directory) as old:
        read = old.series("t").at(0)
    assert ((read["loss"] == 1).all(), set(read["name"])) == (True, {"a"})


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ({"a": [1, 2], "b": [1]}, ValueError, r"got \{'a': 2, 'b': 1\}"),
        ({"a": np.zeros((2, 2))}, TypeError, r"column 'a', got float64\[2, 2\]"),
        ({"a": np.zeros(2, complex)}, TypeError, r"column 'a', got complex128\[2\]"),
        ({"a": [object()]}, TypeError, "column 'a', got object"),
        ({"a": "text"}, TypeError, "column 'a', got str"),
        ([1, 2], TypeError, "got list"),
    ],
)
def test_misuse_raises_at_the_call(value: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        sg.Table(value)


@pytest.mark.parametrize(
    ("find", "places"),
    [
        ("", [0, 1, 2]), ("loss > 0.3", [0]), ("loss != 0.5", [2]), ("n >= 2 and right = true", [0, 2]),
        ("name = dog", [1]), ('name != "dog"', [0]), ("name ~ A", [0]), ("day < 2026-01-02", [0]), ("big > 1", [0]),
        ("DOG", [1]), ("0.25", [2]), ("nothing", []),
    ],
)  # fmt: skip
def test_rows_are_found(find: str, places: list[int]) -> None:
    assert find_rows(sg.Table(columns()), find).tolist() == places


@pytest.mark.parametrize(
    ("sort", "places"),
    [("loss", [2, 0, 1]), ("name", [0, 1, 2]), ("n", [1, 2, 0]), ("day", [0, 2, 1]), ("right", [1, 0, 2])],
)
def test_rows_are_sorted_with_what_is_missing_last(sort: str, places: list[int]) -> None:
    table = sg.Table(columns())
    assert find_rows(table, sort=sort).tolist() == places
    known = {"loss": 2, "name": 2, "day": 2}.get(sort, 3)
    backwards = find_rows(table, sort=sort, descending=True).tolist()
    assert backwards[known:] == places[known:]
    if sort != "right":
        assert backwards[:known] == places[:known][::-1]


@given(st.lists(st.floats() | st.integers(-3, 3), max_size=30), st.booleans())
def test_sorting_is_stable_both_ways(values: list[float], descending: bool) -> None:
    column = np.array(values, np.float64)
    places = find_rows(sg.Table({"x": column}), sort="x", descending=descending)
    known = [i for i in range(len(values)) if column[i] == column[i]]
    expected = sorted(known, key=lambda i: -column[i] if descending else column[i])
    assert places.tolist() == expected + [i for i in range(len(values)) if column[i] != column[i]]


def test_what_cannot_be_found_or_sorted_says_so() -> None:
    table = sg.Table(columns())
    with pytest.raises(sg.UnknownNameError, match=r"'los'.*'loss'"):
        find_rows(table, sort="los")
    with pytest.raises(sg.QueryError, match=r"float32.*'loss'.*'much'"):
        find_rows(table, "loss > much")
    with pytest.raises(sg.QueryError, match=r"'seen'.*image"):
        find_rows(table, sort="seen")


def test_a_terminal_shows_the_first_rows(folder: Path) -> None:
    with sg.open(folder) as run:
        view = sg.plot(run.stream('log["worst"]'), surface="terminal")
        out = io.StringIO()
        Console(file=out, width=110).print(view)
    lines = [line.split() for line in out.getvalue().splitlines()]
    assert ["name", "loss", "n", "big", "day", "right", "seen"] in lines
    assert ["cat", "0.5", "3", "1.845e19", "2026-01-01", "True", "Image", "uint8[4,", "4]"] in lines


def test_a_long_table_says_how_much_there_is(tmp_path: Path) -> None:
    from tests.views.golden import Recorded

    view = sg.plot(Recorded(sg.Table({"i": np.arange(1_000), "x": ["a"] * 1_000})), surface="terminal")
    out = io.StringIO()
    Console(file=out, width=80).print(view)
    assert "more rows" in out.getvalue()
    assert out.getvalue().count(" a") < 40


def test_captions_are_a_column_of_their_own_in_parquet() -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    table = sg.Table({"x": [sg.Image(PIXELS[0], "a cat"), None, sg.Image(PIXELS[1])], "y": sg.Images(PIXELS)})
    read = pq.read_table(io.BytesIO(as_parquet(table))).to_pydict()
    assert list(read) == ["x", "y", "x.caption"]
    assert read["x.caption"] == ["a cat", None, None]


def test_parquet_and_csv_are_read_back_as_they_were(folder: Path, tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    with sg.open(folder) as run:
        assert run.export("parquet", out=tmp_path / "p").losses == []
        exported = run.export("files", out=tmp_path / "f")
    read = pq.read_table(tmp_path / "p/tables/worst/5.parquet").to_pydict()
    assert read["name"] == ["cat", "dog", None]
    assert (read["n"], read["big"], read["day"]) == ([3, 1, 2], [2**64 - 1, 0, 1], DAYS)
    assert (read["loss"][0], np.isnan(read["loss"][1])) == (0.5, True)
    assert read["seen"] == [png.encode_png(one) for one in PIXELS]
    with (tmp_path / "f/worst/5.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert rows[0] == {
        "name": "cat", "loss": "0.5", "n": "3", "big": str(2**64 - 1), "day": "2026-01-01T00:00:00.000000",
        "right": "True",
    }  # fmt: skip
    assert (rows[1]["day"], rows[2]["name"]) == ("", "")
    assert [(loss.tag, loss.why) for loss in exported.losses] == [
        ("worst/seen", "CSV does not support pictures and sounds")
    ]


@pytest.mark.parametrize("form", ["csv", "tensorboard", "mindspore"])
def test_what_has_no_tables_says_so(folder: Path, tmp_path: Path, form: Any) -> None:
    with sg.open(folder) as run:
        exported = run.export(form, out=tmp_path / "out")
    assert [(loss.tag, loss.n) for loss in exported.losses] == [("worst", 1)]


def test_the_type_of_a_column() -> None:
    assert [column_type(column) for column in (["a", None], [None], [1, "a"], np.zeros(1, np.float16))] == [
        "text", "text", "mixed", "float16",
    ]  # fmt: skip
