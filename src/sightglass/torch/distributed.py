"""Programs of several processes: the broadcast that `sightglass.Ranks` needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
import torch.distributed as dist

HEAD_BYTES: Final = 8  # the length, an uint64
ROOM_BYTES: Final = 248  # most commands fit the first broadcast, 256 bytes with the length


def agree() -> Callable[[bytes], bytes]:
    """Return the function for `sightglass.Ranks(agree=…)`: on every rank it returns the argument of rank 0.

    All ranks call `agree` once, after `init_process_group`; they call the function at the same events. It has a process
    group of its own on the hosts, so it waits for no device: one small broadcast per event, two for large commands.

    Raises:
        RuntimeError: `init_process_group` was not called.
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError("Expected torch.distributed.init_process_group to be called before agree()")
    group = dist.new_group(backend="gloo")

    def broadcast(data: bytes) -> bytes:
        first = torch.zeros(HEAD_BYTES + ROOM_BYTES, dtype=torch.uint8)
        head = len(data).to_bytes(HEAD_BYTES, "little") + data[:ROOM_BYTES]
        first[: len(head)] = torch.frombuffer(bytearray(head), dtype=torch.uint8)
        dist.broadcast(first, src=0, group=group)
        received = bytes(first.numpy())
        n_bytes = int.from_bytes(received[:HEAD_BYTES], "little")
        if n_bytes <= ROOM_BYTES:
            return received[HEAD_BYTES : HEAD_BYTES + n_bytes]
        rest = torch.zeros(n_bytes, dtype=torch.uint8)
        if dist.get_rank() == 0:
            rest[:] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        dist.broadcast(rest, src=0, group=group)
        return bytes(rest.numpy())

    return broadcast
