"""What was logged: a value for each tag, with the steps of every event.

The rules:

* Every leaf has the events along its first axis. The leaves of one tag, its steps and its mask have one length: the
  number of the tag's events. Tags may differ in it, and keep the order in which they were logged.
* Every tag has step tracks of its own: `logs.step["loss"]` are the primary steps of "loss", `logs.epoch` is another
  track, and `logs.steps["epoch"]` reaches it where a method has that name. An event that was logged without a track
  that others of its tag have holds `no_step` there; on the host the track is left out for it.
* `valid` holds masks for those tags some of whose entries may not have happened: a branch not taken, the unused part of
  a ring buffer. Reductions leave these out; slices count entries, happened or not; reading on the host (`to_numpy`,
  `events`, `records`) gives only what happened. A mask may have further axes, the lanes of a `vmap`.
* `n_dropped` counts for some tags what a ring buffer no longer holds.
* A logdict is a pytree of all these, in the order of the tags, so that two logdicts in which the same was logged have
  one structure. Inside `vmap` and `scan` it is the function's own; a logdict that came out of one has the new axis in
  front of the events: reduce or slice it inside.
* `del` aside, it never changes: operations give another one. Arrays are shared, never copied.
* `==` is refused between two of them, as it would have to wait for the device and to choose a meaning for NaN: compare
  the leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from sightglass.core.clock import SystemClock
from sightglass.core.errors import UnknownNameError, unknown
from sightglass.core.record import Record
from sightglass.core.values import type_name

from .joining import Parts, concatenated, n_events
from .reading import is_missing, plain, read, row
from .reduction import REDUCTIONS, apply, check_numbers, library, name_of, pick, sum_type
from .summary import MAX_LINES, notes, range_of, summary, table

Mode = str | Callable[..., Any]

PRIMARY = "step"
NO_TRACKS: Mapping[str, Mapping[str, Any]] = {}
NO_LEAVES: dict[str, Any] = {}


class UnknownTagError(UnknownNameError, KeyError):
    """A tag under which nothing was logged."""


class LoggedEvent(NamedTuple):
    """One event, on the host.

    Attributes:
        tag: The name of the series.
        steps: Its step in each track.
        value: Its value, without the event axis; a NumPy masked array where only some lanes of a `vmap` happened.
    """

    tag: str
    steps: dict[str, Any]
    value: Any


class Slices:
    """What `slice` gives: `logs.slice[-10:]` takes these events, `logs.slice[-1]` one; the event axis stays."""

    __slots__ = ("_cut",)

    def __init__(self, cut: Callable[[slice], Any]) -> None:
        self._cut = cut

    def __getitem__(self, where: slice | int) -> Any:
        if isinstance(where, slice):
            return self._cut(where)
        if isinstance(where, int):
            return self._cut(slice(where, where + 1 or None))
        raise TypeError(f"Expected a slice such as [-10:], or one number, got {where!r}")


class stepdict(Mapping[str, Any]):
    """One step track: the steps of every tag, events first. A pytree, with the operations of `logdict`."""

    __slots__ = ("_leaves",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, leaves: Mapping[str, Any]) -> None:
        self._leaves = dict(leaves)

    def __getitem__(self, tag: str) -> Any:
        try:
            return self._leaves[tag]
        except KeyError:
            raise UnknownTagError("tag", tag, self._leaves) from None

    def __contains__(self, tag: object) -> bool:
        return tag in self._leaves

    def __iter__(self) -> Iterator[str]:
        return iter(self._leaves)

    def __len__(self) -> int:
        return len(self._leaves)

    def __delitem__(self, tag: str) -> None:
        self[tag]
        del self._leaves[tag]

    def __eq__(self, other: object) -> bool:
        return _refuse_equal(self, other)

    def __add__(self, other: Mapping[str, Any]) -> stepdict:
        return stepdict(logdict(self) + logdict(other))

    def __or__(self, other: Mapping[str, Any]) -> stepdict:
        return stepdict({**self, **other})

    @property
    def slice(self) -> Slices:
        """Take some of the events: `steps.slice[-10:]`."""
        return Slices(lambda cut: stepdict({tag: leaf[cut] for tag, leaf in self._leaves.items()}))

    def reduce(self, mode: Mode = "last") -> stepdict:
        """Reduce over the events, as `logdict.reduce` does."""
        return stepdict(logdict(self).reduce(mode))

    def filter(self, keep: Callable[[str], bool]) -> stepdict:
        """Keep the tags for which `keep(tag)` is true."""
        return stepdict({tag: leaf for tag, leaf in self._leaves.items() if keep(tag)})

    def prefix(self, prefix: str) -> stepdict:
        """Put a prefix before every tag."""
        return stepdict({prefix + tag: leaf for tag, leaf in self._leaves.items()})

    def to_numpy(self) -> stepdict:
        """Wait for the device and read all steps."""
        return stepdict({tag: read(leaf) for tag, leaf in self._leaves.items()})

    def __repr__(self) -> str:
        return table("stepdict", [(tag, *summary(leaf, None)) for tag, leaf in islice(self.items(), MAX_LINES + 1)])


class logdict(Mapping[str, Any]):
    """Values by tag, events first, with their steps.

    Args:
        data: A leaf or a pytree for each tag; every leaf has the events along its first axis.
        steps: By name of the track and tag: an array with the events along its first axis.
        valid: For some tags which of the entries happened: bools of shape (n_events,), or (n_events, *lanes) where the
            leaves have these lanes as well.
        n_dropped: For some tags how many entries are no longer held: an integer, or one per lane.

    Raises:
        ValueError: A leaf has no event axis, or one of another length than the rest of its tag.
        UnknownNameError: Steps or masks are given for a tag that is not there.

    Example:
        >>> logs = logdict({"loss": np.float32([3, 2, 1])}, {"step": {"loss": np.arange(3)}})
        >>> (logs.slice[-2:] + logs.slice[:1]).to_numpy().step["loss"].tolist()
        [1, 2, 0]
        >>> logs.reduce("mean")
        logdict of 1 tag
          loss  float32[1]  2  step 2
    """

    __slots__ = ("_data", "_dropped", "_given", "_steps", "_valid")
    __hash__ = None  # type: ignore[assignment]

    def __init__(
        self,
        data: Mapping[str, Any],
        steps: Mapping[str, Mapping[str, Any]] = NO_TRACKS,
        valid: Mapping[str, Any] | None = None,
        n_dropped: Mapping[str, Any] | None = None,
    ) -> None:
        self._given = False
        self._data: Any = dict(data)
        self._steps = {name: dict(track) for name, track in steps.items() if track}
        self._valid = dict(valid or {})
        self._dropped = dict(n_dropped or {})
        self._check()

    @classmethod
    def of(cls, data: Mapping[str, Any], steps: dict[str, Any]) -> Self:
        """Make the logdict of one event from values and steps without an event axis.

        The axis is put on when a value is read, and a value that is a function is called then: what nobody reads adds
        nothing to a traced program. It is not remembered, as it may be read in another trace.

        Args:
            data: A leaf or a pytree for each tag, or a function that returns one; Python scalars are leaves too. Kept
                as it is, not copied, as are the steps.
            steps: A number for each track.
        """
        self = object.__new__(cls)
        self._given = True
        self._data, self._steps, self._valid, self._dropped = data, steps, NO_LEAVES, NO_LEAVES
        return self

    @classmethod
    def concatenate(cls, parts: Sequence[logdict]) -> logdict:
        """Put the events of several one after the other: the sum of all, in one concatenation for each leaf.

        Dtypes are promoted as `jnp.concatenate` does.

        Raises:
            ValueError: Values of one tag differ in structure or in shape.
        """
        return cls._made(*concatenated([part._parts() for part in parts]))

    @classmethod
    def _made(
        cls, data: dict[str, Any], steps: dict[str, dict[str, Any]], valid: dict[str, Any], dropped: dict[str, Any]
    ) -> Self:
        """Make one of parts that fit together; steps and masks are put in the order of the tags."""
        self = object.__new__(cls)
        self._given = False
        self._data = data
        self._steps = {name: made for name, track in steps.items() if (made := _ordered(track, data))}
        self._valid, self._dropped = _ordered(valid, data), _ordered(dropped, data)
        return self

    def _check(self) -> None:
        named = {**{f"step track {name!r}": track for name, track in self._steps.items()}, "mask": self._valid}
        for what, leaves in {**named, "n_dropped": self._dropped}.items():
            for tag in leaves:
                if tag not in self._data:
                    raise UnknownNameError("tag", tag, self._data, where=f"in {what}")
        for tag, value in self._data.items():
            n = n_events(tag, value)
            for what, leaves in named.items():
                if tag in leaves and np.shape(leaves[tag])[:1] != (n,):
                    raise ValueError(f"Expected {n} events in the {what} of {tag!r}, got shape {np.shape(leaves[tag])}")
        self._steps = {name: _ordered(track, self._data) for name, track in self._steps.items()}
        self._valid, self._dropped = _ordered(self._valid, self._data), _ordered(self._dropped, self._data)

    def _parts(self) -> Parts:
        if not self._given:
            return self._data, self._steps, self._valid, self._dropped
        return {tag: self[tag] for tag in self._data}, {name: self._track(name) for name in self._steps}, {}, {}

    def _track(self, name: str) -> dict[str, Any]:
        if not self._given:
            return self._steps[name]
        step = _one_event(self._steps[name], f"step track {name!r}")
        return dict.fromkeys(self._data, step)

    def __getitem__(self, tag: str) -> Any:
        try:
            value = self._data[tag]
        except KeyError:
            raise UnknownTagError("tag", tag, self._data) from None
        return _one_event(value() if callable(value) else value, f"tag {tag!r}") if self._given else value

    def __contains__(self, tag: object) -> bool:
        return tag in self._data

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __delitem__(self, tag: str) -> None:
        if tag not in self._data:
            raise UnknownTagError("tag", tag, self._data)
        self._data = {other: value for other, value in self._data.items() if other != tag}  # they may be the user's own
        if not self._given:
            for leaves in (self._valid, self._dropped, *self._steps.values()):
                leaves.pop(tag, None)

    def __eq__(self, other: object) -> bool:
        return _refuse_equal(self, other)

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
        return dict(self._valid)

    @property
    def n_dropped(self) -> dict[str, Any]:
        """How many events a ring buffer dropped, for the tags that went through one."""
        return dict(self._dropped)

    def __add__(self, other: logdict) -> logdict:
        """Put the events of `other` behind those of this one."""
        return logdict.concatenate([self, other]) if isinstance(other, logdict) else NotImplemented

    def __or__(self, other: Mapping[str, Any]) -> logdict:
        """Take the tags of both; those of `other` replace those of this one, with their steps and masks."""
        if not isinstance(other, Mapping):
            return NotImplemented
        new = other if isinstance(other, logdict) else logdict(other)
        mine, theirs = self.filter(lambda tag: tag not in new)._parts(), new._parts()
        tracks = {name: {**mine[1].get(name, {}), **theirs[1].get(name, {})} for name in {**mine[1], **theirs[1]}}
        data = {tag: theirs[0].get(tag, mine[0].get(tag)) for tag in {**self._data, **theirs[0]}}
        return logdict._made(data, tracks, {**mine[2], **theirs[2]}, {**mine[3], **theirs[3]})

    @property
    def slice(self) -> Slices:
        """Take some of the entries of every tag, with their steps: `logs.slice[-10:]`, `logs.slice[::100]`."""

        def cut(where: slice) -> logdict:
            data, steps, valid, dropped = self._parts()
            data = {tag: jax.tree.map(lambda leaf: leaf[where], value) for tag, value in data.items()}
            steps = {name: {tag: leaf[where] for tag, leaf in track.items()} for name, track in steps.items()}
            return logdict._made(data, steps, {tag: ok[where] for tag, ok in valid.items()}, dropped)

        return Slices(cut)

    def filter(self, keep: Callable[[str], bool]) -> logdict:
        """Keep the tags for which `keep(tag)` is true."""
        if self._given:
            return logdict.of({tag: value for tag, value in self._data.items() if keep(tag)}, self._steps)
        data = {tag: value for tag, value in self._data.items() if keep(tag)}
        return logdict._made(data, self._steps, self._valid, self._dropped)

    def prefix(self, prefix: str) -> logdict:
        """Put a prefix before every tag."""
        if self._given:
            return logdict.of(prefixed(prefix, self._data), self._steps)
        steps = {name: prefixed(prefix, track) for name, track in self._steps.items()}
        rest = (prefixed(prefix, leaves) for leaves in (self._valid, self._dropped))
        return logdict._made(prefixed(prefix, self._data), steps, *rest)

    def reduce(self, mode: Mode = "mean", *, keep_steps: bool = True) -> logdict:
        """Reduce every tag over its events, never over the axes of a value, to one event.

        What did not happen is left out; where nothing happened at all, the result is masked.

        Args:
            mode: "mean", "sum", "min", "max", "var", "std", "first", "last" or "count"; an accumulator such as
                `histogram(64)`; or a function over the event axis, such as `jnp.median`: called with `axis=0` if it has
                such an argument, else with all events along the first axis.
            keep_steps: Keep the step of the last event (of the first one for "first").

        Raises:
            UnknownNameError: There is no such reduction.
            TypeError: The values of a tag cannot be reduced so.
        """
        data, steps, valid, dropped = self._parts()
        how = mode if hasattr(mode, "over") else name_of(mode) or mode
        out: Parts = ({}, {name: {} for name in steps}, {}, {})
        for tag, value in data.items():
            tracks = {name: track[tag] for name, track in steps.items() if keep_steps and tag in track}
            try:
                value, tracks, ok, lost = _reduced(how, value, tracks, valid.get(tag))
            except TypeError as error:
                raise TypeError(f"{error} (tag {tag!r})") from error
            out[0][tag] = value
            for name, track in tracks.items():
                out[1][name][tag] = track
            if ok is not None:
                out[2][tag] = ok
            if lost is not None or tag in dropped:
                out[3][tag] = (0 if lost is None else lost) + dropped.get(tag, 0)
        return logdict._made(*out)

    def to_numpy(self) -> logdict:
        """Wait for the device and read everything; only what happened is left.

        PRNG keys become their data, with its axes last. Masks stay only where an event happened in some lanes of a
        `vmap` and not in others.

        Raises:
            TypeError: It is called while tracing.
        """
        data, steps, valid, dropped = read(self)._parts()
        for tag, ok in tuple(valid.items()):
            rows = ok.any(axis=tuple(range(1, ok.ndim)))
            data[tag] = jax.tree.map(lambda x, rows=rows: x[rows], data[tag])
            for track in steps.values():
                if tag in track:
                    track[tag] = track[tag][rows]
            valid[tag] = ok[rows]
            if valid[tag].all():
                del valid[tag]
        return logdict._made(data, steps, valid, dropped)

    def events(self) -> Iterator[LoggedEvent]:
        """Give every event that happened, tag by tag, in the order of the events; waits for the device.

        Raises:
            TypeError: It is called while tracing.
        """
        host = self.to_numpy()
        for tag, value in host._data.items():
            ok = host._valid.get(tag)
            tracks = {name: track[tag] for name, track in host._steps.items() if tag in track}
            for i in range(n_events(tag, value)):
                steps = {name: track[i] for name, track in tracks.items() if not is_missing(track[i])}
                yield LoggedEvent(tag, steps, row(value, i, ok))

    def records(self, *, run: str = "", wall_time: float | None = None) -> dict[str, list[Record]]:
        """Make a record of every event that happened, in the order of the events; waits for the device.

        A record's step is its primary one, else its index, which counts what a ring buffer dropped. Of steps that
        differ between lanes it is the largest. Lanes in which an event did not happen are NaN.

        Args:
            run: The name of the run.
            wall_time: When the events happened, in seconds since the Unix epoch; now unless given.

        Raises:
            TypeError: It is called while tracing.
        """
        now = SystemClock.wall() if wall_time is None else wall_time
        first = {tag: int(np.max(n)) for tag, n in read(self._dropped).items()}
        records: dict[str, list[Record]] = {tag: [] for tag in self._data}
        for tag, tracks, value in self.events():
            index = first.get(tag, 0) + len(records[tag])
            steps = {name: np.max(track).item() for name, track in tracks.items()}
            step = steps.pop(PRIMARY, index)
            made = Record(tag=tag, index=index, step=step, wall_time=now, value=plain(value), run=run, steps=steps)
            records[tag].append(made)
        return records

    def __repr__(self) -> str:
        kept = dict(islice(self._data.items(), MAX_LINES + 1))
        data, steps, valid, dropped = self.filter(lambda tag: tag in kept)._parts()
        rows = []
        for tag, value in data.items():
            ok = valid.get(tag)
            tracks = [f"{name} {range_of(track[tag], ok)}".rstrip() for name, track in steps.items() if tag in track]
            said = [", ".join(tracks), *notes(ok, dropped.get(tag))]
            for path, leaf in jax.tree_util.tree_leaves_with_path(value):
                name = jax.tree_util.keystr(path, simple=True, separator="/")
                rows.append((f"{tag}/{name}" if name else tag, *summary(leaf, ok), "  ".join(filter(None, said))))
        return table(f"logdict of {len(self)} tag{'s' if len(self) != 1 else ''}", rows)


def _refuse_equal(mine: object, other: object) -> bool:
    if type(mine) is type(other) and mine is not other:
        raise TypeError(
            f"A {type(mine).__name__} cannot be compared with ==: compare the arrays, or jax.tree.structure"
        )
    return mine is other if type(mine) is type(other) else NotImplemented


def _ordered(leaves: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    return {tag: leaves[tag] for tag in data if tag in leaves}


def prefixed(prefix: str, leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Put a prefix before every key."""
    return {prefix + tag: leaf for tag, leaf in leaves.items()}


