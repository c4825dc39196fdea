"""Sources that tests fill by hand, for views in notebooks."""

from __future__ import annotations

import pytest
from tests.sources import ListSource

from sightglass.core.columns import Record


class Feed(ListSource):
    """A source."""

    def __init__(self, tag="loss", run="one"):
        self.tag, self.run = tag, run
        self.ended = False
        self.records = []
        self.n_pulled = 0

    def since(self, cursor):
        self.n_pulled += 1
        return super().since(cursor)

    def put(self, *values, step=None, **steps):
        for value in values:
            n = len(self.records)
            at = float(n if step is None else step)
            self.records.append(
                Record(tag=self.tag, index=n, step=at, wall_time=1000.0 + n, value=value, run=self.run, steps=steps)
            )
        return self


@pytest.fixture
def feed():
    return Feed
