"""Lists of images, as `sample(k)` and `top(k)` return them, as one grid of images with captions.

An item is an image (or an array of an image's shape), or a tuple of an image and its caption's parts:
`on("batch").map(lambda b: (b.x[0], b.label[0], b.loss)).top(9, key=lambda one: one[2])`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from sightglass.core.record import Record
from sightglass.core.values import Image, Images, Text, Value, array_kind, to_host

from .scales import number

MAX_IMAGES: Final = 1024  # more than any screen can show side by side


def is_grid(value: object) -> bool:
    """Return whether a list holds images of one size, judging by types and shapes."""
    if not isinstance(value, list) or not 0 < len(value) <= MAX_IMAGES:
        return False
    shapes = {shape_of(item) for item in value}
    return len(shapes) == 1 and None not in shapes


def shape_of(item: Value) -> tuple[int, ...] | None:
    """Return the shape of an item's image, (height, width) or (height, width, channels), or `None`."""
    if isinstance(item, tuple) and item:
        return shape_of(item[0]) if all(isinstance(part, str | Text) or _is_scalar(part) for part in item[1:]) else None
    array = item.value if isinstance(item, Image) else item
    if array_kind(array) is None:
        return None
    shape = tuple(int(n) for n in array.shape)
    fits = len(shape) == 2 or (len(shape) == 3 and shape[-1] in (1, 3, 4))
    return shape if fits and min(shape[:2]) > 1 else None


def grid_of(value: Sequence[Value]) -> Images:
    """Return a list of images as one grid with captions.

    Numbers outside the range of images (0 to 1, or bytes) are scaled to it, all with the same factor.
    """
    arrays = [np.asarray(to_host(_picture(item))) for item in value]
    captions = tuple(_caption(item) for item in value)
    stack = np.stack(arrays)
    if stack.dtype != np.uint8:
        stack = stack.astype(np.float32)
        finite = stack[np.isfinite(stack)]
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
        if low < 0 or high > 1:
            stack = (stack - low) / ((high - low) or 1.0)
    return Images(stack, captions if any(captions) else ())


def with_grid(record: Record) -> Record:
    """Return a record with its list of images as one grid; other records are returned as they are."""
    return replace(record, value=grid_of(record.value)) if is_grid(record.value) else record


def _picture(item: Value) -> Any:
    item = item[0] if isinstance(item, tuple) else item
    return item.value if isinstance(item, Image) else item


def _caption(item: object) -> str:
    if isinstance(item, tuple):
        return ", ".join(_text_of(part) for part in item[1:])
    return str(getattr(item, "caption", "") or "")


def _text_of(part: Value) -> str:
    if isinstance(part, str | Text):
        return str(part.value if isinstance(part, Text) else part)
    return number(to_host(part))


def _is_scalar(part: Value) -> bool:
    if isinstance(part, bool | int | float | np.generic):
        return True
    return array_kind(part) is not None and tuple(part.shape) == ()
