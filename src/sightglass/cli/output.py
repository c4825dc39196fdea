"""The output of commands: tables in a terminal, plain lines or JSON in a pipe."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from sightglass.core.clock import elapsed
from sightglass.core.errors import DamagedError

if TYPE_CHECKING:
    from sightglass.client.discover import RunInfo
    from sightglass.client.recorded.run import RecordedRun
    from sightglass.client.run import Acknowledgement
    from sightglass.core.record import Record


_BREAKS: Final = re.compile(r"[\t\r\n\v\f]")  # they would break a line of a table, and become spaces


def parse_value(text: str) -> object:
    """Read a value as JSON, or as Python's True, False and None; anything else is text."""
    try:
        return json.loads({"True": "true", "False": "false", "None": "null"}.get(text, text))
    except ValueError:
        return text


def print_acknowledgement(acknowledgement: Acknowledgement, as_json: bool, text: Callable[[], str]) -> None:
    """Print the run's reply to a command; `text` describes its effect."""
    if as_json:
        import msgspec

        print_json(jsonable(msgspec.to_builtins(acknowledgement, enc_hook=repr)))
    elif acknowledgement.applied:
        click.echo(f"{text()}  (at event {acknowledgement.event!r}, step {acknowledgement.step})")
    else:
        click.echo(f"Accepted, not applied yet. {acknowledgement.note}", err=True)


def print_json(value: object) -> None:
    """Print a value as one line of JSON."""
    click.echo(json.dumps(jsonable(value)))


def jsonable(value: Any) -> Any:
    """Convert a value for JSON: arrays become lists, NaN and infinities become null."""
    import numpy as np

    from sightglass.core.guarded import rebuild
    from sightglass.core.values import Histogram

    if isinstance(value, Histogram):
        return {"counts": value.counts.tolist(), "edges": value.edges.tolist(), "n_nan": value.n_nan,
                "n_posinf": value.n_posinf, "n_neginf": value.n_neginf}  # fmt: skip
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, bytes):
        return value.hex()
    return rebuild(value, jsonable)


def record_row(record: Record) -> dict[str, Any]:
    """Return a record as an object for JSON."""
    names = ("tag", "run", "index", "step", "wall_time", "value", "n_events", "complete", "closed", "steps")
    return {name: jsonable(getattr(record, name)) for name in names}


def record_line(record: Record, *, named: bool) -> str:
    """Return a record as a line."""
    value = record.value
    text = (
        f"{value:.6g}"
        if isinstance(value, float)
        else json.dumps(jsonable(value))
        if not isinstance(value, str)
        else value
    )
    note = "" if record.complete and record.closed else "\t(partial)"
    return f"{record.tag + chr(9) if named else ''}{record.step}\t{text}{note}"


def run_row(info: RunInfo) -> dict[str, Any]:
    """Return a run as an object for JSON."""
    events = {name: event.n_events for name, event in info.description.events.items()} if info.description else {}
    return {"name": info.name, "id": info.id, "state": info.state, "started": info.started, "host": info.host,
            "pid": info.pid, "directory": info.directory, "events": events}  # fmt: skip


def run_cells(info: RunInfo) -> tuple[str, ...]:
    """Return the cells of a live run in a table."""
    description = info.description
    events, clients = "", ""
    if description is not None:
        events = ", ".join(f"{name} {event.n_events:,}" for name, event in description.events.items())
        clients = str(max(0, description.n_clients - 1))  # this command is one
    age = elapsed(time.time() - info.started) if info.started else ""
    return info.name, info.id, info.state, age, events, clients, info.host, str(info.pid)


def series_row(run: RecordedRun, tag: str) -> dict[str, Any]:
    """Return a series of a recorded run as an object for JSON."""
    series = run.series(tag)
    steps = series.steps
    try:
        last = series[len(series) - 1].value
    except (IndexError, DamagedError):
        last = None
    return {
        "run": run.name,
        "tag": tag,
        "records": len(series),
        "steps": f"{steps.min():.15g} to {steps.max():.15g}" if len(steps) else "damaged",
        "type": series.type,
        "last": jsonable(last) if isinstance(last, bool | int | float | str) else None,
    }


def recorded_cells(info: RunInfo) -> tuple[str, ...]:
    """Return the cells of a recorded run in a table."""
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(info.started)) if info.started else ""
    age = elapsed(info.changed - info.started) if info.started else ""
    return info.directory, began, info.state, age, size(info.n_bytes)


def size(n: float) -> str:
    """Return a number of bytes as text, such as "1.5 MiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} TiB"


def print_rows(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print a table in a terminal, else one line per row, with tabs."""
    if sys.stdout.isatty():
        print_table(head, rows)
    else:
        for row in rows:
            click.echo("\t".join(_BREAKS.sub(" ", cell) for cell in row))


def print_table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print a table."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    colors = {"running": "green", "paused": "yellow", "stopping": "yellow", "silent": "red", "out of reach": "red",
              "died": "red", "failed": "red", "terminated": "yellow"}  # fmt: skip
    table = Table(*head, box=box.SIMPLE_HEAD, header_style="dim")
    for row in rows:
        cells = [Text(_BREAKS.sub(" ", cell)) for cell in row]
        cells[0].stylize("bold")
        cells[2].stylize(colors.get(row[2], "default"))
        table.add_row(*cells)
    Console().print(table)
