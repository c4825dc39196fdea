"""Series of numbers: what an overview reads, and values as numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from sightglass.core.columns import Columns
from sightglass.core.values import is_real
from sightglass.server.http_errors import Problem
from sightglass.storage.format.block import Key
from sightglass.storage.format.totals import real_of


class NumberSeries(Protocol):
    """What an overview reads: a recorded series, or one that is computed."""

    @property
    def key(self) -> Key:
        """What identifies it."""

    @property
    def tag(self) -> str:
        """Its name."""

    @property
    def restarts(self) -> tuple[int, ...]:
        """The rows at which the run, restarted, continues."""

    def __len__(self) -> int: ...

    def blocks(self, start: int = 0, stop: int | None = None, /) -> Iterator[Columns]:
        """Read rows block after block."""


def numbers(tag: str, values: npt.NDArray[Any] | Sequence[object]) -> npt.NDArray[Any]:
    """Return values as a column of numbers, with NaN for values that are not numbers.

    Raises:
        Problem: None of them is a number.
    """
    found, n_numbers = count_numbers(values)
    if len(found) and not n_numbers:
        raise no_numbers(tag, values)
    return found


def count_numbers(values: npt.NDArray[Any] | Sequence[object]) -> tuple[npt.NDArray[Any], int]:
    """Return values as a column of numbers, and how many of the values are numbers or `None`."""
    if isinstance(values, np.ndarray) and values.ndim == 1 and is_real(values.dtype):
        return values, len(values)
    found = np.full(len(values), np.nan)
    n_numbers = 0
    for i, value in enumerate(values):
        number = real_of(value.item() if isinstance(value, np.ndarray) and value.ndim == 0 else value)
        found[i] = math.nan if number is None else number
        n_numbers += number is not None or value is None
    return found, n_numbers


def no_numbers(tag: str, values: npt.NDArray[Any] | Sequence[object]) -> Problem:
    """Return the problem of values none of which is a number."""
    return Problem(422, "QueryError", f"Expected numbers under {tag!r}, got {type(values[0]).__name__}")
