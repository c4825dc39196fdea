"""Export the records of a stream as NumPy arrays or as a data frame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sightglass.core.columns import Columns
from sightglass.core.errors import MissingExtraError

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrays:
    """The records of a stream as arrays; the first axis has one entry per record.

    Attributes:
        steps: The training steps, of shape (n_records,).
        wall_times: In seconds since the Unix epoch, float64, of shape (n_records,).
        values: Of shape (n_records, …) where the values are numbers or arrays of one shape, else an object array of
            shape (n_records,).
        tracks: The other step tracks by name, float64 of shape (n_records,), NaN where a record has none.
    """

    steps: npt.NDArray[np.generic]
    wall_times: npt.NDArray[np.float64]
    values: npt.NDArray[Any]
    tracks: Mapping[str, npt.NDArray[np.float64]]


def to_arrays(columns: Columns) -> Arrays:
    """Return columns as arrays."""
    tracks = columns.tracks or [{}] * len(columns)
    names = sorted({name for track in tracks for name in track})
    return Arrays(
        steps=np.asarray(columns.steps, None if len(columns) else np.float64),
        wall_times=columns.wall_times,
        values=_values(columns.values),
        tracks={name: np.asarray([track.get(name, np.nan) for track in tracks], float) for name in names},
    )


def to_polars(arrays: Arrays) -> polars.DataFrame:
    """Return arrays as a data frame with the columns step, wall_time, value and the tracks.

    Raises:
        MissingExtraError: Polars is not installed.
    """
    try:
        import polars
    except ImportError:
        raise MissingExtraError("polars", extra="export", purpose="Stream.to_polars") from None
    values = arrays.values.tolist() if arrays.values.ndim > 1 or arrays.values.dtype == object else arrays.values
    return polars.DataFrame({"step": arrays.steps, "wall_time": arrays.wall_times, "value": values, **arrays.tracks})


def _values(values: Sequence[Any] | npt.NDArray[Any]) -> npt.NDArray[Any]:
    if isinstance(values, np.ndarray):
        return values
    shapes = {
        getattr(value, "shape", ()) if isinstance(value, bool | int | float | np.generic | np.ndarray) else None
        for value in values
    }
    if len(shapes) == 1 and None not in shapes:
        return np.asarray(values)
    array = np.empty(len(values), object)
    for i, value in enumerate(values):  # one assignment would make a matrix of sequences of one length
        array[i] = value
    return array
