"""Pictures, sounds, videos and tables, as people give them to W&B, as the values of a run."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sightglass.core.errors import warn
from sightglass.core.table import Table
from sightglass.core.values import Audio, Image, Images, Value, type_name

from .summaries import by_rows
from .wandb_values import WandbAudio, WandbImage, WandbTable


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
        pictures: What `WandbImage` takes: tensors of PyTorch with shape (channels, height, width) or (height, width);
            other arrays with shape (height, width) or (height, width, channels); images of Pillow; figures of
            Matplotlib; or paths.
        settings: Of each, with its `caption`.
    """
    each = settings or [{}] * len(pictures)
    return together(
        [WandbImage(one, caption=setting.get("caption")).kept for one, setting in zip(pictures, each, strict=True)]
    )


def together(pictures: Sequence[Value]) -> Value:
    """Return pictures of one size as `Images`, others, and any other values, by their numbers."""
    plain = [one for one in pictures if isinstance(one, Image)]
    if len(plain) == len(pictures) and len({(one.value.shape, one.value.dtype) for one in plain}) == 1:
        captions = tuple(one.caption for one in plain)
        return Images(np.stack([one.value for one in plain]), captions=captions if any(captions) else ())
    return {str(i): one for i, one in enumerate(pictures)}


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
    if rate is None and not isinstance(given, str | os.PathLike):
        raise ValueError("Expected a sample_rate for each sound that is an array")
    return WandbAudio(given, rate).kept  # type: ignore[no-any-return]


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


def table(columns: Sequence[Any] | None, rows: Any, dataframe: Any = None) -> Table:
    """Return a table from rows or a data frame; see `WandbTable`.

    Raises:
        ValueError: A row has not as many items as there are columns.
    """
    return Table(dataframe) if dataframe is not None else WandbTable(columns, rows).kept
