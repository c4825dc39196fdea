"""Functions that are traced and transformed before they run; shared by `spool` and `tap`.

A transformed function is one `jax.jit` of the program that the transformation makes of the user's function. So JAX's
own caches decide when to trace again (shapes, dtypes, shardings, logs wanted by outer transformations), and a second
call takes JAX's fast path. Static and donated arguments of the user's own `jax.jit` stay static and donated.
`boundary.py` says what becomes of arguments and results that are not arrays.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from sightglass.jax.pytree import PyTree

from . import compat
from .boundary import ArgumentTemplate, Carried, Static, delivered, is_array, template
from .primitive import WantedLogs, call_wanting, wanted
from .walk import packed

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
        self._carries = False

    def __call__(self, *args: PyTree, **kwargs: PyTree) -> Any:
        """Run the program."""
        shape, arrays, donated = self._split(args, kwargs)
        compiled = self._compiled.get(donated)
        if compiled is None:
            compiled = self._compiled[donated] = self._jitted(donated)
        results = compiled(shape, *arrays)
        return delivered(results, args, kwargs) if self._carries else results

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind like a function when it is an attribute of a class."""
        return self if instance is None else functools.partial(self, instance)

    def _jitted(self, donated: tuple[int, ...]) -> Any:
        def program(shape: ArgumentTemplate, *arrays: jax.Array) -> Any:
            def call(*arrays: jax.Array) -> Any:
                results = shape.call(self._function, arrays)
                self._carries = self._carries or isinstance(results, Carried)
                return results

            return self._program(call, arrays)

        program.__name__ = program.__qualname__ = getattr(self._function, "__name__", "program")
        return jax.jit(program, static_argnums=0, inline=True, donate_argnums=tuple(i + 1 for i in donated))

    def _split(
        self, args: Sequence[PyTree], kwargs: Mapping[str, PyTree]
    ) -> tuple[ArgumentTemplate, list[Any], tuple[int, ...]]:
        positions, names = self._static
        if positions or names:
            args = tuple(Static(a) if i in positions else a for i, a in enumerate(args))
            kwargs = {name: Static(a) if name in names else a for name, a in kwargs.items()}
        shape, arrays = template(args, kwargs)
        return shape, arrays, donations(self._donated, args, kwargs)


def donations(
    donated: tuple[tuple[int, ...], tuple[str, ...]], args: Sequence[PyTree], kwargs: Mapping[str, PyTree]
) -> tuple[int, ...]:
    """Return which of the arrays in some arguments are donated, given the positions and names that are."""
    positions, names = donated
    if not (positions or names):
        return ()
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
