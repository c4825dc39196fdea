"""One pass through a model, and what its modules sow meanwhile.

Rule 1: nothing of the model is changed. An NNX model is copied first, so what it counts and averages stays as it was.
Rule 2: what comes out of the model is the same, to the bit, whether its intermediates are captured or not.
Rule 3: with `intermediates=False` nothing is captured, and the program is that of a model in which nothing is sown.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from .captures import Captured, ordered
from .compat import INTERMEDIATES, PLOTS, Intermediate, Plots, linen, nnx

DETERMINISTIC = "deterministic"


class Meta(TypedDict):
    """What a pass captured: nested by the modules' names, and by key the tuple of what was sown."""

    plots: Captured
    intermediates: Captured


def forward(
    state: Any,
    params: Any,
    batch: Any,
    deterministic: bool = True,
    intermediates: bool = True,
    *,
    loss: Callable[[Any, Any], Any] | None = None,
    variables: Mapping[str, Any] | None = None,
    rngs: Any = None,
) -> tuple[Any, Any, Meta]:
    """Go once through a model, and capture what its modules sow. May be jitted, and differentiated.

    Args:
        state: What knows how: for Linen a `TrainState`, anything else with an `apply_fn`, or the model; for NNX the
            model, or its graph definition.
        params: The weights: for Linen the collection "params"; for NNX a `State`, a tuple of several, or `None` for
            those that the model has.
        batch: What the model is called with: a tuple or a list of arguments, a mapping of keywords, or the only one.
        deterministic: Whether to leave out dropout and the like. Handed on to models that take an argument of this
            name; NNX models are put into the mode as well, as by their `eval` and `train`.
        intermediates: Whether to capture.
        loss: Called with what the model returned, and the batch, if the model does not compute the loss itself.
        variables: Linen's collections beside "params", such as {"batch_stats": …}.
        rngs: Linen's keys of random numbers by their names, such as {"dropout": key}.

    Returns:
        `(logits, loss, meta)`: what the model returned, and what was captured, in `meta["plots"]` and
        `meta["intermediates"]`.

    Raises:
        TypeError: The model returned something else, and there is no `loss`; or it should not be deterministic, and
            cannot be told.
    """
    given = _arguments(batch)
    if isinstance(state, nnx.Module | nnx.GraphDef):
        output, meta = through_nnx(state, params, given, deterministic=deterministic, capture=intermediates)
    else:
        output, meta = through_linen(
            state, {**(variables or {}), "params": params}, given,
            deterministic=deterministic, capture=intermediates, rngs=rngs,
        )  # fmt: skip
    if loss is not None:
        return output, loss(output, batch), meta
    if not (isinstance(output, tuple) and len(output) == 2):
        raise TypeError(
            f"Expected (logits, loss) from the model, got {_told(output)}: let it return both, or compute the loss "
            "with forward(…, loss=lambda output, batch: …)"
        )
    return *output, meta


Arguments = tuple[Sequence[Any], Mapping[str, Any]]
"""Arguments by place and by name."""


def through_linen(
    state: Any, variables: Mapping[str, Any], given: Arguments, *, deterministic: bool, capture: bool, rngs: Any = None
) -> tuple[Any, Meta]:
    """Apply a Linen model; return what it returned, and what was captured.

    Args:
        state: The model, or what has an `apply_fn`.
        variables: All its collections.
        given: What it is called with.
        deterministic: As in `forward`.
        capture: As `intermediates` in `forward`.
        rngs: As in `forward`.
    """
    apply = state.apply if isinstance(state, linen.Module) else state.apply_fn
    model = getattr(apply, "__self__", None)
    args, keywords = given
    keywords = dict(keywords) if rngs is None else {**keywords, "rngs": rngs}
    if takes_mode(type(model).__call__ if isinstance(model, linen.Module) else apply):
        keywords.setdefault(DETERMINISTIC, deterministic)
    elif not deterministic:
        name = _named(apply if model is None else model)
        raise TypeError(
            f"Expected a model that takes an argument {DETERMINISTIC!r}, got {name}: give it one, or put what it takes "
            "instead into the batch"
        )
    if not capture:
        return apply(variables, *args, **keywords), Meta(plots=Captured(), intermediates=Captured())
    output, mutated = apply(variables, *args, mutable=[INTERMEDIATES, PLOTS], **keywords)
    plots, intermediates = (ordered(mutated.get(name, {})) for name in (PLOTS, INTERMEDIATES))
    return output, Meta(plots=plots, intermediates=intermediates)


def through_nnx(state: Any, params: Any, given: Arguments, *, deterministic: bool, capture: bool) -> tuple[Any, Meta]:
    """Call a copy of an NNX model; return what it returned, and what was captured.

    Args:
        state: The model, or its graph definition.
        params: As in `forward`.
        given: What it is called with.
        deterministic: As in `forward`.
        capture: As `intermediates` in `forward`.
    """
    model = _copied(state, params)
    (model.eval if deterministic else model.train)()
    args, keywords = given
    if takes_mode(type(model).__call__):
        keywords = {DETERMINISTIC: deterministic, **keywords}
    # Capturing nothing keeps plain modules from writing what they sow into themselves.
    types = (Plots, Intermediate) if capture else ()
    result = nnx.capture(model, *types)(*args, **keywords)
    output, *captured = result if capture else (result, {}, {})
    plots, intermediates = map(ordered, captured)
    return output, Meta(plots=plots, intermediates=intermediates)


def _copied(state: Any, params: Any) -> Any:
    """Return a model of one's own, which has the weights."""
    states = params if isinstance(params, tuple) else () if params is None else (params,)
    if isinstance(state, nnx.GraphDef):
        return nnx.merge(state, *states, copy=True)
    model = nnx.merge(*nnx.split(state), copy=True)
    for part in states:
        nnx.update(model, part)
    return model


def _arguments(batch: Any) -> Arguments:
    if isinstance(batch, Mapping):
        return (), batch
    return (batch if isinstance(batch, tuple | list) else (batch,)), {}


def takes_mode(function: Any) -> bool:
    """Tell whether a function takes an argument `deterministic`, or any."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
    return DETERMINISTIC in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _named(model: Any) -> str:
    return getattr(model, "__qualname__", None) or type(model).__name__


def _told(output: Any) -> str:
    n = f" of {len(output)}" if isinstance(output, tuple | list) else ""
    return f"{type(output).__name__}{n}"
