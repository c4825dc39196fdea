"""Arguments of a step: distinguished by shapes, dtypes and shardings, never by the values of arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import jax
import numpy as np
from jax.extend.core import get_opaque_trace_state

from sightglass.jax.program import compat

# A step has one signature, or two with a shorter last batch; a text model has one for each padded length.
MAX_SIGNATURES: Final = 16

Signature = tuple[Any, ...]
SCALARS: Final = (bool, int, float, complex, str, bytes, type(None))

_no_trace = get_opaque_trace_state(convention="flax")


@dataclass(frozen=True, slots=True, kw_only=True)
class AbstractCall:
    """A call without its values: enough to compile a program for it.

    Attributes:
        args: The positional arguments, with shapes in place of arrays; static ones unchanged.
        kwargs: The keyword arguments, likewise.
        n_traced: How many of `args` are not static.
        settings: Enters the JAX settings in which the call was made.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    n_traced: int
    settings: Callable[[], AbstractContextManager[object]]


class Signatures:
    """The signatures of the last calls of a step, numbered."""

    def __init__(self) -> None:
        self._known: list[tuple[Signature, int]] = []  # the last used first
        self._names: dict[int, str] = {}
        self._n = 0

    def number(self, signature: Signature) -> int:
        """Return the number of a signature; of too many, the least recently used is forgotten."""
        known = self._known
        for place, (other, number) in enumerate(known):
            if other == signature:
                if place:
                    known.insert(0, known.pop(place))
                return number
        known.insert(0, (signature, self._n))
        del known[MAX_SIGNATURES:]
        self._n += 1
        return known[0][1]

    def name(self, number: int) -> str:
        """Return what all ranks call a signature. Their numbers differ: a rank does not look at each of its calls."""
        if number not in self._names:
            signature = next((one for one, other in self._known if other == number), None)
            self._names[number] = "" if signature is None else _name(signature)
        return self._names[number]


class Arguments:
    """Reads the arguments of a jitted function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        positions, names = compat.static_arguments(function)
        self._positions, self._names = frozenset(positions), frozenset(names)

    def signature(self, args: Sequence[object], kwargs: Mapping[str, object]) -> Signature | None:
        """Return a value that is equal for calls of the same compiled program; `None` while JAX traces the call."""
        static: tuple[object, ...] = ()
        if self._positions or self._names:
            static = tuple(args[i] for i in self._positions if i < len(args))
            static += tuple((name, kwargs[name]) for name in self._names if name in kwargs)
            args = [arg for i, arg in enumerate(args) if i not in self._positions]
            kwargs = {name: arg for name, arg in kwargs.items() if name not in self._names}
        leaves, tree = jax.tree.flatten((args, kwargs))
        types = {type(leaf) for leaf in leaves}
        traced = any(issubclass(kind, jax.core.Tracer) for kind in types)
        if traced or get_opaque_trace_state(convention="flax") != _no_trace:
            return None
        if all(issubclass(kind, jax.Array) for kind in types):
            return static, tree, [leaf.aval for leaf in leaves], [(leaf.sharding, leaf.committed) for leaf in leaves]
        return static, tree, [_abstract(leaf) for leaf in leaves], [_placement(leaf) for leaf in leaves]

    def abstract(self, args: Sequence[object], kwargs: Mapping[str, object]) -> AbstractCall:
        """Return a call with shapes in place of arrays."""
        return AbstractCall(
            args=tuple(arg if i in self._positions else jax.tree.map(_shape, arg) for i, arg in enumerate(args)),
            kwargs={name: arg if name in self._names else jax.tree.map(_shape, arg) for name, arg in kwargs.items()},
            n_traced=sum(i not in self._positions for i in range(len(args))),
            settings=compat.settings(),
        )


def _name(signature: Signature) -> str:
    """Name a signature alike in all processes, which place their own arrays on different devices."""
    static, tree, avals, placements = signature
    plain = [one if isinstance(one, SCALARS) else type(one).__qualname__ for one in jax.tree.leaves(static)]
    placed = [place and (place[1], str(getattr(place[0], "spec", type(place[0])))) for place in placements]
    return hashlib.sha256(repr((plain, str(tree), [str(one) for one in avals], placed)).encode()).hexdigest()[:16]


def _abstract(leaf: object) -> object:
    if isinstance(leaf, jax.Array):
        return leaf.aval
    return (leaf.shape, leaf.dtype) if isinstance(leaf, np.ndarray | np.generic) else type(leaf)


def _placement(leaf: object) -> tuple[object, object] | None:
    return (leaf.sharding, leaf.committed) if isinstance(leaf, jax.Array) else None


def _shape(leaf: object) -> object:
    if isinstance(leaf, jax.Array):
        sharding = leaf.sharding if leaf.committed else None
        weak_type = getattr(leaf, "weak_type", False)  # PRNG keys do not have one
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=weak_type)
    if isinstance(leaf, np.ndarray | np.generic):
        return jax.ShapeDtypeStruct(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype))
    return leaf
