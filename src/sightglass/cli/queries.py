"""Commands that read runs: list them, describe one, watch queries."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import click

from sightglass.core.errors import RunLostError, RunNotFoundError

from .complete import QUERY
from .find_run import FOLDER, FOLLOW_LINKS, HEADER, JSON, RUN, TIME, hub, open_run, open_source
from .group import EXIT_FAILED, fail, main
from .output import (
    echo,
    print_json,
    print_line,
    print_rows,
    record_cells,
    record_row,
    recorded_cells,
    run_cells,
    run_row,
)
from .recorded import print_table
from .top import EVERY_S, display

if TYPE_CHECKING:
    from sightglass.client.run import RemoteRun
    from sightglass.client.streams.stream import Stream
    from sightglass.core.columns import Record

    from .find_run import Source

# How late a deadline may be noticed while no record arrives; records wake the loop at once.
POLL_S: Final = 0.2
# The run first sends what it still holds. A gap shows with the next record after that, mostly within this time.
COUNTED_S: Final = 1.0
# A run or a machine that is busy may send that record later: the number is looked at again, after doubled rests.
LATE_S: Final = 60.0


@main.command()
@click.argument("directory", metavar="[DIR]", required=False, type=FOLDER)
@click.option("--connections", metavar="FOLDER", help="Also list the runs of the connection files in this folder.")
@click.option(
    "--columns",
    multiple=True,
    metavar="COLUMNS",
    help="Show a table of the runs in DIR with these columns, such as 'loss.min, val/accuracy.last, config.lr', or "
    "with the last value of a query, as NAME=QUERY; repeat it.",
)
@click.option("--deleted", is_flag=True, help="List the runs in DIR that are in the trash.")
@FOLLOW_LINKS
@HEADER
@JSON
def runs(  # noqa: PLR0917  click passes them by name
    directory: str | None,
    connections: str | None,
    columns: tuple[str, ...],
    deleted: bool,
    follow_links: bool,
    header: bool,
    as_json: bool,
) -> None:
    """List the live runs, or the runs recorded in DIR, newest first."""
    from sightglass.client import discover
    from sightglass.storage.run_listing import is_folder

    if hub() and (directory or connections):
        raise click.UsageError("Expected neither DIR nor --connections with --hub")
    if directory is not None and not is_folder(directory):
        raise RunNotFoundError(f"Folder {directory!r} does not exist")
    if columns:
        if directory is None:
            raise click.UsageError("Expected DIR with --columns: live runs have no table")
        print_table(directory, columns, follow_links=follow_links, header=header, as_json=as_json)
        return
    if deleted and directory is None:
        raise click.UsageError("Expected DIR with --deleted")
    if directory is None:
        found = discover.live_runs(connections) if hub() is None else discover.runs(hub=hub())
    else:
        found = discover.runs(directory, deleted=deleted, follow_links=follow_links)
    if as_json:
        print_json([run_row(info) for info in found])
    elif not found and directory is not None:
        echo(
            f"No run in {directory} is in the trash." if deleted else f"Nothing was recorded in {directory}.", err=True
        )
    elif directory is not None:
        rows = [recorded_cells(info) for info in found]
        print_rows(("directory", "began", "state", "for", "size", "labels", "why"), rows, header=header)
    elif not found and hub():
        echo(f"No live runs on {hub()}.", err=True)
    elif not found:
        echo("No live runs. Start one with sightglass.init(…), or try: sightglass demo", err=True)
    else:
        head = ("name", "id", "state", "for", "events", "clients", "host", "pid")
        print_rows(head, [run_cells(info) for info in found], header=header)


@main.command()
@RUN
@click.option("--follow", is_flag=True, help="Show it again every two seconds, until the run ends.")
@JSON
def describe(run: str, follow: bool, as_json: bool) -> None:
    """Show a run's events, observables, controls and streams."""
    drawn = follow and sys.stdout.isatty() and not as_json
    with open_run(run) as found, display() if drawn else nullcontext() as draw:
        while True:
            try:
                description = found.describe()
            except RunLostError:
                if follow and found.ended:
                    return
                raise
            if as_json:
                import msgspec

                print_json(msgspec.to_builtins(description))
            elif draw is not None:
                draw(str(description))
            else:
                echo(description)
            if not follow or found.ended:
                return
            time.sleep(EVERY_S)


@main.command()
@RUN
@JSON
def diagnose(run: str, as_json: bool) -> None:
    """Say what looks wrong in a run, live or recorded.

    Why it ended, whether it is quiet, the first NaN, a loss that diverges or stands still, gradients, a machine that is
    idle or full, and what else its description and its records show.
    """
    from sightglass.diagnosis.diagnose import diagnose as found_in

    with open_run(run) as opened:
        found = found_in(opened)
    if as_json:
        import msgspec

        print_json(msgspec.to_builtins(found))
    else:
        echo(found)


