"""Shapes, and arrays made of the items of others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from sightglass.core.errors import RefusedQueryError
from sightglass.core.program_values.guarded import text
from sightglass.core.program_values.own_pieces import counts, is_traced, on_one_device
from sightglass.core.values import Value, array_bytes, array_kind, itemsize, type_name
from sightglass.query.arrays import ArraySpec, is_array, namespace, operand, readable
from sightglass.query.costs import ARITHMETIC_NS, OperationCost
from sightglass.query.limits import check_bytes, check_length, n_items

from .table import alike, as_floating, as_single, function

CUMSUM_NS: Final = 2.5


@function("shape(x)", of_spec=lambda x: x.shape)
def _shape(x: Value) -> Value:
    """Return the size of each axis."""
    return tuple(int(n) for n in getattr(operand(x), "shape", ()))


@function("size(x)", of_spec=lambda x: x.size)
def _size(x: Value) -> Value:
    """Return the number of items of an array."""
    return math.prod(_shape(x))


def _flat(x: ArraySpec) -> ArraySpec:
    """Return the spec of all items in one dimension: a copy if they are not next to each other."""
    return x.like(x.size, owned=max(x.owned, x.n_bytes) if x.strided else x.owned)


@function("ravel(x)", of_spec=_flat)
def ravel(x: Value) -> Value:
    """Return all items as an array of one dimension."""
    x = operand(x)
    return namespace(x).reshape(x, (-1,)) if is_array(x) else np.asarray([x])


@function("pieces(x)", of_spec=_flat)
def _pieces(x: Value) -> Value:
    """Return the items in one dimension; of an array over several processes, those that this process counts for."""
    x = operand(x)
    if array_kind(x) == "jax" and not is_traced(x):
        parts = [ravel(part) for part in on_one_device(x)]
        flat = parts[0] if len(parts) == 1 else namespace(x).concat(parts)
    else:
        flat = ravel(x)
    return flat if counts(x) else flat[:0]


def _reshaped(x: ArraySpec, *sizes: Any) -> ArraySpec:
    flat, shape = _flat(x), sizes[0] if len(sizes) == 1 and isinstance(sizes[0], list | tuple) else sizes
    if not all(isinstance(n, int) for n in shape) or sum(n == -1 for n in shape) > 1:
        return flat
    rest = math.prod(n for n in shape if n != -1)
    return flat.like(*(x.size // max(1, rest) if n == -1 else n for n in shape), owned=flat.owned)


@function("reshape(x, shape)", of_spec=_reshaped)
def _reshape(x: Value, *shape: Value) -> Value:
    """Return the same items in another shape."""
    x = operand(x)
    sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], list | tuple) else shape
    most = math.prod(getattr(x, "shape", ()))
    if any(not isinstance(n, int) or not -1 <= n <= max(1, most) for n in sizes):
        raise RefusedQueryError(f"Expected a shape of sizes up to {most}, got {text(sizes, 100)}")
    return namespace(x).reshape(x, tuple(sizes))


@function("item(x)", of_spec=lambda x: x.like())
def _item(x: Value) -> Value:
    """Return the only item of an array of size 1; a number is returned as it is."""
    if not is_array(x):
        return operand(x)
    if _size(x) != 1:
        raise RefusedQueryError(f"Expected an array of one item, got {type_name(x)}")
    return namespace(x).reshape(x, ())


def _diff_cost(args: Sequence[Any], *, axis: Value = -1) -> tuple[tuple[int, ...], float]:
    shape, axis = list(args[0].shape), args[1] if len(args) > 1 else axis
    if isinstance(axis, int) and -len(shape) <= axis < len(shape):
        shape[axis] = max(0, shape[axis] - 1)
    return tuple(shape), ARITHMETIC_NS * math.prod(args[0].shape)


@function("diff(x, axis=-1)", cost=OperationCost(shaped=_diff_cost, copies=1.0))
def _diff(x: Value, axis: int = -1) -> Value:
    """Return the differences of neighbouring items along an axis."""
    x = operand(x)
    if not is_array(x) or not x.shape:
        raise RefusedQueryError(
            f"Expected an array for diff, got {type_name(x)}. The difference to the event before is a stage: "
            "on('batch').map(lambda b: b.loss).diff()"
        )
    before = (slice(None),) * axis_of(x, axis)
    later, earlier = x[*before, 1:], x[*before, :-1]
    return later != earlier if "bool" in str(x.dtype) else later - earlier  # as in NumPy


def axes_of(x: Value, axis: Value) -> tuple[int, ...]:
    """Return the places of an axis of an array, or of several, counted from the first one.

    Raises:
        RefusedQueryError: The array does not have them, or there are other values than integers.
    """
    axes, n = axis if isinstance(axis, list | tuple) else (axis,), len(x.shape)
    if any(type(one) is not int or not -n <= one < n for one in axes) or len({one % n for one in axes}) < len(axes):
        known = f"from {-n} to {n - 1}, as the array has {n}" if n else "of an array, and a number has none"
        raise RefusedQueryError(f"Expected axes {known}, got axis={text(axis, 100)}")
    return tuple(one % n for one in axes)


def axis_of(x: Value, axis: Value) -> int:
    """Return the place of one axis; errors as in `axes_of`."""
    if isinstance(axis, list | tuple):
        raise RefusedQueryError(f"Expected one axis, got axis={text(axis, 100)}")
    return axes_of(x, axis)[0]


def _cumsum_cost(args: Sequence[Any], *, axis: object = None) -> tuple[tuple[int, ...], float]:
    shape = args[0].shape
    flat = axis is None and (len(args) < 2 or args[1] is None)
    return (math.prod(shape),) if flat else shape, CUMSUM_NS * math.prod(shape)


@function("cumsum(x, axis=None)", cost=OperationCost(result="flat", shaped=_cumsum_cost, copies=0.5))
def _cumsum(x: Value, axis: int | None = None) -> Value:
    """Return the cumulative sum along an axis; by default that of all items, in one dimension."""
    x = ravel(x) if axis is None else operand(x)
    x = x if is_array(x) else np.asarray(x)
    place, xp = axis_of(x, 0 if axis is None else axis), namespace(x)
    return np.cumsum(x, axis=place) if xp is np else xp.cumulative_sum(x, axis=place)


def _stack_cost(args: Sequence[Any], *, axis: Value = 0) -> tuple[tuple[int, ...], float]:
    """Return the shape of arrays that are stacked, of which the price knows the stack, and the cost of it."""
    n, *shape = list(args[0].shape) or [1]
    axis = args[1] if len(args) > 1 else axis
    if isinstance(axis, int) and -len(shape) <= axis + 1 <= len(shape) + 1:
        shape.insert(axis % (len(shape) + 1), n)
    return tuple(shape), ARITHMETIC_NS * math.prod(shape)


def _concat_cost(args: Sequence[Any], *, axis: Value = 0) -> tuple[tuple[int, ...], float]:
    """Return the same for arrays that are joined; the stack of those of several shapes has one dimension."""
    n, *shape = list(args[0].shape) or [1]
    axis = args[1] if len(args) > 1 else axis
    if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
        shape, axis = [math.prod(shape)], 0
    shape[axis] *= n
    return tuple(shape), ARITHMETIC_NS * math.prod(shape)


def _arrays(values: Value) -> tuple[list[Any], Any]:
    """Return several values as arrays of one library, and that library."""
    if not isinstance(values, list | tuple) or not values:
        raise RefusedQueryError(f"Expected a list of arrays, such as [b.x, b.y], got {type_name(values)}")
    check_length(values)
    arrays = [operand(readable(value, i)) for i, value in enumerate(values)]
    xp = namespace(next((array for array in arrays if is_array(array)), 0))
    check_bytes(sum(array_bytes(array) for array in arrays if is_array(array)))
    return [array if is_array(array) else xp.asarray(array) for array in arrays], xp


@function("stack(values, axis=0)", cost=OperationCost(shaped=_stack_cost, copies=1.0))
def _stack(values: Value, axis: int = 0) -> Value:
    """Return arrays of one shape as one array with a new axis: stack([b.x, b.y])."""
    arrays, xp = _arrays(values)
    return xp.stack(arrays, axis=axis)


@function("concat(values, axis=0)", cost=OperationCost(shaped=_concat_cost, copies=1.0))
def _concat(values: Value, axis: int = 0) -> Value:
    """Return arrays one after another along an axis; `axis=None` joins all their items in one dimension."""
    arrays, xp = _arrays(values)
    if axis is None or not all(array.shape for array in arrays):
        arrays, axis = [xp.reshape(array, (-1,)) for array in arrays], 0
    return (np.concatenate if xp is np else xp.concat)(arrays, axis=axis)


# Linear algebra: products, singular values, and how arrays vary together.

Priced = tuple[tuple[int, ...], float]

MULTIPLY_NS: Final = 0.15
"""Nanoseconds of a multiplication and an addition in a library's matrix product, in one thread."""
PLAIN_MULTIPLY_NS: Final = 3.0
"""The same for dtypes that have none, such as integers."""
SVD_NS: Final = 2.0
"""Nanoseconds for each item and each singular value; small matrices take longer for each."""


