"""Pictures, sounds, videos and tables, as people give them to W&B, as the values of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from sightglass.core.errors import warn
from sightglass.core.table import CELLS, Table
from sightglass.core.values import Audio, Figure, Image, Images, Value, array_kind, type_name
from sightglass.storage.format.wav import decode_wav
from sightglass.views.frames import encode_figures, is_pillow, pixels_at, pixels_of

from .summaries import by_rows

COLUMNS: Final = ("Input", "Output", "Expected")  # W&B's, of a table whose columns have no names


def per_item(what: str, items: object, each: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return the settings of each item, from lists with an item for each.

    Raises:
        TypeError: The items are not a list.
        ValueError: A list of settings has another length.
    """
    if not isinstance(items, list):
        raise TypeError(f"Expected a list as {what}, got {type_name(items)}")
    for name, settings in each.items():
        if len(settings) != len(items):
            raise ValueError(f"Expected a {name} for each of {len(items)} {what}, got {len(settings)}")
    return [{name: settings[i] for name, settings in each.items()} for i in range(len(items))]


def images(pictures: Sequence[Any], settings: Sequence[Mapping[str, Any]] = ()) -> Value:
    """Return pictures as a value to log: `Images` if they have one size, else one for each number.

    Args:
        pictures: Tensors of PyTorch with shape (channels, height, width) or (height, width); other arrays with shape
            (height, width) or (height, width, channels); images of Pillow; figures of Matplotlib; or paths. Floats are
            from 0 to 1, or from 0 to 255.
        settings: Of each, with its `caption`.
    """
    captions = [str(one.get("caption") or "") for one in settings] or [""] * len(pictures)
    return together([image(one, caption) for one, caption in zip(pictures, captions, strict=True)])


def together(pictures: Sequence[Value]) -> Value:
    """Return pictures of one size as `Images`, others, and any other values, by their numbers."""
    plain = [one for one in pictures if isinstance(one, Image)]
    if len(plain) == len(pictures) and len({(one.value.shape, one.value.dtype) for one in plain}) == 1:
        captions = tuple(one.caption for one in plain)
        return Images(np.stack([one.value for one in plain]), captions=captions if any(captions) else ())
    return {str(i): one for i, one in enumerate(pictures)}


def image(picture: Any, caption: str = "") -> Image | Figure:
    """Return a picture as a value; see `images`."""
    if isinstance(picture, Image | Figure):
        return picture
    if isinstance(picture, str | os.PathLike):
        return Image(pixels_at(picture), caption)
    if is_pillow(picture) and (pixels := pixels_of(picture)) is not None:
        return Image(pixels, caption)
    kind = array_kind(picture)
    if kind is None:
        drawn = encode_figures({"": picture})[""]
        return drawn if isinstance(drawn, Image | Figure) else Image(np.asarray(drawn), caption)
    axes = "HW" if picture.ndim == 2 else "CHW" if kind == "torch" else "HWC"
    if picture.ndim > 1 and not str(picture.dtype).removeprefix("torch.").startswith("uint8") and picture.max() > 1:
        picture = picture / 255
    return Image(by_rows(picture, axes), caption)


def sounds(given: Sequence[Any], settings: Sequence[Mapping[str, Any]]) -> Value:
    """Return sounds as a value to log: one as `Audio`; several, or one with a caption, as a table.

    Args:
        given: Arrays of shape (n,) or (n, channels), or paths of WAV files.
        settings: Of each: `sample_rate`, which arrays need, and `caption`.

    Raises:
        ValueError: An array has no sample rate.
    """
    read = [_sound(one, setting.get("sample_rate")) for one, setting in zip(given, settings, strict=True)]
    captions = [setting.get("caption") for setting in settings]
    if len(read) == 1 and not captions[0]:
        return read[0]
    return Table({"audio": read, **({"caption": captions} if any(captions) else {})})


def _sound(given: Any, rate: int | None) -> Audio:
    if isinstance(given, Audio):
        return given
    if isinstance(given, str | os.PathLike):
        return decode_wav(Path(given).read_bytes())
    if rate is None:
        raise ValueError("Expected a sample_rate for each sound that is an array")
    return Audio(given if array_kind(given) is not None else np.asarray(given), rate)


def videos(given: Sequence[Any], settings: Sequence[Mapping[str, Any]]) -> Value:
    """Return the frames of videos as a value to log, `None` without any; files are left out, with a warning.

    Args:
        given: Arrays of shape (frames, channels, height, width), uint8.
        settings: Of each: `caption`.
    """
    frames: list[Images] = []
    for one, setting in zip(given, settings, strict=True):
        if isinstance(one, str | os.PathLike):
            warn(f"A run has no value type for video files: {os.fspath(one)!r} is left out")
        else:
            caption = str(setting.get("caption") or "")
            pixels = by_rows(one, "NCHW")
            frames.append(Images(pixels, captions=(caption,) * len(pixels) if caption else ()))
    return frames[0] if len(frames) == 1 else {str(i): one for i, one in enumerate(frames)} or None


def table(columns: Sequence[Any] | None, rows: Sequence[Sequence[Any]] | None, dataframe: Any = None) -> Table:
    """Return a table from rows or a data frame; what a cell cannot hold is its text.

    Raises:
        ValueError: A row has not as many items as there are columns.
    """
    if dataframe is not None:
        return Table(dataframe)
    names = [str(name) for name in (COLUMNS if columns is None else columns)]
    for row in rows or ():
        if len(row) != len(names):
            raise ValueError(f"Expected {len(names)} items in each row, got {len(row)}: {row!r:.200}")
    return Table({name: _column([row[i] for row in rows or ()]) for i, name in enumerate(names)})


def _column(cells: list[Any]) -> Value:
    if len({*map(type, cells)} - {type(None)}) > 1:  # numbers of NumPy among others are an array of Python's
        cells = [cell.item() if isinstance(cell, np.generic) else cell for cell in cells]
    try:
        return Table({"": cells}).value[""]
    except (TypeError, ValueError):
        return [_cell(cell) for cell in cells]


def _cell(cell: Any) -> Any:
    if isinstance(cell, CELLS):
        return cell
    if is_pillow(cell):
        return image(cell)
    item = cell.item() if array_kind(cell) is not None and not cell.shape else cell
    return item if isinstance(item, CELLS) else str(item)
