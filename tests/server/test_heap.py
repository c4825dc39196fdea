"""The heaps of the page's process: one for all threads, however many requests it has answered."""

from __future__ import annotations

import itertools
import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from .conftest import record

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc has a heap for each thread")

HEAP_BYTES = 2**26  # that glibc reserves for each, at a multiple of itself
SCRIPT = """
import ctypes, sys, threading
from pathlib import Path
import numpy as np
from sightglass.server.heap import share_heap
if "shared" in sys.argv:
    share_heap()
barrier = threading.Barrier(8)
def work():
    held = np.empty(50_000, np.uint8)  # too large for Python's own allocator, and not large enough for a mapping
    barrier.wait(60)
    del held
threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
held = [np.empty(n << 20, np.uint8) for n in (1, 2, 4, 8)]
del held  # glibc learns from these to keep such arrays
used = np.ones(1 << 20, np.uint8)
class Info(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]
mallinfo2 = ctypes.CDLL(None).mallinfo2
mallinfo2.restype = Info
print(mallinfo2().hblkhd >= used.nbytes)
print(Path("/proc/self/maps").read_text())
"""


def n_heaps(maps: str) -> int:
    """Return how many heaps of threads a process has, from /proc/PID/maps: each is reserved, and used in part."""
    places = [line.split()[:2] for line in maps.splitlines() if line]
    parts = [(*(int(end, 16) for end in place.split("-")), rights) for place, rights in places]
    return sum(
        start % HEAP_BYTES == 0 and rights == "rw-p" and (stop, start + HEAP_BYTES, "---p") == after
        for (start, stop, rights), after in itertools.pairwise(parts)
    )


def environment(**more: str) -> dict[str, str]:
    chosen = ("MALLOC_", "GLIBC_TUNABLES")
    return {name: value for name, value in os.environ.items() if not name.startswith(chosen)} | more


def run_script(*words: str, **more: str) -> tuple[bool, int]:
    """Return whether a large array lies in a mapping of its own at the end, and the number of heaps."""
    command = [sys.executable, "-c", SCRIPT, *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(**more), check=True)
    told, _, maps = done.stdout.partition("\n")
    return told == "True", n_heaps(maps)


def test_threads_share_a_heap_and_large_arrays_leave_it():
    assert run_script("shared") == (True, 0)
    in_mapping, n = run_script()
    assert not in_mapping
    assert n > 1


def test_the_user_s_choice_stays():
    in_mapping, n = run_script("shared", MALLOC_ARENA_MAX="64")
    assert not in_mapping
    assert n > 1


@pytest.mark.parametrize("chosen", [{}, {"MALLOC_ARENA_MAX": "64"}])
def test_the_page_has_one_heap(chosen):
    record()
    command = [sys.executable, "-m", "sightglass", "ui", "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(**chosen)) as child:
        try:
            assert child.stdout is not None
            base, token = child.stdout.readline().split()[1].split("/#token=")
            client = httpx.Client(base_url=base, headers={"Authorization": f"Bearer {token}"}, timeout=60)
            with client, ThreadPoolExecutor(4) as pool:
                [run] = client.get("/api/v1/runs").json()["runs"]
                paths = [f"/api/v1/runs/{run['key']}/tags", "/api/v1/runs", "/", "/api/v1/session"] * 8
                assert {answer.status_code for answer in pool.map(client.get, paths)} == {200}
            n = n_heaps(Path(f"/proc/{child.pid}/maps").read_text())
            assert n == 0 if not chosen else n > 1
        finally:
            child.terminate()
