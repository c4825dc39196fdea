"""Find the run that a command names, and the options that commands share."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sightglass.core.errors import RunNotFoundError
from sightglass.core.process.clock import duration

from .complete import RUN_NAME, is_live, is_path
from .output import echo

if TYPE_CHECKING:
    ParamType = click.ParamType[float]

    from sightglass.client.many.fleet import Fleet
    from sightglass.client.many.folder import RecordedRuns
    from sightglass.client.recorded.run import RecordedRun
    from sightglass.client.run import RemoteRun

    Source = RemoteRun | RecordedRun | RecordedRuns | Fleet
else:
    ParamType = click.ParamType  # before click 8.4, it takes no argument


class Duration(ParamType):
    """A parameter: a time such as "200ms" or "5 min", in seconds; a number without a unit is one of seconds."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the time in seconds."""
        text = str(value).strip()
        try:
            return duration(f"{text} s" if re.fullmatch(r"[\d.]+", text) else text)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class FolderOfRuns(click.Path):
    """A parameter: a folder of runs, or a database of them; it need not exist."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path."""
        from sightglass.storage.run_listing import is_folder

        path: Any = super().convert(value, param, ctx)
        if os.path.exists(path) and not is_folder(path):
            self.fail(f"Expected a folder, got the file {path!r}", param, ctx)
        return path


TIME = Duration()
FOLDER = FolderOfRuns()
RUN = click.argument("run", type=RUN_NAME)
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
FOLLOW_LINKS = click.option("--follow-links", is_flag=True, help="Follow links to directories outside of DIR, too.")
HEADER = click.option(
    "--header/--no-header", default=True, help="Begin lines with the names of the columns (default: --header)."
)
AT = click.option("--at", metavar="EVENT", help="Wait for the next event of this name, not for any event.")


def hub() -> str | None:
    """Return the hub that the command line names."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.find_root().params.get("hub")


def is_pattern(run: str) -> bool:
    """Return whether a text is a pattern of runs' names, and not the name of one, or a path."""
    return any(char in run for char in "*?[") and (bool(hub()) or not (is_live(run) or Path(run).exists()))


def connect(run: str, *, wait: bool = False) -> RemoteRun:
    """Connect to a live run, or wait until it begins."""
    from sightglass.client import discover

    try:
        return discover.connect(run, hub=hub())
    except RunNotFoundError:
        if is_path(run):
            message = f"Expected a live run or a connection file, got a recorded run: {run!r}"
            raise RunNotFoundError(message) from None
        if not wait:
            raise
    echo(f"Waiting for run {run!r} to begin.", err=True)
    return discover.connect(run, hub=hub(), wait_s=math.inf)


def open_run(run: str) -> RemoteRun | RecordedRun:
    """Connect to a live run, or open a recorded one."""
    if hub():
        return connect(run)
    if is_pattern(run):
        raise RunNotFoundError(f"Expected one run, got the pattern {run!r}: `sightglass watch` takes several")
    found = open_source(run)
    if not isinstance(found, Mapping):
        return found
    with found:
        raise RunNotFoundError(f"Expected one run, got a folder of {len(found)}: {', '.join(found)}")


def open_source(run: str, *, wait: bool = False) -> Source:
    """Connect to a live run or to those that match a pattern, or open a recorded run or a folder of runs.

    A live run takes precedence over a folder of its name. Recordings that still grow are followed. With `wait`, a
    single run that is not live is waited for.
    """
    if is_pattern(run):
        from sightglass.client.many.fleet import fleet

        return fleet(run, hub=hub())
    if hub() or not is_path(run) or is_live(run):
        return connect(run, wait=wait)
    from sightglass.client.many.folder import open

    return open(run, follow=True)
