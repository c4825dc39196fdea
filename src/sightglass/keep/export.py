"""What was recorded, in other formats.

Rule 1: one block is in memory at a time; nothing is loaded whole.
Rule 2: what a format cannot hold is left out, and what it changes is told, by tag and reason; nothing happens silently.
Rule 3: a file appears when it is complete. What is there is replaced only if that is asked for, and nothing is removed.
Rule 4: what was logged and the records of kept queries are exported, under their tags; of several with one tag, the
others under the text of their query.

Parquet and CSV: see `tables`; NumPy: see `npz`. TensorBoard and MindSpore: numbers become float32, so those beyond it are
infinite; steps are integers, so others are cut; mappings become tags with slashes. TensorBoard's files hold arrays of
every dtype, texts and pictures, but not how many values of a histogram were not finite. MindSpore's hold arrays as
float32, PNG pictures and histograms, but no texts and no complex numbers.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from heapq import merge
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal, get_args

import numpy as np

from sightglass.core.errors import KeepError, QueryError, UnknownNameError

from . import mindspore, tensorboard
from .block import Key
from .cells import Cells, cells
from .foreign import leaves
from .framing import frame
from .npz import NpzFile
from .series import Series
from .store import Recording
from .summary import MINDSPORE_VERSION, TENSORBOARD_VERSION, encode_version
from .tables import Layout, ParquetFolder, Rows, as_wide_as_needed, write_csv

Form = Literal["parquet", "csv", "npz", "tensorboard", "mindspore"]
FORMS: Final[tuple[Form, ...]] = get_args(Form)

BUFFER_BYTES: Final = 2**20
LARGEST: Final = float(np.finfo(np.float32).max)
LIGHT: Final = frozenset(("float", "int", "bool", "float64", "float32", "int64", "int32"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A file that was written, and how many records are in it."""

    path: Path
    n: int

    def __str__(self) -> str:
        return f"wrote {self.path}: {_records(self.n)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Records that are not in the files, or not as they were.

    Attributes:
        run: Whose.
        tag: Which.
        n: How many.
        why: What happened to them.
        left_out: Whether they are missing; else they were changed.
    """

    run: str
    tag: str
    n: int
    why: str
    left_out: bool = True

    def __str__(self) -> str:
        return f"{'left out' if self.left_out else 'changed'} {self.tag!r} of {self.run}: {_records(self.n)}: {self.why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What became of an export."""

    files: Sequence[Written]
    losses: Sequence[Loss]

    def __str__(self) -> str:
        return "\n".join(map(str, (*self.files, *self.losses)))


def _records(n: int) -> str:
    return f"{n:,} record{'s' if n != 1 else ''}"


def export(
    recordings: Recording | Mapping[str, Recording],
    *,
    to: Form,
    out: str | os.PathLike[str] | None = None,
    tags: Sequence[str] = (),
    overwrite: bool = False,
) -> Exported:
    """Write what was recorded in another format.

    Args:
        recordings: A recording, or several by the names of their runs.
        to: Which format.
        out: A file for CSV and NumPy, else a directory. By default beside the run, or the folder of runs, with its name.
        tags: Only these; by default all.
        overwrite: Whether files that are there may be replaced.

    Returns:
        What was written, what was left out and what was changed.

    Raises:
        KeepError: There are such files already, or they cannot be written.
        UnknownNameError: No recording has a tag.
        MissingExtraError: Parquet needs pyarrow.
    """
    if to not in FORMS:
        raise QueryError(f"Expected one of {', '.join(FORMS)} to export to, got {to!r}")
    runs = {recordings.info.name: recordings} if isinstance(recordings, Recording) else recordings
    chosen = {name: _chosen(recording, tags) for name, recording in runs.items()}
    _check_tags(tags, chosen)
    losses = _Losses()
    for name, recording in runs.items():
        if not tags:
            losses.not_values(name, recording)
    place = Path(out) if out is not None else _beside(list(runs.values()), to)
    try:
        with _staged(place, overwrite=overwrite) as stage:
            _WRITERS[to](stage, runs, chosen, losses)
    except OSError as error:
        raise error if isinstance(error, KeepError) else KeepError(f"Cannot export to {place}: {error}") from error
    return Exported(files=stage.written, losses=losses.told())


def _chosen(recording: Recording, tags: Sequence[str]) -> dict[str, Series]:
    """Return the series to export, by names of which no two are the same."""
    found: dict[str, Series] = {}
    for key in recording.keys():
        if key.kind in ("logged", "stream"):
            name = key.query if key.tag in found else key.tag
            if not tags or key.tag in tags or name in tags:
                found[name] = recording.series(key)
    return found


def _check_tags(tags: Sequence[str], chosen: Mapping[str, Mapping[str, Series]]) -> None:
    known = {name for series in chosen.values() for name in series}
    known |= {series.tag for found in chosen.values() for series in found.values()}
    for tag in tags:
        if tag not in known:
            every = {name for found in chosen.values() for some in found.values() for name in some._recording.tags()}
            raise UnknownNameError("tag", tag, sorted(every))


