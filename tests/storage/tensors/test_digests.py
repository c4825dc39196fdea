"""Digests of tensors: what NumPy says of each step, computed once, and kept as long as the files are the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn

import sightglass as sg
from sightglass.core.columns import Columns
from sightglass.core.values import Histogram
from sightglass.storage.read import run_digests
from sightglass.storage.read.recording import Recording
from sightglass.storage.tensors.digests import COUNTS, N_BARS, NUMBERS, digest
from sightglass.storage.tensors.statistics import statistics


def of(value: Any) -> np.void:
    return digest(Columns(index=0, steps=np.array([3]), wall_times=np.array([1e9]), values=[value]), 0, tag="w")


arrays = hn.arrays(
    st.sampled_from([np.float64, np.float32, np.int64, np.uint8, np.bool_, np.complex64]), hn.array_shapes(max_side=6)
)


@given(arrays)
def test_a_digest_has_the_statistics_and_a_bar_wherever_there_are_values(array: Any) -> None:
    row, found = of(array), statistics(array)
    for name in (*COUNTS, *NUMBERS):
        assert np.array_equal(row[name], np.float64(getattr(found, name)), equal_nan=True), name
    assert (row["known"], row["step"], row["wall_time"]) == (1, 3, 1e9)
    assert row["bars"].any() == (found.n_finite > 0)
    assert row["bars"].max() in (0, 255)
    if found.n_finite and 0 < found.max - found.min < np.inf:
        assert row["bars"][0], "the smallest value is in the first bar"
        assert row["bars"][-1], "the largest value is in the last bar"


@given(hn.arrays(np.float64, st.integers(1, 200), elements=st.integers(0, 240).map(lambda i: i / 10)))
def test_the_bars_are_the_counts_of_numpy(array: Any) -> None:
    array = np.concatenate([array, [0.05, 23.95]])
    bars = of(array + 0.05 - 0.05)["bars"]
    inside = array[np.abs(array - np.round(array)) > 1e-6]  # others may fall on either side of an edge
    low, high = array.min(), array.max()
    places = np.unique(np.clip((inside - low) / (high - low) * N_BARS // 1, 0, N_BARS - 1).astype(int))
    assert (bars[places] > 0).all()


def test_a_histogram_tells_what_it_knows() -> None:
    row = of(Histogram.from_counts([0, 360, 120, 0], [0, 1, 2, 3, 4], n_nan=2, n_posinf=1))
    assert (row["n"], row["n_nan"], row["n_posinf"], row["min"], row["max"]) == (483, 2, 1, 1, 3)
    assert np.isnan([row["mean"], row["std"], row["norm"]]).all()
    assert row["bars"][0] == 255
    assert row["bars"][-1] == 85
    stored = of(Histogram.from_counts([3, 1], [0, 1, 2], stored=(0.5, 1.5, 3.0)))
    assert (stored["min"], stored["max"], stored["mean"]) == (0.5, 1.5, 0.75)
    nothing = of(Histogram.from_counts([0, 0], [0, 1, 2]))
    assert not nothing["bars"].any()
    assert np.isnan(nothing["min"])
    assert of(Histogram.from_counts([5], [1, 1]))["bars"].max() == 255


@pytest.fixture
def n_digested(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The steps whose values were read to be described."""
    steps: list[float] = []

    def counted(columns: Columns, i: int, *, tag: str) -> np.void:
        steps.append(columns.steps[i])
        return digest(columns, i, tag=tag)

    monkeypatch.setattr(run_digests, "digest", counted)
    monkeypatch.setattr(run_digests, "WORTH_S", 0.0)
    return steps


def recorded(folder: Path, n: int = 5) -> Path:
    with sg.init("r", dir=folder) as run:
        for i in range(n):
            run.log({"w": sg.Tensor(np.full((3, 4), i, np.float32)), "h": sg.Histogram(np.arange(i + 1))}, step=i)
    assert run.directory is not None
    for path in run.directory.glob("*.sgr"):
        os.utime(path, (1e9, 1e9))
    return run.directory


