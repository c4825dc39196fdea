"""Commands that read runs: list them, describe one, watch queries."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, cast

import click

from sightglass.core.errors import RunNotFoundError

from .find_run import JSON, RUN, open_run, open_source
from .group import main
from .output import print_json, print_rows, record_line, record_row, recorded_cells, run_cells, run_row

if TYPE_CHECKING:
    from sightglass.client.recorded.run import RecordedRun, RecordedRuns
    from sightglass.client.run import RemoteRun
    from sightglass.client.stream import Stream
    from sightglass.core.record import Record

# How late a deadline may be noticed while no record arrives; records wake the loop at once.
POLL_S: Final = 0.2
# The run first sends what it still holds. A gap shows with the next record after that, mostly within this time.
COUNTED_S: Final = 1.0


@main.command()
@click.argument("directory", metavar="[DIR]", required=False, type=click.Path(file_okay=False))
@click.option("--connections", metavar="FOLDER", help="Also list the runs of the connection files in this folder.")
@JSON
def runs(directory: str | None, connections: str | None, as_json: bool) -> None:
    """List the live runs, or the runs recorded in DIR, newest first."""
    from sightglass.client.discover import runs as find

    if directory is not None and not os.path.isdir(directory):
        raise RunNotFoundError(f"Folder {directory!r} does not exist")
    found = find(directory, connections=connections)
    if directory is None:
        found = [info for info in found if info.live]
    if as_json:
        print_json([run_row(info) for info in found])
    elif not found and directory is not None:
        click.echo(f"Nothing was recorded in {directory}.", err=True)
    elif directory is not None:
        print_rows(("directory", "began", "state", "for", "size"), [recorded_cells(info) for info in found])
    elif not found:
        click.echo("No live runs. Start one with sightglass.init(…), or try: sightglass demo", err=True)
    else:
        print_rows(
            ("name", "id", "state", "for", "events", "clients", "host", "pid"), [run_cells(info) for info in found]
        )


@main.command()
@RUN
@JSON
def describe(run: str, as_json: bool) -> None:
    """Show a run's events, observables, controls and streams."""
    with open_run(run) as found:
        description = found.describe()
    if as_json:
        import msgspec

        print_json(msgspec.to_builtins(description))
    else:
        click.echo(str(description))


