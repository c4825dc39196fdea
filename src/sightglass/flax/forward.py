"""One forward pass through a model, with the values that its modules sow.

Rule 1: the model is not changed. An NNX model is copied first, so its counters and running averages stay the same.
Rule 2: the model's output is bit-identical with and without captured intermediates.
Rule 3: with `intermediates=False` nothing is captured, and the program is the same as without any `sow`.
"""

from __future__ import annotations

import inspect
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypedDict

import jax
from jax.typing import ArrayLike

from sightglass.core.errors import warn

from .compat import INTERMEDIATES, PLOTS, Intermediate, Plots, PyTree, linen, nnx

DETERMINISTIC = "deterministic"


class HasApply(Protocol):
    """An object with Linen's `apply`, such as a `TrainState`."""

    apply_fn: Callable[..., Any]


LinenState: TypeAlias = linen.Module | HasApply
NNXState: TypeAlias = nnx.Module | nnx.GraphDef


class Meta(TypedDict):
    """The captured collections: nested by module name; each key has the tuple of values sown under it."""

    plots: Captured
    intermediates: Captured


def forward(
    state: LinenState | NNXState,
    params: PyTree,
    batch: PyTree,
    deterministic: bool = True,
    intermediates: bool = True,
    *,
    loss: Callable[[PyTree, PyTree], ArrayLike] | None = None,
    variables: Mapping[str, Any] | None = None,
    rngs: Mapping[str, jax.Array] | None = None,
) -> tuple[Any, Any, Meta]:
    """Run a model once and capture the values that its modules sow. May be jitted and differentiated.

    Args:
        state: For Linen a `TrainState`, another object with an `apply_fn`, or the model; for NNX the model or its graph
            definition.
        params: The weights: for Linen the collection "params"; for NNX a `State`, a tuple of several, or `None` to use
            the model's own.
        batch: The model's arguments: a tuple or list of positional ones, a mapping of keyword arguments, or a single
            argument.
        deterministic: Whether to disable dropout and the like. Passed to models with an argument of this name; NNX
            models are also switched by their `eval` or `train`.
        intermediates: Whether to capture.
        loss: Called with the model's output and the batch, if the model does not compute the loss itself.
        variables: Linen collections other than "params", such as {"batch_stats": …}.
        rngs: Linen PRNG keys by name, such as {"dropout": key}.

    Returns:
        `(logits, loss, meta)`: the model's output, and the captured collections `meta["plots"]` and
        `meta["intermediates"]`.

    Raises:
        TypeError: There is no `loss` and the model does not return a pair; or `deterministic` is false and the model
            has no such argument.
    """
    arguments = _arguments(batch)
    if isinstance(state, nnx.Module | nnx.GraphDef):
        output, meta = through_nnx(state, params, arguments, deterministic=deterministic, capture=intermediates)
    else:
        output, meta = through_linen(
            state, {**(variables or {}), "params": params}, arguments,
            deterministic=deterministic, capture=intermediates, rngs=rngs,
        )  # fmt: skip
    if loss is not None:
        return output, loss(output, batch), meta
    if not (isinstance(output, tuple) and len(output) == 2):
        raise TypeError(
            f"Expected (logits, loss) from the model, got {_type_of(output)}: return both, or compute the loss "
            "with forward(…, loss=lambda output, batch: …)"
        )
    return *output, meta


Arguments = tuple[Sequence[Any], Mapping[str, Any]]
"""Positional and keyword arguments."""


def through_linen(
    state: LinenState,
    variables: Mapping[str, Any],
    arguments: Arguments,
    *,
    deterministic: bool,
    capture: bool,
    rngs: Mapping[str, jax.Array] | None = None,
) -> tuple[Any, Meta]:
    """Apply a Linen model; return its output and the captured collections.

    Args:
        state: The model, or an object with an `apply_fn`.
        variables: All collections of the model.
        arguments: The model's arguments.
        deterministic: As in `forward`.
        capture: As `intermediates` in `forward`.
        rngs: As in `forward`.
    """
    apply = state.apply if isinstance(state, linen.Module) else state.apply_fn
    model = getattr(apply, "__self__", None)
    args, keywords = arguments
    keywords = dict(keywords) if rngs is None else {**keywords, "rngs": rngs}
    if takes_mode(type(model).__call__ if isinstance(model, linen.Module) else apply):
        keywords.setdefault(DETERMINISTIC, deterministic)
    elif not deterministic:
        name = _named(apply if model is None else model)
        raise TypeError(
            f"Expected a model that takes an argument {DETERMINISTIC!r}, got {name}: add one, or put its own argument "
            "for this into the batch"
        )
    if not capture:
        return apply(variables, *args, **keywords), Meta(plots=Captured(), intermediates=Captured())
    with linen.intercept_methods(_warn_of_dropped):
        output, mutated = apply(variables, *args, mutable=[INTERMEDIATES, PLOTS], **keywords)
    plots, intermediates = (ordered(mutated.get(name, {})) for name in (PLOTS, INTERMEDIATES))
    return output, Meta(plots=plots, intermediates=intermediates)


