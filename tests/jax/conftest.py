"""Four devices for `shard_map`, a check that this JAX computes what it should, and room for the next file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

jax.config.update("jax_num_cpu_devices", 4)  # fails where a test file that was collected before ran something

from .queried_run import QueriedRun  # noqa: E402  it uses JAX


@pytest.fixture(autouse=True, scope="session")
def sane() -> None:
    """Fail early where a jaxlib miscompiles sums of products."""
    found = float(jax.jit(lambda x: (x @ jnp.ones((64, 64))).sum())(jnp.ones((64, 64))))
    assert found == 262144, "set XLA_FLAGS=--xla_cpu_experimental_ynn_fusion_type="


@pytest.fixture(autouse=True, scope="module")
def forgetful() -> Iterator[None]:
    """Drop the programs of a file after it: those of all files together take gigabytes."""
    yield
    jax.clear_caches()


@pytest.fixture
def queried(tmp_path: Path) -> Iterator[QueriedRun]:
    """Give a run, and clients of it."""
    queried = QueriedRun(dir=tmp_path)
    yield queried
    queried.close()
