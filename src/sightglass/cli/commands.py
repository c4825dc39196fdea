"""Commands that do something to a live run."""

from __future__ import annotations

import click

from .find_run import AT, JSON, RUN, NameOf, connect
from .group import main
from .output import print_json, report, value


@main.command("set")
@RUN
@click.argument("assignment", metavar="NAME=VALUE", type=NameOf("controls"))
@AT
@JSON
def set_(run: str, assignment: str, at: str | None, as_json: bool) -> None:
    """Change a control of a run, at its next event."""
    name, equals, text = assignment.partition("=")
    if not equals:
        raise click.UsageError(f"Expected NAME=VALUE, got {assignment!r}")
    with connect(run) as remote:
        done = remote.set(name, value(text), at=at)
    report(done, as_json, lambda: f"{name}: {done.old!r} → {done.result!r}")


@main.command()
@RUN
@click.argument("action", type=NameOf("actions"))
@click.argument("arguments", nargs=-1)
@AT
@JSON
def call(run: str, action: str, arguments: tuple[str, ...], at: str | None, as_json: bool) -> None:
    """Call an action of a run, on its training thread."""
    with connect(run) as remote:
        done = remote.call(action, *map(value, arguments), at=at)
    report(done, as_json, lambda: f"{action} returned {done.result!r}")


@main.command()
@RUN
@AT
@JSON
def pause(run: str, at: str | None, as_json: bool) -> None:
    """Hold a run at its next event, until `sightglass resume` or `stop`."""
    with connect(run) as remote:
        done = remote.pause(at=at, hold=True)
    report(done, as_json, lambda: "paused")


@main.command()
@RUN
@JSON
def resume(run: str, as_json: bool) -> None:
    """Let a paused run go on."""
    with connect(run) as remote:
        done = remote.resume()
    report(done, as_json, lambda: "resumed")


@main.command()
@RUN
@AT
@JSON
def stop(run: str, at: str | None, as_json: bool) -> None:
    """Ask a run to stop: `run.stopping` becomes true in it."""
    with connect(run) as remote:
        done = remote.stop(at=at)
    report(done, as_json, lambda: "stopping")


@main.command()
@RUN
@JSON
def history(run: str, as_json: bool) -> None:
    """Show the acts that were applied to a run, the oldest first."""
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
@click.option("--stop", is_flag=True, help="Do not keep it any more.")
def record(run: str, query: str, stop: bool) -> None:
    """Keep the records of a query in the run's directory, from now on."""
    with connect(run) as remote:
        if stop:
            remote.unrecord(query)
            click.echo(f"{query} is not recorded any more")
        else:
            tag = remote.record(query)
            click.echo(f"recording {tag} in {remote.describe().directory}")
