"""Pictures of other libraries as PNG files: Pillow's images, pixels, stacks of frames, Matplotlib's animations.

Several frames become an animated PNG, which browsers and notebooks play, and whose first frame all others show:
https://www.w3.org/TR/png-3/#apng-frame-based-animation.
"""

from __future__ import annotations

import base64
import io
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.storage.format import png

if TYPE_CHECKING:
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
