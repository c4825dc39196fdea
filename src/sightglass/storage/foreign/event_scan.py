"""Scan event files: batches of intact frames, and the version record that names the program that wrote them.

A frame whose checksum is wrong is noted as damage and passed over. The version record decides how all others are
decoded, and a file has only one: if one of its bits is wrong, its checksum shows which, so it is repaired and noted.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from sightglass.core.codec import Buffer
from sightglass.core.errors import DamagedError, WireError
from sightglass.storage.format import framing
from sightglass.storage.format.framing import FOOTER_BYTES, HEADER_BYTES, Frame, RandomAccessFile, Scan
from sightglass.storage.format.protobuf import BYTES, FIXED64, VARINT, spans, varint
from sightglass.storage.format.summary import Dialect, EventHead, dialect, read_event

from . import mindspore, tensorboard, trackio_database, wandb_log
from .mlflow_told import META
from .wandb_log import WANDB_SUFFIX, check_header

HOST: Final = re.compile(
    r"(?:summary\.\d+\.(?:\d+\.)?(.+)_MS|tfevents\.\d+\.(.+?)(?:\.\d+\.\d+(?:\.v2)?|\.profile-empty)?)$"
)
"""The host in the name of a file of MindSpore or TensorBoard; behind it stand a process and a number."""
MAX_VERSION_BYTES: Final = 256  # writers' version records take about 50; trying every bit of these takes milliseconds
WINDOW_BYTES: Final = 4 * 2**20  # tens of thousands of scalars at a time, in little memory
SMALL_BYTES: Final = 2**14  # after a frame larger than the window: the next one is likely as large, and read by itself


class OtherFileError(DamagedError):
    """A file without any record whose name only resembles those of record files, such as "about.tfevents.md"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """The first record of a file.

    Attributes:
        dialect: The program whose messages follow.
        wall_time: When it was written, in seconds since the Unix epoch.
        frame: Where it lies; `None` if it is damaged or missing, and the file's name says which program wrote it.
        repaired: Whether one of its bits was wrong.
    """

    dialect: Dialect
    wall_time: float = 0.0
    frame: Frame | None = None
    repaired: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameBatch:
    """Intact frames.

    Attributes:
        offset: Where the data begin in the file.
        data: Bytes of the file.
        starts: Where the payloads begin in the data.
        lengths: The length of each payload, in bytes.
    """

    offset: int
    data: Buffer
    starts: Indexes
    lengths: Indexes

    def frame(self, i: int) -> Frame:
        """Return where a frame lies in the file."""
        return Frame(self.offset + int(self.starts[i]) - HEADER_BYTES, int(self.lengths[i]))

    def payload(self, i: int) -> memoryview:
        """Return the payload of a frame."""
        start = int(self.starts[i])
        return memoryview(self.data)[start : start + int(self.lengths[i])]


def host_in(name: str) -> str:
    """Return the host in the name of a file of MindSpore or TensorBoard, or an empty text.

    >>> host_in("events.out.events.summary.1700000000.3.gpu-1.lab_MS")
    'gpu-1.lab'
    """
    found = HOST.search(name)
    return "" if found is None else found[1] or found[2]


def file_dialect(path: Path) -> Dialect | None:
    """Return which program wrote a file; `None` if its first record is incomplete.

    Raises:
        OSError: The file cannot be read.
        DamagedError: The first record is not a version record, or its version is unknown or newer than this reader.
    """
    if trackio_database.find(path) is not None:
        return "trackio"
    if path.name == META:
        return "mlflow"
    file = RandomAccessFile(path)
    try:
        if path.suffix == WANDB_SUFFIX:
            return "wandb" if check_header(bytes(file.read(0, wandb_log.HEADER_BYTES)), path) else None
        version = read_version(file)
        return None if version is None else version.dialect
    finally:
        file.close()


