"""A run directory: everything that is asked of a recording, and what compaction makes of its files."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from sightglass.core.errors import SightglassError
from sightglass.core.process.clock import SystemClock
from sightglass.storage.read.check import check
from sightglass.storage.read.recording import Recording
from sightglass.storage.read.series import Series
from sightglass.storage.write.compact import Compactor

from .foreign import NAME as FOREIGN_NAME
from .inputs import folder, split
from .records import framed, mended, version

Question = Callable[[Series], object]


def recording(data: bytes) -> None:
    """Read payloads as the frames of a run's files; the first byte of each says in which file it is.

    The files are two of one process, one of a process that continued the run, and one of TensorBoard.
    """
    names = ("1000-rank0-0000.sgr", "1000-rank0-0001.sgr", "2000-rank0-0000.sgr", FOREIGN_NAME)
    files: list[list[bytes]] = [[] for _ in names]
    for part in split(data):
        files[(part[0] if part else 0) % len(names)].append(part[1:])
    path = folder() / "run"
    path.mkdir()
    try:
        for name, payloads in zip(names, files, strict=True):
            if payloads:
                program = "brain.Event:2" if name == FOREIGN_NAME else "Sightglass.Event:2"
                (path / name).write_bytes(version(program) + b"".join(framed(mended(one)) for one in payloads))
        str(check(path))
        before = records(path, QUESTIONS)
        for file in path.glob("*.sgr"):
            compactor = Compactor(SystemClock())
            compactor.add(file, file.stat().st_size)
            compactor.work(60.0)
        assert records(path) == before
    finally:
        shutil.rmtree(path)


def records(path: Path, questions: Sequence[Question] = ()) -> dict[str, list[str]]:
    """Return the records of each series of a recording, as text; ask the series questions, too."""
    found = {}
    with Recording(path) as opened:
        for key in opened.keys():  # noqa: SIM118  not a mapping
            series = opened.series(key)
            found[str(key)] = [repr(record) for columns in series.parts() for record in _records(columns)]
            for ask in questions:
                with contextlib.suppress(SightglassError):
                    ask(series)
    return found


def _records(columns: Any) -> Any:
    return (columns.record(i, tag="", run="") for i in range(len(columns)))


QUESTIONS: list[Question] = [
    repr, len, lambda s: (s.since, s.n_missed, s.steps, s.wall_times, s.span, s.damages), lambda s: s.columns(1, -1),
    lambda s: s[-1] if len(s) else None, lambda s: s.last_step if len(s) else None, lambda s: s.at(s.last_step, "[0]"),
    lambda s: s.shape_at(s.last_step), lambda s: s.table(s.last_step), lambda s: s.statistics(s.last_step),
    lambda s: s.histograms(), lambda s: s.difference(s.last_step, s.last_step), lambda s: s.find("nan"),
    lambda s: s.find("min"), list, lambda s: list(s.blocks()),
]  # fmt: skip
