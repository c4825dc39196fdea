"""Commands that look: which runs there are, what they offer, what they answer."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from sightglass.core.errors import RunNotFoundError

from .find_run import JSON, RUN, asked, open_run
from .group import main
from .output import print_json, print_rows, record_line, record_row, recorded_cells, run_cells, run_row

if TYPE_CHECKING:
    from sightglass.core.record import Record


@main.command()
@click.argument("directory", metavar="[DIR]", required=False, type=click.Path(file_okay=False))
@click.option("--connections", metavar="FOLDER", help="Also the runs that the connection files in this folder lead to.")
@JSON
def runs(directory: str | None, connections: str | None, as_json: bool) -> None:
    """List runs, the newest first: the live ones, or those that were recorded in DIR."""
    from sightglass.client.discover import runs as find

    if directory is not None and not os.path.isdir(directory):
        raise RunNotFoundError(f"There is no folder {directory!r}")
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
    """Show what a run offers: events, observables, controls, actions, functions, streams."""
    with open_run(run) as found:
        told = found.describe()
    if as_json:
        import msgspec

        print_json(msgspec.to_builtins(told))
    else:
        click.echo(str(told))


@main.command()
@RUN
@click.argument("queries", nargs=-1, required=True, metavar="QUERY...")
@click.option("-n", "--records", type=click.IntRange(min=1), metavar="N", help="End after N records of each stream.")
@click.option("--for", "seconds", metavar="TIME", help="End after a time such as '30 s' or '5 min'.")
@click.option(
    "--view", metavar="VIEW", help="The view to draw: line, bars, histogram, heatmap, log … (default: what fits)."
)
@click.option("--title", help="What stands above the chart.")
@click.option("--log-y", is_flag=True, help="A logarithmic y axis.")
@click.option("--plain", is_flag=True, help="Plain lines, also in a terminal.")
@click.option(
    "--surface",
    type=click.Choice(["terminal", "window", "file"]),
    help="Where to draw: in the terminal, in a window of its own, into a file.",
)
@click.option("--out", type=click.Path(dir_okay=False), metavar="FILE", help="Draw into FILE: .png, .svg or .pdf.")
@click.option("--yes", is_flag=True, help="Ask, although it has a price for the run.")
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
    """Ask a run, and watch the answers: a live chart in a terminal or a window, else one line a record.

    \b
    QUERY is such as
      batch.loss
      'abs(batch.grads["dense1"]["kernel"]).mean()'
      'batch.loss.mean(every=100)'
      'on("batch").map(lambda b: b.grads.map(lambda name, g: norm(g["kernel"]))).mean(per="epoch")'
    See `sightglass describe RUN` for what the run offers, and `sightglass functions` for what queries can compute.
    """  # noqa: D301  click reads the escape: keep these lines as they are
    deadline_s = None if seconds is None else time.monotonic() + _seconds(seconds)
    drawn = _surface(surface, out, text="--json" if as_json else "--plain" if plain else None)
    with asked(run) as source:
        streams = [_asked(source, query, yes=yes) for query in queries]
        for stream in streams:
            if stream.note:
                click.echo(stream.note, err=True)
        if drawn is not None:
            _draw(streams, records, deadline_s, view=view, title=title, log_y=log_y, **drawn)
        else:
            several = len(streams) > 1
            for record in _records(streams, records, deadline_s):
                line = json.dumps(record_row(record)) if as_json else record_line(record, named=several)
                click.echo(line)
        for stream in streams:
            stream.wait(0, timeout_s=0)
            if stream.ended:
                list(stream)  # raises why it ended, if it did not end well


def _asked(source: Any, query: str, *, yes: bool) -> Any:
    """Ask a run; what has a price is asked for again once it is confirmed."""
    from sightglass.core.errors import UnconfirmedError

    try:
        return source.stream(query)
    except UnconfirmedError as error:
        price = str(error).partition(" Ask again")[0]
    if not (yes or sys.stdin.isatty()):
        raise click.ClickException(f"{price} Add --yes to go on.")
    if not yes:
        click.confirm(f"{price}\nGo on?", abort=True)
    return source.stream(query, confirm=True)


def _seconds(text: str) -> float:
    from sightglass.core.clock import duration

    try:
        return duration(text)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _records(streams: list[Any], n: int | None, deadline_s: float | None) -> Iterator[Record]:
    """Yield the records of all streams as they come, until each has given n, or the time is over."""
    from sightglass.client.arrivals import arrivals

    cursors = [0] * len(streams)
    while True:
        seen, over = arrivals.n, all(stream.ended for stream in streams)
        fresh: list[Record] = []
        for i, stream in enumerate(streams):
            before = cursors[i]
            cursors[i], records = stream.since(before)
            fresh.extend(records if n is None else records[: max(0, n - before)])
        yield from sorted(fresh, key=lambda record: record.wall_time)
        late = deadline_s is not None and time.monotonic() > deadline_s
        if late or (n is not None and min(cursors) >= n) or (over and not fresh):
            return
        if not fresh:
            arrivals.wait(seen, 0.2)


def _surface(surface: str | None, out: str | None, *, text: str | None) -> dict[str, Any] | None:
    """Return where to draw, as options of `plot`; `None` to print lines."""
    chosen = surface or ("file" if out else None)
    if out is not None and chosen != "file":
        raise click.UsageError(
            f"--out FILE draws into a file, and --surface {chosen} elsewhere: leave one of them out."
        )
    if chosen == "file" and out is None:
        raise click.UsageError("--surface file needs to know which: add --out FILE.")
    if chosen is not None and text is not None:
        raise click.UsageError(
            f"{text} prints lines, and {'--out' if out else '--surface'} draws: leave one of them out."
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


def _draw(streams: list[Any], n: int | None, deadline_s: float | None, **options: Any) -> None:
    from sightglass.views import plot

    view = plot(*streams, **options)
    try:
        while not (view.wait(0.2) or getattr(view, "closed", False)):
            enough = n is not None and all(
                (stream.latest.index if stream.latest else -1) + 1 >= n for stream in streams
            )
            if enough or (deadline_s is not None and time.monotonic() > deadline_s):
                return
        if options.get("window") and n is None and deadline_s is None:
            view.show()  # who looks at a window has seen enough when it is closed, not when the run ends
    finally:
        view.close()
