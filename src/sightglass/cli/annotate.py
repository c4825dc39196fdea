"""The command that writes down what people say about recorded runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from sightglass.core.errors import RunNotFoundError

from .find_run import JSON
from .group import main
from .output import echo, print_json


@main.command()
@click.argument("paths", nargs=-1, required=True, metavar="DIR...", type=click.Path())
@click.option("--name", help='The name to show; "" for the name that its program gave it.')
@click.option("--label", "add_labels", multiple=True, metavar="LABEL", help="Add this label; repeat it.")
@click.option("--unlabel", "remove_labels", multiple=True, metavar="LABEL", help="Remove this label; repeat it.")
@click.option("--notes", metavar="TEXT", help="Replace the notes, in Markdown.")
@click.option("--archive/--unarchive", "archived", default=None, help="Hide it from the page's list, or show it again.")
@click.option("--baseline/--no-baseline", default=None, help="Compare other runs with it, or no longer.")
@click.option("--delete/--restore", "deleted", default=None, help="Put it into the trash, or take it out again.")
@JSON
def annotate(paths: tuple[str, ...], as_json: bool, **given: Any) -> None:
    """Name and label recorded runs, or write notes about them.

    Without an option, show the annotations, which are in annotations.json in each DIR. Records are not touched, and a
    run in the trash keeps its files: `sightglass runs FOLDER --deleted` lists them.
    """
    from sightglass.storage import annotation_file
    from sightglass.storage.run_listing import is_run

    for path in paths:
        if not is_run(Path(path)):
            raise RunNotFoundError(f"Expected the directory of a recorded run, got {path!r}")
    try:
        change = annotation_file.edit_of(
            **{name: list(one) if isinstance(one, tuple) else one for name, one in given.items()}
        )
        show = change == annotation_file.Edit()
        found = {
            path: annotation_file.read(path) if show else annotation_file.edit(Path(path), change) for path in paths
        }
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    rows = [
        {"directory": path} | {name: getattr(one, name) for name in one.__struct_fields__}
        for path, one in found.items()
    ]
    if as_json:
        print_json(rows)
    for row in () if as_json else rows:
        said = {name: ", ".join(one) if isinstance(one, tuple) else one for name, one in row.items() if one}
        echo("\n".join(f"{name}: {one}" for name, one in said.items()))
