"""The shell's completion: runs, their controls and actions, and queries up to the caret.

The shell waits for the answer at every tab, so a run has `ANSWER_S` to describe itself; then nothing is completed.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
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
# The path before the last dot, such as `batch.grads["dense"].`, and the word that is being typed.
_PATH: Final = re.compile(rf"""((?:{_NAME}(?:\[(?:"[^"]*"|'[^']*')\])*\.)*)({_NAME})?$""")
_PART: Final = re.compile(rf"""\["([^"]*)"\]|\['([^']*)'\]|({_NAME})""")
_EVENT: Final = re.compile(r"""\b(?:on\(|per=)(["'])([^"']*)$""")
_LAMBDA: Final = re.compile(rf"""\bon\((["'])([^"']+)\1\).*\b(?:map|where)\(\s*lambda ({_NAME}):""")


def completions(text: str, description: Description) -> list[str]:
    """Return how the text of a query may go on: each with all of the text before it.

    For "batch.loss.me": "batch.loss.mean()", "batch.loss.mean(every=100)", "batch.loss.median()".
    """
    quoted = _EVENT.search(text)
    if quoted:
        return _matching(text[: quoted.start(2)], quoted[2], (name + quoted[1] for name in description.events))
    found = _PATH.search(text)
    assert found is not None  # it matches the empty text, too
    path, word, head = found[1], found[2] or "", text[: found.start()]
    if not path and head.endswith("."):
        return _matching(head, word, _methods())
    if re.search(r"""[\w"'\])]$""", head):
        return []
    named = _LAMBDA.search(head)
    variables = {named[3]: named[2]} if named else {}
    if not path:
        return _matching(head, word, _beginnings(description, variables))
    owner, *names = [next(filter(None, part)) for part in _PART.findall(path)]
    event = description.events.get(variables.get(owner, owner))
    if event is None:
        return []
    if not names:
        return _matching(head + path[:-1], "." + word, map(_step, event.observables))
    if names[0] not in event.observables:
        return []
    inside = _inside(event.observables[names[0]].fields, names[1:])
    steps = (*map(_step, inside), *(f".{method}" for method in _methods()))
    return _matching(head + path[:-1], "." + word, steps)


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
    return _matching("", text, map("{}=".format, names))


def _matching(head: str, word: str, names: Iterable[str]) -> list[str]:
    """Return what goes on with a word; a name in brackets may follow a dot that was typed."""
    return [head + name for name in names if name.startswith(word) or name.replace('["', ".").startswith(word)]


def _step(name: str) -> str:
    from sightglass.query.parser import is_plain

    return f".{name}" if is_plain(name) else f'["{name}"]'


def _inside(fields: Iterable[str], names: list[str]) -> list[str]:
    """Return the names one level below some names, in an observable whose fields are paths joined by dots."""
    start = "".join(f"{name}." for name in names)
    return list(dict.fromkeys(field[len(start) :].partition(".")[0] for field in fields if field.startswith(start)))


def _beginnings(description: Description, variables: Mapping[str, str]) -> Iterator[str]:
    from sightglass.query.functions import FUNCTIONS

    for variable, event in variables.items() or ((name, name) for name in description.events):
        if event in description.events and (variables or _step(event).startswith(".")):
            yield from (variable + _step(name) for name in description.events[event].observables)
    yield from (f"{name}(" for name in (*FUNCTIONS, *description.functions))


def _methods() -> Iterator[str]:
    """Yield what can be called on a value; a reducer with a window, so that it can be sent as it is."""
    from sightglass.query.functions import FUNCTIONS
    from sightglass.query.stages import REDUCERS, SEQUENTIAL, Chain

    calls = {
        **{f"{name}(": function.call for name, function in FUNCTIONS.items() if function.method},
        **{f"{name}(every=100": getattr(Chain, name) for name in REDUCERS},
        **{f"{name}(": getattr(Chain, name) for name in SEQUENTIAL},
    }
    for text in sorted(calls):
        yield f"{text})" if _takes_only_its_value(calls[text]) else text.removesuffix("every=100")


def _takes_only_its_value(call: Callable[..., object]) -> bool:
    params = inspect.signature(call).parameters.values()
    return sum(p.default is p.empty and p.kind is not p.VAR_KEYWORD for p in params) == 1


def _describe(run: str) -> Description | None:
    """Return the description of a run, live or recorded, or `None` if it does not come soon."""
    from sightglass.client.discover import describe
    from sightglass.client.recorded.runs import RecordedRuns, open

    try:
        if not is_path(run) or is_live(run):
            return describe(run, timeout_s=ANSWER_S)
        with open(run) as found:
            return None if isinstance(found, RecordedRuns) else found.describe()
    except SightglassError:
        return None


def is_path(run: str) -> bool:
    """Return whether a name is the path of a recorded run."""
    return os.path.isdir(run) or (os.path.isfile(run) and not run.endswith(".json"))


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
ACTION: Final = OfRun("action", lambda text, description: _matching("", text, description.actions))
