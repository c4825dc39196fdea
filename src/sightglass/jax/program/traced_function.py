"""Functions that are traced and transformed before they run; shared by `spool` and `tap`.

A transformed function is one `jax.jit` of the program that the transformation makes of the user's function. So JAX's
own caches decide when to trace again (shapes, dtypes, shardings, logs wanted by outer transformations), and a second
call takes JAX's fast path. Static and donated arguments of the user's own `jax.jit` stay static and donated.
What becomes of arguments and results that are not arrays is below.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from sightglass.core.errors import LogError
from sightglass.jax.pytree import PyTree

from . import compat
from .primitive import WantedLogs, call_wanting, wanted
from .walk import packed

Program = Callable[[Callable[..., Any], Sequence[Any]], Any]


class FunctionOfArrays:
    """A function of the user's, of which the static and donated arguments of its own `jax.jit` stay static and donated.

    Args:
        function: The user's function.
    """

    def __init__(self: Any, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._static = compat.static_arguments(function)
        self._donated = compat.donated_arguments(function)

    def __get__(self: Any, instance: object, owner: type | None = None) -> Any:
        """Bind like a function when it is an attribute of a class."""
        return self if instance is None else functools.partial(self, instance)

    def _split(
        self, args: Sequence[PyTree], kwargs: Mapping[str, PyTree]
    ) -> tuple[ArgumentTemplate, list[Any], tuple[int, ...]]:
        """Return the arguments without their arrays, the arrays, and which of these are donated."""
        positions, names = self._static
        if positions or names:
            args = tuple(Static(a) if i in positions else a for i, a in enumerate(args))
            kwargs = {name: Static(a) if name in names else a for name, a in kwargs.items()}
        shape, arrays = template(args, kwargs)
        positions, names = self._donated
        if not (positions or names):
            return shape, arrays, ()
        flags = [
            *((i in positions, a) for i, a in enumerate(args)),
            *((name in names, kwargs[name]) for name in sorted(kwargs)),
        ]
        each = [given for given, a in flags for leaf in jax.tree.leaves(a) if is_array(leaf)]
        return shape, arrays, tuple(i for i, given in enumerate(each) if given)


class TransformedFunction(FunctionOfArrays):
    """A function whose program is the result of a transformation.

    Args:
        function: The user's function.
        program: Returns the results of the transformed program, given `call`, the user's function of its arrays, and
            these arrays; runs while JAX traces.
    """

    def __init__(self, function: Callable[..., Any], program: Program) -> None:
        super().__init__(function)
        self._program = program
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

    def _jitted(self, donated: tuple[int, ...]) -> Any:
        def program(shape: ArgumentTemplate, *arrays: jax.Array) -> Any:
            def call(*arrays: jax.Array) -> Any:
                results = shape.call(self._function, arrays)
                self._carries = self._carries or isinstance(results, Carried)
                return results

            return self._program(call, arrays)

        program.__name__ = program.__qualname__ = getattr(self._function, "__name__", "program")
        return jax.jit(program, static_argnums=0, inline=True, donate_argnums=tuple(i + 1 for i in donated))


def traced(call: Callable[..., Any], arrays: Sequence[Any], wants: WantedLogs) -> tuple[Any, Any]:
    """Trace a function with these logs, and with those that outer transformations want.

    Returns:
        Its closed jaxpr, packed, and the structure of its results.
    """
    jaxpr, results = call_wanting(wants | wanted.value, jax.make_jaxpr(call, return_shape=True), *arrays)
    return packed(jaxpr), jax.tree.structure(results)


# Where arguments and results cross the boundary of a program: only arrays go through it.
#
# 1. A leaf of the arguments that is neither an array nor a number, such as an activation function, is static and must
#    be hashable. Such a leaf of the results is a part of their structure.
# 2. A Python number inside an Equinox module is static, too, as in `eqx.filter_jit`: the module may branch on it.
# 3. Objects of Flax NNX are changed in place. They are split into their graph, which is static, and their arrays;
#    merged inside the program, as `nnx.jit` does; and updated when it has run.

PYTHON_NUMBERS = (bool, int, float, complex)
NUMBERS = (jax.Array, np.ndarray, np.generic, *PYTHON_NUMBERS)
_HOLE, _OBJECT = object(), object()


@dataclass(frozen=True, slots=True)
class Static:
    """A leaf of the arguments that is static, whatever its type."""

    value: Any


@functools.partial(jax.tree_util.register_dataclass, data_fields=[], meta_fields=["value"])
@dataclass(frozen=True, slots=True)
class StaticResult:
    """A leaf of the results that is not an array."""

    value: Any


@functools.partial(jax.tree_util.register_dataclass, data_fields=["results", "state"], meta_fields=[])
@dataclass(frozen=True, slots=True)
class Carried:
    """Results that do not leave a program as they are.

    Attributes:
        results: The results, with `StaticResult` in place of leaves that are not arrays.
        state: The state of the NNX objects among the arguments; `None` without any.
    """

    results: PyTree
    state: PyTree


@dataclass(frozen=True, slots=True)
class ArgumentTemplate:
    """The arguments of a call without their arrays.

    Attributes:
        tree: The structure of `(args, kwargs)`.
        leaves: The static leaves, with a hole in place of each array and each NNX object.
        graph: The graph of the NNX objects; `None` without any.
        state: The structure of their state.
    """

    tree: Any
    leaves: tuple[Any, ...]
    graph: Any = None
    state: Any = None

    def call(self, function: Callable[..., Any], arrays: Sequence[Any]) -> Any:
        """Call a function with these arrays in the holes; return its results, `Carried` if they need it.

        Raises:
            LogError: The function changes the structure of an NNX object.
        """
        n_own = sum(leaf is _HOLE for leaf in self.leaves)
        objects: Any = ()
        if self.graph is not None:
            objects = _nnx().merge(self.graph, jax.tree.unflatten(self.state, arrays[n_own:]))
        rest, parts = iter(arrays), iter(objects)
        leaves = [next(rest) if leaf is _HOLE else next(parts) if leaf is _OBJECT else leaf for leaf in self.leaves]
        args, kwargs = jax.tree.unflatten(self.tree, [leaf.value if type(leaf) is Static else leaf for leaf in leaves])
        results = function(*args, **kwargs)
        kept = jax.tree.map(_kept, _static_marked(results))
        if self.graph is None:
            return (
                Carried(kept, None)
                if any(map(_is_static_result, jax.tree.leaves(kept, is_leaf=_is_static_result)))
                else results
            )
        graph, state = _nnx().split(objects)
        if graph != self.graph:
            raise LogError(
                f"{getattr(function, '__name__', 'The function')!r} changes the structure of an NNX object, such as an "
                "attribute that is not an array: make that change before the function is called, outside of it"
            )
        return Carried(kept, state)


def template(args: PyTree, kwargs: PyTree) -> tuple[ArgumentTemplate, list[Any]]:
    """Return the arguments of a call without their arrays, and the arrays: its own, then those of NNX objects."""
    leaves, tree = jax.tree.flatten((args, kwargs))
    if _contains_models(tree):  # looking at each node takes longer than most calls
        leaves, tree = jax.tree.flatten(_static_marked((args, kwargs)), is_leaf=_nnx() and _is_object)
    traced = [is_array(leaf) for leaf in leaves]
    arrays = [leaf for leaf, is_ in zip(leaves, traced, strict=True) if is_]
    objects = tuple(filter(_is_object, leaves)) if _nnx() else ()
    holes = tuple(
        _HOLE if is_ else _OBJECT if objects and _is_object(leaf) else leaf
        for is_, leaf in zip(traced, leaves, strict=True)
    )
    if not objects:
        return ArgumentTemplate(tree, holes), arrays
    graph, state = _nnx().split(objects)
    more, structure = jax.tree.flatten(state)
    return ArgumentTemplate(tree, holes, graph, structure), [*arrays, *more]


@functools.lru_cache(maxsize=1024)
def _contains_models(tree: Any) -> bool:
    """Return whether a structure contains objects of NNX or modules of Equinox."""
    node = tree.node_data()
    if node is None:
        return False
    return issubclass(node[0], _model_classes()) or any(map(_contains_models, tree.children()))


def delivered(results: PyTree, args: PyTree, kwargs: PyTree) -> Any:
    """Return the results of a program; update the NNX objects among its arguments."""

    def one(node: Any) -> Any:
        if not isinstance(node, Carried):
            return node
        if node.state is not None:
            objects = tuple(filter(_is_object, jax.tree.leaves((args, kwargs), is_leaf=_is_object)))
            _nnx().update(objects, node.state)
        return jax.tree.map(_opened, node.results, is_leaf=_is_static_result)

    return jax.tree.map(one, results, is_leaf=lambda node: isinstance(node, Carried))


def pure(function: Callable[..., Any]) -> Any:
    """Return a jitted function of an `ArgumentTemplate` and arrays in place of one of `nnx.jit` or `eqx.filter_jit`."""

    def program(shape: ArgumentTemplate, *arrays: jax.Array) -> Any:
        return shape.call(function, arrays)

    program.__name__ = program.__qualname__ = getattr(function, "__name__", "step")
    return jax.jit(program, static_argnums=0)


def is_wrapped(function: object) -> bool:
    """Return whether `nnx.jit` or `eqx.filter_jit` returned a function."""
    cls = type(function)
    return cls.__module__.partition(".")[0] in ("flax", "equinox") and callable(function) and hasattr(cls, "lower")


def is_array(leaf: object) -> bool:
    """Return whether a leaf of the arguments is traced; all others are static."""
    return isinstance(leaf, NUMBERS) or (hasattr(leaf, "__jax_array__") and not (_nnx() and _is_object(leaf)))


def _static_marked(tree: PyTree) -> Any:
    """Mark the Python numbers inside Equinox modules as static."""
    equinox = sys.modules.get("equinox")
    if equinox is None or not hasattr(equinox, "Module"):
        return tree

    def is_module(node: object) -> bool:
        return isinstance(node, equinox.Module)

    def mark(node: Any) -> Any:
        if not is_module(node):
            return node
        return jax.tree.map(lambda leaf: Static(leaf) if type(leaf) in PYTHON_NUMBERS else leaf, node)

    return jax.tree.map(mark, tree, is_leaf=is_module)


def _model_classes() -> tuple[type, ...]:
    nnx, equinox = _nnx(), sys.modules.get("equinox")
    found = (nnx.Pytree, nnx.Variable) if nnx else ()
    module = getattr(equinox, "Module", None)
    return found if module is None else (*found, module)


def _nnx() -> Any:
    """Return `flax.nnx` if the program has imported it."""
    nnx = sys.modules.get("flax.nnx")
    return nnx if hasattr(nnx, "Variable") else None


def _is_object(node: object) -> bool:
    nnx = _nnx()
    return nnx is not None and isinstance(node, nnx.Pytree | nnx.Variable)


def _kept(leaf: Any) -> Any:
    """Return a leaf of the results as it crosses the boundary."""
    if type(leaf) is Static:
        return StaticResult(leaf.value)
    return leaf if is_array(leaf) else StaticResult(leaf)


def _opened(leaf: Any) -> Any:
    return leaf.value if _is_static_result(leaf) else leaf


def _is_static_result(node: object) -> bool:
    return isinstance(node, StaticResult)
