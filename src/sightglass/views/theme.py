"""Themes for Matplotlib figures: style sheets, column widths of journals and conferences, panel labels.

Rule 1: a theme is a mapping of rcParams and nothing else. Nothing in Matplotlib is replaced or wrapped, so ticks of
dates, categories and logarithms keep working, and applying a theme twice equals applying it once.
Rule 2: `theme` restores the previous settings; `apply_theme` sets the process's defaults, like `matplotlib.style.use`.
Rule 3: a theme selects no backend and draws nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from sightglass.core.errors import MissingExtraError, UnknownNameError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Style = Literal["light", "dark", "paper"]
Context = Literal["paper", "notebook", "talk", "poster"]

STYLES: Final = ("light", "dark", "paper")
CONTEXTS: Final[Mapping[str, float]] = {"paper": 1.0, "notebook": 1.25, "talk": 1.75, "poster": 2.5}
"""The factor for all sizes, relative to paper."""

GOLDEN: Final = (math.sqrt(5) - 1) / 2

SIZES: Final[Mapping[str, tuple[float, float]]] = {
    # The widths of one column and of the full text, in inches.
    "column": (3.25, 6.75),  # most conferences with two columns, as ICML's
    "neurips": (5.5, 5.5),  # neurips.sty: textwidth 5.5in
    "iclr": (5.5, 5.5),  # iclr_conference.sty: textwidth 5.5in
    "icml": (3.25, 6.75),  # icml.sty: textwidth 6.75in, columnsep 0.25in
    "aistats": (3.25, 6.75),  # aistats.sty: as ICML's
    "jmlr": (6.0, 6.0),  # jmlr2e.sty: textwidth 6.0in
    "tmlr": (6.5, 6.5),  # tmlr.sty: textwidth 6.5in
    "cvpr": (3.28125, 6.875),  # cvpr.sty: textwidth 6.875in, columnsep 0.3125in
    "acl": (3.03, 6.3),  # acl.sty: A4, text 16 cm wide, columns 7.7 cm
    "ieee": (3.5, 7.16),  # IEEE's guide for graphics: 3.5in and 7.16in
    "nature": (89 / 25.4, 183 / 25.4),  # Nature's guide to authors: 89 mm and 183 mm
    "pnas": (8.7 / 2.54, 17.8 / 2.54),  # PNAS's digital art guidelines: 8.7 cm and 17.8 cm
}
"""Widths by venue; both are equal for layouts with one column."""

SCALED: Final = (
    "font.size", "figure.titlesize", "axes.titlesize", "axes.labelsize", "axes.titlepad", "axes.labelpad",
    "axes.linewidth", "xtick.labelsize", "xtick.major.size", "xtick.major.width", "xtick.major.pad", "xtick.minor.size",
    "xtick.minor.width", "ytick.labelsize", "ytick.major.size", "ytick.major.width", "ytick.major.pad",
    "ytick.minor.size", "ytick.minor.width", "lines.linewidth", "lines.markersize", "patch.linewidth", "grid.linewidth",
    "legend.fontsize", "legend.title_fontsize",
)  # fmt: skip
"""The parameters scaled by the context: all that style sheets give in points."""

FONT_SIZES: Final = (
    "font.size", "figure.titlesize", "axes.titlesize", "axes.labelsize", "xtick.labelsize", "ytick.labelsize",
    "legend.fontsize", "legend.title_fontsize",
)  # fmt: skip


class ThemeOptions(TypedDict, total=False):
    """The options of `theme` and `apply_theme`, as for `rc`."""

    size: str | tuple[float, float] | None
    context: Context
    font_scale: float


PANEL_OFFSET: Final = (-6.0, 6.0)
PANEL_GID: Final = "sightglass-panel"


def rc(
    style: Style = "light",
    *,
    size: str | tuple[float, float] | None = None,
    context: Context = "paper",
    font_scale: float = 1.0,
) -> dict[str, Any]:
    """Return the rcParams of a theme.

    Args:
        style: The style sheet: "light", "dark" or "paper".
        size: The size of new figures: a name as for `figure_size`, for example "icml/full" for the full text width, or
            width and height in inches; by default the style sheet's.
        context: Where the figure is shown: "paper", "notebook", "talk" or "poster"; scales all sizes.
        font_scale: A factor for all font sizes.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        UnknownNameError: The style, the context or the size is unknown.
        ValueError: `font_scale` or a size is not above 0.
    """
    if style not in STYLES:
        raise UnknownNameError("style", style, STYLES)
    if context not in CONTEXTS:
        raise UnknownNameError("context", context, CONTEXTS)
    if not 0 < font_scale < math.inf:
        raise ValueError(f"Expected a font_scale above 0, got {font_scale!r}")
    params = dict(_sheet("light"))
    if style != "light":
        params |= _sheet(style)
    for name in SCALED:
        params[name] = params[name] * CONTEXTS[context] * (font_scale if name in FONT_SIZES else 1.0)
    if size is not None:
        params["figure.figsize"] = list(_size(size))
    return params


@contextmanager
def theme(style: Style = "light", **options: Unpack[ThemeOptions]) -> Iterator[None]:
    """Apply a theme within a `with` block, and restore the previous settings after it.

    Args:
        style: The style sheet: "light", "dark" or "paper".
        **options: `size`, `context` and `font_scale`, as for `rc`.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        UnknownNameError: The style, the context or the size is unknown.
    """
    params: Any = rc(style, **options)
    import matplotlib as mpl

    with mpl.rc_context(params):
        yield


def apply_theme(
    axes: Axes | Sequence[Axes] | npt.NDArray[Any] | None = None,
    *,
    style: Style = "light",
    **options: Unpack[ThemeOptions],
) -> None:
    """Apply a theme to all figures created from now on in this process. Applying it again changes nothing.

    Args:
        axes: Axes, or an array or a sequence of them, to label (a), (b), (c) …
        style: The style sheet: "light", "dark" or "paper".
        **options: `size`, `context` and `font_scale`, as for `rc`.

    Raises:
        MissingExtraError: Matplotlib is not installed.
        UnknownNameError: The style, the context or the size is unknown.
    """
    params: Any = rc(style, **options)
    import matplotlib as mpl

    mpl.rcParams.update(params)
    if axes is not None:
        label_panels(axes)


def label_panels(
    axes: Axes | Sequence[Axes] | Mapping[Any, Axes] | npt.NDArray[Any], *, form: str = "({})", first: str = "a"
) -> None:
    """Label each panel with a letter at its upper left corner: (a), (b), … (z), (aa), and so on.

    Args:
        axes: Axes, or an array, a sequence or a mapping of them, as `subplots` and `subplot_mosaic` return them.
            Earlier labels are replaced.
        form: The format of a label.
        first: The first letter, "a" or "A".

    Raises:
        TypeError: `axes` contains something other than axes.
    """
    panels = list(axes.values()) if isinstance(axes, Mapping) else list(np.asarray(axes, object).ravel())
    for index, panel in enumerate(panels):
        if not hasattr(panel, "annotate"):
            raise TypeError(f"Expected Matplotlib axes to label, got {type(panel).__name__}")
        for text in [text for text in panel.texts if text.get_gid() == PANEL_GID]:
            text.remove()
        letters = _letters(index)
        label = form.format(letters.upper() if first.isupper() else letters)
        made = panel.annotate(
            label, (0, 1), xycoords="axes fraction", xytext=PANEL_OFFSET, textcoords="offset points",
            ha="right", va="bottom", annotation_clip=False,
        )  # fmt: skip
        made.set_gid(PANEL_GID)


def figure_size(venue: str, *, ratio: float = GOLDEN, rows: int = 1, columns: int = 1) -> tuple[float, float]:
    """Return the width and height, in inches, of a figure that fits a column without scaling.

    Args:
        venue: Where it is printed: a name in `SIZES` for one column, or with "/full" appended for the full text width.
        ratio: The height of a panel divided by its width; by default the golden ratio.
        rows: The number of rows of panels.
        columns: The number of columns of panels.

    Raises:
        UnknownNameError: The venue is unknown.
        ValueError: `ratio`, `rows` or `columns` is not above 0.

    >>> figure_size("icml", ratio=0.5), figure_size("icml/full", ratio=0.5, columns=2)
    ((3.25, 1.625), (6.75, 1.6875))
    """
    name, _, part = venue.partition("/")
    if name not in SIZES or part not in ("", "column", "full"):
        raise UnknownNameError("size", venue, [*SIZES, *(f"{known}/full" for known in SIZES)])
    if not (ratio > 0 and rows > 0 and columns > 0):
        raise ValueError(f"Expected numbers above 0, got ratio={ratio!r}, rows={rows!r}, columns={columns!r}")
    width = SIZES[name][part == "full"]
    return width, width / columns * ratio * rows


def _size(size: str | tuple[float, float]) -> tuple[float, float]:
    if isinstance(size, str):
        return figure_size(size)
    width, height = size
    if not (width > 0 and height > 0):
        raise ValueError(f"Expected a width and a height above 0, in inches, got {size!r}")
    return width, height


def _letters(index: int) -> str:
    """Return a, b, … z, aa, … for 0, 1, 2, and so on."""
    letters = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        letters = chr(ord("a") + rest) + letters
    return letters


@lru_cache(maxsize=len(STYLES))
def _sheet(style: str) -> Mapping[str, Any]:
    """Read a style sheet."""
    try:
        from matplotlib import rc_params_from_file
    except ImportError:
        raise MissingExtraError("matplotlib", extra="plot", purpose="Drawing figures") from None
    path = Path(__file__).with_name(f"{style}.mplstyle")
    read: Any = rc_params_from_file(path, use_default_template=False)
    return dict(read)
