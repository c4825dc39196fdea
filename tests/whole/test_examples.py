"""The examples do what they say: they assert it themselves, and end by themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = {path.stem: path for path in FOLDER.glob("*.py")} | {
    path.parent.name: path for path in FOLDER.glob("*/train.py")
}
NEEDS = {
    "char_transformer": ("flax", "optax", "seaborn", "wandb", "yaml"),
    "torch_digits": ("torch",),
    "lightning_digits": ("torch", "lightning"),
    "hf_trainer_tiny": ("torch", "transformers", "accelerate"),
    "partial_fit": ("sklearn",),
    "tune_live": ("optuna",),
    "hub_halving": ("nats", "cryptography"),
}


@pytest.mark.slow
@pytest.mark.timeout(500)
@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_example(name: str) -> None:
    for package in ("jax",) if name.startswith("jax_") else NEEDS.get(name, ()):
        pytest.importorskip(package)
    result = subprocess.run(
        [sys.executable, str(EXAMPLES[name])], capture_output=True, text=True, timeout=400, check=False
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    assert result.stdout.strip()
