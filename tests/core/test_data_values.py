"""Values of the standard library, of pandas, Polars and Arrow, and masked arrays, as numbers, texts, arrays."""

from __future__ import annotations

import datetime as dt
import enum
import ipaddress
import math
import re
import subprocess
import sys
import types
import uuid
import zoneinfo
from array import array
from collections import UserList, UserString, deque
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest

from sightglass.core import codec
from sightglass.core.errors import UnreadableError, UnsendableError
from sightglass.core.program_values.array_data import MAX_CONVERTED, MAX_LISTED, NOT_DATA, as_data, is_masked
from sightglass.core.program_values.copier import freeze, snapshot

nan = math.nan
DAY = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


class Phase(enum.Enum):
    TRAIN = 1
    EVAL = 2


class Loud(Decimal):
    def __float__(self) -> float:
        raise AssertionError("the program's code was run")


class LoudId(uuid.UUID):
    __str__ = Loud.__float__  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (DAY, DAY.timestamp()),
        (dt.datetime(2026, 1, 2), dt.datetime(2026, 1, 2).timestamp()),
        (dt.date(2026, 1, 2), dt.datetime(2026, 1, 2).timestamp()),
        (dt.timedelta(minutes=2, milliseconds=5), 120.005),
        (Decimal("0.25"), 0.25),
        (Loud("0.25"), 0.25),
        (Phase.EVAL, "EVAL"),
        (PurePosixPath("a/b"), "a/b"),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset(("b", "a")), ["a", "b"]),
        (deque([1, 2], maxlen=2), [1, 2]),
        (dt.time(12, 30), "12:30:00"),
        (dt.UTC, "UTC"),
        (zoneinfo.ZoneInfo("UTC"), "UTC"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (LoudId(int=1), "00000000-0000-0000-0000-000000000001"),
        (ipaddress.ip_address("10.0.0.1"), "10.0.0.1"),
        (ipaddress.ip_network("fe80::/10"), "fe80::/10"),
        (Fraction(1, 4), 0.25),
        (re.compile("a+"), "a+"),
        ({"a": 1}.keys(), ["a"]),
        ({"a": 1}.items(), [("a", 1)]),
        (UserList([1]), [1]),
        (UserString("a"), "a"),
        (bytearray(b"a"), b"a"),
        (memoryview(b"abc")[::2], b"ac"),
        (np.dtype("float32"), "float32"),
    ],
)
def test_values_of_the_standard_library(value: Any, data: Any) -> None:
    assert as_data(value) == data
    assert type(as_data(value)) is type(data)


@pytest.mark.parametrize("value", [range(3, 12, 4), array("i", [3, 7, 11])])
def test_a_range_and_an_array_of_the_standard_library_are_arrays(value: Any) -> None:
    np.testing.assert_array_equal(as_data(value), [3, 7, 11])
    if isinstance(value, array):
        value.append(4)  # nothing refers to its memory


@pytest.mark.parametrize("value", [object(), len, 3, "a", [1], {"a": 1}, np.ones(2)])
def test_other_values_are_left_alone(value: Any) -> None:
    assert as_data(value) is NOT_DATA


@pytest.mark.parametrize(
    ("values", "mask", "data"),
    [
        ([1.0, 2.0, 3.0], [False, True, False], np.array([1.0, nan, 3.0])),
        (np.array([1, 2], np.float32), [True, False], np.array([nan, 2], np.float32)),
        ([1, 2, 3], [True, False, False], np.array([nan, 2.0, 3.0])),
        ([True, False], [False, True], np.array([1.0, nan])),
        ([1, 2, 3], False, np.array([1, 2, 3])),
        ([1 + 2j, 0j], [False, True], np.array([1 + 2j, nan])),
    ],
)
def test_what_a_mask_hides_is_nan_everywhere(values: Any, mask: Any, data: Any) -> None:
    masked = np.ma.masked_array(values, mask)
    for found in (
        as_data(masked),
        snapshot(masked),
        snapshot({"a": [masked]})["a"][0],
        freeze({"m": masked}, "e")["m"].value,
        codec.decode(*codec.encode(masked)),
    ):
        assert type(found) is np.ndarray
        assert found.dtype == data.dtype
        np.testing.assert_array_equal(found, data)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: np.ma.masked_array([2**60, 1], [False, True]), r"2\*\*53"),
        (lambda: np.ma.masked_array(["a", "b"], [False, True]), "over <U1"),
        (lambda: range(MAX_CONVERTED + 1), "1,500,000 items"),
        (lambda: set(range(MAX_LISTED + 1)), "Expected at most 20,000 items"),
        (lambda: deque(range(MAX_LISTED + 1)), "Expected at most 20,000 items"),
        (lambda: np.array([2**60, None]), r"2\*\*53"),
    ],
)
def test_what_would_be_rounded_or_takes_long_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(UnreadableError, match=message):
        as_data(make())


