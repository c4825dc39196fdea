"""Pictures of other libraries as PNG files: Pillow's images, pixels, stacks of frames, Matplotlib's animations.

Several frames become an animated PNG, which browsers and notebooks play, and whose first frame all others show:
https://www.w3.org/TR/png-3/#apng-frame-based-animation.

Figures of other libraries become ours, and lists of images a grid.
"""

from __future__ import annotations

import base64
import io
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import numpy.typing as npt

from sightglass.core.columns import Record
from sightglass.core.plotly_json import as_figure, is_plotly
from sightglass.core.program_values.guarded import FAILURES, MAX_DEPTH, LostValue, message, parts
from sightglass.core.values import PLAIN, Figure, Image, Images, Text, Value, array_kind, to_host
from sightglass.storage.format import png

from .scales import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MatplotlibFigure
    from PIL import Image as Pillow


FRAME_MS: Final = 100
"""How long a frame is shown that does not say it: ten a second, as Matplotlib's animations by default."""

MODES: Final = ("1", "L", "LA", "RGB", "RGBA")
ONE_BY_ONE: Final = (1, 3, 4)  # channels


def as_png(value: object) -> bytes | None:
    """Return a picture as a PNG file; `None` for any other value.

    Args:
        value: A Pillow image; an array of pixels of shape (height, width) or (height, width, channels) with 1, 3 or 4
            channels, as `sightglass.Image` takes them; several of them as a list, as (count, height, width) or as
            (count, height, width, channels), which are the frames of an animation; or an animation of Matplotlib.

    Raises:
        ValueError: Frames differ in size, or pixels are not numbers.
    """
    if is_pillow(value):
        return _of_pillow(value)
    if _is_instance(value, "matplotlib.animation", "Animation"):
        return _of_matplotlib(value)
    if isinstance(value, np.ndarray):
        frames = [value] if value.ndim == 2 or (value.ndim == 3 and value.shape[2] in ONE_BY_ONE) else list(value)
        return _of_frames(frames) if 2 <= value.ndim <= 4 else None
    if (
        isinstance(value, list | tuple)
        and value
        and all(is_pillow(one) or isinstance(one, np.ndarray) for one in value)
    ):
        return _of_frames([np.asarray(_plain(one)) if is_pillow(one) else one for one in value])
    return None


def is_pillow(value: object) -> bool:
    """Return whether a value is an image of Pillow."""
    return _is_instance(value, "PIL.Image", "Image")


def pixels_of(image: Any) -> npt.NDArray[np.uint8] | None:
    """Return the pixels of a Pillow image; `None` if it has several frames."""
    return None if getattr(image, "n_frames", 1) > 1 else np.asarray(_plain(image)) * _scale(image)


def converted(data: bytes, form: str) -> bytes:
    """Return a PNG file as "svg", which browsers play, too, or as "pdf", of the first frame."""
    from PIL import Image as Pillow

    if form == "svg":
        head = png.picture(data)
        assert head is not None
        size = f'width="{head.width}" height="{head.height}"'
        link = f"data:image/png;base64,{base64.b64encode(data).decode()}"
        return f'<svg xmlns="http://www.w3.org/2000/svg" {size}><image {size} href="{link}"/></svg>'.encode()
    file = io.BytesIO()
    with Pillow.open(io.BytesIO(data)) as image:
        image.convert("RGB").save(file, form)
    return file.getvalue()


def _is_instance(value: object, module: str, name: str) -> bool:
    known = getattr(sys.modules.get(module), name, None)
    return known is not None and isinstance(value, known)


def _plain(image: Pillow.Image) -> Pillow.Image:
    return image if image.mode in MODES else image.convert("RGBA")


def _scale(image: Pillow.Image) -> np.uint8:
    return np.uint8(255 if image.mode == "1" else 1)


def _of_pillow(image: Any) -> bytes:
    n = getattr(image, "n_frames", 1)
    frames, times = [], []
    for i in range(n):
        if n > 1:
            image.seek(i)
        times.append(int(image.info.get("duration", 0)) or FRAME_MS)
        frames.append(_plain(image).copy())
    return _saved(frames, times)


