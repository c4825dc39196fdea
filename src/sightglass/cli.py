"""The command line: the verbs of the library, for people and for programs.

Where a person looks there are tables, colours and live charts; where a program reads there are plain lines, or JSON
with `--json`. Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 no such run or out of reach, 130 interrupted.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import click

from .core.errors import RunLostError, RunNotFoundError, SightglassError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from .client.connect import RunInfo
    from .client.remote import Acknowledgement, RemoteRun
    from .core.record import Record

EXIT_FAILED, EXIT_NO_RUN, EXIT_INTERRUPTED = 1, 3, 130


class _Group(click.Group):
    """Commands whose errors become one line and an exit code, in one place."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (RunNotFoundError, RunLostError) as error:
            _fail(str(error), EXIT_NO_RUN)
        except SightglassError as error:
            _fail(str(error), EXIT_FAILED)
        except (KeyboardInterrupt, click.Abort):
            sys.exit(EXIT_INTERRUPTED)
        except BrokenPipeError:
            # The reader has enough. Python would complain when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(0)


def _fail(message: str, code: int) -> NoReturn:
    click.echo(f"{click.style('Error:', fg='red', bold=True)} {message}", err=True)
    sys.exit(code)


class _RunName(click.ParamType[str]):
    """The name or id of a run, or a connection file."""

    name = "run"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        from .move.registry import entries

        names = dict.fromkeys(entry.name for entry in entries())
        files = [CompletionItem(incomplete, type="file")] if "/" in incomplete or incomplete.endswith(".json") else []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)] + files


class _NameOf(click.ParamType[str]):
    """The name of a control or an action of the run that is named before it."""

    def __init__(self, kind: str) -> None:
        self.name = kind.rstrip("s")
        self._kind = kind

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        try:
            with _connect(ctx.params["run"]) as run:
                names = getattr(run.describe(), self._kind)
        except (SightglassError, KeyError):
            return []
        suffix = "=" if self._kind == "controls" else ""
        return [CompletionItem(name + suffix) for name in names if name.startswith(incomplete)]


RUN = click.argument("run", type=_RunName())
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
AT = click.option("--at", metavar="EVENT", help="Wait for this event instead of the next one.")


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="sightglass")
def main() -> None:
    """Ask a training run anything while it runs.

    RUN is a run's name or id (see `sightglass runs`), or a connection file.
    """


@main.command()
@click.option("--connections", metavar="FOLDER", help="Also the runs that the connection files in this folder lead to.")
@JSON
def runs(connections: str | None, as_json: bool) -> None:
    """List the live runs, the newest first."""
    from .client.connect import runs as find

    found = find(connections=connections)
    if as_json:
        _print_json([_run_row(info) for info in found])
    elif not found:
        click.echo("No live runs. Start one with sightglass.init(…), or try: sightglass demo", err=True)
    elif sys.stdout.isatty():
        _print_table(
            ("name", "id", "state", "for", "events", "clients", "host", "pid"), [_run_cells(info) for info in found]
        )
    else:
        for info in found:
            click.echo("\t".join(_run_cells(info)))


@main.command()
@RUN
@JSON
def describe(run: str, as_json: bool) -> None:
    """Show what a run offers: events, observables, controls, actions, functions, streams."""
    with _connect(run) as remote:
        told = remote.describe()
    if as_json:
        import msgspec

        _print_json(msgspec.to_builtins(told))
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
    as_json: bool,
) -> None:
    """Ask a run, and watch the answers: a live chart in a terminal, else one line a record.

    \b
    QUERY is such as
      batch.loss
      'abs(batch.grads["dense1"]["kernel"]).mean()'
      'batch.loss.mean(every=100)'
      'on("batch").map(lambda b: b.grads.map(lambda name, g: norm(g["kernel"]))).mean(per="epoch")'
    See `sightglass describe RUN` for what the run offers, and `sightglass functions` for what queries can compute.
    """  # noqa: D301  click reads the escape: keep these lines as they are
    deadline_s = None if seconds is None else time.monotonic() + _seconds(seconds)
    with _connect(run) as remote:
        streams = [remote.stream(query) for query in queries]
        for stream in streams:
            if stream.note:
                click.echo(stream.note, err=True)
        if sys.stdout.isatty() and not plain and not as_json:
            _draw(streams, records, deadline_s, view=view, title=title, log_y=log_y)
        else:
            several = len(streams) > 1
            for record in _records(streams, records, deadline_s):
                line = json.dumps(_record_row(record)) if as_json else _record_line(record, named=several)
                click.echo(line)
        for stream in streams:
            stream.wait(0, timeout_s=0)
            if stream.ended:
                list(stream)  # raises why it ended, if it did not end well


