"""A coverage-guided fuzzer of the readers; not collected by pytest.

Whatever bytes come, readers may raise `DamagedError`, `WireError` and `QueryError` and nothing else, end within
seconds, and take little memory. To run it, with atheris in an environment of its own:

    python3 -m venv --system-site-packages /tmp/fuzz && /tmp/fuzz/bin/pip install atheris
    PYTHONPATH=src:$(.venv/bin/python -c 'import numpy, os; print(os.path.dirname(os.path.dirname(numpy.__file__)))') \\
        nice /tmp/fuzz/bin/python tests/storage/fuzz.py segment -max_total_time=120

The first argument is a target: `segment` and `eventfile` take the bytes of a file; `blocks` and `events` take payloads,
whose checksums are made right, so that what lies behind them is reached; `event` takes one payload, `runfile` a
`run.json`. What follows are libFuzzer's own options; a corpus is made in `/tmp/sightglass-fuzz/{target}` and kept.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["sightglass.storage", "sightglass.core.codec"]):
    import numpy as np

    from sightglass.core.columns import Columns
    from sightglass.core.errors import DamagedError, QueryError, WireError
    from sightglass.core.values import Figure, Histogram, Tensor, Text
    from sightglass.storage import run_file
    from sightglass.storage.foreign import mindspore, tensorboard
    from sightglass.storage.foreign.event_file import EventFile
    from sightglass.storage.format import summary
    from sightglass.storage.format.block import CHECKED, HEAD, HEAD_BYTES, Key, encode, is_block
    from sightglass.storage.format.framing import checksum, frame
    from sightglass.storage.format.png import encode_png
    from sightglass.storage.read.segment_reader import SegmentReader

FOLDER = Path(tempfile.mkdtemp(prefix="sgfuzz", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
OURS = FOLDER / "1000-rank0-0000.sgr"
SUMMARY = FOLDER / "events.out.tfevents.1700000000.host.1.0"
EXPECTED = (DamagedError, WireError, QueryError)


def segment(data: bytes) -> None:
    """Read a file as one of ours, twice: as it grows, and whole."""
    OURS.write_bytes(data[: len(data) // 2])
    try:
        part = SegmentReader(OURS, cache=False)
    except DamagedError:
        return
    OURS.write_bytes(data)
    try:
        part.refresh()
        look(part)
    except DamagedError:
        pass
    finally:
        part.close()


def blocks(data: bytes) -> None:
    """Read payloads as frames of one of our files, with checksums that are right."""
    segment(framed(summary_version("Sightglass.Event:2")) + b"".join(framed(mended(part)) for part in cut(data)))


def eventfile(data: bytes) -> None:
    """Read a file as MindSpore's or TensorBoard's."""
    SUMMARY.write_bytes(data)
    try:
        part = EventFile(SUMMARY)
    except DamagedError:
        return
    try:
        look(part)
    finally:
        part.close()


def events(data: bytes) -> None:
    """Read payloads as frames of another program's file, with checksums that are right."""
    version = "MindSpore.Event:1" if data[:1] < b"\x80" else "brain.Event:2"
    eventfile(framed(summary_version(version)) + b"".join(framed(part) for part in cut(data[1:])))


def event(data: bytes) -> None:
    """Read one payload in each dialect, and the values that it has."""
    for decode in (mindspore.decode_event, tensorboard.decode_event):
        with contextlib.suppress(*EXPECTED):
            for logged in decode(memoryview(data), {}):
                with contextlib.suppress(*EXPECTED):
                    _ = logged.value
    with contextlib.suppress(*EXPECTED):
        summary.read_event(memoryview(data))


def runfile_(data: bytes) -> None:
    """Read a `run.json`."""
    path = FOLDER / "run.json"
    path.write_bytes(data)
    told = run_file.read(path)
    assert told is None or (isinstance(told.name, str) and isinstance(told.config, dict))
    run_file.together(run_file.read_all(FOLDER))


def look(part: Any) -> None:
    """Read all that a file has, whole and in part."""
    for entries in part.entries().values():
        for entry in entries:
            assert entry.n > 0
            with contextlib.suppress(*EXPECTED):
                assert len(part.load(entry)) == entry.n
            with contextlib.suppress(*EXPECTED):
                part.load_slice(entry, entry.n - 1, "[0]")
            with contextlib.suppress(*EXPECTED):
                part.load_slice(entry, 0, "[..., ::2]")
    list(map(str, part.damages))


def cut(data: bytes) -> Iterator[bytes]:
    """Cut data into payloads, each after its length in two bytes."""
    while len(data) > 2:
        n = int.from_bytes(data[:2], "little")
        yield data[2 : 2 + n]
        data = data[2 + n :]


