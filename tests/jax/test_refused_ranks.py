"""Queries of a compiled step need an agreement of all processes of a program, or rank 0."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import sightglass as sg
from sightglass.jax import log

from .queried_run import QueriedRun


def halve(x: jax.Array) -> jax.Array:
    log({"loss": (x * x).sum()})
    return x * 0.5


@pytest.mark.parametrize(
    ("rank", "ranks", "reason"),
    [
        (0, None, "Queries of compiled steps are refused in a program of 2 processes"),
        (1, None, "Queries of compiled steps are refused in a program of 2 processes"),
        (1, sg.Ranks(agree=lambda data: data), "Queries of compiled steps go to rank 0"),
    ],
)
def test_a_query_that_other_processes_would_not_compile_is_refused(
    monkeypatch: pytest.MonkeyPatch, rank: int, ranks: sg.Ranks | None, reason: str
) -> None:
    monkeypatch.setenv("RANK", str(rank))
    monkeypatch.setenv("WORLD_SIZE", "2")
    queried = QueriedRun(ranks=ranks)
    try:
        step = queried.live(jax.jit(halve), jnp.arange(3.0))
        assert reason in queried.refused(lambda: step(jnp.arange(3.0)), "batch.loss")
    finally:
        queried.close()
