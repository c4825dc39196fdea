"""Controls and actions: what a run lets clients change and call.

A control is typed and bounded, and remembers the line that declared it. Reading `lr.value` is an attribute look-up. A
bound control reads and writes an attribute of a user's object, or an item of a user's mapping.

Attributes of offered objects are controls, too; `LentFunction` is a function that a run lends to queries.
"""

from __future__ import annotations

import inspect
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

import numpy as np

from sightglass.core.description import ParameterInfo
from sightglass.core.errors import MAX_NAMES_SHOWN, CommandError, QueryError, RefusedFunctionError, unknown
from sightglass.core.process.current_run import Handle, awaited
from sightglass.core.program_values.guarded import FAILURES, class_name, first_line, message, stored, text
from sightglass.query import access
from sightglass.query.arrays import readable
from sightglass.query.expressions import Attr, Const, Expr, Item, Lambda, Var
from sightglass.query.parser import parse
from sightglass.query.query import Query
from sightglass.query.stages import Map

Number = int | float
Scalar = bool | int | float | str
ApplyThread = Literal["init", "any"]
"""The thread whose events apply a command: the one that called `init`, or whichever comes first."""


class Control(Handle):
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

    def _elsewhere(self) -> tuple[Any, ...]:
        return _mute_control, self.name, self.value, self.min, self.max, self.choices, self.where

    def __repr__(self) -> str:
        bounds = "" if self.min is None and self.max is None else f", {self.min}..{self.max}"
        return f"Control({self.name!r}, {self.value!r}{bounds})"


