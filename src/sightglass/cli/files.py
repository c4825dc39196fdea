"""Commands about what was recorded."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import click

from .finding import JSON
from .group import EXIT_FAILED, main
from .printing import print_json, print_rows, series_row

FORMS: Final = ("parquet", "csv", "npz", "tensorboard", "mindspore")


@main.command("open")
@click.argument("path", metavar="DIR", type=click.Path())
@click.argument("tags", nargs=-1, metavar="[TAG]...")
@JSON
def open_(path: str, tags: tuple[str, ...], as_json: bool) -> None:
    """Show what was recorded in DIR: a run's tags, or the values under some of them.

    To draw or compute from it: sightglass watch DIR QUERY
    """
    from sightglass.client.recorded import RecordedRuns, open

    with open(path) as opened:
        if isinstance(opened, RecordedRuns):
            runs = list(opened.values())
        else:
            runs = [opened]
        rows = [series_row(run, tag) for run in runs for tag in run.tags() if not tags or tag in tags]
        if as_json:
            print_json(rows)
        else:
            names = ("run", "tag", "records", "steps", "type", "last")
            print_rows(names, [tuple(str(row[name]) for name in names) for row in rows])


@main.command()
@click.argument("path", metavar="DIR", type=click.Path())
@JSON
def check(path: str, as_json: bool) -> None:
    """Read every byte that was recorded in DIR, and tell what is damaged: file, offset and step, and what is intact."""
    from sightglass.keep.check import check as examine

    report = examine(Path(path))
    if as_json:
        import msgspec

        print_json(msgspec.to_builtins(report, enc_hook=str))
    else:
        click.echo(str(report))
    if not report.intact:
        sys.exit(EXIT_FAILED)


@main.command()
@click.argument("path", metavar="DIR", type=click.Path())
@click.option("--to", "form", required=True, type=click.Choice(FORMS), help="What to write.")
@click.option("--out", metavar="PATH", help="Where to write it (default: beside the run, named after it).")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only this tag; may be given several times.")
def export(path: str, form: str, out: str | None, tags: tuple[str, ...]) -> None:
    """Write what was recorded in DIR in another format."""
    from sightglass.client.recorded import export as write

    for line in write(path, form, out=out, tags=tags):
        click.echo(line)
