"""Commands that control a live run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from .complete import ACTION, CONTROL, QUERY
from .find_run import AT, HEADER, JSON, RUN, connect
from .group import main
from .output import echo, jsonable, parse_value, print_acknowledgement, print_json, print_rows, value_text

if TYPE_CHECKING:
    from sightglass.client.describe import HistoryEntry


@main.command("set")
@RUN
@click.argument("assignment", metavar="NAME=VALUE", type=CONTROL)
@AT
@JSON
def set_(run: str, assignment: str, at: str | None, as_json: bool) -> None:
    """Set a control at the run's next event.

    VALUE is a number such as 0.01, or other JSON such as true or "text"; anything else is text.
    """
    name, equals, text = assignment.partition("=")
    if not equals:
        raise click.UsageError(f"Expected NAME=VALUE, got {assignment!r}")
    with connect(run) as remote:
        acknowledgement = remote.set(name, parse_value(text), at=at)
    print_acknowledgement(
        acknowledgement, as_json, lambda: f"{name}: {_shown(acknowledgement.old)} → {_shown(acknowledgement.result)}"
    )


@main.command()
@RUN
@click.argument("action", type=ACTION)
@click.argument("arguments", nargs=-1)
@AT
@JSON
def call(run: str, action: str, arguments: tuple[str, ...], at: str | None, as_json: bool) -> None:
    """Call an action at the run's next event.

    It runs on the training thread. ARGUMENTS are JSON, such as 0.01, true or "text"; anything else is text.
    """
    with connect(run) as remote:
        acknowledgement = remote.call(action, *map(parse_value, arguments), at=at)
    print_acknowledgement(acknowledgement, as_json, lambda: f"{action} returned {_shown(acknowledgement.result)}")


@main.command()
@RUN
@AT
@JSON
def pause(run: str, at: str | None, as_json: bool) -> None:
    """Pause a run at its next event, until `resume` or `stop`."""
    with connect(run) as remote:
        acknowledgement = remote.pause(at=at, hold=True)
    print_acknowledgement(acknowledgement, as_json, lambda: "paused")


@main.command()
@RUN
@JSON
def resume(run: str, as_json: bool) -> None:
    """Resume a paused run."""
    with connect(run) as remote:
        acknowledgement = remote.resume()
    print_acknowledgement(acknowledgement, as_json, lambda: "resumed")


@main.command()
@RUN
@AT
@JSON
def stop(run: str, at: str | None, as_json: bool) -> None:
    """Ask a run to stop: `run.stopping` becomes true.

    The training checks `run.stopping` and ends by itself; it may first save a checkpoint.
    """
    with connect(run) as remote:
        acknowledgement = remote.stop(at=at)
    print_acknowledgement(acknowledgement, as_json, lambda: "stopping")


@main.command()
@RUN
@HEADER
@JSON
def history(run: str, header: bool, as_json: bool) -> None:
    """Show the commands that a run has applied, oldest first."""
    with connect(run) as remote:
        entries = remote.history
    if as_json:
        import msgspec

        print_json(msgspec.to_builtins(entries, enc_hook=jsonable))
        return
    head = ("event", "step", "command", "name", "change", "by")
    print_rows(head, [_history_cells(entry) for entry in entries], header=header)


def _history_cells(entry: HistoryEntry) -> tuple[str, ...]:
    change = f"{_shown(entry.old)} → {_shown(entry.result)}" if entry.kind == "set" else entry.error
    return entry.event, f"{entry.step:.15g}", entry.kind, entry.name, change, entry.client


def _shown(value: object) -> str:
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    return " ".join(filter(None, value_text(value)))


@main.command()
@RUN
@click.argument("query", type=QUERY)
@click.option("--stop", is_flag=True, help="Stop recording the query; its records stay.")
@JSON
def record(run: str, query: str, stop: bool, as_json: bool) -> None:
    """Record a query into the run's directory from now on."""
    with connect(run) as remote:
        directory = remote.describe().directory
        if stop:
            remote.unrecord(query)
        tag = query if stop else remote.record(query)
    if as_json:
        print_json({"tag": tag, "recording": not stop, "directory": directory})
    else:
        echo(f"stopped recording {tag}" if stop else f"recording {tag} in {directory}")
