"""How the text of a query may go on at a caret: the one completion of the shell, the page and notebooks. Pure.

A run's description has its events and what they offer; the table of functions and reducers has the rest.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from sightglass.core.description import Description, ObservableInfo

from .functions import FUNCTIONS
from .parser import is_plain
from .reduce.table import REDUCERS, SEQUENTIAL
from .stages import Chain

MAX_ITEMS: Final = 60  # more than anybody looks through
WINDOW: Final = "every=100"
# What is asked most often stands first among functions and reducers; the others follow by their names.
OFTEN: Final = (
    "mean", "norm", "max", "min", "std", "last", "histogram", "quantile", "sum", "abs", "map", "where", "shape",
    "isnan", "count",
)  # fmt: skip

_NAME: Final = r"[A-Za-z_]\w*"
_PATH: Final = rf"""{_NAME}(?:\.{_NAME}|\["[^"]*"\]|\['[^']*'\])*"""
_WORD: Final = re.compile(rf"({_NAME})?$")
_PART: Final = re.compile(rf"""\["([^"]*)"\]|\['([^']*)'\]|({_NAME})""")
_IN_KEY: Final = re.compile(rf"""({_PATH})\[(["'])([^"'\]]*)$""")
_IN_EVENT: Final = re.compile(r"""\b(?:on\(|per=)\s*(["'])([^"']*)$""")
_STRING: Final = re.compile(r"""(["'])(?:(?!\1).)*\1""")
_BEFORE_DOT: Final = re.compile(rf"({_PATH})\.$")
_EVENT: Final = re.compile(r"""\bon\((["'])([^"']+)\1\)""")
_LAMBDA: Final = re.compile(rf"\b(?:map|where)\(\s*lambda\s+({_NAME})\s*:")
_GOES_ON: Final = re.compile(r"[(,+\-*/<>=&|~:]\s*$")

Kind = Literal["event", "observable", "name", "function", "reducer", "window", "attribute", "run's function"]


class FunctionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A function or reducer that queries can call."""

    name: str
    signature: str
    doc: str
    kind: Literal["function", "reducer"]


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """One way to go on.

    Attributes:
        text: What is written between the start and the caret.
        kind: What it is.
        detail: The type of a value, or a signature.
        doc: What it does, or what it is now.
        whole: For a call, what is written instead where nothing follows; empty if it needs arguments.
        over: How many characters before the start it replaces, too: a name in brackets takes the place of a dot.
    """

    text: str
    kind: Kind
    detail: str = ""
    doc: str = ""
    whole: str = ""
    over: int = 0


class Completions(msgspec.Struct, frozen=True, kw_only=True):
    """The ways to go on: where the text begins that they replace, up to the caret, and the call around the caret."""

    start: int
    items: Sequence[Completion] = ()
    call: FunctionInfo | None = None


def complete(text: str, caret: int, description: Description) -> Completions:
    """Return how a query may go on at a caret; of the text, what stands before the caret decides."""
    before = text[:caret]
    start, items = _at(before, description)
    return Completions(start=start, items=items, call=_call_at(before))


@functools.cache
def functions() -> tuple[FunctionInfo, ...]:
    """Return what queries can call: functions of values, and reducers over events, by their names."""
    every = [
        FunctionInfo(name=one.name, signature=one.signature, doc=one.doc, kind="function") for one in FUNCTIONS.values()
    ]
    every += [
        FunctionInfo(
            name=name, signature=_signature(name), doc=inspect.getdoc(getattr(Chain, name)) or "", kind="reducer"
        )
        for name in (*REDUCERS, *SEQUENTIAL)
    ]
    return tuple(sorted(every, key=lambda one: (one.name, one.kind)))


def _signature(name: str) -> str:
    parameters = list(inspect.signature(getattr(Chain, name)).parameters.values())[1:]
    plain = [one for one in parameters if one.kind is not one.VAR_KEYWORD]
    shown = [one.name if one.default is one.empty else f"{one.name}={one.default!r}" for one in plain]
    windows = ["every= | per= | when=", "by="] * (name in REDUCERS)
    return f"{name}({', '.join([*shown, *windows])})"


def _at(before: str, description: Description) -> tuple[int, list[Completion]]:
    events, caret = description.events, len(before)
    if key := _IN_KEY.search(before):
        names = _names(_fields_at(before, key[1], description), lambda name: f"{name}{key[2]}]")
        return caret - len(key[3]), _matching(names, key[3])
    if quoted := _IN_EVENT.search(before):
        named = [
            Completion(text=name + quoted[1], kind="event", doc=_so_far(one.n_events)) for name, one in events.items()
        ]
        return caret - len(quoted[2]), _matching(named, quoted[2])
    if re.search(r"""["']""", _STRING.sub("", before)):  # inside another text
        return caret, []
    word = _WORD.search(before)[0]  # type: ignore[index]  # it matches the empty text, too
    start = caret - len(word)
    head = before[:start]
    if re.search(r"""[\w\])"']\.$""", head):
        return start, _matching(_after_dot(head, description), word)
    windows = _WINDOWS if _call_is_reducer(before) and re.search(r"[(,]\s*$", head) else []
    if re.search(r"\d$", head) or (not word and not windows and before.strip() and not _GOES_ON.search(before)):
        return caret, []
    return start, _matching([*windows, *_beginnings(head, description)], word)


def _after_dot(head: str, description: Description) -> list[Completion]:
    """Return what may follow a dot: what an event offers, or what is in a value and can be done with it."""
    path = _BEFORE_DOT.search(head)
    owner, *inside = _parts_of(path[1]) if path else [""]
    event = _event_of(head, owner, description)
    if event and not inside:
        return [
            _named(
                name,
                Completion(text=name, kind="observable", detail=one.type, doc=one.example and f"now {one.example}"),
            )
            for name, one in description.events[event].observables.items()
        ]
    if event and inside[0] not in description.events[event].observables:
        return []
    if path and not event and not inside and not re.search(rf"""[\w\])"']\.{owner}\.$""", head):
        return []  # neither an event nor a value
    names = _names(_fields_at(head, path[1] if path else "", description), lambda name: name)
    return [*(_named(one.text, one) for one in names), *_methods(), *_ATTRIBUTES]


def _named(name: str, item: Completion) -> Completion:
    """Return an item that follows a dot: a name that cannot, in brackets over the dot."""
    if is_plain(name):
        return item
    return msgspec.structs.replace(item, text=f"[{json.dumps(name, ensure_ascii=False)}]", over=1)


def _beginnings(head: str, description: Description) -> Iterator[Completion]:
    variables = _variables(head, description)
    for name, event in variables:
        yield Completion(text=f"{name}.", kind="event", detail=f"one of {event}")
    if not variables:
        for name, one in description.events.items():
            if is_plain(name):
                yield Completion(text=f"{name}.", kind="event", detail=one.note, doc=_so_far(one.n_events))
        yield Completion(
            text='on("', kind="event", detail='on("event").map(lambda e: …)',
            doc="The events of a kind; with map, where and reducers",
        )  # fmt: skip
    for name, doc in description.functions.items():
        yield Completion(text=f"{name}(", kind="run's function", detail=f"{name}(…)", doc=doc)
    for call in functions():
        if call.kind == "function":
            yield Completion(text=f"{call.name}(", kind="function", detail=call.signature, doc=call.doc)


@functools.cache
def _methods() -> tuple[Completion, ...]:
    """Return what can be called on a value, which is the first argument of a function."""
    found = []
    for one in functions():
        is_reducer = one.kind == "reducer"
        call: Any = getattr(Chain, one.name) if is_reducer else FUNCTIONS[one.name].call
        parameters = inspect.signature(call).parameters.values()
        n_needed = sum(each.default is each.empty and each.kind is not each.VAR_KEYWORD for each in parameters)
        rest = one.signature if is_reducer else re.sub(r"\(\w+(, )?", "(", one.signature, count=1)
        whole = f"{one.name}({WINDOW if one.name in REDUCERS and is_reducer else ''})" if n_needed == 1 else ""
        text = f"{one.name}()" if rest.endswith("()") else f"{one.name}("
        found.append(Completion(text=text, kind=one.kind, detail=rest, doc=one.doc, whole=whole))
    return tuple(found)


_WINDOWS: Final = [
    Completion(text=WINDOW, kind="window", detail="events", doc="Closes after so many events"),
    Completion(text='every="10 s"', kind="window", detail="time", doc="Closes after so long"),
    Completion(text='per="', kind="window", detail="event", doc="Closes at each event of another kind"),
    Completion(text="when=lambda e: ", kind="window", detail="condition", doc="Closes when it holds"),
]
_ATTRIBUTES: Final = [
    Completion(text=name, kind="attribute", detail="of an array") for name in ("shape", "dtype", "ndim", "size", "T")
]


def _call_at(before: str) -> FunctionInfo | None:
    """Return the call that the caret stands in: its signature is shown while its arguments are typed."""
    depth = 0
    for i in range(len(before) - 1, -1, -1):
        depth += before[i] == ")"
        if before[i] != "(":
            continue
        if depth:
            depth -= 1
            continue
        name = _WORD.search(before[:i])[0]  # type: ignore[index]
        named = [one for one in functions() if one.name == name]
        # A call on a stream's values over a window is a reducer; without one, the function on the value itself.
        windowed = re.search(r"\b(every|per|when)=|^\s*$", before[i + 1 :]) is not None
        reduces = windowed and before[: i - len(name)].endswith(".")
        if named:
            return next((one for one in named if (one.kind == "reducer") == reduces), named[0])
    return None


def _call_is_reducer(before: str) -> bool:
    call = _call_at(before)
    return call is not None and call.kind == "reducer"


def _so_far(n: int) -> str:
    return f"{n:,} so far"


def _variables(head: str, description: Description) -> list[tuple[str, str]]:
    """Return the name that the last lambda gave to an event, and the event."""
    event = _EVENT.search(head)
    named = _LAMBDA.findall(head)
    return [(named[-1], event[2])] if event and named and event[2] in description.events else []


def _event_of(head: str, owner: str, description: Description) -> str:
    """Return the event that a name stands for, or an empty text."""
    return dict(_variables(head, description)).get(owner, owner if owner in description.events else "")


def _parts_of(path: str) -> list[str]:
    return [next(part for part in found if part or found == ("", "", "")) for found in _PART.findall(path)]


Tree = Mapping[str, Any]


def _fields_at(before: str, path: str, description: Description) -> Tree:
    """Return what is in the value of a path, as a tree of names; a name whose value is not a mapping has its type."""
    owner, *names = _parts_of(path) or [""]
    event = _event_of(before, owner, description)
    observable = description.events[event].observables.get(names[0]) if event and names else None
    at: Any = {} if observable is None else _tree(observable)
    for name in names[1:]:
        at = at.get(name, {}) if isinstance(at, dict) else {}
    return at if isinstance(at, dict) else {}


def _tree(observable: ObservableInfo) -> Tree:
    """Return the fields of an observable as a tree; a run joins their names with dots, which names may hold, too.

    Where both may be, both are there: a number below "fc" and one below "out", or numbers named "fc.w" and "out.w".
    """
    known = re.match(r"mapping of (\d+)", observable.type)
    n, fields = int(known[1]) if known else 0, observable.fields
    is_flat, is_deep = len(fields) == n, len({path.partition(".")[0] for path in fields}) == n
    root: dict[str, Any] = {}
    for path, kind in fields.items():
        if is_flat:
            root[path] = kind
        if is_flat and not is_deep:
            continue
        *above, last = path.split(".")
        at = root
        for name in above:
            if not isinstance(at.get(name), dict):  # "a" may be a number beside "a.b"
                at[name] = {}
            at = at[name]
        at.setdefault(last, kind)
    return root


def _names(fields: Tree, written: Callable[[str], str]) -> list[Completion]:
    return [
        Completion(text=written(name), kind="name", detail=of if isinstance(of, str) else f"mapping of {len(of)}")
        for name, of in fields.items()
    ]


def _matching(items: Iterable[Completion], word: str) -> list[Completion]:
    """Return the items that have a word, those that begin with it first, and what is often asked before the rest."""
    wanted = word.lower()
    found = [one for one in items if wanted in one.text.lower()]
    return sorted(found, key=lambda one: (not one.text.lower().startswith(wanted), _rank(one)))[:MAX_ITEMS]


def _rank(item: Completion) -> int:
    if item.kind not in ("function", "reducer", "attribute"):
        return -1
    name = item.text.partition("(")[0]
    return OFTEN.index(name) if name in OFTEN else len(OFTEN)
