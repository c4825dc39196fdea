"""Columns of tables that take long to convert are refused by their length and kind, before anything is converted."""

from __future__ import annotations

import datetime as dt
import decimal
import tracemalloc
from typing import Any

import numpy as np
import pytest

from sightglass.core.errors import EvaluationError, UnreadableError, UnsendableError
from sightglass.core.program_values.array_data import (
    ITEM_BYTES,
    MAX_CONVERTED,
    MAX_IN_COLUMN,
    MAX_LISTED,
    MAX_MADE,
    as_data,
)
from sightglass.query.evaluation import Evaluation
from sightglass.query.parser import parse

pd, pl, pa = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
DAY = dt.datetime(2026, 1, 1)
QUERIES = ("len(b.c)", "b.c[0]", "b.c", "len(b.d.c)", "b.d.c[0]", "b.d")


def words(n: int) -> list[str]:
    return [f"w{i % 1_000}" for i in range(n)]


def repeated(value: Any, n: int) -> list[Any]:
    return [value] * n


TEXTS = {
    "polars string": lambda n: pl.Series(words(n)),
    "polars categorical": lambda n: pl.Series(words(n)).cast(pl.Categorical),
    "polars enum": lambda n: pl.Series(words(n)).cast(pl.Enum(words(1_000))),
    "polars binary": lambda n: pl.Series([word.encode() for word in words(n)]),
    "pandas string": lambda n: pd.Series(words(n), dtype="string"),
    "pandas object": lambda n: pd.Series(words(n), dtype=object),
    "pandas category": lambda n: pd.Series(pd.Categorical(words(n))),
    "pandas sparse": lambda n: pd.Series(pd.arrays.SparseArray(np.zeros(n))),
    "pandas of arrow's strings": lambda n: pd.Series(words(n), dtype=pd.ArrowDtype(pa.string())),
    "pandas index": lambda n: pd.Index(words(n)),
    "arrow string": lambda n: pa.array(words(n)),
    "arrow binary": lambda n: pa.array(words(n)).cast(pa.binary()),
    "arrow dictionary": lambda n: pa.array(words(n)).dictionary_encode(),
    "arrow string in chunks": lambda n: pa.chunked_array([pa.array(words(n - 7)), pa.array(words(7))]),
}
MADE = {
    "polars list": lambda n: pl.Series(repeated([1, 2, 3], n)),
    "polars struct": lambda n: pl.Series(repeated({"a": 1, "b": "x"}, n)),
    "polars decimal": lambda n: pl.Series(range(n)).cast(pl.Decimal(20, 2)),
    "polars time": lambda n: pl.Series(repeated(dt.time(1), n)),
    "pandas interval": lambda n: pd.Series(pd.arrays.IntervalArray.from_breaks(range(n + 1))),
    "pandas period": lambda n: pd.Series(pd.period_range("2026", periods=n, freq="s")),
    "pandas of arrow's lists": lambda n: pd.Series(repeated([1, 2], n), dtype=pd.ArrowDtype(pa.list_(pa.int64()))),
    "arrow list": lambda n: pa.array(repeated([1, 2], n)),
    "arrow struct": lambda n: pa.array(repeated({"a": 1}, n)),
    "arrow map": lambda n: pa.array(repeated([("a", 1)], n), pa.map_(pa.string(), pa.int64())),
    "arrow decimal": lambda n: pa.array(repeated(decimal.Decimal("1.5"), n)),
    "arrow time": lambda n: pa.array(repeated(dt.time(1), n)),
    "arrow list in chunks": lambda n: pa.chunked_array([pa.array(repeated([1], n - 7)), pa.array(repeated([1], 7))]),
}
NUMBERS = {
    "polars with a gap": lambda n: pl.concat([pl.Series([None], dtype=pl.Int64), pl.Series(np.arange(n - 1))]),
    "polars time": lambda n: pl.Series(np.arange(n)).cast(pl.Datetime("us")),
    "polars date": lambda n: pl.Series(np.arange(n) % 20_000).cast(pl.Date),
    "pandas with a gap": lambda n: pd.Series(pd.arrays.IntegerArray(np.arange(n), np.arange(n) % 7 == 0)),
    "pandas time zone": lambda n: pd.Series(pd.date_range("2026", periods=n, freq="s", tz="UTC")),
    "arrow with a gap": lambda n: pa.array(np.arange(n), mask=np.arange(n) % 7 == 0),
    "arrow time": lambda n: pa.array(np.arange(n), pa.timestamp("us")),
    "arrow in chunks": lambda n: pa.chunked_array([pa.array(np.arange(n - 7)), pa.array(np.arange(7))]),
}
KINDS = [
    pytest.param(make, n_most, id=f"{name}, {n_most:,}")
    for kinds, n_most in ((TEXTS, MAX_LISTED), (MADE, MAX_MADE), (NUMBERS, MAX_IN_COLUMN))
    for name, make in kinds.items()
]


@pytest.mark.parametrize(("make", "n_most"), KINDS)
def test_a_column_is_read_up_to_its_limit_and_refused_beyond_it_unconverted(make: Any, n_most: int) -> None:
    assert len(as_data(make(n_most))) == n_most
    column = make(n_most + 1)
    tracemalloc.start()
    try:
        with pytest.raises(UnreadableError, match=f"{n_most:,} items.*{n_most + 1:,}"):
            as_data(column)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < max(n_most, 100_000)  # far less than a byte for each item, beside what a library keeps


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("name", [*MADE])
def test_every_way_to_ask_for_it_is_refused(name: str, query: str) -> None:
    column = MADE[name](MAX_MADE + 1)
    library = name.split(maxsplit=1)[0]
    table = {
        "polars": lambda: pl.DataFrame({"c": column}), "pandas": lambda: pd.DataFrame({"c": column}),
        "arrow": lambda: pa.table({"c": column}),
    }[library]()  # fmt: skip
    evaluation = Evaluation(parse(f"on('batch').map(lambda b: {query})"))
    with pytest.raises((EvaluationError, UnreadableError, UnsendableError), match=f"{MAX_MADE:,} items"):
        evaluation.per_event({"c": column, "d": table})


@pytest.mark.parametrize(
    "make",
    [
        lambda text: pl.Series([text] * 50), lambda text: pa.array([text] * 50),
        lambda text: pd.Series([text] * 50, dtype=pd.ArrowDtype(pa.string())),
        lambda text: pa.array([[text] * 50]), lambda text: pl.Series([[text] * 50]),
    ],
)  # fmt: skip
def test_few_long_items_are_refused_too(make: Any) -> None:
    text = "x" * (ITEM_BYTES * MAX_CONVERTED // 49)
    with pytest.raises(UnreadableError, match=r"12 MB.*12 MB"):
        as_data(make(text))
