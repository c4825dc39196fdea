"""A Plotly figure as plain data, traces and layout, and updates of a figure in few messages.

Theory of operation
    Figure data is built without Plotly, so it can be built anywhere and compared. `refresh` updates a figure from one
    state to the next: it changes the attributes that differ of traces with the same type and index, removes and adds
    the other traces, and sends all changes to a widget in one message. The viewer's own changes stay: the limits of
    zoomed axes, and lines hidden in the legend, because unchanged attributes are not sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from .style import Json, bare

if TYPE_CHECKING:
    from plotly.basedatatypes import BaseFigure, BasePlotlyType

LIMITS: Final = ("range", "autorange")


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureData:
    """A figure as data.

    Attributes:
        traces: The traces, as Plotly attributes.
        layout: The layout, as Plotly attributes.
        notices: Notices of the painter, one sentence each.
    """

    traces: list[Json] = field(default_factory=list)
    layout: Json = field(default_factory=dict)
    notices: tuple[str, ...] = ()


def refresh(figure: BaseFigure, old: FigureData, new: FigureData) -> FigureData:
    """Update a figure from one state to the next, and return the state that it shows then.

    Args:
        figure: A `plotly.graph_objects.Figure` or `FigureWidget` that shows `old`.
        old: Its current state.
        new: The state to show.
    """
    kept = _n_kept(old.traces, new.traces)
    restyled = [changed(a, b) for a, b in zip(old.traces[:kept], new.traces[:kept], strict=True)]
    # An axis cannot be removed from a figure: hide it.
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
    """Return the changes that turn one tree of attributes into another; `None` removes an attribute.

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


def explicit(axis: BasePlotlyType) -> tuple[float, float] | None:
    """Return the limits set on an axis of a figure, by this module or the viewer; `None` if it autoscales."""
    props = axis.to_plotly_json()
    limits = props.get("range")
    if props.get("autorange") is True or limits is None or len(limits) != 2 or None in limits:
        return None
    return limits[0], limits[1]


def _put(target: BasePlotlyType, change: Mapping[str, Any]) -> None:
    """Set attributes. Plotly's `update` would merge lists instead of replacing them."""
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


def _same(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        plain = one.dtype.kind not in "fc"
        return one.shape == other.shape and one.dtype == other.dtype and np.array_equal(one, other, equal_nan=not plain)
    return type(one) is type(other) and not isinstance(one, np.ndarray) and bool(one == other)


def _leave_zoomed(figure: BaseFigure, old: Json, relaid: Json) -> None:
    """Drop changes to the limits of axes that the viewer has zoomed or panned."""
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
