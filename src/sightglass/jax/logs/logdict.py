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

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from sightglass.core.clock import SystemClock
from sightglass.core.errors import UnknownNameError, unknown
from sightglass.core.record import Record
from sightglass.core.values import type_name
from sightglass.jax.pytree import PyTree

from .columns import EventColumns, Leaves, Mode, Value, n_events
from .joining import concatenated
from .reading import is_missing, plain, read, row
from .summary import MAX_LINES, notes, range_of, summary, table
from .tagged import Tagged, stepdict

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
