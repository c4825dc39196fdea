"""Real runs, and the official client against the real command."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client

import sightglass as sg

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
            if number == 3 and step == 20:
                raise RuntimeError("CUDA out of memory")


Call = Callable[..., Any]


@contextmanager
def served(folder: Path, *options: str) -> Iterator[Call]:
    """Start the command, and yield a function that calls a tool and returns its answer, or raises what it says."""
    loop = asyncio.new_event_loop()
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "sightglass", "mcp", str(folder), *options], env=dict(os.environ)
    )

    @asynccontextmanager
    async def session() -> Any:
        async with stdio_client(server) as (read, write), ClientSession(read, write) as client:
            await client.initialize()
            yield client

    async def opened() -> None:
        async with session() as client:
            here.set_result(client)
            await over.wait()

    here: asyncio.Future[Any] = loop.create_future()
    over = asyncio.Event()
    task = loop.create_task(opened())
    client = loop.run_until_complete(here)

    def call(tool: str, /, **arguments: Any) -> Any:
        answer = loop.run_until_complete(client.call_tool(tool, arguments))
        text = "".join(part.text for part in answer.content if part.type == "text")
        assert len(text) <= 8_000
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
