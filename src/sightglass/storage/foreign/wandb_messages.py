"""The messages in Weights & Biases' logs: what a record says, as plain values; only those that are shown.

Source: wandb/proto/wandb_internal.proto. A value is JSON under a key, or under a path of keys (`nested_key`); a mapping
in it continues the path. Tags join paths with slashes. JSON may have NaN, Infinity and -Infinity.

A mapping with `_type` is a value of W&B's own, such as a histogram or an image file in the run's `files`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sightglass.core.errors import WireError
from sightglass.storage.format.protobuf import BYTES, VARINT, signed, walk

CONFIG, RUN, EXIT, INFO = 5, 17, 18, 200
NOT_SHOWN: Final = {4: "output", 8: "artifact", 9: "TensorBoard log", 10: "alert", 25: "used artifact"}
STREAMS: Final = {0: "console/stderr", 1: "console/stdout"}
MAX_DEPTH: Final = 32  # of mappings in a value: W&B's own tools stop far earlier
OWN: Final = frozenset({"_step", "_timestamp", "_runtime", "_wandb"})  # the keys that W&B itself adds

Path = tuple[str, ...]


@dataclass(slots=True)
class LogMessage:
    """A record.

    Attributes:
        step: The step of a row, or `None`.
        wall_time: When it was made, in seconds since the Unix epoch, or `None`.
        values: JSON values by path.
        text: Of console output, its fragment.
        passed_over: What the record is, if it is not shown.
        has_ended: Whether the run ends with it.
    """

    step: int | None = None
    wall_time: float | None = None
    values: dict[Path, Any] = field(default_factory=dict)
    text: tuple[str, str] | None = None
    passed_over: str = ""
    has_ended: bool = False


def decode(payload: memoryview, known: set[str]) -> LogMessage:
    """Decode a record.

    Args:
        payload: Its bytes.
        known: The keys of rows in files of older versions of W&B; updated. There, a summary repeats the rows.

    Raises:
        WireError: These are not the bytes of a record.
    """
    found = LogMessage()
    asked = any(number == INFO for number, _, _ in _fields(payload))
    for number, kind, body in _fields(payload):
        if kind != BYTES:
            continue
        match number:
            case 2:
                _history(body, found, known)
            case 3:
                items = {path: value for path, value, nested in _items(body, 1) if asked or not nested}
                shown = {path: value for path, value in items.items() if path[0] not in known}
                found.values = {("summary", *path): value for path, value in flat(shown)}
            case 7:
                found.wall_time = next((_time(stamp) for stamp in _messages(body, 2)), None)
                found.values = {("system", *path): value for path, value, _ in _items(body, 3)}
            case 13:
                _output(body, found)
            case 18:
                found.has_ended = True
            case _:
                found.passed_over = NOT_SHOWN.get(number, found.passed_over)
    return found


def _history(body: memoryview, found: LogMessage, known: set[str]) -> None:
    items = list(_items(body, 1))
    known.update(path[0] for path, _, nested in items if not nested)
    values = {path: value for path, value, _ in items}
    step = next((_number(message, 1) for message in _messages(body, 2)), values.get(("_step",)))
    time = values.get(("_timestamp",))
    found.step = step if type(step) is int else None
    found.wall_time = float(time) if isinstance(time, int | float) else None
    found.values = dict(flat(values))


def _output(body: memoryview, found: LogMessage) -> None:
    text = "".join(_text(line) for line in _messages(body, 3))
    found.wall_time = next((_time(stamp) for stamp in _messages(body, 2)), None)
    found.text = STREAMS.get(_number(body, 1), STREAMS[1]), text


def describe(payload: memoryview, told: dict[str, Any]) -> None:
    """Take what a record says of its run: fields of `run_file.RunFile`.

    Raises:
        WireError: These are not the bytes of a record.
    """
    for number, kind, body in _fields(payload):
        if (number, kind) == (RUN, BYTES):
            for config in _messages(body, 4):
                _configure(config, told)
            names = {"name": 8, "host": 13}
            told |= {name: text for name, place in names.items() for text in map(_text, _messages(body, place)) if text}
            for stamp in _messages(body, 17):
                told["started"] = _time(stamp)
        elif (number, kind) == (CONFIG, BYTES):
            _configure(body, told)
        elif (number, kind) == (EXIT, BYTES):
            told["ended"] = told.get("started", 0.0) + _number(body, 2)
            told["state"] = "failed" if _number(body, 1) else "ended"


def _configure(body: memoryview, told: dict[str, Any]) -> None:
    config = told.setdefault("config", {})
    for path, value, _ in _items(body, 1):
        if path[0] not in OWN:
            _put(config, path, value)
    for path, _, _ in _items(body, 2):
        inner = config
        for name in path[:-1]:
            inner = inner.get(name)
            if not isinstance(inner, dict):
                break
        else:
            inner.pop(path[-1], None)


def _items(body: memoryview, place: int) -> Iterator[tuple[Path, Any, bool]]:
    """Yield the path and the value of each item of a message, and whether its key is nested."""
    for item in _messages(body, place):
        path: list[str] = []
        nested, text = False, b"null"
        for number, kind, value in _fields(item):
            if (number, kind) == (1, BYTES) and len(value):
                path = [_text(value)]
            elif (number, kind) == (2, BYTES):
                path, nested = [*path, _text(value)], True
            elif (number, kind) == (16, BYTES):
                text = bytes(value)
        try:
            found = json.loads(text, parse_int=_integer)
        except (ValueError, RecursionError):
            raise WireError(f"Expected JSON under {'/'.join(path)!r}, got {text!r:.60}") from None
        if path:
            yield tuple(path), found, nested


def _integer(text: str) -> float:
    return -0.0 if text == "-0" else int(text)


def flat(values: Mapping[Path, Any]) -> Iterator[tuple[Path, Any]]:
    """Yield values by the whole paths of their keys, with W&B's own ones put together, without what W&B adds."""
    tree: dict[str, Any] = {}
    for path, value in values.items():
        if path[0] not in OWN:
            _put(tree, path, value)
    yield from leaves(tree, ())


def _put(tree: dict[str, Any], path: Path, value: Any) -> None:
    """Put a value into a mapping of mappings, replacing what is not one."""
    for name in path[:-1]:
        inner = tree.get(name)
        if not isinstance(inner, dict):
            inner = tree[name] = {}
        tree = inner
    tree[path[-1]] = value


def leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield what is in a mapping of mappings, except in values with a type of their own, by its paths."""
    if isinstance(value, dict) and "_type" not in value and len(path) < MAX_DEPTH:
        for name, inner in value.items():
            yield from leaves(inner, (*path, name))
    else:
        yield path, value


def _fields(message: memoryview) -> Iterator[tuple[int, int, Any]]:
    return walk(message)


def _messages(message: memoryview, place: int) -> Iterator[memoryview]:
    """Yield the messages, or texts, in a field of a message."""
    for number, kind, value in _fields(message):
        if (number, kind) == (place, BYTES):
            yield value


def _number(message: memoryview, place: int) -> int:
    """Return a number of a message, 0 by default."""
    return next((signed(value) for number, kind, value in _fields(message) if (number, kind) == (place, VARINT)), 0)


def _time(stamp: memoryview) -> float:
    return _number(stamp, 1) + _number(stamp, 2) / 1e9


def _text(value: memoryview) -> str:
    return bytes(value).decode("utf-8", "replace")
