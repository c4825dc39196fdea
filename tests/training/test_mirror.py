"""Mirrors: what a run records goes to other trackers, too."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
from tests.storage.wandb_files import environment, read_all

import sightglass as sg
from sightglass.core.errors import StorageError
from sightglass.storage.file_names import EVENT_FILES


class Sink:
    """Keeps what it gets; waits before each write until it may."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.records: list[sg.Record] = []
        self.calls: list[str] = []
        self.may_write = threading.Event()
        self.may_write.set()
        self._failure = failure

    def write(self, records):
        self.may_write.wait(60)
        if self._failure is not None:
            raise self._failure
        self.records += records

    def flush(self, timeout_s):
        self.calls.append("flush")

    def close(self, timeout_s):
        self.calls.append("close")


def test_a_sink_gets_what_is_logged_and_what_recorded_queries_yield(tmp_path):
    sink = Sink()
    with sg.init("m", dir=tmp_path, record=["batch.loss"], mirror=sink) as run:
        run.observe("batch", step=5, loss=0.5)
        run.log({"val": {"loss": 0.25}, "note": sg.Text("hi")}, step=3, epoch=1)
        run.flush()
        assert sink.calls == ["flush"]
        got = {(r.tag, r.step, r.value, *r.steps.items()) for r in sink.records}
        assert got == {("batch.loss", 5, 0.5), ("val/loss", 3, 0.25, ("epoch", 1)), ("note", 3, "hi", ("epoch", 1))}
        assert {r.run for r in sink.records} == {"m"}
    assert sink.calls[-1] == "close"
    assert sg.open(run.directory).series("val/loss")[0].value == 0.25


def test_a_mirror_gets_values_as_they_were_logged(tmp_path):
    sink = Sink()
    sink.may_write.clear()
    weights = np.zeros(3)
    with sg.init("m", dir=tmp_path, mirror=[sink]) as run:
        run.log({"w": weights, "h": sg.Histogram(weights, bins=1)}, step=0)
        weights += 1.0
        sink.may_write.set()
    values = {r.tag: r.value for r in sink.records}
    assert values["w"].tolist() == [0.0, 0.0, 0.0]
    assert values["h"].edges[0] <= 0.0 <= values["h"].edges[-1] < 1.0


@pytest.mark.filterwarnings("ignore:mirror Sink")
def test_a_sink_that_fails_is_reported_and_costs_the_run_nothing_else(tmp_path):
    sink = Sink(OSError("the disk is gone"))
    run = sg.init("m", dir=tmp_path, mirror=sink)
    run.log({"loss": 0.5}, step=0)
    with pytest.raises(StorageError, match=r"Sink: .*1 lost: OSError"):
        run.close()
    assert sink.calls[-1] == "close"
    assert [r.value for r in sg.open(run.directory).series("loss")] == [0.5]


def test_event_files_are_in_the_run_directory_and_are_not_a_run(tmp_path):
    with sg.init("m", dir=tmp_path, mirror="tensorboard") as run:
        run.log({"loss": 0.5, "digits": sg.Images(np.zeros((2, 4, 4)))}, step=7)
        run.log({"loss": 0.25}, step=3)
    events = sg.open(run.directory / EVENT_FILES)
    assert [(r.step, r.value) for r in events.series("loss")] == [(7, 0.5), (3, 0.25)]
    assert "digits" in events.tags()
    assert list(sg.open(tmp_path)) == [run.directory.name]


def test_mindspore_s_files_are_what_an_export_writes(tmp_path):
    from sightglass.storage.export.export import export
    from sightglass.storage.read.recording import Recording

    values = {
        "a": {"loss": 0.1, "n": 2**24 + 1}, "half": np.array([0.5, 2.0], np.float16), "mask": np.array([True, False]),
        "h": sg.Histogram(np.array([1.0, 2.0, np.nan])), "grey": sg.Images(np.zeros((2, 4, 4))),
    }  # fmt: skip
    run = sg.init("m", dir=tmp_path, files=sg.Files(compat="mindspore"))

    def log(step):
        run.log(values, step=step)
        run.flush()

    with pytest.warns(RuntimeWarning, match=r"'a/\w+'.*step 0.*float32"):
        log(0)
    log(1)
    with pytest.warns(RuntimeWarning, match="float32: 4 values"):
        run.close()

    exported = export(Recording(run.directory), to="mindspore", out=tmp_path / "exported")

    assert {(loss.tag, loss.why, loss.n) for loss in exported.losses} == {
        ("a/loss", "numbers were rounded to float32", 2), ("a/n", "numbers were rounded to float32", 2),
    }  # fmt: skip
    written, expected = (Recording(path) for path in (run.directory / "mindspore", tmp_path / "exported"))
    assert written.tags() == expected.tags() == ["a/loss", "a/n", "grey", "h", "half", "mask"]
    for tag in expected.tags():
        ours, theirs = written.series(tag), expected.series(tag)
        assert [repr(r.value) for r in ours] == [repr(r.value) for r in theirs], tag
        assert (ours.dtype, ours.steps.tolist(), ours.wall_times.tolist()) == (
            theirs.dtype, theirs.steps.tolist(), theirs.wall_times.tolist(),
        )  # fmt: skip
    assert list(sg.open(tmp_path)) == [run.directory.name, "exported"]


