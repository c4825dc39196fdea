"""What a picture shows, as lines of text: its words, colours, marks and ranges, but neither pixels nor places of text.

A fact has numbers of three digits. So another font, or another version of a library, changes no fact, but whatever is
lost does.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

NUMBER = re.compile(r"(?<![\w#])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")


def same(one: str, other: str, *, within: float = 0.0) -> bool:
    """Return whether two facts are the same: the words, and the numbers but for a share, or for as much near zero."""
    if one == other:
        return True
    if not within or NUMBER.sub("?", one) != NUMBER.sub("?", other):
        return False
    numbers = [np.array(NUMBER.findall(fact), float) for fact in (one, other)]
    return np.allclose(*numbers, rtol=within, atol=within)


def differences(found: Iterable[str], expected: Iterable[str], *, within: float = 0.0) -> list[str]:
    """Return what is lost ("- …") and what is new ("+ …"), whatever the order."""
    rest = list(found)
    lost = []
    for fact in expected:
        twin = next((one for one in rest if same(one, fact, within=within)), None)
        if twin is None:
            lost.append(f"- {fact}")
        else:
            rest.remove(twin)
    return lost + [f"+ {fact}" for fact in rest]


def short(number: float) -> str:
    """Format a number with three digits."""
    return f"{float(number) + 0.0:.3g}"


def extent(*columns: Any) -> str:
    """Return the number of points, and the range of each column's finite values."""
    parts = []
    for name, column in zip("xyz", columns, strict=False):
        values = np.asarray(column, float).ravel()
        values = values[np.isfinite(values)]
        parts.append(f"{name} {short(values.min())} to {short(values.max())}" if len(values) else f"no {name}")
    return f"{np.size(columns[0])} points, {', '.join(parts)}"


# Matplotlib


def of_figure(figure: Any) -> list[str]:
    """Return what a Matplotlib figure shows, drawn once before."""
    from matplotlib.colors import to_hex

    facts = [f"background {to_hex(figure.get_facecolor())}"]
    for text in figure.texts:
        facts += _texts([text])
    for legend in figure.legends:
        facts += _texts([legend.get_title()])
        for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
            look = f"{to_hex(handle.get_color())} {handle.get_linestyle()}"
            facts.append(f"legend {look} {to_hex(text.get_color())} {text.get_text()}")
    for axes in figure.axes:
        facts += _of_axes(axes)
    return facts


def _of_axes(axes: Any) -> Iterator[str]:
    from matplotlib.collections import Collection
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch
    from matplotlib.spines import Spine
    from matplotlib.text import Text

    sides = "xyz" if axes.name == "3d" else "xy"
    if axes.axison:
        for side in sides:
            axis = getattr(axes, f"{side}axis")
            low, high = axis.get_view_interval()
            ticks = [text.get_text() for text in axis.get_ticklabels() if text.get_text() and text.get_visible()]
            yield f"{side} axis {axis.get_scale()} {short(low)} to {short(high)}: {axis.get_label_text()}".strip(": ")
            yield f"{side} ticks " + " | ".join(ticks)
    yield from _texts([*(axes.title, axes._left_title, axes._right_title)])
    bars: Counter[str] = Counter()
    for artist in axes.get_children():
        if not artist.get_visible() or artist in (axes.patch, axes.title, axes._left_title, axes._right_title):
            continue
        match artist:
            case Line2D():
                yield from _of_line(artist)
            case Text():
                yield from _texts([artist])
            case Collection():
                yield from _of_collection(artist)
            case Patch() if not isinstance(artist, Spine):
                bars[_of_patch(artist)] += 1
            case _ if hasattr(artist, "get_clim"):
                yield _of_image(artist)
    yield from (f"{n} of {fact}" for fact, n in bars.items())


def _texts(texts: Iterable[Any]) -> Iterator[str]:
    from matplotlib.colors import to_hex

    for text in texts:
        for line in text.get_text().splitlines():
            if line.strip():
                yield f"text {to_hex(text.get_color())} {line.strip()}"


def _of_line(line: Any) -> Iterator[str]:
    from matplotlib.colors import to_hex

    columns = line.get_data_3d() if hasattr(line, "get_data_3d") else line.get_data()
    if not len(columns[0]) or (line.get_linestyle() == "None" and line.get_marker() == "None"):
        return
    look = f"{to_hex(line.get_color())} {line.get_linestyle()} {line.get_marker()} {short(line.get_alpha() or 1)}"
    yield f"line {look}: {extent(*columns)}"


def _of_collection(collection: Any) -> Iterator[str]:
    from matplotlib.colors import to_hex

    if (values := collection.get_array()) is not None:
        yield f"cells {collection.cmap.name} {values.shape[0]} x {values.shape[1]}: {extent(values.filled(np.nan))}"
    elif paths := collection.get_paths():
        x, y = np.concatenate([path.vertices for path in paths]).T
        kind = "areas" if len(collection.get_facecolor()) else "rules"
        color = (*collection.get_facecolor(), *collection.get_edgecolor())[0]
        yield f"{len(paths)} {kind} {to_hex(color, keep_alpha=True)}: {extent(x, y)}"


def _of_patch(patch: Any) -> str:
    from matplotlib.colors import to_hex

    color = to_hex(patch.get_facecolor(), keep_alpha=True)
    if hasattr(patch, "get_data"):
        values, edges, _ = patch.get_data()
        return f"stairs {color} {extent(edges, values)}"
    return f"bar {color} {' '.join(map(short, patch.get_bbox().bounds))}"


def _of_image(image: Any) -> str:
    values, (low, high) = np.ma.filled(image.get_array(), np.nan), image.get_clim()
    clim = f"{short(low)} to {short(high)}" if low is not None else "itself"
    return f"image {'x'.join(map(str, values.shape))}, {image.cmap.name} of {clim}: mean {short(np.nanmean(values))}"
