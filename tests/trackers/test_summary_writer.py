"""The `SummaryWriter`: PyTorch's interface, what is recorded, and what is left out."""

from __future__ import annotations

import contextlib
import inspect
import json
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch.utils.tensorboard as torch_writer
from click.testing import CliRunner

import sightglass as sg
from sightglass.cli import main
from sightglass.storage.file_names import EVENT_FILES
from sightglass.trackers.tensorboard import SummaryWriter

SAMPLES = np.random.default_rng(0).normal(size=1000)
LEFT_OUT = {
    "add_video": ("v", np.zeros((1, 2, 3, 4, 5))),
    "add_mesh": ("mesh", np.zeros((1, 4, 3))),
    "add_embedding": (np.eye(2),),
    "add_graph": (None,),
    "add_onnx_graph": ("file",),
    "add_custom_scalars": ({},),
    "add_custom_scalars_multilinechart": (["a"],),
    "add_custom_scalars_marginchart": (["a"],),
}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "exp1"


def values_of(folder, tag):
    return [record.value for record in sg.open(folder).series(tag)]


def test_it_has_each_public_method_of_pytorch_with_the_same_parameters():
    pytest.importorskip("tensorboard")
    theirs = pytest.importorskip("torch.utils.tensorboard").SummaryWriter
    names = [name for name in vars(theirs) if name == "__init__" or not name.startswith("_")]
    assert len(names) > 20
    for name in [*names, "__enter__", "__exit__"]:
        assert hasattr(SummaryWriter, name), name
    for name in names:
        expected = list(inspect.signature(getattr(theirs, name)).parameters.values())
        given = list(inspect.signature(getattr(SummaryWriter, name)).parameters.values())
        further = given[len(expected) :]
        assert [(one.name, one.default) for one in given[: len(expected)]] == [
            (one.name, one.default) for one in expected
        ], name
        assert all(one.kind in (one.KEYWORD_ONLY, one.VAR_KEYWORD) for one in further), name


def test_scalars_are_recorded_with_their_steps_and_the_name_of_the_folder(folder):
    with SummaryWriter(folder) as writer:
        writer.add_scalar("loss", 0.1, 10)
        writer.add_scalar("loss", np.float64(0.2), 20, walltime=1e9)
        writer.add_scalar("loss", np.array([[0.3]]), 30, new_style=True, double_precision=True)
        writer.add_scalars("norms", {"a": 1.0, "b": 2.0}, 30)
        assert writer.get_logdir() == writer.log_dir == str(folder)
    run = sg.open(folder)
    assert run.name == "exp1"
    assert [(r.step, r.value, r.steps) for r in run.series("loss")] == [
        (10, 0.1, {}),
        (20, 0.2, {"walltime": 1e9}),
        (30, 0.3, {}),
    ]
    assert (values_of(folder, "norms/a"), values_of(folder, "norms/b")) == ([1.0], [2.0])


def test_scalars_can_be_asked_for_while_they_come(folder):
    with SummaryWriter(folder) as writer:
        client = sg.connect(writer.run)
        stream = client.stream(sg.on("log").map(lambda e: e["loss"]))
        writer.add_scalar("loss", 0.5, 3)
        assert [(r.step, r.value) for r in stream.wait(1, timeout_s=30)] == [(3, 0.5)]


def test_an_array_with_several_items_is_not_a_scalar(folder):
    with SummaryWriter(folder) as writer, pytest.raises(ValueError, match="reshape"):
        writer.add_scalar("loss", np.zeros(3))


def test_tensors_of_pytorch_are_taken(folder):
    torch = pytest.importorskip("torch")
    with SummaryWriter(folder) as writer:
        writer.add_scalar("loss", torch.tensor([0.5], requires_grad=True), 1)
        writer.add_tensor("w", torch.ones(2, dtype=torch.bfloat16), 1)
        writer.add_histogram("h", torch.arange(10.0), 1)
        writer.add_image("i", torch.ones(3, 2, 2), 1)
    assert values_of(folder, "loss") == [0.5]
    assert np.asarray(values_of(folder, "w")[0]).astype(float).tolist() == [1.0, 1.0]
    assert values_of(folder, "h")[0].total == 10
    assert values_of(folder, "i")[0].value.shape == (2, 2, 3)


