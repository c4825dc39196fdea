"""Lists of pictures become one grid; other lists stay what they are."""

from __future__ import annotations

import numpy as np
import pytest

from sightglass.core.columns import Record
from sightglass.core.values import Image, Images
from sightglass.views.choose import form_of
from sightglass.views.frames import grid_of, is_grid, with_grid

EIGHT = np.arange(64.0).reshape(8, 8)


@pytest.mark.parametrize(
    "value",
    [
        [EIGHT, EIGHT],
        [(EIGHT, 3, 0.25), (EIGHT, 4, 0.5)],
        [(EIGHT, "three")],
        [Image(EIGHT / 64, "a"), Image(EIGHT / 64, "b")],
        [np.zeros((4, 5, 3), np.uint8)],
    ],
    ids=["matrices", "captions", "text", "images", "bytes"],
)
def test_lists_of_pictures_are_grids(value):
    assert is_grid(value)
    assert form_of(value).kind == "images"
    assert form_of(value).length == len(value)
    assert len(grid_of(value).value) == len(value)


@pytest.mark.parametrize(
    "value",
    [
        [],
        [1.0, 2.0],
        [EIGHT, EIGHT[:4]],
        [EIGHT, 3],
        [(EIGHT, EIGHT)],
        [np.ones(3), np.ones(3)],
        [np.ones((1, 9))],
        (EIGHT, EIGHT),
        EIGHT,
        [()],
        ["a"],
    ],
    ids=str,
)
def test_others_are_not(value):
    assert not is_grid(value)
    assert form_of(value).kind != "images"


def test_captions_join_the_other_items_of_the_tuple():
    assert grid_of([(EIGHT, 3, 0.123456), (EIGHT, np.int64(4), np.float32(0.5))]).captions == ("3, 0.1235", "4, 0.5")
    assert grid_of([EIGHT]).captions == ()
    assert grid_of([Image(EIGHT, "seven")]).captions == ("seven",)


def test_numbers_beyond_those_of_pictures_are_scaled_all_alike():
    grid = grid_of([EIGHT, 2 * EIGHT])
    assert float(grid.value.max()) == 1
    assert float(grid.value[0].max()) == 0.5
    bright = grid_of([EIGHT / 100])
    np.testing.assert_allclose(bright.value[0], EIGHT / 100, rtol=1e-6)
    gap = EIGHT.copy()
    gap[0, 0] = np.nan
    assert float(np.nanmax(grid_of([gap]).value)) == 1


def test_a_record_keeps_the_rest():
    record = Record(tag="worst", index=3, step=7, wall_time=1.0, value=[(EIGHT, 1)])
    made = with_grid(record)
    assert isinstance(made.value, Images)
    assert (made.tag, made.index, made.step) == ("worst", 3, 7)
    plain = Record(tag="loss", index=3, step=7, wall_time=1.0, value=0.5)
    assert with_grid(plain) is plain
