"""The initial values of a model in JAX; see `sightglass.training.evaluation.initial`."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from sightglass.core.errors import UnreadableError
from sightglass.jax.pytree import PyTree
from sightglass.training.evaluation.initial import keep_initial
from sightglass.training.process_runs import current
from sightglass.training.run import Run, wiring


def initial(parameters: PyTree, run: Run | None = None, *, name: str = "") -> None:
    """Keep the norm and a histogram of each parameter as it is now, for clients that come later.

    `initial.norms` and `initial.histograms` have them by the parameters' paths, such as "layers.0.weight". They are
    bounded in time and memory, and charged to the run's budget. The first ones of a name stay.

    Args:
        parameters: A tree of arrays, such as Flax's parameters or an Equinox module; other leaves are left out. Of an
            array over several processes, the piece of this one is taken. Arrays on an accelerator are left out.
        run: The run; by default the current one. Without any, nothing is kept.
        name: The name of the model, if there are several: then ask `initial.{name}.norms`.
    """
    run = run or current()
    if run is not None and not run.disabled and not run.ended:
        leaves = jax.tree_util.tree_leaves_with_path(parameters)
        named = {".".join(map(_part, path)): leaf for path, leaf in leaves if isinstance(leaf, jax.Array | np.ndarray)}
        keep_initial(wiring(run).telemetry, name, lambda: name, named, read=read_host)


def read_host(array: Any) -> tuple[Any, bool]:
    """Return an array of the host, or this process's piece of it.

    Raises:
        UnreadableError: It is on an accelerator, which would have to be waited for.
    """
    if isinstance(array, jax.Array):
        if any(device.platform != "cpu" for device in array.devices()):
            raise UnreadableError("it is on an accelerator")
        array = array if array.is_fully_addressable else array.addressable_data(0)
    return np.asarray(array), True


def _part(key: Any) -> str:
    """Return a part of a path: a key, an index or the name of a field."""
    return str(next(getattr(key, name) for name in ("key", "idx", "name") if hasattr(key, name)))
