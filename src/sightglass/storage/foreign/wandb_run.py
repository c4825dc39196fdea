"""What an offline run of Weights & Biases says of itself, from the beginning and the end of its file.

It needs neither NumPy nor the rest of the file, so a folder of runs is listed quickly. What was set in between, such as
a later change of the configuration, is seen when the file is opened.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, Final

from sightglass.core.errors import DamagedError, WireError
from sightglass.storage.file_system import open_regular

from .wandb_log import BLOCK_BYTES, HEADER_BYTES, LogScan, check_header
from .wandb_messages import describe

HEAD_BLOCKS: Final = 8  # the configuration comes first; large ones have tens of kilobytes
TAIL_BLOCKS: Final = 2  # the end is one small record


def read_told(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return fields of `run_file.RunFile`; empty if the file says nothing yet, or is not one of W&B.

    Raises:
        OSError: It cannot be read.
    """
    told: dict[str, Any] = {}
    with open(path, "rb", opener=open_regular) as file:
        head = file.read(HEAD_BLOCKS * BLOCK_BYTES)
        try:
            if not check_header(head[:HEADER_BYTES], Path(path)):
                return told
        except DamagedError:
            return told
        tail = max(HEAD_BLOCKS, os.fstat(file.fileno()).st_size // BLOCK_BYTES + 1 - TAIL_BLOCKS) * BLOCK_BYTES
        file.seek(tail)
        for begin, window in ((HEADER_BYTES, head[HEADER_BYTES:]), (tail, file.read(TAIL_BLOCKS * BLOCK_BYTES))):
            records = LogScan(lambda offset, length: None, begin).read(window)
            for i in range(len(records.offsets)):
                with contextlib.suppress(WireError):
                    describe(records.payload(i), told)
    return told
