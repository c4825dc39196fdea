"""The surface's style: the packaged theme, fonts for all characters in names, widths of text.

Rule 1: names are never parsed as mathtext or TeX, whatever the user's rcParams are.
Rule 2: a character that no installed font has is drawn as a box, without Matplotlib's warning at each repaint.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from matplotlib import colors, font_manager
from matplotlib import rcParams as settings
from matplotlib.figure import Figure, SubFigure
from matplotlib.textpath import text_to_path
from matplotlib.typing import ColorType

from sightglass.views.palette import AXIS, DIVERGING, SEQUENTIAL
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
