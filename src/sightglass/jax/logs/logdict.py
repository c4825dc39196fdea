"""Logged values by tag, with the steps of every event.

The rules:

* Every leaf has the events along its first axis. The leaves of one tag, its steps and its mask have the same length:
  the number of the tag's events. Tags may differ in length, and keep the order in which they were logged.
* Every tag has its own step tracks: `logs.step["loss"]` are the primary steps of "loss", `logs.epoch` is another
  track, and `logs.steps["epoch"]` reaches a track that is named like a method. An event that was logged without a step
  that other events of its tag have holds `no_step` there; on the host, the event lacks this step.
* `valid` holds masks for tags some of whose entries may not have happened: a branch not taken, the unused part of a
  ring buffer. Reductions ignore these entries; slices count them; reading on the host (`to_numpy`, `events`, `records`)
  omits them. A mask may have additional axes, the lanes of a `vmap`.
* `n_dropped` counts, for some tags, the events that a ring buffer no longer holds.
* A logdict is a pytree of all these, in the order of the tags, so that two logdicts of the same logs have the same
  structure. Inside `vmap` and `scan`, the event axis is first; a logdict that leaves one of them has the new axis in
  front of the events: reduce or slice it inside.
* It never changes, except by `del`: operations return a new one. Arrays are shared, never copied.
* Comparing two of them with `==` raises, because it would have to wait for the device and to choose a meaning for NaN:
  compare the leaves.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from sightglass.core.columns import Record
from sightglass.core.errors import UnknownNameError, unknown
from sightglass.core.process.clock import SystemClock
from sightglass.core.program_values.guarded import OwnMapping
from sightglass.core.values import type_name
from sightglass.jax.pytree import PyTree

from .columns import (
    MAX_LINES,
    EventColumns,
    Leaves,
    Mode,
    Value,
    concatenated,
    is_missing,
    n_events,
    notes,
    plain,
    range_of,
    read,
    row,
    summary,
    table,
)

# What `logdict` and `stepdict` share: a mapping of tags to leaves with the events first; and `stepdict` itself.


class UnknownTagError(UnknownNameError, KeyError):
    """A tag under which nothing was logged."""


class Slices:
    """The result of `slice`: `logs.slice[-10:]` takes ten events, `logs.slice[-1]` one; the event axis stays."""

    __slots__ = ("_cut",)

    def __init__(self, cut: Callable[[slice], Any]) -> None:
        self._cut = cut

    def __getitem__(self, where: slice | int) -> Any:
        if isinstance(where, slice):
            return self._cut(where)
        if isinstance(where, int):
            return self._cut(slice(where, where + 1 or None))  # -1 is the last event, and [-1:0] would be empty
        raise TypeError(f"Expected a slice such as [-10:], or one number, got {where!r}")


class Tagged(OwnMapping):
    """A mapping of tags to leaves with the events first, and the operations on all tags at once."""

    __slots__ = ("_data",)
    __hash__ = None  # type: ignore[assignment]
    _data: Any

    def _columns(self) -> EventColumns:
        """Return the columns."""
        return EventColumns(self._data, {}, {}, {})

    @classmethod
    def _of(cls, columns: EventColumns) -> Self:
        """Return a mapping with columns that fit together."""
        raise NotImplementedError

    def __getitem__(self, tag: str) -> Any:
        try:
            return self._data[tag]
        except KeyError:
            raise UnknownTagError("tag", tag, self._data) from None

    def __contains__(self, tag: object) -> bool:
        return tag in self._data

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __delitem__(self, tag: str) -> None:
        if tag not in self._data:
            raise UnknownTagError("tag", tag, self._data)
        # Another dictionary, as this one may be the user's own.
        self._data = {other: value for other, value in self._data.items() if other != tag}

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        if self is not other:
            raise TypeError(
                f"A {type(self).__name__} cannot be compared with ==: compare the arrays, or jax.tree.structure"
            )
        return True

    def __or__(self, other: Mapping[str, Any]) -> Self:
        """Take the tags of both; those of `other` replace those of this one, with their steps and masks."""
        if not isinstance(other, Mapping):
            return NotImplemented
        new = other if isinstance(other, type(self)) else type(self)(other)  # type: ignore[call-arg]
        return self._of(self._columns().updated(new._columns()))

    @property
    def slice(self) -> Slices:
        """Take some of the entries of every tag, with their steps: `logs.slice[-10:]`, `logs.slice[::100]`."""
        return Slices(lambda where: self._of(self._columns().sliced(where)))

    def filter(self, keep: Callable[..., bool]) -> Self:
        """Return the tags for which `keep(tag, value)`, or `keep(tag)` for a function of one argument, is true."""
        if _takes_value(keep):
            return self._renamed({tag: tag for tag in self._data if keep(tag, self[tag])})
        return self._renamed({tag: tag for tag in self._data if keep(tag)})

    def prefix(self, prefix: str) -> Self:
        """Put a prefix before every tag."""
        return self._renamed({tag: prefix + tag for tag in self._data})

    def _renamed(self, names: Mapping[str, str]) -> Self:
        return self._of(self._columns().renamed(names))

    def to_numpy(self) -> Self:
        """Wait for the device and read everything; only what happened remains.

        PRNG keys become their data, whose axes are the last. Masks remain only where an event happened in some lanes of
        a `vmap` and not in others.

        Raises:
            TypeError: A leaf is traced.
        """
        return self._of(read(self)._columns().only_happened())


def _takes_value(keep: Callable[..., bool]) -> bool:
    """Return whether a function needs the value besides the tag; a second argument with a default is left to it."""
    try:
        inspect.signature(keep).bind("")
    except TypeError:
        return True
    except ValueError:  # a built-in function that does not tell its signature
        return False
    return False


class stepdict(Tagged):
    """One step track: the steps of every tag, events first. A pytree, with the operations of `logdict`."""

    __slots__ = ()

    def __init__(self, leaves: Mapping[str, Any]) -> None:
        self._data = dict(leaves)

    @classmethod
    def _of(cls, columns: EventColumns) -> Self:
        return cls(columns.data)

    def __add__(self, other: Mapping[str, Any]) -> Self:
        """Append the steps of `other`."""
        return self._of(concatenated([self._columns(), stepdict(other)._columns()]))

    def reduce(self, mode: Mode = "last") -> Self:
        """Reduce over the events, as `logdict.reduce` does."""
        return self._of(self._columns().reduced(mode))

    def __repr__(self) -> str:
        return table("stepdict", [(tag, *summary(leaf, None)) for tag, leaf in islice(self.items(), MAX_LINES + 1)])


def _flatten_steps(steps: stepdict) -> tuple[tuple[tuple[Any, Any], ...], tuple[str, ...]]:
    keyed = tuple((jax.tree_util.DictKey(tag), leaf) for tag, leaf in steps.items())
    return keyed, tuple(steps)


def _unflatten_steps(tags: tuple[str, ...], leaves: Sequence[Any]) -> stepdict:
    return stepdict(dict(zip(tags, leaves, strict=True)))


jax.tree_util.register_pytree_with_keys(
    stepdict, _flatten_steps, _unflatten_steps, lambda s: (list(s.values()), tuple(s))
)


PRIMARY = "step"
NO_TRACKS: Mapping[str, Mapping[str, Any]] = {}


class LoggedEvent(NamedTuple):
    """One event, on the host.

    Attributes:
        tag: The name of the series.
        steps: Its step in each track.
        value: Its value, without the event axis; a NumPy masked array where only some lanes of a `vmap` happened.
    """

    tag: str
    steps: dict[str, Any]
    value: Value


class logdict(Tagged):
    """Values by tag, events first, with their steps.

    Args:
        data: A leaf or a pytree for each tag; every leaf has the events along its first axis.
        steps: By name of the track and tag: an array with the events along its first axis.
        valid: For some tags, which entries happened: bools of shape (n_events,), or (n_events, *lanes) where the
            leaves have these lanes as well.
        n_dropped: For some tags, how many entries are no longer held: an integer, or one per lane.

    Raises:
        ValueError: A leaf has no event axis, or one of another length than the other leaves of its tag.
        UnknownNameError: `steps`, `valid` or `n_dropped` names a tag that is not in `data`.

    Example:
        >>> logs = logdict({"loss": np.float32([3, 2, 1])}, {"step": {"loss": np.arange(3)}})
        >>> (logs.slice[-2:] + logs.slice[:1]).to_numpy().step["loss"].tolist()
        [1, 2, 0]
        >>> logs.reduce("mean")
        logdict of 1 tag
          loss  float32[1]  2  step 2
    """

    __slots__ = ("_masks", "_steps")
    _masks: tuple[dict[str, Any], dict[str, Any]] | None
    """`valid` and `n_dropped`; `None` for one event whose values have no event axis yet."""

    def __init__(
        self,
        data: Mapping[str, Any],
        steps: Mapping[str, Mapping[str, Any]] = NO_TRACKS,
        valid: Mapping[str, Any] | None = None,
        n_dropped: Mapping[str, Any] | None = None,
    ) -> None:
        tracks = {name: dict(track) for name, track in steps.items()}
        columns = EventColumns(dict(data), tracks, dict(valid or {}), dict(n_dropped or {}))
        _check(columns)
        self._set(columns)

    @classmethod
    def of(cls, data: Mapping[str, Any], steps: dict[str, Any]) -> Self:
        """Return the logdict of one event from values and steps without an event axis.

        The axis is added when a value is read, and a value that is a function is called then: an unread value adds
        nothing to a traced program. The result is not cached, because the next read may be in another trace.

        Args:
            data: A leaf or a pytree for each tag, or a function that returns one; Python scalars are leaves too. Stored
                without a copy, as are the steps.
            steps: A number for each track.
        """
        self = object.__new__(cls)
        self._data, self._steps, self._masks = data, steps, None
        return self

    @classmethod
    def concatenate(cls, parts: Sequence[logdict]) -> Self:
        """Append the events of several logdicts, with one concatenation for each leaf.

        Dtypes are promoted as `jnp.concatenate` does.

        Raises:
            LogError: Values of one tag differ in structure, shape or kind of dtype.
        """
        return cls._of(concatenated([part._columns() for part in parts]))

    @classmethod
    def _of(cls, columns: EventColumns) -> Self:
        self = object.__new__(cls)
        self._set(columns)
        return self

    def _set(self, columns: EventColumns) -> None:
        self._data, self._steps, valid, dropped = columns.ordered()
        self._masks = valid, dropped

    def _columns(self) -> EventColumns:
        if self._masks is not None:
            return EventColumns(self._data, self._steps, *self._masks)
        return EventColumns({tag: self[tag] for tag in self._data}, {n: self._track(n) for n in self._steps}, {}, {})

    def _track(self, name: str) -> Leaves:
        if self._masks is not None:
            return self._steps[name]
        step = _one_event(self._steps[name], f"step track {name!r}")
        return dict.fromkeys(self._data, step)

    def _renamed(self, names: Mapping[str, str]) -> Self:
        if self._masks is None:
            return self.of({new: self._data[tag] for tag, new in names.items()}, self._steps)
        return super()._renamed(names)

    def __getitem__(self, tag: str) -> Any:
        value = super().__getitem__(tag)
        return _one_event(value() if callable(value) else value, f"tag {tag!r}") if self._masks is None else value

    def __delitem__(self, tag: str) -> None:
        super().__delitem__(tag)
        if self._masks is not None:
            for leaves in (*self._masks, *self._steps.values()):
                leaves.pop(tag, None)

    def __getattr__(self, name: str) -> stepdict:
        if name.startswith("_") or name not in self._steps:
            raise AttributeError(unknown("step track", name, () if name.startswith("_") else self._steps))
        return stepdict(self._track(name))

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._steps]

    @property
    def data(self) -> dict[str, Any]:
        """The values alone, by tag."""
        return dict(self.items())

    @property
    def steps(self) -> dict[str, stepdict]:
        """Every step track, by name."""
        return {name: stepdict(self._track(name)) for name in self._steps}

    @property
    def valid(self) -> dict[str, Any]:
        """Which entries happened, for the tags of which some may not have."""
        return {} if self._masks is None else dict(self._masks[0])

    @property
    def n_dropped(self) -> dict[str, Any]:
        """How many events a ring buffer dropped, for the tags that went through one."""
        return {} if self._masks is None else dict(self._masks[1])

    def __add__(self, other: logdict) -> logdict:
        """Append the events of `other`."""
        return logdict.concatenate([self, other]) if isinstance(other, logdict) else NotImplemented

    def reduce(self, mode: Mode = "mean", *, keep_steps: bool = True) -> Self:
        """Reduce every tag over its events, never over the axes of a value, to one event.

        Events that did not happen are ignored; if none of them happened, the result is masked.

        Args:
            mode: "mean", "sum", "min", "max", "var", "std", "first", "last" or "count"; an accumulator such as
                `histogram(64)`; or a function over the event axis, such as `jnp.median`. A function with an argument
                `axis` is called with `axis=0`, any other with all events along the first axis.
            keep_steps: Whether to keep the step of the last event (of the first one for "first").

        Raises:
            UnknownNameError: There is no such reduction.
            TypeError: The values of a tag cannot be reduced this way.
        """
        return self._of(self._columns().reduced(mode, keep_steps=keep_steps))

    def events(self) -> Iterator[LoggedEvent]:
        """Yield every event that happened, tag by tag, in the order of the events; waits for the device.

        Raises:
            TypeError: A leaf is traced.
        """
        data, tracks, valid, _ = self.to_numpy()._columns()
        for tag, value in data.items():
            for i in range(n_events(tag, value)):
                steps = {name: track[tag][i] for name, track in tracks.items() if tag in track}
                steps = {name: step for name, step in steps.items() if not is_missing(step)}
                yield LoggedEvent(tag, steps, row(value, i, valid.get(tag)))

    def records(self, *, run: str = "", wall_time: float | None = None) -> dict[str, list[Record]]:
        """Return a record of every event that happened, in the order of the events; waits for the device.

        A record's step is its primary one, else its index, which counts the events that a ring buffer dropped. Of steps
        that differ between lanes it is the largest. Lanes in which an event did not happen are NaN.

        Args:
            run: The name of the run.
            wall_time: When the events happened, in seconds since the Unix epoch; `None` for now.

        Raises:
            TypeError: A leaf is traced.
        """
        now = SystemClock.wall() if wall_time is None else wall_time
        first = {tag: int(np.max(n)) for tag, n in read(self.n_dropped).items()}
        records: dict[str, list[Record]] = {tag: [] for tag in self._data}
        for tag, tracks, value in self.events():
            index = first.get(tag, 0) + len(records[tag])
            steps = {name: np.max(track).item() for name, track in tracks.items()}
            step = steps.pop(PRIMARY, index)
            record = Record(tag=tag, index=index, step=step, wall_time=now, value=plain(value), run=run, steps=steps)
            records[tag].append(record)
        return records

    def __repr__(self) -> str:
        shown = set(islice(self._data, MAX_LINES + 1))
        data, steps, valid, dropped = self.filter(shown.__contains__)._columns()
        rows = []
        for tag, value in data.items():
            ok = valid.get(tag)
            tracks = [f"{name} {range_of(track[tag], ok)}".rstrip() for name, track in steps.items() if tag in track]
            cells = [", ".join(tracks), *notes(ok, dropped.get(tag))]
            for path, leaf in jax.tree_util.tree_leaves_with_path(value):
                name = jax.tree_util.keystr(path, simple=True, separator="/")
                rows.append((f"{tag}/{name}" if name else tag, *summary(leaf, ok), "  ".join(filter(None, cells))))
        return table(f"logdict of {len(self)} tag{'s' if len(self) != 1 else ''}", rows)


def _check(columns: EventColumns) -> None:
    """Check that steps and masks belong to a tag, and have its number of events."""
    data, steps, valid, n_dropped = columns
    named = {**{f"step track {name!r}": track for name, track in steps.items()}, "mask": valid}
    for what, leaves in {**named, "n_dropped": n_dropped}.items():
        for tag in leaves:
            if tag not in data:
                raise UnknownNameError("tag", tag, data, where=f"in {what}")
    for tag, value in data.items():
        n = n_events(tag, value)
        for what, leaves in named.items():
            if tag in leaves and np.shape(leaves[tag])[:1] != (n,):
                raise ValueError(f"Expected {n} events in the {what} of {tag!r}, got shape {np.shape(leaves[tag])}")


def _one_event(value: PyTree, where: str) -> Value:
    """Add an event axis of length 1 to every leaf."""

    def expand(leaf: object) -> jax.Array:
        try:
            return jnp.expand_dims(jnp.asarray(leaf), 0)
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeError(f"Expected arrays or numbers at {where}, got {type_name(leaf)}: {error}") from error

    return jax.tree.map(expand, value)


Layout = tuple[tuple[str, ...], tuple[tuple[str, tuple[str, ...]], ...], tuple[str, ...], tuple[str, ...]]


def _flatten(logs: logdict) -> tuple[list[Any], Layout]:
    data, steps, valid, dropped = logs._columns()
    groups = (data, *steps.values(), valid, dropped)
    layout = tuple(data), tuple((name, tuple(track)) for name, track in steps.items()), tuple(valid), tuple(dropped)
    return [leaf for group in groups for leaf in group.values()], layout


def _flatten_with_keys(logs: logdict) -> tuple[list[tuple[Any, Any]], Layout]:
    leaves, layout = _flatten(logs)
    tags, tracks, valid, dropped = layout
    named = [(f"steps[{name!r}]", group) for name, group in tracks] + [("valid", valid), ("n_dropped", dropped)]
    keys = [jax.tree_util.DictKey(tag) for tag in tags]
    keys += [jax.tree_util.GetAttrKey(f"{name}[{tag!r}]") for name, group in named for tag in group]
    return list(zip(keys, leaves, strict=True)), layout


def _unflatten(layout: Layout, leaves: Sequence[Any]) -> logdict:
    tags, tracks, valid, dropped = layout
    rest = iter(leaves)

    def take(group: Iterable[str]) -> dict[str, Any]:
        return {tag: next(rest) for tag in group}

    columns = take(tags), {name: take(group) for name, group in tracks}, take(valid), take(dropped)
    return logdict._of(EventColumns(*columns))


jax.tree_util.register_pytree_with_keys(logdict, _flatten_with_keys, _unflatten, _flatten)


def _tuples(value: Any) -> Any:
    """Return lists of JSON as the tuples that they were."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


# So that `jax.export` can save programs that return them.
for _kind in (logdict, stepdict):
    export.register_pytree_node_serialization(
        _kind,
        serialized_name=f"sightglass.{_kind.__name__}",
        serialize_auxdata=lambda layout: json.dumps(layout).encode(),
        deserialize_auxdata=lambda data: _tuples(json.loads(data)),
    )
