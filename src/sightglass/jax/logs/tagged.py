"""What `logdict` and `stepdict` share: a mapping of tags to leaves with the events first; and `stepdict` itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Self

import jax

from sightglass.core.errors import UnknownNameError

from .columns import EventColumns, Mode
from .joining import concatenated
from .reading import read
from .summary import MAX_LINES, summary, table


class UnknownTagError(UnknownNameError, KeyError):
    """A tag under which nothing was logged."""


class Slices:
    """The result of `slice`: `logs.slice[-10:]` takes ten events, `logs.slice[-1]` one; the event axis stays."""

    __slots__ = ("_cut",)

    def __init__(self, cut: Callable[[slice], Any]) -> None:
        self._cut = cut

    def __getitem__(self, where: slice | int) -> Any:
        if isinstance(where, slice):
            return self._cut(where)
        if isinstance(where, int):
            return self._cut(slice(where, where + 1 or None))  # -1 is the last event, and [-1:0] would be empty
        raise TypeError(f"Expected a slice such as [-10:], or one number, got {where!r}")


class Tagged(Mapping[str, Any]):
    """A mapping of tags to leaves with the events first, and the operations on all tags at once."""

    __slots__ = ("_data",)
    __hash__ = None  # type: ignore[assignment]
    _data: Any

    def _columns(self) -> EventColumns:
        """Return the columns."""
        return EventColumns(self._data, {}, {}, {})

    @classmethod
    def _of(cls, columns: EventColumns) -> Self:
        """Return a mapping with columns that fit together."""
        raise NotImplementedError

    def __getitem__(self, tag: str) -> Any:
        try:
            return self._data[tag]
        except KeyError:
            raise UnknownTagError("tag", tag, self._data) from None

    def __contains__(self, tag: object) -> bool:
        return tag in self._data

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def __delitem__(self, tag: str) -> None:
        if tag not in self._data:
            raise UnknownTagError("tag", tag, self._data)
        # Another dictionary, as this one may be the user's own.
        self._data = {other: value for other, value in self._data.items() if other != tag}

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        if self is not other:
            raise TypeError(
                f"A {type(self).__name__} cannot be compared with ==: compare the arrays, or jax.tree.structure"
            )
        return True

    def __or__(self, other: Mapping[str, Any]) -> Self:
        """Take the tags of both; those of `other` replace those of this one, with their steps and masks."""
        if not isinstance(other, Mapping):
            return NotImplemented
        new = other if isinstance(other, type(self)) else type(self)(other)  # type: ignore[call-arg]
        return self._of(self._columns().updated(new._columns()))

    @property
    def slice(self) -> Slices:
        """Take some of the entries of every tag, with their steps: `logs.slice[-10:]`, `logs.slice[::100]`."""
        return Slices(lambda where: self._of(self._columns().sliced(where)))

    def filter(self, keep: Callable[..., bool]) -> Self:
        """Return the tags for which `keep(tag, value)`, or `keep(tag)` for a function of one argument, is true."""
        if _takes_value(keep):
            return self._renamed({tag: tag for tag in self._data if keep(tag, self[tag])})
        return self._renamed({tag: tag for tag in self._data if keep(tag)})

    def prefix(self, prefix: str) -> Self:
        """Put a prefix before every tag."""
        return self._renamed({tag: prefix + tag for tag in self._data})

    def _renamed(self, names: Mapping[str, str]) -> Self:
        return self._of(self._columns().renamed(names))

    def to_numpy(self) -> Self:
        """Wait for the device and read everything; only what happened remains.

        PRNG keys become their data, whose axes are the last. Masks remain only where an event happened in some lanes of
        a `vmap` and not in others.

        Raises:
            TypeError: A leaf is traced.
        """
        return self._of(read(self)._columns().only_happened())


def _takes_value(keep: Callable[..., bool]) -> bool:
    """Return whether a function needs the value besides the tag; a second argument with a default is left to it."""
    try:
        inspect.signature(keep).bind("")
    except TypeError:
        return True
    except ValueError:  # a built-in function that does not tell its signature
        return False
    return False


class stepdict(Tagged):
    """One step track: the steps of every tag, events first. A pytree, with the operations of `logdict`."""

    __slots__ = ()

    def __init__(self, leaves: Mapping[str, Any]) -> None:
        self._data = dict(leaves)

    @classmethod
    def _of(cls, columns: EventColumns) -> Self:
        return cls(columns.data)

    def __add__(self, other: Mapping[str, Any]) -> Self:
        """Append the steps of `other`."""
        return self._of(concatenated([self._columns(), stepdict(other)._columns()]))

    def reduce(self, mode: Mode = "last") -> Self:
        """Reduce over the events, as `logdict.reduce` does."""
        return self._of(self._columns().reduced(mode))

    def __repr__(self) -> str:
        return table("stepdict", [(tag, *summary(leaf, None)) for tag, leaf in islice(self.items(), MAX_LINES + 1)])


def _flatten_steps(steps: stepdict) -> tuple[tuple[tuple[Any, Any], ...], tuple[str, ...]]:
    keyed = tuple((jax.tree_util.DictKey(tag), leaf) for tag, leaf in steps.items())
    return keyed, tuple(steps)


def _unflatten_steps(tags: tuple[str, ...], leaves: Sequence[Any]) -> stepdict:
    return stepdict(dict(zip(tags, leaves, strict=True)))


jax.tree_util.register_pytree_with_keys(
    stepdict, _flatten_steps, _unflatten_steps, lambda s: (list(s.values()), tuple(s))
)
