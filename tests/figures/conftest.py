"""Shared by the tests of figures: a sink that collects, and pixels of PNGs."""

from __future__ import annotations

import numpy as np
import pytest
from tests.waiting import wait_until  # noqa: F401  for the tests of this folder

pytest.importorskip("matplotlib")
pytest.importorskip("cloudpickle")


class Caught:
    """A sink that collects its records."""

    def __init__(self):
        self.records = []
        self.n_flushed = 0

    def write(self, records):
        self.records += records

    def flush(self, timeout_s):
        self.n_flushed += 1

    @property
    def names(self):
        return [(record.tag, record.step) for record in self.records]

    def picture(self, tag, step=None):
        (record,) = [r for r in self.records if r.tag == tag and step in (None, r.step)]
        return pixels(record.value.data)


def pixels(png):
    """Read a PNG; shape (height, width, 4)."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    from io import BytesIO

    from PIL import Image

    with Image.open(BytesIO(png)) as image:
        return np.asarray(image.convert("RGBA"))


@pytest.fixture
def caught():
    return Caught()
