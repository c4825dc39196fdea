"""Programs of several processes: which rank this is, of which program, and the store that its launcher keeps."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final, NamedTuple, Protocol

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
    if _jax_client() is not None:
        jax = sys.modules["jax"]
        return int(jax.process_index()), int(jax.process_count())
    launchers = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))
    return _numbers(launchers) or (0, 1)


def is_first_rank() -> bool:
    """Return whether this process writes for its program."""
    return rank_and_size()[0] == 0


# A store of keys that the launcher keeps for all ranks: that of `torch.distributed` or of JAX's coordinator. No library
# is imported for it: the program has done so, or there is no store.

STORE_S: Final = 10.0  # an answer takes a millisecond; a store that is silent for longer is gone


class LauncherStore(Protocol):
    """Keys that all ranks of a program see. Each call is one message to the process that keeps them.

    Raises:
        Exception: Any call, if the store is gone.
    """

    def put(self, key: str, value: bytes) -> bytes:
        """Set a key unless it is set already; return the value that stands."""

    def get(self, key: str) -> bytes | None:
        """Return the value of a key; `None` if it is not set."""

    def delete(self, key: str) -> None:
        """Forget a key, if it is set."""

    def close(self) -> None:
        """Give back what the connection takes; it does not fail."""


def launcher_store() -> LauncherStore | None:
    """Return the store of this program's launcher; `None` if there is none, or if it is not there yet."""
    dist: Any = sys.modules.get("torch.distributed")
    found = _torch_store(dist) if dist is not None and dist.is_available() else None
    if found is not None:  # else it may only be imported, as in a JAX program that loads its data by PyTorch
        return found
    client = _jax_client()
    return None if client is None or not hasattr(client, "key_value_try_get_bytes") else _JaxStore(client)


def _torch_store(dist: Any) -> LauncherStore | None:
    """Return a connection to the store of `torch.distributed`, or of torchrun, beside the program's own."""
    keeps = dist.is_initialized() and getattr(dist.distributed_c10d, "_get_default_store", None)
    if keeps:
        store = keeps()
        while hasattr(store, "underlying_store"):
            store = store.underlying_store
        host, port = getattr(store, "host", ""), getattr(store, "port", 0)
    elif os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        host, port = os.environ.get("MASTER_ADDR", ""), int(os.environ.get("MASTER_PORT", "0"))
    else:
        return None
    # One of its own: a rank that waits for a key locks the connection that it uses.
    return _TorchStore(dist, host, port) if host and port else None  # else it is a file, or of the threads of a process


class _TorchStore:
    """A `torch.distributed.TCPStore`, whose `compare_set` takes text.

    It writes a page to stderr when it finds its server gone, as at the end of every program whose rank 0 ends first. A
    second connection, on which nothing is sent, tells that before.
    """

    def __init__(self, dist: Any, host: str, port: int) -> None:
        self._silent = socket.create_connection((host, port), STORE_S)
        self._silent.setblocking(False)
        self._store = dist.TCPStore(host, port, None, False, timedelta(seconds=STORE_S), wait_for_workers=False)

    def _check(self) -> None:
        """Raise an error if the server is gone."""
        try:
            ended = not self._silent.recv(1)
        except BlockingIOError:
            return
        if ended:
            raise ConnectionResetError("the process that keeps the store of torch.distributed has ended")

    def put(self, key: str, value: bytes) -> bytes:
        self._check()
        return base64.b64decode(self._store.compare_set(key, "", base64.b64encode(value).decode()))

    def get(self, key: str) -> bytes | None:
        self._check()
        return base64.b64decode(self._store.get(key)) if self._store.check([key]) else None

    def delete(self, key: str) -> None:
        self._check()
        self._store.delete_key(key)

    def close(self) -> None:
        self._silent.close()


class _JaxStore:
    """The keys and values of JAX's coordinator."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def put(self, key: str, value: bytes) -> bytes:
        try:
            self._client.key_value_set_bytes(key, value)
        except Exception:  # of a class of JAX's own, which is not imported here; raised again unless the key is set
            stands = self.get(key)
            if stands is None:
                raise
            return stands
        return value

    def get(self, key: str) -> bytes | None:
        try:
            return bytes(self._client.key_value_try_get_bytes(key))
        except Exception as error:  # likewise
            if "NOT_FOUND" not in str(error):
                raise
            return None

    def delete(self, key: str) -> None:
        with contextlib.suppress(Exception):  # a key that is not set is an error here
            self._client.key_value_delete(key)

    def close(self) -> None:
        return


def _jax_client() -> Any:
    """Return the client of JAX's coordinator; `None` without one."""
    state = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    return getattr(state, "client", None)
