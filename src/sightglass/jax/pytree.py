"""The types of values in JAX programs."""

from __future__ import annotations

from typing import Any, TypeAlias

import jax
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any] | jax.Array
"""An array on either side: NumPy's on the host, or JAX's on a device or while tracing."""

PyTree: TypeAlias = Any
"""Any tree of containers whose leaves are arrays, or descriptions of arrays such as shapes and shardings."""

Flag: TypeAlias = bool | jax.Array
"""A bool, or a scalar array of bool that may be traced."""
