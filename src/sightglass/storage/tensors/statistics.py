"""Statistics of tensors, differences between them, and searches for extremes and NaNs.

Theory of operation
    An array is read in blocks of `BLOCK` values, so a tensor of many gigabytes takes a few megabytes more.

    * Bools are read as 0 and 1, integers as they are, complex numbers as their magnitudes, everything else (float16,
      the types of `ml_dtypes`, longdouble) as float64.
    * Each block's sums are taken about a value near its mean: exactly for integers, in float64 for floats, which are
      first scaled by a power of two if their squares could overflow. Blocks are joined in rational arithmetic, which
      rounds nothing and cannot overflow.
    * Only finite values have a sign, a minimum, a mean; values that are not finite are counted apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from sightglass.core.errors import UnknownNameError, ViewError
from sightglass.core.values import is_extended, is_real, type_name

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Place = Literal["nan", "inf", "posinf", "neginf", "min", "max", "absmax", "zero"]

BLOCK = 2**16  # half a megabyte as float64: temporary arrays stay in a core's own cache
HALF = 2**32
ZERO = Fraction(0)
MAX_EXPONENT = 480  # the sum of the squares of so many floats below 2**480 is a float


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorStatistics:
    """Statistics of a tensor's values; for complex numbers, of their magnitudes.

    Attributes:
        shape: The tensor's shape.
        dtype: The name of its dtype, such as "bfloat16".
        n: The number of values: the sum of the six counts.
        n_zero: How many are 0 or -0.
        n_negative: How many are finite and below 0.
        n_positive: How many are finite and above 0.
        n_nan: How many are NaN.
        n_posinf: How many are +Inf.
        n_neginf: How many are -Inf.
        min: The smallest finite value, an int for integers and bools; NaN without finite values, like the four below.
        max: The largest finite value.
        mean: The mean of the finite values.
        std: Their standard deviation, the sum of squares divided by their number.
        norm: Their Euclidean norm; infinite where it is beyond float64.
    """

    shape: tuple[int, ...]
    dtype: str
    n: int
    n_zero: int
    n_negative: int
    n_positive: int
    n_nan: int
    n_posinf: int
    n_neginf: int
    min: int | float
    max: int | float
    mean: float
    std: float
    norm: float

    @property
    def n_finite(self) -> int:
        """How many values are finite."""
        return self.n_zero + self.n_negative + self.n_positive


@dataclass(frozen=True, slots=True)
class _Moments:
    """Sums over the finite values of a block: of the values, their squares, their squared distances from the mean."""

    n: int
    low: int | float
    high: int | float
    total: Fraction
    squares: Fraction
    spread: Fraction


def statistics(array: npt.ArrayLike) -> TensorStatistics:
    """Describe the values of a tensor.

    Args:
        array: Any shape; bools, integers, floats, those of `ml_dtypes` or complex numbers.

    Raises:
        TypeError: The array does not hold numbers.

    >>> found = statistics(np.array([[0.0, -3.0], [5.0, np.inf]], np.float32))
    >>> found.min, found.max, found.n_posinf, found.n_zero
    (-3.0, 5.0, 1, 1)
    """
    array = np.asarray(array)
    parts: list[_Moments] = []
    n_zero = n_negative = n_nan = n_posinf = n_neginf = 0
    for values in blocks(array):
        values, *outside = finite_part(values)
        n_nan, n_posinf, n_neginf = n_nan + outside[0], n_posinf + outside[1], n_neginf + outside[2]
        if values.size:
            n_zero += int(np.count_nonzero(values == 0))
            n_negative += int(np.count_nonzero(values < 0))
            parts.append(_moments(values))
    low, high, mean, std, norm = _together(parts) if parts else (math.nan,) * 5
    n_finite = sum(part.n for part in parts)
    return TensorStatistics(
        shape=array.shape, dtype=array.dtype.name, n=array.size,
        n_zero=n_zero, n_negative=n_negative, n_positive=n_finite - n_zero - n_negative,
        n_nan=n_nan, n_posinf=n_posinf, n_neginf=n_neginf,
        min=low, max=high, mean=mean, std=std, norm=norm,
    )  # fmt: skip


def blocks(array: Array) -> Iterator[Array]:
    """Read an array's values in C order, as plain numbers.

    Yields:
        Shape (n,), `BLOCK` values or fewer; uint8 for bools, the array's own dtype for integers, else float64, which
        for complex numbers are the magnitudes. A magnitude beyond float64 is +Inf.

    Raises:
        TypeError: The array does not hold numbers.
    """
    if not is_real(array.dtype) and array.dtype.kind != "c":
        raise TypeError(f"Expected an array of numbers, got {type_name(array)}")
    flat = array.reshape(-1) if array.flags.c_contiguous else array.flat
    return (_plain(np.asarray(flat[i : i + BLOCK])) for i in range(0, array.size, BLOCK))


def _plain(values: Array) -> Array:
    with np.errstate(all="ignore"):  # a magnitude beyond float64, a signalling NaN
        match values.dtype.kind:
            case "b":
                return values.view(np.uint8)
            case "i" | "u":
                return values
            case "c":
                return np.abs(values.astype(np.complex128))
        return values.astype(np.float64, copy=False)


def finite_part(values: Array) -> tuple[Array, int, int, int]:
    """Return the finite values of a block, and how many are NaN, +Inf and -Inf."""
    if values.dtype.kind != "f" or (finite := np.isfinite(values)).all():
        return values, 0, 0, 0
    return values[finite], *(int(np.count_nonzero(test(values))) for test in (np.isnan, np.isposinf, np.isneginf))  # type: ignore[return-value]


def _moments(values: Array) -> _Moments:
    n, low, high = values.size, values.min().item(), values.max().item()
    exponent = 0
    pivot: int | float
    if values.dtype.kind in "iu":
        upper, lower = _halves(values)
        total = Fraction(int(upper.sum()) * HALF + int(lower.sum()))
        pivot = int(total) // n
        upper_pivot, lower_pivot = divmod(pivot, HALF)
        # Each half's distance is exact, so that these distances are rounded only once.
        apart = (upper - upper_pivot) * float(HALF) + (lower - lower_pivot)
    else:
        exponent = math.frexp(max(-low, high))[1]
        exponent = exponent if abs(exponent) > MAX_EXPONENT else 0
        values = np.ldexp(values, -exponent) if exponent else values
        # Kept in the range, so that a constant has no spread.
        pivot = min(max(float(values.sum()) / n, math.ldexp(low, -exponent)), math.ldexp(high, -exponent))
        apart = values - pivot
        total = Fraction(pivot) * n
    scale = Fraction(2) ** exponent
    offset, middle = Fraction(float(apart.sum())), Fraction(pivot)
    around = Fraction(float(np.multiply(apart, apart, out=apart).sum()))
    squares = max(around + 2 * middle * offset + n * middle**2, ZERO)
    return _Moments(n, low, high, total * scale, squares * scale**2, max(around - offset**2 / n, ZERO) * scale**2)


def _halves(values: Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Split integers into an upper and a lower half of 32 bits, the lower one never negative."""
    wide = values.astype(np.uint64 if values.dtype.kind == "u" else np.int64, copy=False)
    return (wide >> 32).astype(np.int64), (wide & (HALF - 1)).astype(np.int64)


