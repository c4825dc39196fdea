"""Loggers that are still open when the program ends are closed then, before what they write with ends itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import sightglass as sg

from ...storage.wandb_files import environment, read_all  # noqa: TID252  tests are no package

SCRIPT = """
import jax, jax.numpy as jnp
from sightglass.jax import log
from sightglass.jax.loggers import MultiLogger, SaveLogger, WandBLogger

def train(x):
    return jax.lax.scan(lambda c, i: (log({"x": c}, step=i), (c + 1, i))[1], x, jnp.arange(1000))[0]

logger = MultiLogger(SaveLogger("saved"), WandBLogger(name="r", mode="offline", settings={"silent": True}))
program = jax.jit(jax.vmap(lambda seed: logger.tap(train, logger.init(seed))(0.0)))
program(jnp.arange(2))
"""


@pytest.mark.slow
def test_all_is_written_at_exit(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", SCRIPT],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for seed in "01":
        with sg.open(tmp_path / "saved" / seed) as run:
            assert [record.value for record in run.series("x")] == list(range(1000))
    assert [run.series("x") for run in read_all(tmp_path)] == [[(i, i) for i in range(1000)]] * 2
