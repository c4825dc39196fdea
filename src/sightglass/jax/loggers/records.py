"""Records of logs: numbered across calls, and sorted by steps."""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from sightglass.core.guarded import is_container, rebuild
from sightglass.core.record import Record
from sightglass.jax.logs.columns import n_events, no_step
from sightglass.jax.logs.logdict import PRIMARY, logdict
from sightglass.jax.logs.reading import is_missing, plain, row
from sightglass.jax.pytree import PyTree


class RecordNumbers:
    """Numbers the events of one lane, by tag."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def records(self, logs: logdict, *, wall_time: float) -> list[Record]:
        """Return the records of the events that happened.

        Args:
            logs: NumPy arrays, events first.
            wall_time: When they happened, in seconds since the Unix epoch.

        Returns:
            Records of the same steps next to each other. If steps differ between the lanes of a `vmap` inside the
            program, the record has the largest; lanes in which an event did not happen are NaN.
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


def _happened(n: int, ok: npt.NDArray[np.bool_] | None) -> Sequence[int]:
    """Return which of n entries happened, in any lane."""
    return range(n) if ok is None else np.flatnonzero(ok.reshape(n, -1).any(axis=1)).tolist()


def _read(track: npt.NDArray[Any]) -> list[Any]:
    """Return the step of each event: the largest of its lanes; `None` for an event without this step."""
    if track.ndim > 1:
        return [None if is_missing(step) else np.max(step).item() for step in track]
    missing = _missing(track.dtype)
    return [None if step == missing or step != step else step for step in track.tolist()]  # noqa: PLR0124  NaN


@lru_cache
def _missing(dtype: np.dtype[Any]) -> Any:
    return no_step(np.empty(0, dtype))


def _value(value: PyTree, i: int, ok: npt.NDArray[np.bool_] | None) -> Any:
    """Return the value of one event for a record."""
    return value[i] if ok is None and type(value) is np.ndarray else plain(row(value, i, ok))


def together(by_tag: Mapping[str, list[Record]]) -> list[Record]:
    """Merge the records of several tags: records of the same steps are consecutive, and each tag keeps its order.

    The next record is the one with the lowest step that no other tag still has further ahead.
    """
    moments = [[_moment(record) for record in records] for records in by_tag.values()]
    if all(own == moments[0] for own in moments):
        return [record for row in zip(*by_tag.values(), strict=True) for record in row]
    queues = [deque(zip(own, records, strict=True)) for own, records in zip(moments, by_tag.values(), strict=True)]
    n_ahead = [Counter(own) for own in moments]
    found: list[Record] = []
    while any(queues):
        heads = {queue[0][0]: queue[0][1].step for queue in queues if queue}
        free = [moment for moment in heads if not _is_further_ahead(moment, queues, n_ahead)]
        moment = min(free or heads, key=lambda moment: heads[moment])
        for queue, counts in zip(queues, n_ahead, strict=True):
            if queue and queue[0][0] == moment:
                counts[moment] -= 1
                found.append(queue.popleft()[1])
    return found


def _moment(record: Record) -> Any:
    return record.step, *record.steps.items()


def _is_further_ahead(moment: object, queues: Sequence[Any], n_ahead: Sequence[Counter[Any]]) -> bool:
    """Return whether a tag has records of this moment after other ones."""
    return any(
        queue and queue[0][0] != moment and counts[moment] for queue, counts in zip(queues, n_ahead, strict=True)
    )


def _leaves(tag: str, value: PyTree) -> Iterator[tuple[str, Any]]:
    """Yield the leaves of a value, named by their paths with slashes; sequences of numbers are leaves."""
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
