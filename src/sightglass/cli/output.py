"""The output of commands: tables in a terminal, lines with tabs or JSON in a pipe."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Final

import click

from sightglass.core.errors import DamagedError
from sightglass.core.process.clock import elapsed
from sightglass.core.redact import visible

if TYPE_CHECKING:
    from rich.table import Table

    from sightglass.client.describe import RunInfo
    from sightglass.client.many.fleet import FleetReport
    from sightglass.client.recorded.run import RecordedRun
    from sightglass.core.columns import Record
    from sightglass.core.description import Acknowledgement


_BREAKS: Final = re.compile(r"[\t\r\n\v\f]")  # they would break a line of a table, and become spaces
_NUMBER: Final = 9  # columns: a number of four digits with its exponent, such as -1.234e-5, is never broken
_SHORT: Final = ("id", "state", "for", "rate", "cost", "pid")  # columns that are never broken into lines
# A line of 1,000 numbers is about 10 kB: it still fits the buffer of a terminal, and a chart shows more at a glance.
MAX_VALUES_SHOWN: Final = 1_000


def echo(text: object, *, err: bool = False) -> None:
    """Print a text that may hold names, with characters made visible that a terminal would obey."""
    click.echo(visible(str(text)), err=err)


def print_acknowledgement(
    acknowledgement: Acknowledgement, as_json: bool, text: Callable[[Acknowledgement], str], *, run: str = ""
) -> None:
    """Print a run's reply to a command, after the run's name if it is given; `text` describes its effect."""
    name = f"{run}: " if run else ""
    if as_json:
        print_json(_reply_row(acknowledgement))
    elif acknowledgement.applied:
        event, step = acknowledgement.event, acknowledgement.step
        echo(f"{name}{text(acknowledgement)}  (at event {event!r}, step {step})")
        if acknowledgement.note:
            echo(f"{name}{acknowledgement.note}", err=True)
    else:
        echo(f"{name}Accepted, not applied yet. {acknowledgement.note}", err=True)


def print_report(
    report: FleetReport, lost: Mapping[str, str], as_json: bool, text: Callable[[Acknowledgement], str]
) -> None:
    """Print what became of a command in each run, a line for each; those that failed on the standard error output.

    Args:
        report: The report.
        lost: Why other runs could not be asked, by their names.
        as_json: Whether to print an object of the replies by the runs' names.
        text: Describes the effect in a run.
    """
    from sightglass.core.program_values.guarded import message

    replies = {**report.applied, **report.waiting}
    failed = {name: message(error) for name, error in report.failed.items()} | dict(lost)
    if as_json:
        errors = {name: {"applied": False, "error": why} for name, why in failed.items()}
        print_json({name: _reply_row(reply) for name, reply in replies.items()} | errors)
        return
    for name, reply in replies.items():
        print_acknowledgement(reply, False, text, run=name)
    for name, why in failed.items():
        echo(f"{name}: {why}", err=True)


def _reply_row(acknowledgement: Acknowledgement) -> Any:
    import msgspec

    return jsonable(msgspec.to_builtins(acknowledgement, enc_hook=repr))


def print_json(value: object) -> None:
    """Print a value as one line of JSON."""
    click.echo(json.dumps(jsonable(value)))


def jsonable(value: Any) -> Any:
    """Convert a value for JSON: arrays become lists, NaN and infinities become null."""
    import numpy as np

    from sightglass.core.program_values.guarded import rebuild
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
    names = (
        "tag", "run", "index", "step", "wall_time", "value", "n_events", "complete", "closed", "approximate", "steps"
    )  # fmt: skip
    return {name: jsonable(getattr(record, name)) for name in names}


def record_cells(record: Record, names: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the cells of a record in a table: what `names` says of "run" and "tag", its step, its value, and a note.

    The note is left out if there is nothing to say.
    """
    text, cut = value_text(record.value)
    partial = "" if record.complete and record.closed else "(partial)"
    note = " ".join(filter(None, (partial, "(approximate)" if record.approximate else "", cut)))
    return (*(str(getattr(record, name)) for name in names), str(record.step), text, *([note] if note else []))


