"""The logger for Lightning keeps the whole contract of Lightning's own: those of its base class, W&B and CSV."""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import pickle
import wave

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sightglass as sg

if importlib.util.find_spec("lightning") is None or importlib.util.find_spec("torch") is None:
    pytest.skip("needs Lightning", allow_module_level=True)

import torch
from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger, Logger, WandbLogger
from tests.callbacks.odd_settings import EXPECTED, SETTINGS
from tests.profiles import examples

from sightglass.callbacks.lightning import SightglassCallback
from sightglass.core.process import current_run
from sightglass.storage.run_file import read_all
from sightglass.trackers.lightning import SightglassLogger

pytestmark = pytest.mark.filterwarnings("ignore")  # Lightning's own

THEIRS = (Logger, WandbLogger, CSVLogger)
NAMES = sorted({name for cls in THEIRS for name in dir(cls) if not name.startswith("_")})
PICTURE = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
SOUND = np.zeros(8, np.float32)


def wav_file(folder):
    path = folder / "sound.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(bytes(16))
    return path


# What each method is called with, and the tags that it leaves.
CALLS = {
    "log_metrics": (lambda logger, tag: logger.log_metrics({tag: 1.0}, step=3), ""),
    "log_hyperparams": (lambda logger, tag: logger.log_hyperparams(argparse.Namespace(**{tag: {"deep": None}})), None),
    "log_table": (lambda logger, tag: logger.log_table(tag, ["a", "b"], [[1, "x"], [None, [2]]], step=3), ""),
    "log_text": (lambda logger, tag: logger.log_text(tag, columns=["a"], data=[["x"]]), ""),
    "log_image": (lambda logger, tag: logger.log_image(tag, [PICTURE, PICTURE[::-1]], caption=["a", "b"]), ""),
    "log_audio": (lambda logger, tag: logger.log_audio(tag, [SOUND], sample_rate=[8000]), ""),
    "log_video": (lambda logger, tag: logger.log_video(tag, [np.zeros((2, 3, 4, 4), np.uint8)], step=3, fps=[4]), ""),
    "log_graph": (lambda logger, tag: logger.log_graph(torch.nn.Linear(1, 1)), None),
    "watch": (lambda logger, tag: logger.watch(torch.nn.Linear(1, 1)), None),
    "save": (lambda logger, tag: logger.save(), None),
    "after_save_checkpoint": (lambda logger, tag: logger.after_save_checkpoint(None), None),
    "use_artifact": (lambda logger, tag: logger.use_artifact(__file__), None),
    "download_artifact": (lambda logger, tag: logger.download_artifact(__file__), None),
    "finalize": (lambda logger, tag: logger.finalize("success"), None),
    "experiment": (lambda logger, tag: logger.experiment.log({tag: 1.0}), ""),
}
ATTRIBUTES = ("version", "name", "save_dir", "root_dir", "log_dir", "group_separator", "LOGGER_JOIN_CHAR")


def test_every_public_name_of_their_loggers_is_here_and_tried_below():
    assert set(NAMES) == {*CALLS, *ATTRIBUTES}
    assert [name for name in NAMES if not hasattr(SightglassLogger, name)] == []