def test_texts_and_tensors(folder):
    with SummaryWriter(folder) as writer:
        writer.add_text("note", "hello", 1)
        writer.add_tensor("w", np.arange(6).reshape(2, 3), 1)
    assert values_of(folder, "note") == ["hello"]
    assert values_of(folder, "w")[0].tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("bins", ["tensorflow", 10, "auto", [-5.0, 0.0, 5.0], np.array([-5.0, 0.0, 5.0])], ids=str)
def test_histograms_count_each_value_once(folder, bins):
    with SummaryWriter(folder) as writer:
        writer.add_histogram("h", SAMPLES, 1, bins=bins)
        writer.add_histogram("few", SAMPLES, 1, bins=bins, max_bins=3)
    (all_bins,), (few,) = values_of(folder, "h"), values_of(folder, "few")
    assert all_bins.total == few.total == 1000
    assert len(few.counts) <= 3
    if len(all_bins.edges) == 3:
        assert all_bins.counts.tolist() == [(SAMPLES < 0).sum(), (SAMPLES >= 0).sum()]


def test_histograms_count_what_is_not_finite_separately(folder):
    with SummaryWriter(folder) as writer:
        writer.add_histogram("h", np.array([0.0, 1.0, np.nan, np.inf, -np.inf]), 1, bins="sqrt")
    (h,) = values_of(folder, "h")
    assert (h.total, h.n_nan, h.n_posinf, h.n_neginf) == (2, 1, 1, 1)


INTEGERS = [np.iinfo(name) for name in ("int8", "int64", "uint8", "uint64")]
FLOATS = [np.finfo(name) for name in ("float16", "float32", "float64")]
EXTREME = {
    **{str(of.dtype): np.array([of.min, 0, of.max], of.dtype) for of in INTEGERS},
    **{str(of.dtype): np.array([of.min / 2, 0, of.max / 2], of.dtype) for of in FLOATS},
    "bool": np.array([True, False, True]), "denormal": np.array([5e-324, 0.0]), "one value": np.full(5, 3.0),
    "plane": np.ones((3, 4)),
}  # fmt: skip


@pytest.mark.parametrize("bins", ["tensorflow", "auto", "fd", "sturges", 10, [-1.0, 0.5, 2.0]])
@pytest.mark.parametrize("name", EXTREME)
def test_histograms_of_every_dtype_and_binning_that_pytorch_takes(tmp_path, name, bins):
    kinds = {"torch": torch_writer.SummaryWriter, "ours": SummaryWriter}
    with contextlib.suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, of differences beyond what floats hold
        for folder, kind in kinds.items():
            with kind(str(tmp_path / folder)) as writer:
                writer.add_histogram("h", EXTREME[name], 0, bins=bins)
    if not (tmp_path / "ours").exists():
        return  # PyTorch refuses it
    counts = {}
    for folder in kinds:
        with sg.open(tmp_path / folder) as run:
            counts[folder] = [record.value.total for tag in run.tags() for record in run.series(tag)]
    if bins == "tensorflow":  # PyTorch's own bins end at 1e20, so it counts only what is within
        counts = {folder: len(found) for folder, found in counts.items()}
    assert counts["ours"] == counts["torch"]


def test_a_raw_histogram_keeps_its_edges_and_counts(folder):
    with SummaryWriter(folder) as writer:
        writer.add_histogram_raw("h", -1.0, 4.0, 6, 9.0, 21.0, [0.0, 2.0, 1e308], [1, 2, 3], 1)
        with pytest.raises(ValueError, match="edge"):
            writer.add_histogram_raw("h", 0, 1, 1, 1, 1, [0.0], [1, 2])
    (h,) = values_of(folder, "h")
    assert (h.edges.tolist(), h.counts.tolist()) == ([-1.0, 0.0, 2.0, 4.0], [1, 2, 3])


