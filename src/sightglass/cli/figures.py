"""The command `replot`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from sightglass.core.errors import RunNotFoundError, StorageError

from .find_run import JSON, RUN
from .group import main
from .output import echo, print_json

if TYPE_CHECKING:
    from sightglass.figures.replot import Form
    from sightglass.protocol.discovery import LiveRun

FORMS: Final = ("pdf", "svg", "png", "json")


@main.command()
@RUN
@click.argument("name")
@click.option("--step", type=float, metavar="N", help="The figure of this step (default: the last).")
@click.option("--theme", metavar="STYLE", help="light, dark or paper (default: that of the figure).")
@click.option(
    "--size", metavar="SIZE", help="The size, such as column, neurips or icml/full (default: that of the figure)."
)
@click.option(
    "--format", "form", type=click.Choice(FORMS), default="pdf", show_default=True, help="The format to write."
)
@click.option("--out", metavar="PATH", help="Where to write (default: the current directory).")
@click.option(
    "--with",
    "function",
    metavar="MODULE:FUNCTION",
    help="The function that draws (default: the one that drew the figure).",
)
@JSON
def replot(  # noqa: PLR0917  click passes them by name
    run: str, name: str, step: float | None, theme: str | None, size: str | None, form: Form, out: str | None,
    function: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Draw a figure again, from the arrays that were saved with it.

    RUN may also be a folder that a `Plotter` saved into. The function that draws is imported by its name from the
    current directory: do this only with runs that you trust.
    """
    from sightglass.figures.figure_files import read_about
    from sightglass.figures.replot import find, replot

    folder = _folder(run)
    options = None
    if theme is not None or size is not None:
        import msgspec

        before = msgspec.to_builtins(read_about(find(folder, name, step)).theme)
        options = {**before, **({"style": theme} if theme else {}), **({"size": size} if size else {})}
    try:
        path = replot(folder, name, step=step, theme=options, form=form, out=out, function=function)
    except OSError as error:
        raise StorageError(f"Cannot write the figure: {error}") from error
    if as_json:
        print_json({"path": str(path)})
    else:
        echo(f"wrote {path}")


def _folder(run: str) -> Path:
    """Return the directory of a run."""
    from sightglass.protocol.discovery import entries

    if Path(run).is_dir():
        return Path(run)
    live: list[LiveRun] = [entry for entry in entries() if run in (entry.name, entry.id)]
    if not live:
        raise RunNotFoundError(f"{run!r} is neither a live run nor a folder")
    return Path(max(live, key=lambda entry: entry.started).directory)
