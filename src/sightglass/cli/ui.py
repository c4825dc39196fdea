"""The command `ui`: serve the page."""

from __future__ import annotations

import contextlib
import functools
import html
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, get_args

import click

from sightglass.core.errors import MissingExtraError, TransportError
from sightglass.core.process.files import runs_folder, write_private
from sightglass.server.heap import share_heap

from .find_run import FOLDER, FOLLOW_LINKS, HEADER, JSON, hub
from .group import EXIT_FAILED, fail, main
from .output import echo, print_json, print_rows

if TYPE_CHECKING:
    from sightglass.client.hub_runs import RunsOnHub
    from sightglass.server.app import Server


PORT: Final = 7117
FILE: Final = click.Path(dir_okay=False, path_type=Path)
ALLOW_COMMANDS: Final = click.option(
    "--allow-commands", is_flag=True, help="Let agents change controls, and call, pause and stop runs."
)
ALLOW_NOTES: Final = click.option("--allow-notes", is_flag=True, help="Let agents write notes and labels.")
REDIRECT: Final = """<!doctype html><html lang="en"><meta charset="utf-8"><title>sightglass</title>
<meta http-equiv="refresh" content="0; url={link}"><p><a href="{link}">Open the page</a></p></html>
"""


@main.command()
@click.argument("directories", metavar="[DIR]...", nargs=-1, type=FOLDER)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help=f"The port to listen on (default: {PORT}, or any if it is taken; 0: any). Links stay valid for a port.",
)
@click.option("--new-links", is_flag=True, help="Make new links, and revoke the old ones.")
@click.option("--view", metavar="NAME", default="", help="Open the page at this saved view.")
@click.option("--no-browser", is_flag=True, help="Do not open a browser; only print the links.")
@click.option("--tls", "makes_tls", is_flag=True, help="Encrypt, with a certificate made at the start.")
@click.option("--tls-cert", metavar="FILE", type=FILE, help="Encrypt, with the certificate in a PEM file.")
@click.option("--tls-key", metavar="FILE", type=FILE, help="The certificate's key, unless it is in the same file.")
@click.option("--expose", is_flag=True, help="Let other machines reach the page; asks first if it is not encrypted.")
@click.option("--unencrypted", is_flag=True, help="Expose the page without TLS, and do not ask.")
@click.option(
    "--allow-host", "allowed_hosts", metavar="NAME", multiple=True, help="A name under which a proxy serves the page."
)
@click.option(
    "--proxy",
    "proxies",
    metavar="ADDRESS",
    multiple=True,
    help="The address of a proxy, whose X-Forwarded headers are trusted.",
)
@click.option("--token-file", metavar="FILE", type=FILE, help="Keep the links' tokens in this file.")
@click.option("--base-url", metavar="URL", default="", help="The address of the page behind a proxy, for the links.")
@click.option("--mcp", "serves_agents", is_flag=True, help="Serve runs to coding agents at /mcp, too: see `mcp`.")
@ALLOW_COMMANDS
@ALLOW_NOTES
@FOLLOW_LINKS
@JSON
def ui(
    directories: tuple[str, ...],
    *,
    host: str,
    port: int | None,
    new_links: bool,
    view: str,
    no_browser: bool,
    makes_tls: bool,
    tls_cert: Path | None,
    tls_key: Path | None,
    expose: bool,
    unencrypted: bool,
    allowed_hosts: tuple[str, ...],
    proxies: tuple[str, ...],
    token_file: Path | None,
    base_url: str,
    serves_agents: bool,
    allow_commands: bool,
    allow_notes: bool,
    follow_links: bool,
    as_json: bool,
) -> None:
    """Serve the page: your live runs, and the runs recorded in DIR.

    DIR defaults to the folder that SIGHTGLASS_RUNS in the environment names, else "runs". With
    `sightglass --hub HUB ui`, the live runs of the hub are shown as well. The command prints two links and opens the
    first: the controller's link can send commands to runs, the viewer's link is read-only.
    """
    share_heap()  # before any thread starts
    if base_url and not base_url.startswith(("http://", "https://")):
        raise click.UsageError(f"Expected --base-url http://… or https://…, got {base_url!r}")
    if tls_key and not tls_cert:
        raise click.UsageError("Expected --tls-cert FILE with --tls-key")
    if (allow_commands or allow_notes) and not serves_agents:
        raise click.UsageError("Expected --mcp with --allow-commands and --allow-notes: they are for coding agents")
    names = directories or (str(runs_folder()),)
    tls = (tls_cert, tls_key or tls_cert) if tls_cert else makes_tls
    is_exposed = _reaches_others(host)
    if is_exposed:
        _check_exposed(host, expose=expose, encrypted=bool(tls), unencrypted=unencrypted)
    place = _place_of(view, names)
    live = _runs_on_hub()
    try:
        paths = [Path(name) for name in names]
        options: dict[str, Any] = {
            "host": host, "allowed_hosts": allowed_hosts, "base_url": base_url, "tls": tls, "proxies": proxies,
            "hub": live, "follow_links": follow_links,
        }  # fmt: skip
        if serves_agents:
            from sightglass.agents.server import make_beside

            options["beside"] = make_beside(paths, hub=hub(), allow_commands=allow_commands, allow_notes=allow_notes)
        server = _bound(paths, port=port, new_links=new_links, token_file=token_file, **options)
    except ValueError as error:
        raise click.UsageError(f"Expected an address or a network as --proxy: {error}") from None
    except OSError as error:
        fail(f"Cannot listen on {host}:{PORT if port is None else port}: {error.strerror or error}", EXIT_FAILED)
    with _ended_by_signals(server):
        _print_links(server, place, as_json=as_json)
        for name in directories:
            if not Path(name).exists():
                click.echo(f"{name} does not exist so far: the page shows its runs once it does", err=True)
        if is_exposed:
            how = "encrypted" if tls else "not encrypted"
            click.echo(
                f"Exposed at {server.address} to every machine that can reach it, {how}: your live runs and "
                f"{', '.join(names)}; the controller's link can send commands to the runs.",
                err=True,
            )
        sys.stdout.flush()
        # The port is open already: the browser's request waits until the server runs.
        with contextlib.nullcontext() if no_browser else _opened(server.link(place=place), server.port):
            server.run()


