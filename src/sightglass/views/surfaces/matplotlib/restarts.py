"""Thin dashed rules where a run began again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.text import Annotation

from sightglass.views.palette import AXIS
from sightglass.views.summaries import RESTARTED

from .layout import remove_artists

Z_RULE: Final = 2.9  # below the lines
MAX_RULES: Final = 50  # more would hide the lines
APART: Final = 0.12  # of the axis: labels that are nearer would cover each other


class RestartRules:
    """Draws a rule for each restart, with a label where there is room."""

    def __init__(self, axes: Axes) -> None:
        self._axes = axes
        self._rules = LineCollection(
            [], colors=AXIS, linewidths=0.8, linestyles=[(0, (4, 3))], zorder=Z_RULE,
            transform=axes.get_xaxis_transform(),
        )  # fmt: skip
        axes.add_collection(self._rules, autolim=False)
        self._labels: list[Annotation] = []
        self._shown: tuple[float, ...] = ()

    @property
    def artists(self) -> list[Artist]:
        """The artists, in drawing order."""
        return [self._rules, *self._labels]

    def paint(self, restarts: Sequence[float]) -> None:
        """Show restarts at these x."""
        low, high = sorted(self._axes.get_xlim())
        xs = tuple(x for x in restarts[-MAX_RULES:] if low <= x <= high)
        labelled = (*xs, low, high)
        if labelled == self._shown:
            return
        self._shown = labelled
        self._rules.set_segments([np.array([(x, 0.0), (x, 1.0)]) for x in xs])
        remove_artists(self._labels)
        self._labels = []
        to_axes = (self._axes.transData + self._axes.transAxes.inverted()).transform
        last = np.inf
        for x in reversed(xs):  # the newest first
            at = to_axes((x, 1.0))[0]
            if last - at < APART:
                continue
            last, left = at, at > 1 - APART
            self._labels.append(
                self._axes.annotate(
                    RESTARTED, (x, 1.0), xycoords=self._axes.get_xaxis_transform(), xytext=(-3 if left else 3, -2),
                    textcoords="offset points", ha="right" if left else "left", va="top", fontsize=7.5, color=AXIS,
                    zorder=Z_RULE,
                )
            )  # fmt: skip
            self._labels[-1].set_in_layout(False)

    def remove(self) -> None:
        """Remove the artists."""
        remove_artists(self.artists)