@main.command("set")
@RUN
@click.argument("assignment", metavar="NAME=VALUE", type=_NameOf("controls"))
@AT
@JSON
def set_(run: str, assignment: str, at: str | None, as_json: bool) -> None:
    """Change a control of a run, at its next event."""
    name, equals, text = assignment.partition("=")
    if not equals:
        raise click.UsageError(f"Expected NAME=VALUE, got {assignment!r}")
    with _connect(run) as remote:
        done = remote.set(name, _value(text), at=at)
    _report(done, as_json, lambda: f"{name}: {done.old!r} → {done.result!r}")


@main.command()
@RUN
@click.argument("action", type=_NameOf("actions"))
@click.argument("arguments", nargs=-1)
@AT
@JSON
def call(run: str, action: str, arguments: tuple[str, ...], at: str | None, as_json: bool) -> None:
    """Call an action of a run, on its training thread."""
    with _connect(run) as remote:
        done = remote.call(action, *map(_value, arguments), at=at)
    _report(done, as_json, lambda: f"{action} returned {done.result!r}")


@main.command()
@RUN
@AT
@JSON
def pause(run: str, at: str | None, as_json: bool) -> None:
    """Hold a run at its next event, until `sightglass resume` or `stop`."""
    with _connect(run) as remote:
        done = remote.pause(at=at, hold=True)
    _report(done, as_json, lambda: "paused")


@main.command()
@RUN
@JSON
def resume(run: str, as_json: bool) -> None:
    """Let a paused run go on."""
    with _connect(run) as remote:
        done = remote.resume()
    _report(done, as_json, lambda: "resumed")


@main.command()
@RUN
@AT
@JSON
def stop(run: str, at: str | None, as_json: bool) -> None:
    """Ask a run to stop: `run.stopping` becomes true in it."""
    with _connect(run) as remote:
        done = remote.stop(at=at)
    _report(done, as_json, lambda: "stopping")


@main.command()
@RUN
@JSON
def history(run: str, as_json: bool) -> None:
    """Show the acts that were applied to a run, the oldest first."""
    with _connect(run) as remote:
        entries = remote.history
    if as_json:
        import msgspec

        _print_json(msgspec.to_builtins(entries))
        return
    for entry in entries:
        change = f"{entry.old!r} → {entry.result!r}" if entry.kind == "set" else entry.error or ""
        click.echo(f"{entry.event} {entry.step}\t{entry.kind}\t{entry.name}\t{change}".rstrip())


@main.command()
@click.argument("names", nargs=-1)
def functions(names: tuple[str, ...]) -> None:
    """List the functions that queries can call."""
    from .query.functions import FUNCTIONS

    for name, function in sorted(FUNCTIONS.items()):
        if not names or name in names:
            click.echo(f"{click.style(function.signature, bold=True)}\n    {function.doc}")


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENTS]...")
def demo(arguments: tuple[str, ...]) -> None:
    """Train a small network on handwritten digits, and watch it from a second process.

    The arguments go to the training: --forever, --epochs N, --delay-ms MS, --lr RATE, --activation NAME …
    """
    from .demo.show import show

    sys.exit(show(arguments))


# Asking


