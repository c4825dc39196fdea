"""Sort records for tables by the kind of their values.

* Mappings become several tags: {"a": 1} under "loss" is 1 under "loss/a".
* Lists and tuples of numbers are arrays; arrays without a dimension are numbers.
* Real numbers of several types are float64, if that loses nothing.
* Numbers of dtypes that NumPy lacks, such as bfloat16, are float32, which holds each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from sightglass.core.columns import CLOSED, COMPLETE, Columns
from sightglass.core.table import Table
from sightglass.core.values import (
    Audio,
    Figure,
    Histogram,
    Image,
    Images,
    Tensor,
    Text,
    is_extended,
    to_host,
    type_name,
)
from sightglass.storage.foreign.event_encoding import leaves
from sightglass.storage.format import png, wav

Kind = Literal["numbers", "arrays", "histograms", "pictures", "sounds", "tables", "texts"]

EXACT: Final = 2**53  # float64 holds every integer up to this
INT64: Final = range(-(2**63), 2**63)

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]
Refuse = Callable[[str, str], None]
"""Called for each value that tables cannot hold, with its tag and the reason."""


@dataclass(frozen=True, slots=True)
class MediaFiles:
    """The files of the pictures or the sounds of one record.

    Attributes:
        files: The bytes of each file.
        media_types: The type of each, such as "image/png".
        captions: The caption of each; empty if there are no captions.
    """

    files: Sequence[bytes]
    media_types: Sequence[str]
    captions: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TagCells:
    """Records of one tag whose values are of one kind.

    Attributes:
        tag: The tag; that of a value in a mapping has a slash.
        kind: The kind of the values.
        index: Shape (n,), int64: the index of each record in its series.
        steps: Shape (n,), int64 or float64.
        wall_times: Shape (n,), float64, in seconds since the Unix epoch.
        tracks: The further step tracks of each record, or `None`.
        n_events: Shape (n,), int64: how many events each record was made from.
        flags: Shape (n,), uint8; see `Columns`.
        values: Numbers: an array. Arrays: a list of them. Else a list of `Histogram`, `MediaFiles`, `Table` or str.
    """

    tag: str
    kind: Kind
    index: npt.NDArray[np.int64]
    steps: npt.NDArray[np.int64 | np.float64]
    wall_times: npt.NDArray[np.float64]
    tracks: Sequence[Mapping[str, float]] | None
    n_events: npt.NDArray[np.int64]
    flags: npt.NDArray[np.uint8]
    values: Any

    def __len__(self) -> int:
        return len(self.steps)


def cells(tag: str, columns: Columns, refuse: Refuse) -> Iterator[TagCells]:
    """Split records by kind of value."""
    values = columns.values
    if isinstance(values, np.ndarray) and values.dtype.kind in "biufcV" and values.ndim:
        values = widened(values)
        if values.ndim == 1:
            yield _made(tag, "numbers", columns, None, values)
        else:
            yield _made(tag, "arrays", columns, None, list(values))
        return
    found: dict[tuple[str, Kind], tuple[list[int], list[Any]]] = {}
    for row, value in enumerate(values):
        for name, leaf in leaves({tag: value}):
            kind, cell = _cell(leaf)
            if kind is None:
                refuse(name, cell)
                continue
            rows, several = found.setdefault((name, kind), ([], []))
            rows.append(row)
            several.append(cell)
    for (name, kind), (rows, several) in found.items():
        if kind == "numbers":
            yield from _numbers(name, columns, np.array(rows), several)
        else:
            yield _made(name, kind, columns, np.array(rows), several)


def widened(array: Array) -> Array:
    """Return an array in a dtype of NumPy's own that holds all its numbers, little-endian."""
    if is_extended(array.dtype):
        integer = array.dtype.name.lstrip("u").startswith("int")
        return array.astype(np.int8 if integer else np.float32)
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def exact(array: Array) -> bool:
    """Return whether float64 holds every number of an array."""
    if array.dtype.kind in "iu" and array.dtype.itemsize == 8 and len(array):
        return bool(int(array.min()) >= -EXACT and int(array.max()) <= EXACT)
    return array.dtype.kind in "biuf"


