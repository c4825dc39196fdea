"""Functions that are traced and transformed before they run; shared by `spool` and `tap`.

A transformed function is one `jax.jit` of the program that the transformation makes of the user's function. So JAX's
own caches decide when to trace again (shapes, dtypes, shardings, logs wanted by outer transformations), and a second
call takes JAX's fast path. Static and donated arguments of the user's own `jax.jit` stay static and donated. A leaf of
the arguments that is neither an array nor a number is static and must be hashable.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from sightglass.jax.pytree import PyTree

from . import compat
from .packing import packed
from .primitive import WantedLogs, call_wanting, wanted

NUMBERS = (jax.Array, np.ndarray, np.generic, bool, int, float, complex)
_HOLE = object()


@dataclass(frozen=True, slots=True)
class _Static:
    """An argument that the user's `jax.jit` declared static: a leaf, whatever its type."""

    value: Any


@dataclass(frozen=True, slots=True)
class ArgumentTemplate:
    """The arguments of a call without their arrays.

    Attributes:
        tree: The structure of `(args, kwargs)`.
        leaves: The static leaves, with a hole in place of each array.
    """

    tree: Any
    leaves: tuple[Any, ...]

    def fill(self, arrays: Sequence[Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Return the arguments with these arrays in the holes."""
        rest = iter(arrays)
        leaves = [next(rest) if leaf is _HOLE else leaf for leaf in self.leaves]
        args, kwargs = jax.tree.unflatten(self.tree, leaves)
        return [_unwrapped(a) for a in args], {name: _unwrapped(a) for name, a in kwargs.items()}


def _unwrapped(argument: PyTree) -> PyTree:
    return argument.value if isinstance(argument, _Static) else argument


def is_array(leaf: object) -> bool:
    """Return whether a leaf of the arguments is traced; all others are static."""
    return isinstance(leaf, NUMBERS) or hasattr(leaf, "__jax_array__")


Program = Callable[[Callable[..., Any], Sequence[Any]], Any]


class TransformedFunction:
    """A function whose program is the result of a transformation.

    Args:
        function: The user's function.
        program: Returns the results of the transformed program, given `call`, the user's function of its arrays, and
            these arrays; runs while JAX traces.
    """

    def __init__(self, function: Callable[..., Any], program: Program) -> None:
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._program = program
        self._static = compat.static_arguments(function)
        self._donated = compat.donated_arguments(function)
        self._compiled: dict[tuple[int, ...], Any] = {}

    def __call__(self, *args: PyTree, **kwargs: PyTree) -> Any:
        """Run the program."""
        shape, arrays, donated = self._split(args, kwargs)
        compiled = self._compiled.get(donated)
        if compiled is None:
            compiled = self._compiled[donated] = self._jitted(donated)
        return compiled(shape, *arrays)

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind like a function when it is an attribute of a class."""
        return self if instance is None else functools.partial(self, instance)

    def _jitted(self, donated: tuple[int, ...]) -> Any:
        def program(shape: ArgumentTemplate, *arrays: jax.Array) -> Any:
            def call(*arrays: jax.Array) -> Any:
                args, kwargs = shape.fill(arrays)
                return self._function(*args, **kwargs)

            return self._program(call, arrays)

        program.__name__ = program.__qualname__ = getattr(self._function, "__name__", "program")
        return jax.jit(program, static_argnums=0, inline=True, donate_argnums=tuple(i + 1 for i in donated))

    def _split(
        self, args: Sequence[PyTree], kwargs: Mapping[str, PyTree]
    ) -> tuple[ArgumentTemplate, list[Any], tuple[int, ...]]:
        positions, names = self._static
        if positions or names:
            args = tuple(_Static(a) if i in positions else a for i, a in enumerate(args))
            kwargs = {name: _Static(a) if name in names else a for name, a in kwargs.items()}
        leaves, tree = jax.tree.flatten((args, kwargs))
        traced = [is_array(leaf) for leaf in leaves]
        shape = ArgumentTemplate(tree, tuple(_HOLE if is_ else leaf for leaf, is_ in zip(leaves, traced, strict=True)))
        arrays = [leaf for leaf, is_ in zip(leaves, traced, strict=True) if is_]
        return shape, arrays, self._donations(args, kwargs) if any(self._donated) else ()

    def _donations(self, args: Sequence[PyTree], kwargs: Mapping[str, PyTree]) -> tuple[int, ...]:
        positions, names = self._donated
        flags = [
            *((i in positions, a) for i, a in enumerate(args)),
            *((name in names, kwargs[name]) for name in sorted(kwargs)),
        ]
        each = [given for given, a in flags for leaf in jax.tree.leaves(a) if is_array(leaf)]
        return tuple(i for i, given in enumerate(each) if given)


def traced(call: Callable[..., Any], arrays: Sequence[Any], wants: WantedLogs) -> tuple[Any, Any]:
    """Trace a function with these logs, and with those that outer transformations want.

    Returns:
        Its closed jaxpr, packed, and the structure of its results.
    """
    jaxpr, results = call_wanting(wants | wanted.value, jax.make_jaxpr(call, return_shape=True), *arrays)
    return packed(jaxpr), jax.tree.structure(results)
