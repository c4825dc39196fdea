"""MindSpore's and TensorBoard's files as files of a recording.

* The version record says which program wrote a file; only where it is damaged, the file's name does.
* The scan checks every frame's checksum before anything in it is used. A damaged frame costs only itself; it is noted
  with the tag and step that its bytes show, if the file has that tag elsewhere.
* A value that stays in the file has a checksum of its own, which is compared when it is loaded.
* Values that no view can show, such as graphs, are counted and passed over.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from sightglass.core.columns import Columns
from sightglass.core.errors import DamagedError, WireError
from sightglass.storage.format import framing, summary
from sightglass.storage.format.block import Key
from sightglass.storage.format.framing import FOOTER_BYTES, HEADER_BYTES, Damage, Frame, RandomAccessFile, Scan
from sightglass.storage.format.index import BlockEntry, SessionStart
from sightglass.storage.format.protobuf import BYTES, spans
from sightglass.storage.tensors import slices

from . import mindspore, tensorboard
from .event_columns import EventFileColumns, EventSeries, StoredValue
from .event_format import EventFormat
from .event_scan import Version, batches, host_in, read_version
from .foreign_file import ForeignFile
from .tensorboard_charts import ChartLayout

FORMATS: Final[Mapping[str, EventFormat]] = {"mindspore": mindspore, "tensorboard": tensorboard}
HEAD_BYTES: Final = 4_096  # what a tensor has before its numbers: tag, shape and metadata, with room to spare
ARRAY: Final = re.compile(r"(\w+)\[([\d, ]*)\]")
TENSOR: Final = 8


class EventFile(ForeignFile):
    """A summary file of MindSpore or an event file of TensorBoard; see `record_file.RecordFile` for its attributes.

    Attributes:
        dialect: Empty until the file has a version record.
    """

    def __init__(self, path: Path) -> None:
        """Open a file and read what it has.

        Raises:
            OSError: The file cannot be read.
            DamagedError: It is neither of the two, or a newer version of one.
        """
        self.path = path
        self._host = host_in(path.name)
        named = mindspore.parse_name(path.name)
        self.rank = named[1] if named else 0
        self.started = float(named[0] if named else tensorboard.parse_name(path.name) or 0)
        self._file = RandomAccessFile(path)
        self._scan = Scan(self._file)
        self._bad: dict[int, Damage] = {}
        self._verified: set[int] = set()
        self._repaired = 0
        self._columns = EventFileColumns(tensorboard, damage=self._scan.damage)
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
    def series(self) -> Mapping[Key, EventSeries]:
        """Its series."""
        return self._columns.series

    @property
    def damages(self) -> Sequence[Damage]:
        """The damage found so far."""
        return [*self._scan.damages, *self._bad.values()]

    @property
    def passed_over(self) -> Mapping[str, int]:
        """How many values cannot be shown, by what they are."""
        return self._columns.passed_over

    @property
    def told(self) -> Mapping[str, Any]:
        """What the file and its name say of its run, as fields of `run_file.RunFile`."""
        said = {name: value for name, value in self._columns.told.items() if name != "metrics"}
        return said | ({"host": self._host} if self._host else {})

    @property
    def metrics(self) -> list[str]:
        """The tags that the file calls the metrics of its runs."""
        metrics: list[str] = self._columns.told.get("metrics", [])
        return metrics

    @property
    def session_starts(self) -> Sequence[SessionStart]:
        """Where the program says that it starts again."""
        return self._columns.session_starts

    @property
    def charts(self) -> list[ChartLayout]:
        """The charts of several tags that the file asks for."""
        return [chart for charts in self._columns.charts.values() for chart in charts]

    @property
    def torn(self) -> int:
        """How many bytes at the end are not a whole frame yet."""
        return self._scan.torn

    # Scanning

    def refresh(self) -> bool:
        """Read what was appended, and return whether there was anything; torn tails and damage do not raise."""
        before = self._n_found()
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
                self._columns.read(batch, lost=len(self._scan.damages) > self._repaired)
            self.stored_as = next((e.stored_as for e in self.entries().values() if e.stored_as), "")
        except (OSError, DamagedError) as error:
            at = self._scan.position
            self._bad[at] = Damage(path=self.path, offset=at, length=0, what=str(error))
        return self._n_found() != before

    def _n_found(self) -> tuple[int, ...]:
        return self._columns.n, len(self.session_starts), len(self.damages)

    def _begin(self, version: Version) -> None:
        """Take the format and the start from the version record; its fraction separates files of one second."""
        self.dialect = version.dialect
        if self.dialect not in FORMATS:
            raise DamagedError(f"Expected a file of MindSpore or TensorBoard, got one of sightglass: {self.path}")
        written = version.wall_time if math.isfinite(version.wall_time) else 0.0
        self.started = self.started + written % 1 if self.started else written
        self._columns = EventFileColumns(FORMATS[self.dialect], damage=self._scan.damage)
        if version.frame is None:
            return  # the scan finds the damage
        self._scan.position = version.frame.end
        if version.repaired:
            self._repaired = 1
            self._scan.damage(version.frame, "one bit of the version record is wrong; it was repaired")

    def _note_frame(self, frame: Frame, payload: memoryview) -> None:
        """Note a damaged frame, with the tag and step that its bytes show."""
        key, step = self._columns.identify(payload)
        tag, values = ("", "") if key is None else (key.tag, key.values)
        self._scan.damage(frame, "the payload is damaged", tag=tag, step=step, values=values)

    # Loading

    def load(self, entry: BlockEntry) -> Columns:
        """Read a block.

        Raises:
            DamagedError: The bytes are not those that were written.
        """
        values = self._block(entry).values
        if isinstance(values, np.ndarray) and values.dtype == np.float32:
            with np.errstate(invalid="ignore"):  # signalling NaN
                values = values.astype(np.float64)
        elif isinstance(values[0], StoredValue):
            values = [self._read(entry, stored) for stored in values]
            if len(values) == 1 and isinstance(values[0], np.ndarray):
                values = values[0][None]
        return self._with(entry, values)

    def load_slice(self, entry: BlockEntry, row: int, index: slices.Index | str) -> Any:
        """Read a part of the array in one record of a block; it takes little more memory than the part.

        Raises:
            DamagedError: The block is not what was written.
            QueryError: The array has no such part, or the record is not an array.
        """
        stored = self._block(entry).values[row]
        raw = self._raw(entry, stored) if isinstance(stored, StoredValue) else None
        if raw is None:
            return super().load_slice(entry, row, index)
        offset, name, shape = raw
        if entry.offset not in self._verified:
            if not framing.intact(self._file, Frame(entry.offset, entry.length)):
                raise self._damaged(entry)
            self._verified.add(entry.offset)
        dtype = np.dtype({"bool": "u1", "bfloat16": "<u2"}.get(name) or np.dtype(name).newbyteorder("<"))
        part = slices.read(self._file, offset, dtype, shape, slices.resolve(index, shape))
        try:
            return summary.from_raw(part.tobytes(), name).reshape(part.shape)
        except WireError as error:
            raise self._damaged(entry, str(error)) from None

    def _read(self, entry: BlockEntry, stored: StoredValue) -> Any:
        buffer = memoryview(bytearray(stored.length))
        try:
            n = self._file.readinto(entry.offset + HEADER_BYTES + stored.begin, buffer)
            if n < stored.length or framing.checksum(buffer) != stored.crc:
                raise self._damaged(entry)
            return self._columns.format.decode_value(buffer.toreadonly(), self._columns.plugins).value
        except (WireError, OSError) as error:
            raise self._damaged(entry, str(error)) from None

    def _damaged(self, entry: BlockEntry, what: str = "it changed after the file was opened") -> DamagedError:
        """Note once that a value cannot be read."""
        damage = Damage(
            path=self.path, offset=entry.offset, length=entry.length + HEADER_BYTES + FOOTER_BYTES, what=what,
            tag=entry.key.tag, step=entry.first_step, values=entry.key.values,
        )  # fmt: skip
        return DamagedError(str(self._bad.setdefault(entry.offset, damage)))

    def _raw(self, entry: BlockEntry, stored: StoredValue) -> tuple[int, str, tuple[int, ...]] | None:
        """Return the offset, dtype and shape of an array whose numbers lie raw in the file; `None` for others."""
        array = ARRAY.fullmatch(entry.type)
        if array is None:
            return None
        name, shape = array[1], tuple(int(n) for n in array[2].split(",") if n.strip())
        start = entry.offset + HEADER_BYTES + stored.begin
        head = self._file.read(start, min(stored.length, HEAD_BYTES))
        fields = spans(head, 0, stored.length)
        try:
            summary.check_sizes(shape)
            tensor = next((begin, n) for number, kind, begin, n in fields if (number, kind) == (TENSOR, BYTES))
            *_, (number, kind, begin, n) = spans(head, tensor[0], sum(tensor))
        except (WireError, StopIteration, ValueError):
            return None
        whole = begin + n == sum(tensor) and n == math.prod(shape) * summary.itemsize(name)
        raw = kind == BYTES and number in self._columns.format.RAW_FIELDS
        return (start + begin, name, shape) if raw and whole else None
