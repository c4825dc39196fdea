"""How an input is made of parts, and the folder of the files that targets read."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

SEPARATOR = b"\xa5|Z|"  # not a length before each part: whatever a fuzzer inserts or cuts, the other parts stay


def split(data: bytes) -> list[bytes]:
    """Return the parts of an input."""
    return data.split(SEPARATOR)


def join(*parts: bytes) -> bytes:
    """Return the input that has these parts."""
    return SEPARATOR.join(parts)


@functools.cache
def folder() -> Path:
    """Return a folder of this process, in memory where there is one; it is removed at exit."""
    path = tempfile.mkdtemp(prefix="sgfuzz", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return Path(path)


@contextlib.contextmanager
def placed(name: str, data: bytes) -> Iterator[Path]:
    """Place a file for a moment."""
    path = folder() / name
    path.write_bytes(data)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)
