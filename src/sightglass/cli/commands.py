"""Commands that control a live run, or all that match a pattern."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from sightglass.core.description import parse_value
from sightglass.core.errors import RunNotFoundError, unknown_event

from .complete import ACTION, CONTROL, QUERY
from .find_run import AT, HEADER, JSON, RUN, connect, hub, is_pattern
from .group import EXIT_FAILED, main
from .output import (
    echo,
    jsonable,
    print_acknowledgement,
    print_json,
    print_report,
    print_rows,
    value_text,
)

if TYPE_CHECKING:
    from sightglass.core.description import Acknowledgement, HistoryEntry

_NAMED: Final = re.compile(r"[^\W\d]\w*=")


def _command(
    run: str,
    send: Callable[[Any], Any],
    as_json: bool,
    text: Callable[[Acknowledgement], str],
    *,
    at: str | None = None,
) -> None:
    """Send a command to a run, or to all that match a pattern; `text` describes its effect."""
    if not is_pattern(run):
        with connect(run) as remote:
            if at is not None and at not in (events := remote.describe().events):
                echo(f"{unknown_event(at, dict.fromkeys(events, ()))} Waiting for the first.", err=True)
            remote.on_wait = lambda note: echo(f"{note} …", err=True)
            print_acknowledgement(send(remote), as_json, text)
        return
    from sightglass.client.connection import REPLY_S
    from sightglass.client.many.fleet import fleet

    with fleet(run, hub=hub(), follow=False, timeout_s=REPLY_S) as found:
        if not (found or found.left or found.silent):
            raise RunNotFoundError(f"No live run matches {run!r}")
        report = send(found)
        lost = {name: why for name, why in found.left.items() if name not in found.joined}
    print_report(report, lost, as_json, text)
    if report.failed or lost:
        sys.exit(EXIT_FAILED)


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
    value = parse_value(text)
    _command(
        run, lambda to: to.set(name, value, at=at), as_json,
        lambda done: f"{name}: {_shown(done.old)} → {_shown(done.result)}", at=at,
    )  # fmt: skip


@main.command()
@RUN
@click.argument("action", type=ACTION)
@click.argument("arguments", nargs=-1)
@AT
@JSON
def call(run: str, action: str, arguments: tuple[str, ...], at: str | None, as_json: bool) -> None:
    """Call an action at the run's next event.

    It runs on the training thread. ARGUMENTS are JSON, such as 0.01, true or "text"; anything else is text. NAME=VALUE
    is an argument by name.
    """
    from sightglass.client.run import COMMAND_S
    from sightglass.core.description import call_value

    named = {i: text.partition("=") for i, text in enumerate(arguments) if _NAMED.match(text)}
    values = [parse_value(text) for i, text in enumerate(arguments) if i not in named]
    keywords = {name: parse_value(text) for name, _, text in named.values()}
    _command(
        run, lambda to: to._command("call", action, call_value(values, keywords), at=at, timeout_s=COMMAND_S), as_json,
        lambda done: f"{action} returned {_shown(done.result)}", at=at,
    )  # fmt: skip


@main.command()
@RUN
@AT
@JSON
def pause(run: str, at: str | None, as_json: bool) -> None:
    """Pause a run at its next event, until `resume` or `stop`."""
    _command(run, lambda to: to.pause(at=at, hold=True), as_json, lambda done: "paused", at=at)


@main.command()
@RUN
@JSON
def resume(run: str, as_json: bool) -> None:
    """Resume a paused run."""
    _command(run, lambda to: to.resume(), as_json, lambda done: "resumed")


@main.command()
@RUN
@AT
@JSON
def stop(run: str, at: str | None, as_json: bool) -> None:
    """Ask a run to stop: `run.stopping` becomes true.

    The training checks `run.stopping` and ends by itself; it may first save a checkpoint.
    """
    _command(run, lambda to: to.stop(at=at), as_json, lambda done: "stopping", at=at)


@main.command()
@RUN
@JSON
def stack(run: str, as_json: bool) -> None:
    """Show where all threads of a run are.

    That is what a run that is quiet waits for. Of a program of several ranks, equal stacks are shown once.
    """
    with connect(run) as remote:
        found = remote.stacks()
    if as_json:
        import msgspec

        print_json(msgspec.to_builtins(found))
    else:
        echo(str(found))


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
    change = entry.error
    if entry.kind == "set" and not change:
        change = f"{_shown(entry.old)} → {_shown(entry.result)}"
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
