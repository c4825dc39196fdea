"""Each example is in the list of examples, and those that the documentation speaks of are there."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parents[2] / "examples"


def test_each_example_is_in_the_list_of_examples() -> None:
    names = {path.stem for path in FOLDER.glob("*.py")} | {path.parent.name for path in FOLDER.glob("*/train.py")}
    assert names >= {
        "vanishing_gradients", "supervise_jobs", "progressive_fit", "jax_digits", "jax_seeds", "jax_rl_loop", "jax_ppo",
        "char_transformer", "torch_digits", "lightning_digits", "hf_trainer_tiny", "http_server", "asyncio_service",
        "simulation", "data_pipeline", "partial_fit", "halving", "tune_live", "hub_halving",
    }  # fmt: skip
    listed = (FOLDER / "README.md").read_text()
    assert [name for name in names if f"[{name}]" not in listed] == []
