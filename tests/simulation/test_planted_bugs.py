"""The simulation finds a bug of every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from .__main__ import failing
from .planted import BUGS, Planted

N_SEEDS = 60  # each bug is found within a third of them


@pytest.mark.parametrize(("bug", "features"), BUGS, ids=[bug.__name__ for bug, _ in BUGS])
def test_a_planted_bug_is_found(bug: Callable[[], Planted], features: dict[str, Any]) -> None:
    with bug():
        assert any(failing(range(seed, seed + 1), **features) for seed in range(N_SEEDS))
