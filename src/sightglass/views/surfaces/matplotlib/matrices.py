"""Matrices as heat maps."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from matplotlib import colors
from matplotlib import image as images
from matplotlib import rcParams as settings
from matplotlib.artist import Artist
from matplotlib.axes import Axes

from sightglass.core.values import Figure
from sightglass.views.latest_values import bounds_of, images_of, resample
from sightglass.views.options import ALARM, AXIS, MISSING, hex_of
from sightglass.views.scales import number
from sightglass.views.scene import Floats, Scene
from sightglass.views.series_buffer import as_floats

from .layout import MAX_PANELS, Layout, remove_artists
from .style import bounded, color_map_of, fitted, plain, set_ticks, width_in

MAX_CELLS: Final = 1024  # a side: about the pixels of a panel
# Below this, dividing by the span overflows.
MIN_SPAN: Final = 1e-290
BAR_ASPECT: Final = 30  # of a colour bar: about the width of a line of text


class HeatmapPlot:
    """Draws matrices, each with its colour bar; of entries that share a pixel, the largest is shown."""

    animated_artists: Sequence[Artist] = ()

    def __init__(self, layout: Layout, scene: Scene) -> None:
        self._layout = layout
        self._panels: list[Axes] = []
        self._images: list[Any] = []
        self._arranged: list[tuple[str, int]] = []

    def fits(self, scene: Scene) -> bool:
        """Return whether these axes can show a scene."""
        return scene.view == "heatmap"

    def paint(self, scene: Scene, *, ended: bool) -> bool:
        """Show a scene."""
        shown = [item for item in scene.items if item.record is not None][:MAX_PANELS]
        if len(shown) != len(self._panels):
            self._remove_images()
            self._layout.resize(self._panels, len(shown))
            self._images = [self._new_image(axes) for axes in self._panels]
        for axes, image, item in zip(self._panels, self._images, shown, strict=True):
            assert item.record is not None
            _show(axes, image, as_floats(item.record.value))
            axes.set_title(plain(item.label) if len(shown) > 1 else "", size=settings["axes.labelsize"])
        # Other cells need no other layout, which takes seconds for many panels; other ticks may.
        arranged = [(axes.get_xlabel(), len(number(image.norm.vmax)))
                    for axes, image in zip(self._panels, self._images, strict=True)]  # fmt: skip
        if arranged != self._arranged:
            self._arranged = arranged
            self._layout.unsettle()
        return True

    def remove(self) -> None:
        """Remove all artists."""
        self._remove_images()
        for axes in self._panels:
            axes.set_title("")
            axes.set_aspect("auto")
            self._layout.drop(axes)

    def _new_image(self, axes: Axes) -> Any:
        image = axes.imshow(np.zeros((1, 1)), interpolation="nearest")
        axes.grid(visible=False)
        axes.format_coord = lambda x, y: f"row {round(y)}, column {round(x)}"  # type: ignore[method-assign,unused-ignore]
        bar = self._layout.figure.colorbar(image, ax=axes, aspect=BAR_ASPECT)
        bar.outline.set_visible(False)
        bar.ax.tick_params(length=0, labelsize=settings["legend.fontsize"])
        bar.ax.grid(visible=False)
        return image

    def _remove_images(self) -> None:
        for image in self._images:
            image.colorbar.remove()
            image.remove()
        self._images = []


def _show(axes: Axes, image: Any, matrix: Floats) -> None:
    bounds, (tall, wide) = bounds_of(matrix), matrix.shape
    low, high = bounded([bounds.low, bounds.high]).tolist()
    small = resample(matrix, min(tall, MAX_CELLS), min(wide, MAX_CELLS), mean=False)
    image.set_data(np.clip(small, low, high))
    image.set_extent((-0.5, wide - 0.5, tall - 0.5, -0.5))
    image.set_norm(colors.Normalize(low, high if high - low > MIN_SPAN else low + max(abs(low), 1.0)))
    image.set_cmap(color_map_of(diverging=bounds.diverging, bad=hex_of(MISSING)))
    axes.set_aspect("equal" if 0.2 < wide / tall < 5 else "auto")
    for axis in (axes.xaxis, axes.yaxis, image.colorbar.ax.yaxis):
        set_ticks(axis)
    odd = f", {bounds.n_bad:,} not finite" if bounds.n_bad else ""
    axes.set_xlabel(f"{tall:,} x {wide:,}{odd}", color=ALARM if odd else AXIS)


# Grids of images, and encoded figures.

MAX_TILES: Final = 144  # 12 x 12: beyond, images are too small to recognise
GAP_IN: Final = 0.08
CAPTION_IN: Final = 0.17
MAX_CAPTION_LINES: Final = 2
MIN_TILE_IN: Final = 0.3  # smaller images cannot be recognised
FORMATS: Final = {"image/png": "png", "image/jpeg": "jpeg", "image/webp": "webp", "image/gif": "gif"}


class ImageGrid:
    """Draws images in a grid, each above its caption, and encoded figures."""

    animated_artists: Sequence[Artist] = ()

    def __init__(self, layout: Layout, scene: Scene) -> None:
        self._layout = layout
        self._view = scene.view
        self.axes = layout.axes()
        self.axes.set_axis_off()
        self._artists: list[Artist] = []
        self._decoded_figures: dict[int, tuple[Figure, Any]] = {}

    def fits(self, scene: Scene) -> bool:
        """Return whether these axes can show a scene."""
        return scene.view == self._view

    def paint(self, scene: Scene, *, ended: bool) -> bool:
        """Show a scene."""
        remove_artists(self._artists)
        self._artists = []
        if self._view == "picture":
            self._lay(self._figures(scene))
        else:
            self._lay([one for item in scene.items for one in images_of(item)])
        return True

    def remove(self) -> None:
        """Remove all artists."""
        remove_artists(self._artists)
        self.axes.set_title("", loc="right")
        if self.axes is self._layout.given:
            self.axes.set_axis_on()
        self._layout.drop(self.axes)

    def _lay(self, shown: list[tuple[Any, str]]) -> None:
        if not shown:
            return
        tall, wide = max(p.shape[0] for p, _ in shown), max(p.shape[1] for p, _ in shown)
        self._say(shown, len(shown))  # some text, for the layout to make room for it
        width, height = self._layout.room_in(self.axes)
        self.axes.set(xlim=(0, width), ylim=(height, 0), aspect="auto")
        captions = any(caption for _, caption in shown)
        size = settings["legend.fontsize"] - 1
        for n_lines in range(int(captions), MAX_CAPTION_LINES + 1):
            below = CAPTION_IN * n_lines
            columns, rows, share = _grid(len(shown), wide, tall, (width, height), below)
            room = max(wide * share, MIN_TILE_IN)
            if not captions or all(len(_wrapped(caption, room, size)) <= n_lines for _, caption in shown):
                break
        for i, (picture, caption) in enumerate(shown[: columns * rows]):
            h, w = picture.shape[0] * share, picture.shape[1] * share
            x = (i % columns) * (wide * share + GAP_IN)
            y = (i // columns) * (tall * share + GAP_IN + below)
            pixels = share * self._layout.figure.dpi
            artist = images.AxesImage(
                self.axes, extent=(x, x + w, y + h, y), interpolation="nearest" if pixels >= 1 else "antialiased",
                origin="upper",
            )  # fmt: skip
            artist.set_data(picture)
            self.axes.add_image(artist)
            self._artists.append(artist)
            if caption:
                lines = _wrapped(caption, room, size)
                if len(lines) > n_lines:
                    lines[n_lines - 1 :] = [fitted(" ".join(lines[n_lines - 1 :]), room, size)]
                self._artists += [
                    self.axes.text(x, y + h + CAPTION_IN * (k + 0.75), line, size=size, color=settings["text.color"])
                    for k, line in enumerate(lines)
                ]
        self._say(shown, columns * rows)

    def _say(self, shown: list[tuple[Any, str]], n_max: int) -> None:
        tall, wide = max(p.shape[0] for p, _ in shown), max(p.shape[1] for p, _ in shown)
        n, left = len(shown), len(shown) - n_max
        text = f"{n:,} image{'s' if n > 1 else ''} of {tall} × {wide}" if self._view == "images" else ""
        if left > 0:
            text += f"{' · ' if text else ''}{left:,} more do not fit"
        self.axes.set_title(text, loc="right", color=AXIS, size=settings["legend.fontsize"])

    def _figures(self, scene: Scene) -> list[tuple[Any, str]]:
        found: list[tuple[Any, str]] = []
        for item in scene.items:
            if item.record is None or not isinstance(item.record.value, Figure):
                continue
            figure, name = item.record.value, f"{item.label} · step {number(item.record.step)}"
            before = self._decoded_figures.get(len(found))
            if before is None or before[0] is not figure:
                self._decoded_figures[len(found)] = before = (figure, _decoded(figure))
            several = len(scene.items) > 1
            if before[1] is not None:
                found.append((before[1], name if several else ""))
            else:
                blank = np.full((90, 160, 3), 0.5)
                reason = f"Matplotlib cannot show {figure.media_type}; open it in a notebook or the page"
                found.append((blank, f"{name}: {reason}"))
        return found


def _decoded(figure: Figure) -> Any:
    try:
        return images.imread(io.BytesIO(figure.data), format=FORMATS.get(figure.media_type, "png"))
    except (ValueError, OSError, SyntaxError):  # raised by Pillow for files that are not images
        return None


def _wrapped(caption: str, room_in: float, points: float) -> list[str]:
    """Break a caption between words into lines that fit."""
    lines: list[str] = []
    for word in plain(caption).split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and width_in(longer, points) <= room_in:
            lines[-1] = longer
        else:
            lines.append(fitted(word, room_in, points))
    return lines


def _grid(n: int, wide: int, tall: int, room: tuple[float, float], below: float) -> tuple[int, int, float]:
    """Return columns, rows and inches per pixel for the largest tiles that all fit, or for fewer tiles."""
    n = min(n, MAX_TILES)
    best = (1, 1, 0.0)
    for columns in range(1, n + 1):
        rows = -(-n // columns)
        share = min(
            (room[0] - GAP_IN * (columns - 1)) / (columns * wide),
            (room[1] - (GAP_IN + below) * (rows - 1) - below) / (rows * tall),
        )
        if share > best[2]:
            best = (columns, rows, share)
    if best[2] * max(wide, tall) >= MIN_TILE_IN:
        return best
    share = MIN_TILE_IN / max(wide, tall)
    columns = max(1, int((room[0] + GAP_IN) / (wide * share + GAP_IN)))
    rows = max(1, int((room[1] + GAP_IN) / (tall * share + GAP_IN + below)))
    return columns, rows, share
