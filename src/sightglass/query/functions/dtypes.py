"""Conversions between dtypes, in the array's own library."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from sightglass.core.values import Value, array_kind, is_extended
from sightglass.query.arrays import is_array, namespace

FLOATING: Final = frozenset("fc")
FULL: Final = frozenset(np.dtype(kind).num for kind in (np.float32, np.float64, np.complex64, np.complex128))


def as_floating(x: Value) -> Value:
    """Convert integers and bools to the library's default float, as NumPy does, but not PyTorch and the array API."""
    if not is_array(x) or getattr(x.dtype, "kind", "") in FLOATING:
        return x
    if not any(kind in str(x.dtype) for kind in ("float", "complex")):
        xp = namespace(x)
        return astype(x, xp.float64 if xp is np else xp.float32)
    return x


def as_single(x: Value) -> Value:
    """Convert half precision to single, whose sums of squares do not overflow."""
    if getattr(x.dtype, "num", None) in FULL:
        return x
    half = "float16" in str(x.dtype) or (array_kind(x) == "numpy" and is_extended(x.dtype))
    return astype(x, namespace(x).float32) if half else x


def astype(x: Value, dtype: Value) -> Value:
    """Convert to another dtype of the array's library."""
    return x.astype(dtype) if array_kind(x) == "numpy" else namespace(x).astype(x, dtype)


def alike(x: Value, y: Value) -> tuple[Any, Any, Any]:
    """Return two values as arrays of one library and dtype, and that library."""
    xp = namespace(x if is_array(x) else y)
    x, y = (one if is_array(one) and namespace(one) is xp else xp.asarray(one) for one in (x, y))
    if x.dtype != y.dtype:
        wanted = xp.result_type(x, y)
        x, y = astype(x, wanted), astype(y, wanted)
    return x, y, xp
