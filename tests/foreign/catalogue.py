"""What happens to the files of other programs, and what each program's own reader then reads: the referee.

A library writes a run of ten steps. A situation changes it, and yields whenever it is to be read again.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.util.tensor_util import make_ndarray
from tests.storage import wandb_files
from tests.waiting import PATIENCE_S

import sightglass as sg
from sightglass.storage.read.recording import Recording

FIXTURES = Path(__file__).parents[1] / "storage" / "fixtures"
N_STEPS = 10
LOSS, ACCURACY = "loss", "val/acc"

Points = dict[str, list[tuple[float, str]]]
"""The step and the `repr` of the value of each number, by tag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A program that writes files.

    Attributes:
        write: Writes a run into a folder, as far as the library is installed; else it is a fixture.
        read: Returns what the library itself reads, from the folder as it is.
        grows: Which files grow while the run goes on, as a pattern; empty if others cannot write half of them.
    """

    write: Callable[[Path], Any]
    read: Callable[[Path], Points]
    grows: str


def values(step: int) -> dict[str, float]:
    return {LOSS: 1 / (step + 1), ACCURACY: step / 10}


# TensorBoard's files: its own reader is the referee


def read_events(folder: Path) -> Points:
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    found = {tag: [(one.step, repr(one.value)) for one in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    for tag in events.Tags()["tensors"]:
        told = events.summary_metadata.get(tag)
        if told and told.plugin_data.plugin_name == "scalars":  # TensorFlow's, and PyTorch's new style
            values = [(one.step, repr(float(make_ndarray(one.tensor_proto)))) for one in events.Tensors(tag)]
            found[tag] = [*found.get(tag, []), *values]
    return found


def write_with_torch(folder: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as writer:
        for step in range(N_STEPS):
            for tag, value in values(step).items():
                writer.add_scalar(tag, value, step)


def write_with_tensorboard(folder: Path) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder))
    for step in range(N_STEPS):
        both = [Summary.Value(tag=tag, simple_value=value) for tag, value in values(step).items()]
        writer.add_event(Event(wall_time=1_700_000_000.0 + step, step=step, summary=Summary(value=both)))
    writer.close()


def write_with_lightning(folder: Path) -> None:
    from lightning.pytorch.loggers import TensorBoardLogger

    logger = TensorBoardLogger(folder.parent, name="", version=folder.name)
    logger.log_hyperparams({"lr": 0.1})
    for step in range(N_STEPS):
        logger.log_metrics(values(step), step)
    logger.finalize("success")


def fixture(name: str) -> Callable[[Path], None]:
    """Return a function that writes what a library wrote that is not installed here."""

    def write(folder: Path) -> None:
        folder.mkdir()
        shutil.copyfile(FIXTURES / name, folder / "events.out.tfevents.1700000000.host.1.0")

    return write


# The others


WANDB = f"""
import sys, wandb
settings = wandb.Settings(console="off", silent=True, x_disable_meta=True)
run = wandb.init(dir=sys.argv[1], mode="offline", settings=settings)
for step in range({N_STEPS}):
    run.log({{"{LOSS}": 1 / (step + 1), "{ACCURACY}": step / 10}}, step=step)
