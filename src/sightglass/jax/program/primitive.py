"""`log`: a place in a JAX program at which values can be taken; nothing at all until somebody takes them.

Theory of operation:

1. What is wanted stands in a `jax.make_user_context` value, a `WantedLogs`, which is part of JAX's own cache keys: a
   function traced with a demand and the same function traced without one never share a program.
2. With no demand, `log` leaves nothing in the program: no equation, no effect, no value.
3. With one, `log` binds a primitive that has operands and an unordered effect, but no results. So no equation depends
   on it, and `log` itself hands the values back. (The design document's primitive returns its inputs; that keeps values
   alive which nobody needs.)
4. The primitive lowers to nothing. It is `spool` and `tap` that find it and put something in its place.
5. `jax.vmap` puts its axis in front of all values and steps of a log whose values it batches, outermost first. Under
   differentiation a log stays with the primal computation.
6. A log may carry a mask (see `batching.py`): a boolean of the shape of the batch axes, saying for which lanes it
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

from sightglass.core.errors import LogError
from sightglass.jax.logs.logdict import NO_LEAVES, logdict

from .compat import effect, value_holder

T = TypeVar("T")

MARK = "\0"
"""With what the key begins under which a marked log has its steps."""


class LogListener(Protocol):
    """Who hears of each log while the program is traced, where the log stands."""

    def hear(self, data: Mapping[str, Any], steps: Mapping[str, Any], *, explicit: bool, where: str) -> None:
        """Hear of a log: its values by key, which may be functions; its steps; the user's file and line."""


class WantedLogs(NamedTuple):
    """Which logs are wanted.

    Attributes:
        all: Whether every log is, but for explicit ones.
        names: The keys that are wanted by name, explicit or not.
        explicit: Whether `all` means explicit ones too.
        marks: Whether the place of a log is wanted even if none of its keys is.
        listener: Who else hears of each log where it stands, whatever is wanted.
    """

    all: bool
    names: frozenset[str]
    explicit: bool = False
    marks: bool = False
    listener: LogListener | None = None

    def wants(self, key: str, *, explicit: bool) -> bool:
        """Return whether a key of a log is wanted; the steps of a mark are, by whoever wants marks."""
        if key.startswith(MARK):
            return self.marks
        return key in self.names or (self.all and (self.explicit or not explicit))

    def __or__(self, other: WantedLogs | None) -> WantedLogs:
        if other is None:
            return self
        explicit, marks = self.explicit or other.explicit, self.marks or other.marks
        listener = self.listener or other.listener
        return WantedLogs(self.all or other.all, self.names | other.names, explicit, marks, listener)


