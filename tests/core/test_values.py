"""What a value is, and histograms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples

from sightglass.core.values import (
    Figure,
    Histogram,
    Image,
    Tensor,
    Text,
    array_kind,
    is_extended,
    n_bytes,
    on_device,
    to_host,
    type_name,
)


@settings(max_examples=examples(80))
@given(samples=st.lists(st.floats(), max_size=50), bins=st.integers(1, 20))
def test_a_histogram_counts_as_numpy_does_and_the_rest_apart(samples: list[float], bins: int) -> None:
    histogram = Histogram(np.array(samples, np.float64), bins=bins)
    finite = np.array([x for x in samples if math.isfinite(x)])
    assert histogram.total == len(finite)
    assert histogram.n_nan + histogram.n_posinf + histogram.n_neginf == len(samples) - len(finite)
    assert np.isfinite(histogram.edges).all()
    assert (np.diff(histogram.edges) > 0).all()
    if len(finite):
        assert histogram.edges[0] <= finite.min()
        assert histogram.edges[-1] >= finite.max()


@settings(max_examples=examples(60))
@given(
    samples=st.lists(st.floats(-1e9, 1e9).map(lambda x: round(x, 3)), min_size=1, max_size=50), bins=st.integers(1, 9)
)
def test_a_histogram_of_ordinary_numbers_is_that_of_numpy(samples: list[float], bins: int) -> None:
    histogram = Histogram(samples, bins=bins)
    counts, edges = np.histogram(samples, bins)
    np.testing.assert_allclose(histogram.edges, edges, rtol=1e-9)
    assert histogram.counts.tolist() == counts.tolist()


def test_the_repr_of_a_histogram() -> None:
    histogram = Histogram([1.0, 2.0, 3.0], bins=2)
    assert repr(histogram) == "Histogram(2 bins, 3 values from 1 to 3)"
    assert histogram == Histogram.from_counts([1, 2], [1, 2, 3])
    assert histogram != Histogram.from_counts([1, 2], [1, 2, 3], n_nan=1)
    assert histogram != "histogram"
    with pytest.raises(ValueError, match=r"\(2,\) and \(2,\)"):
        Histogram.from_counts([1, 2], [1, 2])
    with pytest.raises(TypeError, match="complex128"):
        _ = Histogram(np.zeros(2, complex)).counts


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (np.zeros((3, 4), np.float32), "float32[3, 4]"), (1.5, "float"), (np.float32(1), "float32"),
        ({"a": 1}, "mapping of 1"), ([1, 2], "list of 2"), ((1,), "tuple of 1"), ("abc", "str"),
        (None, "NoneType"), (Tensor(1), "Tensor"),
    ],
)  # fmt: skip
def test_types_are_named_as_people_write_them(value: Any, name: str) -> None:
    assert type_name(value) == name


@pytest.mark.parametrize(
    ("value", "size"),
    [
        (1.0, 8), (None, 8), ("abc", 3), (np.zeros((2, 3), np.int16), 12), ([1, 2], 16), ({"ab": np.zeros(2)}, 18),
        (Tensor(np.zeros(4)), 32), (Text("abc"), 3), (Figure(b"1234"), 4), (Image(np.zeros(3, np.uint8)), 3),
    ],
)  # fmt: skip
def test_sizes_are_estimated(value: Any, size: int) -> None:
    assert n_bytes(value) == size


def test_the_library_of_an_array() -> None:
    assert [array_kind(x) for x in (np.zeros(1), np.float64(1), 1.0, [1], None)] == ["numpy", None, None, None, None]
    assert not on_device({"a": [np.zeros(1), 1.0, (np.float32(1),)]})
    torch = pytest.importorskip("torch")
    assert array_kind(torch.zeros(1)) == "torch"
    assert not on_device(torch.zeros(1))
    assert on_device({"a": (torch.zeros(1, device="meta"),)})


def test_the_library_of_a_jax_array() -> None:
    jax = pytest.importorskip("jax")
    assert array_kind(jax.numpy.zeros(1)) == "jax"
    assert on_device([jax.numpy.zeros(1)])
    assert type(to_host(jax.numpy.zeros(()))) is np.float32


def test_torch_comes_to_the_host() -> None:
    torch = pytest.importorskip("torch")
    value = to_host(
        {"a": torch.ones(2, requires_grad=True), "b": [torch.tensor(3)], "c": torch.tensor([1.5], dtype=torch.bfloat16)}
    )
    assert (value["a"].tolist(), value["b"], value["c"].dtype) == ([1.0, 1.0], [3], np.float32)


def test_dtypes_of_other_packages_are_known() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert all(is_extended(np.dtype(kind)) for kind in (ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.int4))
    assert not any(is_extended(np.dtype(kind)) for kind in ("f4", "V8", "O", "i4,f4", ">i8", "M8[s]"))
    assert Histogram(np.array([1, 2, 3], ml_dtypes.float8_e5m2), bins=2).counts.tolist() == [1, 2]
