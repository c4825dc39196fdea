"""Programs of other trackers with ours in their place: how many of forty record what they record with W&B itself."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.trackers import wandb_twins


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    with tempfile.TemporaryDirectory(prefix="sgb") as folder:
        told = wandb_twins.both(Path(folder))
        found = {name: wandb_twins.differences(Path(folder), told, name) for name in wandb_twins.PROGRAMS}
    n_different = sum(map(bool, found.values()))
    yield "W&B programs with equal series, config and summary", len(found) - n_different, "", None
    yield "  that record something else", n_different, "", 0.0
    yield "  tags that differ on purpose", len(wandb_twins.ON_PURPOSE), "", None
