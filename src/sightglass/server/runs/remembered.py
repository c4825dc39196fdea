"""Answers that were computed once, and are the same as long as the run's files are."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from sightglass.core.unpatched import threading

T = TypeVar("T")


class Remembered(Generic[T]):
    """The answers that were asked for last; any thread may ask."""

    def __init__(self, n: int) -> None:
        """Remember nothing yet.

        Args:
            n: How many answers to remember.
        """
        self._n = n
        self._answers: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the answer to a key, computed without holding up those who ask for others."""
        with self._lock:
            if key in self._answers:
                self._answers.move_to_end(key)
                return self._answers[key]
        answer = compute()
        with self._lock:
            self._answers[key] = answer
            while len(self._answers) > self._n:
                self._answers.popitem(last=False)
        return answer
