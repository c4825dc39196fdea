"""Controls and actions: what a run lets clients change and call.

A control is typed and bounded, and remembers the line that declared it. Reading `lr.value` is an attribute look-up. A
bound control reads and writes an attribute of a user's object, or an item of a user's mapping.
"""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, get_args

import numpy as np

from sightglass.core.errors import CommandError
from sightglass.core.guarded import FAILURES, class_name, first_line, message, text

Number = int | float
Scalar = bool | int | float | str
ApplyThread = Literal["init", "any"]
"""The thread whose events apply a command: the one that called `init`, or whichever comes first."""


class Control:
    """A typed, bounded value that clients may change.

    Attributes:
        name: The name that clients use.
        value: The current value.
        type: "bool", "int", "float" or "str".
        min: The smallest value allowed, or `None`.
        max: The largest value allowed, or `None`.
        choices: The values allowed, or `None` for any.
        thread: "any" if an event of any thread may set it, else "init".
        where: The file and line that declared it.
        note: Returns what a client that has set it should know, or "".
    """

    __slots__ = ("choices", "max", "min", "name", "note", "thread", "type", "value", "where")

    def __init__(
        self,
        name: str,
        value: object,
        *,
        min: Number | None = None,
        max: Number | None = None,
        choices: Iterable[Scalar] | None = None,
        thread: ApplyThread = "init",
        where: str = "",
        note: Callable[[], str] = str,
    ) -> None:
        self.name = name
        self.type = control_type(name, value)
        self.thread = known_thread(thread)
        self.min = min
        self.max = max
        self.choices = None if choices is None else tuple(choices)
        self.where = where
        self.note = note
        self._begin(self.checked(value))

    def _begin(self, value: Any) -> None:
        self.value = value

    def checked(self, value: Any) -> Any:
        """Return a value as this control's type.

        Raises:
            CommandError: `value` has another type, or is out of bounds; the message names the declaring line.
        """
        try:
            return self._checked(value)
        except CommandError:
            raise
        except FAILURES as error:  # bounds and choices may be any objects
            raise self._refused(f"expected values that can be compared, got {message(error)}") from None

    def set(self, value: object) -> tuple[Scalar, Scalar]:
        """Set the value; return the old and the new one. Errors as in `checked`."""
        old, new = self.value, self.checked(value)
        self.value = new
        return old, new

    def _checked(self, value: Any) -> Any:
        if issubclass(type(value), np.generic):
            value = value.item()
        if self.type == "float" and type(value) is int and abs(value) < 2**1023:
            value = float(value)
        if type(value).__name__ != self.type:
            raise self._refused(f"expected {self.type}, got {class_name(value)} {text(value, 100)}")
        if isinstance(value, float) and math.isnan(value):
            raise self._refused("expected a number, got nan")
        if self.min is not None and value < self.min:
            raise self._refused(f"expected at least {self.min!r}, got {text(value, 100)}")
        if self.max is not None and value > self.max:
            raise self._refused(f"expected at most {self.max!r}, got {text(value, 100)}")
        if self.choices is not None and value not in self.choices:
            raise self._refused(f"expected one of {', '.join(map(text, self.choices))}, got {text(value, 100)}")
        return value

    def _refused(self, reason: str) -> CommandError:
        declared = f" (declared in {self.where})" if self.where else ""
        return CommandError(f"Control {self.name!r}: {reason}{declared}")

    def __repr__(self) -> str:
        bounds = "" if self.min is None and self.max is None else f", {self.min}..{self.max}"
        return f"Control({self.name!r}, {self.value!r}{bounds})"


class BoundControl(Control):
    """A control over an attribute of a user's object, or an item of a user's mapping."""

    __slots__ = ("_key", "_owner")

    def __init__(self, name: str, bind: tuple[object, str], **options: Any) -> None:
        self._owner, self._key = bind
        super().__init__(name, self.value, **options)

    def _begin(self, value: Any) -> None:
        """Leave the owner as it is."""

    @property
    def value(self) -> Any:
        """The current value, read from its owner."""
        if isinstance(self._owner, Mapping):
            return self._owner[self._key]
        return getattr(self._owner, self._key)

    @value.setter
    def value(self, value: Scalar) -> None:
        if isinstance(self._owner, Mapping):
            self._owner[self._key] = value  # type: ignore[index]
        else:
            setattr(self._owner, self._key, value)


def control_type(name: str, value: object) -> str:
    """Return the name of the type of a control's value.

    Raises:
        TypeError: `value` is not a bool, int, float or str.
    """
    if issubclass(type(value), np.generic):
        value = value.item()  # type: ignore[attr-defined]
    kind = type(value).__name__
    if kind not in ("bool", "int", "float", "str"):
        raise TypeError(f"Expected a bool, int, float or str as control {name!r}, got {kind}")
    return kind


class Action:
    """A named function that clients may call; the program runs it.

    Attributes:
        name: The name that clients use.
        function: The function.
        awaits: Whether it is an `async def` function, which only `Run.apply_async` can await.
        thread: "any" if an event of any thread may call it, else "init".
        doc: The first line of its docstring.
        where: The file and line that declared it.
    """

    __slots__ = ("awaits", "doc", "function", "name", "thread", "where")

    def __init__(
        self, name: str, function: Callable[..., Any], *, thread: ApplyThread = "init", where: str = ""
    ) -> None:
        if not callable(function):
            raise TypeError(f"Expected a function as action {name!r}, got {class_name(function)}")
        self.name = name
        self.function = function
        self.awaits = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
        self.thread = known_thread(thread)
        self.doc = first_line(function)
        self.where = where


def known_thread(thread: ApplyThread) -> ApplyThread:
    """Return `thread`.

    Raises:
        ValueError: It is not "init" or "any".
    """
    if thread not in get_args(ApplyThread):
        raise ValueError(f"Expected thread='init' or thread='any', got {text(thread, 100)}")
    return thread


def declaring_line() -> str:
    """Return the file and line of the caller's caller."""
    frame = sys._getframe(2)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
