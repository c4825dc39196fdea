"""Find the run that a command names, and complete its name in the shell."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from sightglass.core.errors import RunNotFoundError, SightglassError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from sightglass.client.recorded.run import RecordedRun, RecordedRuns
    from sightglass.client.run import RemoteRun


class RunName(click.ParamType[str]):
    """A parameter: the name or id of a run, or a connection file."""

    name = "run"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the completions of what was typed."""
        from click.shell_completion import CompletionItem

        from sightglass.protocol.discovery import entries

        names = dict.fromkeys(entry.name for entry in entries())
        files = [CompletionItem(incomplete, type="file")] if "/" in incomplete or incomplete.endswith(".json") else []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)] + files


class NameOf(click.ParamType[str]):
    """A parameter: the name of a control or action of the run that precedes it."""

    def __init__(self, kind: str) -> None:
        self.name = kind.rstrip("s")
        self._kind = kind

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the completions of what was typed."""
        from click.shell_completion import CompletionItem

        try:
            with connect(ctx.params["run"]) as run:
                names = getattr(run.describe(), self._kind)
        except (SightglassError, KeyError):
            return []
        suffix = "=" if self._kind == "controls" else ""
        return [CompletionItem(name + suffix) for name in names if name.startswith(incomplete)]


RUN = click.argument("run", type=RunName())
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
AT = click.option("--at", metavar="EVENT", help="Wait for the next event of this name, not for any event.")


def connect(run: str) -> RemoteRun:
    """Connect to a live run."""
    from sightglass.client import discover

    try:
        return discover.connect(run)
    except RunNotFoundError:
        if is_path(run):
            message = f"Expected a live run or a connection file, got a recorded run: {run!r}"
            raise RunNotFoundError(message) from None
        raise


def is_path(run: str) -> bool:
    """Return whether a name is the path of a recorded run."""
    return os.path.isdir(run) or (os.path.isfile(run) and not run.endswith(".json"))


def is_live(run: str) -> bool:
    """Return whether a live run has this name or id."""
    from sightglass.protocol.discovery import entries

    return any(run in (entry.name, entry.id) for entry in entries())


def open_run(run: str) -> RemoteRun | RecordedRun:
    """Connect to a live run, or open a recorded one."""
    found = open_source(run)
    if not isinstance(found, Mapping):
        return found
    raise RunNotFoundError(f"Expected one run, got a folder of {len(found)}: {', '.join(found)}")


def open_source(run: str) -> RemoteRun | RecordedRun | RecordedRuns:
    """Connect to a live run, or open a recorded run or a folder of runs; recordings that still grow are followed.

    A live run takes precedence over a folder of its name.
    """
    if not is_path(run) or is_live(run):
        return connect(run)
    from sightglass.client.recorded.run import open

    return open(run, follow=True)