def _together(parts: list[_Moments]) -> tuple[int | float, int | float, float, float, float]:
    low, high = min(part.low for part in parts), max(part.high for part in parts)
    n = sum(part.n for part in parts)
    mean = min(max(sum((part.total for part in parts), ZERO) / n, Fraction(low)), Fraction(high))
    spread = sum((part.spread + part.n * (part.total / part.n - mean) ** 2 for part in parts), ZERO)
    largest = float(max(abs(low), abs(high)))
    return low, high, float(mean), min(_root(spread / n), largest), _root(sum((part.squares for part in parts), ZERO))


def _root(x: Fraction) -> float:
    if not x:
        return 0.0
    exponent = (x.numerator.bit_length() - x.denominator.bit_length()) // 2
    try:
        return math.ldexp(math.sqrt(x / Fraction(4) ** exponent), exponent)
    except OverflowError:
        return math.inf


def difference(a: npt.ArrayLike, b: npt.ArrayLike) -> Array:
    """Subtract the second tensor from the first, without wrapping around.

    Returns:
        `a - b`, in a type that can hold it: int8 for bools; int16, int32, int64 for integers of up to 8, 16, 32 bits;
        for wider ones int64 where every difference fits, otherwise float64, each rounded once; float32 for two
        arrays of floats of up to 16 bits; complex128 with complex numbers; else float64. Inf - Inf is NaN.

    Raises:
        ViewError: The shapes differ.
        TypeError: One of them does not hold numbers.
    """
    a, b = np.asarray(a), np.asarray(b)
    for array in (a, b):
        if not is_real(array.dtype) and array.dtype.kind != "c":
            raise TypeError(f"Expected two arrays of numbers, got {type_name(array)}")
    if a.shape != b.shape:
        raise ViewError(f"Expected two tensors of one shape, got {a.shape} and {b.shape}")
    if {a.dtype.kind, b.dtype.kind} <= set("biu"):
        return _integer_difference(a, b)
    kind: np.dtype[Any] = np.dtype(np.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else np.float64)
    if all(is_extended(x.dtype) or x.dtype == np.float16 for x in (a, b)):
        kind = np.dtype(np.float32)
    with np.errstate(all="ignore"):
        return np.asarray(a.astype(kind) - b.astype(kind))


