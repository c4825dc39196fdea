"""Other programs' files: TensorBoard's scalars beside its own EventAccumulator, MindSpore's tensors; and exports.

The last release of W&B that could read its own offline files is 0.29.0, by `wandb.sdk.internal.datastore`. That reader
is taken from its wheel, which is downloaded and not installed:

    pip download --no-deps --dest /tmp wandb==0.29.0
    WANDB_WHEEL=/tmp/wandb-0.29.0-….whl python -m bench foreign

Without it, a plain reader of the documented format stands in its place. Either reads record by record; W&B's messages
and the `json` module make values of them.
"""

from __future__ import annotations

import json
import os
import struct
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipimport import zipimporter
from zlib import crc32

import numpy as np

from sightglass.storage.export.export import export
from sightglass.storage.foreign import mindspore, tensorboard
from sightglass.storage.foreign.wandb_file import WandbFile
from sightglass.storage.foreign.wandb_log import BLOCK_BYTES, FIRST, FULL, HEADER_BYTES, LAST, MIDDLE
from sightglass.storage.format.framing import frame
from sightglass.storage.format.protobuf import varint
from sightglass.storage.format.summary import MINDSPORE_VERSION, TENSORBOARD_VERSION, bytes_field, encode_version
from sightglass.storage.read.recording import Recording

N_STEPS = 40_000
N_TENSORS = 20
N_ROWS = 1_000_000
TAGS = ("loss", "accuracy", "lr", "grads/norm", "val/loss")
BEGAN = 1_700_000_000.25


def write(path: Path, version: str, payloads: Iterator[Any]) -> None:
    path.parent.mkdir()
    with path.open("wb") as file:
        for payload in (encode_version(version, BEGAN), *payloads):
            file.writelines(frame(payload))


def scalars(rng: np.random.Generator) -> Iterator[Any]:
    for step in range(N_STEPS):
        for tag, value in zip(TAGS, rng.normal(size=len(TAGS)).tolist(), strict=True):
            yield tensorboard.encode_event({tag: value}, step=step, wall_time=BEGAN + step)[0]


def tensors(rng: np.random.Generator) -> Iterator[Any]:
    for step in range(N_TENSORS):
        values = {tag: rng.normal(size=(1000, 1000)).astype(np.float32) for tag in ("kernel", "other")}
        yield mindspore.encode_event(values, step=step, wall_time=BEGAN + step)[0]


def seconds(work: Callable[[], object], rounds: int = 3) -> float:
    taken = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        taken.append(time.perf_counter() - started)
    return min(taken)


def ours(folder: Path) -> list[Any]:
    with Recording(folder) as recording:
        return [recording.series(tag).columns() for tag in recording.tags()]


def theirs(folder: Path) -> list[Any]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return [np.array([(e.step, e.wall_time, e.value) for e in events.Scalars(tag)]) for tag in events.Tags()["scalars"]]


def offline_records(rng: np.random.Generator) -> Iterator[bytes]:
    """Yield what W&B writes for each row: two summaries, and the row, whose keys come in any order."""
    names = ("loss", "accuracy", "lr", "_timestamp", "_runtime", "_step")
    keys = {name: b"\x12" + bytes([len(name)]) + name.encode() + b"\x82\x01" for name in names}
    own = (b"\x12\x06_wandb\x12\x07runtime\x82\x01\x011", b"\x0a\x08_runtime\x82\x01\x011")
    runtime = record(3, b"".join(bytes(part) for item in own for part in bytes_field(1, item)))
    orders = [rng.permutation(len(names)).tolist() for _ in range(64)]
    for step in range(N_ROWS):
        loss, accuracy = step / 7, 1 / (step + 3)
        texts = [repr(number).encode() for number in (loss, accuracy, 1e-3, BEGAN + step, step / 100, step)]
        items = b""
        for i in orders[step % 64]:
            body = keys[names[i]] + bytes([len(texts[i])]) + texts[i]
            items += b"\x0a" + bytes([len(body)]) + body
        number = b"\x08" + varint(step)
        yield runtime
        yield record(3, items)
        yield record(2, items + b"\x12" + bytes([len(number)]) + number)


def record(field: int, body: bytes) -> bytes:
    return b"\x08\x07" + bytes([field << 3 | 2]) + varint(len(body)) + body


def write_offline(path: Path, rng: np.random.Generator) -> None:
    place = HEADER_BYTES
    with path.open("wb") as file:
        file.write(struct.pack("<4sHB", b":W&B", 0xBEE1, 0))
        for left in offline_records(rng):
            kinds = FULL, FIRST
            while left:
                room = BLOCK_BYTES - place % BLOCK_BYTES
                if room < HEADER_BYTES:
                    file.write(bytes(room))
                    place, room = place + room, BLOCK_BYTES
                part, left = left[: room - HEADER_BYTES], left[room - HEADER_BYTES :]
                chunk = bytes([kinds[bool(left)]]) + part
                file.write(struct.pack("<IH", crc32(chunk), len(part)) + chunk)
                place, kinds = place + HEADER_BYTES + len(part), (LAST, MIDDLE)


