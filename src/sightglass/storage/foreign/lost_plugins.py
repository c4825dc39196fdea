"""What a tensor of TensorBoard is where a damaged record may have been the one that said so.

Only the first value of a tag has to name the plugin, which says what the tag's tensors mean. Where that record is lost,
a histogram looks like an array of three columns. What is certain from the content is recovered; what could be either is
refused. Sources, of TensorBoard 2.21: `plugins/histogram/summary_v2.py`, `plugins/pr_curve/summary.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.errors import WireError
from sightglass.storage.format import png

from .event_format import from_buckets
from .tensorboard_charts import PR_CURVES, ROWS

LOST: Final = "lost"
"""Stands for the plugin of a tag whose first value may be lost."""


def plugin_of_strings(strings: Sequence[memoryview]) -> str:
    """Return the plugin of a tensor of strings: sizes and pictures are images, WAV files sounds, others texts."""
    if len(strings) > 2 and all(bytes(size).isdigit() for size in strings[:2]) and png.picture(strings[2]):
        return "images"
    return "audio" if strings and bytes(strings[0][:4]) == b"RIFF" else "text"


def plugin_of_array(rows: npt.NDArray[Any]) -> str:
    """Return the plugin of an array, "" if it is certainly no more than an array.

    Raises:
        WireError: It could be an array as well as what a plugin shows.
    """
    for name, (possible, certain) in {"histograms": _as_histogram(rows), PR_CURVES: _as_curve(rows)}.items():
        if certain:
            return name
        if possible:
            raise WireError(
                f"an array of shape {rows.shape}, or a value of the plugin {name!r}: "
                "an earlier record that says which may be damaged"
            )
    return ""


def _as_histogram(rows: npt.NDArray[Any]) -> tuple[bool, bool]:
    """Return whether rows of left, right and count can be a histogram, and whether they are."""
    if rows.ndim != 2 or rows.shape[1] != 3 or rows.dtype.kind != "f":
        return False, False
    left, right, count = rows.T
    try:
        from_buckets(left, right, count)
    except WireError:
        return False, False
    whole = bool((count == np.rint(count)).all())
    return whole, whole and len(rows) > 1 and bool((right[:-1] == left[1:]).all()) and bool(count.any())


def _as_curve(rows: npt.NDArray[Any]) -> tuple[bool, bool]:
    """Return whether rows can be those of a precision-recall curve, and whether they are."""
    if rows.ndim != 2 or len(rows) != len(ROWS) or rows.dtype.kind != "f":
        return False, False
    possible = bool((rows >= 0).all() and (rows[4:] <= 1).all())
    found, wrong, right, missed = rows[:4]
    constant = all(np.ptp(total) <= 1e-5 * total.max() for total in (found + missed, wrong + right) if total.size)
    falling = bool((np.diff(found) <= 0).all() and (np.diff(wrong) <= 0).all())
    return possible, possible and constant and falling and rows.shape[1] > 1 and bool(found.any() or wrong.any())