def value_text(value: object) -> tuple[str, str]:
    """Return a value as text, and a note if it was cut."""
    if isinstance(value, str):
        return value, ""
    if isinstance(value, Real) and not isinstance(value, Integral):  # float32 of NumPy, too
        return f"{float(value):.6g}", ""
    cutter = _Cutter()
    text = json.dumps(jsonable(cutter.cut(value)))
    n_all = cutter.n_seen
    return text, f"({MAX_VALUES_SHOWN:,} of {n_all:,} values: --json prints all)" if n_all > MAX_VALUES_SHOWN else ""


class _Cutter:
    """Keeps the first values of a result, in arrays, mappings and lists alike, and counts all."""

    def __init__(self) -> None:
        self.n_seen = 0

    def cut(self, value: Any) -> Any:
        """Return a value without what there is no room for."""
        import numpy as np

        if isinstance(value, np.ndarray):
            left = max(0, MAX_VALUES_SHOWN - self.n_seen)
            self.n_seen += value.size
            return value if value.size <= left else value.ravel()[:left]
        if isinstance(value, dict):
            return dict(self._cut_pairs(value.items()))
        if isinstance(value, list | tuple):
            return [item for _, item in self._cut_pairs(enumerate(value))]
        self.n_seen += 1
        return value

    def _cut_pairs(self, pairs: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        for key, item in pairs:
            has_room = self.n_seen < MAX_VALUES_SHOWN
            item = self.cut(item)
            if has_room:
                yield key, item


def run_row(info: RunInfo) -> dict[str, Any]:
    """Return a run as an object for JSON."""
    events = {name: event.n_events for name, event in info.description.events.items()} if info.description else {}
    return {"name": info.name, "id": info.id, "state": info.state, "started": info.started, "ended": info.ended,
            "host": info.host, "pid": info.pid, "directory": info.directory, "events": events,
            "why": str(info.ending), "sentence": info.sentence}  # fmt: skip


def run_cells(info: RunInfo) -> tuple[str, ...]:
    """Return the cells of a live run in a table."""
    description = info.description
    events, clients = "", ""
    if description is not None:
        events = ", ".join(f"{name} {event.n_events:,}" for name, event in description.events.items())
        clients = str(max(0, description.n_clients - 1))  # this command is one
    age = "" if info.duration_s is None else elapsed(info.duration_s)
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
        "last": jsonable(last) if isinstance(last, str | Real) else None,
    }


def recorded_cells(info: RunInfo) -> tuple[str, ...]:
    """Return the cells of a recorded run in a table."""
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(info.started)) if info.started else ""
    age = "" if info.duration_s is None else elapsed(info.duration_s)
    labels = ", ".join(info.annotations.labels)
    return info.directory, began, info.state, age, size(info.n_bytes), labels, str(info.ending)


def size(n: float) -> str:
    """Return a number of bytes as text, such as "1.5 MiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if n < 1024:
            return f"{n:.0f} {unit}" if unit == "B" else f"{n:.1f} {unit}"
        n /= 1024
    return f"{n:.1f} TiB"


def print_rows(head: tuple[str, ...], rows: Iterable[tuple[str, ...]], *, header: bool = True) -> None:
    """Print a table in a terminal, else one line for each row, with tabs, below the names of the columns."""
    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(table_of(head, rows))
        return
    if header:
        print_line(head)
    for row in rows:
        print_line(row)


def print_line(cells: Iterable[str]) -> None:
    """Print a row of a table as a line, with tabs."""
    echo("\t".join(_BREAKS.sub(" ", cell) for cell in cells))


def table_of(head: tuple[str, ...], rows: Iterable[tuple[str, ...]], *, caption: str = "") -> Table:
    """Return a table for a terminal, with a text below it."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    colors = {"running": "green", "quiet": "yellow", "paused": "yellow", "stopping": "yellow", "silent": "red",
              "out of reach": "red", "died": "red", "failed": "red", "terminated": "yellow"}  # fmt: skip
    below = Text(visible(caption)) if caption else None
    table = Table(box=box.SIMPLE_HEAD, header_style="dim", caption=below, caption_justify="left")
    for name in head:
        table.add_column(name, overflow="fold", no_wrap=name in _SHORT, min_width=min(len(name), _NUMBER))
    for row in rows:
        cells = [Text(visible(_BREAKS.sub(" ", cell))) for cell in row]
        cells[0].stylize("bold")
        if "state" in head:
            state = row[head.index("state")]
            cells[head.index("state")].stylize(colors.get(state, "default"))
        table.add_row(*cells)
    return table
