"""Read parts of arrays from a file without reading the rest.

This takes the memory of the part and of one piece of `PIECE_BYTES`. Contiguous bytes are read at once into their place;
scattered ones are picked from pieces; those that lie far apart are read one by one.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.errors import DamagedError
from sightglass.storage.format.framing import RandomAccessFile

from .slices import Resolved

Array = npt.NDArray[Any]

PIECE_BYTES: Final = 2**20
FAR_BYTES: Final = 2**15  # copying that many bytes takes about as long as another read call


def read(file: RandomAccessFile, offset: int, dtype: np.dtype[Any], shape: tuple[int, ...], index: Resolved) -> Array:
    """Read a part of an array that lies in a file in C order.

    Args:
        file: The file.
        offset: The offset of the array, in bytes.
        dtype: Its dtype.
        shape: Its shape.
        index: The part, as `slices.resolve` returns it.

    Raises:
        DamagedError: The file ends before the array does.
    """
    places = [range(n)[i] if isinstance(i, slice) else range(i, i + 1) for i, n in zip(index, shape, strict=True)]
    part = np.empty(tuple(map(len, places)), dtype)
    if part.size:
        _Reader(file, dtype, shape, places).read(offset, 0, part)
    return part.reshape([len(place) for place, i in zip(places, index, strict=True) if isinstance(i, slice)])


class _Reader:
    def __init__(
        self, file: RandomAccessFile, dtype: np.dtype[Any], shape: tuple[int, ...], places: list[range]
    ) -> None:
        self._file = file
        self._dtype = dtype
        self._shape = shape
        self._places = places
        self._strides = [math.prod(shape[i + 1 :]) * dtype.itemsize for i in range(len(shape))]
        self._whole = [place == range(n) for place, n in zip(places, shape, strict=True)]

    def read(self, offset: int, level: int, part: Array) -> None:
        """Read the selected part of the dimensions from `level` on, of the subarray at an offset."""
        if all(self._whole[level + 1 :]) and (level == len(self._shape) or self._places[level].step == 1):
            start = self._places[level].start * self._strides[level] if level < len(self._shape) else 0
            self._fill(offset + start, part)
            return
        place, stride = self._places[level], self._strides[level]
        apart = abs(place.step) * stride
        if stride > FAR_BYTES or (level + 1 == len(self._shape) and apart > FAR_BYTES):
            for i, at in enumerate(place):
                self.read(offset + at * stride, level + 1, part[i, ...])
            return
        n = max(1, PIECE_BYTES // apart)
        for i in range(0, len(place), n):
            self._pick(offset, level, place[i : i + n], part[i : i + n])

    def _pick(self, offset: int, level: int, place: range, part: Array) -> None:
        """Read a piece that holds some indices of a dimension, and pick them from it."""
        low, high = min(place[0], place[-1]), max(place[0], place[-1])
        piece = np.empty((high - low + 1, *self._shape[level + 1 :]), self._dtype)
        self._fill(offset + low * self._strides[level], piece)
        near = range(place.start - low, place.stop - low, place.step)
        part[...] = piece[tuple(_slice(r) for r in (near, *self._places[level + 1 :]))]

    def _fill(self, offset: int, part: Array) -> None:
        view = part.reshape(-1).view(np.uint8).data
        if self._file.readinto(offset, view) < len(view):
            raise DamagedError(f"{self._file.path}: the file ends before {offset + len(view)}")


def _slice(place: range) -> slice:
    return slice(place.start, place.stop if place.stop >= 0 else None, place.step)
