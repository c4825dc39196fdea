"""`log`: offers values of a JAX program, and leaves nothing in the program until a transformation wants them.

Theory of operation:

1. The logs that are wanted are the value of a `jax.make_user_context`, a `WantedLogs`, which is part of JAX's own cache
   keys: a function traced with logs and the same function traced without them never share a program.
2. If nothing is wanted, `log` leaves nothing in the program: no equation, no effect, no value.
3. Otherwise, `log` binds a primitive with operands and an unordered effect, but without results. So no equation depends
   on it, and `log` itself returns the values. (A primitive that returned its inputs, as in lox, would keep values alive
   that nothing else needs.)
4. The primitive lowers to nothing. `spool` and `tap` find it and replace it.
5. `jax.vmap` puts its axis in front of all values and steps of a log whose values it batches, outermost first. Under
   differentiation, a log stays with the primal computation.
6. A log may carry a mask (see `batching.py`): a boolean of the shape of the batch axes that says for which lanes it
   happened.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.typing import ArrayLike

from sightglass.core.errors import LogError
from sightglass.jax.logs.logdict import NO_LEAVES, logdict
from sightglass.jax.program import compat
from sightglass.jax.pytree import PyTree

from .compat import effect, value_holder

T = TypeVar("T")

MARK = "\0"
"""Begins the key under which a marked log has its steps."""


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
        where: The user's file and line.
    """

    keys: tuple[str, ...]
    steps: tuple[str, ...]
    tree: PyTree
    explicit: bool
    event: str
    where: str


_make_user_context: Any = jax.make_user_context
wanted: Any = _make_user_context(None)
_wanted = value_holder(wanted)
_new = object.__new__


log_p: Any = Primitive("log")
log_p.multiple_results = True


def log(
    data: Mapping[str, Any], *, event: str = "log", prefix: str = "", explicit: bool = False, **steps: ArrayLike
) -> logdict:
    """Offer values of a JAX program to `spool`, `tap`, `live` and clients, at any depth of it.

    Args:
        data: A value for each key: any pytree of JAX arrays and numbers. A leaf may be a function without arguments,
            which is called, and so traced, only if its value is collected. `None` is ignored.
        event: The event's name, for clients of `live`.
        prefix: A text to put in front of each key.
        explicit: Whether to collect it only where its key is named (`argnames`).
        **steps: The steps at which this happened, by name, for example `step=state.step`.

    Returns:
        The same values, each leaf with a leading event axis of length 1. A leaf that you do not read is never built.

    Raises:
        LogError: `data` is not a mapping, or a leaf is not an array or number, for example a string.

    Example:
        >>> import jax.numpy as jnp
        >>> logs = log({"loss": jnp.float32(0.5)}, step=3)
        >>> logs["loss"].shape
        (1,)
    """
    wants = _wanted.value
    if wants is not None:
        data = _bind(data, steps, wants, event=event, prefix=prefix, explicit=explicit)
    # This is logdict.of(data, steps), inlined: the call would add a quarter to the cost of a log that is not wanted.
    logs = _new(logdict)
    logs._is_lazy = True
    logs._data = {prefix + key: value for key, value in data.items()} if prefix else data
    logs._steps = steps
    logs._valid = logs._dropped = NO_LEAVES
    return logs


def _bind(
    data: Mapping[str, Any], steps: Mapping[str, Any], wants: WantedLogs, *, event: str, prefix: str, explicit: bool
) -> Mapping[str, Any]:
    """Bind what is wanted of a log; return its data, with functions replaced by their values."""
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
        site = Site(keys=keys, steps=names, tree=tree, explicit=explicit, event=event, where=where)
        log_p.bind(*flat, site=site, n_batch=0, masked=False)
    return {**data, **taken}


def arrays(value: PyTree, what: str) -> Any:
    """Convert the leaves of a value to arrays; call those that are functions.

    Raises:
        LogError: A leaf is not an array or number.
    """

    def array(leaf: object) -> Any:
        if isinstance(leaf, jax.Array):
            return leaf
        if callable(leaf) and not hasattr(leaf, "__jax_array__"):
            return arrays(leaf(), what)
        if isinstance(leaf, str | bytes):
            raise LogError(f"Cannot log the string {leaf!r:.80} {what}: JAX has no strings; log a number instead")
        try:
            return jnp.asarray(leaf)
        except TypeError as error:
            raise LogError(f"Cannot log a {type(leaf).__name__} {what}: expected arrays or numbers; {error}") from error

    return jax.tree.map(array, value)


def _batch(
    values: Sequence[jax.Array], axes: Sequence[int | None], *, site: Site, n_batch: int, masked: bool
) -> tuple[list[Any], list[Any]]:
    n = next(value.shape[axis] for value, axis in zip(values, axes, strict=True) if axis is not None)
    leading = [
        jnp.broadcast_to(value, (n, *value.shape)) if axis is None else jnp.moveaxis(value, axis, 0)
        for value, axis in zip(values, axes, strict=True)
    ]
    return log_p.bind(*leading, site=site, n_batch=n_batch + 1, masked=masked), []


log_p.def_impl(lambda *values, **params: [])
log_p.def_effectful_abstract_eval(lambda *avals, **params: ([], {effect}))
ad.primitive_jvps[log_p] = lambda primals, tangents, **params: (log_p.bind(*primals, **params), [])
ad.primitive_transposes[log_p] = lambda cotangents, *values, **params: [None] * len(values)
batching.primitive_batchers[log_p] = _batch
mlir.register_lowering(log_p, lambda context, *values, **params: [])


@dataclass(frozen=True, slots=True)
class LogEvent:
    """A log found in a program.

    Attributes:
        site: The log in the user's code.
        data: A value for each key.
        steps: A value for each step.
        n_batch: How many leading axes of each value are batch axes.
        mask: The lanes for which it happened, of the shape of the batch axes; `None` for all.
    """

    site: Site
    data: dict[str, Any]
    steps: dict[str, Any]
    n_batch: int
    mask: jax.Array | None = None

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
            eqn.params["n_batch"],
            values[0] if masked else None,
        )

    def bind(self) -> None:
        """Log it again, for an outer transformation."""
        flat = jax.tree.leaves((list(self.data.values()), list(self.steps.values())))
        mask = [] if self.mask is None else [self.mask]
        log_p.bind(*mask, *flat, site=self.site, n_batch=self.n_batch, masked=bool(mask))

    def with_data(self, data: dict[str, Any]) -> LogEvent:
        """Return the same log with other data."""
        tree = jax.tree.structure((list(data.values()), list(self.steps.values())))
        return replace(self, data=data, site=replace(self.site, keys=tuple(data), tree=tree))

    def masked_by(self, mask: jax.Array) -> LogEvent:
        """Return the same log for the lanes where a mask is true; the mask is broadcast to the batch axes."""
        if not self.data:
            return self
        shape = np.shape(jax.tree.leaves(self.data)[0])[: self.n_batch]
        both = mask if self.mask is None else jnp.logical_and(mask, self.mask)
        return replace(self, mask=jnp.broadcast_to(both, shape))


def call_wanting(wants: WantedLogs | None, function: Callable[..., T], *args: object) -> T:
    """Call a function while certain logs are wanted; `None` for none."""
    with wanted(wants):
        return function(*args)