@main.command()
@RUN
@click.argument("queries", nargs=-1, required=True, metavar="QUERY...")
@click.option("-n", "--records", type=click.IntRange(min=1), metavar="N", help="Stop after N records of each query.")
@click.option("--for", "seconds", metavar="TIME", help="Stop after a time such as '30 s' or '5 min'.")
@click.option(
    "--view", metavar="VIEW", help="The view: line, bars, histogram, heatmap, log … (default: chosen from the values)."
)
@click.option("--title", help="The title of the chart.")
@click.option("--log-y", is_flag=True, help="Use a logarithmic y axis.")
@click.option("--plain", is_flag=True, help="Print plain lines, also in a terminal.")
@click.option(
    "--surface",
    type=click.Choice(["terminal", "window", "file"]),
    help="Where to draw: in this terminal, in a window, or into a file (see --out).",
)
@click.option("--out", type=click.Path(dir_okay=False), metavar="FILE", help="Draw into a file: .png, .svg or .pdf.")
@click.option("--yes", is_flag=True, help="Accept the query's cost to the run without asking.")
@JSON
def watch(  # noqa: PLR0917  click passes them by name
    run: str,
    queries: tuple[str, ...],
    records: int | None,
    seconds: str | None,
    view: str | None,
    title: str | None,
    log_y: bool,
    plain: bool,
    surface: str | None,
    out: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Watch queries: live charts in a terminal, lines in a pipe.

    \b
    Examples of QUERY:
      batch.loss
      'abs(batch.grads["dense1"]["kernel"]).mean()'
      'batch.loss.mean(every=100)'
      'on("batch").map(lambda b: b.grads.map(lambda name, g: norm(g["kernel"]))).mean(per="epoch")'

    `sightglass describe RUN` shows what you can query, `sightglass functions` what queries can compute.
    """  # noqa: D301  click reads the escape: keep these lines as they are
    deadline_s = None if seconds is None else time.monotonic() + _seconds(seconds)
    drawn = _surface(surface, out, text="--json" if as_json else "--plain" if plain else None)
    with open_source(run) as source:
        streams = [_open_stream(source, query, yes=yes) for query in queries]
        for stream in streams:
            if stream.note:
                click.echo(stream.note, err=True)
        if drawn is not None:
            _draw(streams, records, deadline_s, view=view, title=title, log_y=log_y, **drawn)
        else:
            several = len(streams) > 1
            for record in _records(streams, records, deadline_s, _LossReport(source, streams)):
                line = json.dumps(record_row(record)) if as_json else record_line(record, named=several)
                click.echo(line)
        for stream in streams:
            stream.wait(0, timeout_s=0)
            if stream.ended:
                list(stream)  # raises the error of a stream that failed


def _open_stream(source: RemoteRun | RecordedRun | RecordedRuns, query: str, *, yes: bool) -> Stream:
    """Send a query; if it has a cost that must be confirmed, ask the user and send it again."""
    from sightglass.core.errors import UnconfirmedError

    try:
        return source.stream(query)
    except UnconfirmedError as error:
        cost = str(error).partition(" Ask again")[0]
    if not (yes or sys.stdin.isatty()):
        raise click.ClickException(f"{cost} Add --yes to go on.")
    if not yes:
        click.confirm(f"{cost}\nGo on?", abort=True)
    return cast("RemoteRun", source).stream(query, confirm=True)  # recorded runs have no costs


def _seconds(text: str) -> float:
    from sightglass.core.clock import duration

    try:
        return duration(text)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


class _LossReport:
    """Says on the standard error output when the connection to a run was lost, and when it was made again."""

    def __init__(self, source: RemoteRun | RecordedRun | RecordedRuns, streams: list[Stream]) -> None:
        self._source = source
        self._streams = streams
        self._lost = ""
        self._n_reconnects = 0
        self._due_s = math.inf

    def update(self) -> None:
        """Say what has changed since the last call."""
        lost, n = getattr(self._source, "lost", ""), getattr(self._source, "n_reconnects", 0)
        if lost and lost != self._lost:
            click.echo(f"{lost}. Connecting again …", err=True)
        if n > self._n_reconnects:
            self._due_s = time.monotonic() + COUNTED_S
        self._lost, self._n_reconnects = lost, n
        if time.monotonic() >= self._due_s and not lost:
            n_lost = sum(stream.n_lost for stream in self._streams)
            click.echo(f"Connected again: {n_lost:,} records are missing so far.", err=True)
            self._due_s = math.inf


def _records(streams: list[Stream], n: int | None, deadline_s: float | None, losses: _LossReport) -> Iterator[Record]:
    """Yield the records of all streams as they arrive, until each had n records or the time is over."""
    from sightglass.client.arrivals import arrivals

    cursors, n_seen = [0] * len(streams), [0] * len(streams)
    while True:
        seen, over = arrivals.n, all(stream.ended for stream in streams)
        fresh: list[Record] = []
        for i, stream in enumerate(streams):
            cursors[i], columns = stream.since(cursors[i])
            columns = columns.slice(0, None if n is None else max(0, n - n_seen[i]))
            n_seen[i] += len(columns)
            fresh.extend(columns.records(tag=stream.tag, run=stream.run))
        losses.update()
        yield from sorted(fresh, key=lambda record: record.wall_time)
        late = deadline_s is not None and time.monotonic() > deadline_s
        if late or (n is not None and min(n_seen) >= n) or (over and not fresh):
            return
        if not fresh:
            arrivals.wait(seen, POLL_S)


def _surface(surface: str | None, out: str | None, *, text: str | None) -> dict[str, Any] | None:
    """Return the options of `plot` that say where to draw, or `None` to print lines."""
    chosen = surface or ("file" if out else None)
    if out is not None and chosen != "file":
        raise click.UsageError(f"--out FILE draws into a file, but --surface {chosen} does not: leave one of them out.")
    if chosen == "file" and out is None:
        raise click.UsageError("--surface file needs a path: add --out FILE.")
    if chosen is not None and text is not None:
        raise click.UsageError(
            f"{text} prints lines, but {'--out' if out else '--surface'} draws: leave one of them out."
        )
    match chosen:
        case "window":
            return {"surface": "matplotlib", "window": True}
        case "file":
            click.echo(f"Drawing into {out}", err=True)
            return {"surface": "matplotlib", "path": out}
        case "terminal":
            return {"surface": "terminal"}
    return {"surface": "terminal"} if sys.stdout.isatty() and text is None else None


def _draw(streams: list[Stream], n: int | None, deadline_s: float | None, **options: Any) -> None:
    from sightglass.views import plot

    view = plot(*streams, **options)
    try:
        while not (view.wait(POLL_S) or getattr(view, "closed", False)):
            enough = n is not None and all(
                (stream.latest.index if stream.latest else -1) + 1 >= n for stream in streams
            )
            if enough or (deadline_s is not None and time.monotonic() > deadline_s):
                return
        if options.get("window") and n is None and deadline_s is None:
            view.show()  # a window stays open after the run has ended, until the user closes it
    finally:
        view.close()
