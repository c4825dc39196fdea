"""Statistics of tensors over their steps: series of numbers, with the rows of the tensor's series."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sightglass as sg
from sightglass.core.errors import DamagedError, QueryError, UnknownNameError
from sightglass.storage.read import run_digests
from sightglass.storage.tensors.digests import STATISTICS

N = 12


def weights(step: int) -> np.ndarray:
    values = np.random.default_rng(step).standard_normal((40, 500)).astype(np.float32)
    values[0, :step] = 0
    if step == 5:
        values[1, 1], values[1, 2], values[1, 3] = np.nan, np.inf, -np.inf
    return values


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return a run with large and small tensors, with histograms, and with a recorded query of arrays."""
    with sg.init("r", dir=tmp_path, record=["batch.w"]) as run:
        for step in range(N):
            run.log(
                {"layer/w": sg.Tensor(weights(step)), "b": sg.Tensor(np.arange(3) + step), "x": step}, step=10 * step
            )
            run.log({"h": sg.Histogram(np.arange(step + 1))}, step=10 * step)
            run.observe("batch", step=step, w=np.full(4, step, np.float32))
            run.flush()
        assert run.directory is not None
        return run.directory


def test_each_statistic_is_a_series_with_the_numbers_of_each_step(directory: Path) -> None:
    run = sg.open(directory)
    for name in STATISTICS:
        series = run.series(f"{name}(layer/w)")
        expected = [getattr(run.series("layer/w").statistics(10 * step), name) for step in range(N)]
        assert np.array_equal(series.columns().values, np.float64(expected)), name
        assert (series.tag, len(series), series.steps.tolist()) == (f"{name}(layer/w)", N, list(range(0, 10 * N, 10)))
        assert [record.value for record in series] == [series[i].value for i in range(N)] == pytest.approx(expected)
        assert series.at(50) == pytest.approx(expected[5])
    assert (run.series("n_nan(layer/w)").type, run.series("norm(layer/w)").type) == ("int", "float")
    assert run.series("n_nan(layer/w)").columns().values.tolist() == [int(step == 5) for step in range(N)]


def test_rows_are_those_of_the_tensor(directory: Path) -> None:
    run = sg.open(directory)
    for tag in ("layer/w", "b", "batch.w"):
        tensors, norms = run.series(tag).columns(), run.series(f"norm({tag})").columns()
        for name in ("steps", "wall_times", "ordinals", "numbers"):
            assert np.array_equal(getattr(norms, name), getattr(tensors, name)), (tag, name)
        norms_of = [np.linalg.norm(np.float64(value)[np.isfinite(value)]) for value in tensors.values]
        assert norms.values == pytest.approx(norms_of)


def test_what_a_histogram_does_not_tell_is_nan(directory: Path) -> None:
    run = sg.open(directory)
    assert np.isnan(run.series("n_zero(h)").columns().values).all()
    assert run.series("n(h)").columns().values.tolist() == list(range(1, N + 1))


def test_a_stream_answers_and_takes_further_stages(directory: Path) -> None:
    run = sg.open(directory)
    expected = run.series("norm(layer/w)").columns().values
    assert run.stream("norm(layer/w)").to_arrays().values.tolist() == expected.tolist()
    query = sg.on("log").map(lambda e: e["norm(layer/w)"])
    assert [record.value for record in run.stream(query)] == expected.tolist()
    means = run.stream(query.mean(every=4))
    assert [record.value for record in means] == pytest.approx(expected.reshape(6, 2).mean(axis=1)), "two logs a step"
    difference = run.stream(sg.on("log").map(lambda e: e["max(b)"] - e["min(b)"]))
    assert [record.value for record in difference] == [2] * N
    assert run.stream("norm(layer/w).max").latest.value == expected.max()


def test_statistics_are_not_listed_and_others_are_unknown(directory: Path) -> None:
    run = sg.open(directory)
    assert run.tags() == ["b", "batch.w", "h", "layer/w", "x"]
    for name in ("norm(x)", "norm(nope)", "median(b)", "norm(norm(b))"):
        with pytest.raises(UnknownNameError):
            run.series(name)
    with pytest.raises(QueryError):
        run.stream("norm(x)")
    with pytest.raises(UnknownNameError, match="nearest"):
        run.series("norm(b)").at(15)
    with pytest.raises(TypeError, match="numbers"):
        run.series("norm(b)").at(10, "[0]")


def test_a_logged_tag_of_that_name_comes_first(tmp_path: Path) -> None:
    with sg.init("r", dir=tmp_path) as run:
        run.log({"w": sg.Tensor(np.ones(4)), "norm(w)": 7.0}, step=0)
    assert run.directory is not None
    assert sg.open(run.directory).series("norm(w)")[0].value == 7.0


def test_a_damaged_record_is_a_gap(directory: Path) -> None:
    (path,) = directory.glob("*.sgr")
    data = bytearray(path.read_bytes())
    data[data.index(weights(3).tobytes()[-400:]) + 8] ^= 1
    path.write_bytes(data)
    run = sg.open(directory)
    series = run.series("n_zero(layer/w)")
    assert [len(part) for part in series.parts()] == [3, N - 4]
    assert series.columns().steps.tolist() == [10 * step for step in range(N) if step != 3]
    assert [record.index for record in series] == [step for step in range(N) if step != 3]
    with pytest.raises(DamagedError):
        series[3]
    with pytest.raises(DamagedError):
        series.at(30)


def test_some_are_ready_and_the_others_when_asked_again(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_digests, "WORTH_S", 0.0)
    series = sg.open(directory).series("norm(layer/w)")
    lengths = [len(series.ready(until_s=0.0)) for _ in range(N)]
    assert lengths == list(range(1, N + 1)), "one more in any case"
    assert series.ready(until_s=0.0).columns().values.tolist() == series.columns().values.tolist()


def test_it_is_exported(directory: Path, tmp_path: Path) -> None:
    run = sg.open(directory)
    run.export("csv", out=tmp_path / "out.csv", tags=["norm(layer/w)", "x"])
    text = (tmp_path / "out.csv").read_text()
    assert text.count("norm(layer/w)") == N
    assert repr(float(run.series("norm(layer/w)")[0].value)) in text
