"""What stands in the files of an offline W&B run; W&B itself has no reader for them any more.

A `.wandb` file is a log as LevelDB writes it, with a header of seven bytes:
https://github.com/google/leveldb/blob/main/doc/log_format.md
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.waiting import wait_until

HEADER_BYTES = 7
BLOCK_BYTES = 32_768
FULL, LAST = 1, 4


@dataclass(frozen=True, slots=True)
class Offline:
    """An offline run.

    Attributes:
        rows: Its history; nested keys are joined by slashes, without what W&B adds.
        axes: The step metric of each tag.
        name: The run's.
        group: The run's.
        config: The run's.
    """

    rows: list[dict[str, Any]]
    axes: dict[str, str]
    name: str
    group: str
    config: dict[str, Any]

    def series(self, tag: str, step: str = "step") -> list[tuple[Any, Any]]:
        return [(row[step], row[tag]) for row in self.rows if tag in row]


def environment() -> dict[str, str]:
    """Return the environment of another program: its runs live on in W&B's process of this one if it knows of it."""
    return {name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"}


def read_all(folder: Path) -> list[Offline]:
    """Read all finished runs in a directory that was W&B's, in the order of their names."""
    return sorted(map(read, folder.glob("wandb/offline-run-*/*.wandb")), key=lambda run: run.name)


def read(path: Path) -> Offline:
    """Read a run, when W&B's other process has written it to its end."""

    def ended() -> list[Any]:
        records = list(records_in(path.read_bytes()))
        return records if any(record.HasField("exit") for record in records) else []

    records = wait_until(ended, f"the end of {path}")
    rows, axes, name, group, config = [], {}, "", "", {}
    for record in records:
        match record.WhichOneof("record_type"):
            case "history":
                items = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
                rows.append({key: json.loads(value) for key, value in items.items() if not key.startswith("_")})
            case "metric":
                axes[record.metric.name] = record.metric.step_metric
            case "run":
                name, group = record.run.display_name, record.run.run_group
                config = {item.key: json.loads(item.value_json) for item in record.run.config.update}
    return Offline([row for row in rows if row], axes, name, group, config)


def records_in(data: bytes) -> Iterator[Any]:
    from wandb.proto import wandb_internal_pb2

    place, whole = HEADER_BYTES, b""
    while place + HEADER_BYTES <= len(data):
        left = BLOCK_BYTES - place % BLOCK_BYTES
        if left < HEADER_BYTES:
            place += left
            continue
        _, n_bytes, kind = struct.unpack_from("<IHB", data, place)
        if kind == 0 or place + HEADER_BYTES + n_bytes > len(data):  # it is being written
            return
        whole += data[place + HEADER_BYTES : place + HEADER_BYTES + n_bytes]
        place += HEADER_BYTES + n_bytes
        if kind in (FULL, LAST):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(whole)
            yield record
            whole = b""