run.finish()
"""


def write_with_wandb(folder: Path) -> None:
    made = folder.with_name(f"{folder.name}-made")
    made.mkdir()
    command = [sys.executable, "-c", WANDB, str(made)]
    subprocess.run(command, env=wandb_files.environment(), check=True, capture_output=True, timeout=PATIENCE_S)
    [directory] = made.glob("wandb/offline-run-*")
    wandb_files.read(next(directory.glob("*.wandb")))  # W&B's other process has written it to its end
    shutil.move(directory, folder)
    shutil.rmtree(made)


def read_wandb(folder: Path) -> Points:
    found: Points = {}
    [file] = folder.glob("*.wandb")
    for record in wandb_files.records_in(file.read_bytes()):
        for item in record.history.item if record.WhichOneof("record_type") == "history" else ():
            tag = item.key or "/".join(item.nested_key)
            if not tag.startswith("_"):
                point = record.history.step.num, repr(float(json.loads(item.value_json)))
                found.setdefault(tag, []).append(point)
    return found


def write_mlflow(folder: Path) -> None:
    with zipfile.ZipFile(FIXTURES / "mlflow.zip") as file:
        file.extractall(folder.with_name("store"))
    [run] = (path.parent for path in folder.parent.glob("store/*/*/metrics/val"))
    shutil.move(run.parent, folder)
    shutil.copyfile(folder.with_name("store") / "expected.json", folder.with_name("mlflow.json"))


def read_mlflow(folder: Path) -> Points:
    """Return what MLflow's client returned, as far as the lines are written."""
    [(_, run)] = ((name, run) for name, run in expected_of(folder, "mlflow") if ACCURACY in run["metrics"])
    found = {}
    for tag, points in run["metrics"].items():
        n = (folder / "metrics" / tag).read_bytes().count(b"\n")
        found[tag] = [(step, value) for step, value, _ in points[:n]]
    return {tag: points for tag, points in found.items() if points}


def write_trackio(folder: Path) -> None:
    with zipfile.ZipFile(FIXTURES / "trackio.zip") as file:
        file.extractall(folder)
    shutil.copyfile(folder / "expected.json", folder.with_name("trackio.json"))


def read_trackio(folder: Path) -> Points:
    """Return the numbers that Trackio's storage returned of its run in the fixture that has them."""
    found: Points = {}
    for row in next(rows for _, rows in expected_of(folder, "trackio") if ACCURACY in rows[0]):
        for tag, value in row.items():
            if isinstance(value, int | float) and not isinstance(value, bool) and tag != "step":
                found.setdefault(tag, []).append((row["step"], repr(float(value))))
    return found


def expected_of(folder: Path, library: str) -> list[tuple[str, Any]]:
    """Return what a library's reader returned when the fixture was made."""
    path = next(path for at in folder.parents if (path := at / f"{library}.json").exists())
    told = json.loads(path.read_text())
    return list(told.items()) if isinstance(told, dict) else told


def write_mindspore(folder: Path) -> None:
    folder.mkdir()
    shutil.copyfile(FIXTURES / "mindspore.out.events", folder / "events.out.events.summary.1700000000.0.host_MS")


def read_mindspore(folder: Path) -> Points:
    """Return the numbers in MindSpore's own messages, in the frames that TensorBoard's reader finds."""
    pool = DescriptorPool()
    for name in ("anf_ir", "summary"):
        described = pool.AddSerializedFile((FIXTURES / f"mindspore_{name}.desc").read_bytes())
    event_of = GetMessageClass(pool.FindMessageTypeByName(f"{described.package}.Event"))
    found: Points = {}
    for file in sorted(folder.glob("*_MS")):
        for payload in RawEventFileLoader(str(file)).Load():
            event = event_of.FromString(payload)
            for value in event.summary.value:
                if value.HasField("scalar_value"):
                    found.setdefault(value.tag, []).append((event.step, repr(value.scalar_value)))
    return found


LIBRARIES = {
    "torch": Library(write=write_with_torch, read=read_events, grows="*tfevents*"),
    "tensorboard": Library(write=write_with_tensorboard, read=read_events, grows="*tfevents*"),
    "lightning": Library(write=write_with_lightning, read=read_events, grows="*tfevents*"),
    "tensorboardX": Library(write=fixture("tensorboardx.out.events"), read=read_events, grows="*tfevents*"),
    "TensorFlow": Library(write=fixture("tensorflow.out.events"), read=read_events, grows="*tfevents*"),
    "wandb": Library(write=write_with_wandb, read=read_wandb, grows="*.wandb"),
    "mindspore": Library(write=write_mindspore, read=read_mindspore, grows="*_MS"),
    "mlflow": Library(write=write_mlflow, read=read_mlflow, grows="metrics/**/*"),
    "trackio": Library(write=write_trackio, read=read_trackio, grows=""),
}