def _made(tag: str, kind: Kind, columns: Columns, rows: Rows | None, values: Array | list[Any]) -> TagCells:
    """Select some rows of columns, or all."""
    chosen = slice(None) if rows is None else rows
    n = len(columns)
    tracks = (
        columns.tracks if rows is None or columns.tracks is None else [columns.tracks[row] for row in rows.tolist()]
    )
    n_events = np.ones(n, np.int64) if columns.n_events is None else columns.n_events
    flags = np.full(n, COMPLETE | CLOSED, np.uint8) if columns.flags is None else columns.flags
    return TagCells(
        tag=tag, kind=kind, index=np.arange(columns.index, columns.index + n)[chosen], steps=columns.steps[chosen],
        wall_times=columns.wall_times[chosen], tracks=tracks if tracks and any(tracks) else None,
        n_events=n_events[chosen], flags=flags[chosen], values=values,
    )  # fmt: skip


def _numbers(tag: str, columns: Columns, rows: Rows, values: list[Any]) -> Iterator[TagCells]:
    """Make one array of numbers if that loses nothing, else one for each dtype."""
    kinds = set(map(type, values))
    if len(kinds) > 1 and kinds <= {bool, int, float} and all(abs(v) <= EXACT for v in values if type(v) is int):
        values = [float(value) for value in values]
    by_dtype: dict[np.dtype[Any], list[int]] = {}
    for i, value in enumerate(values):
        by_dtype.setdefault(_dtype(value), []).append(i)
    for dtype, places in by_dtype.items():
        array = widened(np.array([values[i] for i in places], dtype))
        yield _made(tag, "numbers", columns, rows[places], array)


def _dtype(value: object) -> np.dtype[Any]:
    match value:
        case np.generic():
            return value.dtype
        case bool():
            return np.dtype(np.bool_)
        case int() if value in INT64:
            return np.dtype(np.int64)
        case int():
            return np.dtype(np.uint64)
    return np.dtype(type(value))


def _cell(value: object) -> tuple[Kind, Any] | tuple[None, str]:
    """Return the kind of a value and the value, or why tables cannot hold it."""
    value = to_host(value)
    if isinstance(value, Tensor):
        value = np.asarray(to_host(value.value))
    try:
        match value:
            case int() if not -(2**63) <= value < 2**64:  # no column of numbers holds its digits
                return "texts", str(value)
            case bool() | int() | float() | complex():
                return "numbers", value
            case str() | Text():
                return "texts", value if isinstance(value, str) else value.value
            case Histogram():
                return "histograms", value
            case Image() | Images() | Figure():
                return "pictures", _pictures([value])
            case list() | tuple() if value and all(isinstance(item, Figure | Image) for item in value):
                return "pictures", _pictures(value)
            case Audio():
                return "sounds", _sounds([value])
            case Table():
                return "tables", value
            case list() | tuple() if value and all(isinstance(item, Audio) for item in value):
                return "sounds", _sounds(value)
            case list() | tuple():
                value = np.asarray(value)
    except (ValueError, TypeError) as error:
        return None, str(error)
    if isinstance(value, np.ndarray | np.generic) and (value.dtype.kind in "biufc" or is_extended(value.dtype)):
        array = np.asarray(value)
        return ("arrays", widened(array)) if array.ndim else ("numbers", array[()])
    return None, f"{type_name(value)} is not a number, array, histogram, picture, sound, table or text"


def _pictures(values: Sequence[Figure | Image | Images]) -> MediaFiles:
    """Return pictures as files; pixels become PNG.

    Raises:
        ValueError: The shape of the pixels is not that of an image.
    """
    files: list[Figure] = []
    captions: list[str] = []
    for value in values:
        if isinstance(value, Figure):
            files.append(value)
            continue
        several = value.value if isinstance(value, Images) else [value.value]
        files += [Figure(png.encode_png(one)) for one in several]
        captions += [value.caption] if isinstance(value, Image) else value.captions
    captions = captions if any(captions) and len(captions) == len(files) else []
    return MediaFiles([file.data for file in files], [file.media_type for file in files], captions)


def _sounds(values: Sequence[Audio]) -> MediaFiles:
    return MediaFiles([wav.encode_wav(value) for value in values], [wav.MEDIA_TYPE] * len(values), ())
