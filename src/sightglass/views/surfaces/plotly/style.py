"""The style of Plotly figures: colours and axes for light and dark pages, and escaping of text.

Plotly interprets some HTML in every text (tags, entities), and TeX between dollar signs if MathJax is loaded. Names
come from the training program, so each is escaped by `plain` before it is shown, and none is put into a hover template,
where Plotly would interpret `%{…}`. The process's default template is not used or changed: the style is a part of the
figure's layout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.views.options import AXIS, DIVERGING, LINES, SEQUENTIAL, rgb

FONT: Final = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', sans-serif"
MONO: Final = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
DASHES: Final = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
# On a light background zero is light, as on the page.
DIVERGING_LIGHT: Final = (
    "#2166ac", "#4393c3", "#92c5de", "#d1e5f0", "#f7f7f7", "#fddbc7", "#f4a582", "#d6604d", "#b2182b",
)  # fmt: skip
MAX_NAME: Final = 80
PAD: Final = 16  # around everything, in CSS pixels

Floats = npt.NDArray[np.float64]
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlotlyStyle:
    """The colours of a figure.

    Attributes:
        ground: Behind everything.
        ink: Of text.
        faint: Of text that says less.
        grid: Of lines behind the data.
        raised: Behind what the pointer shows.
    """

    background: str
    text_color: str
    muted: str
    grid: str
    popup: str

    @property
    def is_dark(self) -> bool:
        """Whether text is lighter than the background."""
        return sum(rgb(self.text_color)) > sum(rgb(self.background))


LIGHT: Final = PlotlyStyle(background="#ffffff", text_color="#1c1f24", muted="#686d76", grid="#e9eaee", popup="#ffffff")
DARK: Final = PlotlyStyle(background="#16191d", text_color="#e8e6e1", muted="#9a9fa8", grid="#2b3037", popup="#22262c")


def style_of(*, dark: bool | None) -> PlotlyStyle:
    """Return the style: light unless dark is requested, because Python cannot know the page's theme."""
    return DARK if dark else LIGHT


def plain(text: object, *, n_max: int = MAX_NAME) -> str:
    """Escape a text so that Plotly shows it literally, and shorten it in its middle.

    >>> plain("<b>loss</b> & $x$")
    '&lt;b&gt;loss&lt;/b&gt; &amp; &#36;x&#36;'
    """
    line = str(text)
    if len(line) > n_max:
        line = f"{line[: n_max // 2]}…{line[1 - n_max // 2 :]}"
    for char, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("$", "&#36;")):
        line = line.replace(char, entity)
    return line


def faded(color: str, alpha: float) -> str:
    """Return a colour with an opacity."""
    red, green, blue = rgb(color)
    return f"rgba({red}, {green}, {blue}, {alpha:.3g})"


def mixed(color: str, background: str, share: float) -> str:
    """Return the opaque colour of `color` drawn with opacity `share` on a background."""
    parts = [round(share * a + (1 - share) * b) for a, b in zip(rgb(color), rgb(background), strict=True)]
    return "#{:02x}{:02x}{:02x}".format(*parts)


def color_scale(style: PlotlyStyle, *, diverging: bool) -> list[list[Any]]:
    """Return the stops of a colour scale from 0 to 1."""
    stops = SEQUENTIAL if not diverging else DIVERGING if style.is_dark else DIVERGING_LIGHT
    return [[i / (len(stops) - 1), color] for i, color in enumerate(stops)]


def color_bar(style: PlotlyStyle, **more: object) -> Json:
    """Return a colour bar."""
    font = {"color": style.muted, "size": 11}
    return {"thickness": 10, "outlinewidth": 0, "ticks": "", "tickfont": font, "xpad": 8, "ypad": 0, **more}


def axis(style: PlotlyStyle, **more: object) -> Json:
    """Return an axis with small grey labels, a thin grid and no frame."""
    return {
        "gridcolor": style.grid,
        "linecolor": mixed(AXIS, style.background, 0.6),
        "tickfont": {"color": style.muted, "size": 11},
        "title": {"text": "", "font": {"color": style.muted, "size": 12}, "standoff": 8},
        "zeroline": False,
        "automargin": True,
        "separatethousands": True,
        "exponentformat": "power",
        "minexponent": 5,
    } | more


def bare(**more: object) -> Json:
    """Return a hidden axis."""
    return {"visible": False, "showgrid": False, "zeroline": False, **more}


def titled(axis: Mapping[str, Any], text: str) -> Json:
    """Return the axis with a title, which is shown literally."""
    return {**axis, "title": {**axis["title"], "text": plain(text, n_max=60)}}


def base(style: PlotlyStyle) -> Json:
    """Return the layout that all figures share."""
    return {
        "template": "none",
        "colorway": list(LINES),
        "paper_bgcolor": style.background,
        "plot_bgcolor": style.background,
        "font": {"family": FONT, "color": style.text_color, "size": 12},
        "hoverlabel": {
            "bgcolor": style.popup,
            "bordercolor": style.grid,
            "font": {"family": FONT, "color": style.text_color, "size": 12},
            "namelength": -1,
        },
        "modebar": {
            "bgcolor": "rgba(0, 0, 0, 0)",
            "color": faded(style.muted, 0.6),
            "activecolor": style.text_color,
            "remove": ["lasso2d", "select2d", "autoScale2d"],
        },
        "legend": {
            "font": {"color": style.text_color, "size": 12},
            "bgcolor": "rgba(0, 0, 0, 0)",
            "itemsizing": "constant",
        },
        # Plotly widens these for axes, titles and legends.
        "margin": {"l": PAD, "r": PAD, "t": PAD, "b": PAD},
        "autosize": True,
        "dragmode": "zoom",
    }
