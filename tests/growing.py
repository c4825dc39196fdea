"""Runs that grow step by step, by real frames of the programs that write them: ours, MindSpore's, TensorBoard's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

import sightglass as sg
from sightglass.storage.foreign import mindspore
from sightglass.storage.format.framing import HEADER_BYTES, frame, header
from sightglass.storage.format.summary import MINDSPORE_VERSION, encode_version, read_event

FIXTURES = Path(__file__).parent / "storage" / "fixtures"
FOREIGN = {
    "ms": ("mindspore.out.events", "events.out.events.summary.1700000000.0.host_MS"),
    "tb": ("tensorflow.out.events", "events.out.tfevents.1700000000.host"),
}
TAGS = {
    "ms": ("loss", "kernel:tensor", "colour"),
    "tb": ("loss", "repeated", "one"),
    "sg": ("loss", "kernel", "one"),
}
"""Of each: a number, a tensor and a picture that every step has."""

FOOTER_BYTES = 4


class Growing:
    """A run of one file, written elsewhere, that has one step at first.

    Attributes:
        name: Its name, that of its dialect.
        path: Its file.
        parts: What is left to append: the bytes of one step each.
        step: The last step that it has.
    """

    def __init__(self, folder: Path, dialect: str) -> None:
        self.name = dialect
        folder = folder / dialect
        folder.mkdir(parents=True)
        if dialect == "sg":
            name, self.parts = own_parts(folder)
            self.path, self.step = folder / name, -1
        else:
            fixture, called = FOREIGN[dialect]
            self.path, self.parts = folder / called, list(foreign_parts((FIXTURES / fixture).read_bytes()))
            self.step = {"ms": 0, "tb": -1}[dialect]
        self.append()

    def append(self) -> None:
        """Append a step."""
        with self.path.open("ab") as file:
            file.write(self.parts.pop(0))
        self.step += 1

    def tear(self) -> None:
        """Append the beginning of a frame."""
        with self.path.open("ab") as file:
            file.write(self.parts[0][: HEADER_BYTES + 2])


def foreign_parts(data: bytes) -> Iterator[bytes]:
    """Cut a file of other programs before each frame with a later step; the first one also has the head."""
    start, place, last = 0, 0, None
    while (length := header(memoryview(data)[place:])) is not None:
        event = read_event(memoryview(data)[place + HEADER_BYTES : place + HEADER_BYTES + length])
        if event.values:
            if last is not None and event.step > last:
                yield data[start:place]
                start = place
            last = event.step if last is None else max(last, event.step)
        place += HEADER_BYTES + length + FOOTER_BYTES
    yield data[start:]


def own_parts(folder: Path, n_steps: int = 3) -> tuple[str, list[bytes]]:
    """Record a run, put all but its records into a folder as if from another machine, and cut the records by step."""
    rng, ends = np.random.default_rng(0), [0]
    with sg.init("sg", dir=folder.parent.parent / "made") as run:
        for step in range(n_steps):
            picture = rng.integers(0, 255, (8, 8), dtype=np.uint8)
            run.log(
                {"loss": float(step), "kernel": sg.Tensor(rng.normal(size=(2, 3))), "one": sg.Image(picture)}, step=step
            )
            run.flush()
            [segment] = run.directory.glob("*.sgr")
            ends.append(segment.stat().st_size)
        told = json.loads((run.directory / "run.json").read_text())
        data = segment.read_bytes()
    (folder / "run.json").write_text(json.dumps({**told, "id": "0" * 12, "host": "elsewhere"}))
    return segment.name, [data[start:end] for start, end in pairwise(ends)]


def write_kinds(folder: Path, kinds: Sequence[str], *, step: int) -> None:
    """Append a value of each kind under "x" to a file of MindSpore."""
    values: dict[str, object] = {
        "scalar": 0.5,
        "tensor": np.ones((2, 3), np.float32) * step,
        "histogram": sg.Histogram(np.arange(9.0)),
    }
    path = folder / "events.out.events.summary.1700000000.0.host_MS"
    if not path.exists():
        folder.mkdir(parents=True)
        path.write_bytes(b"".join(map(bytes, frame(encode_version(MINDSPORE_VERSION, 1_700_000_000.0)))))
    for kind in kinds:
        parts, _ = mindspore.encode_event({"x": values[kind]}, step=step, wall_time=1_700_000_000.0 + step)
        with path.open("ab") as file:
            file.write(b"".join(map(bytes, frame(parts))))