def _runs_on_hub() -> RunsOnHub | None:
    """Return the live runs of the hub that the command line names. Errors as of `RunsOnHub`."""
    address = hub()
    if not address:
        return None
    from sightglass.client.hub_runs import RunsOnHub

    return RunsOnHub(address, by_name=False)


def _place_of(view: str, names: Sequence[str]) -> str:
    """Return the address of a saved view, or an empty text where none is named."""
    from sightglass.storage.object_file import view_address

    return view_address([Path(name) for name in names], view) if view else ""


def _print_links(server: Server, place: str, *, as_json: bool) -> None:
    made = server.certificate.fingerprint if server.certificate and server.certificate.self_made else ""
    controller, viewer = server.link(place=place), server.link("viewer", place=place)
    if as_json:
        print_json({"controller": controller, "viewer": viewer, "certificate": made or None})
        return
    click.echo(f"controller: {controller}")
    click.echo(f"viewer:     {viewer}")
    if made:
        click.echo(f"certificate: made here, SHA-256 {made}")


def _check_exposed(host: str, *, expose: bool, encrypted: bool, unencrypted: bool) -> None:
    """Refuse to let other machines in unless that is meant, and ask if it is not encrypted."""
    risk = "everyone on the way reads along: the links, and what they show"
    if not expose:
        raise click.UsageError(
            f"--host {host} lets other machines reach the page: everyone with a link sees all runs, and with the "
            "controller's link can send commands. Add --expose if you want this, with --tls, so that it is encrypted; "
            "else use an SSH tunnel"
        )
    if encrypted or unencrypted:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(
            f"--expose without TLS is not encrypted: {risk}. Add --tls, or --tls-cert FILE --tls-key FILE, or "
            "--unencrypted if you want this"
        )
    if not click.confirm(f"The page is not encrypted without --tls: {risk}. Expose it all the same?", err=True):
        fail("Not exposed. Add --tls, or use an SSH tunnel", EXIT_FAILED)


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
def _opened(link: str, port: int) -> Iterator[None]:
    """Open the controller's link in a browser, through a file that redirects to it.

    All users of a machine can read the command lines of its processes, and so the links that browsers are given.
    """
    import webbrowser

    from sightglass.protocol import discovery

    try:
        page = discovery.folder() / f"page-{port}.html"
        write_private(page, REDIRECT.format(link=html.escape(link)).encode())
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


@contextlib.contextmanager
def _ended_by_signals(server: Server) -> Iterator[None]:
    """Let SIGTERM, or the end of the terminal, end the server in order; then the process dies as it would have.

    So the first page of the browser is removed, and a shell or systemd sees the signal as the reason of the exit.
    """
    received: list[int] = []

    def stop(number: int, frame: object) -> None:
        received.append(number)
        server.stop()

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    handled = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]  # not those of `nohup`
    for number in handled:
        signal.signal(number, stop)
    before = signal.signal(signal.SIGINT, lambda number, frame: server.stop())  # Ctrl-C is no failure
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        for number in handled:
            signal.signal(number, signal.SIG_DFL)
        sys.stdout.flush()
        if received:
            signal.raise_signal(received[0])


# The commands `links`: personal links to the page, one for each person.

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
    from sightglass.server.access import Links, Role

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
    from sightglass.server.access import Links

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
    from sightglass.server.access import Links

    Links().revoke(name)
    if as_json:
        print_json({"name": name, "revoked": True})
    else:
        echo(f"Revoked the link of {name}.")


@main.command()
@click.argument("directories", metavar="[DIR]...", nargs=-1, type=FOLDER)
@ALLOW_COMMANDS
@ALLOW_NOTES
def mcp(directories: tuple[str, ...], *, allow_commands: bool, allow_notes: bool) -> None:
    """Serve runs to a coding agent, over the Model Context Protocol.

    The agent's program starts this command, and speaks to it over stdin and stdout. It may ask your live runs, and the
    runs recorded in DIR, which defaults to the folder that SIGHTGLASS_RUNS names, else "runs". It can neither command
    runs nor write notes, unless you allow it. It never deletes anything.
    """
    from sightglass.agents.server import make_server

    folders = [Path(name) for name in directories or (str(runs_folder()),)]
    make_server(folders, hub=hub(), allow_commands=allow_commands, allow_notes=allow_notes).run()
