"""The verdict of a benchmark's row: an estimate that is too uncertain is neither met nor missed."""

from __future__ import annotations

import pytest
from bench.row import Row


@pytest.mark.parametrize(
    ("value", "interval", "by_distance", "verdict"),
    [
        (1.4, None, False, ""),
        (1.6, None, False, "over"),
        (1.4, (0.8, 2.0), False, ""),
        (1.4, (0.8, 2.4), False, "undecided"),
        (1.4, (1.36, 1.44), True, ""),
        (1.4, (0.8, 2.0), True, "undecided"),
        (1.0, (0.9, 1.3), True, ""),
        (3.0, (2.5, 3.5), True, "over"),
        (1.0, (0.9, float("inf")), True, "undecided"),
    ],
)
def test_a_row_is_decided_only_by_a_narrow_interval(value, interval, by_distance, verdict) -> None:
    assert Row("what", value, "", 1.5, interval, by_distance).verdict == verdict
