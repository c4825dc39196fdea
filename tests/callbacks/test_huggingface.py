"""The callback for Hugging Face's `Trainer`, with a tiny model of random weights."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel, Trainer, TrainerCallback, TrainingArguments
from transformers.modeling_outputs import SequenceClassifierOutput

import sightglass as sg
from sightglass.callbacks.huggingface import SightglassCallback

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


class Tiny(PreTrainedModel):
    config_class = PretrainedConfig

    def __init__(self, config):
        super().__init__(config)
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 2)
        self.post_init()

    def forward(self, x, labels=None):
        logits = self.head(self.body(x).relu())
        return SequenceClassifierOutput(loss=nn.functional.cross_entropy(logits, labels), logits=logits)


def data():
    torch.manual_seed(0)
    return [{"x": torch.randn(4), "labels": i % 2} for i in range(32)]


def fit(tmp_path, *callbacks, **options):
    args = TrainingArguments(
        output_dir=str(tmp_path), per_device_train_batch_size=8, num_train_epochs=3, use_cpu=True, report_to=[],
        logging_steps=2, disable_tqdm=True, learning_rate=0.1, eval_strategy="epoch",
        save_strategy="epoch", dataloader_pin_memory=False, **{"lr_scheduler_type": "constant", **options},
    )  # fmt: skip
    trainer = Trainer(Tiny(PretrainedConfig()), args, train_dataset=data(), eval_dataset=data(), callbacks=[*callbacks])
    trainer.train()
    return trainer


def test_events_and_tensors(tmp_path):
    texts = (
        "batch.grads.map(lambda n, g: norm(g))",
        "batch.activations[''].loss",
        "batch.optimizer.lr",
        "epoch.epoch",
        "validation.eval_loss",
        "checkpoint.step",
        "on('log').map(lambda e: e['loss'])",
    )
    with sg.init("t", budget=None) as run, sg.connect(run) as client:
        streams = [client.stream(text) for text in texts]
        trainer = fit(tmp_path, SightglassCallback(run))
        run.flush()
        for stream in streams:
            stream.wait(1)
        run.close()
        grads, losses, rates, epochs, validations, checkpoints, logged = (
            [record.value for record in stream] for stream in streams
        )
    assert trainer.state.global_step == 12
    assert (len(grads), set(grads[0])) == (11, {"body.weight", "body.bias", "head.weight", "head.bias"})
    assert (len(losses), min(losses) > 0) == (11, True)
    assert rates == [pytest.approx({"0": 0.1, "1": 0.1})] * 12
    assert epochs == [1.0, 2.0, 3.0]
    assert len(validations) == 3
    assert checkpoints == [4, 8, 12]
    assert len(logged) == 6
    assert not any(module._forward_hooks for module in trainer.model.modules())


class CommandingCallback(TrainerCallback):
    def __init__(self, command):
        self.command, self.rates = command, []

    def on_step_end(self, args, state, control, optimizer=None, **rest):
        self.rates.append(optimizer.param_groups[0]["lr"])
        if state.global_step == 2:
            self.command()


def test_stopping(tmp_path, queue_command):
    with sg.init("t") as run:
        trainer = fit(tmp_path, SightglassCallback(run), CommandingCallback(lambda: queue_command(run, "stop")))
    assert trainer.state.global_step == 3


def test_what_a_client_sets_is_said_not_to_last_and_the_scale_does(tmp_path, queue_command):
    used = []

    class UsedCallback(TrainerCallback):
        """Remembers the rate within each step, whose hooks run behind those that are there already."""

        def on_train_begin(self, args, state, control, optimizer=None, **rest):
            optimizer.optimizer.register_step_post_hook(lambda opt, *rest: used.append(opt.param_groups[0]["lr"]))

    def command():
        for name, value in (("optimizer.0.weight_decay", 0.5), ("optimizer.lr", 0.25), ("optimizer.lr_scale", 0.5)):
            queue_command(run, "set", name, value)

    with sg.init("t") as run:
        callbacks = UsedCallback(), SightglassCallback(run), CommandingCallback(command)
        trainer = fit(tmp_path, *callbacks, lr_scheduler_type="linear")
        assert [(entry.error, "'lr_scale'" in entry.note) for entry in run.history] == [
            ("", False), ("", True), ("", False),
        ]  # fmt: skip
    assert trainer.optimizer.param_groups[0]["weight_decay"] == 0.5
    planned = [0.1 * (1 - i / 12) for i in range(12)]
    assert used == pytest.approx([*planned[:2], 0.5 * 0.25, *(0.5 * rate for rate in planned[3:])])


def test_a_run_made_from_a_name_ends_with_the_training(tmp_path):
    fit(tmp_path, SightglassCallback("own", dir=str(tmp_path / "runs")))
    (info,) = sg.runs(str(tmp_path / "runs"))
    assert (info.name, info.live) == ("own", False)
    with sg.open(info.directory) as run:
        assert "loss" in run.tags()
        assert run.config["training"]["learning_rate"] == 0.1
        assert run.config["n_parameters"] == 58
        assert "transformers_version" in run.config["model"]


def test_a_checkpoint_has_its_own_directory(tmp_path):
    with sg.init("t") as run, sg.connect(run) as client:
        stream = client.stream("checkpoint.directory")
        fit(tmp_path, SightglassCallback(run))
        assert stream.wait(3)
        run.close()
        directories = [record.value for record in stream]
    assert directories == [str(tmp_path / f"checkpoint-{step}") for step in (4, 8, 12)]
    with sg.open(run.directory) as kept:
        saved = [(record.step, record.value) for record in kept.series("file/path")]
    assert saved == list(zip((4, 8, 12), directories, strict=True))
    assert all((tmp_path / f"checkpoint-{step}").is_dir() for step in (4, 8, 12))


def test_the_logged_loss_is_that_of_the_trainer_however_batches_are_gathered(tmp_path):
    with sg.init("t", dir=str(tmp_path)) as run:
        trainer = fit(tmp_path, SightglassCallback(run), gradient_accumulation_steps=2)
    logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    with sg.open(run.directory) as kept:
        assert [record.value for record in kept.series("loss")] == pytest.approx(logged)


def trainer_of(tmp_path, *callbacks, **options):
    args = TrainingArguments(
        output_dir=str(tmp_path / "out"), per_device_train_batch_size=8, num_train_epochs=2, use_cpu=True, report_to=[],
        logging_steps=2, disable_tqdm=True, dataloader_pin_memory=False, save_strategy="no", **options,
    )  # fmt: skip
    return Trainer(Tiny(PretrainedConfig()), args, train_dataset=data(), eval_dataset=data(), callbacks=[*callbacks])


class LoggedCallback(TrainerCallback):
    """Remembers what the trainer passes to W&B's callback."""

    def __init__(self):
        self.logged = {}

    def on_log(self, args, state, control, logs=None, **rest):
        for name, value in logs.items():
            self.logged.setdefault(name, []).append((state.global_step, pytest.approx(value)))

    def on_predict(self, args, state, control, metrics, **rest):
        self.on_log(args, state, control, metrics)


