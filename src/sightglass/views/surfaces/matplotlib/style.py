"""The surface's style: the packaged theme, fonts for all characters in names, widths of text.

Rule 1: names are never parsed as mathtext or TeX, whatever the user's rcParams are.
Rule 2: a character that no installed font has is drawn as a box, without Matplotlib's warning at each repaint.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from matplotlib import colors, dates, font_manager
from matplotlib import rcParams as settings
from matplotlib.axis import Axis as MatplotlibAxis
from matplotlib.figure import Figure, SubFigure
from matplotlib.textpath import text_to_path
from matplotlib.ticker import FixedFormatter, FixedLocator, Formatter, Locator, LogFormatter, LogLocator, MaxNLocator
from matplotlib.typing import ColorType

from sightglass.views.options import AXIS, DIVERGING, SEQUENTIAL
from sightglass.views.scales import Axis, number, tick_labels
from sightglass.views.theme import rc

SIZE: Final = (8.0, 4.5)
WINDOW_DPI: Final = 100
FILE_DPI: Final = 200

FALLBACKS: Final = (
    "DejaVu Sans", "Noto Sans", "Noto Sans CJK JP", "Noto Sans CJK SC", "Hiragino Sans", "PingFang SC", "Yu Gothic",
    "Microsoft YaHei", "Malgun Gothic", "WenQuanYi Zen Hei", "Noto Sans Symbols2", "Segoe UI Symbol",
    "Noto Sans Arabic", "Noto Sans Hebrew", "Noto Sans Devanagari", "Unifont",
)  # fmt: skip
"""Fallback fonts for characters that the theme's font lacks, if they are installed."""

BOX: Final = "□"
MONO: Final = ("DejaVu Sans Mono",)


def rc_params(*, dark: bool, size: str | tuple[float, float] | None = None) -> dict[str, Any]:
    """Return the rcParams for drawing a view.

    Args:
        dark: Whether the background is dark.
        size: Width and height in inches, or a name as for `theme.figure_size`.
    """
    params = rc("dark" if dark else "light", size=SIZE if size is None else size)
    return params | {
        "font.family": list(families()),
        "figure.dpi": WINDOW_DPI,
        "savefig.bbox": None,
        "text.usetex": False,
        "text.parse_math": False,
        "path.simplify": True,
        "axes.xmargin": 0.0,
        "axes.ymargin": 0.0,
        "axes.titlelocation": "left",
        "axes.labelcolor": AXIS,
        "axes.labelsize": params["legend.fontsize"],
        "axes.labelpad": 2.0,
        "xaxis.labellocation": "right",
        "yaxis.labellocation": "top",
        "legend.frameon": False,
    }


def is_dark(color: ColorType) -> bool:
    """Return whether a colour is closer to black than to white (relative luminance, ITU-R BT.709)."""
    red, green, blue, alpha = colors.to_rgba(color)
    return bool(alpha > 0 and 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.5)


def background_is_dark(dark: bool | None, figure: Figure | SubFigure | None = None) -> bool:
    """Return whether the background is dark: as requested, else as the figure's, else as rcParams say."""
    if dark is not None:
        return dark
    return is_dark(settings["figure.facecolor"] if figure is None else figure.get_facecolor())


@lru_cache(maxsize=1)
def families() -> tuple[str, ...]:
    """Return the font families: the first installed serif font of the theme, then the fallbacks."""
    known = set(font_manager.fontManager.get_font_names())
    serif = [name for name in rc("light")["font.serif"] if name in known][:1]
    return (*serif, *(name for name in FALLBACKS if name in known))


def plain(text: str) -> str:
    """Replace characters that no font has by boxes."""
    if text.isascii():
        return text
    drawn = _characters()
    return "".join(char if ord(char) in drawn else BOX for char in text)


def shorten(text: str, n_max: int) -> str:
    """Shorten a text in its middle: names usually differ at their ends."""
    if len(text) <= n_max:
        return text
    n_max = max(n_max, 3)
    n_last = (n_max - 1) // 2
    return f"{text[: n_max - 1 - n_last]}…{text[len(text) - n_last :]}"


@lru_cache(maxsize=1024)
def width_in(text: str, points: float, *, bold: bool = False, mono: bool = False) -> float:
    """Return the width of a text, in inches.

    Args:
        text: The text, without line breaks.
        points: The font size.
        bold: Whether it is bold.
        mono: Whether it is set in a monospaced font.
    """
    font = font_manager.FontProperties(
        family=list(MONO if mono else families()), size=points, weight="bold" if bold else "normal"
    )
    width, _, _ = text_to_path.get_text_width_height_descent(text, font, ismath=False)
    return float(width) / 72


def fitted(text: str, room_in: float, points: float, *, bold: bool = False, middle: bool = True) -> str:
    """Shorten a text, in its middle or at its end, until it fits a width in inches."""
    width = width_in(text, points, bold=bold)
    if width <= room_in:
        return text
    n_max = int(len(text) * room_in / width)
    while n_max >= 3:
        cut = shorten(text, n_max) if middle else f"{text[: n_max - 1].rstrip(' ,')}…"
        if width_in(cut, points, bold=bold) <= room_in:
            return cut
        n_max -= 1
    return "…"


def color_map_of(*, diverging: bool, bad: str | None) -> colors.Colormap:
    """Return the colour map of a matrix."""
    color_map = colors.LinearSegmentedColormap.from_list("sightglass", DIVERGING if diverging else SEQUENTIAL)
    return color_map.with_extremes(bad=bad if bad is not None else (0, 0, 0, 0))


@lru_cache(maxsize=1)
def _characters() -> frozenset[int]:
    found: set[int] = set()
    for name in families():
        path = font_manager.findfont(font_manager.FontProperties(family=name))
        found |= set(font_manager.get_font(path).get_charmap())
    return frozenset(found)


