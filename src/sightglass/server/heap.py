"""How the C library keeps the memory that the page's process frees.

glibc gives each thread a heap of its own, up to eight for each processor, and returns to the system only what is free
at the end of a heap. The threads of the page's pools take turns at the same work, whose temporary arrays grow with the
runs: each heap keeps the largest set, and the page of a long run held 40 MB that nothing used. It also learns from each
large array that is freed to keep arrays of that size in a heap.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from typing import Final

# Numbers of options in glibc's malloc.h.
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
M_ARENA_MAX: Final = -8

# glibc's own first value, which stays once it is set. Larger blocks go back to the system when they are freed. Taking
# one costs some 10 microseconds, and writing to it first a tenth of what reading a file into it does.
LARGE_BYTES: Final = 128 * 2**10
N_HEAPS: Final = 1  # the threads hold Python's lock while they allocate, so they hardly wait for each other here
CHOSEN: Final = ("MALLOC_", "GLIBC_TUNABLES")  # how the variables begin by which a user chooses


def share_heap() -> None:
    """Let all threads that start later share one heap, and large blocks go back to the system when they are freed.

    Do nothing where the C library has no such options, or the user has chosen some.
    """
    if any(name.startswith(CHOSEN) for name in os.environ):
        return
    with contextlib.suppress(OSError, AttributeError, TypeError):  # not glibc
        set_option = ctypes.CDLL(None).mallopt
        for option, value in (
            (M_ARENA_MAX, N_HEAPS),
            (M_MMAP_THRESHOLD, LARGE_BYTES),
            (M_TRIM_THRESHOLD, LARGE_BYTES),
        ):
            set_option(option, value)
