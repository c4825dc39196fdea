"""The details of a recorded run: its own run files, who wrote it, its last step, its faults.

`read_outside` reads the small files; `read_inside` opens the record files.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from sightglass.core.errors import DamagedError
from sightglass.storage import run_file
from sightglass.storage.file_names import OWN_NAME, SUFFIX, is_in_database, is_record_file
from sightglass.storage.foreign.event_scan import file_dialect, host_in
from sightglass.storage.foreign.settings import read_settings
from sightglass.storage.format.summary import Dialect
from sightglass.storage.read.recording import Recording
from sightglass.storage.run_file import is_of_machine
from sightglass.storage.run_listing import RunEntry

from .open_files import listing, series_infos

Origin = Dialect

MAX_SHOWN: Final = 3  # more would not fit a line of the list


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """The details of a recorded run.

    Attributes:
        version: The version of the files that was read, as in `RunEntry`.
        origin: The program that wrote the files.
        host: The host of the run.
        config: The configuration.
        started: When the first record file was created, or 0.
        last_step: The last recorded step.
        state: How it ended, if files of another program say so, or empty.
        ended: When it ended by these files, else when their last record was made.
        metrics: The tags that the files call the metrics of their run.
        faults: Faults that show without opening the files.
        damages: Faults inside the files.
        empty: Which files are empty, and which end in the middle of a record: no faults while they are written.
        torn: Likewise.
        looked: Whether the files were opened since they last changed.
    """

    version: str = ""
    origin: Origin | None = None
    host: str = ""
    config: dict[str, Any] = {}
    started: float = 0.0
    last_step: float | None = None
    state: Literal["", "ended", "failed"] = ""
    ended: float | None = None
    metrics: list[str] = []
    faults: str = ""
    damages: str = ""
    empty: str = ""
    torn: str = ""
    looked: bool = False

    def problem(self, *, over: bool) -> str:
        """Return what is wrong with the run, or an empty text; `over` if its files are not written any more."""
        return "; ".join(filter(None, (self.faults, self.damages, *((self.empty, self.torn) if over else ()))))


def read_outside(entry: RunEntry, known: Details) -> Details:
    """Read the details that need no record file, and keep the others."""
    if entry.plain:
        return msgspec.structs.replace(
            known, version=entry.version, origin="sightglass", host=entry.file.host, config=entry.file.config,
            faults="", empty="", looked=False,
        )  # fmt: skip
    found = listing(entry.path)
    own = {
        name: run_file.read_cached(os.path.join(entry.path, name)) for name in found.names if OWN_NAME.fullmatch(name)
    }
    file = run_file.together(sorted((one for one in own.values() if one is not None), key=lambda one: one.order))
    origin = known.origin or _origin(entry.path, found.names)
    return msgspec.structs.replace(
        known, version=entry.version, origin=origin, host=file.host or _host(found.names), looked=False,
        config=entry.file.config or read_settings(entry.path),
        faults="; ".join(_faults(found.unreadable, [name for name, one in own.items() if one is None])[:MAX_SHOWN]),
        empty="; ".join(f"{name}: The file is empty" for name in found.empty[:MAX_SHOWN]),
    )  # fmt: skip


def read_inside(details: Details, recording: Recording) -> Details:
    """Read the details in the record files."""
    with recording.lock:
        if recording.changed():
            recording.refresh()
        steps = (info.last_step for key, info in series_infos(recording).items() if not is_of_machine(key))
        last_step = max((step for step in steps if step is not None), default=None)
        faults = [f"{path.name}: {why}" for path, why in recording.refused.items()][:MAX_SHOWN]
        faults += [str(damage) for damage in recording.damages[:1]]
        faults += filter(None, [recording.overlap])
        n_torn = recording.torn
        started = min((part.started for part in recording.parts), default=0.0)
        metrics, info = recording.metrics, recording.info
        ended = recording.ended
    state: Literal["", "ended", "failed"] = (
        "" if info.ended is None else "failed" if info.state == "failed" else "ended"
    )
    torn = f"The last {n_torn:,} bytes are not a whole record: writing was interrupted" if n_torn else ""
    return msgspec.structs.replace(
        details,
        last_step=last_step,
        damages="; ".join(faults),
        torn=torn,
        started=started,
        looked=True,
        state=state,
        ended=ended,
        metrics=metrics,
    )


def _faults(faults: Sequence[str], unreadable_files: list[str]) -> list[str]:
    refused = {fault.partition(":")[0] for fault in faults}
    problem = "Expected a run file, got something else"
    return [*faults, *(f"{name}: {problem}" for name in unreadable_files if name not in refused)]


def _host(names: Sequence[str]) -> str:
    """Return the host in the names of MindSpore's or TensorBoard's files, or an empty text."""
    return next((host for name in names if is_record_file(name) and (host := host_in(name))), "")


def _origin(path: Path, names: Sequence[str]) -> Origin | None:
    """Return which program wrote the files of a run, or `None` if that does not show yet."""
    if not names:
        return file_dialect(path) if is_in_database(path) else None
    if any(name.endswith(SUFFIX) or OWN_NAME.fullmatch(name) for name in names):
        return "sightglass"
    for name in names:
        if is_record_file(name):
            with contextlib.suppress(OSError, DamagedError):
                dialect = file_dialect(path / name)
                if dialect is not None:
                    return dialect
    return None
