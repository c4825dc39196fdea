"""The keys of Weights & Biases' rows as numbers, found for many items at once.

A key is compared as its bytes: up to four words of 64 bits, by their hash and then one by one. Longer keys, and those
that are seen for the first time, are looked up in a dictionary.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.storage.format.protobuf import walk

from .scalar_events import Indexes
from .wandb_messages import OWN, Path

N_WORDS: Final = 4  # keys of up to 28 characters, beyond which few are
MASKS: Final = np.array([2 ** (8 * n) - 1 for n in range(8)] + [2**64 - 1], np.uint64)
FACTORS: Final = np.random.default_rng(0).integers(0, 2**63, N_WORDS, np.uint64) * np.uint64(2) + np.uint64(1)

OTHER, IGNORED, STEP, TIME = -1, -2, -3, -4
"""The numbers of keys that name no series: of values with a type of W&B's own, of what W&B adds, of step and time."""
ROLES: Final = {"_step": STEP, "_timestamp": TIME}

Words = npt.NDArray[np.uint64]


class RowKeys:
    """Numbers keys as they come.

    Attributes:
        paths: The paths of keys, by their numbers.
        flat: The keys of rows in files of older versions of W&B, which do not nest.
    """

    def __init__(self) -> None:
        """Start without keys."""
        self.paths: list[Path] = []
        self.flat: set[str] = set()
        self._numbers: dict[bytes, int] = {}
        self._table: Words = np.empty((0, N_WORDS), np.uint64)
        self._hashes: Words = np.empty(0, np.uint64)
        self._by_hash: Indexes = np.empty(0, np.int64)

    def find(self, data: bytes, begins: Indexes, ends: Indexes) -> Indexes:
        """Return the number of each key; `data` has at least 32 bytes after the beginning of each."""
        words = _words(data, begins, ends)
        hashes = words @ FACTORS
        numbers = np.zeros(len(begins), np.int64)
        new = np.ones(len(begins), bool)
        if len(self._hashes):
            places = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
            new = (self._table[places] != words).any(axis=1) | (ends - begins > 8 * N_WORDS)
            numbers = self._by_hash[places]
        left = np.flatnonzero(new)
        if len(left):
            keys = [data[a:b] for a, b in zip(begins[left].tolist(), ends[left].tolist(), strict=True)]
            numbers[left] = [self._numbers[key] if key in self._numbers else self._learn(key) for key in keys]
            self._tabulate()
        return numbers

    def _learn(self, key: bytes) -> int:
        """Give a number to the bytes of a key."""
        names = [(number, bytes(name).decode("utf-8", "replace")) for number, _, name in _fields(key)]
        path = tuple(name for _, name in names)
        if names[0][0] == 1:
            self.flat.add(path[0])
        if path[-1] == "_type":
            number = OTHER
        elif path[0].startswith(OWN):
            number = ROLES.get(path[0], IGNORED) if len(path) == 1 else IGNORED
        else:
            number = len(self.paths)
            self.paths.append(path)
        return self._numbers.setdefault(key, number)

    def _tabulate(self) -> None:
        """Sort the short keys by their hashes."""
        short = [key for key in self._numbers if len(key) <= 8 * N_WORDS]
        data = b"".join(key.ljust(8 * N_WORDS, b"\0") for key in short)
        words = np.frombuffer(data, "<u8").reshape(-1, N_WORDS)
        order = np.argsort(words @ FACTORS)
        self._table, self._hashes = words[order], (words @ FACTORS)[order]
        self._by_hash = np.array([self._numbers[key] for key in short], np.int64)[order]


def _words(data: bytes, begins: Indexes, ends: Indexes) -> Words:
    """Return the first bytes of each key as words, with zeros after its end."""
    every = np.ndarray(len(data) - 7, "<u8", data, strides=(1,))
    words = np.zeros((len(begins), N_WORDS), np.uint64)
    sizes = ends - begins
    for i in range(min(N_WORDS, -(-int(sizes.max(initial=0)) // 8))):
        words[:, i] = every[begins + 8 * i] & MASKS[np.clip(sizes - 8 * i, 0, 8)]
    return words


def _fields(message: bytes) -> Iterator[tuple[int, int, Any]]:
    return walk(memoryview(message))