# Ticks: Matplotlib's, for numbers, for seconds since the Unix epoch, and for names.

# Beyond this the span of an axis overflows.
MOST: Final = sys.float_info.max / 16
MAX_CATEGORIES: Final = 40  # more names are clutter, however long the axis
DAY_S: Final = 86400.0
LAST_S: Final = 2.5e11  # the year 9892: `datetime` ends soon after
DATES: Any = dates  # it has no types


class DecadeLocator(LogLocator):  # type: ignore[misc,unused-ignore]
    """Matplotlib's ticks of logarithmic axes, up to the largest floats."""

    def tick_values(self, vmin: float, vmax: float) -> Any:
        """Return the ticks between two values."""
        with np.errstate(over="ignore", under="ignore"):
            found: Any = super().tick_values(vmin, vmax)
        return found[np.isfinite(found) & (found > 0)]


class DecadeFormatter(LogFormatter):  # type: ignore[misc,unused-ignore]
    """Matplotlib's choice of labels on a logarithmic axis: between powers of ten too, if there are few of these."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """Format one value."""
        return number(x) if super().__call__(x, pos) else ""


class NumberFormatter(Formatter):  # type: ignore[misc,unused-ignore]
    """Labels that need no offset at the axis's end, where its name is: 200k instead of 2 with "1e5" far away."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        """Format one value."""
        return number(x)

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        """Format all ticks alike."""
        return tick_labels(values, float(np.min(np.diff(values)))) if len(values) > 1 else [*map(number, values)]


class ClockLocator(Locator):  # type: ignore[misc,unused-ignore]
    """Matplotlib's ticks of dates, on an axis of seconds instead of days."""

    def __init__(self, dates: Any) -> None:
        self._dates = dates

    def __call__(self) -> Sequence[float]:
        """Return the ticks within the view limits."""
        axis: Any = self.axis
        return self.tick_values(*axis.get_view_interval())

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        """Return the ticks between two times."""
        low, high = np.clip(sorted((vmin, vmax)), 0, LAST_S) / DAY_S
        return [float(tick) * DAY_S for tick in self._dates.tick_values(*map(DATES.num2date, (low, high)))]


class ClockFormatter(Formatter):  # type: ignore[misc,unused-ignore]
    """Matplotlib's short labels of dates, on an axis of seconds instead of days."""

    def __init__(self, dates: Any) -> None:
        self._dates = DATES.ConciseDateFormatter(dates, tz=dates.tz)

    def __call__(self, x: float, pos: int | None = None) -> str:
        """Format one value."""
        when: datetime = DATES.num2date(float(np.clip(x, 0, LAST_S)) / DAY_S, self._dates._tz)
        return when.strftime("%Y-%m-%d %H:%M:%S")

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        """Format all ticks alike."""
        labels: list[str] = self._dates.format_ticks([value / DAY_S for value in values])
        return labels

    def get_offset(self) -> str:
        """Return the date that all ticks share."""
        return str(self._dates.get_offset())


def bounded(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Clip numbers to the range that an axis can show; NaN stays."""
    return np.clip(np.asarray(values, np.float64), -MOST, MOST)


def ends_of(axis: Axis | None) -> tuple[float, float]:
    """Return the limits of an axis, clipped to what Matplotlib can show; (0, 1) for `None`."""
    if axis is None:
        return 0.0, 1.0
    low, high = bounded([axis.low, axis.high]).tolist()
    return (low, high) if high > low else (low, low + (abs(low) * 1e-9 or 1e-300))


def set_ticks(axis: MatplotlibAxis, *, log: bool = False, clock: bool = False) -> None:
    """Set the ticks of an axis: where Matplotlib has them, with numbers as on all surfaces.

    Args:
        axis: A Matplotlib axis.
        log: Whether it is logarithmic.
        clock: Whether its values are seconds since the Unix epoch.
    """
    if clock:
        days = DATES.AutoDateLocator(tz=datetime.now().astimezone().tzinfo, minticks=3, maxticks=10)
        axis.set_major_locator(ClockLocator(days))
        axis.set_major_formatter(ClockFormatter(days))
    elif log:
        axis.set_major_locator(DecadeLocator())
        axis.set_minor_locator(DecadeLocator(subs=range(2, 10)))
        axis.set_major_formatter(DecadeFormatter())
        axis.set_minor_formatter(DecadeFormatter())
    else:
        axis.set_major_locator(MaxNLocator("auto", steps=[1, 2, 5, 10]))
        axis.set_major_formatter(NumberFormatter())


def set_categories(axis: MatplotlibAxis, categories: Sequence[str], *, room_in: float) -> None:
    """Label an axis with category names at 0, 1, 2 …, as many as fit.

    Args:
        axis: A Matplotlib axis.
        categories: The names.
        room_in: The length of the axis, in inches.
    """
    longest = min(max(map(len, categories), default=1), 16)
    turned = len(categories) * (longest * 0.08 + 0.08) > room_in and not all(name.isdecimal() for name in categories)
    n_max = max(1, min(MAX_CATEGORIES, int(room_in / (0.2 if turned else longest * 0.08 + 0.1))))
    at = range(0, len(categories), max(-(-len(categories) // n_max), 1))
    axis.set_major_locator(FixedLocator(list(at)))
    axis.set_major_formatter(FixedFormatter([plain(shorten(categories[i], 16)) for i in at]))
    axis.set_tick_params(rotation=35 if turned else 0)
    for tick in axis.get_major_ticks(len(at)):
        for label in (tick.label1, tick.label2):
            label.set_parse_math(False)
            label.set(ha="right" if turned else "center", rotation_mode="anchor" if turned else "default")
