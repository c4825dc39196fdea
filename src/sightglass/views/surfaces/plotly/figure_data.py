"""What Plotly draws, as plain data: traces and a layout; and from one drawing to the next in few messages.

Theory of operation
    A drawing is made without Plotly, so it can be made anywhere and compared. `refresh` brings a figure from one
    drawing to the next: the traces that are of the same types at the same places are changed in what differs, the
    rest is taken away or added, and all changes of traces and layout are one message of a widget. What the viewer
    set since is left alone: the limits of an axis that was zoomed, and lines that were hidden in the legend, for
    nothing is sent that is as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from .style import Json, bare

LIMITS: Final = ("range", "autorange")


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureData:
    """A figure as data.

    Attributes:
        traces: What is drawn, in its order, as Plotly's attributes.
        layout: The same of everything around it.
        notices: What the painter has to say besides, one sentence each.
    """

    traces: list[Json] = field(default_factory=list)
    layout: Json = field(default_factory=dict)
    notices: tuple[str, ...] = ()


def refresh(figure: Any, old: FigureData, new: FigureData) -> FigureData:
    """Bring a figure from one drawing to the next, and return what it shows then.

    Args:
        figure: A `plotly.graph_objects.Figure` or `FigureWidget` that shows `old`.
        old: What it shows.
        new: What it is to show.
    """
    kept = _n_kept(old.traces, new.traces)
    restyled = [changed(a, b) for a, b in zip(old.traces[:kept], new.traces[:kept], strict=True)]
    # An axis that was there once stays in a figure: it can only be hidden.
    gone = {name: bare() for name in old.layout if name[1:5] == "axis" and name not in new.layout}
    new = replace(new, layout={**new.layout, **gone})
    relaid = changed(old.layout, new.layout)
    _leave_zoomed(figure, old.layout, relaid)
    removed, added = len(old.traces) - kept, new.traces[kept:]
    if removed:
        figure.data = figure.data[:kept]
    if relaid or any(restyled):
        with figure.batch_update():
            for trace, change in zip(figure.data, restyled, strict=False):
                _put(trace, change)
            _put(figure.layout, relaid)
    if added:
        figure.add_traces(added)
    return new


def changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> Json:
    """Return what has to be set so that one tree of attributes becomes the other; `None` takes one away.

    >>> changed({"x": [1], "line": {"width": 1, "dash": "dot"}}, {"x": [1], "line": {"width": 2}})
    {'line': {'dash': None, 'width': 2}}
    """
    found: Json = {name: None for name in old if name not in new}
    for name, value in new.items():
        before = old.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if inner := changed(before, value):
                found[name] = inner
        elif name not in old or not _same(before, value):
            found[name] = value
    return found


def explicit(axis: Any) -> tuple[float, float] | None:
    """Return the limits that an axis of a figure was set to, by us or by the viewer; `None` if it finds its own."""
    props = axis.to_plotly_json()
    limits = props.get("range")
    if props.get("autorange") is True or limits is None or len(limits) != 2 or None in limits:
        return None
    return limits[0], limits[1]


def _put(target: Any, change: Mapping[str, Any]) -> None:
    """Set attributes. Plotly's own `update` would add to lists where they are to be replaced."""
    for name, value in change.items():
        if isinstance(value, Mapping) and name in target and hasattr(target[name], "to_plotly_json"):
            _put(target[name], value)
        else:
            target[name] = value


def _n_kept(old: list[Json], new: list[Json]) -> int:
    n = 0
    for a, b in zip(old, new, strict=False):
        if a["type"] != b["type"]:
            break
        n += 1
    return n


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        plain = one.dtype.kind not in "fc"
        return one.shape == other.shape and one.dtype == other.dtype and np.array_equal(one, other, equal_nan=not plain)
    return type(one) is type(other) and not isinstance(one, np.ndarray) and bool(one == other)


def _leave_zoomed(figure: Any, old: Json, relaid: Json) -> None:
    """Take out the limits of axes that the viewer has moved since we set them."""
    for name in [name for name in relaid if name.startswith(("xaxis", "yaxis")) and isinstance(relaid[name], dict)]:
        if not set(LIMITS) & set(relaid[name]) or name not in old:
            continue
        ours, theirs = old[name].get("range"), explicit(figure.layout[name])
        if theirs is not None and (
            ours is None or not np.allclose(np.array(ours, np.float64), np.array(theirs, np.float64))
        ):
            for limit in LIMITS:
                relaid[name].pop(limit, None)
            if not relaid[name]:
                del relaid[name]