KINDS: dict[str, object] = {
    "text": "words", "table": sg.Table({"a": [1, 2]}), "complex": 1j, "number": 0.5,
    "histogram": sg.Histogram([1.0, 2.0]), "image": sg.Image(np.zeros((4, 4, 3), np.uint8)), "array": np.arange(3.0),
    "sound": sg.Audio(np.zeros(8), 8000), "jpeg": sg.Figure(b"\xff\xd8\xff\xe0" + bytes(8), "image/jpeg"),
    "names": np.array(["a", "b"]),
}  # fmt: skip


class Picky:
    """Holds numbers only."""

    def __init__(self):
        self.tags = []

    def write(self, records):
        held = [record.tag for record in records if isinstance(record.value, float)]
        self.tags += held
        if len(held) < len(records):
            raise sg.UnsendableError("what is no number")

    def flush(self, timeout_s): ...
    def close(self, timeout_s): ...


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mirror", ["tensorboard", "mindspore", "sink"])
def test_a_kind_that_a_mirror_does_not_hold_is_no_failure(tmp_path, mirror, kind):
    sink = Picky() if mirror == "sink" else mirror
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with sg.init("m", dir=tmp_path, mirror=sink) as run:
            for step in range(3):
                run.log({kind: KINDS[kind], "loss": 0.5}, step=step)
            run.flush()
    told = [str(one.message) for one in warned if "left out" in str(one.message)]
    kept = sink.tags if isinstance(sink, Picky) else list(sg.open(run.directory / str(sink)).tags())
    assert "loss" in kept
    assert len(told) == (kind not in kept)
    assert sg.open(run.directory).series(kind).n == 3  # the run itself has all of it


def test_what_mindspore_has_no_place_for_is_reported(tmp_path):
    run = sg.init("m", dir=tmp_path, mirror="mindspore")
    run.log({"note": "text", "loss": 1e300, "x": 0.5}, step=2.5)
    with pytest.warns(RuntimeWarning) as warned:
        run.close()
    assert any("left out 'note'" in str(one.message) for one in warned)
    events = sg.open(run.directory / "mindspore")
    assert [(tag, events.series(tag)[0].step, events.series(tag)[0].value) for tag in events.tags()] == [
        ("loss", 2, float("inf")), ("x", 2, 0.5),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("mirror", "error", "message"),
    [
        ("tensorbord", ValueError, "mirror='tensorboard', 'mindspore', 'wandb' .*'tensorbord'"),
        ([3], TypeError, "mirror, got 3$"),
    ],
)
def test_another_mirror_is_refused(tmp_path, mirror, error, message):
    with pytest.raises(error, match=message):
        sg.init("m", dir=tmp_path, mirror=mirror)


def test_a_disabled_run_has_no_mirror(tmp_path):
    sink = Sink()
    with sg.init("m", dir=tmp_path, mirror=sink, mode="disabled") as run:
        run.log({"loss": 0.5})
    assert (sink.records, sink.calls) == ([], [])


WANDB = """
import os, sys
os.environ["WANDB_SILENT"] = "true"
import numpy as np, wandb, sightglass as sg
options = dict(mode="offline", dir=sys.argv[1], project="p")
os.environ |= {"WANDB_MODE": "offline", "WANDB_DIR": sys.argv[1]}
shared = sys.argv[2] == "shared"
theirs = wandb.init(name="theirs", **options) if shared else None
run = sg.init("job", dir=sys.argv[1], config={"lr": 0.1}, record=["batch.loss"], mirror="wandb")
for step in (10, 20):
    run.observe("batch", step=step, loss=1 / step)
    run.log({"val": step / 10, "digits": sg.Images(np.zeros((2, 4, 4)))}, step=step)
run.log({"val": 0.5}, step=5)
if sys.argv[3] == "close":
    run.close()
"""


@pytest.mark.parametrize("end", ["close", "exit"])
@pytest.mark.parametrize("whose", ["shared", "own"])
def test_wandb_gets_late_steps_and_pictures_in_its_own_run_or_the_active_one(tmp_path, whose, end):
    pytest.importorskip("wandb")
    told = subprocess.run(
        [sys.executable, "-W", "error", "-c", WANDB, str(tmp_path), whose, end],
        check=False,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0, told.stderr
    assert told.stderr == ""
    (found,) = read_all(tmp_path)
    step = "sightglass/step" if whose == "shared" else "step"
    rows = [(row[step], row["val"]) for row in found.rows if "val" in row]
    assert rows == [(10, 1.0), (20, 2.0), (5, 0.5)]
    assert [row[step] for row in found.rows if "batch.loss" in row] == [10, 20]
    assert found.axes["val"] == step
    assert sum(any(name.startswith("digits") for name in row) for row in found.rows) == 2
