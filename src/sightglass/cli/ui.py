"""The command `ui`: serve the page."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from sightglass.core.errors import MissingExtraError

from .group import EXIT_FAILED, fail, main

if TYPE_CHECKING:
    from sightglass.server.app import Server

DIRECTORIES: Final = ("runs",)
PORT: Final = 7117


@main.command()
@click.argument("directories", metavar="[DIR]...", nargs=-1, type=click.Path(file_okay=False))
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help=f"The port to listen on (default: {PORT}, or any if it is taken; 0: any). Links stay valid for a port.",
)
@click.option("--new-links", is_flag=True, help="Make new links, and revoke the old ones.")
@click.option("--no-browser", is_flag=True, help="Do not open a browser; only print the links.")
@click.option(
    "--expose", is_flag=True, help="Let other machines reach the page: not encrypted, protected by the links only."
)
def ui(
    directories: tuple[str, ...], *, host: str, port: int | None, new_links: bool, no_browser: bool, expose: bool
) -> None:
    """Serve the page: your live runs, and the runs recorded in DIR.

    DIR defaults to "runs". The command prints two links and opens the first: the controller's link can send commands
    to runs, the viewer's link is read-only.
    """
    try:
        import sightglass.server.app  # noqa: F401  checks that it is installed
        from sightglass.server.access import is_loopback
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn", "websockets", "anyio"):
            raise
        raise MissingExtraError(error.name or "starlette", extra="ui", purpose="sightglass ui") from None
    if not is_loopback(host) and not expose:
        raise click.UsageError(
            f"--host {host} lets other machines reach the page. It is not encrypted: everyone with a link sees all "
            "runs, and with the controller's link can send commands. Add --expose if you want this; else use an SSH "
            "tunnel"
        )
    try:
        paths = [Path(name) for name in directories or DIRECTORIES]
        server = _make(paths, host=host, port=port, new_links=new_links)
    except OSError as error:
        fail(f"Cannot listen on {host}:{PORT if port is None else port}: {error.strerror or error}", EXIT_FAILED)
    click.echo(f"controller: {server.link()}")
    click.echo(f"viewer:     {server.link('viewer')}")
    if not is_loopback(host):
        click.echo(
            f"Exposed at {server.address} to every machine that can reach it, not encrypted: your live runs and "
            f"{', '.join(directories or DIRECTORIES)}; the controller's link can send commands to the runs.",
            err=True,
        )
    if not no_browser:
        import webbrowser

        # The port is open already: the browser's request waits until the server runs.
        webbrowser.open(server.link())
    sys.stdout.flush()
    server.run()


def _make(paths: list[Path], *, host: str, port: int | None, new_links: bool) -> Server:
    from sightglass.server.app import make_server

    if port is not None:
        return make_server(paths, host=host, port=port, new_links=new_links)
    with contextlib.suppress(OSError):
        return make_server(paths, host=host, port=PORT, new_links=new_links)
    return make_server(paths, host=host)
