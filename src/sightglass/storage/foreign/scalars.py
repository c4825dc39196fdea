"""Events that hold one scalar each, many at a time: most files of other programs are full of them.

Theory of operation
    * Events of one length are compared as rows of a matrix. One of them is parsed, which tells where in it the wall
      time, the step and the value lie. Rows whose other bytes are the same as in a parsed one mean the same, if the
      bytes of their steps are as many: those bytes decide where every field begins.
    * Rows with the same other bytes are found by a hash of them, and compared byte by byte with one that was parsed.
    * Whatever is anything else is left to be decoded one by one; no event is read differently here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.codec import Buffer
from sightglass.core.errors import WireError
from sightglass.storage.format.protobuf import BYTES, FIXED64, VARINT, spans, varint

MAX_LENGTH: Final = 1_024
MAX_ROWS: Final = 2**16
MIN_ROWS: Final = 4
MAX_TRIES: Final = 16
STEP_KEY: Final = 2 << 3 | VARINT

Bytes = npt.NDArray[np.uint8]
Indexes = npt.NDArray[np.int64]
Find = Callable[[memoryview, int, int], tuple[str, int] | None]
"""Tells the tag of a scalar and where its float32 lies, in an event's Summary.Value from one offset to another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarEvents:
    """Scalars of a file, one for each event.

    Attributes:
        tags: The names.
        ids: The place in `tags` of each event's tag; -1 where the event must be decoded by itself.
        steps: Of each event, int64.
        wall_times: Seconds since the Unix epoch.
        values: As float64; the file holds float32.
    """

    tags: list[str]
    ids: npt.NDArray[np.int32]
    steps: Indexes
    wall_times: npt.NDArray[np.float64]
    values: npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in an event its wall time (8 bytes), its step (n bytes, maybe none) and its value (4 bytes) begin."""

    tag: str
    wall: int
    step: int
    n_step: int
    value: int


def read_scalars(data: Buffer, starts: Indexes, lengths: Indexes, find: Find) -> ScalarEvents:
    """Read those of a file's events that hold one scalar and nothing else.

    Args:
        data: The bytes of the file.
        starts: Where in it the payload of each event begins.
        lengths: How many bytes each one has.
        find: The dialect's: `mindspore.find_scalar` or `tensorboard.find_scalar`.
    """
    n = len(starts)
    if n and not (starts.min() >= 0 and lengths.min() >= 0 and (starts + lengths).max() <= len(data)):
        raise ValueError(f"Expected payloads within {len(data)} bytes, got some beyond")
    scalars = ScalarEvents(
        tags=[], ids=np.full(n, -1, np.int32), steps=np.zeros(n, np.int64), wall_times=np.zeros(n), values=np.zeros(n)
    )
    ids: dict[str, int] = {}
    octets = np.frombuffer(data, np.uint8) if len(data) else np.zeros(0, np.uint8)
    for rows in _groups(lengths):
        length = int(lengths[rows[0]])
        matrix = np.lib.stride_tricks.sliding_window_view(octets, length)[starts[rows]]
        _read_rows(matrix, rows, find, scalars, ids)
    scalars.tags.extend(ids)
    return scalars


def fields_once(event: memoryview, begin: int, end: int) -> dict[int, tuple[int, int, int]] | None:
    """Return wire type, place and length of each field of a message in an event, `None` if one comes twice."""
    fields: dict[int, tuple[int, int, int]] = {}
    for number, kind, place, length in spans(event, begin, end):
        if number in fields:
            return None
        fields[number] = kind, place, length
    return fields


def _groups(lengths: Indexes) -> Iterator[Indexes]:
    """Return the indexes of events of one length, at most `MAX_ROWS` of them at a time."""
    order = np.argsort(lengths, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
        if len(group) >= MIN_ROWS and 0 < lengths[group[0]] <= MAX_LENGTH:
            yield from np.split(group, range(MAX_ROWS, len(group), MAX_ROWS))


def _read_rows(matrix: Bytes, rows: Indexes, find: Find, scalars: ScalarEvents, ids: dict[str, int]) -> None:
    """Read events of one length; several turns, because the same length can come of different parts."""
    left: Indexes = np.arange(len(rows))
    for _ in range(MAX_TRIES):
        if len(left) < MIN_ROWS:
            return
        place = _locate(matrix[left[0]].data, find)
        if place is None:
            left = left[1:]
            continue
        alike = _same_step_bytes(matrix[left], place)
        taken, left = left[alike], left[~alike]
        for tag, members in _same_bytes(matrix[taken], place, find):
            _store(matrix[taken[members]], rows[taken[members]], place, ids.setdefault(tag, len(ids)), scalars)


def _same_step_bytes(matrix: Bytes, place: _Place) -> Any:
    """Tell which rows have a step of as many bytes at this place; all but the last byte have the high bit."""
    step = matrix[:, place.step : place.step + place.n_step]
    return (step[:, :-1] > 127).all(1) & (step[:, -1:] <= 127).all(1)


def _same_bytes(matrix: Bytes, place: _Place, find: Find) -> Iterator[tuple[str, Indexes]]:
    """Return the tags and rows of events whose parts lie at this place, and whose other bytes are the same."""
    others = np.zeros((len(matrix), -(-matrix.shape[1] // 8) * 8), np.uint8)
    others[:, : matrix.shape[1]] = matrix
    for begin, n in ((place.wall, 8), (place.step, place.n_step), (place.value, 4)):
        others[:, begin : begin + n] = 0
    words = others.view(np.uint64)
    factors = np.random.default_rng(0).integers(0, 2**63, words.shape[1], np.uint64) * np.uint64(2) + np.uint64(1)
    hashes = words @ factors
    _, firsts, members, counts = np.unique(hashes, return_index=True, return_inverse=True, return_counts=True)
    if 2 * len(firsts) > len(matrix):
        return
    same = (words == words[firsts[members]]).all(1)
    order = np.argsort(members, kind="stable")
    for first, group in zip(firsts, np.split(order, np.cumsum(counts)[:-1]), strict=True):
        found = _locate(matrix[first].data, find)
        if found is not None and replace(found, tag=place.tag) == place:
            yield found.tag, group[same[group]]


def _store(matrix: Bytes, rows: Indexes, place: _Place, tag: int, scalars: ScalarEvents) -> None:
    scalars.ids[rows] = tag
    scalars.wall_times[rows] = _column(matrix, place.wall, 8).view("<f8")[:, 0]
    with np.errstate(invalid="ignore"):  # of NaN that is signalling
        scalars.values[rows] = _column(matrix, place.value, 4).view("<f4")[:, 0]
    steps = np.zeros(len(rows), np.uint64)
    for i in range(place.n_step):
        steps |= (matrix[:, place.step + i] & 127).astype(np.uint64) << np.uint64(7 * i)
    scalars.steps[rows] = steps.view(np.int64)


def _column(matrix: Bytes, begin: int, n: int) -> Bytes:
    return np.ascontiguousarray(matrix[:, begin : begin + n])


def _locate(event: memoryview, find: Find) -> _Place | None:
    """Tell where the parts of an event lie; `None` if it is not one scalar in the plainest form."""
    try:
        return _parts(event, find)
    except WireError:
        return None


def _parts(event: memoryview, find: Find) -> _Place | None:
    found: dict[int, Any] = {}
    step = n_step = end = 0
    for number, kind, begin, length in spans(event):
        if number in found or (number, kind) not in ((1, FIXED64), (2, VARINT), (5, BYTES)):
            return None
        found[number] = begin
        if number == 2:
            told = varint(begin)
            step, n_step = end + 1, len(told)
            if event[end] != STEP_KEY or event[step : step + n_step] != told:
                return None
            end = step + n_step
        else:
            end = begin + length
            if number == 5:
                summary = begin, end
    if not {1, 5} <= found.keys():
        return None
    values = list(spans(event, *summary))
    if len(values) != 1 or values[0][:2] != (1, BYTES):
        return None
    _, _, begin, length = values[0]
    scalar = find(event, begin, begin + length)
    return None if scalar is None else _Place(scalar[0], found[1], step, n_step, scalar[1])
