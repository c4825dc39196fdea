"""Charts of several tags that TensorBoard's files ask for."""

from __future__ import annotations

from pathlib import Path

import pytest


def test_custom_scalars_are_charts_of_the_run(page):
    writers = pytest.importorskip("torch.utils.tensorboard")
    folder = Path("runs") / "logs"
    with writers.SummaryWriter(str(folder)) as writer:
        writer.add_custom_scalars(
            {
                "Both": {
                    "loss": ["Multiline", ["loss/.*"]],
                    "accuracy": ["Margin", ["accuracy", "low", "high"]],
                    "no such tags": ["Multiline", ["(a+)+$", "nope"]],
                }
            }
        )
        for tag in ("loss/test", "loss/train", "accuracy", "low", "high", "aaaa"):
            writer.add_scalar(tag, 1.0, 0)
    key = page.runs()["logs"]["key"]
    assert page.get(f"/runs/{key}/tags").json()["charts"] == [
        {"category": "Both", "title": "loss", "tags": ["loss/test", "loss/train"]},
        {"category": "Both", "title": "accuracy", "tags": ["accuracy", "low", "high"]},
    ]
    assert page.get(f"/runs/{key}").json()["not_shown"] == {}
