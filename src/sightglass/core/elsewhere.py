"""Attributes that people know from other libraries, or from another kind of run: reading one says what to use here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Elsewhere:
    """An attribute that is not there: reading it raises, and says what is meant."""

    def __init__(self, message: str) -> None:
        self._message = message

    def __get__(self, run: object, owner: type) -> Any:
        raise AttributeError(self._message)


def say_elsewhere(cls: type, what: str, meant: Mapping[str, str]) -> None:
    """Give a class attributes that raise, by what is meant. With `__getattr__`, all others were read more slowly.

    Args:
        cls: The class.
        what: What its instances are, such as "A run".
        meant: For each attribute, what to use instead.
    """
    for name, instead in meant.items():
        setattr(cls, name, Elsewhere(f"{what} has no attribute {name!r}. Did you mean {instead}?"))
