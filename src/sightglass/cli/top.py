"""The command `top`: the live runs, how fast they go, what queries cost them, and the latest values of some queries."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from sightglass.core.errors import RunLostError, RunNotFoundError, SightglassError

from .complete import ANSWER_S, QUERY
from .find_run import HEADER, JSON, TIME, hub
from .group import main
from .output import echo, jsonable, print_json, print_rows, run_row, table_of, value_text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sightglass.client.describe import RunInfo
    from sightglass.client.run import RemoteRun
    from sightglass.client.streams.stream import Stream
    from sightglass.core.columns import Record
    from sightglass.core.description import Description

EVERY_S: Final = 2.0  # fast enough to see a change, slow enough to read it

NONE: Final = "No live runs."

Rates = dict[str, float]


@main.command()
@click.argument("queries", nargs=-1, type=QUERY, metavar="[QUERY]...")
@click.option("--every", "every_s", type=TIME, default=f"{EVERY_S:g}s", metavar="TIME", help="How often to look.")
@HEADER
@JSON
def top(queries: tuple[str, ...], every_s: float, header: bool, as_json: bool) -> None:
    """Show the live runs with rates, costs and latest values.

    Show the rate of the fastest event, the share of the time that queries take, and the latest value of each QUERY. In
    a terminal this goes on until Ctrl-C; in a pipe, it prints one table after the time of --every (2s).
    """
    from sightglass.query.parser import as_query

    for query in queries:
        as_query(query)  # a query that no run can answer is refused at once
    with ExitStack() as stack:
        table = RunTable(queries, stack)
        table.look()
        if sys.stdout.isatty() and not as_json:
            draw = stack.enter_context(display())
            while True:
                draw(table_of(table.head, table.rows(), caption=table.refusals()) if table.runs else NONE)
                time.sleep(every_s)
                table.look()
        time.sleep(every_s)
        table.look()
        if as_json:
            print_json(table.as_json())
        elif table.runs:
            print_rows(table.head, table.rows(), header=header)
            if table.refusals():
                echo(table.refusals(), err=True)
        else:
            echo(NONE, err=True)


class RunTable:
    """The live runs at the last look, and what changed since the look before."""

    def __init__(self, queries: tuple[str, ...], stack: ExitStack) -> None:
        """Prepare to look; the stack closes the connections to runs that are queried."""
        self.runs: list[RunInfo] = []
        self.head = ("name", "state", "rate", "cost", *queries)
        self._queries = queries
        self._stack = stack
        self._before: dict[str, Description] = {}
        self._streams: dict[str, dict[str, Stream | Exception]] = {}

    def look(self) -> None:
        """Ask all live runs how they are, and query those that are new."""
        from sightglass.client.discover import live_runs

        self._before = {info.id: info.description for info in self.runs if info.description}
        self.runs = live_runs(hub=hub())
        for info in self.runs:
            if self._queries and info.description and info.id not in self._streams:
                self._streams[info.id] = self._ask(info.id)

    def rows(self) -> list[tuple[str, ...]]:
        """Return a row for each run, as text."""
        return [self._row(info) for info in self.runs]

    def refusals(self) -> str:
        """Return why queries were refused, one a line."""
        found = {
            str(_error(one)): None for streams in self._streams.values() for one in streams.values() if _error(one)
        }
        return "\n".join(found)

    def as_json(self) -> list[dict[str, Any]]:
        """Return an object for each run."""
        return [
            run_row(info)
            | {"rates": self._rates(info), "cost": self._cost(info)}
            | {"values": {query: _latest(stream) for query, stream in self._streams.get(info.id, {}).items()}}
            for info in self.runs
        ]

    def _ask(self, id: str) -> dict[str, Stream | Exception]:
        """Return the stream of each query to a run, or why there is none."""
        from sightglass.client.discover import connect

        try:
            run: RemoteRun = self._stack.enter_context(connect(id, hub=hub(), timeout_s=ANSWER_S))
        except (RunNotFoundError, RunLostError):
            return {}
        streams: dict[str, Stream | Exception] = {}
        for query in self._queries:
            try:
                streams[query] = run.stream(query)
            except SightglassError as error:
                streams[query] = error
        return streams

    def _row(self, info: RunInfo) -> tuple[str, ...]:
        rates, cost = self._rates(info), self._cost(info)
        fastest = max(rates, key=lambda name: rates[name], default="")
        rate = f"{fastest} {rates[fastest]:.3g}/s" if fastest else ""
        streams = self._streams.get(info.id, {})
        values = [_cell(streams.get(query)) for query in self._queries]
        return info.name, info.state, rate, "" if cost is None else f"{cost:.1%}", *values

    def _rates(self, info: RunInfo) -> Rates:
        """Return how often each event happened per second, since the last look."""
        now, before = info.description, self._before.get(info.id)
        if now is None or before is None or now.wall_time <= before.wall_time:
            return {}
        took_s = now.wall_time - before.wall_time
        counts = {name: event.n_events for name, event in before.events.items()}
        return {name: (event.n_events - counts.get(name, 0)) / took_s for name, event in now.events.items()}

    def _cost(self, info: RunInfo) -> float | None:
        """Return the part of the time that a run spent on queries, since the last look."""
        now, before = info.description, self._before.get(info.id)
        if now is None or before is None or now.wall_time <= before.wall_time:
            return None
        spent_s = {stream.stream: stream.spent_s for stream in before.streams}
        more_s = sum(max(0.0, stream.spent_s - spent_s.get(stream.stream, 0.0)) for stream in now.streams)
        return more_s / (now.wall_time - before.wall_time)


def _error(stream: Stream | Exception | None) -> Exception | None:
    return stream if isinstance(stream, Exception) else stream.error if stream else None


def _record(stream: Stream | Exception | None) -> Record | None:
    return None if stream is None or isinstance(stream, Exception) else stream.latest


def _latest(stream: Stream | Exception) -> dict[str, Any] | None:
    error, record = _error(stream), _record(stream)
    if error:
        return {"error": str(error)}
    return None if record is None else {"step": record.step, "value": jsonable(record.value)}


def _cell(stream: Stream | Exception | None) -> str:
    record = _record(stream)
    if _error(stream):
        return "refused"
    if record is None:
        return ""
    return f"{record.value:.4g}" if isinstance(record.value, float) else value_text(record.value)[0]


@contextmanager
def display() -> Iterator[Callable[[RenderableType], None]]:
    """Give a function that draws in the terminal, each time over what it drew before; the last drawing stays."""
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False) as live:
        yield lambda drawn: live.update(Text(drawn) if isinstance(drawn, str) else drawn, refresh=True)
