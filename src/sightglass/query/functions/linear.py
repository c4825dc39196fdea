"""Linear algebra: products, singular values, and how arrays vary together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from sightglass.core.errors import RefusedQueryError
from sightglass.core.values import Value, array_bytes, itemsize, type_name
from sightglass.query.arrays import is_array, namespace, operand
from sightglass.query.costs import OperationCost
from sightglass.query.limits import check_bytes, n_items

from .dtypes import alike, as_floating, as_single
from .shapes import ravel
from .table import function

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