def test_statistics_of_all_steps_are_computed_once_and_kept_beside_the_run(
    tmp_path: Path, n_digested: list[float]
) -> None:
    directory = recorded(tmp_path)
    with Recording(directory) as recording:
        found = recording.series("w").statistics_by_step()
        assert found["mean"].tolist() == [0, 1, 2, 3, 4]
        assert found["step"].tolist() == [0, 1, 2, 3, 4]
        assert found["n"].tolist() == [12] * 5
        assert found["norm"][2] == pytest.approx(np.sqrt(48))
        assert recording.series("h").statistics_by_step()["n"].tolist() == [1, 2, 3, 4, 5]
        recording.series("w").statistics_by_step()
    assert len(n_digested) == 10
    with Recording(directory) as recording:
        assert recording.series("w").statistics_by_step()["mean"].tolist() == [0, 1, 2, 3, 4]
    assert len(n_digested) == 10, "read from beside the run"


def test_what_is_kept_of_other_files_or_damaged_does_not_count(tmp_path: Path, n_digested: list[float]) -> None:
    directory = recorded(tmp_path)
    kept = directory / f"{run_digests.NAME}-rank0"
    for change in ("time", "damage", "cut"):
        with Recording(directory) as recording:
            recording.series("w").statistics_by_step()
        assert kept.exists()
        if change == "time":
            (file,) = directory.glob("*.sgr")
            os.utime(file, (1e9 + 5, 1e9 + 5))
        else:
            data = kept.read_bytes()
            kept.write_bytes(data[:-9] if change == "cut" else data[:-1] + bytes([data[-1] ^ 1]))
        del n_digested[:]
        with Recording(directory) as recording:
            assert recording.series("w").statistics_by_step()["max"].tolist() == [0, 1, 2, 3, 4]
        assert len(n_digested) == 5


def test_a_run_that_is_being_written_keeps_nothing_and_reads_only_what_is_new(
    tmp_path: Path, n_digested: list[float]
) -> None:
    with sg.init("r", dir=tmp_path) as run:
        run.log({"w": sg.Tensor(np.ones(3))}, step=0)
        run.flush()
        assert run.directory is not None
        with Recording(run.directory) as recording:
            assert recording.series("w").statistics_by_step()["step"].tolist() == [0]
            run.log({"w": sg.Tensor(np.zeros(3))}, step=1)
            run.flush()
            recording.refresh()
            assert recording.series("w").statistics_by_step()["n_zero"].tolist() == [0, 3]
    assert n_digested == [0, 1]
    assert not (run.directory / f"{run_digests.NAME}-rank0").exists()


def test_rows_that_a_restart_hides_are_read_anew(tmp_path: Path) -> None:
    with sg.init("r", dir=tmp_path) as run:
        for i in range(4):
            run.log({"w": sg.Tensor(np.full(3, i))}, step=i)
    assert run.directory is not None
    with Recording(run.directory) as recording:
        assert recording.series("w").statistics_by_step()["mean"].tolist() == [0, 1, 2, 3]
        with sg.init("r", files=sg.Files(into=run.directory)) as again:
            for i in range(2, 5):
                again.log({"w": sg.Tensor(np.full(3, -i))}, step=i)
        recording.refresh()
        assert recording.series("w").statistics_by_step()["mean"].tolist() == [0, 1, -2, -3, -4]


def test_damaged_records_have_no_statistics(tmp_path: Path) -> None:
    arrays = [np.full(40_000, i, np.float32) for i in range(4)]
    with sg.init("r", dir=tmp_path) as run:
        for i, array in enumerate(arrays):
            run.log({"w": sg.Tensor(array)}, step=i)
            run.flush()  # a block for each
    assert run.directory is not None
    (file,) = run.directory.glob("*.sgr")
    data = bytearray(file.read_bytes())
    data[data.index(arrays[2].tobytes())] ^= 1
    file.write_bytes(data)
    with Recording(run.directory) as recording:
        found = recording.series("w").statistics_by_step()
        assert found["step"].tolist() == found["mean"].tolist() == [0, 1, 3]
