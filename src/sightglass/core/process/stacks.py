"""The stacks of a process's threads: where each of them is, without the values there.

The `io` thread of a run takes them when a client asks. Where an extension in C never returns and holds the
interpreter's lock, that thread gets no turn either. So `Watchdog` sets `faulthandler`'s timer again and again: when it
is stopped itself, the timer, which needs no lock, writes the stacks of all threads into the run's directory.

A process has one such timer. It is the program's: as soon as the program sets or cancels it, and under pytest, which
has a use for it, ours is given up. A child that is forked while it is set would hang at its end, waiting for the
timer's thread; so it is cancelled before each fork.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import os
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from sightglass.core.description import StackFrame
from sightglass.core.process.threads import n_startable
from sightglass.core.process.unpatched import threading
from sightglass.core.redact import visible

MAX_FRAMES: Final = 200  # of a recursion that has no end, the innermost ones
OWN: Final = "sightglass-"


class ThreadStack(msgspec.Struct, frozen=True, kw_only=True):
    """The stack of one thread, the innermost call last.

    Attributes:
        thread: The thread's name.
        main: Whether it is the main thread.
        frames: The calls; of a very deep stack the innermost ones.
        rank: The rank of its process; `None` if the program has one process.
    """

    thread: str = ""
    main: bool = False
    frames: Sequence[StackFrame] = ()
    rank: int | None = None


class Stacks(msgspec.Struct, frozen=True, kw_only=True):
    """The stacks of all threads of a run, or of all ranks of a program; `print` merges equal ones.

    Attributes:
        run: The name of the run, or of the group.
        threads: The stacks, those of main threads first.
        missing: Why a rank's stacks are not there, by rank.
    """

    run: str = ""
    threads: Sequence[ThreadStack] = ()
    missing: Mapping[int, str] = {}

    def merged(self) -> list[tuple[ThreadStack, list[int]]]:
        """Return each different stack once, with the ranks that have it; the one of most ranks first."""
        ranks: dict[tuple[str, bool, tuple[StackFrame, ...]], list[int]] = {}
        first: dict[tuple[str, bool, tuple[StackFrame, ...]], ThreadStack] = {}
        for one in self.threads:
            key = one.thread, one.main, tuple(one.frames)
            first.setdefault(key, one)
            ranks.setdefault(key, []).extend([] if one.rank is None else [one.rank])
        return sorted(
            ((first[key], of) for key, of in ranks.items()), key=lambda item: (not item[0].main, -len(item[1]))
        )

    def summary(self) -> str:
        """Return where the main threads are: "7 ranks in all_reduce, rank 3 in read"."""
        several = any(one.rank is not None for one in self.threads)
        found: dict[str, list[int]] = {}
        for one in self.threads:
            if one.main and one.frames:
                found.setdefault(one.frames[-1].function, []).extend([] if one.rank is None else [one.rank])
        where = [
            f"{_ranks(of)} in {function}" if several else f"in {function}"
            for function, of in sorted(found.items(), key=lambda item: -len(item[1]))
        ]
        return ", ".join([*where, *(f"rank {rank} unknown: {why}" for rank, why in sorted(self.missing.items()))])

    def __str__(self) -> str:
        lines = [f"run {self.run}: {self.summary()}"]
        for one, of in self.merged():
            whose = f"  {_listed(of)}" if of else ""
            lines += ["", f"{'main thread' if one.main else f'thread {one.thread}'}{whose}"]
            lines += [f'  File "{frame.file}", line {frame.line}, in {frame.function}' for frame in one.frames]
        return visible("\n".join(lines))


def thread_stacks() -> list[ThreadStack]:
    """Return the stacks of all threads of this process except Sightglass' own; the main thread's first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    found = []
    for ident, innermost in sys._current_frames().items():
        name = names.get(ident, f"thread {ident}")
        if name.startswith(OWN):
            continue
        frames: list[StackFrame] = []
        frame: types.FrameType | None = innermost
        while frame is not None and len(frames) < MAX_FRAMES:
            code = frame.f_code
            frames.append(StackFrame(file=code.co_filename, line=frame.f_lineno or 0, function=code.co_qualname))
            frame = frame.f_back
        found.append(ThreadStack(thread=name, main=ident == main, frames=frames[::-1]))
    return sorted(found, key=lambda one: not one.main)


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks"


