"""Commands about what was recorded."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from sightglass.core.errors import RunNotFoundError, UnknownNameError

from .find_run import JSON
from .group import EXIT_FAILED, main
from .output import print_json, print_rows, series_row

if TYPE_CHECKING:
    from sightglass.client.recorded.run import RecordedRun
    from sightglass.storage.export.export import Form
    from sightglass.storage.read.recording import Recording

FORMS: Final = ("parquet", "csv", "npz", "tensorboard", "mindspore")


@main.command("open")
@click.argument("path", metavar="DIR", type=click.Path())
@click.argument("tags", nargs=-1, metavar="[TAG]...")
@JSON
def open_(path: str, tags: tuple[str, ...], as_json: bool) -> None:
    """Show what was recorded in DIR: the runs in a folder, the tags of a run, or some of them.

    To draw or compute from it: sightglass watch DIR QUERY
    """
    from sightglass.client.recorded.run import RecordedRuns, open

    with open(path) as opened:
        if isinstance(opened, RecordedRuns):
            rows = []
            for name in opened:
                with opened.borrow(name) as run:
                    rows += _rows(name, run, tags) if tags else [_run_row(name, run)]
        else:
            rows = _rows(opened.name, opened, tags)
        _check_tags(tags, rows, opened.tags())
        if as_json:
            print_json(rows)
        elif rows:
            names = tuple(rows[0])
            print_rows(names, [tuple("" if row[name] is None else str(row[name]) for name in names) for row in rows])


def _run_row(name: str, run: RecordedRun) -> dict[str, Any]:
    """Tell of one run in a folder."""
    told = [run.series(tag) for tag in run.tags()]
    state = run.describe().state
    return {
        "run": name,
        "tags": len(told),
        "state": state,
        "records": sum(map(len, told)),
        "directory": str(run.directory),
    }


def _rows(name: str, run: RecordedRun, tags: tuple[str, ...]) -> list[dict[str, Any]]:
    return [series_row(run, tag) | {"run": name} for tag in run.tags() if not tags or tag in tags]


def _check_tags(tags: tuple[str, ...], rows: list[dict[str, Any]], known: list[str]) -> None:
    shown = {row.get("tag") for row in rows}
    for tag in tags:
        if tag not in shown:
            raise UnknownNameError("tag", tag, known)


@main.command()
@click.argument("path", metavar="DIR", type=click.Path())
@JSON
def check(path: str, as_json: bool) -> None:
    """Read every byte that was recorded in DIR, and tell what is damaged: file, offset and step, and what is intact."""
    from sightglass.storage.read.check import check as examine

    if not Path(path).exists():
        raise RunNotFoundError(f"There is no {path!r}")
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
@click.option("--out", metavar="PATH", help="Where to write it (default: here, named after DIR).")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Only this tag; may be given several times.")
@click.option("--overwrite", is_flag=True, help="Replace files that are there.")
def export(path: str, form: Form, out: str | None, tags: tuple[str, ...], overwrite: bool) -> None:
    """Write what was recorded in DIR, a run or a folder of runs, in another format.

    What the format cannot hold is left out, and told.
    """
    from sightglass.storage.export.export import export as write

    with ExitStack() as stack:
        recordings = {name: stack.enter_context(recording) for name, recording in _recordings(Path(path))}
        click.echo(str(write(recordings, to=form, out=out, tags=tags, overwrite=overwrite)))


def _recordings(path: Path) -> Iterator[tuple[str, Recording]]:
    """Open all ranks of a run, or of the runs in a folder."""
    from sightglass.client.recorded.run import found
    from sightglass.storage.read.recording import Recording, is_run

    if path.is_file() or is_run(path):
        places = {"": path}
    else:
        places = {entry.path.relative_to(path).as_posix(): entry.path for entry in found(path)}
    if not places:
        raise RunNotFoundError(f"Nothing was recorded in {str(path)!r}")
    for name, place in places.items():
        first = Recording(place)
        name = name or first.info.name
        yield name, first
        for rank in first.ranks:
            if rank != first.rank:
                yield f"{name}/rank{rank}", Recording(place, rank=rank)