@main.command()
@RUN
@click.argument("queries", nargs=-1, required=True, type=QUERY, metavar="QUERY...")
@click.option("-n", "--records", type=click.IntRange(min=1), metavar="N", help="Stop after the next N records of each.")
@click.option("--since", type=click.Choice(["start"]), help="Begin with what the run has recorded of it.")
@click.option("--for", "for_s", type=TIME, metavar="TIME", help="Stop after a time such as 30s or '5 min'.")
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
@click.option("--wait", is_flag=True, help="Wait for a run or an event that does not exist yet, instead of failing.")
@HEADER
@JSON
def watch(  # noqa: PLR0917  click passes them by name
    run: str,
    queries: tuple[str, ...],
    records: int | None,
    since: Literal["start"] | None,
    for_s: float | None,
    view: str | None,
    title: str | None,
    log_y: bool,
    plain: bool,
    surface: str | None,
    out: str | None,
    yes: bool,
    wait: bool,
    header: bool,
    as_json: bool,
) -> None:
    """Watch queries: live charts in a terminal, lines in a pipe.

    With a pattern such as 'sweep-*', watch all live runs whose names match, and those that begin later, until Ctrl-C.

    \b
    Examples of QUERY:
      batch.loss
      'abs(batch.grads["dense1"]["kernel"]).mean()'
      'batch.loss.mean(every=100)'
      'on("batch").map(lambda b: b.grads.map(lambda name, g: norm(g["kernel"]))).mean(per="epoch")'

    `sightglass describe RUN` shows what you can query, `sightglass functions` what queries can compute.
    """  # noqa: D301  click reads the escape: keep these lines as they are
    drawn = _surface(surface, out, text="--json" if as_json else "--plain" if plain else None)
    with open_source(run, wait=wait) as source:
        firsts = [0] * len(queries) if records is None or since else _n_made(source, queries)
        streams = [_open_stream(source, query, since=since, yes=yes) for query in queries]
        if not wait:
            _check_events(source, queries)
        for stream in streams:
            if stream.note:
                echo(stream.note, err=True)
        deadline_s = None if for_s is None else time.monotonic() + for_s
        if drawn is not None:
            stops = None if records is None else [first + records for first in firsts]
            _draw(streams, stops, deadline_s, view=view, title=title, log_y=log_y, **drawn)
        else:
            found = _records(streams, firsts, records, deadline_s, _LossReport(source, streams))
            names = [*(["run"] if _is_several(source) else []), *(["tag"] if len(streams) > 1 else [])]
            if header and not as_json:
                print_line((*names, "step", "value", "note"))
            for record in found:
                print_json(record_row(record)) if as_json else print_line(record_cells(record, names))
        for stream in streams:
            stream.wait(0, timeout_s=0)
            if stream.ended:
                list(stream)  # raises the error of a stream that failed


@main.command()
@RUN
@click.argument("query", type=QUERY)
@click.option("-n", "--records", type=click.IntRange(min=1), default=1, metavar="N", help="How many values.")
@click.option("--for", "for_s", type=TIME, default="10s", metavar="TIME", help="How long to wait for them.")
@click.option("--yes", is_flag=True, help="Accept the query's cost to the run.")
@JSON
def ask(  # noqa: PLR0917  click passes them by name
    run: str, query: str, records: int, for_s: float, yes: bool, as_json: bool
) -> None:
    """Ask once: print the next values of a query.

    A recorded run answers with its last values. With a pattern such as 'sweep-*', or a folder of runs, each of them
    answers. What the values stand for is printed on the standard error output.

    \b
    Examples of QUERY:
      batch.loss
      'batch.loss.mean(every=100)'
    """  # noqa: D301  click reads the escape: keep these lines as they are
    from sightglass.client.many.fleet import Fleet
    from sightglass.client.run import RemoteRun

    with open_source(run) as source:
        options: dict[str, Any] = {"confirm": yes} if isinstance(source, RemoteRun | Fleet) else {}
        try:
            found = source.ask(query, records, timeout_s=for_s, **options)
        except TimeoutError as error:
            fail(str(error), EXIT_FAILED)
        answers = found if isinstance(found, dict) else {run: found}
    for name, answer in answers.items():
        if as_json:
            rows = [record_row(record) for record in answer.records]
            print_json({"run": name, "records": rows, "coverage": answer.coverage, "n_missing": answer.n_missing})
            continue
        before = (name,) if isinstance(found, dict) else ()
        for record in answer.records:
            print_line((*before, *record_cells(record)))
        echo(": ".join((*before, answer.coverage)), err=True)
    if not answers:
        sys.exit(EXIT_FAILED)


def _is_several(source: Source) -> bool:
    """Return whether a source holds several runs, or may."""
    return isinstance(source, Mapping) and (hasattr(source, "joined") or len(source) > 1)


def _open_stream(source: Source, query: str, *, since: Literal["start"] | None, yes: bool) -> Stream:
    """Send a query; if it has a cost that must be confirmed, ask the user and send it again."""
    from sightglass.client.run import RemoteRun
    from sightglass.core.errors import UnconfirmedError

    if since and _is_several(source):
        raise click.UsageError("Expected one run with --since: ask each of several by its name")
    try:
        if isinstance(source, RemoteRun):
            return source.stream(query, since=since)
        return source.stream(query)  # what is recorded begins at its start
    except UnconfirmedError as error:
        cost = str(error).partition(" Ask again")[0]
    if not (yes or sys.stdin.isatty()):
        raise click.ClickException(f"{cost} Add --yes to go on.")
    if not yes:
        click.confirm(f"{cost}\nGo on?", abort=True)
    return cast("RemoteRun", source).stream(query, confirm=True, since=since)  # recorded runs have no costs


