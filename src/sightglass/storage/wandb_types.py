"""Values as W&B's own types."""

from __future__ import annotations

import base64
import io
import json
import math
import os
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from datetime import UTC
from itertools import chain
from typing import Any, Final

import numpy as np

from sightglass.core import plotly_json
from sightglass.core.audio import Audio
from sightglass.core.errors import MissingExtraError, UnsendableError
from sightglass.core.table import Table, column_type
from sightglass.core.values import Figure, Histogram, Image, Images, Tensor, Text, Value, is_extended, is_real, to_host
from sightglass.storage.format import wav
from sightglass.storage.format.png import encode_png

MAX_BINS: Final = 512  # W&B's own limit


def load() -> Any:
    """Import the package.

    Raises:
        MissingExtraError: `wandb` is not installed.
    """
    try:
        import wandb
    except ImportError:
        raise MissingExtraError("wandb", extra="wandb", purpose="Logging to Weights & Biases") from None
    return wandb


def number(value: Any) -> int | float:
    """Return a real number of any library as a Python number.

    Raises:
        UnsendableError: `value` is not a real number.
    """
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, int):
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        raise UnsendableError(f"Expected a real number, got {type(value).__name__}") from None


def encode(value: object) -> Any:
    """Convert a value to W&B's own type.

    Raises:
        UnsendableError: W&B has no such type.
        ValueError: The shape or dtype is not that of an image.
        OSError: The temporary file of a sound cannot be written.
    """
    value = to_host(value)
    match value:
        case str():
            return value
        case Text():
            return value.value
        case Tensor():
            return encode(value.value)
        case Histogram():
            return _histogram(value)
        case Image():
            return _image(encode_png(value.value), value.caption)
        case Images():
            captions = value.captions or ("",) * len(value.value)
            return [_image(encode_png(one), caption) for one, caption in zip(value.value, captions, strict=True)]
        case Figure(media_type=plotly_json.MEDIA_TYPE):
            return _plotly(value.data)
        case Figure():
            return _image(value.data, "")
        case Audio():
            return _audio(value)
        case Table():
            return _table(value)
        case list() | tuple() if value and all(isinstance(item, Audio) for item in value):
            return _table(Table({"audio": list(value)}))  # W&B needs `soundfile` for several sounds
        case list() | tuple():
            return [encode(item) for item in value]
        case np.ndarray() if value.ndim and is_real(value.dtype):
            return _histogram(Histogram(value))
        case np.ndarray():
            raise UnsendableError(f"W&B does not support arrays of {value.dtype}")
        case None:
            return None
    return number(value)


def _histogram(value: Histogram) -> Any:
    counts, edges = value.counts, value.edges
    together = math.ceil(len(counts) / MAX_BINS)  # as few as fit
    if together > 1:
        starts = np.arange(0, len(counts), together)
        counts, edges = np.add.reduceat(counts, starts), np.append(edges[starts], edges[-1])
    return load().Histogram(np_histogram=(counts.tolist(), edges.tolist()))


def _image(data: bytes, caption: str) -> Any:
    try:
        from PIL import Image as pillow
    except ImportError:
        raise MissingExtraError("pillow", extra="wandb", purpose="Logging images to Weights & Biases") from None
    with pillow.open(io.BytesIO(data)) as image:
        return load().Image(image, caption=caption or None)


def _plotly(data: bytes) -> Any:
    """Return a figure of Plotly; its arrays become lists, as in all that W&B writes.

    Raises:
        UnsendableError: The installed version of Plotly does not know such a figure.
    """
    try:
        import plotly.graph_objects
    except ImportError:
        raise MissingExtraError("plotly", extra="plot", purpose="Logging Plotly's figures to W&B") from None
    try:
        figure = plotly.graph_objects.Figure(_with_lists(json.loads(data)))
    except (ValueError, TypeError, RecursionError) as error:
        raise UnsendableError(f"Expected a figure of Plotly: {error!s:.200}") from None
    return load().Plotly(figure)


def _with_lists(value: Any) -> Any:
    """Return the JSON of a figure with a list in place of each array, which Plotly writes as base64."""
    match value:
        case {"bdata": str(data), "dtype": str(dtype)}:
            array = np.frombuffer(base64.b64decode(data), np.dtype(dtype).newbyteorder("<"))
            shape = [int(n) for n in str(value.get("shape", array.size)).split(",")]
            return array.reshape(shape).tolist()
        case dict():
            return {name: _with_lists(one) for name, one in value.items()}
        case list():
            return [_with_lists(one) for one in value]
    return value


def _audio(value: Audio) -> Any:
    """Return a sound, whose temporary file `forget_files` removes: W&B copies it when the row is logged.

    W&B takes samples, too, but needs the package `soundfile` for them.
    """
    descriptor, path = tempfile.mkstemp(".wav", "sightglass-")
    try:
        with open(descriptor, "wb") as file:
            file.write(wav.encode_wav(value))
        audio = load().Audio(path)
    except BaseException:
        os.unlink(path)
        raise
    audio.forget_file = weakref.finalize(audio, os.unlink, path)
    return audio


def forget_files(row: Mapping[str, Any]) -> None:
    """Remove the temporary files of the sounds in a row that W&B has taken; W&B keeps the objects themselves."""
    table = load().Table
    for value in row.values():
        for cell in chain.from_iterable(value.data) if isinstance(value, table) else (value,):
            getattr(cell, "forget_file", lambda: None)()


def _table(value: Table) -> Any:
    """Return a table; times are in UTC, durations in seconds.

    Raises:
        UnsendableError: W&B would cut it.
    """
    wandb = load()
    if len(value) > wandb.Table.MAX_ARTIFACT_ROWS:
        raise UnsendableError(f"W&B keeps {wandb.Table.MAX_ARTIFACT_ROWS:,} rows of a table, got {len(value):,}")
    mixed = any(column_type(column) == "mixed" for column in value.value.values())
    rows = [list(row) for row in zip(*map(_cells, value.value.values()), strict=True)]
    return wandb.Table(columns=list(value.value), data=rows, allow_mixed_types=mixed)


def _cells(column: Value) -> Sequence[Any]:
    if isinstance(column, list):
        return [encode(item) for item in column]
    array = np.asarray(to_host(column))
    if array.dtype.kind == "M":
        times = array.astype("M8[us]").tolist()
        return [None if time is None else time.replace(tzinfo=UTC) for time in times]
    if array.dtype.kind == "m":
        array = np.where(np.isnat(array), np.nan, array / np.timedelta64(1, "s"))
    listed: Sequence[Any] = (array.astype(np.float32) if is_extended(array.dtype) else array).tolist()
    return listed
