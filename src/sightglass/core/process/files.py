"""Files: the folder of runs where none is named; secrets, which only this user can read; how large others are."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Final

RUNS: Final = "runs"
RUNS_VARIABLE: Final = "SIGHTGLASS_RUNS"


def runs_folder() -> Path:
    """Return the folder that `SIGHTGLASS_RUNS` in the environment names, else "runs"."""
    return Path(os.environ.get(RUNS_VARIABLE) or RUNS)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only this user can read, in place of what has its name.

    The content goes into a new file, which then takes the name. So nothing is written through a link, nor into a file
    with wider permissions, that somebody else has placed there.

    Raises:
        OSError: The file cannot be written. What had its name stays.
    """
    fresh = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        fresh.replace(path)
    except BaseException:  # an interrupt, too, leaves no secret behind
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise


def read_private(path: Path, *, max_bytes: int) -> bytes:
    """Read a file that no other user can have written.

    A folder that is private now may have been open to others before, who have left files there.

    Raises:
        OSError: It cannot be read, another user owns it or may write it, or it is longer than `max_bytes`.
    """
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # a pipe would wait
    with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | flags), "rb") as file:
        status = os.fstat(file.fileno())
        is_own = not hasattr(os, "getuid") or (status.st_uid == os.getuid() and not status.st_mode & 0o022)
        if not (stat.S_ISREG(status.st_mode) and is_own):
            raise PermissionError(errno.EPERM, "Expected a file that only this user can write", os.fspath(path))
        if status.st_size > max_bytes:
            raise OSError(errno.EFBIG, f"Expected a file of at most {max_bytes} bytes", os.fspath(path))
        return file.read(max_bytes)


def n_bytes_of(path: Path) -> int:
    """Return the size of a file, or of all files in a folder.

    Raises:
        OSError: It cannot be read.
    """
    return sum(os.stat(file).st_size for file in _files_of(path))


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file, as sha256sum prints it; of a folder, that of the lines that it prints of its files.

    Raises:
        OSError: It cannot be read.
    """
    import hashlib  # most programs need no hash

    files = [*_files_of(path)]
    digests = []
    for file in files:
        with open(file, "rb") as opened:
            digests.append(hashlib.file_digest(opened, "sha256").hexdigest())
    if files == [path]:
        return digests[0]
    lines = (f"{digest}  {file.relative_to(path).as_posix()}\n" for digest, file in zip(digests, files, strict=True))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _files_of(path: Path) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
