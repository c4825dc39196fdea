"""The page's server while strangers hold 2,000 connections with half a request each, and it may open 1,024 files.

With TLS, each of them holds half a handshake.
"""

from __future__ import annotations

import contextlib
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

from bench.growth import cpu_s

N_HALF_OPEN = 2_000
MEASURE_S = 20.0
REST_S = 0.2
HALF = {"http": b"GET / HTTP/1.1\r\nX: ", "https": bytes.fromhex("16030100c8")}  # of 200 bytes, which do not follow
SERVER = """
import resource, sys
from pathlib import Path
from sightglass.server.app import make_server
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
server = make_server([Path(sys.argv[1])], tls=sys.argv[2] == "tls")
print(server.link(), flush=True)
server.run()
"""


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    yield from measured("requests", "plain")
    yield from measured("TLS handshakes", "tls")


def measured(what: str, kind: str) -> Iterator[tuple[str, float, str, float | None]]:
    """Measure a server with or without TLS."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(2 * N_HALF_OPEN, limit[1]), limit[1]))
    with tempfile.TemporaryDirectory(prefix="sgb") as folder, Path(folder, "log").open("w+b") as log:
        command = [sys.executable, "-c", SERVER, folder, kind]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert server.stdout is not None
            base, _, token = server.stdout.readline().strip().partition("/#token=")
            waits, share, n_reopened = knock(base, token, server.pid)
        finally:
            server.kill()
            server.wait()
            resource.setrlimit(resource.RLIMIT_NOFILE, limit)
        yield f"{N_HALF_OPEN:,} half-open {what}: the slowest answer to a token", max(waits), "s", 1.0
        yield "  answers", len(waits), "", None
        yield "  connections that strangers opened again", n_reopened, "", None
        yield "  the server", 100 * share, "% of a core", 5.0
        yield "  what it printed", Path(folder, "log").stat().st_size / 1e3, "kB", 100.0


def knock(base: str, token: str, pid: int) -> tuple[list[float], float, int]:
    """Hold half-open requests, open again those that the server closes, and ask with a token all the while.

    Returns:
        How long each answer took, in seconds; the share of a core that the server took once all were open; and how
        many connections were opened again.
    """
    scheme, _, authority = base.partition("://")
    host, port = authority.split(":")
    sent = HALF[scheme]
    headers = {"Authorization": f"Bearer {token}", "Connection": "close"}  # a new connection for each
    waits, n_reopened = [], 0
    with contextlib.ExitStack() as held, httpx.Client(headers=headers, verify=False, timeout=60) as client:
        strangers = [held.enter_context(half_open(host, int(port), sent)) for _ in range(N_HALF_OPEN)]
        began_s, spent_s = time.perf_counter(), cpu_s(pid)
        while time.perf_counter() < began_s + MEASURE_S:
            asked_s = time.perf_counter()
            client.get(base + "/api/v1/session").raise_for_status()
            waits.append(time.perf_counter() - asked_s)
            for i in range(n_reopened % N_HALF_OPEN, min(n_reopened % N_HALF_OPEN + 10, N_HALF_OPEN)):  # 50 a second
                strangers[i].close()
                strangers[i] = held.enter_context(half_open(host, int(port), sent))
                n_reopened += 1
            time.sleep(REST_S)
        share = (cpu_s(pid) - spent_s) / (time.perf_counter() - began_s)
    return waits, share, n_reopened


def half_open(host: str, port: int, sent: bytes) -> socket.socket:
    """Connect, and send half a head, or half a handshake."""
    connection = socket.create_connection((host, port), timeout=60)
    with contextlib.suppress(OSError):  # it was closed already
        connection.sendall(sent)
    return connection
