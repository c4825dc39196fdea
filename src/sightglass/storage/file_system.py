"""The operations on files that records are written and compacted with: a small protocol, and the machine's own files.

Tests implement `FileSystem` in memory, where each call can fail and a machine loses what was not synced. A store of
objects could implement it, too, if it keeps what is created until `close`: only segments are written in several calls.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:  # it loads NumPy, and a list of runs does without
    from sightglass.core.codec import Buffer

JOINED_BYTES: Final = 2**16  # copying less is cheaper than another system call


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStatus:
    """What a file system knows of a file.

    Attributes:
        n_bytes: How long it is.
        n_links: How many names it has: 0 once it was removed. Some file systems do not count.
        changed: When it last changed, in seconds since the Unix epoch.
        identity: Equal for two paths that lead to the same file.
    """

    n_bytes: int
    n_links: int
    changed: float
    identity: tuple[int, int]


class File(Protocol):
    """An open file. Each method raises `OSError` if it fails."""

    def status(self) -> FileStatus:
        """Return what is known of it now."""

    def read(self, offset: int, n: int) -> bytes:
        """Return up to n bytes; fewer where the file ends."""

    def readinto(self, offset: int, buffer: memoryview) -> int:
        """Read into a buffer, and return how many bytes: possibly fewer than there are, 0 at the end."""

    def write(self, buffers: Sequence[Buffer]) -> int:
        """Append bytes, and return how many were written: possibly not all."""

    def truncate(self, n_bytes: int) -> None:
        """Cut the file off."""

    def sync(self) -> None:
        """Wait until what was written is on the disk."""

    def close(self) -> None:
        """Close the file. Calling it again does nothing."""


class FileSystem(Protocol):
    """Where files are. Each method raises `OSError` if it fails."""

    def open(self, path: Path) -> File:
        """Open a file for reading; refuse what is not a regular file."""

    def create(self, path: Path, *, like: Path | None = None) -> File:
        """Create a file for appending, if possible with the permissions of another; it must not exist."""

    def status(self, path: Path) -> FileStatus:
        """Return what is known of a file or a directory now."""

    def link(self, path: Path, target: Path) -> None:
        """Give a file another name, which no other file must have; where files have one name only, move it."""

    def replace(self, path: Path, target: Path) -> None:
        """Move a file to a name, at once, in place of the file that has the name now."""

    def remove(self, path: Path) -> None:
        """Remove a file."""

    def make_directory(self, path: Path, *, exist_ok: bool = False) -> None:
        """Create a directory, and those above it that do not exist."""

    def names(self, directory: Path) -> list[str]:
        """Return the names in a directory."""

    def free_bytes(self, directory: Path) -> int:
        """Return how many more bytes fit."""

    def lock(self, path: Path, *, shared: bool = False) -> File | None:
        """Lock a file until it is closed or the process ends; `None` if another one has locked it."""


class LocalFile:
    """An open file of this machine, closed when it is no longer referenced."""

    __slots__ = ("__weakref__", "_file")

    def __init__(self, file: FileIO) -> None:
        """Take over an open file."""
        self._file = file
        weakref.finalize(self, _close, file).atexit = file.readable()  # a run writes until the program has ended

    def status(self) -> FileStatus:
        """Return what is known of it now."""
        return _status(os.fstat(self._file.fileno()))

    def read(self, offset: int, n: int) -> bytes:
        """Return up to n bytes; fewer where the file ends."""
        if hasattr(os, "pread"):
            return os.pread(self._file.fileno(), n, offset)
        self._file.seek(offset)  # one place for all threads; where there is no pread
        return self._file.read(n) or b""

    def readinto(self, offset: int, buffer: memoryview) -> int:
        """Read into a buffer, and return how many bytes: possibly fewer than there are, 0 at the end."""
        if hasattr(os, "preadv"):
            return os.preadv(self._file.fileno(), [buffer], offset)
        self._file.seek(offset)
        return self._file.readinto(buffer) or 0

    def write(self, buffers: Sequence[Buffer]) -> int:
        """Append bytes, and return how many were written: possibly not all."""
        if hasattr(os, "writev"):
            return os.writev(self._file.fileno(), buffers)
        small = list(takewhile(lambda buffer: len(buffer) <= JOINED_BYTES, buffers))
        return os.write(self._file.fileno(), b"".join(small) if small else buffers[0])

    def truncate(self, n_bytes: int) -> None:
        """Cut the file off."""
        os.ftruncate(self._file.fileno(), n_bytes)

    def sync(self) -> None:
        """Wait until what was written is on the disk."""
        os.fsync(self._file.fileno())

    def fileno(self) -> int:
        """Return its descriptor."""
        return self._file.fileno()

    def close(self) -> None:
        """Close the file. Calling it again does nothing."""
        self._file.close()


@dataclass(frozen=True, slots=True)
class LocalFileSystem:
    """The files of this machine.

    Attributes:
        private: Whether only this user can read what is created; otherwise the umask decides.
    """

    private: bool = False

    def open(self, path: Path) -> LocalFile:
        """Open a file for reading; refuse what is not a regular file."""
        return LocalFile(FileIO(path, opener=open_regular))

    def create(self, path: Path, *, like: Path | None = None) -> LocalFile:
        """Create a file for appending, if possible with the permissions of another; it must not exist."""
        mode = 0o600 if self.private or like is not None else 0o666  # never wider than `like`, for no moment

        def append(path: str, flags: int) -> int:
            return os.open(path, flags | os.O_APPEND, mode)

        file = LocalFile(FileIO(path, "x", opener=append))
        if like is not None:
            with contextlib.suppress(OSError):
                shutil.copymode(like, path)
        return file

    def status(self, path: Path) -> FileStatus:
        """Return what is known of a file or a directory now."""
        return _status(path.stat())

    def link(self, path: Path, target: Path) -> None:
        """Give a file another name, which no other file must have; where files have one name only, move it."""
        try:
            os.link(path, target)
        except FileExistsError:
            if not path.samefile(target):  # NFS may answer so when it repeats a request that took effect
                raise
        except OSError:  # FAT, and some file systems in the network
            if exists(self, target):
                raise FileExistsError(f"{target} exists already") from None
            path.rename(target)

    def replace(self, path: Path, target: Path) -> None:
        """Move a file to a name, at once, in place of the file that has the name now."""
        path.replace(target)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        path.unlink()

    def make_directory(self, path: Path, *, exist_ok: bool = False) -> None:
        """Create a directory, and those above it that do not exist."""
        path.mkdir(0o700 if self.private else 0o777, parents=True, exist_ok=exist_ok)

    def names(self, directory: Path) -> list[str]:
        """Return the names in a directory."""
        return os.listdir(directory)

    def free_bytes(self, directory: Path) -> int:
        """Return how many more bytes fit."""
        return shutil.disk_usage(directory).free

    def lock(self, path: Path, *, shared: bool = False) -> LocalFile | None:
        """Lock a file until it is closed or the process ends; `None` if another one has locked it.

        The lock belongs to the open file, so reading the file and closing it elsewhere in the process keeps it.
        """
        if fcntl is None:
            raise OSError(errno.ENOTSUP, "There are no locks here", str(path))
        file = LocalFile(FileIO(path, "r+", opener=open_regular))
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_NB | (fcntl.LOCK_SH if shared else fcntl.LOCK_EX))
        except BlockingIOError:
            file.close()
            return None
        except OSError:
            file.close()
            raise
        return file


LOCAL: Final = LocalFileSystem()


def exists(files: FileSystem, path: Path) -> bool:
    """Return whether there is a file or a directory.

    Raises:
        OSError: The file system cannot answer now.
    """
    try:
        files.status(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


@contextlib.contextmanager
def written_aside(
    files: FileSystem, path: Path, buffers: Sequence[Buffer], *, sync: bool, like: Path | None = None
) -> Iterator[Path]:
    """Write a whole file beside a path, for the caller to link or to replace; what is left of it is removed at the end.

    Args:
        files: Where the files are.
        path: The path.
        buffers: What is in the file.
        sync: Whether to wait until the file is on the disk: if the machine fails after a rename, some file systems have
            the new name of a file without its bytes.
        like: The file whose permissions it has.

    Raises:
        OSError: It cannot be written.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        files.remove(aside)  # of a process with the same number, which was killed; it may be another name of the file
    try:
        file = files.create(aside, like=like)
        try:
            left = memoryview(b"".join(buffers))
            while left:
                left = left[file.write([left]) :]
            if sync:
                file.sync()
        finally:
            file.close()
        yield aside
    finally:
        with contextlib.suppress(OSError):
            files.remove(aside)


