"""The configuration in the files of other programs: TensorBoard's hparams, MindSpore's lineage, W&B's config.

Sources: tensorboard/plugins/hparams/plugin_data.proto and api.proto (`HParamsPluginData`, `SessionStartInfo`, whose
values are `google.protobuf.Value`); MindSpore's lineage.proto (`TrainLineage`, `UserDefinedInfo`), in files beside the
record files. Both stand at the start of a file. A message that cannot be read is skipped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from sightglass.core.errors import WireError
from sightglass.storage import run_file
from sightglass.storage.file_names import is_record_file
from sightglass.storage.file_system import names_in
from sightglass.storage.format import framing
from sightglass.storage.format.framing import RandomAccessFile
from sightglass.storage.format.protobuf import signed, walk
from sightglass.storage.format.summary import Dialect, double, messages, read_event, single, text

MAX_BYTES: Final = 2**20  # of the start of each file; hparams are among the first events
MAX_FILES: Final = 8  # the first ones; each restart writes another
MAX_DEPTH: Final = 8  # deeper nesting is a broken or hostile file
LINEAGE: Final = "_lineage"

METADATA: Final = 9
SESSION_START: Final = 3
TRAIN, USER_DEFINED = 6, 10
HYPER_PARAMETERS: Final = {1: "optimizer", 2: "learning_rate", 3: "loss_function", 4: "epoch", 5: "parallel_mode",
                           6: "device_num", 8: "batch_size"}  # fmt: skip
TRAIN_DATASET: Final = {1: "train_dataset_path", 2: "train_dataset_size"}
ALGORITHM: Final = {1: "network"}


def read_settings(directory: Path, dialect: Dialect) -> dict[str, Any]:
    """Return the configuration in the files of a directory; empty for Sightglass's own, whose run files hold it."""
    if dialect == "wandb":
        return run_file.together(run_file.read_all(directory)).config
    lineage = dialect == "mindspore"
    found: dict[str, Any] = {}
    with contextlib.suppress(OSError):
        names = names_in(directory) if dialect != "sightglass" else []
        chosen = [name for name in names if (name.endswith(LINEAGE) if lineage else is_record_file(name))]
        for name in chosen[:MAX_FILES]:
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
    found: dict[str, Any] = {}
    for value in read_event(payload).values:
        for plugin in (data for metadata in messages(value, METADATA) for data in messages(metadata, 1)):
            if b"hparams" not in [bytes(name) for name in messages(plugin, 1)]:
                continue
            for start in (one for content in messages(plugin, 2) for one in messages(content, SESSION_START)):
                found |= {name: _value(item) for name, item in _entries(start, 1)}
    return found


def _entries(message: memoryview, number: int) -> Iterator[tuple[str, memoryview]]:
    """Yield the entries of a map whose values are messages."""
    for entry in messages(message, number):
        for value in messages(entry, 2):
            yield "".join(text(name) for name in messages(entry, 1)), value


def _value(message: memoryview) -> Any:
    """Read a `google.protobuf.Value`."""
    for number, kind, value in walk(message):
        match number, kind:
            case 2, 1:
                real = double(value)  # type: ignore[arg-type]
                return int(real) if real.is_integer() and abs(real) < 2**53 else real
            case 3, 2:
                return text(value)  # type: ignore[arg-type]
            case 4, 0:
                return bool(value)
    return None


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
    found |= {name: _user_defined(inner, depth + 1) for name, inner in _entries(message, 2)}
    for number in (3, 4, 5):
        for entry in messages(message, number):
            fields = {place: _plain(kind, value) for place, kind, value in walk(entry)}
            if isinstance(fields.get(1), str):
                found[fields[1]] = fields.get(2)
    return found
