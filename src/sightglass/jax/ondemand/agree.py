"""`agree`: the broadcast that `sightglass.Ranks` needs in a JAX program of several processes."""

from __future__ import annotations

import numpy as np
from jax.experimental import multihost_utils


def agree(data: bytes) -> bytes:
    """Return what rank 0 called this with, on every rank; for `sightglass.Ranks(agree=…)`.

    All ranks must call it at the same point of the program. It runs one or two small collectives on the devices, so it
    costs a step about as much as any other collective that waits.

    Args:
        data: Any bytes; those of the other ranks do not matter.
    """
    n_bytes = int(multihost_utils.broadcast_one_to_all(np.int32(len(data))))
    buffer = np.zeros(n_bytes, np.uint8)
    buffer[: min(n_bytes, len(data))] = np.frombuffer(data, np.uint8)[:n_bytes]
    return bytes(np.asarray(multihost_utils.broadcast_one_to_all(buffer)).astype(np.uint8))