def through_nnx(
    state: NNXState, params: PyTree, arguments: Arguments, *, deterministic: bool, capture: bool
) -> tuple[Any, Meta]:
    """Call a copy of an NNX model; return its output and the captured collections.

    Args:
        state: The model, or its graph definition.
        params: As in `forward`.
        arguments: The model's arguments.
        deterministic: As in `forward`.
        capture: As `intermediates` in `forward`.
    """
    model = _copied(state, params)
    (model.eval if deterministic else model.train)()
    args, keywords = arguments
    if takes_mode(type(model).__call__):
        keywords = {DETERMINISTIC: deterministic, **keywords}
    # An empty capture keeps plain modules from storing sown values in their own state.
    types = (Plots, Intermediate) if capture else ()
    result = nnx.capture(model, *types)(*args, **keywords)
    output, *captured = result if capture else (result, {}, {})
    plots, intermediates = map(ordered, captured)
    return output, Meta(plots=plots, intermediates=intermediates)


def _warn_of_dropped(
    method: Callable[..., Any],
    args: Sequence[Any],
    keywords: Mapping[str, Any],
    context: linen.module.InterceptorContext,
) -> Any:
    """Call a method of a Linen module; warn if it sows values for figures into a collection that a lift leaves out."""
    function = getattr(context.orig_method, "func", context.orig_method)  # a partial of the module
    code, scope = getattr(inspect.unwrap(function), "__code__", None), context.module.scope
    sows = code is not None and "sow" in code.co_names and PLOTS in code.co_consts
    if sows and scope is not None and not scope.is_mutable_collection(PLOTS):
        path = "/".join(context.module.path) or type(context.module).__name__
        warn(
            f"Flax drops what {path!r} sows into {PLOTS!r}: nn.scan and nn.vmap need an axis for it, such as "
            f"variable_axes={{{PLOTS!r}: 0}}; nn.while_loop keeps nothing",
        )
    return method(*args, **keywords)


def _copied(state: NNXState, params: PyTree) -> nnx.Module:
    """Return a copy of the model with these weights."""
    states = params if isinstance(params, tuple) else () if params is None else (params,)
    if isinstance(state, nnx.GraphDef):
        return nnx.merge(state, *states, copy=True)
    model = nnx.merge(*nnx.split(state), copy=True)
    for part in states:
        nnx.update(model, part)
    return model


def _arguments(batch: PyTree) -> Arguments:
    if isinstance(batch, Mapping):
        return (), batch
    return (batch if isinstance(batch, tuple | list) else (batch,)), {}


def takes_mode(function: Callable[..., Any]) -> bool:
    """Return whether a function takes an argument `deterministic` or any keyword argument."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    return DETERMINISTIC in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _named(model: object) -> str:
    return getattr(model, "__qualname__", None) or type(model).__name__


def _type_of(output: object) -> str:
    n = f" of {len(output)}" if isinstance(output, tuple | list) else ""
    return f"{type(output).__name__}{n}"


# Values sown in one forward pass: mappings nested by module name, then by key.
#
# Rule 1: a leaf is a tuple of the values sown under a key, in order, even if there is only one.
# Rule 2: names are in natural order, `Block_2` before `Block_10`, inside and outside of compiled functions. JAX sorts
# the keys of a plain dict that a compiled function returns as text, so these are `OrderedDict`s, whose order it keeps.
# Rule 3: names are strings, also in NNX, where modules in a list have numbers.

Captured = OrderedDict[str, Any]
"""A collection: maps the name of a module to a nested collection, and a key to a tuple."""


def ordered(collection: Mapping[str | int, Any]) -> Captured:
    """Convert a collection of Linen or NNX according to these rules."""
    named = {str(name): value for name, value in collection.items()}
    return OrderedDict((name, _leaf(named[name])) for name in sorted(named, key=_natural))


def sown(collection: Mapping[str, Any], key: str) -> dict[str, tuple[Any, ...]]:
    """Return the values sown under a key in all modules.

    Args:
        collection: A captured collection, such as `meta["plots"]`.
        key: The key.

    Returns:
        The tuple of values of each module, by the module's path: its names joined by slashes, empty for the model
        itself. Paths are in natural order.

    >>> sown({"a": {"x": (1, 2)}, "b": {"c": {"x": (3,)}}, "x": (4,)}, "x")
    {'a': (1, 2), 'b/c': (3,), '': (4,)}
    """
    return dict(_found(collection, key, ()))


def _found(collection: Mapping[str, Any], key: str, path: tuple[str, ...]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    for name in sorted(collection, key=_natural):
        value = collection[name]
        if isinstance(value, Mapping):
            yield from _found(value, key, (*path, name))
        elif name == key:
            # `sow` with a custom `reduce_fn` stores one value, and other frameworks pass lists.
            yield "/".join(path), tuple(value) if isinstance(value, tuple | list) else (value,)


def _leaf(value: object) -> object:
    if isinstance(value, nnx.Variable):
        return value.get_value()
    return ordered(value) if isinstance(value, Mapping) else value


def _natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """Return a sort key that compares the numbers in names as numbers.

    >>> sorted(["Block_10", "Block_2", "Attention"], key=_natural)
    ['Attention', 'Block_2', 'Block_10']
    """
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", name)], name