@pytest.mark.parametrize(("axes", "shape"), [("CHW", (3, 4, 5)), ("HWC", (4, 5, 3)), ("WHC", (5, 4, 3))])
def test_pictures_have_rows_first_and_channels_last(folder, axes, shape):
    pixels = np.arange(60, dtype=np.uint8).reshape(shape)
    with SummaryWriter(folder) as writer:
        writer.add_image("one", pixels, 1, dataformats=axes)
        writer.add_images("two", np.stack([pixels] * 2), 1, dataformats=f"N{axes}")
    expected = np.einsum(f"{axes.lower()}->hwc", pixels)
    assert np.array_equal(values_of(folder, "one")[0].value, expected)
    assert np.array_equal(values_of(folder, "two")[0].value, [expected] * 2)


def test_floats_outside_of_a_picture_are_clipped_as_pytorch_does(folder):
    with SummaryWriter(folder) as writer:
        writer.add_image("one", np.array([[-1.0, 0.5, 2.0]]), 1, dataformats="HW")
        with pytest.raises(ValueError, match="'CHW'"):
            writer.add_image("one", np.zeros((2, 2)), 1)
    assert values_of(folder, "one")[0].value.tolist() == [[0.0, 0.5, 1.0]]


def test_boxes_are_red_and_labels_are_the_caption(folder):
    with SummaryWriter(folder) as writer:
        writer.add_image_with_boxes(
            "b", np.zeros((1, 6, 8), np.uint8), np.array([[1, 2, 4, 9]]), 1, labels=["cat"], rescale=2
        )
    (image,) = values_of(folder, "b")
    assert image.caption == "cat"
    assert image.value.shape == (12, 16, 3)
    assert image.value[4, 2:10:2].tolist() == [[255, 0, 0]] * 4
    assert image.value[0].sum() == 0


def test_figures_are_drawn_and_closed(folder):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    one, two, kept = pyplot.figure(), pyplot.figure(), pyplot.figure()
    with SummaryWriter(folder) as writer:
        writer.add_figure("one", one, 1)
        writer.add_figure("several", [two, kept], 1, close=False)
    assert {two.number, kept.number} <= {*pyplot.get_fignums()}
    assert one.number not in pyplot.get_fignums()
    pyplot.close("all")
    for tag in ("one", "several/0", "several/1"):
        assert values_of(folder, tag)[0].data.startswith(b"\x89PNG")


def test_a_precision_recall_curve_equals_pytorchs(folder):
    pytest.importorskip("tensorboard")
    summary = pytest.importorskip("torch.utils.tensorboard.summary")
    labels, guesses = SAMPLES[:200] > 0, np.clip(np.abs(SAMPLES[200:400]) / 3, 0, 1)
    with SummaryWriter(folder) as writer:
        writer.add_pr_curve("pr", labels, guesses, 1, num_thresholds=11)
    expected = summary.compute_curve(labels, guesses, num_thresholds=11)
    (curve,) = values_of(folder, "pr")
    names = ["true_positives", "false_positives", "true_negatives", "false_negatives", "precision", "recall"]
    assert list(curve.value) == ["threshold", *names]
    np.testing.assert_allclose(curve["threshold"], np.linspace(0, 1, 11))
    for name, row in zip(names, expected, strict=True):
        np.testing.assert_allclose(curve[name], row)


def test_a_precision_recall_curve_is_one_in_event_files_and_in_an_export(folder):
    with SummaryWriter(folder, event_files=True) as writer:
        writer.add_pr_curve("pr", SAMPLES[:200] > 0, np.abs(SAMPLES[200:400]) / 5, 1, num_thresholds=11)
    (curve,) = values_of(folder, "pr")
    out = folder.parent / "exported"
    assert CliRunner().invoke(main, ["export", str(folder), "--to", "tensorboard", "--out", str(out)]).exit_code == 0
    for written in (folder / "tensorboard", out):
        (again,) = values_of(written, "pr")
        assert all(np.array_equal(again[name], curve[name]) for name in curve.value)


def test_hyper_parameters_are_the_config_of_a_run_of_their_own(folder):
    with SummaryWriter(folder) as writer:
        writer.add_hparams({"lr": 0.1, "layers": 3}, {"hparam/accuracy": 0.9}, run_name="try", global_step=5)
    run = sg.open(folder / "try")
    assert run.config == {"lr": 0.1, "layers": 3}
    assert [(r.step, r.value) for r in run.series("hparam/accuracy")] == [(5, 0.9)]


