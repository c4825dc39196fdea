"""Programs of several processes: which rank this is, of which program, and whether it takes commands."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from typing import Final, NamedTuple

Agree = Callable[[bytes], bytes]
"""A broadcast: every rank calls it with some bytes, and it returns the bytes of rank 0 to each."""


# What launchers tell of the program that a process belongs to; `RANK` and its like alone are the same in every program.
JOB_VARIABLES: Final = (
    "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "JAX_COORDINATOR_ADDRESS", "SLURM_JOB_ID", "SLURM_STEP_ID",
    "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID",
)  # fmt: skip


class RankPlace(NamedTuple):
    """The place of a process in a rank group.

    Attributes:
        group: The name of the group.
        rank: Its number among the ranks.
        size: How many ranks there are; 1 outside of a group.
        job: What tells this program from another one of the same group's name.
        declared: Whether the program itself says so, and not the environment.
    """

    group: str
    rank: int = 0
    size: int = 1
    job: str = ""
    declared: bool = False


def place_of(name: str, *, group: str = "", rank: int | None = None, size: int | None = None) -> RankPlace:
    """Return the place of this process in a rank group: what the program says, else what launchers say.

    Args:
        name: The run's name, and that of the group if no other is given.
        group: The name of the group.
        rank: The rank of this process.
        size: The number of ranks.
    """
    declared = rank is not None and size is not None
    if rank is None or size is None:
        rank, size = rank_and_size()
    if size <= 1 and not declared:
        rank, size = _numbers((("SLURM_PROCID", "SLURM_NTASKS"),)) or (0, 1)
    return RankPlace(group or name, rank, size, _job() if size > 1 else "", declared)


def _job() -> str:
    """Return what the ranks of one program have in common: what its launcher says, else their parent process."""
    said = [f"{name}={os.environ[name]}" for name in JOB_VARIABLES if os.environ.get(name)]
    return " ".join(said) or f"parent {os.getppid()} at {socket.gethostname()}"


def _numbers(pairs: tuple[tuple[str, str], ...]) -> tuple[int, int] | None:
    for rank, size in pairs:
        if os.environ.get(rank, "").isdigit() and os.environ.get(size, "").isdigit():
            return int(os.environ[rank]), int(os.environ[size])
    return None


def rank_and_size() -> tuple[int, int]:
    """Return the rank of this process and the number of ranks, from PyTorch, JAX or the environment of launchers.

    Slurm's own variables do not count: `srun` also starts programs that know nothing of each other.
    """
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_available() and dist.is_initialized():
        return int(dist.get_rank()), int(dist.get_world_size())
    jax = sys.modules.get("jax")
    if jax is not None and "jax._src.distributed" in sys.modules:
        state = getattr(sys.modules["jax._src.distributed"], "global_state", None)
        if getattr(state, "client", None) is not None:
            return int(jax.process_index()), int(jax.process_count())
    launchers = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))
    return _numbers(launchers) or (0, 1)


def is_first_rank() -> bool:
    """Return whether this process writes for its program."""
    return rank_and_size()[0] == 0


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
