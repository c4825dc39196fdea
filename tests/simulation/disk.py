"""A disk in memory, which implements `FileSystem`: each call can fail, and what was not synced can be lost.

A process that is killed leaves all that it has written, in the page cache: `copy`. A machine that fails keeps what was
synced, and any part of the rest: `crashed`. Of the changes of names a journal keeps a beginning, while the bytes of a
file may be older than its name, torn, or zeros.

Like the tests of SQLite, a test counts the calls of a scenario first, and then runs it once for each call that can
fail; since nothing a process does depends on how it will be killed, one run gives the disks of all kills (`on_call`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sightglass.core.codec import Buffer
from sightglass.storage.file_system import FileStatus

Operation = Literal[
    "open", "create", "status", "read", "write", "truncate", "sync", "close", "link", "replace", "remove",
    "make_directory", "names", "free_bytes",
]  # fmt: skip
Loss = Literal["none", "unsynced", "zeros", "random"]
"""What a machine loses of the bytes that were not synced: none, all, all but the lengths of files, or any of them."""

CODES = (
    errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EMFILE, errno.EROFS, errno.ESTALE, errno.ENOENT,
)  # fmt: skip
PAGE_BYTES = 64  # small, so that small files have many
N_STATES = 16  # of a file that was not synced, the last ones: memory stays bounded


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the file system: its number among all calls, and among those of its operation."""

    n: int
    operation: Operation
    n_of_operation: int
    path: Path
    data: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What goes wrong with a call.

    Attributes:
        code: The error it raises, or 0.
        applied: Whether the call takes effect although it raises, as it may in a network.
        n_bytes: How many bytes are written or read at most.
        delay_s: How long it takes.
    """

    code: int = 0
    applied: bool = False
    n_bytes: int | None = None
    delay_s: float = 0.0


@dataclass(slots=True)
class _Node:
    """A file: its bytes, those on the disk, and the states between them."""

    number: int
    data: bytes = b""
    synced: bytes = b""
    unsynced: list[bytes] = field(default_factory=list)
    n_links: int = 0
    changed: float = 0.0

    def change(self, data: bytes, now: float) -> None:
        self.data, self.changed = data, now
        self.unsynced = [*self.unsynced[1 - N_STATES :], data]

    def sync(self) -> None:
        self.synced, self.unsynced = self.data, []


Change = tuple[Path, _Node | None]
"""A name that leads to a file from now on, or to none."""


class Disk:
    """A disk in memory.

    Attributes:
        fault: Returns what goes wrong with a call, or `None`.
        on_call: Called before each call takes effect.
        n_calls: How many calls there were, by operation.
        room: How many bytes files have at most in all, or `None`.
    """

    def __init__(
        self, *, now: Callable[[], float] = lambda: 0.0, sleep: Callable[[float], None] = lambda delay_s: None
    ) -> None:
        """Begin empty.

        Args:
            now: Returns the wall time.
            sleep: Lets a time pass, for calls that take some.
        """
        self.fault: Callable[[Call], Fault | None] = lambda call: None
        self.on_call: Callable[[Call], None] = lambda call: None
        self.n_calls: Counter[Operation] = Counter()
        self.room: int | None = None
        self.now = now
        self._sleep = sleep
        self._names: dict[Path, _Node] = {}
        self._directories: set[Path] = {Path("/")}
        self._synced_names: dict[Path, _Node] = {}
        self._journal: list[Sequence[Change]] = []
        self._n_nodes = 0

    # The protocol

    def open(self, path: Path) -> DiskFile:
        """Open a file for reading."""
        with self.calling("open", path):
            return DiskFile(self, path, self._at(path))

    def create(self, path: Path, *, like: Path | None = None) -> DiskFile:
        """Create a file for appending; it must not exist."""
        with self.calling("create", path):
            self._need_free(path)
            self._n_nodes += 1
            node = _Node(self._n_nodes, changed=self.now())
            self._change([(path, node)])
            return DiskFile(self, path, node)

    def status(self, path: Path) -> FileStatus:
        """Return what is known of a file or a directory now."""
        with self.calling("status", path):
            if path in self._directories:
                return FileStatus(n_bytes=0, n_links=2, changed=0.0, identity=(1, hash(path)))
            return status_of(self._at(path))

    def link(self, path: Path, target: Path) -> None:
        """Give a file another name, which no other file must have."""
        with self.calling("link", path):
            node = self._at(path)
            if self._names.get(target) is not node:
                self._need_free(target)
                self._change([(target, node)])

    def replace(self, path: Path, target: Path) -> None:
        """Move a file to a name, at once, in place of the file that has the name now."""
        with self.calling("replace", path):
            self._change([(target, self._at(path)), (path, None)])

    def remove(self, path: Path) -> None:
        """Remove a file."""
        with self.calling("remove", path):
            self._at(path)
            self._change([(path, None)])

    def make_directory(self, path: Path, *, exist_ok: bool = False) -> None:
        """Create a directory, and those above it that do not exist; directories are always on the disk."""
        with self.calling("make_directory", path):
            if path in self._names or (path in self._directories and not exist_ok):
                raise error(errno.EEXIST, path)
            self._directories.update((path, *path.parents))

    def names(self, directory: Path) -> list[str]:
        """Return the names in a directory."""
        with self.calling("names", directory):
            if directory not in self._directories:
                raise error(errno.ENOENT, directory)
            every = [*self._names, *self._directories - {Path("/")}]
            return sorted(path.name for path in every if path.parent == directory)

    def lock(self, path: Path, *, shared: bool = False) -> DiskFile | None:
        """Lock nothing: one process has this disk."""
        raise error(errno.ENOTSUP, path)

    def free_bytes(self, directory: Path) -> int:
        """Return how many more bytes fit."""
        with self.calling("free_bytes", directory):
            return 2**40 if self.room is None else self.room - self._n_bytes()

    # What becomes of it

    def copy(self) -> Disk:
        """Return the disk as a process leaves it that is killed now; it has no faults, and shares nothing."""
        return self._copy(lambda node: node.data, self._names)

    def crashed(self, loss: Loss, random: random.Random) -> Disk:
        """Return the disk as a machine leaves it that fails now."""
        n = {"none": len(self._journal), "random": random.randint(0, len(self._journal))}.get(loss, len(self._journal))
        names = dict(self._synced_names)
        for changes in self._journal[:n]:
            _apply(changes, names)
        return self._copy(lambda node: _survivor(node, loss, random), names)

    def settle(self) -> None:
        """Write everything to the disk, as a machine does within half a minute."""
        self._synced_names, self._journal = dict(self._names), []
        for node in self._names.values():
            node.sync()

    def write_out(self, directory: Path, folder: Path) -> None:
        """Write the files of a directory into a real folder."""
        for path, node in self._names.items():
            if path.parent == directory:
                (folder / path.name).write_bytes(node.data)

    def contents(self, directory: Path) -> dict[str, bytes]:
        """Return the files in a directory."""
        return {path.name: node.data for path, node in self._names.items() if path.parent == directory}

    def put(self, path: Path, data: bytes) -> None:
        """Change the bytes of a file, or make one, as another program does; no call is counted."""
        self._directories.update(path.parents)
        if path not in self._names:
            self._n_nodes += 1
            self._change([(path, _Node(self._n_nodes))])
        self._names[path].change(data, self.now())

    # For `DiskFile`

    @contextlib.contextmanager
    def calling(self, operation: Operation, path: Path, data: bytes = b"") -> Iterator[Fault]:
        """Count a call, and let it fail before or after it takes effect."""
        self.n_calls[operation] += 1
        call = Call(self.n_calls.total(), operation, self.n_calls[operation], path, data)
        self.on_call(call)
        fault = self.fault(call) or Fault()
        if fault.delay_s:
            self._sleep(fault.delay_s)
        if fault.code and not fault.applied:
            raise error(fault.code, path)
        yield fault
        if fault.code:
            raise error(fault.code, path)

    def fitting(self, data: bytes) -> bytes:
        """Return as many of some bytes as there is room for."""
        return data if self.room is None else data[: max(0, self.room - self._n_bytes())]

    # Within

    def _at(self, path: Path) -> _Node:
        if path not in self._names:
            raise error(errno.ENOENT, path)
        return self._names[path]

    def _need_free(self, path: Path) -> None:
        if path.parent not in self._directories:
            raise error(errno.ENOENT, path)
        if path in self._names or path in self._directories:
            raise error(errno.EEXIST, path)

    def _change(self, changes: Sequence[Change]) -> None:
        self._journal.append(changes)
        for path, node in changes:
            if path in self._names:
                self._names[path].n_links -= 1
            if node is not None:
                node.n_links += 1
            _apply([(path, node)], self._names)

    def _n_bytes(self) -> int:
        return sum(len(node.data) for node in {id(node): node for node in self._names.values()}.values())

    def _copy(self, data_of: Callable[[_Node], bytes], names: dict[Path, _Node]) -> Disk:
        disk = Disk(now=self.now, sleep=self._sleep)
        made: dict[int, _Node] = {}
        for path, node in names.items():
            if node.number not in made:
                data = data_of(node)
                made[node.number] = _Node(node.number, data, data, changed=node.changed)
            made[node.number].n_links += 1
            disk._names[path] = made[node.number]
        disk._synced_names = dict(disk._names)
        disk._directories = set(self._directories)
        disk._n_nodes = self._n_nodes
        disk.room = self.room
        return disk


class DiskFile:
    """An open file of a `Disk`.

    Attributes:
        path: The name that it was opened by.
        closed: Whether it was closed.
    """

    def __init__(self, disk: Disk, path: Path, node: _Node) -> None:
        """Open a file."""
        self._disk = disk
        self.path = path
        self._node = node
        self.closed = False

    def status(self) -> FileStatus:
        """Return what is known of it now."""
        with self._calling("status"):
            return status_of(self._node)

    def read(self, offset: int, n: int) -> bytes:
        """Return up to n bytes; fewer where the file ends."""
        with self._calling("read") as fault:
            n = n if fault.n_bytes is None else min(n, fault.n_bytes)
            return self._node.data[offset : offset + n]

    def readinto(self, offset: int, buffer: memoryview) -> int:
        """Read into a buffer, and return how many bytes."""
        data = self.read(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def write(self, buffers: Sequence[Buffer]) -> int:
        """Append bytes, and return how many were written."""
        data = b"".join(buffers)
        with self._calling("write", data) as fault:
            part = self._disk.fitting(data[: fault.n_bytes])
            if not part:
                raise error(errno.ENOSPC, self.path)
            self._node.change(self._node.data + part, self._disk.now())
            return len(part)

    def truncate(self, n_bytes: int) -> None:
        """Cut the file off."""
        with self._calling("truncate"):
            self._node.change(self._node.data[:n_bytes], self._disk.now())

    def sync(self) -> None:
        """Wait until what was written is on the disk."""
        with self._calling("sync"):
            self._node.sync()

    def close(self) -> None:
        """Close the file. Calling it again does nothing."""
        if not self.closed:
            self.closed = True  # an error changes nothing about that, on Linux
            with self._disk.calling("close", self.path):
                pass

    def _calling(self, operation: Operation, data: bytes = b"") -> contextlib.AbstractContextManager[Fault]:
        assert not self.closed, f"{operation} of {self.path}, which is closed"
        return self._disk.calling(operation, self.path, data)


def error(code: int, path: Path) -> OSError:
    """Return an error as the system raises it."""
    return OSError(code, os.strerror(code), os.fspath(path))


def status_of(node: _Node) -> FileStatus:
    """Return what is known of a file."""
    return FileStatus(n_bytes=len(node.data), n_links=node.n_links, changed=node.changed, identity=(1, node.number))


def _apply(changes: Sequence[Change], names: dict[Path, _Node]) -> None:
    for path, node in changes:
        names.pop(path, None)
        if node is not None:
            names[path] = node


def _survivor(node: _Node, loss: Loss, random: random.Random) -> bytes:
    """Return the bytes of a file after its machine failed."""
    if loss == "none" or not node.unsynced:
        return node.data
    if loss == "unsynced":
        return node.synced
    if loss == "zeros":
        return node.synced + bytes(max(0, len(node.data) - len(node.synced)))
    state = bytearray(random.choice([node.synced, *node.unsynced]))
    n_kept = random.randint(min(len(node.synced), len(state)), len(state))
    del state[n_kept:]
    for start in range(len(node.synced), len(state), PAGE_BYTES):
        if random.random() < 0.2:  # a page that was not written yet
            state[start : start + PAGE_BYTES] = bytes(len(state[start : start + PAGE_BYTES]))
    return bytes(state)