def _connect(run: str) -> RemoteRun:
    from .client.connect import connect

    return connect(run)


def _seconds(text: str) -> float:
    from .core.clock import duration

    try:
        return duration(text)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _records(streams: list[Any], n: int | None, deadline_s: float | None) -> Iterator[Record]:
    """Yield the records of all streams as they come, until each has given n, or the time is over."""
    from .client.store import arrivals

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


def _draw(streams: list[Any], n: int | None, deadline_s: float | None, **options: Any) -> None:
    from .see import plot

    view = plot(*streams, **options)
    try:
        while not view.wait(0.2):
            enough = n is not None and all(
                (stream.latest.index if stream.latest else -1) + 1 >= n for stream in streams
            )
            if enough or (deadline_s is not None and time.monotonic() > deadline_s):
                break
    finally:
        view.close()


# Printing


def _value(text: str) -> Any:
    """Read a value as JSON, with Python's own words for bools too; what is none is text."""
    try:
        return json.loads({"True": "true", "False": "false", "None": "null"}.get(text, text))
    except ValueError:
        return text


def _report(done: Acknowledgement, as_json: bool, say: Callable[[], str]) -> None:
    if as_json:
        import msgspec

        _print_json(_jsonable(msgspec.to_builtins(done, enc_hook=repr)))
    elif done.applied:
        click.echo(f"{say()}  (at event {done.event!r}, step {done.step})")
    else:
        click.echo(f"Accepted, not applied yet. {done.note}", err=True)


def _print_json(value: Any) -> None:
    click.echo(json.dumps(_jsonable(value)))


def _jsonable(value: Any) -> Any:
    """Make a value that JSON knows: arrays become lists, numbers that are none become null."""
    import numpy as np

    from .core.values import Histogram, is_container, rebuild

    if isinstance(value, Histogram):
        return {"counts": value.counts.tolist(), "edges": value.edges.tolist(), "n_nan": value.n_nan,
                "n_posinf": value.n_posinf, "n_neginf": value.n_neginf}  # fmt: skip
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, bytes):
        return value.hex()
    return rebuild(value, _jsonable) if is_container(value) else value


def _record_row(record: Record) -> dict[str, Any]:
    names = ("tag", "run", "index", "step", "wall_time", "value", "n_events", "complete", "closed", "steps")
    return {name: _jsonable(getattr(record, name)) for name in names}


def _record_line(record: Record, *, named: bool) -> str:
    value = record.value
    text = (
        f"{value:.6g}"
        if isinstance(value, float)
        else json.dumps(_jsonable(value))
        if not isinstance(value, str)
        else value
    )
    note = "" if record.complete and record.closed else "\t(partial)"
    return f"{record.tag + chr(9) if named else ''}{record.step}\t{text}{note}"


def _run_row(info: RunInfo) -> dict[str, Any]:
    events = {name: event.n_events for name, event in info.description.events.items()} if info.description else {}
    return {"name": info.name, "id": info.id, "state": info.state, "started": info.started, "host": info.host,
            "pid": info.pid, "directory": info.directory, "events": events}  # fmt: skip


def _run_cells(info: RunInfo) -> tuple[str, ...]:
    told = info.description
    events = ", ".join(f"{name} {event.n_events:,}" for name, event in told.events.items()) if told else ""
    clients = str(max(0, told.n_clients - 1)) if told else ""  # the one that asks does not count
    age = time.strftime("%H:%M:%S", time.gmtime(max(0.0, time.time() - info.started))) if info.started else ""
    return info.name, info.id, info.state, age, events, clients, info.host, str(info.pid)


def _print_table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    colors = {"running": "green", "paused": "yellow", "stopping": "yellow", "silent": "red", "out of reach": "red"}
    table = Table(*head, box=box.SIMPLE_HEAD, header_style="dim")
    for row in rows:
        table.add_row(f"[bold]{row[0]}", *row[1:2], f"[{colors.get(row[2], 'default')}]{row[2]}", *row[3:])
    Console().print(table)