# What happens to a run


def grown_files(folder: Path, library: Library) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.glob(library.grows)) if path.is_file()}


def as_written(folder: Path, library: Library) -> Iterator[Path]:
    yield folder


def growing(folder: Path, library: Library) -> Iterator[Path]:
    """It is read after each of four parts, which end anywhere."""
    whole, chance = grown_files(folder, library), random.Random(0)
    for part in (0.4, 0.6, 0.8, 1.0):
        for path, data in whole.items():
            path.write_bytes(b"") if part == 0.4 else None
            n = len(data) if part == 1.0 else int(part * len(data)) + chance.randrange(7)
            with path.open("ab") as file:
                file.write(data[path.stat().st_size : n])
        yield folder


def cut_short(folder: Path, library: Library) -> Iterator[Path]:
    for path, data in grown_files(folder, library).items():
        path.write_bytes(data[:-5])
    yield folder


def replaced(folder: Path, library: Library) -> Iterator[Path]:
    """Programs that synchronise folders write aside, and rename."""
    whole = grown_files(folder, library)
    for part in (0.6, 1.0):
        for path, data in whole.items():
            aside = path.with_name(f".{path.name}.part")
            aside.write_bytes(data[: math.ceil(part * len(data))])
            aside.replace(path)
        yield folder


def deep(folder: Path, library: Library) -> Iterator[Path]:
    target = folder.parent / "deep" / "a" / "b" / "c" / "d" / "e" / "run"
    target.parent.mkdir(parents=True)
    yield folder.rename(target)


def linked(folder: Path, library: Library) -> Iterator[Path]:
    link = folder.parent / "links" / "run"
    link.parent.mkdir()
    link.symlink_to(folder, target_is_directory=True)
    yield link


def beside_others(folder: Path, library: Library) -> Iterator[Path]:
    (folder / "README.md").write_text("# tfevents and run-1.wandb\n")
    (folder / "notes.tfevents.md").write_text("nothing\n")
    (folder / ".tmp").mkdir()
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "model.ckpt").write_bytes(bytes(100))
    yield folder


def copied(folder: Path, library: Library) -> Iterator[Path]:
    """Nobody may write into the copy, and times are those of the copy."""
    target = shutil.copytree(folder, folder.with_name(f"{folder.name}-copy"))
    for path in (*target.rglob("*"), target):
        os.utime(path, (1e9, 1e9))
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield target


SITUATIONS: dict[str, Callable[[Path, Library], Iterator[Path]]] = {
    "as written": as_written, "growing": growing, "cut short": cut_short, "replaced by rename": replaced, "deep": deep,
    "linked": linked, "beside others": beside_others, "copied": copied,
}  # fmt: skip
DAMAGED = ("TensorFlow",)  # its fixture has values that are broken on purpose
CASES = [
    (library, situation)
    for library, one in LIBRARIES.items()
    for situation in SITUATIONS
    if one.grows or situation not in ("growing", "cut short", "replaced by rename")
]


# What a program does with PyTorch's writer


