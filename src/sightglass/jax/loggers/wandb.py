"""Logs into runs of Weights & Biases."""

from __future__ import annotations

from typing import Any

from sightglass.storage.record_sink import RecordSink
from sightglass.storage.wandb import WandB
from sightglass.storage.wandb_types import load

from .record_sink import SinkLogger


class WandBLogger(SinkLogger):
    """Writes into W&B runs of its own, one for each lane; closing the logger finishes them.

    Steps are columns, and "step" is the x axis of every chart. Arrays become histograms of their elements.

    Args:
        **wandb_init_kwargs: Arguments of `wandb.init`. For named lanes, the lane's name is appended to `name`, and
            `group` defaults to `name`.

    Raises:
        MissingExtraError: `wandb` is not installed.
    """

    def __init__(self, **wandb_init_kwargs: Any) -> None:
        load()  # now, because Python cannot import it while the interpreter ends
        self._options = wandb_init_kwargs
        super().__init__()

    def open(self, name: str) -> RecordSink:
        """Begin a W&B run for a lane."""
        options = dict(self._options)
        if name:
            shared = options.get("name")
            options["name"] = f"{shared}-{name}" if shared else name
            options.setdefault("group", shared)
            if not isinstance(options.get("config"), str):
                options["config"] = {**(options.get("config") or {}), "lane": name}
        return WandB.begin(**options)