class _Losses:
    """Counts what is left out or changed, by run, tag and reason."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str, bool], int] = {}

    def add(self, run: str, tag: str, why: str, n: int = 1, *, left_out: bool = True) -> None:
        place = run, tag, why, left_out
        self._counts[place] = self._counts.get(place, 0) + n

    def not_values(self, run: str, recording: Recording) -> None:
        """Tell what there is beside logged values and the records of queries."""
        told = {"groups": "ends of groups", "acts": "the history of acts", "snapshot": "snapshots of events"}
        for key in recording.keys():
            if key.kind in told:
                self.add(run, key.tag, f"{told[key.kind]} are not exported", recording.series(key).n)

    def told(self) -> list[Loss]:
        return [
            Loss(run=run, tag=tag, n=n, why=why, left_out=left_out)
            for (run, tag, why, left_out), n in self._counts.items()
        ]

    def restore(self, counts: Mapping[tuple[str, str, str, bool], int]) -> None:
        """Forget what was told since `counts` was taken by `save`."""
        self._counts = dict(counts)

    def save(self) -> Mapping[tuple[str, str, str, bool], int]:
        return dict(self._counts)


class _Stage:
    """Where files are written before they appear at their places.

    Attributes:
        out: Where they will be: a file, or a directory.
        folder: Where they are.
        written: The files, by their places.
    """

    def __init__(self, out: Path, folder: Path) -> None:
        self.out = out
        self.folder = folder
        self.written: list[Written] = []
        self._moves: list[tuple[Path, Path]] = []

    def put(self, path: Path, n: int, *, alone: bool = False) -> None:
        """Take in a file that was written into `folder`; `alone` if it is all of `out`."""
        place = self.out if alone else self.out / path.relative_to(self.folder)
        self.written.append(Written(path=place, n=n))
        self._moves.append((path, place))

    def check(self) -> None:
        """Check that nothing would be replaced.

        Raises:
            KeepError: Something would.
        """
        for _, place in self._moves:
            if place.exists():
                raise KeepError(f"{place} exists already: choose another place, or allow to overwrite it")

    def publish(self) -> None:
        """Let the files appear."""
        for path, place in self._moves:
            place.parent.mkdir(parents=True, exist_ok=True)
            path.replace(place)


@contextmanager
def _staged(out: Path, *, overwrite: bool) -> Iterator[_Stage]:
    """Write into a directory beside the place, and move everything when it is complete."""
    if not overwrite and (out.is_file() or (out.is_dir() and any(out.iterdir()))):
        raise KeepError(f"{out} exists already: choose another place, or allow to overwrite it")
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = out.with_name(f".{out.name}.{os.getpid()}.export")
    folder.mkdir()
    try:
        stage = _Stage(out, folder)
        yield stage
        if not overwrite:
            stage.check()
        stage.publish()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _beside(recordings: Sequence[Recording], to: Form) -> Path:
    path = recordings[0].path.resolve() if len(recordings) == 1 else Path(os.path.commonpath([r.path.resolve() for r in recordings]))
    name = path.stem if path.is_file() else path.name
    return path.with_name(f"{name}.{to}" if to in ("csv", "npz") else f"{name}-{to}")


_Chosen = Mapping[str, Mapping[str, Series]]


def _all_cells(chosen: Mapping[str, Series], run: str, losses: _Losses) -> Iterator[Cells]:
    for name, series in chosen.items():
        for columns in _blocks(name, series, run, losses):
            yield from cells(name, columns, partial(losses.add, run))


def _blocks(name: str, series: Series, run: str, losses: _Losses) -> Iterator[Columns]:
    """Yield the blocks of a series, and tell how many records are damaged."""
    n = 0
    for columns in series.blocks():
        n += len(columns)
        yield columns
    if n < series.n:
        losses.add(run, name, "they are damaged; `sightglass check` tells where", series.n - n)


def _write_parquet(stage: _Stage, chosen: _Chosen, losses: _Losses) -> None:
    before = losses.save()

    def write(layout: Layout) -> Sequence[tuple[Path, int]]:
        losses.restore(before)
        with ParquetFolder(stage.folder, layout) as folder:
            for run, found in chosen.items():
                for some in _all_cells(found, run, losses):
                    folder.add(run, some)
            return folder.close()

    for path, n in as_wide_as_needed(write):
        stage.put(path, n)


def _write_csv(stage: _Stage, chosen: _Chosen, losses: _Losses) -> None:
    path, before = stage.folder / "table.csv", losses.save()

    def write(layout: Layout) -> Sequence[tuple[Path, int]]:
        losses.restore(before)
        rows: Rows = ((run, some) for run, found in chosen.items() for some in _all_cells(found, run, losses))
        return [(path, write_csv(path, rows, layout, losses.add))]

    for _, n in as_wide_as_needed(write):
        stage.put(path, n, alone=True)


def _write_npz(stage: _Stage, chosen: _Chosen, losses: _Losses) -> None:
    for run, found in chosen.items():
        path = stage.folder / (f"{run}.npz" if len(chosen) > 1 else "arrays.npz")
        path.parent.mkdir(parents=True, exist_ok=True)
        with NpzFile(path) as file:
            for name, series in found.items():
                for some in _all_cells({name: series}, run, losses):
                    file.add(some)
                file.finish()
        stage.put(path, file.n, alone=len(chosen) == 1)


_WRITERS: Final[Mapping[str, Callable[[_Stage, _Chosen, _Losses], None]]] = {
    "parquet": _write_parquet,
    "csv": _write_csv,
    "npz": _write_npz,
    "tensorboard": partial(write_events, TENSORBOARD),
    "mindspore": partial(write_events, MINDSPORE),
}
