"""Export recordings to other formats.

* One block is in memory at a time; nothing is loaded whole.
* Values that a format cannot hold, or changes, are counted by tag and reason; nothing happens silently.
* A file appears when it is complete. Existing files are replaced only with `overwrite`, and nothing is removed.
* Logged values and the records of queries are exported, under their tags. If a query has the tag of another series, it
  gets its text. Values of several kinds under one tag keep it: the formats tell them apart by themselves.

Parquet and CSV: see `tables`; pictures, sounds, tables as files: see `media_files`. TensorBoard and
MindSpore: numbers become float32, and larger ones infinite; steps are integers, so others are cut; mappings become tags
with slashes. TensorBoard's files hold arrays of every dtype, texts, pictures and sounds, but no counts of the values of
a histogram that were not finite. MindSpore's files hold arrays as float32, PNG pictures and histograms, but no texts,
sounds and complex numbers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal, get_args

from sightglass.core.errors import QueryError, StorageError, UnknownNameError
from sightglass.storage.read.recording import Recording
from sightglass.storage.read.series import Series

from .atomic_file import AtomicFiles, WrittenFile, atomic_files
from .cells import TagCells, cells
from .event_files import write_events
from .losses import Loss, Losses, blocks
from .media_files import MediaFolder
from .tables import ParquetFolder, Rows, TableLayout, with_all_columns, write_csv

Form = Literal["parquet", "csv", "tensorboard", "mindspore", "files"]
_Chosen = Mapping[str, Sequence[tuple[str, Series]]]

FORMS: Final[tuple[Form, ...]] = get_args(Form)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """The result of an export: the files, and the values that were left out or changed."""

    files: Sequence[WrittenFile]
    losses: Sequence[Loss]

    def __str__(self) -> str:
        return "\n".join(map(str, (*self.files, *self.losses)))


def export(
    recordings: Recording | Mapping[str, Recording],
    *,
    to: Form,
    out: str | os.PathLike[str] | None = None,
    tags: Sequence[str] = (),
    overwrite: bool = False,
) -> Exported:
    """Export recordings to another format.

    Args:
        recordings: A recording, or several by the names of their runs.
        to: The format.
        out: A file for CSV and NumPy, else a directory. By default in the current directory, named after the run or
            the folder of runs.
        tags: Only these tags; by default all.
        overwrite: Whether existing files may be replaced.

    Raises:
        QueryError: `to` is not a format.
        StorageError: The files exist already, or cannot be written.
        UnknownNameError: No recording has one of the tags.
        MissingExtraError: Parquet needs pyarrow.
    """
    if to not in FORMS:
        raise QueryError(f"Expected one of {', '.join(FORMS)} to export to, got {to!r}")
    runs = {recordings.info.name: recordings} if isinstance(recordings, Recording) else recordings
    chosen = {name: _chosen(recording, tags) for name, recording in runs.items()}
    _check_tags(tags, runs, chosen)
    losses = Losses()
    for name, recording in runs.items():
        if not tags:
            losses.not_values(name, recording)
    target = Path(out) if out is not None else _here(list(runs.values()), to)
    try:
        with atomic_files(target, overwrite=overwrite) as files:
            match to:
                case "parquet":
                    _write_parquet(files, chosen, losses)
                case "csv":
                    _write_csv(files, chosen, losses)
                case "files":
                    _write_files(files, chosen, losses)
                case _:
                    write_events(files, runs, chosen, losses, to=to)
    except OSError as error:
        raise (
            error if isinstance(error, StorageError) else StorageError(f"Cannot export to {target}: {error}")
        ) from error
    return Exported(files=files.written, losses=losses.all())


def _chosen(recording: Recording, tags: Sequence[str]) -> list[tuple[str, Series]]:
    """Return the series to export, with the tags that they get."""
    found: list[tuple[str, Series]] = []
    keys, taken = recording.keys(), set[str]()
    for key in keys:
        if key.kind in ("logged", "stream"):
            tag = key.query if key.kind == "stream" and key.tag in taken else key.tag
            if not tags or not {key.tag, tag, key.name}.isdisjoint(tags):
                found.append((tag, recording.series(key)))
                taken.add(tag)
    others = (key for tag in tags if tag not in taken for key in recording.keys_in(tag) if key.tag == tag)
    return found + [(series.tag, series) for series in map(recording.series, others)]


def _check_tags(tags: Sequence[str], runs: Mapping[str, Recording], chosen: _Chosen) -> None:
    known = {name for found in chosen.values() for tag, series in found for name in (tag, series.tag, series.key.name)}
    for tag in tags:
        if tag not in known:
            raise UnknownNameError("tag", tag, sorted({tag for recording in runs.values() for tag in recording.tags()}))


def _here(recordings: Sequence[Recording], to: Form) -> Path:
    path = (
        recordings[0].path.resolve()
        if len(recordings) == 1
        else Path(os.path.commonpath([r.path.resolve() for r in recordings]))
    )
    name = path.stem if path.is_file() else path.name
    return Path(f"{name}.{to}" if to == "csv" else f"{name}-{to}")


def _all_cells(chosen: Sequence[tuple[str, Series]], run: str, losses: Losses) -> Iterator[TagCells]:
    for name, series in chosen:
        for columns in blocks(name, series, run, losses):
            yield from cells(name, columns, partial(losses.add, run))


def _write_parquet(files: AtomicFiles, chosen: _Chosen, losses: Losses) -> None:
    before = losses.save()

    def write(layout: TableLayout) -> Sequence[tuple[Path, int]]:
        losses.restore(before)
        written: list[tuple[Path, int]] = []
        with ParquetFolder(files.folder, layout) as folder:
            for run, found in chosen.items():
                sheets = MediaFolder(files.folder / "tables" / run if len(chosen) > 1 else files.folder / "tables", run)
                for some in _all_cells(found, run, losses):
                    if some.kind == "tables":
                        sheets.add_parquet(some)
                    else:
                        folder.add(run, some)
                written += sheets.written.items()
            return [*folder.close(), *written]

    for path, n in with_all_columns(write):
        files.put(path, n)


def _write_csv(files: AtomicFiles, chosen: _Chosen, losses: Losses) -> None:
    path, before = files.folder / "table.csv", losses.save()

    def write(layout: TableLayout) -> Sequence[tuple[Path, int]]:
        losses.restore(before)
        rows: Rows = ((run, some) for run, found in chosen.items() for some in _all_cells(found, run, losses))
        return [(path, write_csv(path, rows, layout, losses.add))]

    for _, n in with_all_columns(write):
        files.put(path, n, alone=True)


def _write_files(files: AtomicFiles, chosen: _Chosen, losses: Losses) -> None:
    for run, found in chosen.items():
        folder = MediaFolder(files.folder / run if len(chosen) > 1 else files.folder, run)
        for some in _all_cells(found, run, losses):
            folder.add(some, losses.add)
        for path, n in folder.written.items():
            files.put(path, n)
