"""`WandBLogger`: one run for each lane, named after it."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import pytest

from sightglass.core.errors import MissingExtraError
from sightglass.jax import log
from sightglass.jax.loggers import WandBLogger

from ...storage.wandb_files import read_all  # noqa: TID252  tests are no package
from .programs import train

pytest.importorskip("wandb")
OFFLINE = {"mode": "offline", "settings": {"silent": True}}


def test_seeds_are_a_group_of_runs(tmp_path):
    with WandBLogger(name="ppo", config={"lr": 0.1}, dir=str(tmp_path), **OFFLINE) as logger:
        jax.vmap(lambda seed: logger.tap(train, logger.init(seed))(1.0))(jnp.arange(2))
    runs = read_all(tmp_path)
    assert [(run.name, run.group) for run in runs] == [("ppo-0", "ppo"), ("ppo-1", "ppo")]
    assert [(run.config["lr"], run.config["lane"]) for run in runs] == [(0.1, "0"), (0.1, "1")]
    assert [run.series("loss", "epoch") for run in runs] == [[(0, 1.0), (1, 2.0), (2, 3.0)]] * 2


def test_tags_of_one_step_are_one_row_in_any_order(tmp_path):
    def f(x):
        jax.lax.scan(lambda c, i: (log({"a": i}, step=10 - i), (c, i))[1], x, jnp.arange(3))
        jax.lax.scan(lambda c, i: (log({"b": c}, step=10 - i), (c, i))[1], x, jnp.arange(3))
        return x

    with WandBLogger(dir=str(tmp_path), **OFFLINE) as logger:
        logger.spool(f, logger.init())(1.5)
    (run,) = read_all(tmp_path)
    assert run.rows == [{"step": 10 - i, "a": i, "b": 1.5} for i in range(3)]
    assert run.axes["b"] == "step"
    assert run.series("a") == [(10, 0), (9, 1), (8, 2)], "W&B itself would have dropped two of these"


def test_a_run_begins_with_the_state(tmp_path):
    logger = WandBLogger(dir=str(tmp_path), name="r", **OFFLINE)
    jax.vmap(logger.init)(jnp.arange(2))
    logger.flush()
    assert len(list(tmp_path.glob("wandb/offline-run-*"))) == 2
    logger.close()
    assert [run.rows for run in read_all(tmp_path)] == [[], []]


def test_without_the_package_the_error_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingExtraError, match=r"'wandb'.*'sightglass"):
        WandBLogger()
