"""What the tests of the Matplotlib surface share: sources that hold records, displays for real windows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.display import virtual_display
from tests.sources import ListSource

from sightglass.core.columns import Record


class Stub(ListSource):
    """A source that holds records, and takes more."""

    def __init__(self, *values, tag="loss", ended=True, **fields):
        self.tag, self.ended, self.records, self.fields = tag, ended, [], fields
        self.put(*values)

    def put(self, *values):
        for value in values:
            i = len(self.records)
            fields = {"run": "mnist", "wall_time": 1.795e9 + i, **self.fields}
            self.records.append(Record(tag=self.tag, index=i, step=float(i), value=value, **fields))


@pytest.fixture
def stub():
    return Stub


@pytest.fixture(autouse=True)
def without_display(monkeypatch):
    """Draw without windows, and leave no figure behind."""
    plt = pytest.importorskip("matplotlib.pyplot")
    monkeypatch.setenv("MPLBACKEND", "agg")
    plt.switch_backend("agg")
    yield
    plt.close("all")


@pytest.fixture(scope="session")
def display() -> Iterator[str]:
    """Give the name of a virtual display."""
    with virtual_display() as name:
        yield name
