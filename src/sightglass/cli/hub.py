"""The commands `hub`: run a hub, and give people and trainings their credentials."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import Final, get_args

import click

from .find_run import HEADER, JSON
from .group import EXIT_FAILED, fail, main
from .output import echo, print_json, print_rows

ROLES: Final = ("run", "viewer", "controller")
FOLDER: Final = click.option(
    "--dir", "folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
    help="The hub's folder. By default it is in your state folder.",
)  # fmt: skip
PROJECT: Final = click.option("--project", default="default", show_default=True, help="The user's project.")


@main.group(invoke_without_command=True)
@click.option("--listen", metavar="HOST:PORT", help="Where to listen (default: as before, or 127.0.0.1:4222).")
@click.option("--address", metavar="HOST", help="The name under which runs and clients reach this machine.")
@click.option("--config-only", is_flag=True, help="Write the server's configuration, and do not start it.")
@FOLDER
@click.pass_context
def hub(
    ctx: click.Context,
    *,
    listen: str | None,
    address: str | None,
    config_only: bool,
    folder: Path | None,
) -> None:
    """Run a hub, on which runs and clients of many machines meet.

    It is a NATS server with TLS and a key for each user. It makes its keys at the first start. Ctrl-C ends it; the runs
    go on, and connect again when it is back.
    """
    from sightglass.hub.service.folder import HubFolder
    from sightglass.hub.service.nats_server import nats_server, serve

    if ctx.invoked_subcommand is not None:
        if listen or address or config_only or folder:
            raise click.UsageError(
                "Expected these options alone, or, as for --dir, after `user add`, `list` or `revoke`"
            )
        return
    if not config_only:
        nats_server()  # without it, nothing is made
    found = HubFolder(folder)
    settings = found.prepare(listen=listen, address=address)
    if config_only:
        click.echo(found.configuration)
        return

    def ready() -> None:
        click.echo(f"The hub listens on {settings.listen}; its address is {settings.url}. Ctrl-C ends it.")
        if settings.leads_back:
            click.echo("Other machines do not reach that: give the name that they know with --address", err=True)
        click.echo(f"In a training:   export SIGHTGLASS_HUB={found.path / 'run.hub'}")
        click.echo(f"Where you look:  sightglass --hub {found.path / 'controller.hub'} runs")
        click.echo("Another user:    sightglass hub user add NAME --project PROJECT --role viewer")
        sys.stdout.flush()

    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):  # as Ctrl-C; its terminal was closed
        signal.signal(number, signal.default_int_handler)
    try:
        serve(found, ready=ready)
    except KeyboardInterrupt:
        echo("The hub has ended.", err=True)


@hub.group()
def user() -> None:
    """Add, list and revoke the users of a hub."""


@user.command("add")
@click.argument("name")
@PROJECT
@click.option("--role", type=click.Choice(ROLES), required=True, help="Offer runs; ask them; or ask and command them.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="The hub file (default: NAME.hub).")
@FOLDER
@JSON
def add(name: str, *, project: str, role: str, out: Path | None, folder: Path | None, as_json: bool) -> None:
    """Add a user, and write the hub file that they connect with.

    Who has the file is this user: only you can read it. A running hub knows them at once.
    """
    from sightglass.core.process.files import write_private
    from sightglass.hub.address import Role
    from sightglass.hub.service.folder import HubFolder

    found = HubFolder(folder)
    found.settings()
    added = found.add(name, project, next(one for one in get_args(Role) if one == role))
    path = out or Path(f"{name}.hub")
    try:
        write_private(path, found.hub_file(added))
    except OSError as error:
        found.revoke(name, project)
        fail(f"Cannot write {str(path)!r}: {error.strerror or error}", EXIT_FAILED)
    found.configure()
    if as_json:
        print_json({"name": name, "project": project, "role": role, "file": str(path)})
    else:
        click.echo(path)


@user.command("list")
@FOLDER
@HEADER
@JSON
def list_(folder: Path | None, header: bool, as_json: bool) -> None:
    """List the users of the hub."""
    from sightglass.hub.service.folder import HubFolder

    found = HubFolder(folder).users()
    if as_json:
        print_json([{"name": one.name, "project": one.project, "role": one.role, "added": one.added} for one in found])
        return
    rows: list[tuple[str, ...]] = []
    for one in found:
        added = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.added))
        rows.append((one.project, one.name, one.role, added))
    print_rows(("project", "name", "role", "added"), rows, header=header)


@user.command("revoke")
@click.argument("name")
@PROJECT
@FOLDER
@JSON
def revoke(name: str, project: str, folder: Path | None, as_json: bool) -> None:
    """Revoke a user: a running hub ends their connections within a second."""
    from sightglass.hub.service.folder import HubFolder

    found = HubFolder(folder)
    found.revoke(name, project)
    found.configure()
    if as_json:
        print_json({"name": name, "project": project, "revoked": True})
    else:
        echo(f"Revoked {name} of project {project}.")
