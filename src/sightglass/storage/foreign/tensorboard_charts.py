"""What TensorBoard's plugins draw besides one value at a time: precision-recall curves, and charts of several tags.

Sources, of TensorBoard 2.21: `plugins/pr_curve/summary.py` for the rows of a curve's tensor, `plugins/custom_scalar/
layout.proto` for `Layout`, `Category`, `Chart`, `MultilineChartContent` and `MarginChartContent`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.errors import UnsendableError, WireError
from sightglass.core.table import Table
from sightglass.core.values import is_real
from sightglass.storage.format.summary import messages, text

PR_CURVES, CUSTOM_SCALARS = "pr_curves", "custom_scalars"
COUNTS: Final = ("true_positives", "false_positives", "true_negatives", "false_negatives")
ROWS: Final = (*COUNTS, "precision", "recall")
"""The rows of a curve's tensor."""

MAX_CHARTS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartLayout:
    """A chart of several tags, as the program that wrote the file wants it.

    Attributes:
        category: The group of charts in which it stands.
        title: Its title.
        tags: Its tags, in which `.*` stands for any text; of a margin chart the values and their bounds.
    """

    category: str
    title: str
    tags: tuple[str, ...]


def curve_of(rows: npt.NDArray[Any]) -> Table:
    """Return a precision-recall curve as a table: a row for each threshold, evenly spaced from 0 to 1.

    Args:
        rows: Shape (6, n_thresholds), see `ROWS`.

    Raises:
        WireError: It has another shape or dtype.
    """
    if rows.ndim != 2 or len(rows) != len(ROWS) or rows.dtype.kind not in "iuf":
        raise WireError(f"Expected the 6 rows of a precision-recall curve, got {rows.dtype} of shape {rows.shape}")
    return Table({"threshold": np.linspace(0, 1, rows.shape[1]), **dict(zip(ROWS, rows, strict=True))})


def rows_of(curve: Table) -> npt.NDArray[Any]:
    """Return the rows of a precision-recall curve, of shape (6, n_thresholds); the reverse of `curve_of`.

    Raises:
        UnsendableError: The table is not one.
    """
    columns = curve.value
    numeric = all(isinstance(column, np.ndarray) and is_real(column.dtype) for column in columns.values())
    if [*columns] != ["threshold", *ROWS] or not numeric:
        raise UnsendableError(
            f"TensorBoard event files support tables of precision-recall curves only, got {curve!r:.200}"
        )
    if not np.allclose(columns["threshold"], np.linspace(0, 1, len(curve)), rtol=0):
        raise UnsendableError(
            "TensorBoard draws precision-recall curves at thresholds that are evenly spaced from 0 to 1"
        )
    return np.stack([columns[name] for name in ROWS])


def layout_of(message: memoryview) -> list[ChartLayout]:
    """Return the charts of a `Layout`, without those that name no tag.

    Raises:
        WireError: The bytes are not a `Layout`.
    """
    found = list[ChartLayout]()
    for category in messages(message, 2):
        name = _text(category, 1)
        for chart in messages(category, 2):
            tags = tuple(dict.fromkeys(_tags(chart)))
            if tags and len(found) < MAX_CHARTS:
                found.append(ChartLayout(category=name, title=_text(chart, 1) or tags[0], tags=tags))
    return found


def _tags(chart: memoryview) -> Iterator[str]:
    for lines in messages(chart, 2):
        yield from map(text, messages(lines, 1))
    for margins in messages(chart, 3):
        for series in messages(margins, 1):
            yield from (name for number in (1, 2, 3) if (name := _text(series, number)))


def _text(message: memoryview, number: int) -> str:
    return "".join(map(text, messages(message, number)))
