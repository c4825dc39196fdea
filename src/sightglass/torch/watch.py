"""`watch`: clients of a run look into a module, while it trains."""

from __future__ import annotations

import torch

from sightglass.training.controls import declaring_line
from sightglass.training.run import Run, current

from .optimizer_controls import Bounds, unwrapped
from .watched_module import Watched


def watch(
    module: torch.nn.Module,
    run: Run | None = None,
    *,
    optimizer: torch.optim.Optimizer | None = None,
    event: str = "batch",
    name: str = "",
    recompile: bool = True,
    bounds: Bounds | None = None,
) -> Watched | None:
    """Let clients of a run look into a module, while it trains.

    Args:
        module: The module; it may be lazy, compiled, or wrapped for several processes.
        run: The run that clients ask; `None` for the newest one.
        optimizer: What changes the module's parameters. With it, gradients are those that its step used, and its
            settings are controls of the run: `optimizer.lr`, `optimizer.weight_decay`, with the group's name between
            where there are several.
        event: The event whose observables the module's are; `run.observe` announces it, behind the optimizer's step.
        name: The observable under which all others are, for a program of several modules; by default they stand in the
            event itself.
        recompile: Whether asking for activations may have compiled programs compiled again, once each time what is
            asked changes; otherwise such questions are refused.
        bounds: The smallest and the largest value of controls, by setting, such as `{"lr": (0.0, 0.1)}`; by default
            from 0 to 1, or to ten times the value now.

    Returns:
        What is watched, to be closed before the run ends if it should be; `None` where the run is disabled.

    Raises:
        TypeError: It is no module, or no optimizer.
        ValueError: There is no run; or a control of that name exists.
        CommandError: A setting is out of its bounds.
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"Expected a torch.nn.Module to watch, got {type(module).__name__}")
    if not isinstance(name, str) or "." in name:
        raise ValueError(f"Expected a name without dots, got {name!r}")
    optimizer = None if optimizer is None else unwrapped(optimizer)
    run = run or current()
    if run is None:
        raise ValueError("Expected a run that is live: call sightglass.init before watch, or pass it")
    if run.disabled:
        return None
    return Watched(module, run, event=event, optimizer=optimizer, name=name, recompile=recompile,
                 bounds=bounds or {}, where=declaring_line())  # fmt: skip
