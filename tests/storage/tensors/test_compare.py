"""Comparing tensors: by value what NumPy says, and as series what their own values would be."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn

from sightglass.core.errors import DamagedError, UnknownNameError, ViewError
from sightglass.storage.tensors.compare import Comparison, compared

from .test_browse import Values

numbers = hn.arrays(np.float64, 7, elements=st.sampled_from([0.0, 1.0, 1.001, -2.0, np.nan, np.inf, -np.inf]))


@given(numbers, numbers, st.sampled_from([0.0, 1e-5, 1e-2]), st.sampled_from([0.0, 1e-8, 3.0]))
def test_values_are_close_where_numpy_says_so(a: Any, b: Any, rtol: float, atol: float) -> None:
    mask = compared(a, b, "close", rtol=rtol, atol=atol)
    assert mask.tolist() == np.isclose(a, b, rtol, atol, equal_nan=True).tolist()


@given(numbers, numbers)
def test_a_relative_difference_is_that_of_the_reference(a: Any, b: Any) -> None:
    with np.errstate(all="ignore"):
        expected = np.where(a == b, 0, (a - b) / abs(b))
    both = np.isinf(a) & np.isinf(b)  # their difference is unknown
    np.testing.assert_array_equal(compared(a, b, "relative")[~both], expected[~both])


def test_no_type_wraps_around_or_loses_digits() -> None:
    a, b = np.array([1, 255], np.uint8), np.array([2, 0], np.uint8)
    assert compared(a, b).tolist() == [-1, 255]
    assert compared(a, b, "relative").tolist() == [-0.5, np.inf]
    assert compared(a, b, "close", atol=1).tolist() == [True, False]
    wide = np.array([2**62 + 1, 5])
    assert compared(wide, np.array([2**62, 5]), "close", rtol=0, atol=0.5).tolist() == [False, True]
    half = np.array([1.0, 2.0], ml_dtypes.bfloat16)
    assert compared(half, half * 2, "relative").dtype == np.float32
    assert compared(half, half, "close").tolist() == [True, True]
    assert compared(np.array([3 + 4j]), np.array([5j]), "close", atol=4).tolist() == [True]


def test_a_comparison_is_a_series() -> None:
    series, other = Values(*(np.array([x, 1.0]) for x in (1.0, 4.0, 9.0))), Values(*(np.ones(2),) * 2)

    def all_of(**options: Any) -> list[Any]:
        comparison = Comparison(series, **{"reference": series, **options})
        assert [comparison.at(step).tolist() for step in series.steps] == [
            record.value.tolist() for record in comparison
        ]
        assert [comparison.at(step, (0,)).tolist() for step in series.steps] == [
            r.value.tolist()[0] for r in comparison
        ]
        return [comparison.at(step, (0,)).tolist() for step in series.steps]

    assert all_of() == [0, 0, 0]
    assert all_of(when="previous") == [0, 3, 5]
    assert all_of(when="first") == [0, 3, 8]
    assert all_of(when=10) == [-3, 0, 5]
    assert all_of(reference=other) == [0, 3, 8]
    assert all_of(reference=other, measure="close") == [True, False, False]
    changes = Comparison(series, series, "previous")
    assert changes.statistics(20).max == 5
    assert changes.table(20, "[:1]").values.tolist() == [5]
    assert changes.histograms(bins=1).series.counts.tolist() == [[2]] * 3
    found = changes.find("max")
    assert found is not None
    assert (found.step, found.index, found.value) == (20, (0,), 5)


def test_what_cannot_be_compared_says_why() -> None:
    series = Values(np.zeros(2), None, np.zeros((2, 1)))
    with pytest.raises(ViewError, match=r"\(2,\) at step 0 and \(2, 1\) at 20"):
        Comparison(series, series, 20).at(0)
    with pytest.raises(ViewError, match="one shape"):
        Comparison(series, series, 20).at(0, (0,))
    with pytest.raises(DamagedError):
        Comparison(series, series, 10).at(0)
    with pytest.raises(ViewError, match=r"'k'.*got none"):
        Comparison(series, Values()).at(0)
    with pytest.raises(UnknownNameError, match="'ratio'"):
        Comparison(series, series, measure="ratio")  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError, match="'last'"):
        Comparison(series, series, "last")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"atol.*nan"):
        Comparison(series, series, atol=float("nan"))
