"""`log`: offers values of a JAX program, and leaves nothing in the program until a transformation wants them.

Theory of operation:

1. The logs that are wanted are the value of a `jax.make_user_context`, a `WantedLogs`, which is part of JAX's own cache
   keys: a function traced with logs and the same function traced without them never share a program.
2. If nothing is wanted, `log` leaves nothing in the program: no equation, no effect, no value.
3. Otherwise, `log` binds a primitive with operands and an unordered effect, but without results. So no equation depends
   on it, and `log` itself returns the values. (A primitive that returned its inputs, as in lox, would keep values alive
   that nothing else needs.)
4. The primitive lowers to nothing. `spool` and `tap` find it and replace it.
5. `jax.vmap` puts its axis in front of all values and steps of a log, outermost first, if it batches one of them or if
   the axis has a name. Under differentiation, a log stays with the primal computation.
6. A log may carry a mask (see `rules.py`): a boolean of the shape of the batch axes that says for which lanes it
   happened.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.typing import ArrayLike

from sightglass.core.errors import LogError
from sightglass.jax import explicit
from sightglass.jax.logs.columns import axis_names
from sightglass.jax.logs.logdict import logdict
from sightglass.jax.logs.reduction import float_type, is_number
from sightglass.jax.pytree import PyTree

from . import compat
from .compat import effect, value_holder

T = TypeVar("T")

MARK = "\0"
"""Begins the key under which a marked log has its steps."""

UNNAMED: Final = "log"
"""The event of a log that names none."""

IN_LOG: Final = "sightglass_log"
"""The scope of what only a log computes: a function as a value."""

LINEN_SCAN: Final = "broadcasted variable has a data dependency on the scan body"
LINEN_SCAN_NOTE: Final = (
    "From JAX 0.11 on, Flax Linen's nn.scan accepts no effect in its body, so no log either: sow there, with an axis "
    "for the collection, and log what was sown outside of the scan."
)


class LogListener(Protocol):
    """Is called at each log while JAX traces the program."""

    def on_log(self, data: Mapping[str, Any], steps: Mapping[str, Any], *, explicit: bool, where: str) -> None:
        """Handle a log: its values by key, which may be functions; its steps; the user's file and line."""


class WantedLogs(NamedTuple):
    """Which logs are wanted.

    Attributes:
        all: Whether all logs are wanted, except explicit ones.
        names: The keys that are wanted by name, explicit or not.
        explicit: Whether `all` includes explicit logs.
        marks: Whether the position and steps of a log are wanted even if none of its keys is.
        listener: Called at each log, whatever is wanted.
    """

    all: bool
    names: frozenset[str]
    explicit: bool = False
    marks: bool = False
    listener: LogListener | None = None

    def include(self, key: str, *, explicit: bool) -> bool:
        """Return whether a key of a log is wanted; `marks` decides on the keys of marks."""
        if key.startswith(MARK):
            return self.marks
        return key in self.names or (self.all and (self.explicit or not explicit))

    def __or__(self, other: WantedLogs | None) -> WantedLogs:
        if other is None:
            return self
        explicit, marks = self.explicit or other.explicit, self.marks or other.marks
        listener = self.listener or other.listener
        return WantedLogs(self.all or other.all, self.names | other.names, explicit, marks, listener)


