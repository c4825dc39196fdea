"""Commands that control a live run."""

from __future__ import annotations

import click

from .find_run import AT, JSON, RUN, NameOf, connect
from .group import main
from .output import parse_value, print_acknowledgement, print_json


@main.command("set")
@RUN
@click.argument("assignment", metavar="NAME=VALUE", type=NameOf("controls"))
@AT
@JSON
def set_(run: str, assignment: str, at: str | None, as_json: bool) -> None:
    """Set a control at the run's next event.

    VALUE is JSON, such as 0.01, true or "text"; anything else is text.
    """
    name, equals, text = assignment.partition("=")
    if not equals:
        raise click.UsageError(f"Expected NAME=VALUE, got {assignment!r}")
    with connect(run) as remote:
        acknowledgement = remote.set(name, parse_value(text), at=at)
    print_acknowledgement(
        acknowledgement, as_json, lambda: f"{name}: {acknowledgement.old!r} → {acknowledgement.result!r}"
    )


@main.command()
@RUN
@click.argument("action", type=NameOf("actions"))
@click.argument("arguments", nargs=-1)
@AT
@JSON
def call(run: str, action: str, arguments: tuple[str, ...], at: str | None, as_json: bool) -> None:
    """Call an action at the run's next event.

    It runs on the training thread. ARGUMENTS are JSON, such as 0.01, true or "text"; anything else is text.
    """
    with connect(run) as remote:
        acknowledgement = remote.call(action, *map(parse_value, arguments), at=at)
    print_acknowledgement(acknowledgement, as_json, lambda: f"{action} returned {acknowledgement.result!r}")


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
@JSON
def history(run: str, as_json: bool) -> None:
    """Show the commands that a run has applied, oldest first."""
    with connect(run) as remote:
        entries = remote.history
    if as_json:
        import msgspec

        print_json(msgspec.to_builtins(entries))
        return
    for entry in entries:
        change = f"{entry.old!r} → {entry.result!r}" if entry.kind == "set" else entry.error or ""
        by = f"by {entry.client}" if entry.client else ""
        click.echo(f"{entry.event} {entry.step}\t{entry.kind}\t{entry.name}\t{change}\t{by}".rstrip())


@main.command()
@RUN
@click.argument("query")
@click.option("--stop", is_flag=True, help="Stop recording the query; its records stay.")
def record(run: str, query: str, stop: bool) -> None:
    """Record a query into the run's directory from now on."""
    with connect(run) as remote:
        if stop:
            remote.unrecord(query)
            click.echo(f"stopped recording {query}")
        else:
            tag = remote.record(query)
            click.echo(f"recording {tag} in {remote.describe().directory}")
