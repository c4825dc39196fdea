"""Schedules of a fixed range of seeds break no law, and a seed gives one history.

`SIMULATION_SEEDS=1000:3000` runs others; `python -m tests.simulation 1234` replays one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .__main__ import failing
from .planted import THINNED
from .schedule import Schedule

FIRST, LAST = map(int, os.environ.get("SIMULATION_SEEDS", "0:100").split(":"))
EACH = 25  # seeds of a test, so that a parallel run shares them out


@pytest.mark.parametrize("first", range(FIRST, LAST, EACH))
def test_no_law_is_broken(first: int) -> None:
    found = failing(range(first, min(first + EACH, LAST)))
    assert not found, "\n".join(f"python -m tests.simulation {seed}  # {broken[0]}" for seed, broken in found)


@pytest.mark.parametrize("first", range(FIRST, LAST // 2, EACH))
def test_no_law_is_broken_where_streams_are_thinned_and_a_slow_client_is_cut_off(first: int) -> None:
    found = failing(range(first, min(first + EACH, LAST)), **THINNED)
    assert not found, "\n".join(f"{seed}: {broken[0]}" for seed, broken in found)


def trace(seed: int) -> list[tuple[float, str]]:
    schedule = Schedule(seed)
    schedule.run()
    return schedule.world.trace


def test_a_seed_gives_one_history() -> None:
    assert trace(3) == trace(3) != trace(4)


@pytest.mark.slow
def test_a_seed_gives_one_history_whatever_the_hashes() -> None:
    def replayed(hash_seed: str) -> bytes:
        command = [sys.executable, "-m", "tests.simulation", "4"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        root = Path(__file__).parents[2]
        return subprocess.run(command, cwd=root, env=environment, capture_output=True, check=True).stdout

    first = replayed("1")
    assert first.count(b"\n") > 50
    assert replayed("2") == first