def joined(*payloads: bytes) -> bytes:
    return b"".join(struct.pack("<H", len(payload)) + payload for payload in payloads)


def framed(payload: bytes) -> bytes:
    return b"".join(map(bytes, frame([payload])))


def mended(payload: bytes) -> bytes:
    """Make the checksum of a block's head right, if there is one."""
    if is_block(payload) and len(payload) >= HEAD_BYTES:
        end = HEAD_BYTES + int(np.frombuffer(payload, HEAD, 1)["texts"].sum())
        return payload[: CHECKED - 4] + struct.pack("<I", checksum(payload[CHECKED:end])) + payload[CHECKED:]
    return payload


def summary_version(text: str) -> bytes:
    return b"".join(map(bytes, summary.encode_version(text, 1.5)))


# What it begins with


def seeds() -> Mapping[str, list[bytes]]:
    """Return small files and payloads of every kind."""
    values: list[Any] = [
        np.array([1.5, -2.5]), np.arange(4), ["x", {"y": 1, "z": [1, 2.5, None, True]}],
        np.arange(6, dtype=np.float32).reshape(1, 2, 3), [np.arange(3.0), np.zeros((0, 2))],
        [Histogram(np.arange(10.0)), Tensor(np.eye(2)), Text("t"), Figure(b"\x89PNG", "image/png")],
        [2**70, 1 + 2j, float("nan")], np.array([True, False]),
    ]  # fmt: skip
    payloads = []
    for i, column in enumerate(values):
        n = len(column)
        columns = Columns(
            index=i, steps=np.arange(n) * 5 if i % 2 else np.array([0.5] * n), wall_times=np.arange(n) + 0.5,
            values=column, ordinals=np.arange(n) * (1 + i % 3), tracks=[{"epoch": 1.5}] * n if i % 2 else None,
            n_events=np.full(n, 3) if i % 3 else None, flags=np.full(n, 1, np.uint8) if i % 3 else None,
        )  # fmt: skip
        kind = ("logged", "stream", "groups", "commands", "snapshot")[i % 5]
        key = Key(kind=kind, tag=f"t{i}", query="batch.b" if kind == "stream" else "")  # type: ignore[arg-type]
        payloads.append(b"".join(map(bytes, encode(key, columns, segment=3))))
    sayable = {
        "loss": 1.5, "kernel": np.arange(6, dtype=np.float32).reshape(2, 3), "h": Histogram(np.arange(10.0)),
        "text": Text("words"), "figure": Figure(encode_png(np.zeros((2, 2, 3), np.uint8)), "image/png"),
    }  # fmt: skip
    told = {}
    for name, module in (("mindspore", mindspore), ("tensorboard", tensorboard)):
        told[name] = [
            b"".join(map(bytes, module.encode_event({tag: value}, step=3, wall_time=1.5)[0]))
            for tag, value in sayable.items()
            if not (name == "mindspore" and tag == "text")
        ]
    whole = framed(summary_version("Sightglass.Event:2")) + b"".join(map(framed, payloads))
    fixtures = [path.read_bytes() for path in (Path(__file__).parent / "fixtures").glob("*.out.events")]
    run = {"version": 1, "name": "n", "id": "0" * 12, "config": {"a": [1, {"b": None}]}, "started": 1.5,
           "rank": 0, "host": "h", "pid": 1,
           "ended": None, "state": "running", "events": {"batch": 3}, "described": {}}  # fmt: skip
    return {
        "segment": [whole],
        "blocks": [joined(payload) for payload in payloads] + [joined(*payloads)],
        "eventfile": fixtures,
        "events": [b"\0" + joined(*told["mindspore"]), b"\xff" + joined(*told["tensorboard"])],
        "event": [*told["mindspore"], *told["tensorboard"]],
        "runfile": [json.dumps(run).encode()],
    }


TARGETS: Mapping[str, Callable[[bytes], None]] = {
    "segment": segment, "blocks": blocks, "eventfile": eventfile, "events": events, "event": event, "runfile": runfile_,
}  # fmt: skip


def main() -> None:
    """Fuzz a target."""
    name = sys.argv.pop(1) if len(sys.argv) > 1 else ""
    if name not in TARGETS:
        sys.exit(f"Expected one of {', '.join(TARGETS)}, got {name!r}")
    corpus = Path("/tmp/sightglass-fuzz") / name
    corpus.mkdir(parents=True, exist_ok=True)
    for i, data in enumerate(seeds()[name]):
        (corpus / f"seed{i}").write_bytes(data)
    np.seterr(all="ignore")
    options = ["-rss_limit_mb=1500", "-timeout=20", f"-artifact_prefix={corpus.parent}/{name}-", "-max_len=65536"]
    atheris.Setup([sys.argv[0], *options, *sys.argv[1:], str(corpus)], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
