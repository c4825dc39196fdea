"""How the event files of other programs change what is written to them."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import numpy.typing as npt

from sightglass.core.values import Histogram, Tensor

from . import mindspore, tensorboard
from .event_format import EventFormat

MAX_INTEGER: Final = 2**24  # float32 has every integer up to here; the next one becomes this one
INT64: Final = 2.0**63
LAST: Final = INT64 - 1024  # the greatest float64 below it


def cut(step: float) -> float:
    """Return the nearest step that an event can have; 0 for NaN."""
    return 0 if math.isnan(step) else max(-INT64, min(step, LAST))


def changes(value: object, format: EventFormat, *, step: float) -> list[str]:
    """Return how an event of a format differs from a value at a step; one text for each way."""
    found = []
    if not (math.isfinite(step) and step == int(step) and -INT64 <= step < INT64):
        found.append("steps that are not 64-bit integers were cut to such")
    if isinstance(value, Histogram) and format is tensorboard and value.n_nan + value.n_posinf + value.n_neginf:
        found.append("TensorBoard's histograms do not count the samples that were not finite")
    array = value.value if isinstance(value, Tensor) else value
    if isinstance(array, bool | int | float) or (format is mindspore and isinstance(array, np.ndarray)):
        found += _as_float32(np.asarray(array))
    return found


def _as_float32(array: npt.NDArray[np.generic]) -> list[str]:
    """Return how numbers change when they become float32."""
    if array.dtype.kind not in "iufO" or (array.dtype.kind == "f" and array.itemsize <= 4):
        return []
    array = array[array == array]  # noqa: PLR0124  NaN stays what it is
    with np.errstate(over="ignore"):
        narrow = array.astype(np.float32)
    beyond = np.isinf(narrow) & (array != narrow)
    found = ["numbers beyond float32 became infinite"] if beyond.any() else []
    kept = ~beyond & (np.abs(narrow) >= MAX_INTEGER if array.dtype.kind in "iuO" else True)
    # As Python's numbers, because int64 and float32 are compared as float64.
    if any(before != after for before, after in zip(array[kept].tolist(), narrow[kept].tolist(), strict=True)):
        found.append("numbers were rounded to float32")
    return found
