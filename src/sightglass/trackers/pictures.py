"""Pictures as PyTorch's summaries have them, as those of a run: rows first, channels last."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.values import Value, to_host

Pixels = npt.NDArray[Any]

RED: Final = (255, 0, 0)


def by_rows(picture: Value, axes: str) -> Pixels:
    """Return one or several pictures with the axes (count, height, width, channels), those that it has.

    Args:
        picture: uint8 from 0 to 255, or other numbers from 0 to 1, which become floats.
        axes: What its axes are, such as "CHW".

    Raises:
        ValueError: The axes do not match the array, or are unknown.
    """
    pixels = np.asarray(to_host(picture))
    given = axes.upper()
    if len({*given}) != len(given) or not {"H", "W"} <= {*given} <= {*"NHWC"} or pixels.ndim != len(given):
        raise ValueError(f"Expected axes such as 'CHW' for an array of shape {pixels.shape}, got {axes!r}")
    pixels = pixels.transpose([given.index(axis) for axis in "NHWC" if axis in given])
    return pixels if pixels.dtype == np.uint8 else np.clip(pixels.astype(np.float32), 0.0, 1.0)


def with_boxes(pixels: Pixels, boxes: npt.ArrayLike) -> Pixels:
    """Return a picture with three channels and red boxes.

    Args:
        pixels: Shape (height, width) or (height, width, channels).
        boxes: Shape (n, 4): left, top, right and bottom of each, in pixels; what is outside is cut off.
    """
    shown = pixels[..., np.newaxis] if pixels.ndim == 2 else pixels
    shown = np.repeat(shown, 3, axis=2) if shown.shape[2] == 1 else shown[..., :3].copy()
    red = np.asarray(RED, shown.dtype) if shown.dtype == np.uint8 else np.asarray(RED, np.float32) / 255
    last_row, last_column = shown.shape[0] - 1, shown.shape[1] - 1
    for left, top, right, bottom in np.asarray(boxes, np.float64).reshape(-1, 4).round().astype(int):
        rows = slice(max(0, top), bottom + 1)
        columns = slice(max(0, left), right + 1)
        for row in (top, bottom):
            if 0 <= row <= last_row:
                shown[row, columns] = red
        for column in (left, right):
            if 0 <= column <= last_column:
                shown[rows, column] = red
    return shown


def enlarged(pixels: Pixels, factor: float) -> Pixels:
    """Return a picture enlarged, or reduced, by the nearest pixels."""
    if factor == 1:
        return pixels
    height, width = (max(1, int(n * factor)) for n in pixels.shape[:2])
    rows = np.arange(height) * pixels.shape[0] // height
    columns = np.arange(width) * pixels.shape[1] // width
    chosen: Pixels = pixels[rows[:, np.newaxis], columns]
    return chosen
