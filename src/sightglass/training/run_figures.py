"""The figures of a run: drawn in another process, and logged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightglass.core.errors import warn

if TYPE_CHECKING:
    from sightglass.figures.figure_files import RunSink
    from sightglass.figures.plotter import Plotter
    from sightglass.figures.render_job import OnFull


class RunFigures:
    """Makes the plotter of a run, and the sink through which other plotters add figures to it, on first use."""

    def __init__(
        self, name: str, *, log: Callable[..., None], ended: Callable[[], bool], folder: Callable[[], Path]
    ) -> None:
        """Start without a plotter.

        Args:
            name: The run's name.
            log: Logs a figure.
            ended: Returns whether the run has ended.
            folder: Returns the run directory, which is made if need be.
        """
        self._name = name
        self._log = log
        self._ended = ended
        self._folder = folder
        self._sink: RunSink | None = None
        self._plotter: Plotter | None = None
        self._steps: dict[str, int] = {}
        self._told = False

    @property
    def sink(self) -> RunSink:
        """The sink for figures that belong to the run."""
        if self._sink is None:
            from sightglass.figures.figure_files import RunSink

            self._sink = RunSink(self._log, ended=self._ended, folder=self._folder, name=self._name)
        return self._sink

    def plot(self, name: str, fn: Callable[..., Any], *arrays: object, step: float | None, on_full: OnFull) -> None:
        """Draw a figure and log it; the default step counts the figures of a name."""
        if self._plotter is None:
            from sightglass.figures.plotter import Plotter

            self._plotter = Plotter.of_run(self.sink)
        at = self._steps.get(name, 0) if step is None else step
        self._plotter.plot(fn, *arrays, step=at, name=name, on_full=on_full)
        if step is None:
            self._steps[name] = int(at) + 1
        if not self._told and self._plotter.statistics().n_dropped:
            self._told = True
            self._warn("figures come faster than they are drawn, so older ones make room; on_full='spill' keeps all")

    def close(self) -> None:
        """Wait for the figures that are being drawn, as long as some are finished."""
        if self._sink is not None:
            self._sink.drain()
        if self._plotter is not None:
            self._plotter.close()
            counts = self._plotter.statistics()
            if counts.n_dropped:
                self._warn(f"{counts.n_dropped:,} of {counts.n_events:,} figures were dropped for lack of room")

    def _warn(self, what: str) -> None:
        warn(f"Run {self._name!r}: {what}")
