"""The page's server while many tabs watch one fast run: the processor time of the server alone.

The tabs are sockets that say what the page says: streams as on the page Ask, with acknowledgements of their messages;
and charts, which fetch the tail of a series when they are told that its run grew.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
from websockets.asyncio.client import ClientConnection, connect

from bench.growth import cpu_s
from bench.page import serving

N_TABS = 20
EVENTS_PER_S = 2_000
SETTLE_S, MEASURE_S = 4.0, 15.0
ACKNOWLEDGED = 4  # messages together, as the page does
REST_S = 0.3  # of the page between two requests

TRAINING = """
import sys, time, sightglass as sg
run, logs = sg.init("fast", mode="live"), sys.argv[2] == "logs"
began = time.perf_counter()
for step in range(10_000_000):
    time.sleep(max(0.0, began + step / float(sys.argv[1]) - time.perf_counter()))
    run.log({"loss": float(step)}, step=step) if logs else run.observe("batch", step=step, loss=float(step))
    if run.stopping:
        break
"""

Tab = Callable[[str, str, str, list[int]], Coroutine[Any, Any, None]]


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    asked = asyncio.run(watch("observes", ask))
    yield f"{N_TABS} tabs that ask a run of {EVENTS_PER_S:,} events/s: the server", 100 * asked[0], "% of a core", 5.0
    yield "  messages a second, of all tabs", asked[1], "", None
    charts = asyncio.run(watch("logs", chart))
    yield f"{N_TABS} charts of what it logs: the server", 100 * charts[0], "% of a core", None
    yield "  requests a second, of all tabs", charts[1], "", None
    yield (
        "a run of that pace that nobody watches: the server",
        100 * asyncio.run(watch("logs", None))[0],
        "% of a core",
        None,
    )


async def watch(what: str, tab: Tab | None) -> tuple[float, float]:
    """Return the share of a core that the server takes, and how often per second tabs heard from it."""
    with tempfile.TemporaryDirectory(prefix="sgb") as folder, serving(Path(folder)) as (link, pid):
        command = [sys.executable, "-c", TRAINING, str(EVENTS_PER_S), what]
        training = subprocess.Popen(command, cwd=folder)
        base, _, token = link.partition("/#token=")
        n, tasks = [0], []
        try:
            key = await find(base, token)
            tasks = [asyncio.create_task(tab(base, token, key, n)) for _ in range(N_TABS if tab else 0)]
            await asyncio.sleep(SETTLE_S)
            n[0], spent_s, began_s = 0, cpu_s(pid), time.perf_counter()
            await asyncio.sleep(MEASURE_S)
            elapsed_s = time.perf_counter() - began_s
            for task in tasks:
                assert not task.done(), task.exception()
            return (cpu_s(pid) - spent_s) / elapsed_s, n[0] / elapsed_s
        finally:
            training.kill()
            training.wait()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def find(base: str, token: str) -> str:
    """Wait until the server lists the run and its files, and return its key."""
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as client:
        while True:
            runs = (await client.get(f"{base}/api/v1/runs")).json()["runs"]
            if runs and runs[0]["live"]:
                return str(runs[0]["key"])
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def greeted(base: str, token: str) -> Any:
    async with connect(base.replace("http", "ws", 1) + "/api/v1/live", max_size=2**26) as socket:
        await say(socket, type="hello", token=token)
        await say(socket, type="runs")
        yield socket


async def say(socket: ClientConnection, **message: Any) -> None:
    await socket.send(json.dumps(message))


async def ask(base: str, token: str, key: str, n: list[int]) -> None:
    async with greeted(base, token) as socket:
        await say(socket, type="open", id=1, run=key, query="batch.loss", points=1_000)
        n_unacknowledged = 0
        async for frame in socket:
            if isinstance(frame, bytes):
                n[0] += 1
                n_unacknowledged += 1
                if n_unacknowledged == ACKNOWLEDGED:
                    await say(socket, type="ack", id=1, n=n_unacknowledged)
                    n_unacknowledged = 0


async def chart(base: str, token: str, key: str, n: list[int]) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    async with greeted(base, token) as socket, httpx.AsyncClient(headers=headers) as client:
        await say(socket, type="watch", runs=[key])
        told, last = asyncio.Event(), 0.0
        reading = asyncio.create_task(note_changes(socket, told))
        try:
            while True:
                await told.wait()
                told.clear()
                request = {"run": key, "tag": "loss", "x": "step", "from": last, "points": 400}
                reply = await client.post(f"{base}/api/v1/scalars", json={"requests": [request]})
                [line] = msgspec.msgpack.decode(reply.content)
                if "x" in line:  # not before the first record
                    last = float(np.frombuffer(line["x"], "<f8")[-1])
                    n[0] += 1
                await asyncio.sleep(REST_S)
        finally:
            reading.cancel()


async def note_changes(socket: ClientConnection, told: asyncio.Event) -> None:
    async for frame in socket:
        if isinstance(frame, str) and json.loads(frame)["type"] == "changed":
            told.set()
