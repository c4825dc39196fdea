"""TensorBoard's hyper-parameters, as its plugin and PyTorch write them: configuration, metrics and end of a run."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2, summary_v2

import sightglass as sg
from sightglass.server.runs.details import Details, read_inside, read_outside
from sightglass.storage import run_listing
from sightglass.storage.foreign.settings import read_settings
from sightglass.storage.format.framing import frame
from sightglass.storage.format.summary import TENSORBOARD_VERSION, encode_version
from sightglass.storage.read.recording import Recording

BEGAN = 1_700_000_000.0
NAME = "events.out.tfevents.1700000000.gpu-1.7.{}"
TORCH = Path(__file__).parents[1] / "fixtures" / "torch.out.events"


def write(path: Path, *summaries: tuple[float, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    records = [Event(wall_time=BEGAN + after, summary=summary).SerializeToString() for after, summary in summaries]
    every = [encode_version(TENSORBOARD_VERSION, BEGAN), *([record] for record in records)]
    path.write_bytes(b"".join(bytes(part) for parts in every for part in frame(parts)))


def number(tag: str, value: float) -> Any:
    return Summary(value=[Summary.Value(tag=tag, simple_value=value)])


def experiment(*metrics: str) -> Any:
    return summary_v2.hparams_config_pb(hparams=[], metrics=[summary_v2.Metric(one, group="eval") for one in metrics])


def begin(**config: Any) -> Any:
    return summary_v2.hparams_pb(config, trial_id="one", start_time_secs=BEGAN + 1)


def end(status: int, *, after: float) -> Any:
    info = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=BEGAN + after)  # type: ignore[arg-type]
    data = plugin_data_pb2.HParamsPluginData(session_end_info=info)
    value = Summary.Value(tag=metadata.SESSION_END_INFO_TAG, metadata=metadata.create_summary_metadata(data))
    return Summary(value=[value])


def details_of(folder: Path) -> Details:
    entry = run_listing.run_at(folder, alive=lambda id: False)
    assert entry is not None
    with Recording(folder) as recording:
        return read_inside(read_outside(entry, Details()), recording)


def test_a_session_is_the_configuration_the_metrics_and_the_end_of_a_run(tmp_path: Path) -> None:
    write(tmp_path / "run" / NAME.format(0), (0, experiment("accuracy", "eval/loss")), (1, begin(lr=0.5, layers=3)),
          (2, number("accuracy", 0.75)), (60, end(api_pb2.STATUS_SUCCESS, after=60)))  # fmt: skip
    with sg.open(tmp_path / "run") as run:
        assert run.config == {"lr": 0.5, "layers": 3}
        assert run.describe().state == "ended"
        assert run.tags() == ["accuracy"]
    with Recording(tmp_path / "run") as recording:
        assert (recording.info.host, recording.info.started, recording.info.ended) == ("gpu-1", BEGAN + 1, BEGAN + 60)
        assert recording.passed_over == {}
    found = details_of(tmp_path / "run")
    assert (found.state, found.ended, found.host) == ("ended", BEGAN + 60, "gpu-1")
    assert found.metrics == ["accuracy", "eval/loss"]


@pytest.mark.parametrize("status", [api_pb2.STATUS_FAILURE, api_pb2.STATUS_RUNNING])
def test_only_an_end_that_is_told_ends_a_run(tmp_path: Path, status: int) -> None:
    write(tmp_path / "run" / NAME.format(0), (1, begin(lr=0.5)), (7, number("a", 1.0)), (9, end(status, after=9)))
    found = details_of(tmp_path / "run")
    failed = status == api_pb2.STATUS_FAILURE
    assert (found.state, found.ended) == (("failed", BEGAN + 9) if failed else ("", BEGAN + 7))


def test_several_files_tell_together(tmp_path: Path) -> None:
    write(tmp_path / "run" / NAME.format(0), (1, begin(lr=0.5, opt="sgd")), (2, experiment("a")))
    write(tmp_path / "run" / NAME.format(1), (3, begin(lr=0.25)), (4, experiment("b", "a")))
    write(tmp_path / "run" / NAME.format(2), (5, number("a", 1.0)))
    with Recording(tmp_path / "run") as recording:
        assert recording.info.config == {"lr": 0.25, "opt": "sgd"}
        assert recording.metrics == ["a", "b"]


def test_runs_are_chosen_by_their_hyper_parameters(tmp_path: Path) -> None:
    for lr in (0.5, 0.25):
        write(tmp_path / f"lr={lr}" / NAME.format(0), (1, begin(lr=lr)), (2, number("a", lr)))
    with sg.open(tmp_path) as runs:
        assert isinstance(runs, sg.RecordedRuns)
        assert list(runs.where(lambda run: run.config.lr < 0.3)) == ["lr=0.25"]


def test_what_pytorch_writes_is_read(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    shutil.copy(TORCH, tmp_path / "run" / NAME.format(0))
    found = details_of(tmp_path / "run")
    assert (found.config, found.metrics, found.state) == ({"lr": 0.1, "kind": "sgd"}, ["accuracy"], "")


def test_what_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    broken = begin(lr=0.5)
    broken.value[0].metadata.plugin_data.content = b"\x1a\xff"
    write(tmp_path / "run" / NAME.format(0), (1, broken), (2, number("a", 1.0)))
    with sg.open(tmp_path / "run") as run:
        assert (run.config, run.tags(), run.check().intact) == ({}, ["a"], True)
    assert read_settings(tmp_path / "run") == {}