def wanted_logs(argnames: str | Sequence[str] | None) -> WantedLogs:
    """Return the logs that `argnames` select: all that are not explicit, or those with these keys."""
    if argnames is None:
        return WantedLogs(True, frozenset())
    return WantedLogs(False, frozenset((argnames,) if isinstance(argnames, str) else argnames))


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The static part of one `log` in the user's code.

    Attributes:
        keys: The keys, in the user's order.
        steps: The names of the steps.
        tree: The structure of `(values, steps)`, two lists.
        explicit: Whether it is collected only if its key is named.
        event: The event's name.
        axis: The names of the innermost axes of `vmap` around it.
        where: The user's file and line.
    """

    keys: tuple[str, ...]
    steps: tuple[str, ...]
    tree: PyTree
    explicit: bool
    event: str
    axis: tuple[str, ...] = ()
    where: str


EVERYTHING: Final = WantedLogs(True, frozenset(), explicit=True, marks=True)

_make_user_context: Any = jax.make_user_context
wanted: Any = _make_user_context(None)
_wanted = value_holder(wanted)
_new = object.__new__


log_p: Any = Primitive("log")
log_p.multiple_results = True


def log(
    data: Mapping[str, Any],
    *,
    event: str = UNNAMED,
    prefix: str = "",
    explicit: bool = False,
    axis: str | tuple[str, ...] = (),
    **steps: ArrayLike,
) -> logdict:
    """Offer values of a JAX program to `spool`, `tap`, `live` and clients, at any depth of it.

    Args:
        data: A value for each key: any pytree of JAX arrays and numbers. A leaf may be a function without arguments,
            which is called, and so traced, only if its value is collected. `None` is ignored.
        event: The event's name, for clients of `live`; by default, that of the loop around it, or of the step.
        prefix: A text to put in front of each key.
        explicit: Whether to collect it only where its key is named (`argnames`).
        axis: A name for the lanes of the innermost `jax.vmap` around it, such as "env"; a tuple names several,
            outermost first. By default, that of the `vmap` (`axis_name`), or "lane". Where the axis has a name, given
            here or there, a value that all lanes share is logged for each of them; elsewhere it is logged once.
        **steps: The steps at which this happened, by name, for example `step=state.step`.

    Returns:
        The same values, each leaf with a leading event axis of length 1. A leaf that you do not read is never built.

    Raises:
        LogError: `data` is not a mapping, `prefix` or `axis` is not text, or a leaf is neither an array nor a number.

    Example:
        >>> import jax.numpy as jnp
        >>> logs = log({"loss": jnp.float32(0.5)}, step=3)
        >>> logs["loss"].shape
        (1,)
    """
    wants = _wanted.value
    if prefix or wants is not None:
        data = _bind(data, steps, wants, event=event, prefix=prefix, explicit=explicit, axis=axis)
    # This is logdict.of(data, steps), inlined: the call would add a quarter to the cost of a log that is not wanted.
    logs = _new(logdict)
    logs._data = data
    logs._steps = steps
    logs._masks = None
    return logs


def _bind(
    data: Mapping[str, Any],
    steps: Mapping[str, Any],
    wants: WantedLogs | None,
    *,
    event: str,
    prefix: str,
    explicit: bool,
    axis: str | tuple[str, ...],
) -> Mapping[str, Any]:
    """Bind what is wanted of a log; return its data by prefixed key, with functions replaced by their values."""
    if prefix and not isinstance(prefix, str):
        raise LogError(f"Expected text as prefix= in log(), got {type(prefix).__name__} {prefix!r:.80}")
    if wants is None:
        return {prefix + key: value for key, value in data.items()}
    if not isinstance(data, Mapping):
        raise LogError(f"Expected a mapping of names to values, such as {{'loss': loss}}, in log(), got {data!r:.120}")
    frame = sys._getframe(2)
    where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    if wants.listener is not None:
        named = {prefix + str(key): value for key, value in data.items()}
        wants.listener.on_log(named, steps, explicit=explicit, where=where)
    taken = {
        key: arrays(value, f"of {key!r} in the log at {where}")
        for key, value in data.items()
        if wants.include(prefix + str(key), explicit=explicit)
    }
    values = {prefix + str(key): value for key, value in taken.items() if jax.tree.leaves(value)}
    if values or wants.marks:
        step_values = {name: arrays(value, f"of step {name!r} in the log at {where}") for name, value in steps.items()}
        if wants.marks and step_values:
            values[f"{MARK}{where}"] = step_values
        flat, tree = jax.tree.flatten((list(values.values()), list(step_values.values())))
        keys, names = tuple(values), tuple(step_values)
        axes = (axis,) if isinstance(axis, str) else axis
        if not (isinstance(axes, tuple) and all(isinstance(name, str) and name.isidentifier() for name in axes)):
            raise LogError(f"Expected a name, or a tuple of names, as axis= in log(), got {axis!r:.80}")
        site = Site(keys=keys, steps=names, tree=tree, explicit=explicit, event=event, axis=axes, where=where)
        log_p.bind(*flat, site=site, axes=(), masked=False)
    return {prefix + key if prefix else key: value for key, value in {**data, **taken}.items()}


def arrays(value: PyTree, what: str) -> Any:
    """Convert the leaves of a value to arrays; call those that are functions.

    Raises:
        LogError: A leaf is not an array or number.
    """

    def array(leaf: object) -> Any:
        if isinstance(leaf, jax.Array):
            return leaf
        if callable(leaf) and not hasattr(leaf, "__jax_array__"):
            with jax.named_scope(IN_LOG):
                return arrays(leaf(), what)
        if isinstance(leaf, str | bytes):
            raise LogError(f"Cannot log the string {leaf!r:.80} {what}: JAX has no strings; log a number instead")
        try:
            return jnp.asarray(leaf)
        except TypeError as error:
            raise LogError(f"Cannot log a {type(leaf).__name__} {what}: expected arrays or numbers; {error}") from error

    return jax.tree.map(array, value)


def _batch(
    axis: Any,
    values: Sequence[jax.Array],
    dims: Sequence[int | None],
    *,
    site: Site,
    axes: tuple[str | None, ...],
    masked: bool,
) -> tuple[list[Any], list[Any]]:
    values, axes = with_lanes(axis, values, dims, site=site, axes=axes)
    return log_p.bind(*values, site=site, axes=axes, masked=masked), []


def with_lanes(
    axis: Any, values: Sequence[Any], dims: Sequence[int | None], *, site: Site, axes: tuple[str | None, ...]
) -> tuple[Sequence[Any], tuple[str | None, ...]]:
    """Return the operands of a log and its batch axes under one more `vmap`.

    A log has lanes there if one of its operands differs between them, if the axis has a name, or if the log names it.

    Args:
        axis: JAX's data on the axis.
        values: The operands.
        dims: The axis in each; `None` where all lanes share the value.
        site: The log.
        axes: Its batch axes so far.
    """
    name = axis.name if isinstance(axis.name, str) and axis.name.isidentifier() else None
    is_mapped = any(dim is not None for dim in dims)
    if not values or not (is_mapped or name is not None or len(axes) < len(site.axis)):
        return values, axes
    moved = [value if dim is None else jnp.moveaxis(value, dim, 0) for value, dim in zip(values, dims, strict=True)]
    like = next((value for value, dim in zip(moved, dims, strict=True) if dim is not None), jnp.empty(axis.size))
    every = zip(moved, dims, strict=True)
    return [explicit.repeated(_as_array(v), like, 1) if dim is None else v for v, dim in every], (name, *axes)


def _as_array(value: Any) -> Any:
    """Return an operand as an array of its own dtype: constants in `jit` and loops are JAX's subclasses of numbers."""
    return value if hasattr(value, "shape") else jnp.asarray(value, jax.typeof(value).dtype)


