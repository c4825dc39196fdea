"""Commands about figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from sightglass.core.errors import RunNotFoundError, StorageError

from .find_run import RUN
from .group import main

if TYPE_CHECKING:
    from sightglass.figures.replot import Form
    from sightglass.protocol.discovery import LiveRun

FORMS: Final = ("pdf", "svg", "png")


@main.command()
@RUN
@click.argument("name")
@click.option("--step", type=float, metavar="N", help="The figure of this step (default: the last one).")
@click.option("--theme", metavar="STYLE", help="light, dark or paper (default: the one that it had).")
@click.option("--size", metavar="SIZE", help="The size of new figures, such as column, neurips or icml/full.")
@click.option("--format", "form", type=click.Choice(FORMS), default="pdf", show_default=True, help="What to write.")
@click.option("--out", metavar="PATH", help="Where to write it (default: here).")
@click.option("--with", "function", metavar="MODULE:FUNCTION", help="What draws (default: what did then).")
def replot(  # noqa: PLR0917  click passes them by name
    run: str, name: str, step: float | None, theme: str | None, size: str | None, form: Form, out: str | None,
    function: str | None,
) -> None:  # fmt: skip
    """Draw a figure of a run again, from the arrays that were kept with it.

    RUN may also be a folder that a plotter saved into. The function that draws is imported from here by its name: do
    this only with runs that you trust.
    """
    from sightglass.figures.figure_files import read_about
    from sightglass.figures.replot import find, replot

    folder = _folder(run)
    look = None
    if theme is not None or size is not None:
        import msgspec

        before = msgspec.to_builtins(read_about(find(folder, name, step)).look)
        look = {**before, **({"style": theme} if theme else {}), **({"size": size} if size else {})}
    try:
        path = replot(folder, name, step=step, look=look, form=form, out=out, function=function)
    except OSError as error:
        raise StorageError(f"Cannot write the figure: {error}") from error
    click.echo(f"wrote {path}")


def _folder(run: str) -> Path:
    """Return where the files of a run are."""
    from sightglass.protocol.discovery import entries

    if Path(run).is_dir():
        return Path(run)
    live: list[LiveRun] = [entry for entry in entries() if run in (entry.name, entry.id)]
    if not live:
        raise RunNotFoundError(f"There is no live run and no folder {run!r}")
    return Path(max(live, key=lambda entry: entry.started).directory)
