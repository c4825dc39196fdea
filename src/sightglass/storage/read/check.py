"""Checks of record files: every byte is read, every checksum computed, every block decoded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sightglass.core.errors import DamagedError
from sightglass.storage import file_names, run_listing
from sightglass.storage.foreign.event_scan import OtherFileError
from sightglass.storage.format.block import Key, columns_of
from sightglass.storage.format.framing import Damage
from sightglass.storage.format.index import BlockEntries

from .record_file import RecordFile
from .recording import PROJECTOR, Open, open_part
from .run_series import loads
from .segment_reader import SegmentReader

Ends = dict[tuple[Path, float, int, Key], tuple[int, int, int]]
"""For each series of a process: the number after its last record, since which event that was recorded, and how many
events were missed before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Index numbers of a series that no record has, and no damage or missed event explains.

    Attributes:
        path: The file of the first record after the gap.
        tag: The series.
        index: The expected number.
        n: How many are missing; if negative, how many there are twice.
    """

    path: Path
    tag: str
    index: int
    n: int

    def __str__(self) -> str:
        if self.n < 0:
            return f"{self.tag!r} repeats {-self.n:,} records before index {self.index:,}"
        return f"{self.tag!r} lacks {self.n:,} records from index {self.index:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileReport:
    """The contents of a file.

    Attributes:
        path: The file.
        dialect: Which program wrote it, see `record_file.RecordFile`; empty if that is unknown.
        n_bytes: How long it is.
        n_frames: How many blocks, or events, it has.
        n_rows: How many intact records each series has.
        torn: How many bytes at its end are not a whole frame.
        damages: The damaged bytes.
        gaps: The missing records.
        passed_over: How many values cannot be shown, by what they are.
        refused: Why it was not read, or empty.
    """

    path: Path
    dialect: str = ""
    n_bytes: int = 0
    n_frames: int = 0
    n_rows: Mapping[str, int]
    torn: int = 0
    damages: Sequence[Damage] = ()
    gaps: Sequence[Gap] = ()
    passed_over: Mapping[str, int] = field(default_factory=dict)
    refused: str = ""

    @property
    def intact(self) -> bool:
        """Whether nothing is damaged or missing; a torn end is normal."""
        return not (self.damages or self.gaps or self.refused)

    def __str__(self) -> str:
        if self.refused:
            return f"{self.path.name}: not read: {self.refused}"
        n_rows = sum(self.n_rows.values())
        lines = [
            f"{self.path.name}: {self.dialect}, {self.n_bytes:,} bytes, {self.n_frames:,} frames, "
            f"{n_rows:,} records of {len(self.n_rows)} series"
        ]
        if self.torn:
            lines.append(
                f"  torn: the last {self.torn:,} bytes are not a whole frame: the file grows, or its writer was killed"
            )
        for damage in self.damages:
            at = "" if damage.step is None else f" at step {damage.step:g}"
            of = f" of {damage.tag!r}{at}" if damage.tag else ""
            lines.append(f"  damaged: offset {damage.offset:,}, {damage.length:,} bytes{of}: {damage.what}")
        if self.passed_over:
            lines.append("  not shown: " + ", ".join(f"{n:,} x {what}" for what, n in sorted(self.passed_over.items())))
        return "\n".join([*lines, *(f"  gap: {gap}" for gap in self.gaps)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The contents of the files of a run, or of a folder of runs.

    Attributes:
        path: What was checked.
        files: Its record files.
        projectors: TensorBoard's lists of embeddings, which are not shown.
    """

    path: Path
    files: Sequence[FileReport]
    projectors: Sequence[Path] = ()

    @property
    def intact(self) -> bool:
        """Whether nothing is damaged or missing."""
        return all(file.intact for file in self.files)

    @property
    def damages(self) -> list[Damage]:
        """The damaged bytes of all files."""
        return [damage for file in self.files for damage in file.damages]

    def __str__(self) -> str:
        n_bad = sum(not file.intact for file in self.files)
        verdict = "intact" if not n_bad else f"{n_bad} not intact"
        n_files = f"{len(self.files)} file{'s' if len(self.files) != 1 else ''}"
        lines = [f"{self.path}: {n_files if self.files else 'no record files'}{f', {verdict}' if self.files else ''}"]
        lines += (f"  {line}" for file in self.files for line in str(file).splitlines())
        return "\n".join([*lines, *(f"  {path.name}: embeddings, not shown" for path in self.projectors)])


def check(path: Path, *, open_part: Open = open_part) -> Report:
    """Read every byte of record files, and report what is damaged and what is intact.

    Args:
        path: A file, a run directory, or a folder of runs.
        open_part: Opens a file.
    """
    ends: Ends = {}
    listed = list(run_listing.FolderWalk(path))
    found = [path] if path.is_file() and not listed else sorted(Path(file.path) for one in listed for file in one.files)
    records = [file for file in found if file == path or file_names.is_record_file(file.name)]
    records += [Path(one.path) for one in listed if one.in_database]
    files = [_check(file, open_part, ends) for file in records]
    return Report(
        path=path,
        files=[file for file in files if file is not None],
        projectors=[file for file in found if file.name == PROJECTOR],
    )


def _check(path: Path, open_part: Open, ends: Ends) -> FileReport | None:
    """Check a file; return `None` for a file of another kind."""
    try:
        part: RecordFile = SegmentReader(path, cache=False) if path.suffix == file_names.SUFFIX else open_part(path)
    except OtherFileError:
        return None
    except (DamagedError, OSError) as error:
        return FileReport(path=path, n_rows={}, refused=str(error))
    try:
        return _examine(part, ends)
    finally:
        part.close()


def _examine(part: RecordFile, ends: Ends) -> FileReport:
    n_rows: dict[str, int] = {}
    n_frames = 0
    for key, sequence in part.blocks().items():
        entries = BlockEntries.of(key, sequence)
        n_frames += len(entries)
        n_intact = sum(len(columns) for columns in loads(part, entries) if columns is not None)
        for tag in columns_of(key) if key.kind == "wide" else (key.tag,):
            n_rows[tag] = n_rows.get(tag, 0) + n_intact
    gaps = [gap for key, found in part.entries().items() for gap in _gaps(part, BlockEntries.of(key, found), ends)]
    return FileReport(
        path=part.path, dialect=part.dialect, n_bytes=_size(part.path), n_frames=n_frames, n_rows=n_rows,
        torn=part.torn, damages=part.damages, gaps=gaps, passed_over=part.passed_over,
    )  # fmt: skip


def _size(path: Path) -> int:
    try:
        return file_names.stamp_of(path).n_bytes
    except OSError:
        return 0


def _gaps(part: RecordFile, entries: BlockEntries, ends: Ends) -> Iterator[Gap]:
    """Find missing numbers, from the end of the file that the process wrote before.

    A stream that was recorded again, since another event, begins with any number.
    """
    place = part.path.parent, part.started, part.rank, entries.key
    tag = entries.key.tag
    damaged = any(damage.concerns(tag, entries.key.values) for damage in part.damages)
    for index, n, since, n_missed in entries.rows[["index", "n", "since", "n_missed"]].tolist():
        end, since_before, before = ends.get(place, (index, since, 0))
        n_lacking = index - end if since == since_before else 0
        if n_lacking < 0 or (n_lacking > max(0, n_missed - before) and not damaged):
            yield Gap(path=part.path, tag=tag, index=end, n=n_lacking)
        ends[place] = index + n, since, n_missed