@pytest.mark.parametrize(
    ("items", "data"),
    [
        ([1, None, 2.5], np.array([1, nan, 2.5])),
        ([True, None], np.array([1.0, nan])),
        ([1, 2], np.array([1, 2])),
        ([True, False], np.array([True, False])),
        (["a", None], ["a", None]),
        ([None, None], [None, None]),
        ([2**70, 1], [2**70, 1]),
        ([], []),
    ],
)
def test_arrays_of_objects_are_lists_or_arrays_of_numbers(items: list[Any], data: Any) -> None:
    found = as_data(np.array(items, dtype=object))
    assert type(found) is type(data)
    np.testing.assert_array_equal(found, data)


TIMES = [DAY, None, DAY + dt.timedelta(seconds=1)]
SECONDS = np.array([DAY.timestamp(), nan, DAY.timestamp() + 1])
COLUMNS: list[tuple[str, list[Any], Any]] = [
    ("int64", [1, 2, 3], np.array([1, 2, 3])),
    ("Int64", [1, None, 3], np.array([1, nan, 3])),
    ("float32", [1.5, 2.5], np.array([1.5, 2.5], np.float32)),
    ("bool", [True, False], np.array([True, False])),
    ("boolean", [True, None], np.array([1.0, nan])),
    ("text", ["a", None, "b"], ["a", None, "b"]),
    ("category", ["a", "b", "a"], ["a", "b", "a"]),
    ("time", TIMES, SECONDS),
    ("span", [dt.timedelta(seconds=2), None], np.array([2.0, nan])),
    ("empty", [], np.array([], np.float64)),
]
PANDAS = {"text": "str", "time": "datetime64[ns, UTC]", "span": "timedelta64[ns]", "empty": "float64"}


def of_pandas(kind: str, items: list[Any]) -> Any:
    import pandas

    return pandas.Series(items, dtype=PANDAS.get(kind, kind))  # type: ignore[call-overload]


def of_polars(kind: str, items: list[Any]) -> Any:
    import polars

    dtypes: dict[str, Any] = {"float32": polars.Float32, "category": polars.Categorical, "empty": polars.Float64}
    return polars.Series(items, dtype=dtypes.get(kind))


def of_arrow(kind: str, items: list[Any]) -> Any:
    import pyarrow

    types = {"float32": pyarrow.float32(), "category": pyarrow.string(), "empty": pyarrow.float64()}
    return pyarrow.array(items, types.get(kind))


def of_chunks(kind: str, items: list[Any]) -> Any:
    import pyarrow

    column = of_arrow(kind, items)
    return pyarrow.chunked_array([column.slice(0, 1), column.slice(1)])


LIBRARIES = {"pandas": of_pandas, "polars": of_polars, "pyarrow": of_arrow, "chunks": of_chunks}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(("kind", "items", "data"), COLUMNS, ids=[kind for kind, *_ in COLUMNS])
def test_columns_are_arrays_of_numbers_or_lists_of_texts(library: str, kind: str, items: list[Any], data: Any) -> None:
    pytest.importorskip("pyarrow" if library == "chunks" else library)
    found = as_data(LIBRARIES[library](kind, items))
    assert type(found) is type(data)
    if isinstance(data, np.ndarray):
        assert found.dtype == data.dtype
    np.testing.assert_array_equal(found, data)


