"""The shell's completion: runs, their controls and actions, and queries up to the caret.

The shell waits for the answer at every tab, so a run has `ANSWER_S` to describe itself; then nothing is completed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import click

from sightglass.core.errors import SightglassError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from sightglass.core.description import Description

    TextType = click.ParamType[str]
else:
    TextType = click.ParamType  # before click 8.4, it takes no argument

# A run replies within milliseconds. One that is stopped in a debugger must not stop the shell as well.
ANSWER_S: Final = 1.0

NUMBERS: Final = frozenset(("bool", "int", "float"))

_NAME: Final = r"[A-Za-z_]\w*"


def completions(text: str, description: Description) -> list[str]:
    """Return how the text of a query may go on: each with all of the text before it.

    A shell takes what it completes for a whole word. So an event comes with what it offers, and a call that needs
    nothing more is closed.
    """
    from sightglass.query.complete import complete

    found = complete(text, len(text), description)
    word = text[found.start :]
    whole: list[str] = []
    for item in found.items:
        if not (item.text.startswith(word) or item.over):
            continue
        written = text[: found.start - item.over] + item.text
        if item.kind == "event" and written.endswith("."):
            whole += completions(written, description)
        else:
            whole.append(text[: found.start] + item.whole if item.whole else written)
    return list(dict.fromkeys(whole))


def settable(text: str, description: Description) -> list[str]:
    """Return the controls that begin with a text, and the attributes of offered objects that can be set."""
    names = [*description.controls]
    if description.sets_attributes:
        found = [
            f"{event}.{name}.{path}"
            for event, of in description.events.items()
            for name, observable in of.observables.items()
            for path, kind in observable.fields.items()
            if kind in NUMBERS
        ]
        names += filter(re.compile(rf"{_NAME}(\.{_NAME})+").fullmatch, found)
    return [f"{name}=" for name in names if name.startswith(text)]


def _describe(run: str) -> Description | None:
    """Return the description of a run, live or recorded, or `None` if it does not come soon."""
    from sightglass.client.discover import describe
    from sightglass.client.many.folder import RecordedRuns, open

    try:
        if not is_path(run) or is_live(run):
            return describe(run, timeout_s=ANSWER_S)
        with open(run) as found:
            return None if isinstance(found, RecordedRuns) else found.describe()
    except SightglassError:
        return None


def is_path(run: str) -> bool:
    """Return whether a name is the path of a recorded run."""
    from sightglass.storage.file_names import is_there

    return is_there(run) and (os.path.isdir(run) or not run.endswith(".json"))


def is_live(run: str) -> bool:
    """Return whether a live run has this name or id."""
    from sightglass.protocol.discovery import entries

    return any(run in (entry.name, entry.id) for entry in entries())


def _first_live() -> str:
    """Return the id of a live run, for commands that ask all of them; empty if there is none."""
    from sightglass.protocol.discovery import entries

    return next((entry.id for entry in entries()), "")


class RunName(TextType):
    """A parameter: the name or id of a run, or a connection file."""

    name = "run"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the completions of what was typed."""
        from click.shell_completion import CompletionItem

        from sightglass.protocol.discovery import entries

        names = dict.fromkeys(entry.name for entry in entries())
        files = [CompletionItem(incomplete, type="file")] if "/" in incomplete or incomplete.endswith(".json") else []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)] + files


class OfRun(TextType):
    """A parameter that belongs to the run that precedes it, or to all live runs.

    Attributes:
        complete: Returns the completions of a text, from the run's description.
    """

    def __init__(self, name: str, complete: Callable[[str, Description], Iterable[str]]) -> None:
        self.name = name
        self.complete = complete

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Return the completions of what was typed."""
        from click.shell_completion import CompletionItem

        run = ctx.params.get("run") or ("" if "run" in [param.name for param in ctx.command.params] else _first_live())
        description = _describe(run) if run else None
        found = self.complete(incomplete, description) if description else ()
        return [CompletionItem(text) for text in dict.fromkeys(found)]


RUN_NAME: Final = RunName()
QUERY: Final = OfRun("query", completions)
CONTROL: Final = OfRun("control", settable)
ACTION: Final = OfRun("action", lambda text, about: [name for name in about.actions if name.startswith(text)])
