"""The parts of JAX that are private, or differ between releases; all other code uses its public modules.

Rules:

1. Everything private or different between releases is in this file, and `tests/jax/test_compat.py` fails when it
   disappears.
2. Nothing here edits JAX's objects: equations and jaxprs are only read, and new ones made from them (`as_one`).
3. Importing this file does not initialize a device.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import jax
from jax._src.interpreters.ad import primitive_linearizations
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from jax.extend.source_info_util import current_name_stack, register_exclusion, summarize, user_context
from jax.interpreters import mlir
from jax.interpreters.partial_eval import partial_eval_jaxpr_custom_rules

from sightglass.core.errors import LogError
from sightglass.jax.pytree import PyTree

linearizations: Any = primitive_linearizations
"""By primitive, the rule of `jax.grad` and others; `jax.interpreters.ad.primitive_jvps` has that of `jax.jvp`."""
recomputations: Any = partial_eval_jaxpr_custom_rules
"""By primitive, the rule that divides an equation for `jax.checkpoint`: what runs first, and what runs again later."""

T = TypeVar("T")

# How deep to search parameter objects for jaxprs: these are attributes of them, or of objects that they hold. Without a
# limit, a reference back to the program would never end.
_MAX_DEPTH = 3

Aval: Any = jax.ShapeDtypeStruct
AnyJaxpr: TypeAlias = Jaxpr | ClosedJaxpr
Equation: TypeAlias = JaxprEqn
_PLAIN = (type, jax.sharding.Sharding, jax.sharding.Mesh, jax.Array)


def _debugging() -> None:
    jax.debug.callback(lambda: None)


# JAX allows this effect in control flow, remat and custom rules, and so any subclass of it.
_DebugEffect: Any = type(next(iter(jax.make_jaxpr(_debugging)().effects)))


# JAX reports the first line outside of the excluded folders as the user's.
register_exclusion(str(Path(__file__).parent))


class LogEffect(_DebugEffect):  # type: ignore[misc]
    """The effect that keeps a log in a program: unordered, and allowed where `jax.debug.callback` is."""

    def __str__(self) -> str:
        return "Sightglass"


effect = LogEffect()


def opened(jaxpr: AnyJaxpr) -> tuple[Any, Sequence[Any]]:
    """Return the open jaxpr and its constants of a closed or open one (one class since JAX 0.11)."""
    return (jaxpr.jaxpr, jaxpr.consts) if hasattr(jaxpr, "consts") else (jaxpr, ())


def subjaxprs(params: Mapping[str, Any]) -> Iterator[Any]:
    """Yield every jaxpr in an equation's parameters, including those in tuples and in JAX's parameter objects."""
    for value in params.values():
        yield from _jaxprs_of(value, 0)


def _jaxprs_of(value: object, depth: int) -> Iterator[Any]:
    if isinstance(value, Jaxpr | ClosedJaxpr):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _jaxprs_of(item, depth)
    elif depth < _MAX_DEPTH and type(value).__module__.startswith("jax.") and not isinstance(value, _PLAIN):
        for item in getattr(value, "__dict__", {}).values():
            yield from _jaxprs_of(item, depth + 1)


def bind(eqn: Equation, values: Sequence[Any]) -> list[Any]:
    """Bind an equation's primitive again, with other values."""
    parameters = eqn.primitive.get_bind_params(eqn.params)
    if isinstance(parameters, tuple):  # up to JAX 0.10: the functions, then the rest
        functions, rest = parameters
        out = eqn.primitive.bind(*functions, *values, **rest)
    else:
        out = eqn.primitive.bind(*values, **parameters)
    return list(out) if eqn.primitive.multiple_results else [out]


class SourceContext:
    """Enters the source line, name stack and context of an equation, for everything traced within."""

    __slots__ = ("_context", "_source")

    def __init__(self, eqn: Equation) -> None:
        info = eqn.source_info
        self._source: Any = user_context(info.traceback, name_stack=current_name_stack() + info.name_stack)
        self._context: mlir.LoweringRuleContext = eqn.ctx.manager

    def __enter__(self) -> None:
        self._source.__enter__()
        self._context.__enter__()

    def __exit__(self, *error: object) -> None:
        self._context.__exit__(*error)
        self._source.__exit__(*error)


def where(eqn: Equation) -> str:
    """Return the user's file and line of an equation."""
    return str(summarize(eqn.source_info))


def function_name(jaxpr: AnyJaxpr) -> str:
    """Return the name of the function that a jaxpr was traced from; JAX has texts like "<lambda>" for those without."""
    return str(getattr(getattr(opened(jaxpr)[0], "debug_info", None), "func_name", "<unknown>"))


def name_stack(eqn: Equation) -> str:
    """Return the scopes that an equation was traced in."""
    return str(eqn.source_info.name_stack)


