"""Programs of several processes: which rank this is, and whether it takes commands."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

Agree = Callable[[bytes], bytes]
"""A broadcast: every rank calls it with some bytes, and it returns the bytes of rank 0 to each."""


def rank_and_size() -> tuple[int, int]:
    """Return the rank of this process and the number of ranks, from JAX or the environment of common launchers."""
    jax = sys.modules.get("jax")
    if jax is not None and "jax._src.distributed" in sys.modules:
        state = getattr(sys.modules["jax._src.distributed"], "global_state", None)
        if getattr(state, "client", None) is not None:
            return int(jax.process_index()), int(jax.process_count())
    launchers = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))
    for rank, size in launchers:
        if os.environ.get(rank, "").isdigit() and os.environ.get(size, "").isdigit():
            return int(os.environ[rank]), int(os.environ[size])
    return 0, 1


def refusal(what: str, rank: int, n_ranks: int, agree: Agree | None) -> str:
    """Return why this process refuses something that all ranks must do together; empty if it does not.

    >>> refusal("Commands", rank=1, n_ranks=2, agree=bytes)
    'Commands go to rank 0, whose run passes them to all; this is rank 1'
    """
    if n_ranks <= 1:
        return ""
    if agree is None:
        return f"{what} are refused in a program of {n_ranks} processes unless sg.Ranks(agree=…) supplies a broadcast"
    return "" if rank == 0 else f"{what} go to rank 0, whose run passes them to all; this is rank {rank}"
