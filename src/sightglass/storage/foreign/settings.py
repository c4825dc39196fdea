"""The configuration in the files of other programs: TensorBoard's hparams and MindSpore's lineage.

It stands at the start of a file, so a folder of runs is listed quickly. MindSpore's files of it lie beside the record
files; source: lineage.proto (`TrainLineage`, `UserDefinedInfo`). A message that cannot be read is skipped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from sightglass.core.errors import WireError
from sightglass.storage.file_system import names_in
from sightglass.storage.format import framing
from sightglass.storage.format.framing import RandomAccessFile
from sightglass.storage.format.protobuf import signed, walk
from sightglass.storage.format.summary import double, messages, read_event, single, text

from . import tensorboard
from .tensorboard import add, entries, read_hparams

MAX_BYTES: Final = 2**20  # of the start of each file; hparams are among the first events
MAX_FILES: Final = 8  # the first ones; each restart writes another
MAX_DEPTH: Final = 8  # deeper nesting is a broken or hostile file
LINEAGE: Final = "_lineage"

METADATA: Final = 9
TRAIN, USER_DEFINED = 6, 10
HYPER_PARAMETERS: Final = {1: "optimizer", 2: "learning_rate", 3: "loss_function", 4: "epoch", 5: "parallel_mode",
                           6: "device_num", 8: "batch_size"}  # fmt: skip
TRAIN_DATASET: Final = {1: "train_dataset_path", 2: "train_dataset_size"}
ALGORITHM: Final = {1: "network"}


def read_settings(directory: Path) -> dict[str, Any]:
    """Return the configuration in the files of TensorBoard or MindSpore in a directory; empty without any."""
    found: dict[str, Any] = {}
    with contextlib.suppress(OSError):
        names = names_in(directory)
        lineage = [name for name in names if name.endswith(LINEAGE)]
        for name in (lineage or [name for name in names if tensorboard.parse_name(name) is not None])[:MAX_FILES]:
            for payload in _payloads(directory / name):
                with contextlib.suppress(WireError):
                    found |= _lineage(payload) if lineage else _hparams(payload)
    return found


def _payloads(path: Path) -> Iterator[memoryview]:
    with contextlib.suppress(OSError):
        window = bytes(RandomAccessFile(path).read(0, MAX_BYTES))
        starts, lengths, _ = framing.intact_run(window)
        for start, length in zip(starts, lengths, strict=True):
            yield memoryview(window)[start : start + length]


def _hparams(payload: memoryview) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for value in read_event(payload).values:
        for metadata in messages(value, METADATA):
            add(told, read_hparams(metadata))
    config: dict[str, Any] = told.get("config", {})
    return config


def _lineage(payload: memoryview) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for train in messages(payload, TRAIN):
        for number, names in ((1, HYPER_PARAMETERS), (2, TRAIN_DATASET), (3, ALGORITHM)):
            for part in messages(train, number):
                found |= _named(part, names)
    for user in messages(payload, USER_DEFINED):
        found |= _user_defined(user)
    return found


def _named(message: memoryview, names: dict[int, str]) -> dict[str, Any]:
    return {names[number]: _plain(kind, value) for number, kind, value in walk(message) if number in names}


def _plain(kind: int, value: Any) -> Any:
    match kind:
        case 0:
            return signed(value)
        case 1:
            return double(value)
        case 5:
            return float(f"{single(value):.7g}")  # 0.1, not 0.10000000149
    return text(value)


def _user_defined(message: memoryview, depth: int = 0) -> dict[str, Any]:
    """Read a `UserDefinedInfo`: nested ones, and maps of texts, integers and numbers."""
    found: dict[str, Any] = {}
    if depth > MAX_DEPTH:
        return found
    for one in messages(message, 1):
        found |= _user_defined(one, depth + 1)
    found |= {name: _user_defined(inner, depth + 1) for name, inner in entries(message, 2)}
    for number in (3, 4, 5):
        for entry in messages(message, number):
            fields = {place: _plain(kind, value) for place, kind, value in walk(entry)}
            if isinstance(fields.get(1), str):
                found[fields[1]] = fields.get(2)
    return found
