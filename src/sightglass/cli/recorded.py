"""Commands that read recorded runs: open, check, export, which."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click

from sightglass.core.errors import RunNotFoundError, UnknownNameError

from .find_run import FOLLOW_LINKS, HEADER, JSON
from .group import EXIT_FAILED, fail, main
from .output import echo, print_json, print_rows, series_row

if TYPE_CHECKING:
    from sightglass.client.recorded.run import RecordedRun
    from sightglass.storage.export.export import Form
    from sightglass.storage.read.recording import Recording


FORMS: Final = ("parquet", "csv", "tensorboard", "mindspore", "files", "html")


@main.command("open")
@click.argument("path", metavar="DIR", type=click.Path())
@click.argument("tags", nargs=-1, metavar="[TAG]...")
@FOLLOW_LINKS
@HEADER
@JSON
def open_(path: str, tags: tuple[str, ...], follow_links: bool, header: bool, as_json: bool) -> None:
    """List the runs in folder DIR, or the series of run DIR.

    To draw or compute a series: sightglass watch DIR QUERY
    """
    from sightglass.client.many.folder import RecordedRuns, open

    with open(path, follow_links=follow_links) as opened:
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
            cells = [tuple("" if row[name] is None else str(row[name]) for name in names) for row in rows]
            print_rows(names, cells, header=header)


def print_table(directory: str, written: tuple[str, ...], *, follow_links: bool, header: bool, as_json: bool) -> None:
    """Print a table of the runs in a folder, with columns given as NAME=QUERY, or as a list of others.

    If only others are given, such as "loss.min, config.lr", the table has no other columns of the configuration.
    """
    from sightglass.client.many.folder import RecordedRuns, open, open_all
    from sightglass.client.many.table import FACTS, FIRST, REDUCERS, RunsTable, cell_text, parse_columns
    from sightglass.core.errors import QueryError

    try:
        columns = [column for text in written for column in parse_columns(text)]
    except QueryError as error:
        raise click.UsageError(str(error)) from None
    for column in columns:
        if column.kind == "query" and column.title == column.text:
            reducers, facts = ", ".join(REDUCERS), ", ".join(FACTS)
            raise click.UsageError(
                f"Expected --columns NAME=QUERY, config.KEY, run.FACT with one of {facts}, or TAG.REDUCER with one of "
                f"{reducers}; got {column.text!r}"
            )
    runs = open(directory, follow_links=follow_links)
    if not isinstance(runs, RecordedRuns):
        runs = open_all([runs.directory])
    table = runs.table(**{column.title: column.written for column in columns})
    if all(column.title == column.written for column in columns):
        titles = [column.title for column in columns]
        found = [[name for name in table.columns if name == one or name.startswith(f"{one}.")] for one in titles]
        shown = [name for one, names in zip(titles, found, strict=True) for name in names or [one]]
        ends = [name for name in table.columns if name == "problem"]
        table = RunsTable([{name: row.get(name) for name in (*FIRST, *shown, *ends)} for row in table])
    if as_json:
        print_json(list(table))
    else:
        print_rows(tuple(table.columns), (tuple(map(cell_text, row.values())) for row in table), header=header)


def _run_row(name: str, run: RecordedRun) -> dict[str, Any]:
    """Return a run in a folder as an object for JSON."""
    series = [run.series(tag) for tag in run.tags()]
    return {
        "run": name,
        "tags": len(series),
        "state": run.describe().state,
        "records": sum(map(len, series)),
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
    """Check every byte of a recording for damage.

    Report each damaged place by file, offset and step, and how many records are intact. Exit with 1 if there is damage.
    """
    from sightglass.storage.file_names import is_there
    from sightglass.storage.read.check import check as examine

    if not is_there(path):
        raise RunNotFoundError(f"{path!r} does not exist")
    report = examine(Path(path))
    if as_json:
        import msgspec

        print_json(msgspec.to_builtins(report, enc_hook=str))
    else:
        echo(str(report))
    if not report.intact:
        sys.exit(EXIT_FAILED)


@main.command()
@click.argument("path", metavar="DIR", type=click.Path())
@click.option("--to", "form", required=True, type=click.Choice(FORMS), help="The format to write.")
@click.option("--out", metavar="PATH", help="Where to write (default: the current directory, named after DIR).")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Export only this tag; repeat it for several.")
@click.option("--view", metavar="VIEW", help="With html: a saved view, or an address of the page; else its charts.")
@click.option("--overwrite", is_flag=True, help="Replace existing files.")
@JSON
def export(  # noqa: PLR0917  click passes them by name
    path: str,
    form: Form | Literal["html"],
    out: str | None,
    tags: tuple[str, ...],
    view: str | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Export a recorded run, or a folder of runs, to another format.

    Series that the format cannot hold are left out and listed. "html" is one file of the page, which needs no server.
    """
    if view and form != "html":
        raise click.UsageError(f"Expected --view with --to html, got --to {form}")
    if form == "html":
        _save_page(path, out=out, tags=tags, view=view, overwrite=overwrite, as_json=as_json)
        return
    from sightglass.storage.export.export import export as write

    with ExitStack() as stack:
        recordings = {name: stack.enter_context(recording) for name, recording in _recordings(Path(path))}
        exported = write(recordings, to=form, out=out, tags=tags, overwrite=overwrite)
    if as_json:
        import msgspec

        print_json(msgspec.to_builtins(exported, enc_hook=str))
    else:
        echo(str(exported))


