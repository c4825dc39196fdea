"""Other programs' files: TensorBoard's scalars beside its own EventAccumulator, MindSpore's tensors; and exports."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from sightglass.storage.export.export import export
from sightglass.storage.foreign import mindspore, tensorboard
from sightglass.storage.format.framing import frame
from sightglass.storage.format.summary import MINDSPORE_VERSION, TENSORBOARD_VERSION, encode_version
from sightglass.storage.read.recording import Recording

N_STEPS = 40_000
N_TENSORS = 20
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
        for form in ("parquet", "csv", "npz", "tensorboard"):
            if form != "parquet" or find_spec("pyarrow") is not None:
                yield f"export 200,000 scalars to {form}", seconds(lambda form=form: out(logs, form), 1), "s", None


def out(folder: Path, form: Any) -> None:
    with tempfile.TemporaryDirectory(prefix="sgb") as name, Recording(folder) as recording:
        export(recording, to=form, out=Path(name, "out"))
