"""The initial values of a watched module; see `sightglass.training.evaluation.initial`.

Of a distributed tensor they are those of this process's piece. A device is not waited for: what it computes is read
when somebody asks.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any

import torch

from sightglass.core.program_values.array_data import plain_array
from sightglass.training.evaluation import initial
from sightglass.training.evaluation.telemetry import Telemetry

from .observables import Shared, is_made, local, parameters


def keep_initial(module: torch.nn.Module, telemetry: Telemetry, name: str) -> None:
    """Keep the initial values of a module in its run, unless it was watched there before."""
    n_unmade = sum(not is_made(p) for p in module.parameters())
    note = f"{n_unmade:,} parameters had no shape yet." if n_unmade else ""
    initial.keep_initial(
        telemetry, name, weakref.ref(module), parameters(module), read=_read, note=note,
        listed=lambda values: Shared(partial(dict, values)),
    )  # fmt: skip


def _read(parameter: torch.Tensor) -> tuple[Any, bool]:
    x = local(parameter).detach()
    return plain_array(x, "torch"), x.is_cpu
