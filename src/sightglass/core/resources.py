"""What this process may still use of its machine: found out by using it, a moment before it is needed.

Some libraries end the process when the system refuses them a thread, a file descriptor or memory. Limits cannot be
asked for instead: they are set per process, per user and per container, and count what others use. Another process may
still take what was free here, so probe immediately before use.
"""

from __future__ import annotations

import contextlib
import mmap
import os

from .threads import n_startable


def shortage(*, n_threads: int = 0, n_descriptors: int = 0, n_bytes: int = 0) -> str:
    """Return what the process lacks of what it needs at the same time, or an empty text if it lacks nothing.

    Args:
        n_threads: How many threads must start.
        n_descriptors: How many file descriptors must be free.
        n_bytes: How much memory must be free before and after the threads have started.
    """
    lack = _memory(n_bytes) or _descriptors(n_descriptors) or _threads(n_threads)
    return lack or _memory(n_bytes)  # once more: what the system reserves for a thread stays reserved for the next one


def _memory(n_bytes: int) -> str:
    try:
        if n_bytes:
            mmap.mmap(-1, n_bytes).close()
    except (OSError, MemoryError) as error:
        return f"{n_bytes >> 20} MiB of free memory are needed: {error}"
    return ""


def _descriptors(n: int) -> str:
    with contextlib.ExitStack() as held:
        for n_open in range(n):
            try:
                held.callback(os.close, os.open(os.devnull, os.O_RDONLY))
            except OSError as error:
                return f"{n} free file descriptors are needed, got {n_open}: {error.strerror}"
    return ""


def _threads(n: int) -> str:
    if (n_started := n_startable(n)) == n:
        return ""
    return f"{n} more threads are needed, got {n_started}: a limit of the user or of the container is reached"