def _check_events(source: Source, queries: tuple[str, ...]) -> None:
    """Refuse events that have not happened in a live run whose other events happen again and again."""
    from sightglass.client.recorded.plan import LOG
    from sightglass.client.run import RemoteRun
    from sightglass.core.errors import unknown_event
    from sightglass.query.parser import as_query

    if not isinstance(source, RemoteRun):
        return  # where no event can come any more, the query itself is refused
    try:
        events = source.describe().events
    except RunLostError:
        return  # the streams go on when the connection is made again
    if not any(event.n_events > 1 for name, event in events.items() if name != LOG):
        return  # the training begins
    for query in queries:
        event = as_query(query).event
        if event not in events and event != LOG:
            offered = {name: one.observables for name, one in events.items()}
            fail(f"{unknown_event(event, offered)} To wait for it, add --wait.", EXIT_FAILED)


class _LossReport:
    """Says on the standard error output when the connection to a run was lost, and when it was made again.

    Of a fleet, it says which runs have joined, and which have left.
    """

    def __init__(self, source: Source, streams: list[Stream]) -> None:
        self._source = source
        self._streams = streams
        self._lost = ""
        self._n_reconnects = 0
        self._due_s, self._rest_s = math.inf, COUNTED_S
        self._n_said: int | None = None
        self._said: set[str] = set()
        self._looked_s = -math.inf

    def update(self) -> None:
        """Say what has changed since the last call."""
        if time.monotonic() - self._looked_s > POLL_S:
            self._looked_s = time.monotonic()
            self._say_members(getattr(self._source, "joined", ()), getattr(self._source, "left", {}))
        lost, n = getattr(self._source, "lost", ""), getattr(self._source, "n_reconnects", 0)
        if lost and lost != self._lost:
            echo(f"{lost}. Connecting again …", err=True)
        if n > self._n_reconnects:
            self._due_s, self._rest_s, self._n_said = time.monotonic() + COUNTED_S, COUNTED_S, None
        self._lost, self._n_reconnects = lost, n
        if time.monotonic() >= self._due_s and not lost:
            n_lost = sum(stream.n_lost for stream in self._streams)
            if n_lost != self._n_said:
                echo(f"Connected again: {n_lost:,} records are missing so far.", err=True)
            self._n_said, self._rest_s = n_lost, 2 * self._rest_s
            self._due_s = time.monotonic() + self._rest_s if self._rest_s < LATE_S else math.inf

    def _say_members(self, joined: Iterable[str], left: Mapping[str, str]) -> None:
        told = [f"{name} joined" for name in joined] + [f"{name} left: {why}" for name, why in left.items()]
        for text in told:
            if text not in self._said:
                self._said.add(text)
                echo(text, err=True)


def _n_made(source: Source, queries: tuple[str, ...]) -> list[int]:
    """Return how many records a live run has made of each query: what it still has of them is sent first."""
    from sightglass.client.run import RemoteRun
    from sightglass.query.parser import as_query

    if not isinstance(source, RemoteRun):
        return [0] * len(queries)
    made = {as_query(stream.query): stream.n_records for stream in source.describe().streams}
    return [made.get(as_query(query), 0) for query in queries]


def _records(
    streams: list[Stream], firsts: list[int], n: int | None, deadline_s: float | None, losses: _LossReport
) -> Iterator[Record]:
    """Yield the records of all streams as they arrive, from some indices, until each had n or the time is over."""
    from sightglass.client.streams.arrivals import arrivals

    cursors, n_seen = [0] * len(streams), [0] * len(streams)
    while True:
        seen, over = arrivals.n, all(stream.ended for stream in streams)
        fresh: list[Record] = []
        for i, stream in enumerate(streams):
            cursors[i], columns = stream.since(cursors[i])
            columns = columns.after(firsts[i])
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
            echo(f"Drawing into {out}", err=True)
            return {"surface": "matplotlib", "path": out}
        case "terminal":
            return {"surface": "terminal"}
    return {"surface": "terminal"} if sys.stdout.isatty() and text is None else None


def _draw(streams: list[Stream], stops: list[int] | None, deadline_s: float | None, **options: Any) -> None:
    from sightglass.views import plot

    view = plot(*streams, **options)
    try:
        while not (view.wait(POLL_S) or getattr(view, "closed", False)):
            enough = stops is not None and all(
                stream.latest is not None and stream.latest.index + 1 >= stop
                for stream, stop in zip(streams, stops, strict=True)
            )
            if enough or (deadline_s is not None and time.monotonic() > deadline_s):
                return
        if options.get("window") and stops is None and deadline_s is None:
            view.show()  # a window stays open after the run has ended, until the user closes it
    finally:
        view.close()