def _listed(ranks: Sequence[int]) -> str:
    """Return ranks as text: "ranks 0-2, 5"."""
    spans: list[list[int]] = []
    for rank in sorted(ranks):
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    shown = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"


# The watchdog

STACKS_FILES: Final = "stacks*.txt"  # "stacks.txt", of other ranks that share the directory "stacks-1.txt" and so on
STUCK_S: Final = 60.0  # longer than any honest call holds the lock; a person looks later than that
RENEW_S: Final = 20.0
SPARE: Final = 12  # the timer is a thread; where few can be started, the run and its clients need them
MAX_BYTES: Final = 2**20  # some hundred times of a hundred threads

_set, _cancel = faulthandler.dump_traceback_later, faulthandler.cancel_dump_traceback_later


class _Timer:
    """The timer of this process: which run has it, and whether the program wants it for itself."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.owner: Watchdog | None = None
        self.given_up = False
        self.is_set = self._watches = False

    def set(self, owner: Watchdog, file: IO[bytes]) -> None:
        """Have the stacks written to a file, unless this is called again in time."""
        with self.lock:
            if self.given_up or self.owner not in (None, owner):
                return
            self.owner = owner
            try:
                _set(STUCK_S, file=file)
                self.is_set = True
            except RuntimeError:  # the system starts no more threads
                self.given_up = True

    def free(self, owner: Watchdog) -> None:
        """Cancel the timer of a run that ends."""
        with self.lock:
            if self.owner is owner:
                self._stop()
                self.owner = None

    def _stop(self) -> None:
        if self.is_set:
            self.is_set = False
            _cancel()

    def watch(self) -> None:
        """Take note from now on when the program uses the timer, and when it forks. What it did before is not known."""
        if self._watches or self.given_up:
            return
        # Here, before the run has threads, whose place the attempt would take for a moment.
        self.given_up = "pytest" in sys.modules or n_startable(SPARE) < SPARE
        if self.given_up:
            return
        self._watches = True
        for name, original in (("dump_traceback_later", _set), ("cancel_dump_traceback_later", _cancel)):
            setattr(faulthandler, name, functools.wraps(original)(functools.partial(self._give_up, original)))
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._before_fork, after_in_parent=self._after_fork, after_in_child=self._forked)

    def _give_up(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Do what the program wants with the timer, which is its own from now on."""
        with self.lock:
            self._stop()
            self.given_up = True
        faulthandler.dump_traceback_later, faulthandler.cancel_dump_traceback_later = _set, _cancel
        return original(*args, **kwargs)

    def _before_fork(self) -> None:
        self.lock.acquire()  # until the fork is done: the `io` thread must not set it meanwhile
        self._stop()

    def _after_fork(self) -> None:
        self.lock.release()

    def _forked(self) -> None:
        self.lock, self.owner, self.given_up = threading.Lock(), None, True


_timer = _Timer()


class Watchdog:
    """Sets the timer for one run, as a chore of its `io` thread."""

    def __init__(self, folder: Callable[[], Path | None], *, rank: int) -> None:
        """Set nothing yet; `folder` returns the run's directory, once it exists."""
        self._folder = folder
        self._name = STACKS_FILES.replace("*", f"-{rank}" if rank else "")
        self._file: IO[bytes] | None = None
        self._path: Path | None = None
        self._due_s = 0.0
        _timer.watch()

    def tick(self, now_s: float) -> None:
        """Set the timer again, if it is time, and the run has a directory."""
        if now_s < self._due_s or _timer.given_up or _timer.owner not in (None, self):
            return
        if self._file is None:
            folder = self._folder()
            if folder is None:
                return
            self._path = folder / self._name
            self._file = open(self._path, "ab", buffering=0)  # noqa: SIM115
        if self._file.tell() > MAX_BYTES:
            self._file.truncate(0)
        self._due_s = now_s + RENEW_S
        _timer.set(self, self._file)

    def close(self) -> None:
        """Cancel the timer; the file stays if something was written."""
        _timer.free(self)
        if self._file is not None and self._path is not None:
            self._file.close()
            with contextlib.suppress(OSError):
                if not self._path.stat().st_size:
                    self._path.unlink()
