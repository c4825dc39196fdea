"""The overviews of the series that charts show, kept for their next requests."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from sightglass.core.unpatched import threading
from sightglass.storage.format.block import Key

from .number_series import NumberSeries
from .scalar_lines import Overview

MAX_BYTES: Final = 64 * 2**20  # of all overviews: those of the 100 longest series on a page


class Overviews:
    """A cache of overviews; the least recently used are dropped first."""

    def __init__(self) -> None:
        self._overviews: OrderedDict[tuple[str, Key], tuple[Overview, int]] = OrderedDict()
        self._n_bytes = 0
        self._lock = threading.Lock()

    def get(self, run: str, series: NumberSeries, generation: int) -> Overview:
        """Return the current overview of a series. The caller holds the lock of the series.

        Args:
            run: The key of the run.
            series: The series.
            generation: The generation of the recording, as in `OpenFiles`.

        Raises:
            Problem: The values are not numbers.
        """
        place = (run, series.key)
        with self._lock:
            overview, n_bytes = self._overviews.pop(place, (None, 0))
            self._n_bytes -= n_bytes
        if overview is None or overview.generation != generation:
            overview = Overview(generation)
        overview.extend(series)
        with self._lock:
            self._overviews[place] = (overview, overview.n_bytes)
            self._n_bytes += overview.n_bytes
            while self._n_bytes > MAX_BYTES and len(self._overviews) > 1:
                self._n_bytes -= self._overviews.popitem(last=False)[1][1]
        return overview