def _one_event(value: Any, where: str) -> Any:
    """Put an event axis of length 1 on every leaf."""

    def put(leaf: Any) -> Any:
        try:
            return jnp.expand_dims(jnp.asarray(leaf), 0)
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeError(f"Expected arrays or numbers at {where}, got {type_name(leaf)}: {error}") from error

    return jax.tree.map(put, value)


def _reduced(how: Any, value: Any, tracks: dict[str, Any], ok: Any) -> tuple[Any, dict[str, Any], Any, Any]:
    """Reduce the value, the steps and the mask of one tag; tell how many events a ring buffer dropped of them."""
    if n_events("", value) == 0 and jax.tree.leaves(value):
        value, tracks = jax.tree.map(lambda x: library(x).zeros((1, *x.shape[1:]), x.dtype), (value, tracks))
        ok = np.zeros(1, bool)
    if hasattr(how, "over"):
        done = how.over(value, ok)
        return done.value, {name: how.steps.over(x, ok).value for name, x in tracks.items()}, done.valid, done.n_dropped
    tracks = {name: pick(x, ok, last=how != "first") for name, x in tracks.items()}
    if how == "count":
        return _count(value, ok), tracks, None, None
    if isinstance(how, str):
        for leaf in jax.tree.leaves(value):
            check_numbers(leaf, how)
        result = jax.tree.map(lambda x: REDUCTIONS[how](x, ok), value)
    else:
        result = jax.tree.map(lambda x: apply(how, x, ok), value)
    return result, tracks, None if ok is None or how == "sum" else ok.any(axis=0, keepdims=True), None


