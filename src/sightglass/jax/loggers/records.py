"""Records of what was logged: numbered from one call to the next, and put together by steps."""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from sightglass.core.record import Record
from sightglass.core.values import is_container, rebuild
from sightglass.jax.logs.columns import n_events, no_step
from sightglass.jax.logs.logdict import PRIMARY, logdict
from sightglass.jax.logs.reading import is_missing, plain, row


class Numbers:
    """The numbers that the events of one lane have, by tag."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def records(self, logs: logdict, *, wall_time: float) -> list[Record]:
        """Make records of what happened.

        Args:
            logs: NumPy arrays, events first.
            wall_time: When it was, in seconds since the Unix epoch.

        Returns:
            Those of one moment next to each other. Of steps that differ between the lanes of a `vmap` inside the
            program it is the largest; lanes in which an event did not happen are NaN.
        """
        data, steps, valid, dropped = logs._columns()
        by_tag: dict[str, list[Record]] = {}
        for tag, value in data.items():
            index = self._next.get(tag, 0) + (int(np.max(dropped[tag])) if tag in dropped else 0)
            tracks = {name: _read(track[tag]) for name, track in steps.items() if tag in track}
            for i in _happened(n_events(tag, value), valid.get(tag)):
                at = {name: track[i] for name, track in tracks.items() if track[i] is not None}
                step = at.pop(PRIMARY, index)
                for name, item in _leaves(tag, _value(value, i, valid.get(tag))):
                    record = Record(tag=name, index=index, step=step, wall_time=wall_time, value=item, steps=at)
                    by_tag.setdefault(name, []).append(record)
                index += 1
            self._next[tag] = index
        return together(by_tag)


def _happened(n: int, ok: Any) -> Sequence[int]:
    """Return which of n entries happened, in any lane."""
    return range(n) if ok is None else np.flatnonzero(ok.reshape(n, -1).any(axis=1)).tolist()


def _read(track: Any) -> list[Any]:
    """Return the step of each event: the largest of its lanes', `None` where there is none."""
    if track.ndim > 1:
        return [None if is_missing(step) else np.max(step).item() for step in track]
    missing = _missing(track.dtype)
    return [None if step == missing or step != step else step for step in track.tolist()]  # noqa: PLR0124  NaN


@lru_cache
def _missing(dtype: Any) -> Any:
    return no_step(np.empty(0, dtype))


def _value(value: Any, i: int, ok: Any) -> Any:
    """Return one event as a record holds it."""
    return value[i] if ok is None and type(value) is np.ndarray else plain(row(value, i, ok))


def together(by_tag: Mapping[str, list[Record]]) -> list[Record]:
    """Put the records of several tags in one order: those of the same steps together, each tag's own as they are.

    Of what could come next, it is the one of the lowest step that no other tag has still to come to.
    """
    places = [[_place(record) for record in records] for records in by_tag.values()]
    if all(own == places[0] for own in places):
        return [record for row in zip(*by_tag.values(), strict=True) for record in row]
    queues = [deque(zip(own, records, strict=True)) for own, records in zip(places, by_tag.values(), strict=True)]
    to_come = [Counter(own) for own in places]
    found: list[Record] = []
    while any(queues):
        heads = {queue[0][0]: queue[0][1].step for queue in queues if queue}
        free = [place for place in heads if not _comes_later(place, queues, to_come)]
        place = min(free or heads, key=lambda place: heads[place])
        for queue, counts in zip(queues, to_come, strict=True):
            if queue and queue[0][0] == place:
                counts[place] -= 1
                found.append(queue.popleft()[1])
    return found


def _place(record: Record) -> Any:
    return record.step, *record.steps.items()


def _comes_later(place: Any, queues: Sequence[Any], to_come: Sequence[Counter[Any]]) -> bool:
    """Tell whether a tag has others to come first."""
    return any(queue and queue[0][0] != place and counts[place] for queue, counts in zip(queues, to_come, strict=True))


def _leaves(tag: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Go through a value by names with slashes; several numbers stay together."""
    if dataclasses.is_dataclass(value) and is_container(value):
        value = rebuild(value, lambda item: item)
    elif hasattr(value, "_asdict"):
        value = value._asdict()
    elif isinstance(value, list | tuple) and not all(
        isinstance(item, bool | int | float | np.generic) for item in value
    ):
        value = {str(i): item for i, item in enumerate(value)}
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(f"{tag}/{name}", item)
    else:
        yield tag, value