def _mute_control(name: str, value: Scalar, *limits: Any) -> Control:
    """Return what a control becomes in another process: nobody sets it, and it keeps its value."""
    low, high, choices, where = limits
    return Control(name, value, min=low, max=high, choices=choices, where=where)


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
        parameters: Those of its arguments that can be given by name.
        signature: All of them as text, such as "(n: int = 4)"; empty if Python does not know them.
        where: The file and line that declared it.
    """

    __slots__ = ("_signature", "awaits", "doc", "function", "name", "parameters", "signature", "thread", "where")

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
        try:
            self._signature: inspect.Signature | None = inspect.signature(function)
        except (TypeError, ValueError):  # a function of C may not say
            self._signature = None
        parameters = () if self._signature is None else tuple(self._signature.parameters.values())
        self.parameters = [_parameter(one) for one in parameters if one.kind in BY_NAME]
        self.signature = "" if self._signature is None else _as_text(parameters)

    def check(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        """Refuse arguments that the function does not take.

        Raises:
            CommandError: It does not.
        """
        if self._signature is not None:
            try:
                self._signature.bind(*args, **keywords)
            except TypeError as error:
                raise CommandError(f"Wrong arguments for {self.name}{self.signature}: {error}") from None


BY_NAME: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
MAX_SHOWN: Final = 60  # characters of a type or a default value


def _parameter(parameter: inspect.Parameter) -> ParameterInfo:
    annotation, default = parameter.annotation, parameter.default
    kind = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", str(annotation))
    return ParameterInfo(
        name=parameter.name,
        type="" if annotation is inspect.Parameter.empty else kind[:MAX_SHOWN],
        default="" if default is inspect.Parameter.empty else text(default, MAX_SHOWN),
    )


def _as_text(parameters: Sequence[inspect.Parameter]) -> str:
    """Return parameters as they stand in a `def`, with types by their names and long defaults cut."""
    shown: list[str] = []
    before: inspect.Parameter | None = None
    for one in parameters:
        if before is not None and before.kind < one.kind:
            shown += ["/"] if before.kind is one.POSITIONAL_ONLY else []
            shown += ["*"] if one.kind is one.KEYWORD_ONLY and before.kind is not one.VAR_POSITIONAL else []
        elif before is None and one.kind is one.KEYWORD_ONLY:
            shown.append("*")
        about = _parameter(one)
        stars = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
        type_, equals = about.type and f": {about.type}", " = " if about.type else "="
        shown.append(f"{stars}{about.name}{type_}{about.default and equals + about.default}")
        before = one
    if before is not None and before.kind is before.POSITIONAL_ONLY:
        shown.append("/")
    return f"({', '.join(shown)})"


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


# Attributes as controls: numbers inside offered objects, such as `batch.optimizer.lr`, with `controls="attributes"`.
#
# A path is read as a query reads it, so properties, modules, classes and functions are refused. Only a number that an
# instance, a dict or a list stores can be set. It keeps its type.

EXAMPLES: Final = "such as batch.optimizer.lr or batch.optimizer.param_groups[0]['lr']"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributePath:
    """Where a number is: the last name or key of a path that begins at an event.

    Attributes:
        text: The path as the client wrote it.
        event: The event.
        owner: What has the attribute or the item.
        key: The name of the attribute, the key or the place.
        item: Whether it is an item, `[key]`.
    """

    text: str
    event: str
    owner: Expr
    key: str | int
    item: bool

    def set(self, observables: Mapping[str, Any], value: object) -> tuple[Scalar, Scalar]:
        """Set the number, in the objects that an event offers; return the old and the new one.

        Raises:
            CommandError: There is no such number, or the value has another type.
            SightglassError: The path cannot be read.
        """
        owner = _read(self.owner, self.event, observables)
        stores = type(owner) is dict or type(owner) is list
        if not (stores or self.item) and _is_of_class(owner, str(self.key)):
            raise self._refused(
                f"expected an attribute that an instance stores, got one of its class {class_name(owner)}. "
                f"{_numbers_of(owner)}"
            )
        old = access.item(owner, self.key) if stores or self.item else access.attribute(owner, str(self.key))
        if not stores and (self.item or not _is_stored(owner, str(self.key))):
            raise self._refused(
                "expected an attribute that an instance stores, or an item of a dict or a list, got "
                f"that of {class_name(owner)}"
            )
        if type(old) not in (bool, int, float):
            raise self._refused(f"expected a number, got {class_name(old)} {text(old, 100)}")
        new = Control(self.text, old).checked(value)
        if stores:
            owner[self.key] = new
        else:
            setattr(owner, str(self.key), new)
        return old, new

    def _refused(self, reason: str) -> CommandError:
        return CommandError(f"Cannot set {self.text}: {reason}. In the program, declare run.control(…, bind=…) for it")


def attribute_path(name: str) -> AttributePath:
    """Parse a path.

    Raises:
        CommandError: It is not a path to something inside an observable, or a name in it begins with an underscore.
    """
    try:
        query = parse(name)
    except QueryError as error:
        raise CommandError(f"Expected the path of a number, {EXAMPLES}, got {name!r:.200}: {error}") from None
    match query.stages:
        case (Map(fn=Lambda(body=Attr(target=(Attr() | Item()) as owner, name=key))),) if _is_path(owner):
            return AttributePath(text=name, event=query.event, owner=owner, key=key, item=False)
        case (Map(fn=Lambda(body=Item(target=(Attr() | Item()) as owner, index=Const(value=key)))),) if _is_path(
            owner
        ) and _is_key(key):
            return AttributePath(text=name, event=query.event, owner=owner, key=key, item=True)  # type: ignore[arg-type]
    raise CommandError(f"Expected the path of a number, {EXAMPLES}, got {name!r:.200}")


def _is_path(tree: Expr) -> bool:
    match tree:
        case Attr(target=Var()):
            return True
        case Attr(target=target):
            return _is_path(target)
        case Item(target=target, index=Const(value=key)):
            return _is_path(target) and _is_key(key)
    return False


def _is_key(key: object) -> bool:
    return type(key) is int or (type(key) is str and not key.startswith("_"))


def _read(tree: Expr, event: str, observables: Mapping[str, Any]) -> Any:
    match tree:
        case Attr(target=Var(), name=name):
            if name not in observables:
                raise CommandError(unknown("observable", name, observables, where=f"at event {event!r}"))
            return readable(observables[name], name)
        case Attr(target=target, name=name):
            return access.attribute(_read(target, event, observables), name)
        case Item(target=target, index=Const(value=key)):
            return access.item(_read(target, event, observables), key)
    raise CommandError(f"Expected a path, got {tree}")


def _is_stored(owner: object, name: str) -> bool:
    """Return whether an instance stores an attribute itself, so that no property or other descriptor comes first."""
    if name not in stored(owner):
        return False
    found = next((vars(cls)[name] for cls in type(owner).__mro__ if name in vars(cls)), None)
    return not hasattr(type(found), "__set__") or type(found).__name__ == "member_descriptor"


def _is_of_class(owner: object, name: str) -> bool:
    """Return whether only the class of an instance has an attribute."""
    return name not in stored(owner) and any(name in vars(cls) for cls in type(owner).__mro__)


def numbers_in(owner: object) -> dict[str, Scalar]:
    """Return the numbers that an instance stores and a controller can set, by name."""
    numbers = {name: value for name, value in stored(owner).items() if type(value) in (bool, int, float)}
    return {name: numbers[name] for name in sorted(numbers) if not name.startswith("_") and _is_stored(owner, name)}


def _numbers_of(owner: object) -> str:
    names = [*numbers_in(owner)]
    if not names:
        return "The instance stores no number that can be set"
    more = f" and {len(names) - MAX_NAMES_SHOWN} more" if len(names) > MAX_NAMES_SHOWN else ""
    return f"Numbers that it stores: {', '.join(names[:MAX_NAMES_SHOWN])}{more}"


# Functions that a run lends to queries, with `Run.function`. They cannot be interrupted, so they are watched.
#
# Rule 1: Viewers may call those that are declared with `viewers=True`.
# Rule 2: One that takes longer for one call than an event's queries may is refused from then on: streams that call it
# end with the reason, and new ones are refused. Only its first call may take longer, once in a run.

MAX_CALL_S: Final = 0.02  # as `options.Limits.max_event_s` by default
N_FIRST: Final = 1  # it may import and compile what it needs, which says nothing of the others; the budget pays for it


class LentFunction:
    """A function that queries may call.

    Attributes:
        name: The name that queries call.
        viewers: Whether viewers may call it.
        doc: The first line of its docstring.
        refused: Why it is refused; empty while it is not.
        n_calls: How often it was called.
        n_refused: How often a query called it after it was refused.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        viewers: bool = False,
        run: str = "",
        max_call_s: float = MAX_CALL_S,
        in_event: Callable[[], bool] = lambda: True,
        cpu_s: Callable[[], float] = time.thread_time,
        wall_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Lend a function.

        Args:
            name: The name that queries call.
            function: The function.
            viewers: Whether viewers may call it.
            run: The id of the run.
            max_call_s: The seconds that a call may take, of the thread's processor time and in all.
            in_event: Returns whether this thread evaluates an event; other calls, such as JAX's traces, are not timed.
            cpu_s: Returns the thread's processor time.
            wall_s: Returns the time.
        """
        self.name = name
        self.viewers = viewers
        self.doc = first_line(function)
        self.refused = ""
        self.n_calls = self.n_refused = 0
        self.__wrapped__ = function  # its signature is that of this object
        self._run = run
        self._max_call_s = max_call_s
        self._in_event = in_event
        self._cpu_s = cpu_s
        self._wall_s = wall_s

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Call the function.

        Raises:
            RefusedFunctionError: It is refused, from this call on if the call took too long and is not the first.
        """
        if self.refused:
            self.n_refused += 1
            raise RefusedFunctionError(self.refused)
        self.n_calls += 1
        cpu_s, wall_s = self._cpu_s(), self._wall_s()
        try:
            with awaited(self._run):
                result = self.__wrapped__(*args, **kwargs)
        finally:
            taken_s = min(self._cpu_s() - cpu_s, self._wall_s() - wall_s)
            if taken_s > self._max_call_s and self.n_calls > N_FIRST and self._in_event():
                self.refused = (
                    f"Function {self.name!r} of the run took {taken_s * 1e3:.3g} ms for one call, and is refused from "
                    f"then on: an event's queries may take {self._max_call_s * 1e3:.3g} ms. Make it faster, or set "
                    "sg.Limits(max_event_s=…)"
                )
        if self.refused:
            raise RefusedFunctionError(self.refused)
        return readable(result, f"{self.name}(…)")


def check_functions(query: Query, functions: Mapping[str, Callable[..., Any]], *, may_command: bool) -> None:
    """Refuse a query that calls a function which is refused, or which the client may not call.

    Raises:
        RefusedFunctionError: It calls one.
    """
    for name in query.functions:
        lent = functions.get(name)
        if isinstance(lent, LentFunction) and lent.refused:
            lent.n_refused += 1
            raise RefusedFunctionError(lent.refused)
        if not may_command and not getattr(lent, "viewers", False):
            raise RefusedFunctionError(
                f"Expected functions that viewers may call, got {name!r}: the run has to declare it with "
                f"run.function({name!r}, …, viewers=True)"
            )
