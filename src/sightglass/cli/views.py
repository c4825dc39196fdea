"""The commands `view`: the saved views of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .find_run import HEADER, JSON
from .group import EXIT_FAILED, fail, main
from .output import echo, print_json, print_rows
from .ui import ui

if TYPE_CHECKING:
    from sightglass.client.saved_views import SavedViews

DIRS = click.argument("directories", metavar="[DIR]...", nargs=-1, type=click.Path(file_okay=False))


@main.group()
def view() -> None:
    """List, save, rename, delete and open saved views of the page.

    They stand in views.json in DIR, by default the folder that SIGHTGLASS_RUNS in the environment names, else "runs".
    """


@view.command("list")
@DIRS
@HEADER
@JSON
def list_(directories: tuple[str, ...], header: bool, as_json: bool) -> None:
    """List the saved views with their addresses."""
    views = dict(_views(directories))
    if as_json:
        print_json([{"name": name, "address": address} for name, address in views.items()])
    else:
        print_rows(("name", "address"), list(views.items()), header=header)


@view.command()
@click.argument("name")
@DIRS
@JSON
def show(name: str, directories: tuple[str, ...], as_json: bool) -> None:
    """Print the address of the view NAME."""
    _tell(name, _views(directories)[name], "{address}", as_json)


@view.command()
@click.argument("name")
@click.argument("address")
@DIRS
@JSON
def save(name: str, address: str, directories: tuple[str, ...], as_json: bool) -> None:
    """Save ADDRESS as the view NAME, or replace that of this name.

    ADDRESS is one of the page, such as '#/charts?smooth=0.5', or a whole link, whose token is left out.
    """
    views = _views(directories)
    try:
        views[name] = address
    except ValueError as error:
        fail(str(error), EXIT_FAILED)
    _tell(name, views[name], "Saved {name}: {address}", as_json)


@view.command()
@click.argument("name")
@click.argument("new")
@DIRS
@JSON
def rename(name: str, new: str, directories: tuple[str, ...], as_json: bool) -> None:
    """Give the view NAME the name NEW."""
    views = _views(directories)
    try:
        views.rename(name, new)
    except ValueError as error:
        fail(str(error), EXIT_FAILED)
    _tell(new, views[new], "Renamed to {name}.", as_json)


@view.command()
@click.argument("name")
@DIRS
@JSON
def delete(name: str, directories: tuple[str, ...], as_json: bool) -> None:
    """Delete the view NAME, and print its address."""
    views = _views(directories)
    address = views[name]
    del views[name]
    _tell(name, address, "Deleted {name}: {address}", as_json)


@view.command("open")
@click.argument("name")
@DIRS
@click.option("--port", type=click.IntRange(0, 65535), help="The port to listen on.")
@click.option("--no-browser", is_flag=True, help="Do not open a browser; only print the links.")
@JSON
@click.pass_context
def open_(context: click.Context, /, name: str, **given: Any) -> None:
    """Serve the page, and open it at the view NAME.

    It is `sightglass ui --view NAME`, which has more options.
    """
    context.invoke(ui, view=name, **given)


def _views(directories: tuple[str, ...]) -> SavedViews:
    from sightglass.client.saved_views import saved_views

    return saved_views(directories or None)


def _tell(name: str, address: str, text: str, as_json: bool) -> None:
    if as_json:
        print_json({"name": name, "address": address})
    else:
        echo(text.format(name=name, address=address))
