"""The command `ui`: serve the page."""

from __future__ import annotations

import contextlib
import functools
import html
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from sightglass.core.errors import MissingExtraError, TransportError
from sightglass.core.private_file import write_private

from .group import EXIT_FAILED, fail, main

if TYPE_CHECKING:
    from sightglass.server.app import Server

DIRECTORIES: Final = ("runs",)
PORT: Final = 7117
REDIRECT: Final = """<!doctype html><html lang="en"><meta charset="utf-8"><title>sightglass</title>
<meta http-equiv="refresh" content="0; url={link}"><p><a href="{link}">Open the page</a></p></html>
"""


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
@click.option(
    "--allow-host", "allowed_hosts", metavar="NAME", multiple=True, help="A name under which a proxy serves the page."
)
@click.option("--base-url", metavar="URL", default="", help="The address of the page behind a proxy, for the links.")
def ui(
    directories: tuple[str, ...],
    *,
    host: str,
    port: int | None,
    new_links: bool,
    no_browser: bool,
    expose: bool,
    allowed_hosts: tuple[str, ...],
    base_url: str,
) -> None:
    """Serve the page: your live runs, and the runs recorded in DIR.

    DIR defaults to "runs". The command prints two links and opens the first: the controller's link can send commands
    to runs, the viewer's link is read-only.
    """
    is_exposed = _reaches_others(host)
    if base_url and not base_url.startswith(("http://", "https://")):
        raise click.UsageError(f"Expected --base-url http://… or https://…, got {base_url!r}")
    if is_exposed and not expose:
        raise click.UsageError(
            f"--host {host} lets other machines reach the page. It is not encrypted: everyone with a link sees all "
            "runs, and with the controller's link can send commands. Add --expose if you want this; else use an SSH "
            "tunnel"
        )
    names = directories or DIRECTORIES
    try:
        paths = [Path(name) for name in names]
        options = {"host": host, "allowed_hosts": allowed_hosts, "base_url": base_url}
        server = _bound(paths, port=port, new_links=new_links, **options)
    except OSError as error:
        fail(f"Cannot listen on {host}:{PORT if port is None else port}: {error.strerror or error}", EXIT_FAILED)
    click.echo(f"controller: {server.link()}")
    click.echo(f"viewer:     {server.link('viewer')}")
    if is_exposed:
        click.echo(
            f"Exposed at {server.address} to every machine that can reach it, not encrypted: your live runs and "
            f"{', '.join(names)}; the controller's link can send commands to the runs.",
            err=True,
        )
    sys.stdout.flush()
    # The port is open already: the browser's request waits until the server runs.
    with contextlib.nullcontext() if no_browser else _opened(server):
        server.run()


def _reaches_others(host: str) -> bool:
    """Return whether other machines can reach a server that listens on a host.

    Raises:
        MissingExtraError: The server's requirements are not installed.
    """
    try:
        import sightglass.server.app  # noqa: F401
        from sightglass.server.access import is_loopback
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn", "websockets", "anyio"):
            raise
        raise MissingExtraError(error.name or "starlette", extra="ui", purpose="sightglass ui") from None
    return not is_loopback(host)


def _bound(paths: list[Path], *, port: int | None, new_links: bool, **options: Any) -> Server:
    """Return a server at a port, at the usual one, or at any if that is taken; options as for `make_server`."""
    from sightglass.server.app import make_server

    make = functools.partial(make_server, paths, **options)
    if port is not None:
        return make(port=port, new_links=new_links)
    with contextlib.suppress(OSError):
        return make(port=PORT, new_links=new_links)
    return make()


@contextlib.contextmanager
def _opened(server: Server) -> Iterator[None]:
    """Open the controller's link in a browser, through a file that redirects to it.

    All users of a machine can read the command lines of its processes, and so the links that browsers are given.
    """
    import webbrowser

    from sightglass.protocol import discovery

    try:
        page = discovery.folder() / f"page-{server.port}.html"
        write_private(page, REDIRECT.format(link=html.escape(server.link())).encode())
    except (OSError, TransportError) as error:
        click.echo(f"No browser is opened, because its first page cannot be written: {error}", err=True)
        yield
        return
    webbrowser.open(page.as_uri())
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            page.unlink()
