"""Small files of JSON that people edit, by hand or through a program.

Rule 1: a file is replaced as a whole, so a reader never sees half of one. A change is applied to what the file says
then, under a lock: of two writers, the later one wins where both change the same, and nothing else is lost. Where a
file system has no locks, the threads of a process still take turns.
Rule 2: a file that is not JSON, because somebody edited it by hand, is not replaced.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from sightglass.core.errors import StorageError
from sightglass.core.unpatched import threading, time

from .file_system import LOCAL, File, open_own, written_aside

MAX_FILE_BYTES: Final = 2**20
LOCK_S: Final = 5.0  # an edit takes milliseconds; on a network file system perhaps a second
RETRY_S: Final = 0.005

_turns = threading.Lock()


def read_object(path: Path) -> dict[str, Any]:
    """Return the object in a file; an empty one without a file.

    Raises:
        OSError: It cannot be read.
        StorageError: It is too large, or something else than an object.
    """
    try:
        with open(path, "rb", opener=open_own) as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return {}
    try:
        found = msgspec.json.decode(data[:MAX_FILE_BYTES])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise StorageError(f"Expected an object of JSON in {str(path)!r}: {error}. Mend or remove the file") from error
    if not isinstance(found, dict):
        raise StorageError(f"Expected an object of JSON in {str(path)!r}, got {found!r:.50}. Mend or remove the file")
    return found


def change_object(path: Path, change: Callable[[dict[str, Any]], Mapping[str, Any]]) -> None:
    """Replace the object in a file by what a function makes of it.

    Raises:
        StorageError: It cannot be written, or the file there is not JSON.
    """
    try:
        with _turns, _locked(lock_of(path)):
            data = msgspec.json.format(msgspec.json.encode(change(read_object(path))), indent=2)
            like = path if path.is_file() else None
            with written_aside(LOCAL, path, [data, b"\n"], sync=True, like=like) as aside:
                LOCAL.replace(aside, path)
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(f"Cannot write {str(path)!r}: {error.strerror or error}") from error


def lock_of(path: Path) -> Path:
    """Return the file whose lock a writer of a file holds."""
    return path.with_name(f".sightglass-{path.stem}.lock")


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock; do without where there are no locks.

    Raises:
        OSError: The directory cannot be written to, or another process holds the lock for `LOCK_S`.
    """
    with contextlib.suppress(FileExistsError):
        LOCAL.create(path).close()
    held: File | None = None
    until_s = time.monotonic() + LOCK_S
    try:
        while (held := LOCAL.lock(path)) is None:
            if time.monotonic() > until_s:
                raise StorageError(f"Another process has held {str(path)!r} for {LOCK_S:g} s")
            time.sleep(RETRY_S)
    except StorageError:
        raise
    except OSError:
        held = None  # a file system without locks, or another user's file
    try:
        yield
    finally:
        if held is not None:
            held.close()