def read_version(file: RandomAccessFile) -> Version | None:
    """Read the version record; `None` if it is incomplete.

    If it is damaged, and an intact record follows, or if TensorBoard's file has none, the file's name says which
    program wrote it.

    Raises:
        DamagedError: The first record is not one, or its version is unknown or newer than this reader.
    """
    begun = bytes(file.read(0, MAX_VERSION_BYTES))
    bits = int.from_bytes(begun, "little")
    for wrong in itertools.chain((0,), (1 << i for i in range(8 * len(begun)))):
        found = _first_event((bits ^ wrong).to_bytes(len(begun), "little"))
        if found is not None:
            frame, event = found
            if event.version is None and _named(file.path.name) == "tensorboard":  # CatBoost's, and TensorBoard's own
                return Version(dialect="tensorboard", wall_time=event.wall_time or 0.0)  # reader does without one
            try:
                name = dialect(event.version or "")
            except WireError as error:
                raise DamagedError(f"{file.path}: {error}") from None
            return Version(dialect=name, wall_time=event.wall_time or 0.0, frame=frame, repaired=wrong != 0)
    length = framing.header(begun)
    if len(begun) >= HEADER_BYTES and (length is None or Frame(0, length).end <= file.size()):
        named = _named(file.path.name)
        if named is not None and (_has_records(file) or (length is not None and _is_event(file, Frame(0, length)))):
            return Version(dialect=named)
        certain = named is None or named == "mindspore" or tensorboard.parse_name(file.path.name) is not None
        kind = DamagedError if certain else OtherFileError
        raise kind(f"Expected a record file, but its first record is damaged or missing: {file.path}")
    return None


def _named(name: str) -> Dialect | None:
    if mindspore.parse_name(name) is not None:
        return "mindspore"
    return "tensorboard" if "tfevents" in name else None  # as TensorBoard has it


def _is_event(file: RandomAccessFile, frame: Frame) -> bool:
    """Return whether an intact frame holds an event."""
    try:
        return framing.intact(file, frame) and bool(read_event(file.read(frame.payload, frame.length)))
    except WireError:
        return False


def _has_records(file: RandomAccessFile) -> bool:
    run = next(Scan(file).runs(), None)
    frames = () if run is None else zip(run.offsets, run.lengths, strict=True)
    return any(offset and framing.intact(file, Frame(offset, length)) for offset, length in frames)


def _first_event(begun: bytes) -> tuple[Frame, EventHead] | None:
    """Return the first event if its bytes are intact."""
    length = framing.header(begun)
    if length is None or Frame(0, length).end > len(begun):
        return None
    body = begun[HEADER_BYTES : HEADER_BYTES + length]
    footer = begun[HEADER_BYTES + length :][:FOOTER_BYTES]
    if framing.checksum(body) != int.from_bytes(footer, "little"):
        return None
    try:
        return Frame(0, length), read_event(memoryview(body))
    except WireError:
        return None


def batches(file: RandomAccessFile, scan: Scan, note: Callable[[Frame, memoryview], None]) -> Iterator[FrameBatch]:
    """Yield the intact frames from the scan's position on, up to the end of the file as it is now.

    Args:
        file: The file.
        scan: Holds the position, and the damage found so far.
        note: Called with each frame whose payload is damaged, and the payload.
    """
    end, ahead = file.size(), WINDOW_BYTES
    while scan.position < end:
        start = scan.position
        window = bytes(file.read(start, min(ahead, end - start)))
        starts, lengths, place = framing.intact_run(window)
        if starts:
            scan.position += place
            ahead = WINDOW_BYTES
            yield FrameBatch(offset=start, data=window, starts=np.array(starts), lengths=np.array(lengths))
            continue
        length = framing.header(window)
        if length is None:
            found = next(scan.runs(), None)  # searches for the next intact frame
            if found is None:
                break
            scan.position = found.offsets[0]
            continue
        frame = Frame(start, length)
        if frame.end > end:
            break
        ahead = SMALL_BYTES
        data = file.read(frame.payload, length + FOOTER_BYTES)
        scan.position = frame.end
        if framing.checksum(data[:length]) == int.from_bytes(data[length:], "little"):
            yield FrameBatch(offset=frame.payload, data=data, starts=np.zeros(1, np.int64), lengths=np.array([length]))
        else:
            note(frame, data[:length])
    scan.torn = max(0, end - scan.position)


# Decode events that hold one scalar each, many at a time: most files of other programs are full of them.
#
# Theory of operation
#     * Events of one length are rows of a matrix. One row is parsed, which gives the places of the wall time, the step
#       and the value. Another row with the same bytes elsewhere, and a step of as many bytes, has the same layout.
#     * Rows with the same other bytes are found by a hash, and compared byte by byte with a row that was parsed.
#     * All other events are left to be decoded one by one; no event is decoded differently here.

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
