"""Steps of events: numbers, which may be on a device until somebody needs them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from sightglass.core.errors import EvaluationError
from sightglass.core.guarded import exact
from sightglass.core.values import to_host, type_name

NUMBERS: Final = (int, float, np.integer, np.floating)

Tracks = Mapping[str, Any] | None
"""Further steps of an event, by name; numbers that may be on a device."""


def host_step(step: object) -> float:
    """Return a step as a number on the host; wait for the device if need be.

    Raises:
        EvaluationError: `step` is not a number.
    """
    number = to_host(step)
    if not isinstance(number, NUMBERS):
        raise EvaluationError(f"Expected a number as step, got {type_name(number)}")
    return exact(number)  # type: ignore[no-any-return]


def host_steps(steps: Tracks) -> Mapping[str, float] | None:
    """Return further steps as numbers on the host, as `host_step`."""
    return steps and {name: host_step(value) for name, value in steps.items()}
