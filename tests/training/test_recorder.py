"""The recorder: the keys and numbers of records, and no file before the first one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from sightglass.core.errors import StorageError
from sightglass.core.process.clock import SystemClock
from sightglass.query.evaluation import Evaluation
from sightglass.query.parser import parse
from sightglass.storage.format.block import Key
from sightglass.storage.read.recording import Recording
from sightglass.training.evaluation.subscription import Subscription
from sightglass.training.evaluation.telemetry import Telemetry
from sightglass.training.recorder import Recorder
from sightglass.training.serving.client_subscriptions import RecordedSubscriptions


@pytest.fixture
def made(tmp_path: Path) -> list[Path]:
    """Return the directories that were opened so far."""
    return []


@pytest.fixture
def recorder(tmp_path: Path, made: list[Path]) -> Recorder:
    def open_directory() -> Path:
        path = tmp_path / "run"
        path.mkdir(exist_ok=True)
        made.append(path)
        return path

    return Recorder(open_directory, rank=0, clock=SystemClock())


def command(n: int) -> dict[str, object]:
    return {"kind": "set", "step": n, "wall_time": n + 0.5, "index": 10 * n, "name": "lr"}


def recorded_subscriptions(recorder: Recorder) -> RecordedSubscriptions:
    return RecordedSubscriptions(Telemetry(clock=SystemClock(), budget=None), recorder, run="job")


def test_commands_alone_are_not_recorded(recorder: Recorder, made: list[Path]) -> None:
    recorded_subscriptions(recorder).command(command(1))
    recorder.flush(5)
    assert not recorder.active
    recorder.close(5)
    assert made == []


def test_a_command_before_the_first_row_of_a_recorded_query_is_recorded(recorder: Recorder, made: list[Path]) -> None:
    query = parse("batch.loss")
    recorded = recorded_subscriptions(recorder)
    recorded.add(Subscription(1, query, Evaluation(query), clock=SystemClock(), defer=lambda wait, settle: None))
    recorded.command(command(1))
    recorder.close(5)
    assert len(made) == 1


def test_everything_goes_into_a_series_of_its_own(recorder: Recorder, tmp_path: Path, made: list[Path]) -> None:
    query = parse("batch.loss")
    subscription = Subscription(1, query, Evaluation(query), clock=SystemClock(), defer=lambda wait, settle: None)
    subscription.errors.n, subscription.n_skipped, subscription.rows.n_dropped = 1, 2, 3
    rows = [(n, 2 * n, float(n), n / 2, None, 7 + n) for n in (4, 5)]
    recorder.record(subscription, rows, 11)
    recorder.group("batch", 13, 3.5)
    recorder.group("other", 1, 3.5)
    recorder.group("batch", 17, 4.5)
    params = {"w": np.eye(2), "deep": [SimpleNamespace(lr=0.1, inner=SimpleNamespace(x=1))]}
    recorder.snapshot("init", 3, 30, 1.0, {"net": SimpleNamespace(**params), "n": 1})
    recorder.command(command(1))
    recorder.command(command(2))
    recorder.log(0, 5, 2.0, {"a": 1.0, "b": "x"}, {"epoch": 0.5})
    assert recorder.active
    recorder.flush(20)
    statistics = recorder.statistics()
    assert (statistics.n_records, statistics.n_dropped, statistics.n_waiting, statistics.last_error) == (10, 0, 0, "")
    recorder.close(20)
    recorder.close(20)
    assert made == [tmp_path / "run"]

    with Recording(tmp_path / "run") as recording:
        assert recording.keys() == [
            Key(kind="commands", tag="commands"), Key(kind="groups", tag="batch"), Key(kind="groups", tag="other"),
            Key(kind="logged", tag="a"), Key(kind="logged", tag="b"), Key(kind="snapshot", tag="init"),
            Key(kind="stream", tag="batch.loss", query=query.key),
        ]  # fmt: skip
        stream = recording.series("batch.loss")
        assert (stream.since, stream.n_missed) == (11, 6)
        assert [(r.index, r.step, r.wall_time, r.value) for r in stream] == [(4, 8, 4.0, 2.0), (5, 10, 5.0, 2.5)]
        assert stream.columns().ordinals.tolist() == [11, 12]
        groups = recording.series(Key(kind="groups", tag="batch"))
        assert groups.columns().ordinals.tolist() == groups.steps.tolist() == [13, 17]
        assert [r.index for r in groups] == [0, 1]
        commands = recording.series(Key(kind="commands", tag="commands")).columns()
        assert commands.values == [command(1), command(2)]
        assert commands.ordinals.tolist() == [10, 20]
        (init,) = recording.series(Key(kind="snapshot", tag="init"))
        assert init.step == 30
        assert init.value["net"]["w"].tolist() == [[1, 0], [0, 1]]
        assert init.value["net"]["deep"] == [{"lr": 0.1, "inner": {"x": 1}}]
        assert recording.series("a")[0].steps == {"epoch": 0.5}


def test_what_cannot_be_opened_is_warned_of_and_raised_by_flush(tmp_path: Path) -> None:
    def refuse() -> Path:
        raise PermissionError(13, "Permission denied", str(tmp_path))

    recorder = Recorder(refuse, rank=0, clock=SystemClock())
    with pytest.warns(RuntimeWarning, match="Permission denied"):  # noqa: PT031
        recorder.group("batch", 1, 1.0)
        with pytest.raises(StorageError, match=r"Permission denied; 1 wait.*0 are lost$"):
            recorder.flush(20)
    with pytest.raises(StorageError, match=r"0 wait.*1 are lost$"):
        recorder.close(20)


def test_abandoned_it_is_a_no_op(recorder: Recorder, made: list[Path]) -> None:
    recorder.abandon()
    recorder.log(0, 5, 2.0, {"a": 1.0}, None)
    recorder.group("batch", 1, 1.0)
    recorder.flush(1)
    recorder.close(1)
    assert made == []
