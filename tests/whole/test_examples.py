"""The examples do what they say: they assert it themselves, and end by themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


def test_there_are_examples() -> None:
    assert {path.stem for path in EXAMPLES} >= {
        "vanishing_gradients", "supervise_jobs", "progressive_fit", "jax_digits", "jax_seeds", "jax_rl_loop"
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path: Path) -> None:
    if path.stem.startswith("jax_"):
        pytest.importorskip("jax")
    result = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, timeout=200, check=False)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    assert result.stdout.strip()
