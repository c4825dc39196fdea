"""Files of MindSpore's and TensorBoard's writers as parts of a recording.

Rule 1: whose file it is stands in its version record, and is told by nothing else.
Rule 2: every frame's checksum is computed when the file is scanned, before anything in it is believed. A frame that is
wrong costs itself, and is noted with the tag and step that its bytes tell, if the file has that tag elsewhere.
Rule 3: scalars are kept in memory, in 24 bytes each. Whatever else is logged stays in the file: known are its place and
a checksum of its own, which is compared when it is loaded. So one tensor is read without the rest of its event.
Rule 4: a tag that has several kinds of values makes several series: the kind that comes first in the file has the plain
tag, another one the tag and its kind, such as "kernel (tensor)". What no view can show, such as audio, is counted and
passed over.
Rule 5: what was logged together has one ordinal; see `grouping`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from sightglass.core.columns import Columns
from sightglass.core.errors import DamagedError, QueryError, WireError
from sightglass.core.values import type_name
from sightglass.storage.format import framing, tensor_proto
from sightglass.storage.format.block import Key
from sightglass.storage.format.block_entries import BlockEntries, BlockEntry
from sightglass.storage.format.framing import FOOTER_BYTES, HEADER_BYTES, Damage, Frame, RandomAccessFile, Scan
from sightglass.storage.format.protobuf import BYTES, key, spans, varint
from sightglass.storage.format.summary import double_field, varint_field
from sightglass.storage.tensors import partial_read, slices

from . import mindspore, tensorboard
from .catalogue import Catalogue, Places, ScalarRows
from .events import Version, batches, read_version

DIALECTS: Final = {"mindspore": (mindspore, False), "tensorboard": (tensorboard, True)}
"""The module that reads events, and whether those of one step are one log event."""
HEAD_BYTES: Final = 4_096
ARRAY: Final = re.compile(r"(\w+)\[([\d, ]*)\]")
TENSOR: Final = 8
NUMBERS: Final = {"mindspore": (3, 6, 8), "tensorboard": (4, 5, 6, 9, 12)}
"""The fields of TensorProto in which numbers lie as they are in memory."""


class EventFile:
    """A summary file of MindSpore's or an event file of TensorBoard's; see `reader.Part` for its attributes.

    Attributes:
        dialect: Empty as long as the file has no version record.
    """

    def __init__(self, path: Path) -> None:
        """Open a file and read what it has.

        Raises:
            OSError: It cannot be read.
            DamagedError: It is neither, or one that a newer version wrote.
        """
        self.path = path
        self.dialect = ""
        self.stored_as = ""  # `entries` tell of which series
        self.number = 0
        named = mindspore.parse_name(path.name)
        self.rank = named[1] if named else 0
        self.started = float(named[0] if named else tensorboard.parse_name(path.name) or 0)
        self._file = RandomAccessFile(path)
        self._scan = Scan(self._file)
        self._bad: dict[int, Damage] = {}
        self._verified: set[int] = set()
        self._catalogue = Catalogue(tensorboard, by_step=True, damage=self._scan.damage)
        self._size = -1
        try:
            version = read_version(self._file)
            if version is not None:
                self._begin(version)
            self.refresh()
        except BaseException:
            self.close()
            raise

    @property
    def damages(self) -> Sequence[Damage]:
        """What was found to be damaged so far."""
        return [*self._scan.damages, *self._bad.values()]

    @property
    def passed_over(self) -> Mapping[str, int]:
        """How many values were passed over because nothing can show them, by what they are."""
        return self._catalogue.passed_over

    @property
    def torn(self) -> int:
        """How many bytes at the end are no whole frame yet."""
        return self._scan.torn

    def entries(self) -> Mapping[Key, BlockEntries]:
        """Return the blocks of each series."""
        return {key: series.entries for key, series in self._catalogue.series.items()}

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    # Scanning

    def refresh(self) -> bool:
        """Look for growth, and tell whether there is any; torn tails and damage are no exceptions."""
        before = self._catalogue.n, len(self.damages)
        try:
            size = self._file.size()
            if size == self._size:
                return False
            self._size = size
            if not self.dialect:
                version = read_version(self._file)
                if version is None:
                    self._scan.torn = size
                    return False
                self._begin(version)
            for batch in batches(self._file, self._scan, self._note_frame):
                self._catalogue.take(batch)
            self.stored_as = next((e.stored_as for e in self.entries().values() if e.stored_as), "")
        except (OSError, DamagedError) as error:
            at = self._scan.position
            self._bad[at] = Damage(path=self.path, offset=at, length=0, what=str(error))
        return (self._catalogue.n, len(self.damages)) != before

    def _begin(self, version: Version) -> None:
        """Take in the version record; when it was written tells files of one second apart."""
        self.dialect = version.dialect
        if self.dialect not in DIALECTS:
            raise DamagedError(f"Expected a file of MindSpore's or TensorBoard's, got one of ours: {self.path}")
        written = version.wall_time if math.isfinite(version.wall_time) else 0.0
        self.started = self.started + written % 1 if self.started else written
        dialect, by_step = DIALECTS[self.dialect]
        self._catalogue = Catalogue(dialect, by_step=by_step, damage=self._scan.damage)
        self._scan.position = version.frame.end
        if version.mended:
            self._scan.damage(version.frame, "one bit of the version record is wrong; it was mended")

    def _note_frame(self, frame: Frame, payload: memoryview) -> None:
        """Note that a frame is damaged, and what its bytes tell of what it was."""
        tag, step = self._catalogue.told(payload)
        self._scan.damage(frame, "the payload is damaged", tag=tag, step=step)

    # Loading

    def load(self, entry: BlockEntry) -> Columns:
        """Read a block.

        Raises:
            DamagedError: It is not what was written.
        """
        block = self._block(entry)
        if isinstance(block, ScalarRows):
            values = block.values
            if isinstance(values, np.ndarray) and values.dtype == np.float32:
                with np.errstate(invalid="ignore"):  # of NaN that is signalling
                    values = values.astype(np.float64)
            return Columns(
                index=entry.index, steps=block.steps, wall_times=block.wall_times, values=values,
                ordinals=block.first + block.ordinals.astype(np.int64),
            )  # fmt: skip
        n = len(block.values)
        read = [self._read(entry, block, place) for place in block.values]
        alone = n == 1 and isinstance(read[0], np.ndarray)
        return Columns(
            index=entry.index, steps=np.full(n, block.step), wall_times=np.full(n, block.wall_time),
            values=read[0][None] if alone else read, ordinals=np.full(n, block.ordinal),
        )  # fmt: skip

    def load_slice(self, entry: BlockEntry, row: int, index: slices.Index | str) -> Any:
        """Read a part of the array that one record of a block is, in memory for little more than the part.

        Raises:
            DamagedError: The block is not what was written.
            QueryError: There is no such part, or the record is no array.
        """
        block = self._block(entry)
        raw = self._raw(entry, block.values[row]) if isinstance(block, Places) else None
        if raw is None:
            value = self.load(entry).values[row]
            if not isinstance(value, np.ndarray):
                raise QueryError(f"Expected an array to take {index!r:.60} of, got {type_name(value)}")
            return np.array(value[slices.resolve(index, value.shape)])
        offset, name, shape = raw
        if entry.offset not in self._verified:
            if not framing.intact(self._file, Frame(entry.offset, entry.length)):
                raise self._damaged(entry)
            self._verified.add(entry.offset)
        stored = np.dtype({"bool": "u1", "bfloat16": "<u2"}.get(name) or np.dtype(name).newbyteorder("<"))
        part = partial_read.read(self._file, offset, stored, shape, slices.resolve(index, shape))
        try:
            return tensor_proto.from_raw(part.tobytes(), name).reshape(part.shape)
        except WireError as error:
            raise self._damaged(entry, str(error)) from None

    def _block(self, entry: BlockEntry) -> ScalarRows | Places:
        return self._catalogue.series[entry.key].blocks[entry.offset]

    def _read(self, entry: BlockEntry, block: Places, place: tuple[int, int, int]) -> Any:
        """Read a value by itself: as the only one of an event."""
        begin, n, crc = place
        inner = key(1, BYTES) + varint(n)
        beginning = b"".join(
            [
                double_field(1, block.wall_time),
                varint_field(2, block.step),
                key(5, BYTES),
                varint(len(inner) + n),
                inner,
            ]
        )
        buffer = memoryview(bytearray(len(beginning) + n))
        buffer[: len(beginning)] = beginning
        value = buffer[len(beginning) :]
        try:
            got = self._file.readinto(entry.offset + HEADER_BYTES + begin, value)
            if got < n or framing.checksum(value) != crc:
                raise self._damaged(entry)
            return self._catalogue.dialect.decode_event(buffer.toreadonly(), self._catalogue.plugins)[0].value
        except (WireError, OSError) as error:
            raise self._damaged(entry, str(error)) from None

    def _damaged(
        self, entry: BlockEntry, what: str = "it is not what was there when the file was opened"
    ) -> DamagedError:
        """Note that a value cannot be read, once."""
        damage = Damage(
            path=self.path, offset=entry.offset, length=entry.length + HEADER_BYTES + FOOTER_BYTES, what=what,
            tag=entry.key.tag, step=entry.first_step,
        )  # fmt: skip
        return DamagedError(str(self._bad.setdefault(entry.offset, damage)))

    def _raw(self, entry: BlockEntry, place: tuple[int, int, int]) -> tuple[int, str, tuple[int, ...]] | None:
        """Tell where the numbers of an array lie in the file, its dtype and shape; `None` if they must be decoded."""
        array = ARRAY.fullmatch(entry.type)
        if array is None:
            return None
        name, shape = array[1], tuple(int(n) for n in array[2].split(",") if n.strip())
        start = entry.offset + HEADER_BYTES + place[0]
        told = self._file.read(start, min(place[1], HEAD_BYTES))
        try:
            tensor = next(
                (begin, n) for number, kind, begin, n in spans(told, 0, place[1]) if (number, kind) == (TENSOR, BYTES)
            )
            *_, (number, kind, begin, n) = spans(told, tensor[0], sum(tensor))
        except (WireError, StopIteration, ValueError):
            return None
        whole = begin + n == sum(tensor) and n == math.prod(shape) * tensor_proto.itemsize(name)
        return (start + begin, name, shape) if kind == BYTES and number in NUMBERS[self.dialect] and whole else None