log_p.def_impl(lambda *values, **params: [])
log_p.def_effectful_abstract_eval(lambda *avals, **params: ([], {effect}))
ad.primitive_jvps[log_p] = lambda primals, tangents, **params: (log_p.bind(*primals, **params), [])
ad.primitive_transposes[log_p] = lambda cotangents, *values, **params: [None] * len(values)
batching.fancy_primitive_batchers[log_p] = _batch
mlir.register_lowering(log_p, lambda context, *values, **params: [])


def call_wanting(wants: WantedLogs | None, function: Callable[..., T], *args: object) -> T:
    """Call a function while certain logs are wanted; `None` for none."""
    try:
        with wanted(wants):
            return function(*args)
    except ValueError as error:
        if LINEN_SCAN in str(error):
            error.add_note(LINEN_SCAN_NOTE)
        raise


# A log found in a program: its data, steps and lanes, and what transformations make of them.


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
        log_p.bind(*self.operands, site=self.site, axes=self.axes, masked=self.mask is not None)

    @property
    def operands(self) -> list[Any]:
        """The operands of its equation: the mask, if it has one, the data, and the steps."""
        flat = jax.tree.leaves((list(self.data.values()), list(self.steps.values())))
        return flat if self.mask is None else [self.mask, *flat]

    def with_data(self, data: dict[str, Any]) -> LogEvent:
        """Return the same log with other data."""
        tree = jax.tree.structure((list(data.values()), list(self.steps.values())))
        return replace(self, data=data, site=replace(self.site, keys=tuple(data), steps=tuple(self.steps), tree=tree))

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
