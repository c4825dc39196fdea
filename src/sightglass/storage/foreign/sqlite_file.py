"""SQLite databases of other programs, read as of a commit.

Rule 1: a database stays as it is, and nothing is written beside it, also while its program writes into it.
Rule 2: one that a connection has open, which may be of this process, is read by SQLite only: as soon as a process
closes any other handle of a file, the system drops its locks, and two processes could write at the same time.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

MAX_BYTES: Final = 2**30  # of a database that has to be copied
N_ATTEMPTS: Final = 5  # while it is written
WAIT_S: Final = 5.0  # for a transaction of another process

T = TypeVar("T")
Moments = tuple[tuple[int, int], ...]
"""When a database and the files beside it changed, in nanoseconds since the Unix epoch, and their sizes in bytes."""


def read(database: Path, ask: Callable[[sqlite3.Connection], T]) -> T:
    """Return what a function finds in a database, as of a commit; it may be called several times.

    Raises:
        OSError: The database cannot be read: it is damaged, or changes all the time.
    """
    problem: Exception | None = None
    for _ in range(N_ATTEMPTS):
        before = moments(database)
        try:
            found, locked = _read(database, ask)
        except sqlite3.DatabaseError as error:
            problem = error  # which may come from a write at the same time
        else:
            if locked or moments(database) == before:
                return found
    raise OSError(f"{database} cannot be read: {problem or 'it changes all the time'}")


def _read(database: Path, ask: Callable[[sqlite3.Connection], T]) -> tuple[T, bool]:
    """Return what a function finds, and whether SQLite's locks kept writers out meanwhile."""
    uri, size = database.absolute().as_uri(), {suffix: _n_bytes(database, suffix) for suffix in ("-wal", "-journal")}
    if size["-journal"] or os.path.exists(f"{database}-shm"):
        try:
            return _asked(f"{uri}?mode=ro&readonly_shm=1", ask), True  # which also reads what a killed writer left
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
                raise
    if not any(size.values()):
        return _asked(f"{uri}?immutable=1", ask), False
    if (n_bytes := _n_bytes(database, "") + sum(size.values())) > MAX_BYTES:
        raise sqlite3.OperationalError(f"{n_bytes:,} bytes were not written to their end: open it with Trackio once")
    with tempfile.TemporaryDirectory(prefix="sightglass-") as folder:  # nobody has it open: it can be copied
        copy = Path(folder, database.name)
        for suffix in ("", *(suffix for suffix, n in size.items() if n)):
            shutil.copyfile(f"{database}{suffix}", f"{copy}{suffix}")
        return _asked(copy.as_uri(), ask), False


def _asked(uri: str, ask: Callable[[sqlite3.Connection], T]) -> T:
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=WAIT_S)) as connection:
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        return ask(connection)


def moments(database: Path) -> Moments:
    """Return when a database last changed.

    Raises:
        OSError: A file cannot be looked at.
    """
    return tuple(_moment(f"{database}{suffix}") for suffix in ("", "-wal", "-journal"))


def _moment(path: str) -> tuple[int, int]:
    with contextlib.suppress(FileNotFoundError):
        status = os.stat(path)
        return status.st_mtime_ns, status.st_size
    return 0, 0


def _n_bytes(database: Path, suffix: str) -> int:
    return _moment(f"{database}{suffix}")[1]