@pytest.mark.parametrize("method", LEFT_OUT)
def test_what_has_no_value_type_warns_once_and_is_counted(folder, method):
    with SummaryWriter(folder) as writer:
        with pytest.warns(RuntimeWarning, match=f"^{method} .*`n_left_out`") as seen:
            getattr(writer, method)(*LEFT_OUT[method])
        assert seen[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            getattr(writer, method)(*LEFT_OUT[method])
        assert writer.n_left_out == {method: 2}


def test_what_is_added_after_the_end_continues_the_run(folder):
    writer = SummaryWriter(folder)
    writer.add_scalar("loss", 1.0, 1)
    writer.close()
    writer.close()
    writer.add_scalar("loss", 2.0, 2)
    writer.flush()
    writer.close()
    assert values_of(folder, "loss") == [1.0, 2.0]


def test_a_run_that_exists_stays_open(tmp_path):
    with sg.init("mine", dir=tmp_path) as run:
        with SummaryWriter(run=run) as writer:
            writer.add_scalar("loss", 1.0, 1)
        assert not run.ended
        with pytest.raises(TypeError, match="no options"):
            SummaryWriter(run=run, event_files=True)
    assert values_of(run.directory, "loss") == [1.0]


def test_an_exception_marks_the_run_as_failed(folder):
    with contextlib.suppress(ZeroDivisionError), SummaryWriter(folder) as writer:
        writer.add_scalar("loss", 1.0, 1)
        raise ZeroDivisionError
    assert json.loads((folder / "run.json").read_text())["state"] == "failed"


def test_event_files_are_those_of_tensorboard_and_are_not_a_run(folder):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with SummaryWriter(folder, event_files=True) as writer:
        writer.add_scalar("loss", 0.5, 7, walltime=1e9)
        writer.add_scalar("loss", 0.25, 3)
        writer.add_image("i", np.ones((3, 2, 2)), 7)
    events = EventAccumulator(str(folder / EVENT_FILES))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("loss")] == [(7, 0.5), (3, 0.25)]
    assert events.Scalars("loss")[0].wall_time == 1e9
    assert len(events.Images("i")) == 1
    assert list(sg.open(folder.parent)) == ["exp1"]


def test_the_default_directory_is_pytorchs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with SummaryWriter(comment="-x") as writer:
        writer.add_scalar("loss", 1.0)
    assert writer.log_dir.startswith("runs")
    assert writer.log_dir.endswith("-x")
    assert values_of(tmp_path / writer.log_dir, "loss") == [1.0]


def test_numbers_are_recorded_in_order_whether_or_not_anybody_asks(folder):
    with SummaryWriter(folder) as writer:
        for step in range(5):
            writer.add_scalar("loss", 0.5 * step, step)
        stream = sg.connect(writer.run).stream(sg.on("log").map(lambda e: e["loss"]))
        for step in range(5, 10):
            writer.add_scalar("loss", 0.5 * step, step)
        assert [(r.step, r.value) for r in stream.wait(5, timeout_s=30)] == [
            (step, 0.5 * step) for step in range(5, 10)
        ]
        stream.close()
        writer.run.action("noted", lambda: "yes", thread="any")
        for step in range(10, 20):
            writer.add_scalar("loss", 0.5 * step, step)
    series = sg.open(folder).series("loss")
    assert [(r.index, r.step, r.value) for r in series] == [(step, step, 0.5 * step) for step in range(20)]


def test_commands_are_applied_when_a_number_is_added(folder):
    with SummaryWriter(folder) as writer:
        rate = writer.run.control("lr", 0.1, min=0.0)
        writer.add_scalar("loss", 1.0, 1)
        client = sg.connect(writer.run)
        with ThreadPoolExecutor() as pool:
            asked = pool.submit(client.set, "lr", 0.5)
            while rate.value != 0.5:
                writer.add_scalar("loss", 1.0, 2)
            assert asked.result(60)


def test_a_name_that_is_not_text_is_refused(folder):
    with SummaryWriter(folder) as writer, pytest.raises(TypeError, match="names"):
        writer.add_scalar(3, 0.5, 1)