def static_arguments(function: Callable[..., Any]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the static positions and names of a jitted function; empty for any other function."""
    jitted = getattr(function, "jitted_fn", function)  # of nnx.jit
    info = getattr(jitted, "_jit_info", None)
    return (tuple(info.static_argnums), tuple(info.static_argnames)) if info else ((), ())


def donated_arguments(function: Callable[..., Any]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the donated positions and names of a jitted function; empty for any other function."""
    info = getattr(function, "_jit_info", None)
    return (tuple(info.donate_argnums), tuple(info.donate_argnames)) if info else ((), ())


def options_around(
    function: Callable[..., Any], n_args: int = 0, sharding: jax.sharding.Sharding | None = None
) -> dict[str, Any]:
    """Return the options of `jax.jit` for a wrapper with one more leading argument that returns a pair.

    Args:
        function: The jitted function that is wrapped.
        n_args: How many positional arguments it is called with that are not static.
        sharding: The sharding of the second result; `None` for any.

    Raises:
        LogError: `function` is not a function that `jax.jit` returned.
    """
    info = getattr(function, "_jit_info", None)
    if info is None:
        raise LogError(
            "Expected a function that jax.jit, nnx.jit or eqx.filter_jit returned, as in live(jax.jit(f)), "
            f"got {function!r:.200}"
        )
    options: dict[str, Any] = {
        "static_argnums": tuple(i + 1 if i >= 0 else i for i in info.static_argnums),
        "static_argnames": tuple(info.static_argnames),
        "donate_argnums": tuple(i + 1 if i >= 0 else i for i in info.donate_argnums),
        "donate_argnames": tuple(info.donate_argnames),
        "keep_unused": info.keep_unused,
        "compiler_options": dict(info.compiler_options_kvs) or None,
    }
    if info.user_specified_in_shardings:
        shardings = jax.tree.unflatten(info.in_shardings_treedef, info.in_shardings_leaves)
        options["in_shardings"] = (None, *(shardings if isinstance(shardings, tuple) else (shardings,) * n_args))
    if specified(info.out_shardings_leaves):
        results = jax.tree.unflatten(info.out_shardings_treedef, info.out_shardings_leaves)
        options["out_shardings"] = (results, sharding)
    elif sharding is not None:
        options["out_shardings"] = (None, sharding)
    for name in ("device", "backend"):
        if getattr(info, name, None) is not None:
            options[name] = getattr(info, name)
    return options


def varied(tree: PyTree, axes: frozenset[str]) -> Any:
    """Mark arrays as varying between the devices along mesh axes, where they are not marked already."""
    vary: Any = jax.lax.pvary if not hasattr(jax.lax, "pcast") else lambda a, over: jax.lax.pcast(a, over, to="varying")

    def one(array: jax.Array) -> jax.Array:
        aval = jax.typeof(array)
        kind = getattr(aval, "manual_axis_type", None)  # up to JAX 0.9: vma
        missing = tuple(sorted(axes - frozenset(aval.vma if kind is None else kind.varying)))
        return vary(array, missing) if missing else array

    return jax.tree.map(one, tree)


def settings() -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """Return a function that enters this thread's settings in another thread, as far as they affect compilation."""
    mesh = jax.sharding.get_mesh()
    values: dict[Any, Any] = {
        jax.enable_x64: jax.config.jax_enable_x64,
        jax.default_matmul_precision: jax.config.jax_default_matmul_precision,
        jax.default_device: jax.config.jax_default_device,
    }

    def enter() -> contextlib.AbstractContextManager[Any]:
        stack = contextlib.ExitStack()
        for setting, value in values.items():
            if value is not None:
                stack.enter_context(setting(value))
        if not mesh.empty:
            stack.enter_context(jax.set_mesh(mesh))
        return stack

    return enter


def solver(params: Mapping[str, Any], values: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    """Return the jaxpr of the solver of a `custom_linear_solve`, which is what runs, and its operands."""
    lengths = params["const_lengths"]
    start = lengths.matvec + lengths.vecmat
    return params["jaxprs"].solve, [*values[start : start + lengths.solve], *values[sum(lengths) :]]


def manual_axes(params: Mapping[str, Any]) -> frozenset[str]:
    """Return the mesh axes over which a `shard_map` runs once per device."""
    return frozenset(params["newly_manual_axes"] if "newly_manual_axes" in params else params["manual_axes"])


def scan_arity(params: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many constants and carried values a scan has (JAX 0.11 renamed the parameters)."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].unpack()
    return len(consts), len(carry)


def jit_options(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of an inner jit, except its shardings, for `jax.jit`."""
    return {
        "inline": params["inline"],
        "keep_unused": params["keep_unused"],
        "donate_argnums": tuple(i for i, donated in enumerate(params["donated_invars"]) if donated),
    }


def specified(shardings: Sequence[Any]) -> bool:
    """Return whether any of an inner jit's shardings was specified."""
    return any(type(sharding).__name__ != "UnspecifiedValue" for sharding in shardings)


def emit_callback(
    context: mlir.LoweringRuleContext, callback: Callable[..., tuple[Any, ...]], operands: Sequence[Any]
) -> Sequence[Any]:
    """Lower a raw callback: NumPy arrays in, NumPy arrays out, no JAX in between."""
    emit: Any = mlir.emit_python_callback
    results: Sequence[Any] = emit(
        context,
        callback,
        None,
        list(operands),
        context.avals_in,
        context.avals_out,
        has_side_effect=True,
        returns_token=False,
        sharding=_callback_sharding(context),
    )[0]
    return results


def _callback_sharding(context: mlir.LoweringRuleContext) -> Any:
    """Return the devices a callback runs on: each one inside `shard_map`, else only the first."""
    from jax._src.callback import _callback_op_sharding

    axes = context.module_context.axis_context
    return _callback_op_sharding(axes, None, context.avals_out)


def variables(atoms: Sequence[Any]) -> set[Any]:
    """Return the inputs or outputs of an equation or jaxpr that are not constants."""
    return {atom for atom in atoms if isinstance(atom, Var)}


def with_equations(jaxpr: AnyJaxpr, eqns: Sequence[Equation]) -> Any:
    """Return a jaxpr, closed or open as it was, with other equations, which may log less."""
    inner, consts = opened(jaxpr)
    inner = inner.replace(eqns=list(eqns), effects=_effects(inner.effects, eqns))
    return ClosedJaxpr(inner, consts) if isinstance(jaxpr, ClosedJaxpr) else inner


def with_jaxprs(eqn: Equation, change: Callable[[str, AnyJaxpr], AnyJaxpr]) -> Any:
    """Return an equation with other jaxprs; `change` takes a parameter's name and a jaxpr in it, tests first."""

    def changed(name: str, value: Any) -> Any:
        if isinstance(value, tuple):
            items = [changed(name, item) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
        return change(name, value) if isinstance(value, Jaxpr | ClosedJaxpr) else value

    params = {name: changed(name, eqn.params[name]) for name in sorted(eqn.params, reverse=True)}
    effects = _effects(eqn.effects, [opened(jaxpr)[0] for jaxpr in subjaxprs(params)])
    return eqn.replace(params={name: params[name] for name in eqn.params}, effects=effects)


def _effects(before: Set[Any], parts: Sequence[Any]) -> Set[Any]:
    return before if any(effect in part.effects for part in parts) else before - {effect}


def needed(eqns: Sequence[Equation], read: set[Any], *, besides: Set[Any] = frozenset()) -> list[Any]:
    """Return the equations that some variables depend on or that have an effect besides some, in their order."""
    read, found = set(read), []
    for eqn in reversed(eqns):
        if eqn.effects - besides or variables(eqn.outvars) & read:
            read |= variables(eqn.invars)
            found.append(eqn)
    return found[::-1]


def part(jaxpr: AnyJaxpr, eqns: Sequence[Equation], invars: Sequence[Any], outvars: Sequence[Any]) -> Any:
    """Return some equations of a closed jaxpr as one of their own."""
    inner, consts = opened(jaxpr)
    return ClosedJaxpr(inner.replace(eqns=list(eqns), invars=list(invars), outvars=list(outvars)), consts)


def read(env: Mapping[Any, Any], atoms: Sequence[Any]) -> list[Any]:
    """Return the values of inputs or outputs of an equation or jaxpr."""
    return [atom.val if isinstance(atom, Literal) else env[atom] for atom in atoms]


def _identity(value: T) -> T:
    return value


_jitted_identity = jax.jit(_identity)


def call_like() -> Any:
    """Return a jaxpr whose only equation is an inner jit, as this release of JAX makes it in this context."""
    with jax.disable_jit(False):
        return opened(jax.make_jaxpr(_jitted_identity)(0.0))[0]


def as_one(eqns: Sequence[Equation], needed: set[Any], like: AnyJaxpr) -> Any:
    """Return one equation, an inner jit, made of equations without effects; traces nothing.

    Args:
        eqns: The equations.
        needed: The variables that are used after them; those that the equations make are the outputs.
        like: The result of `call_like`.
    """
    made = dict.fromkeys(v for eqn in eqns for v in eqn.outvars)
    used = dict.fromkeys(v for eqn in eqns for v in eqn.invars if isinstance(v, Var))
    invars, outvars = [v for v in used if v not in made], [v for v in made if v in needed]
    inner = like.replace(constvars=[], invars=invars, outvars=outvars, eqns=list(eqns))
    return _jit_of(ClosedJaxpr(inner, ()), invars, outvars, like)


def as_jit(call: Equation) -> Any:
    """Return a call as an inner jit."""
    return _jit_of(call.params["call_jaxpr"], call.invars, call.outvars, call_like()).replace(effects=call.effects)


def _jit_of(jaxpr: Any, invars: Sequence[Any], outvars: Sequence[Any], like: AnyJaxpr) -> Any:
    (call,) = like.eqns
    params = dict(call.params, jaxpr=jaxpr)
    for name in params:  # one input and one output become many
        if name.startswith("in_") or name == "donated_invars":
            params[name] *= len(invars)
        elif name.startswith("out_"):
            params[name] *= len(outvars)
    return call.replace(params=params, invars=invars, outvars=outvars)


def value_holder(context: object) -> Any:
    """Return the object that holds a user context's `value`: reading it there takes a third of the time."""
    return getattr(context, "_obj", context)