def _of_frames(frames: Sequence[npt.ArrayLike]) -> bytes:
    """Return pictures of one size as frames.

    Raises:
        ValueError: They differ in size, or are not pictures.
    """
    from PIL import Image as Pillow

    canvases = [png.canvas(frame) for frame in frames]
    if len({canvas.shape for canvas in canvases}) != 1:
        raise ValueError(f"Expected frames of one size, got {[canvas.shape for canvas in canvases]!r:.80}")
    if len(canvases) == 1:
        return png.encode_png(canvases[0])
    pictures = [Pillow.fromarray(canvas[:, :, 0] if canvas.shape[2] == 1 else canvas) for canvas in canvases]
    return _saved(pictures, [FRAME_MS] * len(pictures))


def _saved(frames: Sequence[Pillow.Image], times_ms: list[int]) -> bytes:
    file = io.BytesIO()
    first, *others = frames
    several: dict[str, Any] = {"save_all": True, "append_images": others, "duration": times_ms, "loop": 0}
    first.save(file, "png", **(several if others else {}))
    return file.getvalue()


def _of_matplotlib(animation: Any) -> bytes:
    from matplotlib.animation import PillowWriter

    fps: Any = 1000 / (getattr(animation, "_interval", FRAME_MS) or FRAME_MS)  # Matplotlib's type says int
    with tempfile.TemporaryDirectory() as folder:  # a writer takes a path, whose suffix says the format
        path = Path(folder) / "animation.png"
        animation.save(path, writer=PillowWriter(fps=fps))
        return path.read_bytes()


# Lists of images, as `sample(k)` and `top(k)` return them, as one grid of images with captions.
#
# An item is an image (or an array of an image's shape), or a tuple of an image and its caption's parts:
# `on("batch").map(lambda b: (b.x[0], b.label[0], b.loss)).top(9, key=lambda one: one[2])`.

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


# Figures of other libraries as ours: Matplotlib's as PNG, SVG or PDF, Plotly's as JSON.

MEDIA_TYPES = {"png": "image/png", "svg": "image/svg+xml", "pdf": "application/pdf"}


def encode(
    figure: MatplotlibFigure, *, format: Literal["png", "svg", "pdf"] = "png", dpi: float | None = None
) -> Figure:
    """Render a Matplotlib figure to a file format, without changing the figure, on any backend.

    Args:
        figure: A `matplotlib.figure.Figure`.
        format: The file format.
        dpi: Dots per inch; by default the figure's.
    """
    data = io.BytesIO()
    figure.savefig(data, format=format, dpi="figure" if dpi is None else dpi)
    return Figure(data.getvalue(), MEDIA_TYPES[format])


def encode_figures(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Encode figures of Matplotlib and Plotly and Pillow's images among named values; others are returned as they are.

    A figure that cannot be drawn becomes a `LostValue`.
    """
    if type(data) is dict and {*map(type, data.values())} <= PLAIN:
        return data
    encoded: Mapping[str, Any] = _encoded(data, ())
    return encoded


def _encoded(value: Value, inside: tuple[int, ...]) -> Any:
    """Encode the figures in a value; what cannot be read is returned as it is."""
    try:
        if is_pillow(value):
            pixels = pixels_of(value)
            return Figure(as_png(value) or b"") if pixels is None else Image(pixels)
        if _is_figure(value):
            return encode(value)
        if is_plotly(value):
            return as_figure(value)
        if not (issubclass(type(value), Mapping) or type(value) in (list, tuple)):
            return value
        found = None if id(value) in inside or len(inside) >= MAX_DEPTH else parts(value)
        if found is None:
            return value
        pairs = list(found.pairs)
        encoded = [_encoded(item, (*inside, id(value))) for _, item in pairs]
        unchanged = all(new is old for new, (_, old) in zip(encoded, pairs, strict=True))
        return value if unchanged else found.build([key for key, _ in pairs], encoded)
    except FAILURES as error:
        is_ours = _is_figure(value) or is_pillow(value) or is_plotly(value)
        return LostValue(message(error)) if is_ours else value


def _is_figure(value: Value) -> bool:
    """Return whether a value is a Matplotlib figure; nobody has one who has not imported Matplotlib."""
    figure = getattr(sys.modules.get("matplotlib.figure"), "Figure", None)
    return figure is not None and issubclass(type(value), figure)
