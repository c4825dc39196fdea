"""The types of values in JAX programs."""

from __future__ import annotations

from typing import Any

import jax
import numpy.typing as npt

Array = npt.NDArray[Any] | jax.Array
"""An array on either side: NumPy's on the host, or JAX's on a device or while tracing."""

PyTree = Any
"""Any tree of containers whose leaves are arrays, or descriptions of arrays such as shapes and shardings."""