@pytest.mark.parametrize("name", [name for name in CALLS if name != "experiment"])
def test_methods_take_what_theirs_take(name):
    mine = inspect.signature(getattr(SightglassLogger, name))
    takes_any = any(p.kind is p.VAR_KEYWORD for p in mine.parameters.values())
    for cls in THEIRS:
        theirs = inspect.signature(getattr(cls, name)).parameters.values() if hasattr(cls, name) else ()
        named = [p for p in theirs if p.kind is p.POSITIONAL_OR_KEYWORD]
        mine_named = [p for p in mine.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
        assert [p.name for p in named] == [p.name for p in mine_named[: len(named)]]
        for own, other in zip(mine_named, named, strict=False):
            assert other.default is other.empty or own.default is not own.empty
        assert takes_any or not any(p.kind is p.VAR_KEYWORD for p in theirs)


class Model(LightningModule):
    def __init__(self, lr=0.1):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(2, 1)
        self.ask = lambda stage: None

    def training_step(self, batch, index):
        self.ask("fit")
        loss = self.layer(batch).mean()
        self.log("loss", loss, on_step=True, on_epoch=True)
        return loss

    def validation_step(self, batch, index):
        self.ask("validate")
        self.log("val_loss", self.layer(batch).mean())

    def test_step(self, batch, index):
        self.ask("test")
        self.log("test_loss", self.layer(batch).mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)


def loader():
    return torch.utils.data.DataLoader(torch.ones(6, 2), batch_size=2)


def trainer_of(folder, logger, *callbacks, **options):
    return Trainer(
        logger=logger, log_every_n_steps=1, accelerator="cpu", enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=folder / "root", callbacks=[*callbacks],
        **{"max_epochs": 2, "enable_checkpointing": False, **options},
    )  # fmt: skip


def run_stages(trainer, model, stages):
    """Run stages, each `fit` with an epoch more than before."""
    for stage in stages:
        if stage == "fit":
            trainer.fit(model, loader(), loader())
            trainer.fit_loop.max_epochs += 1
        else:
            getattr(trainer, stage)(model, loader(), verbose=False)


stages_of_a_trainer = st.lists(st.sampled_from(["fit", "validate", "test"]), min_size=1, max_size=4)


@settings(max_examples=examples(30))
@given(stages=stages_of_a_trainer, asked=st.lists(st.sampled_from(NAMES), min_size=1, max_size=4))
def test_whatever_is_asked_for_in_any_stage_stays_in_one_run(tmp_path_factory, stages, asked):
    folder = tmp_path_factory.mktemp("one")
    logger, model, left, found = SightglassLogger("job", dir=folder / "runs"), Model(), {}, {}

    def ask(stage):
        for name in asked:
            if name in ATTRIBUTES:
                found.setdefault(name, set()).add(getattr(logger, name))
                continue
            call, tag = CALLS[name]
            logged = f"{name}_{stage}"
            call(logger, logged)
            if tag is not None:
                left[logged] = left.get(logged, 0) + 1
            elif name == "log_hyperparams":
                found.setdefault("config", set()).add(logged)

    model.ask = ask
    run_stages(trainer_of(folder, logger), model, stages)
    logger.finalize("success")
    (run,) = sg.open(folder / "runs").values()
    assert {tag: len(run.series(tag)) for tag in left} == left
    assert run.config["lr"] == 0.1
    assert all(run.config[name] == {"deep": None} for name in found.pop("config", ()))
    assert all(len(values) == 1 for values in found.values())
    assert (logger.version, logger.log_dir) == (read_all(run.directory)[0].id, str(run.directory))


@settings(max_examples=examples(24))
@given(stages=stages_of_a_trainer, joined=st.booleans())
def test_logger_callback_and_csv_have_the_same_numbers_at_the_same_steps(tmp_path_factory, stages, joined):
    folder = tmp_path_factory.mktemp("same")
    theirs, mine = CSVLogger(folder / "csv"), SightglassLogger("job", dir=folder / "runs")
    options = {"record": ["batch.loss"]} if joined else {"dir": folder / "alone"}
    callback = SightglassCallback("job" if joined else "alone", **options)
    trainer = trainer_of(folder, [theirs, mine], callback)
    rows, log = [], theirs.log_metrics
    theirs.log_metrics = lambda metrics, step: (rows.append((step, metrics)), log(metrics, step))
    run_stages(trainer, Model(), stages)
    written = {}
    for step, metrics in rows:
        for name, value in metrics.items():
            written.setdefault(name, []).append((step, pytest.approx(value)))
    (run,) = sg.open(folder / "runs").values()
    assert {tag: [(r.step, r.value) for r in run.series(tag)] for tag in written} == written
    assert {tag for tag in run.tags() if "." not in tag} == {*written}  # the callback logs nothing twice
    if joined and "loss_step" in written:
        kept = {(record.step, record.value) for record in run.stream("batch.loss")}
        assert kept == {(step, value.expected) for step, value in written["loss_step"]}
    if not joined:
        (alone,) = sg.open(folder / "alone").values()
        for tag in {"val_loss", "test_loss", "loss_epoch"} & {*written}:
            assert {(r.step, r.value) for r in alone.series(tag)} <= {*((s, v.expected) for s, v in written[tag])}


@pytest.mark.parametrize("name", CALLS)
def test_other_ranks_do_nothing(tmp_path, monkeypatch, name):
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    logger = SightglassLogger("job", dir=tmp_path / "runs")
    CALLS[name][0](logger, "x")
    assert [getattr(logger, of) for of in ATTRIBUTES] == [
        None, "job", str(tmp_path / "runs"), str(tmp_path / "runs"), None, "/", "-",
    ]  # fmt: skip
    assert not (tmp_path / "runs").exists()


def test_the_experiment_takes_values_after_the_training_and_is_the_same_run(tmp_path):
    logger = SightglassLogger("job", dir=tmp_path)
    trainer_of(tmp_path, logger).fit(Model(), loader())
    directory = logger.log_dir
    logger.experiment.log({"final": 1.0})
    assert str(logger.experiment.directory) == directory
    logger.finalize("success")
    assert sg.open(directory).series("final")[-1].value == 1.0
    assert len(sg.open(directory).series("loss_step")) == 6


def test_hyper_parameters_of_any_kind_are_the_config_whatever_is_logged(tmp_path):
    class Silent(Model):
        def __init__(self):
            super().__init__()
            self.save_hyperparameters({**SETTINGS})

        def training_step(self, batch, index):
            return self.layer(batch).mean()

    trainer_of(tmp_path, SightglassLogger("job", dir=tmp_path / "runs")).fit(Silent(), loader())
    (run,) = sg.open(tmp_path / "runs").values()
    assert {name: run.config[name] for name in EXPECTED} == EXPECTED
    assert [one.name for one in sg.open(tmp_path / "runs").where(lambda r: r.config.bool).values()] == ["job"]


def test_media_become_the_values_of_a_run(tmp_path):
    from PIL import Image

    Image.fromarray(PICTURE).save(tmp_path / "picture.png")
    logger = SightglassLogger("job", dir=tmp_path / "runs", prefix="p")
    floats = torch.from_numpy(PICTURE).permute(2, 0, 1) / 255
    logger.log_image("same", [PICTURE, floats.numpy().transpose(1, 2, 0) * 255.0], caption=["a", "b"])
    logger.log_image("kinds", [Image.fromarray(PICTURE), str(tmp_path / "picture.png"), floats])
    logger.log_image("sizes", [PICTURE, PICTURE[:2]])
    logger.log_audio("file", [wav_file(tmp_path)])
    logger.log_audio("two", [SOUND, SOUND], sample_rate=[8000, 8000], caption=["a", "b"])
    logger.log_table("frame", dataframe={"a": [1, 2]}, step=7)
    logger.log_table("rows", ["n", "what", "p"], [[1, "x", Image.fromarray(PICTURE)], [2, None, None]])
    logger.finalize("success")
    run = sg.open(logger.log_dir)
    value = {tag: run.series(tag)[-1].value for tag in run.tags()}
    assert [one.shape for one in (value["p-kinds/0"].value, value["p-kinds/2"].value)] == [(4, 4, 3)] * 2
    assert (value["p-same"].captions, value["p-same"].value.shape) == (("a", "b"), (2, 4, 4, 3))
    assert np.array_equal(value["p-same"].value[1], PICTURE)
    assert value["p-sizes/1"].value.shape == (2, 4, 3)
    assert (value["p-file"].rate, value["p-file"].value.dtype) == (8000, np.int16)
    assert (value["p-two"]["caption"], len(value["p-two"])) == (["a", "b"], 2)
    assert value["p-frame"]["a"].tolist() == [1, 2]
    assert run.series("p-frame").steps.tolist() == [7]
    assert (value["p-rows"]["what"], value["p-rows"]["p"][1]) == (["x", None], None)


@pytest.mark.parametrize(("call", "error"), [
    (lambda logger: logger.log_image("x", PICTURE), TypeError),
    (lambda logger: logger.log_image("x", [PICTURE], caption=[]), ValueError),
    (lambda logger: logger.log_audio("x", [SOUND]), ValueError),
    (lambda logger: logger.log_table("x", ["a"], [[1, 2]]), ValueError),
    (lambda logger: logger.use_artifact("gone"), FileNotFoundError),
])  # fmt: skip
def test_misuse_raises_at_the_call(tmp_path, call, error):
    with pytest.raises(error):
        call(SightglassLogger("job", dir=tmp_path))


def test_a_video_file_is_left_out_with_a_warning(tmp_path):
    logger = SightglassLogger("job", dir=tmp_path)
    with pytest.warns(RuntimeWarning, match=r"a\.mp4"):
        logger.log_video("x", ["a.mp4"])
    logger.finalize("success")


def test_an_error_in_the_training_is_why_the_run_ended_and_it_can_go_on(tmp_path):
    class BrokenCallback(Callback):
        def on_train_batch_end(self, trainer, *rest):
            if trainer.global_step == 2:
                raise ArithmeticError("broken")

    logger = SightglassLogger("job", dir=tmp_path / "runs")
    with pytest.raises(ArithmeticError):
        trainer_of(tmp_path, logger, BrokenCallback()).fit(Model(), loader())
    (info,) = sg.runs(tmp_path / "runs")
    assert (info.state, "broken" in str(info.ending)) == ("failed", True)
    trainer_of(tmp_path, logger).test(Model(), loader(), verbose=False)
    (info,) = sg.runs(tmp_path / "runs")
    assert info.state == "ended"


def test_a_training_that_is_resumed_continues_its_run_and_its_checkpoints(tmp_path):
    def fit(logger, **options):
        trainer = trainer_of(tmp_path, logger, enable_checkpointing=True, **options)
        trainer.fit(Model(), loader(), ckpt_path="last" if "into" in str(options) else None)
        return trainer

    first = SightglassLogger("job", dir=tmp_path / "runs")
    saved = fit(first, max_epochs=1).checkpoint_callback.best_model_path
    second = SightglassLogger("job", files=sg.Files(into=first.log_dir))
    trainer = trainer_of(tmp_path, second, enable_checkpointing=True, max_epochs=3)
    trainer.fit(Model(), loader(), ckpt_path=saved)
    (run,) = sg.open(tmp_path / "runs").values()
    assert run.series("loss_step").steps.tolist() == [*range(9)]
    assert second.version == first.version
    assert {record.value for record in run.series("file/path")} >= {saved}
    assert saved.rpartition("/")[0] == trainer.checkpoint_callback.best_model_path.rpartition("/")[0]


@pytest.mark.parametrize("early", [False, True])
def test_processes_that_lightning_sends_a_logger_to_write_into_its_run(tmp_path, monkeypatch, early):
    logger = SightglassLogger("job", dir=tmp_path / "runs")
    if early:
        logger.log_hyperparams({"early": 1})
    sent = pickle.dumps(logger)
    monkeypatch.setattr(current_run, "_pickled", {})  # as in another process
    for stage in range(2):
        spawned = pickle.loads(sent)
        spawned.log_hyperparams({f"stage{stage}": None})
        spawned.log_metrics({"loss": float(stage)}, step=stage)
        spawned.finalize("success")
        assert (spawned.version, spawned.log_dir) == (logger.version, logger.log_dir)
    logger.log_metrics({"loss": 2.0}, step=2)
    logger.finalize("success")
    (run,) = sg.open(tmp_path / "runs").values()
    assert [record.value for record in run.series("loss")] == [0.0, 1.0, 2.0]
    assert run.config == {**({"early": 1} if early else {}), "stage0": None, "stage1": None}
