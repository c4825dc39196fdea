"""Programs that start again: what TensorBoard's files take back, as TensorBoard itself reads them; and files of one
program without a version record."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from torch.utils.tensorboard import SummaryWriter

import sightglass as sg
from sightglass.core.errors import DamagedError
from sightglass.storage.format.block import Key
from sightglass.storage.format.framing import frame
from sightglass.storage.read.recording import Recording

FIRST = "events.out.tfevents.1000000000.gpu-1.7.0"
LATER = "events.out.tfevents.1000000100.gpu-1.8.0"
VERSION = Event(wall_time=1.0, file_version="brain.Event:2")


def number(tag: str, step: int, value: float, wall_time: float) -> Any:
    summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
    return Event(wall_time=wall_time, step=step, summary=summary)


def session(step: int, wall_time: float, status: int = SessionLog.START) -> Any:
    return Event(wall_time=wall_time, step=step, session_log=SessionLog(status=status))  # type: ignore[arg-type]


def write(path: Path, events: Iterable[Any], *, begin: Any = VERSION, mode: str = "wb") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    every = ([begin] if begin is not None else []) + list(events)
    with path.open(mode) as file:
        for event in every:
            file.write(b"".join(map(bytes, frame([event.SerializeToString()]))))


def theirs(folder: Path) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(one.step, one.value) for one in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def ours(folder: Path) -> dict[str, list[tuple[int, float]]]:
    with sg.open(folder) as run:
        series = {tag: run.series(tag) for tag in run.tags()}
        return {tag: [(int(one.step), one.value) for one in found] for tag, found in series.items() if len(found)}


@pytest.mark.parametrize("n_files", [1, 3])
@pytest.mark.parametrize("seed", range(12))
def test_what_a_session_takes_back_is_what_tensorboard_takes_back(tmp_path: Path, seed: int, n_files: int) -> None:
    chance = random.Random(seed)
    wall_time, step = 10.0, 0
    for part in range(n_files):
        events = []
        for _ in range(chance.randint(1, 4)):
            if part or events:
                step = max(0, step - chance.randint(0, 12))
                events.append(session(step, wall_time))
            for _ in range(chance.randint(1, 15)):
                wall_time += 1.0
                events += [number(tag, step, chance.random(), wall_time) for tag in "abc" if chance.random() < 0.6]
                step += 1
            if chance.random() < 0.3:
                events.append(session(step, wall_time, SessionLog.STOP))
        write(tmp_path / f"events.out.tfevents.{1_000_000_000 + part}.gpu-1.{part}.0", events)
    assert ours(tmp_path) == theirs(tmp_path)


def test_purge_step_of_pytorch(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        for step in range(10):
            writer.add_scalar("loss", step, step)
            writer.add_histogram("weights", np.array([1.0, step]), step)
            writer.add_text("note", str(step), step)
    (first,) = tmp_path.iterdir()
    first.rename(tmp_path / FIRST)
    with SummaryWriter(tmp_path, purge_step=4) as writer:
        writer.add_scalar("loss", -1.0, 4)
    with sg.open(tmp_path) as run:
        assert [int(step) for step in run.series("loss").steps] == [0, 1, 2, 3, 4]
        assert [int(step) for step in run.series("weights").steps] == [0, 1, 2, 3]
        assert max(record.value for record in run.series("loss")) == 3.0


def test_another_writer_at_the_same_time_takes_nothing_back(tmp_path: Path) -> None:
    write(tmp_path / FIRST, [number("worker", step, step, 100.0 + step) for step in range(100)])
    write(tmp_path / LATER, [session(50, 150.0), *(number("lr", step, step, 100.0 + step) for step in range(50, 60))])
    assert {tag: len(found) for tag, found in ours(tmp_path).items()} == {"worker": 100, "lr": 10}


def test_a_writer_with_a_suffix_of_its_own_takes_nothing_back(tmp_path: Path) -> None:
    write(tmp_path / f"{FIRST}.worker", [number("worker", step, step, step) for step in range(10)])
    write(tmp_path / f"{LATER}.master", [session(5, 50.0), number("lr", 5, 1.0, 51.0)])
    assert {tag: len(found) for tag, found in ours(tmp_path).items()} == {"worker": 10, "lr": 1}


def test_who_follows_a_file_sees_what_it_takes_back(tmp_path: Path) -> None:
    def steps() -> list[int]:
        recording.refresh()
        return [int(step) for step in recording.series(Key(kind="logged", tag="loss", values="scalar")).steps]

    write(tmp_path / FIRST, [number("loss", step, step, step) for step in range(10)])
    with Recording(tmp_path) as recording:
        assert (len(steps()), recording.generation) == (10, 0)
        write(tmp_path / FIRST, [session(3, 20.0)], begin=None, mode="ab")
        assert (steps(), recording.generation) == ([0, 1, 2], 1)
        write(tmp_path / FIRST, [number("loss", 3, -3.0, 21.0)], begin=None, mode="ab")
        assert (steps(), recording.generation) == ([0, 1, 2, 3], 1)


@pytest.mark.parametrize("name", ["events.out.tfevents", "learn.tfevents", FIRST])
@pytest.mark.parametrize("tag", ["Logloss", "a" * 300])
def test_a_file_without_a_version_record_is_tensorboards(tmp_path: Path, name: str, tag: str) -> None:
    write(tmp_path / name, [number(tag, step, step / 8, float(step)) for step in range(9)], begin=None)
    assert ours(tmp_path) == {tag: [(step, step / 8) for step in range(9)]} == theirs(tmp_path)
    with sg.open(tmp_path) as run:
        assert run.check().intact


def test_one_event_without_a_version_record_is_enough(tmp_path: Path) -> None:
    write(tmp_path / "events.out.tfevents", [number("a" * 300, 1, 2.0, 3.0)], begin=None)
    assert ours(tmp_path) == {"a" * 300: [(1, 2.0)]}


def test_what_only_resembles_an_event_file_is_neither_read_nor_damaged(tmp_path: Path) -> None:
    write(tmp_path / FIRST, [number("loss", 0, 1.0, 2.0)])
    (tmp_path / "about.tfevents.md").write_text("# Notes about the tfevents\n" * 40)
    with sg.open(tmp_path) as run:
        assert run.tags() == ["loss"]
        assert len(run.check().files) == 1
        assert run.check().intact
    (tmp_path / FIRST).unlink()
    with pytest.raises(DamagedError, match="names like theirs"):
        sg.open(tmp_path)
