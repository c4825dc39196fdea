"""Summaries of logs: a line for each leaf.

Nothing is computed on a device: ranges are shown only of arrays that are cheap to read, never of tracers.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from sightglass.core.values import type_name
from sightglass.jax.pytree import Array

from .reduction import fit, is_number

# About one screen.
MAX_LINES = 60
# A repr must not take noticeable time, and a million numbers take some milliseconds.
MAX_SUMMARISED = 2**20


def table(title: str, rows: Sequence[tuple[str, ...]]) -> str:
    """Align rows of cells; empty columns are omitted."""
    more = [f"  … and more than {MAX_LINES} lines"] if len(rows) > MAX_LINES else []
    rows = rows[:MAX_LINES]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  " + "  ".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True) if n).rstrip() for row in rows]
    return "\n".join([title, *lines, *more])


def summary(leaf: object, ok: Array | None) -> tuple[str, str]:
    """Return the type of a leaf and the range of its values."""
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        return type_name(leaf), ""
    return f"{leaf.dtype}[{', '.join(map(str, leaf.shape))}]", range_of(leaf, ok)


def range_of(leaf: object, ok: Array | None) -> str:
    """Return the smallest and the largest number as text, if they are cheap to read."""
    if not _readable(leaf) or not (ok is None or _readable(ok)):
        return ""
    x = np.asarray(leaf)
    if ok is not None:
        x = x[np.broadcast_to(fit(np.asarray(ok), x), x.shape)]
    if x.dtype == bool:
        return f"{int(x.sum())} of {x.size} true" if x.size else ""
    x = x.astype(np.complex128 if x.dtype.kind == "c" else np.float64 if x.dtype.kind not in "iu" else x.dtype)
    missing = np.isnan(x)
    x = x[~missing]
    if np.iscomplexobj(x) or not x.size:
        return f"{missing.sum()} NaN" if missing.any() else ""
    low, high = (f"{end:.4g}" if x.dtype.kind == "f" else str(end) for end in (x.min(), x.max()))
    return (low if low == high else f"{low} … {high}") + (f", {missing.sum()} NaN" if missing.any() else "")


def _readable(leaf: object) -> bool:
    if isinstance(leaf, np.ndarray):
        return leaf.size <= MAX_SUMMARISED
    if isinstance(leaf, jax.core.Tracer) or not isinstance(leaf, jax.Array) or not is_number(leaf.dtype):
        return False
    return leaf.size <= MAX_SUMMARISED and leaf.is_fully_addressable and not leaf.is_deleted()


def notes(ok: Array | None, n_dropped: Array | int | None) -> list[str]:
    """Return how many events happened and how many were dropped, as text."""
    found = []
    if ok is not None:
        found.append(f"{int(np.asarray(ok).sum())} of {ok.size} happened" if _readable(ok) else "masked")
    if n_dropped is not None and (isinstance(n_dropped, int | np.generic) or _readable(n_dropped)):
        found.append(f"{int(np.max(n_dropped))} dropped")
    return found