@pytest.mark.parametrize("library", LIBRARIES)
def test_large_integers_beside_missing_ones_are_refused(library: str) -> None:
    pytest.importorskip("pyarrow" if library == "chunks" else library)
    with pytest.raises(UnreadableError, match=r"2\*\*53"):
        as_data(LIBRARIES[library]("Int64", [2**60, None]))


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_a_table_is_a_mapping_of_its_columns(library: str) -> None:
    module = pytest.importorskip(library)
    columns = {"loss": [0.5, 0.25], "name": ["a", "b"]}
    table = module.table(columns) if library == "pyarrow" else module.DataFrame(columns)
    found = as_data(table)
    assert list(found) == ["loss", "name"]
    assert len(found) == 2
    assert "loss" in found
    assert "lost" not in found
    np.testing.assert_array_equal(found["loss"], [0.5, 0.25])
    copied = snapshot(table)
    assert type(copied) is dict
    assert copied["name"] == ["a", "b"]
    if library == "pandas":
        table.loc[0, "loss"] = 7.0
        np.testing.assert_array_equal(copied["loss"], [0.5, 0.25])


def test_what_is_missing_in_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    assert math.isnan(as_data(pandas.NaT))
    assert as_data(pandas.Timestamp(DAY)) == DAY.timestamp()
    twice = pandas.DataFrame([[1, 2]], columns=["a", "a"])
    with pytest.raises(UnreadableError, match="twice"):
        as_data(twice)


class Plain:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    @property
    def computed(self) -> float:
        raise AssertionError("the program's code was run")


class Slotted:
    __slots__ = ("_own", "x")

    def __init__(self) -> None:
        self.x, self._own = 1.5, 2


def test_own_objects_are_mappings_of_their_plain_attributes() -> None:
    value = Plain(rate=0.5, _hidden=1, inner=Plain(w=np.ones(2)), slots=Slotted(), path=Path("a"))
    copied = snapshot(value)
    np.testing.assert_equal(copied, {"rate": 0.5, "inner": {"w": np.ones(2)}, "slots": {"x": 1.5}, "path": "a"})
    assert copied["inner"]["w"] is not value.inner.w  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Plain(model=len), "b.stats.model: a function"),
        (Plain(a=[1, {"k": sys}]), "b.stats.a[1]['k']: a module"),
        (Plain(a=Plain()), "b.stats.a: a Plain"),
        ({"a": object()}, "b.stats['a']: an object"),
        (Plain, "b.stats: a class"),
        ((n for n in ()), "b.stats: a generator"),
    ],
)
def test_what_cannot_travel_is_named_by_its_path(value: Any, message: str) -> None:
    with pytest.raises(UnsendableError) as caught:
        snapshot(value, "b.stats")
    assert str(caught.value).startswith(message)


def test_objects_that_contain_themselves_or_many_others_are_refused() -> None:
    own = Plain(x=1)
    own.own = own  # type: ignore[attr-defined]
    with pytest.raises(UnsendableError, match=r"value\.own: .*itself"):
        snapshot(own)
    deep = Plain(x=1)
    for _ in range(12):
        deep = Plain(inner=deep)
    with pytest.raises(UnsendableError, match="Plain"):
        snapshot(deep)


def test_no_library_is_imported() -> None:
    code = """
import sys
import sightglass as sg
from sightglass.query.evaluation import Evaluation
from sightglass.query.parser import parse
class Own:
    def __init__(self): self.x = 1
print(Evaluation(parse("b.own")).per_event({"own": Own()}).value)
print(sorted({"pandas", "polars", "pyarrow", "numpy.ma"} & set(sys.modules)))
"""
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert said.stdout.splitlines() == ["{'x': 1}", "[]"]


def test_a_value_is_read_while_another_thread_imports_masked_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy.ma", types.ModuleType("numpy.ma"))  # as far as its import has come
    assert not is_masked(type("Own", (np.ndarray,), {}))
