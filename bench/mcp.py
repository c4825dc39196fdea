"""How long an agent waits: for a first answer, beside the smallest server of the SDK, and for a list of 1,000 runs."""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mcp.client.stdio import StdioServerParameters, stdio_client

import sightglass as sg
from bench.row import Row
from mcp import ClientSession

N_ROUNDS, N_RUNS = 5, 1_000
SMALLEST: Final = """
from mcp.server import MCPServer
server = MCPServer("smallest")
@server.tool()
def find_runs() -> str:
    return "none"
server.run()
"""


def measure() -> Iterator[Row]:
    """Start both servers in turn, and list a thousand runs."""
    with tempfile.TemporaryDirectory() as folder:
        for number in range(N_RUNS):
            with sg.init(f"run-{number}", dir=folder, config={"lr": number / N_RUNS}) as run:
                run.log({"loss": float(number)})
        few = Path(folder, next(iter(sorted(path.name for path in Path(folder).iterdir()))))
        ours = ["-m", "sightglass", "mcp"]
        times: dict[str, list[float]] = {"smallest": [], "ours": []}
        for _ in range(N_ROUNDS):
            times["smallest"].append(asyncio.run(_answer(["-c", SMALLEST], {}))[0])
            times["ours"].append(asyncio.run(_answer([*ours, str(few)], {}))[0])
        first, smallest = statistics.median(times["ours"]), statistics.median(times["smallest"])
        yield Row("mcp: start to first answer, the SDK's smallest server", smallest, "s")
        yield Row("mcp: start to first answer", first, "s", 0.5)
        yield Row("mcp: the same, times the smallest server", first / smallest, "x")
        asked = {"columns": ["loss.last", "config.lr"], "sort": "-loss.last"}
        _, again = asyncio.run(_answer([*ours, folder], asked, n=N_ROUNDS))
        yield Row(f"mcp: find_runs over {N_RUNS:,} runs, sorted by a series", statistics.median(again), "s", 0.5)


async def _answer(arguments: list[str], asked: dict[str, Any], *, n: int = 1) -> tuple[float, list[float]]:
    """Return the seconds from the start to the first answer, and those of `n` further ones."""
    began_s, times = time.perf_counter(), []
    server = StdioServerParameters(command=sys.executable, args=arguments)
    async with stdio_client(server) as (read, write), ClientSession(read, write) as client:
        await client.initialize()
        await client.call_tool("find_runs", asked)
        first_s = time.perf_counter() - began_s
        for _ in range(n):
            began_s = time.perf_counter()
            await client.call_tool("find_runs", asked)
            times.append(time.perf_counter() - began_s)
    return first_s, times
