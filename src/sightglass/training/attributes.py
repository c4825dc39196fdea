"""Attributes as controls: numbers inside offered objects, such as `batch.optimizer.lr`, with `controls="attributes"`.

A path is read as a query reads it, so properties, modules, classes and functions are refused. Only a number that an
instance, a dict or a list stores can be set. It keeps its type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sightglass.core.errors import MAX_NAMES_SHOWN, CommandError, QueryError, unknown
from sightglass.core.guarded import class_name, stored, text
from sightglass.query import access
from sightglass.query.arrays import readable
from sightglass.query.expressions import Attr, Const, Expr, Item, Lambda, Var
from sightglass.query.parser import parse
from sightglass.query.stages import Map

from .controls import Control, Scalar

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
