"""The commands `links`: personal links to the page, one for each person."""

from __future__ import annotations

import time
from typing import Final, get_args

import click

from .find_run import HEADER, JSON
from .group import EXIT_FAILED, fail, main
from .output import echo, print_json, print_rows
from .ui import PORT

ROLES: Final = ("viewer", "controller")


@main.group()
def links() -> None:
    """Give people personal links to the page, and revoke them.

    The run's history names the owner of the link that sent a command.
    """


@links.command("add")
@click.argument("name")
@click.option("--role", type=click.Choice(ROLES), required=True, help="Whether NAME may send commands to runs.")
@click.option(
    "--base-url",
    metavar="URL",
    default=f"http://127.0.0.1:{PORT}",
    show_default=True,
    help="The address of the page, as `sightglass ui` prints it.",
)
@JSON
def add(name: str, role: str, base_url: str, as_json: bool) -> None:
    """Make a link for NAME, and print it once.

    It is valid at once for every page that you serve, now and later, until it is revoked. Only its hash is stored.
    """
    from sightglass.server.links import Links, Role

    allowed = next(one for one in get_args(Role) if one == role)
    try:
        token = Links().add(name, allowed)
    except ValueError as error:
        fail(str(error), EXIT_FAILED)
    link = f"{base_url.rstrip('/')}/#token={token}"
    if as_json:
        print_json({"name": name, "role": role, "link": link})
    else:
        click.echo(link)


@links.command("list")
@HEADER
@JSON
def list_(header: bool, as_json: bool) -> None:
    """List the personal links."""
    from sightglass.server.links import Links

    found = Links().all()
    if as_json:
        print_json([{"name": link.name, "role": link.role, "added": link.added} for link in found])
        return
    rows: list[tuple[str, ...]] = []
    for link in found:
        rows.append((link.name, link.role, time.strftime("%Y-%m-%d %H:%M", time.localtime(link.added))))
    print_rows(("name", "role", "added"), rows, header=header)


@links.command("revoke")
@click.argument("name")
@JSON
def revoke(name: str, as_json: bool) -> None:
    """Revoke the link of NAME: its open pages end within seconds."""
    from sightglass.server.links import Links

    Links().revoke(name)
    if as_json:
        print_json({"name": name, "revoked": True})
    else:
        echo(f"Revoked the link of {name}.")
