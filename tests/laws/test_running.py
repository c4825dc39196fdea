"""Formulas over events are computed in floats or exact integers, whatever type the values have: live and recorded."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import sightglass as sg

FALLING = [200, 100, 0, 50, 7, 120]
DTYPES = [
    np.bool_, np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32, np.int64, np.float16, np.float32,
    np.float64, ml_dtypes.bfloat16, np.complex64, np.complex128,
]  # fmt: skip
Numbers = Sequence[Any]


def ema(xs: Numbers) -> Numbers:
    found = [xs[0] * 1.0]
    for x in xs[1:]:
        found.append(0.5 * found[-1] + 0.5 * x)
    return found


def windows(of: Callable[[Numbers], Any], xs: Numbers) -> Numbers:
    return [of(xs[max(0, i - 1) : i + 1]) for i in range(len(xs))]


def groups(of: Callable[[Numbers], Any], xs: Numbers) -> Numbers:
    return [of(xs[i : i + 3]) for i in range(0, len(xs), 3)]


def mean(xs: Numbers) -> Any:
    return sum(xs) / len(xs)


def variance(xs: Numbers) -> Any:
    return sum((x - mean(xs)) ** 2 for x in xs) / len(xs)


STAGES: dict[str, Callable[[Numbers], Numbers]] = {
    "ema(0.5)": ema,
    "diff()": lambda xs: [b - a for a, b in itertools.pairwise(xs)],
    "rolling(2).mean()": lambda xs: windows(mean, xs),
    "rolling(2).sum()": lambda xs: windows(sum, xs),
    "rolling(2).var()": lambda xs: windows(variance, xs),
    "mean(every=3)": lambda xs: groups(mean, xs),
    "sum(every=3)": lambda xs: groups(sum, xs),
    "var(every=3)": lambda xs: groups(variance, xs),
}
REAL = {"rolling(2).max()": lambda xs: windows(max, xs), "min(every=3)": lambda xs: groups(min, xs)}


def values_of(dtype: Any) -> list[Any]:
    """Return numbers of a dtype, rising and falling, as far as it holds them."""
    given = np.array(FALLING)
    if np.dtype(dtype).kind == "i":
        given = np.clip(given - 100, np.iinfo(dtype).min, np.iinfo(dtype).max)
    return list(given.astype(dtype))


def plain(x: Any) -> Any:
    """Return a number as Python computes with it: integers of any size, or 64-bit floats."""
    kind = np.dtype(type(x)).kind
    return int(x) if kind in "biu" else complex(x) if kind == "c" else float(x)


@pytest.mark.parametrize("stage", [*STAGES, *REAL])
def test_the_type_of_the_values_changes_no_result(stage: str) -> None:
    formula = {**STAGES, **REAL}[stage]
    columns = {
        np.dtype(dtype).name: values_of(dtype) for dtype in DTYPES if stage in STAGES or np.dtype(dtype).kind != "c"
    }
    forms = {"n": lambda x: x, "a": lambda x: np.array([x, x]), "m": lambda x: {"k": np.array([x])}}
    queries = {
        f"{form}_{name}": f"on('batch').map(lambda b: b.{form}_{name}).{stage}" for form in forms for name in columns
    }
    with sg.init("job", record=list(queries.values()), budget=None, limits=sg.Limits(max_event_s=60.0)) as run:
        client = sg.connect(run)
        streams = {key: client.stream(query) for key, query in queries.items()}
        for i in range(len(FALLING)):
            run.observe(
                "batch",
                **{f"{form}_{name}": make(xs[i]) for form, make in forms.items() for name, xs in columns.items()},
            )
    with sg.open(run.directory) as old:
        for key, query in queries.items():
            wanted = formula([plain(x) for x in columns[key[2:]]])
            for of_stream in (streams[key], old.stream(query)):
                found = [next(iter(v.values())) if isinstance(v, dict) else v for v in (r.value for r in of_stream)]
                assert len(found) == len(wanted), key
                for value, right in zip(found, wanted, strict=True):
                    assert np.allclose(np.asarray(value, np.complex128), right, rtol=1e-6, atol=1e-9), (
                        key,
                        found,
                        wanted,
                    )


def test_differences_of_integers_are_exact_or_floats() -> None:
    rows = {"large": [2**64 - 1, 2**64 - 3, 0], "signed": [-(2**63), 2**63 - 1, 2**63 - 2]}
    with sg.init("job", budget=None) as run:
        client = sg.connect(run)
        streams = {name: client.stream(f"on('batch').map(lambda b: b.{name}).diff()") for name in rows}
        for large, signed in zip(*rows.values(), strict=True):
            run.observe("batch", large=np.array([large], np.uint64), signed=np.array([signed], np.int64))
    found = {name: [record.value[0] for record in stream] for name, stream in streams.items()}
    assert found["large"] == [-2, -float(2**64 - 3)]
    assert found["signed"] == [float(2**64), -1]


def test_an_average_that_met_an_infinity_stays_infinite() -> None:
    with sg.init("job", budget=None) as run:
        stream = sg.connect(run).stream("batch.x.ema(0.5)")
        for x in (1.0, math.inf, 1.0, 1.0):
            run.observe("batch", x=x)
    assert [record.value for record in stream] == [1.0, math.inf, math.inf, math.inf]
