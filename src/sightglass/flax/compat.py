"""Flax itself, or one line that says how to get it."""

from sightglass.core.errors import MissingExtraError

try:
    from flax import linen, nnx
except ImportError as error:
    raise MissingExtraError("flax", extra="flax", purpose="sightglass.flax") from error

PLOTS = "plots"
"""What figures are drawn from: `self.sow("plots", key, value)`."""

INTERMEDIATES = "intermediates"
"""What Flax's own layers sow, and `nnx.Intermediate`."""

__all__ = ["INTERMEDIATES", "PLOTS", "Intermediate", "Plots", "linen", "nnx"]

Intermediate = nnx.Intermediate
Plots = nnx.variable_type_from_name(PLOTS, base=Intermediate, allow_register=True)
"""The type of variable that NNX makes of the word "plots"; filters for `nnx.Intermediate` find it, too."""
