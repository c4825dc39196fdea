"""Decode events that hold one scalar each, many at a time: most files of other programs are full of them.

Theory of operation
    * Events of one length are rows of a matrix. One row is parsed, which gives the places of the wall time, the step
      and the value. Another row with the same bytes elsewhere, and a step of as many bytes, has the same layout.
    * Rows with the same other bytes are found by a hash, and compared byte by byte with a row that was parsed.
    * All other events are left to be decoded one by one; no event is decoded differently here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from sightglass.core.codec import Buffer
from sightglass.core.errors import WireError
from sightglass.storage.format.protobuf import BYTES, FIXED64, VARINT, spans, varint

MAX_LENGTH: Final = 1_024  # an event with one scalar is its tag and about 40 bytes
MAX_ROWS: Final = 2**16  # a matrix of at most 64 MiB
MIN_ROWS: Final = 4  # fewer are decoded faster one by one
MAX_TRIES: Final = 16  # layouts of one length: lengths of tag and step that add up to the same; real files have few
STEP_KEY: Final = 2 << 3 | VARINT

Bytes = npt.NDArray[np.uint8]
Indexes = npt.NDArray[np.int64]
Find = Callable[[memoryview, int, int], tuple[str, int] | None]
"""See `event_format.EventFormat.find_scalar`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarEvents:
    """Scalars of a file, one for each event.

    Attributes:
        tags: The tags.
        ids: Shape (n,), int32: the place of each event's tag in `tags`; -1 if the event must be decoded by itself.
        steps: Shape (n,), int64.
        wall_times: Shape (n,), float64, in seconds since the Unix epoch.
        values: Shape (n,), float64; the file holds float32.
    """

    tags: list[str]
    ids: npt.NDArray[np.int32]
    steps: Indexes
    wall_times: npt.NDArray[np.float64]
    values: npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where an event's wall time (8 bytes), step (`n_step` bytes, possibly 0) and value (4 bytes) begin."""

    tag: str
    wall: int
    step: int
    n_step: int
    value: int


def read_scalars(data: Buffer, starts: Indexes, lengths: Indexes, find: Find) -> ScalarEvents:
    """Decode the events that hold one scalar and nothing else.

    Args:
        data: The bytes of the file.
        starts: Where the payload of each event begins in them.
        lengths: The length of each payload, in bytes.
        find: Finds the scalar of one event.

    Raises:
        ValueError: A payload reaches beyond the data.
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


def _groups(lengths: Indexes) -> Iterator[Indexes]:
    """Yield the indexes of events of one length, at most `MAX_ROWS` at a time."""
    order = np.argsort(lengths, kind="stable")
    for group in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
        if len(group) >= MIN_ROWS and 0 < lengths[group[0]] <= MAX_LENGTH:
            yield from np.split(group, range(MAX_ROWS, len(group), MAX_ROWS))


def _read_rows(matrix: Bytes, rows: Indexes, find: Find, scalars: ScalarEvents, ids: dict[str, int]) -> None:
    """Decode events of one length, one layout after another."""
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


def _same_step_bytes(matrix: Bytes, place: _Place) -> npt.NDArray[np.bool_]:
    """Return which rows have a step of as many bytes at this place: all but its last byte have the high bit."""
    step = matrix[:, place.step : place.step + place.n_step]
    continues = np.arange(place.n_step) < place.n_step - 1
    same: npt.NDArray[np.bool_] = ((step > 127) == continues).all(axis=1)
    return same


def _same_bytes(matrix: Bytes, place: _Place, find: Find) -> Iterator[tuple[str, Indexes]]:
    """Yield the tag and the rows of events with this layout and equal bytes elsewhere."""
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
    with np.errstate(invalid="ignore"):  # signalling NaN
        scalars.values[rows] = _column(matrix, place.value, 4).view("<f4")[:, 0]
    steps = np.zeros(len(rows), np.uint64)
    for i in range(place.n_step):
        steps |= (matrix[:, place.step + i] & 127).astype(np.uint64) << np.uint64(7 * i)
    scalars.steps[rows] = steps.view(np.int64)


def _column(matrix: Bytes, begin: int, n: int) -> Bytes:
    return np.ascontiguousarray(matrix[:, begin : begin + n])


def _locate(event: memoryview, find: Find) -> _Place | None:
    """Return the layout of an event; `None` if it is not one scalar in its plainest form."""
    try:
        return _parts(event, find)
    except WireError:
        return None


def _parts(event: memoryview, find: Find) -> _Place | None:
    found: dict[int, int] = {}
    step = n_step = end = 0
    for number, kind, begin, length in spans(event):
        if number in found or (number, kind) not in ((1, FIXED64), (2, VARINT), (5, BYTES)):
            return None
        found[number] = begin
        if number == 2:
            encoded = varint(begin)
            step, n_step = end + 1, len(encoded)
            if event[end] != STEP_KEY or event[step : step + n_step] != encoded:
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
