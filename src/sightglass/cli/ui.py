"""The page in a browser."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sightglass.core.errors import MissingExtraError

from .group import EXIT_FAILED, fail, main

if TYPE_CHECKING:
    from sightglass.server.app import Server

DIRECTORIES = ("runs",)
PORT = 7117


@main.command()
@click.argument("directories", metavar="[DIR]...", nargs=-1, type=click.Path(file_okay=False))
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help=f"The port to listen at (default: {PORT}, or any if that is taken; 0: any). Links to a port stay good.",
)
@click.option("--new-links", is_flag=True, help="Make new links, so that those given away before are worth nothing.")
@click.option("--no-browser", is_flag=True, help="Only print the links.")
@click.option("--expose", is_flag=True, help="Let other machines reach the page: unencrypted, guarded by the links.")
def ui(
    directories: tuple[str, ...], *, host: str, port: int | None, new_links: bool, no_browser: bool, expose: bool
) -> None:
    """Serve the page: the live runs of this user, and what was recorded in DIR (default: runs).

    It prints two links, one for whoever may act and one for whoever may only look, and opens the first in a browser.
    """
    try:
        import sightglass.server.app  # noqa: F401  whether it is installed
        from sightglass.server.access import is_loopback
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn", "websockets", "anyio"):
            raise
        raise MissingExtraError(error.name or "starlette", extra="ui", purpose="sightglass ui") from None
    if not is_loopback(host) and not expose:
        raise click.UsageError(
            f"--host {host} lets other machines reach the page: whoever has a link sees every run, and may act with "
            "the first one, and nothing is encrypted. Give --expose too if that is meant; else use an SSH tunnel"
        )
    try:
        places = [Path(name) for name in directories or DIRECTORIES]
        server = _made(places, host=host, port=port, new_links=new_links)
    except OSError as error:
        fail(f"Cannot listen at {host}:{PORT if port is None else port}: {error.strerror or error}", EXIT_FAILED)
    click.echo(f"controller: {server.link()}")
    click.echo(f"viewer:     {server.link('viewer')}")
    if not is_loopback(host):
        click.echo(
            f"Exposed at {server.address} to every machine that can reach it, unencrypted: all live runs of this user, "
            f"{', '.join(directories or DIRECTORIES)}; the controller's link can also act on the runs.",
            err=True,
        )
    if not no_browser:
        import webbrowser

        # The port is open already: what is asked before the server runs waits for it.
        webbrowser.open(server.link())
    sys.stdout.flush()
    server.run()


def _made(places: list[Path], *, host: str, port: int | None, new_links: bool) -> Server:
    from sightglass.server.app import make_server

    if port is not None:
        return make_server(places, host=host, port=port, new_links=new_links)
    with contextlib.suppress(OSError):
        return make_server(places, host=host, port=PORT, new_links=new_links)
    return make_server(places, host=host)
