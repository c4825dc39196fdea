"""Real runs, and the official client against the real command."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from tests.waiting import PATIENCE_S

import sightglass as sg
from mcp import ClientSession
from sightglass.agents.reply import MAX_BYTES

N_RUNS, N_STEPS = 12, 60
BEST = 7


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Record a sweep whose accuracy is highest at `BEST`; one run fails, one has a NaN."""
    folder = tmp_path_factory.mktemp("sweep")
    for number in range(N_RUNS):
        try:
            _train(folder, number)
        except RuntimeError:
            assert number == 3
    return folder


def _train(folder: Path, number: int) -> None:
    config = {"lr": 0.01 * (1 + number), "opt": {"name": "adam" if number % 2 else "sgd"}}
    with sg.init(f"trial-{number:02}", dir=folder, config=config, record=["batch.loss"]) as run:
        for step in range(N_STEPS):
            run.observe("batch", step=step, loss=1 / (1 + step) + number)
            accuracy = (1 - 0.05 * abs(number - BEST)) * step / N_STEPS
            run.log({"train/loss": float("nan") if number == 5 and step == 40 else 1 / (1 + step)}, step=step)
            if step % 10 == 9:
                run.log({"val/accuracy": accuracy}, step=step)
            if number == 7 and step in (3, 5):
                weights = np.outer(np.arange(8.0), np.full(6, step))
                run.log({"weights": sg.Tensor(np.stack([weights, -weights]))}, step=step)
            if number == 3 and step == 20:
                raise RuntimeError("CUDA out of memory")


Call = Callable[..., Any]


@contextmanager
def served(folder: Path, *options: str) -> Iterator[Call]:
    """Start the command, and yield a function that calls a tool over its stdin and stdout: see `talking`."""
    command = ["-m", "sightglass", "mcp", str(folder), *options]
    with talking(
        stdio_client(StdioServerParameters(command=sys.executable, args=command, env=dict(os.environ)))
    ) as call:
        yield call


@contextmanager
def page(folder: Path, *options: str) -> Iterator[dict[str, str]]:
    """Serve the page and the tools; yield the tokens of both roles, and the address of the tools."""
    command = [sys.executable, "-m", "sightglass", "ui", str(folder), "--port", "0", "--no-browser", "--json", "--mcp"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            links = json.loads(process.stdout.readline())
            tokens = {role: links[role].rpartition("token=")[2] for role in ("controller", "viewer")}
            yield {**tokens, "url": links["viewer"].partition("/#")[0] + "/mcp"}
        finally:
            process.terminate()


@contextmanager
def over_http(url: str, token: str) -> Iterator[Call]:
    """Yield a function that calls a tool over HTTP: see `talking`."""

    @asynccontextmanager
    async def transport() -> AsyncIterator[Any]:
        headers = {"Authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S) as client,
            streamable_http_client(url, http_client=client) as streams,
        ):
            yield streams

    with talking(transport()) as call:
        yield call


@contextmanager
def talking(transport: AbstractAsyncContextManager[Any]) -> Iterator[Call]:
    """Yield a function that calls a tool and returns its answer, or raises what it says."""
    loop = asyncio.new_event_loop()
    here, over = loop.create_future(), asyncio.Event()

    async def talk() -> None:
        async with transport as streams, ClientSession(*streams[:2]) as client:
            await client.initialize()
            here.set_result(client)
            await over.wait()

    task = loop.create_task(talk())
    loop.run_until_complete(asyncio.wait([task, here], return_when=asyncio.FIRST_COMPLETED))
    if task.done():
        task.result()  # raises why
    client = here.result()

    def call(tool: str, /, **arguments: Any) -> Any:
        answer = loop.run_until_complete(client.call_tool(tool, arguments))
        text = "".join(part.text for part in answer.content if part.type == "text")
        assert len(text.encode()) <= MAX_BYTES
        if answer.is_error:
            raise sg.SightglassError(text)
        return json.loads(text)

    call.client = lambda method, *given: loop.run_until_complete(getattr(client, method)(*given))  # type: ignore[attr-defined]
    try:
        yield call
    finally:
        over.set()
        loop.run_until_complete(task)
        loop.close()


@pytest.fixture(scope="module")
def call(sweep: Path) -> Iterator[Call]:
    """Call tools of a server that may read only."""
    with served(sweep) as call:
        yield call


@contextmanager
def training(folder: Path, name: str = "live", *, offset: int = 0) -> Iterator[sg.Run]:
    """Train in a thread until somebody stops it."""
    ready, over = threading.Event(), threading.Event()
    runs: list[sg.Run] = []

    def train() -> None:
        with sg.init(name, dir=folder, record=["batch.loss"]) as run:
            lr = run.control("lr", 0.1, max=1.0)
            runs.append(run)
            step = 0
            while not (run.stopping or over.is_set()):
                run.observe("batch", step=step, loss=float(offset + step % 20), lr=lr.value)
                step += 1
                ready.set()
                over.wait(0.005)

    thread = threading.Thread(target=train)
    thread.start()
    assert ready.wait(PATIENCE_S)
    try:
        yield runs[0]
    finally:
        over.set()
        thread.join(PATIENCE_S)