def demand(argnames: str | Sequence[str] | None) -> WantedLogs:
    """Make the demand of a transformation's `argnames`: everything that is not explicit, or these keys."""
    if argnames is None:
        return WantedLogs(True, frozenset())
    return WantedLogs(False, frozenset((argnames,) if isinstance(argnames, str) else argnames))


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One `log` in a user's code, as far as it is known before anything runs.

    Attributes:
        keys: The keys, in the user's order.
        steps: The names of the steps.
        tree: The structure of `(values, steps)`, two lists.
        explicit: Whether it is taken only when asked for by name.
        event: The event's name.
        where: The user's file and line.
    """

    keys: tuple[str, ...]
    steps: tuple[str, ...]
    tree: Any
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
    data: Mapping[str, Any], *, event: str = "log", prefix: str = "", explicit: bool = False, **steps: Any
) -> logdict:
    """Offer values of a JAX program to whoever wants them, at any depth of it.

    Args:
        data: A value for each key: anything with JAX arrays or numbers at its leaves, nested as deep as you like. A
            leaf may be a function without arguments, which is called, and so traced, only where its value is taken.
            `None` is left out.
        event: The event's name, for clients of `live`.
        prefix: What to put in front of each key.
        explicit: Take it only where it is asked for by name (`argnames`).
        **steps: Where this happened: numbers, by name, such as `step=state.step`.

    Returns:
        What was given, each leaf with a leading event axis of length 1; a leaf that nobody uses is never built.

    Raises:
        LogError: The data are no mapping from names, or hold what JAX has no array for, such as a string.

    Example:
        >>> import jax.numpy as jnp
        >>> logs = log({"loss": jnp.float32(0.5)}, step=3)
        >>> logs["loss"].shape
        (1,)
    """
    demanded = _wanted.value
    if demanded is not None:
        data = _bind(data, steps, demanded, event=event, prefix=prefix, explicit=explicit)
    # This is logdict.of(data, steps): the call would cost a quarter of what a log costs that nobody wants.
    logs = _new(logdict)
    logs._is_lazy = True
    logs._data = {prefix + key: value for key, value in data.items()} if prefix else data
    logs._steps = steps
    logs._valid = logs._dropped = NO_LEAVES
    return logs


def _bind(
    data: Mapping[str, Any], steps: Mapping[str, Any], demanded: WantedLogs, *, event: str, prefix: str, explicit: bool
) -> Mapping[str, Any]:
    """Bind what is wanted of a log; return its data, with functions replaced by the values they returned."""
    if not isinstance(data, Mapping):
        raise LogError(f"log() takes a mapping from names to values, such as {{'loss': loss}}; got {data!r:.120}")
    frame = sys._getframe(2)
    where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    if demanded.listener is not None:
        named = {prefix + str(key): value for key, value in data.items()}
        demanded.listener.hear(named, steps, explicit=explicit, where=where)
    taken = {
        key: arrays(value, f"of {key!r} in the log at {where}")
        for key, value in data.items()
        if demanded.wants(prefix + str(key), explicit=explicit)
    }
    values = {prefix + str(key): value for key, value in taken.items() if jax.tree.leaves(value)}
    if values or demanded.marks:
        places = {name: arrays(value, f"of step {name!r} in the log at {where}") for name, value in steps.items()}
        if demanded.marks and places:
            values[f"{MARK}{where}"] = places
        flat, tree = jax.tree.flatten((list(values.values()), list(places.values())))
        keys, names = tuple(values), tuple(places)
        site = Site(keys=keys, steps=names, tree=tree, explicit=explicit, event=event, where=where)
        log_p.bind(*flat, site=site, n_batch=0, masked=False)
    return {**data, **taken}


def arrays(value: Any, what: str) -> Any:
    """Make arrays of the leaves of a value, calling those that are functions.

    Raises:
        LogError: A leaf is nothing that JAX has arrays for.
    """

    def array(leaf: Any) -> Any:
        if isinstance(leaf, jax.Array):
            return leaf
        if callable(leaf) and not hasattr(leaf, "__jax_array__"):
            return arrays(leaf(), what)
        if isinstance(leaf, str | bytes):
            raise LogError(f"Cannot log the text {leaf!r:.80} {what}: JAX has no strings; log a number instead")
        try:
            return jnp.asarray(leaf)
        except TypeError as error:
            raise LogError(f"Cannot log a {type(leaf).__name__} {what}: expected arrays or numbers; {error}") from error

    return jax.tree.map(array, value)


def _batch(values: Any, axes: Any, *, site: Site, n_batch: int, masked: bool) -> tuple[list[Any], list[Any]]:
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
    """A log that is being met in a program.

    Attributes:
        site: Which log it is.
        data: A value for each key.
        steps: A value for each step.
        n_batch: How many leading axes of each value are batch axes.
        mask: For which lanes it happened, or `None` for all; shape: that of the batch axes.
    """

    site: Site
    data: dict[str, Any]
    steps: dict[str, Any]
    n_batch: int
    mask: Any = None

    @classmethod
    def of(cls, eqn: Any, values: Sequence[Any]) -> LogEvent:
        """Read an equation of the primitive, given what stands for its operands."""
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
        """Log it again, for a transformation further out."""
        flat = jax.tree.leaves((list(self.data.values()), list(self.steps.values())))
        mask = [] if self.mask is None else [self.mask]
        log_p.bind(*mask, *flat, site=self.site, n_batch=self.n_batch, masked=bool(mask))

    def with_data(self, data: dict[str, Any]) -> LogEvent:
        """Return the same log with other data."""
        tree = jax.tree.structure((list(data.values()), list(self.steps.values())))
        return replace(self, data=data, site=replace(self.site, keys=tuple(data), tree=tree))

    def masked_by(self, mask: Any) -> LogEvent:
        """Return the same log for those lanes only for which a mask holds; it is broadcast to the batch axes."""
        if not self.data:
            return self
        shape = np.shape(jax.tree.leaves(self.data)[0])[: self.n_batch]
        both = mask if self.mask is None else jnp.logical_and(mask, self.mask)
        return replace(self, mask=jnp.broadcast_to(both, shape))


def under(demanded: WantedLogs | None, function: Callable[..., T], *args: Any) -> T:
    """Call a function with a demand in force; `None` for none."""
    with wanted(demanded):
        return function(*args)
