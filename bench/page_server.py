"""The page's server: a long run, a large tensor, many runs and tags, and a day of viewers that come and go.

The server is a process of its own; memory is what it takes above what it took when it had started.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
from websockets.sync.client import connect

import sightglass as sg
from sightglass.core.columns import Columns
from sightglass.storage import run_file
from sightglass.storage.format.block import Key
from sightglass.storage.write.segment import BLOCK_ROWS, SegmentWriter

N_POINTS = 10_000_000
N_SPIKES = 10
SHAPE = (1000, 100, 100)
N_RUNS, N_TAGS = 1_000, 12
N_MANY_TAGS = 12_000
N_EVENTS = 200_000


class Server:
    """A server in a process of its own, and a client of it."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        assert child.stdout is not None
        link, _ = child.stdout.readline().split()[1], child.stdout.readline()
        base, self.token = link.split("/#token=")
        self.pid = child.pid
        self.http = httpx.Client(
            base_url=base + "/api/v1", timeout=120, headers={"Authorization": f"Bearer {self.token}"}
        )
        self.socket_address = base.replace("http", "ws", 1) + "/api/v1/live"
        self.get("/session")
        self.start_mib = self.mib()

    def mib(self, what: str = "VmRSS") -> float:
        """Return how much memory the server takes, or took at most (VmHWM)."""
        told = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(rf"{what}:\s+(\d+)", told)
        return int(found[1]) / 1024 if found else float("nan")

    @property
    def peak_mib(self) -> float:
        """The most it ever took above what it took at the start."""
        return self.mib("VmHWM") - self.start_mib

    def get(self, path: str, **query: Any) -> Any:
        """Ask for something."""
        answer = self.http.get(path, params=query)
        answer.raise_for_status()
        return json.loads(answer.content)

    def timed(self, path: str, **query: Any) -> tuple[float, Any]:
        """Ask for something, and tell how many seconds it took."""
        started = time.perf_counter()
        answer = self.http.get(path, params=query)
        seconds = time.perf_counter() - started
        answer.raise_for_status()
        return seconds, json.loads(answer.content)

    def key(self, name: str) -> str:
        """Return the key of a run."""
        return next(run["key"] for run in self.get("/runs")["runs"] if run["name"] == name)


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    command = [sys.executable, "-m", "sightglass", "ui", "--no-browser", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            server = Server(child)
            yield server
            server.http.close()
        finally:
            child.terminate()


def begin(folder: Path, name: str) -> SegmentWriter:
    directory = folder / name
    directory.mkdir()
    run = run_file.RunFile(name=name, id=f"{abs(hash(name)) % 16**12:012x}", started=1e9, ended=2e9, state="ended")
    run_file.create(directory, run)
    return SegmentWriter(directory / "1000-rank0-0000.sgr")


def write(writer: SegmentWriter, tag: str, steps: Any, values: Any) -> None:
    index = int(steps[0])
    columns = Columns(index=index, steps=steps, wall_times=1e9 + steps * 0.001, values=values, ordinals=steps)
    writer.append(Key(kind="logged", tag=tag), columns)


def spikes() -> Any:
    return np.random.default_rng(0).choice(N_POINTS, N_SPIKES, replace=False)


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    for part in (points, tensor, many, day):
        with tempfile.TemporaryDirectory(prefix="sgb") as folder:
            yield from part(Path(folder))


def points(folder: Path) -> Iterator[tuple[str, float, str, float | None]]:
    values = np.random.default_rng(1).normal(size=N_POINTS)
    places = spikes()
    values[places] = 100.0 + np.arange(N_SPIKES)
    writer = begin(folder, "long")
    for start in range(0, N_POINTS, BLOCK_ROWS):
        steps = np.arange(start, min(start + BLOCK_ROWS, N_POINTS))
        write(writer, "loss", steps, values[steps])
    writer.flush()
    writer.close()
    with serving(folder) as server:
        key = server.key("long")
        first_s, told = server.timed(f"/runs/{key}/scalars", tag="loss")
        yield "10M points: the first chart", first_s, "s", 1.0
        missed = set(range(100, 100 + N_SPIKES)) - set(told["y"])
        yield f"  spikes of {N_SPIKES} that are not in it", len(missed), "", 0
        yield "  again", server.timed(f"/runs/{key}/scalars", tag="loss")[0] * 1000, "ms", None
        middle = {"from": int(places[0]) - 500, "to": int(places[0]) + 500}
        zoomed_s, told = server.timed(f"/runs/{key}/scalars", tag="loss", **middle)
        yield "  zoomed to 1,001 points", zoomed_s * 1000, "ms", None
        assert told["n"] == len(told["y"]) == 1001
        yield "  server's memory, at most", server.peak_mib, "MiB", 200.0
    with serving(folder) as server, connect(server.socket_address, max_size=2**26) as socket:
        socket.send(json.dumps({"type": "hello", "token": server.token}))
        socket.recv()
        started = time.perf_counter()
        socket.send(json.dumps({"type": "open", "id": 1, "run": server.key("long"), "query": "loss"}))
        while not isinstance(frame := socket.recv(), bytes):
            pass
        yield "  as a stream on the socket, until its points came", time.perf_counter() - started, "s", None
        columns = msgspec.msgpack.decode(frame)
        shown = set(np.frombuffer(columns["y"], "<f8").tolist())
        yield "    spikes that are not in it", len(set(range(100, 100 + N_SPIKES)) - shown), "", 0
        yield "    server's memory, at most", server.peak_mib, "MiB", None


def tensor(folder: Path) -> Iterator[tuple[str, float, str, float | None]]:
    writer = begin(folder, "large")
    rng = np.random.default_rng(2)
    for step in range(3):
        columns = Columns(index=step, steps=np.array([step]), wall_times=np.array([1e9 + step]),
                          values=[rng.normal(size=SHAPE).astype(np.float32)], ordinals=np.array([step]))  # fmt: skip
        writer.append(Key(kind="logged", tag="w"), columns)
    writer.flush()
    writer.close()
    with serving(folder) as server:
        path = f"/runs/{server.key('large')}/tensor"
        asked = {"tag": "w", "step": 1, "slice": "[7, :, :]"}
        yield "slice of a 10M tensor: cold", server.timed(path, **asked, whole=False)[0] * 1000, "ms", 200.0
        yield "  again", best(server, path, **asked, whole=False) * 1000, "ms", 200.0
        yield "  another step, cold", server.timed(path, **{**asked, "step": 0}, whole=False)[0] * 1000, "ms", 200.0
        across = {**asked, "slice": "[:, 7, :]"}
        yield "  across all its blocks", best(server, path, **across, rows="0:100", whole=False) * 1000, "ms", 200.0
        whole_s, told = server.timed(path, **asked)
        yield "  with the statistics of the whole: cold", whole_s * 1000, "ms", 200.0
        assert told["statistics"]["whole"]["n"] == np.prod(SHAPE)
        yield "  again", best(server, path, **asked) * 1000, "ms", 200.0
        yield "  the last one, no step named", server.timed(path, tag="w", slice="[7]")[0] * 1000, "ms", 200.0
        yield "  server's memory, at most", server.peak_mib, "MiB", 200.0


def best(server: Server, path: str, **query: Any) -> float:
    return min(server.timed(path, **query)[0] for _ in range(5))


def many(folder: Path) -> Iterator[tuple[str, float, str, float | None]]:
    rows = np.arange(100)
    for i in range(N_RUNS):
        writer = begin(folder, f"job-{i:04d}")
        for tag in range(N_TAGS):
            write(writer, f"tag{tag}", rows, np.sin(rows + i))
        writer.flush()
        writer.close()
    with serving(folder) as server:
        cold_s, told = server.timed("/runs")
        assert len(told["runs"]) == N_RUNS
        yield "1,000 runs listed: cold", cold_s, "s", 1.0
        yield "  again", best(server, "/runs") * 1000, "ms", 200.0
        started = time.perf_counter()
        while any(run["last_step"] is None for run in server.get("/runs")["runs"]):
            time.sleep(0.1)
        yield "  until the last step of all is known", time.perf_counter() - started, "s", None
        runs = server.get("/runs")["runs"]
        yield "  tags of one", server.timed(f"/runs/{runs[500]['key']}/tags")[0] * 1000, "ms", 200.0
        body = {"requests": [{"run": run["key"], "tag": "tag0"} for run in runs]}
        started = time.perf_counter()
        told = msgspec.msgpack.decode(server.http.post("/scalars", json=body).content)
        assert not [one for one in told if "error" in one]
        yield "  one tag of all, in one request", time.perf_counter() - started, "s", None
        yield "  server's memory, at most", server.peak_mib, "MiB", 200.0
    writer = begin(folder, "wide")
    for tag in range(N_MANY_TAGS):
        write(writer, f"group{tag // 100}/tag{tag}", rows[:10], np.sin(rows[:10] + tag))
    writer.flush()
    writer.close()
    with serving(folder / "wide") as server:
        key = server.key("wide")
        cold_s, told = server.timed(f"/runs/{key}/tags")
        assert len(told["tags"]) == N_MANY_TAGS
        yield "12,000 tags of one run listed: cold", cold_s, "s", 1.0
        yield "  again", best(server, f"/runs/{key}/tags") * 1000, "ms", 500.0


def day(folder: Path) -> Iterator[tuple[str, float, str, float | None]]:
    """Compare the memory after a tenth of the events with that after all, while viewers come and go."""
    os.chdir(folder)
    with sg.init("day", budget=None) as run, serving(folder) as server:
        key = server.key("day")
        queries = ["batch.loss", "batch.x", "batch.loss.mean(every=10)", "batch.loss.histogram(every=100)"]
        viewers = itertools.cycle(range(8))
        sockets: dict[int, Any] = {}
        mib: dict[int, float] = {}
        n_seen, started = 0, time.perf_counter()
        vector = np.arange(16.0)
        for event in range(N_EVENTS):
            if event % 2_000 == 0:
                slot = next(viewers)
                if slot in sockets:
                    n_seen += leave(sockets.pop(slot))
                sockets[slot] = arrive(server, key, queries)
            run.observe("batch", step=event, loss=1.0 / (event + 1), x=vector)
            if event % 200 == 0:
                for socket in sockets.values():
                    n_seen += drink(socket)
            if event in (N_EVENTS // 10, N_EVENTS // 2):
                mib[event] = server.mib()
        seconds = time.perf_counter() - started
        yield "200,000 events, 100 viewers that come and go", seconds, "s", None
        yield "  messages that they were sent", n_seen, "", None
        early_mib, half_mib = mib[N_EVENTS // 10], mib[N_EVENTS // 2]
        yield "  memory: at 10 % of the events", early_mib - server.start_mib, "MiB", None
        yield "  growth from there to 50 %", half_mib - early_mib, "MiB", None
        yield "  growth from there to the end", server.mib() - half_mib, "MiB", None
        yield "  growth from 10 % to the end", server.mib() - early_mib, "MiB", 20.0
        for socket in sockets.values():
            leave(socket)


def arrive(server: Server, key: str, queries: list[str]) -> Any:
    socket = connect(server.socket_address, max_size=2**26)
    socket.send(json.dumps({"type": "hello", "token": server.token}))
    socket.send(json.dumps({"type": "runs"}))
    for id, query in enumerate(queries):
        socket.send(json.dumps({"type": "open", "id": id, "run": key, "query": query}))
    return socket


def drink(socket: Any) -> int:
    """Take in what came, and acknowledge it."""
    n = 0
    while True:
        try:
            frame = socket.recv(timeout=0)
        except TimeoutError:
            return n
        if isinstance(frame, bytes):
            n += 1
            socket.send(json.dumps({"type": "ack", "id": msgspec.msgpack.decode(frame)["id"], "n": 1}))


def leave(socket: Any) -> int:
    n = drink(socket)
    socket.close()
    return n