def _integer_difference(a: Array, b: Array) -> Array:
    if a.dtype == b.dtype == np.bool_:
        return np.asarray(a.view(np.int8) - b.view(np.int8))
    bits = 8 * max(a.dtype.itemsize, b.dtype.itemsize)
    if bits < 64:
        kind = np.dtype(f"int{2 * bits}")
        return np.asarray(a.astype(kind) - b.astype(kind))
    (a_upper, a_lower), (b_upper, b_lower) = _halves(a), _halves(b)
    upper, lower = a_upper - b_upper, a_lower - b_lower
    rounded = np.asarray(upper * float(HALF) + lower)
    if np.abs(rounded).max(initial=0) < 2.0**63:
        return np.asarray((upper << 32) + lower)
    return rounded


def find(array: npt.ArrayLike, what: Place) -> tuple[int, ...] | None:
    """Find the first value of some kind in a tensor, in C order.

    Args:
        array: As for `statistics`; complex numbers count by their magnitudes.
        what: "nan", "inf" (of either sign), "posinf", "neginf", "zero", or an extreme of the finite values: "min",
            "max", "absmax" (the one furthest from 0).

    Returns:
        Its index, or `None` if the tensor has no such value.

    Raises:
        UnknownNameError: `what` is unknown.
        TypeError: The array does not hold numbers.

    >>> find(np.array([[1, 2], [7, -8]]), "absmax")
    (1, 1)
    """
    array = np.asarray(array)
    if what not in get_args(Place):
        raise UnknownNameError("kind of value", what, get_args(Place))
    test = TESTS.get(what)
    place = _first(array, test) if test else _extreme(array, what)
    return None if place is None else tuple(int(i) for i in np.unravel_index(place, array.shape))


TESTS: Mapping[str, Callable[[Array], Array]] = {
    "nan": np.isnan,
    "inf": np.isinf,
    "posinf": lambda values: values == np.inf,
    "neginf": lambda values: values == -np.inf,
    "zero": lambda values: values == 0,
}


def _first(array: Array, test: Callable[[Array], Array]) -> int | None:
    for number, values in enumerate(blocks(array)):
        hits = np.flatnonzero(test(values))
        if len(hits):
            return number * BLOCK + int(hits[0])
    return None


def _extreme(array: Array, what: str) -> int | None:
    sign = -1 if what == "min" else 1
    best, place = None, None
    for number, values in enumerate(blocks(array)):
        if what == "absmax":
            values = np.abs(values).astype(np.uint64 if values.dtype.kind in "iu" else np.float64, copy=False)
        if values.dtype.kind == "f":
            values = np.where(np.isfinite(values), values, -sign * np.inf)
        at = int(values.argmin() if what == "min" else values.argmax())
        value = values[at].item()
        if math.isfinite(value) and (best is None or sign * value > best):
            best, place = sign * value, number * BLOCK + at
    return place
