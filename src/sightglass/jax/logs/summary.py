"""Summaries of what was logged: a line for each leaf.

Nothing is computed on a device: ranges are shown of arrays that are cheap to read, never of tracers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from sightglass.core.values import type_name

from .reduction import fit, is_number

MAX_LINES = 60
MAX_SUMMARISED = 2**20


def table(title: str, rows: Sequence[tuple[str, ...]]) -> str:
    """Put rows of cells under each other; columns that are empty throughout are left out."""
    more = [f"  … and more than {MAX_LINES} lines"] if len(rows) > MAX_LINES else []
    rows = rows[:MAX_LINES]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  " + "  ".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True) if n).rstrip() for row in rows]
    return "\n".join([title, *lines, *more])


def summary(leaf: Any, ok: Any) -> tuple[str, str]:
    """Return the type of a leaf, and the range of its values."""
    if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
        return type_name(leaf), ""
    return f"{leaf.dtype}[{', '.join(map(str, leaf.shape))}]", range_of(leaf, ok)


def range_of(leaf: Any, ok: Any) -> str:
    """Show the smallest and the largest number, if they can be read at a small cost."""
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


def _readable(leaf: Any) -> bool:
    if isinstance(leaf, np.ndarray):
        return leaf.size <= MAX_SUMMARISED
    if isinstance(leaf, jax.core.Tracer) or not isinstance(leaf, jax.Array) or not is_number(leaf.dtype):
        return False
    return leaf.size <= MAX_SUMMARISED and leaf.is_fully_addressable and not leaf.is_deleted()


def notes(ok: Any, n_dropped: Any) -> list[str]:
    """Say how many events happened, and how many were dropped."""
    said = []
    if ok is not None:
        said.append(f"{int(np.asarray(ok).sum())} of {ok.size} happened" if _readable(ok) else "masked")
    if n_dropped is not None and (isinstance(n_dropped, int | np.generic) or _readable(n_dropped)):
        said.append(f"{int(np.max(n_dropped))} dropped")
    return said
