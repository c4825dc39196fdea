"""Trackio's interface: `import sightglass.trackio as trackio`; all but `init` and `show` is `sightglass.wandb`'s."""

from __future__ import annotations

import os
from glob import escape
from pathlib import Path
from typing import Any

from . import wandb
from .core.process.files import runs_folder
from .storage.run_directory import safe_name
from .trackers.wandb_run import WandbRun
from .trackers.wandb_values import unkept


def init(project: str, name: str | None = None, group: str | None = None, **options: Any) -> WandbRun:
    """Begin a run, and end the one before it.

    Args:
        project: The folder of the run's directory, in that of `TRACKIO_DIR` or the folder of runs.
        name: Its name.
        group: A label, as "group: …".
        **options: `config`, and `resume`: "allow" or "must" to continue the newest run of this name. Others, such as
            `space_id`, have no effect.

    Raises:
        SightglassError: `resume` is "must", and there is no such run.
    """
    if any(options.get(place) for place in ("space_id", "server_url", "dataset_id", "bucket_id")):
        unkept("init(space_id=…)", "`sightglass ui` shows the run")
    wandb.finish()
    dir = os.environ.get("TRACKIO_DIR") or runs_folder()
    resume = None if options.get("resume") in (None, "never") else options["resume"]
    earlier = [*Path(dir, safe_name(project)).glob(f"{escape(safe_name(name))}.*")] if name and resume else []
    id = max(earlier, key=os.path.getmtime).name.rpartition(".")[2] if earlier else None
    config = options.get("config")
    return wandb.init(project=project, dir=dir, id=id, name=name, group=group, resume=resume, config=config)


def show(*arguments: Any, **options: Any) -> None:
    """Say what shows the runs."""
    unkept("show", "`sightglass ui` shows the runs")


def __getattr__(name: str) -> Any:
    return getattr(wandb, name)