def names_in(directory: str | os.PathLike[str]) -> list[str]:
    """Return the names of the files in a directory, sorted, without links that lead out of it.

    Otherwise, a user who can write into a folder of runs could show others any file that the folder's reader can read.
    The directory itself may be a link: the reader has chosen it.

    Raises:
        OSError: It cannot be listed.
    """
    with os.scandir(directory) as entries:
        return sorted(entry.name for entry in entries if not is_directory(entry) and not leads_out(entry))


def is_directory(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a directory or a link to one; a link to itself is not."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def leads_out(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry of a directory is a link that leads out of it."""
    try:
        if not entry.is_symlink():
            return False
        home = os.path.realpath(os.path.dirname(entry.path) or ".")
        return os.path.commonpath([home, os.path.realpath(entry.path)]) != home
    except (OSError, ValueError):  # such as another drive
        return True


def open_regular(path: str, flags: int) -> int:
    """Open a regular file, as the `opener` of `open`. A pipe would block its reader, and a device may never end.

    Raises:
        OSError: It is something else, or cannot be opened.
    """
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # no effect on regular files; a pipe would wait
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL, "Expected a regular file", path)
    return descriptor


def open_own(path: str, flags: int) -> int:
    """Open a regular file that is not a link, as `open_regular`: one could lead to what only this user can read."""
    return open_regular(path, flags | getattr(os, "O_NOFOLLOW", 0))


def _close(file: FileIO) -> None:
    with contextlib.suppress(OSError):  # of a network that is gone; nobody is there to be told
        file.close()


def _status(status: os.stat_result) -> FileStatus:
    return FileStatus(
        n_bytes=status.st_size,
        n_links=status.st_nlink,
        changed=status.st_mtime,
        identity=(status.st_dev, status.st_ino),
    )