@settings(max_examples=examples(24))
@given(stages=st.lists(st.sampled_from(["train", "evaluate", "predict"]), min_size=1, max_size=4))
def test_a_trainer_leaves_one_run_with_its_own_numbers_whatever_its_stages(tmp_path_factory, stages):
    folder, theirs = tmp_path_factory.mktemp("one"), LoggedCallback()
    trainer = trainer_of(folder, SightglassCallback("job", dir=folder / "runs"), theirs)
    for stage in stages:
        trainer.predict(data()) if stage == "predict" else getattr(trainer, stage)()
    (run,) = sg.open(folder / "runs").values()
    assert {tag: [(r.step, r.value) for r in run.series(tag)] for tag in run.tags()} == theirs.logged
    assert run.config["training"]["logging_steps"] == 2
    assert run.config["n_parameters"] == 58
    assert [info.live for info in sg.runs(folder / "runs")] == [False]


def test_each_trial_of_a_search_is_a_run(tmp_path):
    trainer = trainer_of(tmp_path, SightglassCallback("job", dir=tmp_path / "runs"))
    for _ in range(2):
        trainer.state.is_hyper_param_search = True
        trainer.callback_handler.on_train_begin(trainer.args, trainer.state, trainer.control)
        trainer.log({"loss": 1.0})
        trainer.callback_handler.on_train_end(trainer.args, trainer.state, trainer.control)
    assert len(sg.open(tmp_path / "runs")) == 2


def test_a_callback_takes_what_theirs_takes():
    for name in dir(TrainerCallback):
        if name.startswith("on_"):
            mine = inspect.signature(getattr(SightglassCallback, name)).parameters
            theirs = inspect.signature(getattr(TrainerCallback, name)).parameters
            assert [*mine][:4] == [*theirs][:4]
            assert any(p.kind is p.VAR_KEYWORD for p in mine.values())


def length(completions, **rest):
    return [float(len(str(text))) for text in completions]


async def judged(prompts, completions, **rest):
    return [None if i else 0.5 for i, _ in enumerate(completions)]


class Count:
    """A reward that is an object, and has no name."""

    def __call__(self, prompts, completions, **rest):
        return torch.ones(len(completions))


def test_completions_are_offered_and_logged_with_their_rewards_at_the_trainers_steps(tmp_path):
    callback = SightglassCallback("rl", dir=tmp_path / "runs", record=["completions.rewards.length.mean()"])
    functions = callback.rewards(length, judged, Count(), length)
    assert [function.__name__ for function in functions] == ["length", "judged", "Count", "length_2"]
    assert callback.rewards("a/model", trained := nn.Linear(1, 1)) == ["a/model", trained]

    class RewardingCallback(TrainerCallback):
        """Calls the reward functions before a step, as TRL does."""

        def on_step_begin(self, args, state, control, **rest):
            chat = [{"role": "user", "content": "hi"}]
            completions = [[{"role": "assistant", "content": f"step {state.global_step}"}], "plain"]
            for function in functions:
                result = function(prompts=[chat, "p"], completions=completions, trainer_state=state)
                if inspect.iscoroutine(result):
                    with pytest.raises(StopIteration):
                        result.send(None)

    trainer_of(tmp_path, RewardingCallback(), callback).train()
    (run,) = sg.open(tmp_path / "runs").values()
    series = run.series("completions")
    assert series.steps.tolist() == [2, 4, 6, 8]
    table = series[0].value
    assert (table["prompt"][:2], table["completion"][:2]) == (["hi", "p"], ["step 0", "plain"])
    assert (len(table), table["length"].tolist()[:2], table["Count"].tolist()[:2]) == (4, [44.0, 5.0], [1.0, 1.0])
    assert table["judged"][0] == 0.5
    assert np.isnan(table["judged"][1])
    assert len([*run.stream("completions.rewards.length.mean()")]) == 8


@pytest.mark.parametrize("wrong", [lambda completions, **rest: [1.0], lambda completions, **rest: ["x"] * 2])
def test_rewards_that_cannot_be_kept_are_warned_of_once_and_returned(wrong):
    (function,) = SightglassCallback("rl").rewards(wrong)
    with pytest.warns(RuntimeWarning, match="lambda") as told:
        assert [function(prompts=["a", "b"], completions=["c", "d"]) for _ in range(2)] == [wrong(["c", "d"])] * 2
    assert len(told) == 1
