"""A log found in a program: its data, steps and lanes, and what transformations make of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from sightglass.core.errors import LogError
from sightglass.jax import explicit
from sightglass.jax.logs.lanes import axis_names
from sightglass.jax.logs.reduction import float_type, is_number

from . import compat
from .primitive import Site, log_p


@dataclass(frozen=True, slots=True)
class LogEvent:
    """A log found in a program.

    Attributes:
        site: The log in the user's code.
        data: A value for each key.
        steps: A value for each step.
        axes: The names of the batch axes, which lead each value; `None` for those without.
        mask: The lanes for which it happened, of the shape of the batch axes; `None` for all.
    """

    site: Site
    data: dict[str, Any]
    steps: dict[str, Any]
    axes: tuple[str | None, ...]
    mask: jax.Array | None = None

    @property
    def n_batch(self) -> int:
        """How many leading axes of each value are batch axes."""
        return len(self.axes)

    @property
    def lanes(self) -> tuple[str, ...]:
        """The names of the batch axes, outermost first; none is that of a step."""
        names = axis_names(self.site.axis, self.axes)
        return tuple(f"{name}_lane" if name in self.steps else name for name in names)

    @classmethod
    def of(cls, eqn: compat.Equation, values: Sequence[Any]) -> LogEvent:
        """Return the log of an equation, given the values of its operands."""
        site, masked = eqn.params["site"], eqn.params["masked"]
        values = [
            value if hasattr(value, "dtype") and hasattr(value, "shape") else jnp.asarray(value, operand.aval.dtype)
            for value, operand in zip(values, eqn.invars, strict=True)
        ]
        data, steps = jax.tree.unflatten(site.tree, values[masked:])
        return cls(
            site,
            dict(zip(site.keys, data, strict=True)),
            dict(zip(site.steps, steps, strict=True)),
            eqn.params["axes"],
            values[0] if masked else None,
        )

    def bind(self) -> None:
        """Log it again, for an outer transformation."""
        flat = jax.tree.leaves((list(self.data.values()), list(self.steps.values())))
        mask = [] if self.mask is None else [self.mask]
        log_p.bind(*mask, *flat, site=self.site, axes=self.axes, masked=bool(mask))

    def with_data(self, data: dict[str, Any]) -> LogEvent:
        """Return the same log with other data."""
        tree = jax.tree.structure((list(data.values()), list(self.steps.values())))
        return replace(self, data=data, site=replace(self.site, keys=tuple(data), tree=tree))

    def masked_by(self, mask: jax.Array) -> LogEvent:
        """Return the same log for the lanes where a mask is true; the mask is broadcast to the batch axes."""
        if not self.data:
            return self
        both = mask if self.mask is None else jnp.logical_and(mask, self.mask)
        return replace(self, mask=explicit.repeated(both, jax.tree.leaves(self.data)[0], self.n_batch - both.ndim))

    def averaged(self) -> LogEvent:
        """Return the mean of the lanes in which it happened, as an event without lanes; steps are the largest of them.

        Raises:
            LogError: A value has no mean.
        """
        if not (self.n_batch and self.data):
            return self
        axes, ok = tuple(range(self.n_batch)), self.mask
        for key, value in self.data.items():
            for leaf in jax.tree.leaves(value):
                if not is_number(leaf.dtype):
                    raise LogError(
                        f"Expected numbers under {key!r} at {self.site.where} for lanes='mean', got {leaf.dtype}"
                    )
        data = jax.tree.map(lambda leaf: mean(leaf, ok, axes), self.data)
        steps = jax.tree.map(lambda leaf: jnp.max(_only(leaf, ok, _smallest(leaf.dtype)), axes), self.steps)
        site = replace(self.site, axis=self.site.axis[: -self.n_batch])  # another `vmap` around is not the one it named
        return replace(self, site=site, data=data, steps=steps, axes=(), mask=None if ok is None else jnp.any(ok))


def mean(leaf: jax.Array, ok: jax.Array | None, axes: tuple[int, ...]) -> jax.Array:
    """Return the mean over the first axes, at least as float32, of the lanes where a mask is true; 0 if none is."""
    wide = leaf.astype(float_type(leaf.dtype))
    if ok is None:
        return jnp.mean(wide, axes).astype(wide.dtype)
    return jnp.sum(_only(wide, ok, 0), axes) / jnp.maximum(jnp.sum(ok), 1).astype(wide.dtype)


def _only(leaf: jax.Array, ok: jax.Array | None, other: ArrayLike) -> jax.Array:
    if ok is None:
        return leaf
    return jnp.where(ok.reshape(ok.shape + (1,) * (leaf.ndim - ok.ndim)), leaf, jnp.asarray(other, leaf.dtype))


def _smallest(dtype: Any) -> Any:
    return jnp.finfo(dtype).min if jnp.issubdtype(dtype, jnp.inexact) else jnp.iinfo(dtype).min
