"""Logs in runs of Weights & Biases."""

from __future__ import annotations

from typing import Any

from sightglass.storage import wandb

from .record_sink import RecordSink, SinkLogger


class WandBLogger(SinkLogger):
    """Writes into runs of W&B that it begins itself, one for each lane, and finishes when it is closed.

    Steps are columns, and "step" is the x axis of every chart. Arrays become histograms of their elements.

    Args:
        **wandb_init_kwargs: As for `wandb.init`. Of several lanes, each run's name has the lane's behind it, and the
            runs are a group of the given name, unless there are other ones given.

    Raises:
        MissingExtraError: At the call: `wandb` is not installed.
    """

    def __init__(self, **wandb_init_kwargs: Any) -> None:
        wandb.load()  # now, which takes a moment: at the program's end there is no loading any more
        self._options = wandb_init_kwargs
        super().__init__()

    def open(self, name: str) -> RecordSink:
        """Begin the W&B run of a lane."""
        options = dict(self._options)
        if name:
            shared = options.get("name")
            options["name"] = f"{shared}-{name}" if shared else name
            options.setdefault("group", shared)
            if not isinstance(options.get("config"), str):
                options["config"] = {**(options.get("config") or {}), "lane": name}
        return wandb.WandB.begin(**options)