def _count(value: Any, ok: Any) -> Any:
    if ok is not None:
        return ok.sum(axis=0, keepdims=True)
    leaves = jax.tree.leaves(value)
    xp = library(leaves[0]) if leaves else np
    return xp.full(1, n_events("", value), sum_type(np.dtype(np.int64), x64=xp is np))


def _flatten_steps(steps: stepdict) -> tuple[tuple[tuple[Any, Any], ...], tuple[str, ...]]:
    keyed = tuple((jax.tree_util.DictKey(tag), leaf) for tag, leaf in steps.items())
    return keyed, tuple(steps)


def _unflatten_steps(tags: tuple[str, ...], leaves: Sequence[Any]) -> stepdict:
    return stepdict(dict(zip(tags, leaves, strict=True)))


Layout = tuple[tuple[str, ...], tuple[tuple[str, tuple[str, ...]], ...], tuple[str, ...], tuple[str, ...]]


def _flatten(logs: logdict) -> tuple[list[Any], Layout]:
    data, steps, valid, dropped = logs._parts()
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

    return logdict._made(take(tags), {name: take(group) for name, group in tracks}, take(valid), take(dropped))


jax.tree_util.register_pytree_with_keys(
    stepdict, _flatten_steps, _unflatten_steps, lambda s: (list(s.values()), tuple(s))
)
jax.tree_util.register_pytree_with_keys(logdict, _flatten_with_keys, _unflatten, _flatten)
