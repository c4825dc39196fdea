"""The stacks of a process's threads: where each of them is, without the values there.

The `io` thread of a run takes them when a client asks; it gets no turn while C code holds the interpreter's lock.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from sightglass.core.description import StackFrame
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