def plain_records(path: Path) -> Iterator[bytes]:
    """Yield the records of a file as the format describes them."""
    with path.open("rb") as file:
        file.read(HEADER_BYTES)
        whole = b""
        while len(header := file.read(HEADER_BYTES)) == HEADER_BYTES:
            crc, length, kind = struct.unpack("<IHB", header)
            data = file.read(length)
            if crc32(data, crc32(bytes([kind]))) != crc:
                raise ValueError(f"Expected another checksum at {file.tell()}")
            whole += data
            if kind in (FULL, LAST):
                yield whole
                whole = b""
            left = BLOCK_BYTES - file.tell() % BLOCK_BYTES
            if left < HEADER_BYTES:
                file.read(left)


def own_records(wheel: str) -> Callable[[Path], Iterator[bytes]]:
    """Return W&B's own reader of records, from a wheel of a release that has one."""
    datastore = zipimporter(f"{wheel}/wandb/sdk/internal").load_module("datastore")

    def records(path: Path) -> Iterator[bytes]:
        store = datastore.DataStore()
        store.open_for_scan(str(path))
        yield from iter(store.scan_data, None)
        store.close()

    return records


def parsed(records: Iterator[bytes]) -> Iterator[Any]:
    from wandb.proto import wandb_internal_pb2

    for data in records:
        message = wandb_internal_pb2.Record()
        message.ParseFromString(data)
        yield message


def arrays_of(messages: Iterator[Any]) -> dict[str, Any]:
    """Return the steps, times and values of each tag: what opening a file gives here."""
    found: dict[str, list[tuple[int, float, float]]] = {}
    for message in messages:
        items = message.history.item
        row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
        for tag, value in row.items():
            if not tag.startswith("_"):
                found.setdefault(tag, []).append((message.history.step.num, row["_timestamp"], value))
    return {tag: np.array(rows) for tag, rows in found.items()}


def read_offline(path: Path) -> list[Any]:
    file = WandbFile(path)
    try:
        return [file.load(entry) for entries in file.entries().values() for entry in entries]
    finally:
        file.close()


def measure_wandb(path: Path, rng: np.random.Generator) -> Iterator[tuple[str, float, str, float | None]]:
    write_offline(path, rng)
    works: list[Callable[[], object]] = [lambda: read_offline(path)]
    wheel = os.environ.get("WANDB_WHEEL")
    if find_spec("wandb") is not None:
        records = own_records(wheel) if wheel else plain_records
        for _ in parsed(iter([b""])):  # imports W&B's messages
            pass
        works += [lambda: arrays_of(parsed(records(path))), lambda: deque(parsed(records(path)), 0)]
    mine, *theirs = median_seconds(works, rounds=3)
    yield f"{N_ROWS:,} rows of 3 numbers of a W&B run, from file to arrays", mine, "s", None
    if theirs:
        reader = "W&B's last Python reader" if wheel else "a plain reader with W&B's messages"
        yield f"  as a part of what {reader} takes", mine / theirs[0], "", 0.2
        yield "  as a part of what its records alone take, without values", mine / theirs[1], "", None


def median_seconds(works: list[Callable[[], object]], rounds: int) -> list[float]:
    """Return the median time of each work; they take turns, so that what else the machine does meets all of them."""
    return np.median([[seconds(work, 1) for work in works] for _ in range(rounds)], axis=0).tolist()


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory(prefix="sgb") as name:
        logs, summaries = Path(name, "tb"), Path(name, "ms")
        write(logs / "events.out.tfevents.1700000000.host.1.0", TENSORBOARD_VERSION, scalars(rng))
        write(summaries / "events.out.events.summary.1700000000.0.host_MS", MINDSPORE_VERSION, tensors(rng))
        mine = seconds(lambda: ours(logs))
        yield "200,000 scalars of TensorBoard's, from file to arrays", mine * 1000, "ms", None
        if find_spec("tensorboard") is not None:
            import tensorboard.backend.event_processing.event_accumulator  # noqa: F401

            yield "  as a part of what its EventAccumulator takes", mine / seconds(lambda: theirs(logs), 1), "", 0.2
        yield from measure_wandb(Path(name, "run-made.wandb"), rng)
        yield (
            "open a MindSpore file of 160 MB of tensors",
            seconds(lambda: Recording(summaries).close()) * 1000,
            "ms",
            None,
        )
        with Recording(summaries) as recording:
            series = recording.series("kernel")
            steps = iter(range(N_TENSORS))
            yield "  read a tensor of 1M elements", seconds(lambda: series.at(next(steps)), 5) * 1000, "ms", 20
            yield "  read a row of one, checked before", seconds(lambda: series.at(0, "[7]")) * 1000, "ms", 1
        for form in ("parquet", "csv", "tensorboard"):
            if form != "parquet" or find_spec("pyarrow") is not None:
                yield f"export 200,000 scalars to {form}", seconds(lambda form=form: out(logs, form), 1), "s", None


def out(folder: Path, form: Any) -> None:
    with tempfile.TemporaryDirectory(prefix="sgb") as name, Recording(folder) as recording:
        export(recording, to=form, out=Path(name, "out"))