def odd_numbers(folder: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    odd = [math.nan, math.inf, -math.inf, -0.0, 3.4e38, 1e-45, 1e-320, 16_777_217.0, -1.5]
    with SummaryWriter(str(folder)) as writer:
        for step, value in zip([*range(6), 2**31, 2**40, 2**53], odd, strict=True):
            writer.add_scalar("odd", value, step)
            writer.add_scalar("new", value, step, new_style=True)
            writer.add_scalar("double", np.float64(value), step, new_style=True, double_precision=True)


def odd_names(folder: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    names = ("a b", "ü/ö", "x" * 300, "/begins", "ends/", "a//b", "a:scalar", "mean(a)", "1", "日本", "a\\b", "%", "'")
    with SummaryWriter(str(folder)) as writer:
        for name in names:
            for step in range(3):
                writer.add_scalar(name, step, step)


def restarted(folder: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    for i, (began, purge) in enumerate(((0, None), (6, 6), (4, 4))):
        with SummaryWriter(str(folder), purge_step=purge) as writer:
            for step in range(began, began + 8):
                writer.add_scalar(LOSS, began + step / 100, step)
        [written] = (file for file in folder.iterdir() if ".host.1." not in file.name)
        written.rename(folder / f"events.out.tfevents.170000000{i}.host.1.{i}")  # TensorBoard reads 10 before 9


def without_steps(folder: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as writer, warnings.catch_warnings():
        for value in range(5):
            writer.add_scalar(LOSS, value)
        writer.add_scalar("back", 1.0, 5)
        writer.add_scalar("back", 2.0, 3)
        writer.add_scalar("twice", 1.0, 1)
        writer.add_scalar("twice", 2.0, 1)


def of_all_kinds(folder: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as writer:
        for step in range(3):
            writer.add_scalar("mixed", step, step)
            writer.add_histogram("mixed", np.arange(10.0), step)
            writer.add_text("mixed", "a | b", step)
            writer.add_image("mixed", np.zeros((3, 4, 4), np.uint8), step)
        writer.add_hparams({"lr": 0.1, "on": True, "name": "x"}, {"score": 1.0}, run_name=".")


def many(folder: Path) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder), max_queue=1) as writer:
        for step in range(2_000):
            writer.add_scalar(f"tag/{step % 7}", math.sin(step), step)


PROGRAMS = {
    "odd numbers": odd_numbers, "odd names": odd_names, "restarted": restarted, "without steps": without_steps,
    "of all kinds": of_all_kinds, "many": many,
}  # fmt: skip


# The comparison


def check(folder: Path, library: str, situation: str) -> int:
    """Assert that a run is read as its library reads it, whatever happens to it; return how many numbers are compared.

    Args:
        folder: Where the library has written `run`; it is changed.
        library: Its name.
        situation: What happens.
    """
    one, n_compared = LIBRARIES[library], 0
    states = SITUATIONS[situation](folder / "run", one)
    place = next(states)
    with Recording(run_in(place, one.read(place))) as recording:
        while True:
            theirs = one.read(place)
            assert theirs
            assert points(recording, theirs) == theirs
            n_compared += sum(map(len, theirs.values()))
            if next(states, None) is None:
                break
            assert recording.changed()
            recording.refresh()
    with sg.open(recording.path) as run:
        assert {tag: len(run.series(tag)) for tag in theirs} == {tag: len(found) for tag, found in theirs.items()}
        assert run.check().intact or situation in ("cut short", "beside others") or library in DAMAGED
    return n_compared


def check_program(folder: Path, program: str) -> int:
    """Assert that what a program writes is read as TensorBoard reads it; return how many numbers are compared."""
    PROGRAMS[program](folder)
    theirs = read_events(folder)
    with Recording(folder) as recording:
        assert points(recording, theirs) == theirs
    return sum(map(len, theirs.values()))


def points(recording: Recording, tags: Points) -> Points:
    """Return the numbers under some tags."""
    found = {}
    for tag in tags:
        columns = recording.series(tag if f"{tag}:scalar" not in recording.tags() else f"{tag}:scalar").columns()
        found[tag] = [(step, repr(float(value))) for step, value in zip(columns.steps, columns.values, strict=True)]
    return found


def run_in(place: Path, theirs: Points) -> Path:
    """Return the run with the numbers, where a listing finds it."""
    found = []
    for info in sg.runs(place):
        with sg.open(info.directory) as run:
            found += [Path(info.directory)] if theirs.keys() <= {*run.tags()} else []
    assert len(found) == 1
    return found[0]