def _save_page(
    path: str, *, out: str | None, tags: tuple[str, ...], view: str | None, overwrite: bool, as_json: bool
) -> None:
    from sightglass.server.page_file.save import save_page

    if tags:
        raise click.UsageError(
            "Expected --view VIEW with --to html, got --tag: an address may say '#/charts?tags=loss'"
        )
    target = out or f"{Path(path).resolve().name}.html"
    try:
        saved = save_page(target, path, view=view or "#/charts", overwrite=overwrite)
    except ValueError as error:
        fail(str(error), EXIT_FAILED)
    if as_json:
        print_json({name: getattr(saved, name) for name in saved.__slots__} | {"path": str(saved.path)})
    else:
        echo(str(saved))


def _recordings(path: Path) -> Iterator[tuple[str, Recording]]:
    """Open all ranks of a run, or of the runs in a folder."""
    from sightglass.client.many.folder import found
    from sightglass.storage.read.recording import Recording
    from sightglass.storage.run_listing import is_single

    if is_single(path):
        paths = {"": path}
    else:
        paths = {entry.path.relative_to(path).as_posix(): entry.path for entry in found(path)}
    if not paths:
        raise RunNotFoundError(f"Nothing was recorded in {str(path)!r}")
    for name, run_path in paths.items():
        first = Recording(run_path)
        name = name or first.info.name
        yield name, first
        for rank in first.ranks:
            if rank != first.rank:
                yield f"{name}/rank{rank}", Recording(run_path, rank=rank)


# The command that finds the runs of a file.


@main.command()
@click.argument("file", metavar="FILE", type=click.Path())
@click.argument("directory", metavar="[DIR]", required=False, type=click.Path())
@HEADER
@JSON
def which(file: str, directory: str | None, header: bool, as_json: bool) -> None:
    """Find the runs that wrote or read FILE, such as a checkpoint.

    These are the runs in folder DIR, by default that of SIGHTGLASS_RUNS, else "runs", whose programs called
    `run.file(FILE)`. A file that has moved is found by its hash, if that was recorded; one that is gone by its path.
    """
    from sightglass.client.many.folder import open_all
    from sightglass.core.process.files import runs_folder

    rows = []
    with open_all([directory or runs_folder()]) as runs:
        for name in runs:
            with runs.borrow(name) as run:
                rows += [{"run": name, **row} for row in _uses(run, Path(file))]
    if not rows:
        raise RunNotFoundError(f"No run in {str(directory or runs_folder())!r} has recorded {file!r}")
    if as_json:
        print_json(rows)
    else:
        cells = [tuple("" if cell is None else str(cell) for cell in row.values()) for row in rows]
        print_rows(tuple(rows[0]), cells, header=header)


def _uses(run: RecordedRun, path: Path) -> Iterator[dict[str, Any]]:
    """Yield where a run has recorded a file, by its path or by its hash, and whether its size is another one now."""
    from sightglass.core.process.files import n_bytes_of, sha256_of

    if "file/path" not in run.tags():
        return
    n_bytes, digest = (n_bytes_of(path), "") if path.exists() else (None, "")
    records = zip(*(run.series(f"file/{name}") for name in ("path", "n_bytes", "sha256")), strict=False)
    for at, size, known in records:
        by = "path" if os.path.realpath(at.value) == os.path.realpath(path) else ""
        if not by and known.value and size.value == n_bytes:
            digest = digest or sha256_of(path)
            by = "hash" if known.value == digest else ""
        if by:
            changed = n_bytes is not None and size.value != n_bytes
            yield {"step": at.step, "path": at.value, "n_bytes": size.value, "found_by": by, "changed": changed}


# The command that writes down what people say about recorded runs.


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
    from sightglass.storage import object_file
    from sightglass.storage.run_listing import is_run

    for path in paths:
        if not is_run(Path(path)):
            raise RunNotFoundError(f"Expected the directory of a recorded run, got {path!r}")
    try:
        change = object_file.edit_of(
            **{name: list(one) if isinstance(one, tuple) else one for name, one in given.items()}
        )
        show = change == object_file.Edit()
        found = {
            path: object_file.read_annotations(path) if show else object_file.edit_annotations(Path(path), change)
            for path in paths
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
