"""Flax itself, or an error that says how to install it."""

from typing import Any, TypeAlias

from sightglass.core.errors import MissingExtraError

try:
    from flax import linen, nnx
except ImportError as error:
    raise MissingExtraError("flax", extra="flax", purpose="sightglass.flax") from error

PLOTS = "plots"
"""The collection of values for figures: `self.sow("plots", key, value)`."""

INTERMEDIATES = "intermediates"
"""The collection that Flax's own layers sow into, and `nnx.Intermediate`."""

__all__ = ["INTERMEDIATES", "PLOTS", "Intermediate", "Plots", "PyTree", "linen", "nnx"]

Intermediate = nnx.Intermediate
Plots = nnx.variable_type_from_name(PLOTS, base=Intermediate, allow_register=True)
"""NNX's variable type for the collection "plots"; filters for `nnx.Intermediate` include it."""

PyTree: TypeAlias = Any
"""Any tree of containers whose leaves are arrays, or shapes while Flax evaluates shapes only."""