def product_shape(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a matrix product.

    Raises:
        RefusedQueryError: The shapes do not fit.
    """
    if not left or not right or left[-1] != right[-2 if len(right) > 1 else 0]:
        raise RefusedQueryError(f"Expected shapes such as (n, k) and (k, m) for a product, got {left} and {right}")
    stacks = np.broadcast_shapes(left[:-2], right[:-2])
    return (*stacks, *left[-2:-1], *(right[-1:] if len(right) > 1 else ()))


def _product_cost(args: Sequence[Any], **kwargs: object) -> Priced:
    left, right = (tuple(getattr(arg, "shape", ())) for arg in args)
    shape = product_shape(left, right)
    quick = any(name in str(getattr(args[0], "dtype", "")) for name in ("float32", "float64", "complex"))
    return shape, (MULTIPLY_NS if quick else PLAIN_MULTIPLY_NS) * math.prod(shape) * left[-1]


def _svd_cost(args: Sequence[Any], **kwargs: object) -> Priced:
    shape = tuple(getattr(args[0], "shape", ()))
    if len(shape) < 2:
        return (), 0.0
    fewest = min(shape[-2:])
    return (*shape[:-2], fewest), SVD_NS * math.prod(shape) * fewest


def _covariance_cost(args: Sequence[Any], **kwargs: object) -> Priced:
    shape = tuple(getattr(args[0], "shape", ()))
    if len(args) > 1 or len(shape) < 2:
        return (), 4.0 * math.prod(shape)
    return (shape[0], shape[0]), 4.0 * math.prod(shape) + MULTIPLY_NS * shape[0] * math.prod(shape)


@function("matmul(x, y)", cost=OperationCost(shaped=_product_cost))
def matmul(x: Value, y: Value) -> Value:
    """Return the matrix product, x @ y; of two vectors, the sum of their products."""
    x, y = operand(x), operand(y)
    if not is_array(x) or not is_array(y):
        raise RefusedQueryError(f"Expected two arrays for a product, got {type_name(x)} and {type_name(y)}")
    shape = product_shape(tuple(x.shape), tuple(y.shape))
    width = max(itemsize(x.dtype), itemsize(y.dtype))
    check_bytes(n_items(shape) * width, allowed=max(array_bytes(x), array_bytes(y)))
    x, y, xp = alike(x, y)
    return xp.matmul(x, y)


@function("dot(x, y)", cost=OperationCost(shaped=_product_cost))
def _dot(x: Value, y: Value) -> Value:
    """Return the sum of the products of two vectors; of matrices, their product."""
    return matmul(x, y)


@function("svdvals(x)", cost=OperationCost(shaped=_svd_cost, copies=2.0))
def _svdvals(x: Value) -> Value:
    """Return the singular values of a matrix, in descending order; NaN if its values are not finite."""
    x = operand(x)
    if not is_array(x) or len(x.shape) < 2:
        raise RefusedQueryError(f"Expected a matrix, got {type_name(x)}")
    x = as_single(as_floating(x))
    xp = namespace(x)
    try:
        return np.linalg.svd(x, compute_uv=False) if xp is np else xp.linalg.svdvals(x)
    except (np.linalg.LinAlgError, RuntimeError):  # PyTorch's is a RuntimeError, as a lack of memory is
        if xp.all(xp.isfinite(x)):
            raise
        return xp.sum(x, axis=-1 if x.shape[-1] > x.shape[-2] else -2) * math.nan


def _pair(x: Value, y: Value) -> tuple[Any, Any, Any]:
    """Return two arrays in one dimension, in floating point, and their library."""
    x, y = as_single(as_floating(ravel(x))), as_single(as_floating(ravel(y)))
    if x.shape != y.shape:
        raise RefusedQueryError(f"Expected two arrays of as many items, got {x.shape[0]} and {y.shape[0]}")
    return x, y, namespace(x)


@function("cosine(x, y)", cost=OperationCost(ns=3.0, result="scalar", copies=3.0))
def _cosine(x: Value, y: Value) -> Value:
    """Return the cosine of the angle between two arrays; NaN if one of them is zero."""
    x, y, xp = _pair(x, y)
    return xp.sum(x * y) / xp.sqrt(xp.sum(x * x) * xp.sum(y * y))


@function("cov(x, y=None)", cost=OperationCost(shaped=_covariance_cost, copies=3.0))
def _cov(x: Value, y: Value = None) -> Value:
    """Return the sample covariance of two arrays; of a matrix, that of its rows, each of which is a variable."""
    if y is not None:
        x, y, xp = _pair(x, y)
        return xp.sum((x - xp.mean(x)) * (y - xp.mean(y))) / _degrees(x.shape[0])
    x = operand(x)
    if not is_array(x) or len(x.shape) != 2:
        raise RefusedQueryError(f"Expected a matrix or two arrays, got {type_name(x)}")
    x = as_single(as_floating(x))
    check_bytes(x.shape[0] ** 2 * itemsize(x.dtype), allowed=array_bytes(x))
    xp = namespace(x)
    around = x - xp.mean(x, axis=1, keepdims=True)
    return xp.matmul(around, around.T) / _degrees(x.shape[1])


def _degrees(n: int) -> float:
    """Return what a sample covariance of n observations is divided by; of a single one it is NaN."""
    return n - 1 if n > 1 else math.nan


@function("corr(x, y=None)", cost=OperationCost(shaped=_covariance_cost, copies=4.0))
def _corr(x: Value, y: Value = None) -> Value:
    """Return the Pearson correlation of two arrays; of a matrix, that of its rows, each of which is a variable."""
    if y is not None:
        x, y, xp = _pair(x, y)
        return _cosine(x - xp.mean(x), y - xp.mean(y))
    covariances = _cov(x)
    xp = namespace(covariances)
    deviations = xp.sqrt(xp.linalg.diagonal(covariances) if hasattr(xp.linalg, "diagonal") else np.diag(covariances))
    return covariances / deviations[:, None] / deviations[None, :]
