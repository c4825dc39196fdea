"""Laws of statistics, differences and places: rational arithmetic and NumPy are the references."""

from __future__ import annotations

import math
import tracemalloc
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from sightglass.core.errors import UnknownNameError, ViewError
from sightglass.storage.tensors.statistics import BLOCK, difference, find, statistics

INTEGERS = [np.bool_, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]
FLOATS = [np.float16, np.float32, np.float64]
COMPLEX = [np.complex64, np.complex128]
SHAPES = array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)
ODD = st.sampled_from([np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, -1e-310, 1.7e308, -1.7e308, 1.0])


def tensors(kinds):
    def of(kind):
        element = st.floats(width=64) | ODD if kind == np.float64 else None
        return arrays(kind, SHAPES, elements=element)

    return st.sampled_from(kinds).flatmap(of)


def root(x: Fraction) -> float:
    """Return the square root, by integers alone."""
    shift = 2 * (2200 + max(0, x.denominator.bit_length()))
    scaled = math.isqrt((x.numerator << shift) // x.denominator)
    try:
        return float(Fraction(scaled, 1 << shift // 2))
    except OverflowError:
        return math.inf


def check(found, values):
    """Compare with what rational arithmetic says of the finite values, given as Python numbers."""
    exact = [Fraction(v) for v in values]
    assert found.n_finite == len(exact)
    if not exact:
        assert all(map(math.isnan, (found.min, found.max, found.mean, found.std, found.norm)))
        return
    mean = sum(exact) / len(exact)
    largest = float(max(map(abs, exact)))
    tiny = 1e-322  # numbers below the normal ones have no relative precision
    assert (found.min, found.max) == (min(values), max(values))
    assert type(found.min) is type(values[0])
    assert float(found.min) <= found.mean <= float(found.max)
    assert math.isclose(found.mean, float(mean), rel_tol=1e-14, abs_tol=max(1e-15 * largest, tiny))
    spread = sum((v - mean) ** 2 for v in exact) / len(exact)
    assert math.isclose(found.std, root(spread), rel_tol=1e-12, abs_tol=max(1e-15 * largest, tiny))
    assert math.isclose(found.norm, root(sum(v * v for v in exact)), rel_tol=1e-14, abs_tol=tiny)
    assert found.n_zero == sum(v == 0 for v in exact)
    assert found.n_negative == sum(v < 0 for v in exact)
    assert found.n_positive == sum(v > 0 for v in exact)


@given(tensors(INTEGERS + FLOATS))
def test_statistics_are_those_of_the_values(array):
    found = statistics(array)
    values = [int(v) if array.dtype.kind == "b" else v for v in array.ravel().tolist()]
    check(found, [v for v in values if math.isfinite(v)])
    assert (found.shape, found.dtype, found.n) == (array.shape, array.dtype.name, array.size)
    assert found.n_nan == sum(map(math.isnan, values))
    assert found.n_posinf == values.count(math.inf)
    assert found.n_neginf == values.count(-math.inf)
    assert found.n_finite + found.n_nan + found.n_posinf + found.n_neginf == found.n


@given(tensors(COMPLEX))
def test_statistics_of_complex_numbers_are_those_of_their_magnitudes(array):
    with np.errstate(all="ignore"):
        magnitudes = np.abs(array.astype(np.complex128))
    found, expected = statistics(array), statistics(magnitudes)
    for name in ("n_zero", "n_negative", "n_positive", "n_nan", "n_posinf", "min", "max", "mean", "std", "norm"):
        np.testing.assert_equal(getattr(found, name), getattr(expected, name))


@given(tensors([np.float64]), st.integers(-50, 50))
def test_a_power_of_two_scales_all_statistics(array, exponent):
    with np.errstate(all="ignore"):
        scaled = np.ldexp(array, exponent)
        if not np.array_equal(np.ldexp(scaled, -exponent), array, equal_nan=True):
            return
    small, large = statistics(array), statistics(scaled)
    for name in ("min", "max", "mean", "std", "norm"):
        value = np.ldexp(getattr(small, name), exponent) if math.isfinite(getattr(small, name)) else math.inf
        if math.isfinite(value) and math.isfinite(getattr(large, name)) and abs(value) > 1e-290:
            assert math.isclose(getattr(large, name), value, rel_tol=1e-13)


@given(tensors(FLOATS))
def test_order_in_memory_does_not_matter(array):
    np.testing.assert_equal(
        [getattr(statistics(np.asfortranarray(array)), name) for name in ("min", "max", "n_zero", "n_nan")],
        [getattr(statistics(array), name) for name in ("min", "max", "n_zero", "n_nan")],
    )


@pytest.mark.parametrize("value", [0.1, -1e-320, 1.7e308, 3, -(2**63), 2**64 - 1, True])
@pytest.mark.parametrize("n", [1, 3, BLOCK + 7])
def test_a_constant_has_no_spread(value, n):
    found = statistics(np.full(n, value))
    assert found.std == 0
    assert found.mean == float(value)
    assert found.min == found.max == value


def test_sums_over_blocks_are_sums_over_all():
    rng = np.random.default_rng(0)
    array = rng.normal(1e6, 1e-3, 3 * BLOCK + 11)
    array[5], array[BLOCK + 3], array[-1] = np.nan, np.inf, -np.inf
    values = array[np.isfinite(array)]
    found = statistics(array)
    mean = math.fsum(values) / len(values)
    assert math.isclose(found.mean, mean, rel_tol=1e-15)
    assert math.isclose(found.std, math.sqrt(math.fsum((values - mean) ** 2) / len(values)), rel_tol=1e-9)
    assert math.isclose(found.norm, math.sqrt(math.fsum(values**2)), rel_tol=1e-14)
    assert (found.n_nan, found.n_posinf, found.n_neginf) == (1, 1, 1)


def test_integers_of_64_bits_stay_exact_over_blocks():
    array = np.full(2 * BLOCK, 2**63 - 1)
    array[: BLOCK + 1] = 2**63 - 3
    found = statistics(array)
    check_mean = Fraction((BLOCK + 1) * (2**63 - 3) + (BLOCK - 1) * (2**63 - 1), 2 * BLOCK)
    assert found.mean == float(check_mean)
    assert math.isclose(found.std, 1, rel_tol=1e-9)
    assert (found.min, found.max) == (2**63 - 3, 2**63 - 1)
    assert statistics(np.array([2**64 - 1, 0], np.uint64)).max == 2**64 - 1


def test_the_largest_floats_do_not_overflow():
    largest = np.finfo(np.float64).max
    found = statistics(np.array([largest, -largest] * 38))  # with so many, the rounding is upwards
    assert (found.mean, found.std, found.norm) == (0, largest, math.inf)
    assert statistics(np.array([largest, largest])).mean == largest


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"])
def test_extended_types_are_read_as_float64(name):
    kind = getattr(pytest.importorskip("ml_dtypes"), name)
    array = np.array([[0, 1.0, 2], [3, 4, 6]]).astype(kind)
    found, expected = statistics(array), statistics(array.astype(np.float64))
    assert found.dtype == name
    assert (found.n_zero, found.mean, found.std, found.norm) == (1, expected.mean, expected.std, expected.norm)
    assert find(array, "max") == (1, 2)
    assert difference(array, array).dtype == np.float32
    if name == "bfloat16":
        array[0, 0], array[1, 1] = np.nan, -np.inf
        assert (statistics(array).n_nan, statistics(array).n_neginf) == (1, 1)
        assert (find(array, "nan"), find(array, "neginf")) == ((0, 0), (1, 1))


def test_bools_are_counted():
    found = statistics(np.array([True, False, True]))
    assert (found.n_positive, found.n_zero, found.min, found.max) == (2, 1, 0, 1)
    assert found.mean == 2 / 3


def test_byte_order_does_not_matter():
    found = statistics(np.array([1, -2, 3], ">i8"))
    assert (found.dtype, found.min, found.mean) == ("int64", -2, 2 / 3)
    assert statistics(np.array([1, np.inf], ">f4")).max == 1


def test_longdouble_is_rounded_to_float64():
    found = statistics(np.array([1, np.nan, -3], np.longdouble))
    assert (found.min, found.max, found.mean, found.n_nan) == (-3, 1, -1, 1)


def test_a_large_tensor_takes_little_more_memory():
    array = np.broadcast_to(np.float32(1.5), (64, 1024, 1024))[:, :8]  # no array of its own to be flattened
    whole = np.zeros(16 * BLOCK, np.float32)
    for big in (array, whole, whole.reshape(16, -1).T):
        tracemalloc.start()
        statistics(big)
        find(big, "max")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 8 * 8 * BLOCK


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([None]), np.array(["2026"], "datetime64[Y]")])
def test_only_numbers_have_statistics(array):
    with pytest.raises(TypeError, match=r"\[1\]"):
        statistics(array)
    with pytest.raises(TypeError, match=r"\[1\]"):
        find(array, "min")
    with pytest.raises(TypeError, match=r"two arrays.*\[1\]"):
        difference(array, np.zeros(1))


@given(st.data(), SHAPES)
def test_integer_differences_do_not_wrap(data, shape):
    a, b = (data.draw(st.sampled_from(INTEGERS).flatmap(lambda kind: arrays(kind, shape))) for _ in "ab")
    found = difference(a, b)
    assert found.shape == shape
    exact = [int(x) - int(y) for x, y in zip(a.ravel().tolist(), b.ravel().tolist(), strict=True)]
    if found.dtype.kind == "f":
        assert 64 in (8 * a.itemsize, 8 * b.itemsize)
        assert max(map(abs, exact)) >= 2**62
        exact = [float(v) for v in exact]
    assert found.ravel().tolist() == exact


@given(st.data(), SHAPES)
def test_float_differences_are_those_of_float64(data, shape):
    a, b = (data.draw(st.sampled_from(FLOATS + INTEGERS[:5]).flatmap(lambda kind: arrays(kind, shape))) for _ in "ab")
    if "f" not in (a.dtype.kind, b.dtype.kind):
        return
    with np.errstate(all="ignore"):
        expected = np.asarray(a.astype(np.float64) - b.astype(np.float64))
    found = difference(a, b)
    assert found.dtype == (np.float32 if a.dtype == b.dtype == np.float16 else np.float64)
    np.testing.assert_array_equal(found, expected.astype(found.dtype))


@pytest.mark.parametrize(
    ("a", "b", "kind"),
    [("bool", "bool", "int8"), ("uint8", "uint8", "int16"), ("int8", "bool", "int16"), ("uint16", "int8", "int32"),
     ("int32", "uint32", "int64"), ("int64", "int64", "int64"), ("uint64", "int8", "int64"),
     ("float16", "float16", "float32"), ("float32", "float32", "float64"), ("float16", "int8", "float64"),
     ("complex64", "float32", "complex128")],
)  # fmt: skip
def test_the_type_of_a_difference(a, b, kind):
    assert difference(np.ones(2, a), np.zeros(2, b)).dtype == kind


def test_the_widest_differences_become_floats():
    a, b = np.array([2**64 - 1, 5], np.uint64), np.array([-(2**63), 3])
    assert difference(a, b).tolist() == [float(2**64 - 1 + 2**63), 2.0]
    assert difference(a[1:], b[1:]).tolist() == [2]
    assert difference(np.array([2**63 + 8], np.uint64), np.array([-8])).tolist() == [2.0**63 + 16]


def test_infinities_cancel_to_nan():
    found = difference(np.array([np.inf, np.inf, 1]), np.array([np.inf, -np.inf, np.nan]))
    np.testing.assert_array_equal(found, [np.nan, np.inf, np.nan])


def test_shapes_must_be_the_same():
    with pytest.raises(ViewError, match=r"\(2, 3\).*\(3,\)"):
        difference(np.zeros((2, 3)), np.zeros(3))


def places(hits):
    hits = np.argwhere(hits)
    return tuple(hits[0].tolist()) if len(hits) else None


@given(tensors(INTEGERS + FLOATS))
def test_the_first_place_is_found(array):
    plain = array.astype(np.float64) if array.dtype.kind == "f" else array
    assert find(array, "nan") == places(np.isnan(plain))
    assert find(array, "inf") == places(np.isinf(plain))
    assert find(array, "posinf") == places(plain == np.inf)
    assert find(array, "neginf") == places(plain == -np.inf)
    assert find(array, "zero") == places(plain == 0)
    exact = np.array([None if not np.isfinite(v) else v.item() for v in plain.ravel()], object).reshape(array.shape)
    finite = [v for v in exact.ravel() if v is not None]
    for what, value in (("min", min), ("max", max), ("absmax", lambda vs: max(map(abs, vs)))):
        if not finite:
            assert find(array, what) is None
            continue
        wanted = value(finite)
        hits = [v is not None and (abs(v) if what == "absmax" else v) == wanted for v in exact.ravel()]
        assert find(array, what) == places(np.array(hits).reshape(array.shape))


@given(tensors(INTEGERS + FLOATS))
def test_the_extremes_are_where_statistics_say(array):
    found = statistics(array)
    for what in ("min", "max"):
        place = find(array, what)
        assert place is None or array[place] == getattr(found, what)
        assert (place is None) == (found.n_finite == 0)


def test_places_in_later_blocks_and_in_other_orders():
    array = np.zeros((3, BLOCK), np.int8).T.copy().T  # Fortran's order
    array[1, 5], array[2, 7] = -128, 127
    assert (find(array, "min"), find(array, "max"), find(array, "absmax")) == ((1, 5), (2, 7), (1, 5))
    assert find(np.full(2 * BLOCK, 3.0), "max") == (0,)
    assert find(np.append(np.full(2 * BLOCK, 3.0), np.nan), "nan") == (2 * BLOCK,)


def test_the_place_in_a_single_value():
    assert find(np.float32(np.nan), "nan") == ()
    assert find(np.float32(1), "nan") is None


def test_a_complex_number_counts_by_its_magnitude():
    array = np.array([1 + 1j, -3, complex(np.inf, np.nan), complex(np.nan, 0)])
    assert (find(array, "max"), find(array, "min")) == ((1,), (0,))
    assert (find(array, "posinf"), find(array, "nan")) == ((2,), (3,))


def test_unknown_kinds_of_value_are_refused():
    with pytest.raises(UnknownNameError, match=r"'mx'.*'max'.*absmax, inf, max, min, nan, neginf, posinf, zero"):
        find(np.zeros(1), "mx")
