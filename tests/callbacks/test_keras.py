"""The callback for Keras 3."""

from __future__ import annotations

import inspect

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples

import sightglass as sg
from sightglass.callbacks.keras import SightglassCallback

pytestmark = [
    pytest.mark.smoke,
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def fit(*callbacks, rate=0.1):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(rate), loss="mse")
    x = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    model.fit(x, x[:, :1], batch_size=8, epochs=3, verbose=0, validation_data=(x, x[:, :1]), callbacks=[*callbacks])
    return model


def test_events_and_weights():
    texts = (
        "batch.loss",
        "batch.params.map(lambda n, p: norm(p))",
        "batch.loss.mean(per='epoch')",
        "epoch.val_loss",
        "validation.loss",
        "checkpoint.path",
    )
    with sg.init("t", budget=None) as run, sg.connect(run) as client:
        streams = [client.stream(text) for text in texts]
        callback = SightglassCallback(run)
        saving = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: callback.checkpoint(path=f"{epoch}"))
        model = fit(callback, saving)
        run.flush()
        for stream in streams:
            stream.wait(1)
        run.close()
        losses, norms, means, epochs, validations, checkpoints = (
            [record.value for record in stream] for stream in streams
        )
    assert (len(losses), len(means), len(epochs), len(validations)) == (12, 3, 3, 3)
    assert set(norms[0]) == {variable.path for variable in model.weights}
    last = {variable.path: float(np.linalg.norm(keras.ops.convert_to_numpy(variable))) for variable in model.weights}
    assert norms[-1] == pytest.approx(last, rel=1e-5)
    assert checkpoints == ["0", "1", "2"]


class Block(keras.layers.Layer):
    """A layer that calls layers of its own."""

    def __init__(self):
        super().__init__(name="block")
        self.own = keras.layers.Dense(8, name="own")

    def call(self, x):
        return self.own(x)


@pytest.mark.skipif(keras.backend.backend() != "torch", reason="the other backends do not offer gradients")
def test_gradients_and_activations_on_pytorch():
    layers = keras.layers
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(8, name="dense"), layers.BatchNormalization()], name="in")
    model = keras.Sequential([keras.Input((4,)), inner, Block(), layers.Dense(1, name="head")])
    model.compile("sgd", loss="mse")
    x = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    wanted = []
    initial = {variable.path: float(variable.value.detach().norm()) for variable in model.weights}

    def keep(batch, logs):
        wanted.append({variable.path: float(variable.value.grad.norm()) for variable in model.trainable_variables})

    texts = {
        "grads.map(lambda n, g: norm(g))": None,
        "activations.map(lambda n, a: shape(a))": None,
        "activation_grads['head'].shape": (8, 1),
        "activations[''].shape": (8, 1),
        "inputs['in/dense[0]'].shape": (8, 4),
        "eval_activations['block/own'].shape": (6, 8),
    }
    with sg.init("t", budget=None) as run, sg.connect(run) as client:
        flows = {text: client.stream(f"batch.{text}") for text in texts}
        callbacks = [SightglassCallback(run), keras.callbacks.LambdaCallback(on_train_batch_end=keep)]
        model.fit(
            x, x[:, :1], batch_size=8, epochs=2, verbose=0, validation_data=(x[:6], x[:6, :1]), callbacks=callbacks
        )
        run.flush()
        kept = client.ask("initial.norms").value
        norms, shapes, *rest = ([record.value for record in flow.wait(1, timeout_s=60)] for flow in flows.values())
    assert kept == pytest.approx({path: initial[path] for path in kept})
    assert {*wanted[-1]} <= {*kept}  # what is trained
    assert norms[-1] == pytest.approx(wanted[-1])
    assert [*norms[-1]] == [*wanted[-1]]
    assert {"in/dense", "block/own", "head"} <= shapes[-1].keys()
    assert [values[-1] for values in rest] == [*texts.values()][2:]
    assert not any("_compiled_call_impl" in vars(layer) for layer in model.layers)


class CommandingCallback(keras.callbacks.Callback):
    def __init__(self, command):
        super().__init__()
        self.command, self.rates = command, []

    def on_train_batch_end(self, batch, logs=None):
        self.rates.append(float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate)))
        if len(self.rates) == 2:
            self.command()


def test_stopping(queue_command):
    with sg.init("t") as run:
        callback = CommandingCallback(lambda: queue_command(run, "stop"))
        fit(SightglassCallback(run), callback)
    assert len(callback.rates) in (3, 4)  # Keras checks it after a batch, or after the epoch


def test_setting_the_learning_rate(queue_command):
    with sg.init("t") as run:
        callback = CommandingCallback(lambda: queue_command(run, "set", "optimizer.lr", 0.5))
        fit(SightglassCallback(run), callback)
        assert run._telemetry.commands.queue.controls == {}
    assert callback.rates == pytest.approx([0.1] * 2 + [0.5] * 10)


def test_a_scheduled_learning_rate_is_not_a_control(queue_command):
    with sg.init("t") as run:
        names = []
        fit(
            SightglassCallback(run),
            CommandingCallback(lambda: names.extend(run._telemetry.commands.queue.controls)),
            rate=keras.optimizers.schedules.ExponentialDecay(0.1, 2, 0.5),
        )
    assert names == []


def test_a_run_made_from_a_name_ends_with_the_training(tmp_path):
    fit(SightglassCallback("own", dir=str(tmp_path / "runs"), record=["batch.loss"]))
    (info,) = sg.runs(str(tmp_path / "runs"))
    assert (info.name, info.live) == ("own", False)


def compiled():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.1), loss="mse", metrics=["mae"])
    return model


X = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)


def run_stages(model, callback, stages):
    """Run stages; return Keras' own numbers, by tag, with the steps and the epochs at which they belong."""
    found, epoch = {}, 0
    for stage in stages:
        if stage == "fit":
            data = {"validation_data": (X[:8], X[:8, :1])}
            history = model.fit(
                X,
                X[:, :1],
                batch_size=8,
                epochs=epoch + 2,
                initial_epoch=epoch,
                verbose=0,
                callbacks=[callback],
                **data,
            ).history
            for i in range(2):
                for name, values in history.items():
                    found.setdefault(name, []).append((4 * (epoch + 1) - 1, epoch, pytest.approx(values[i])))
                epoch += 1
        elif stage == "evaluate":
            for name, value in model.evaluate(X, X[:, :1], verbose=0, callbacks=[callback], return_dict=True).items():
                place = max(0, 4 * epoch - 1), max(0, epoch - 1)
                found.setdefault(f"test_{name}", []).append((*place, pytest.approx(value)))
        else:
            model.predict(X, verbose=0, callbacks=[callback])
    return found


@settings(max_examples=examples(40))
@given(stages=st.lists(st.sampled_from(["fit", "evaluate", "predict"]), min_size=1, max_size=4))
def test_a_model_leaves_one_run_with_keras_own_numbers_whatever_its_stages(tmp_path_factory, stages):
    folder = tmp_path_factory.mktemp("one")
    found = run_stages(compiled(), SightglassCallback("job", dir=folder, config={"mine": 1}), stages)
    runs = sg.open(folder).values() if {*stages} - {"predict"} else []
    assert len(runs) == bool({*stages} - {"predict"})
    for run in runs:
        assert {tag: [(r.step, r.steps["epoch"], r.value) for r in run.series(tag)] for tag in run.tags()} == found
        assert (run.config["mine"], run.config["n_parameters"]) == (1, 5)
        assert run.config["optimizer"]["learning_rate"] == pytest.approx(0.1)
        assert run.describe().state != "running"


def test_a_callback_has_every_public_name_of_keras_own_and_takes_what_it_takes():
    for name in dir(keras.callbacks.Callback):
        theirs = getattr(keras.callbacks.Callback, name)
        if not name.startswith("_") and callable(theirs):
            mine = inspect.signature(getattr(SightglassCallback, name)).parameters
            assert [*mine] == [*inspect.signature(theirs).parameters]
            assert all(mine[p].default == q.default for p, q in inspect.signature(theirs).parameters.items())


def test_after_an_error_in_a_training_an_evaluation_is_one(tmp_path):
    class BrokenCallback(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            raise ArithmeticError("broken")

    model, callback = compiled(), SightglassCallback("job", dir=tmp_path)
    with pytest.raises(ArithmeticError):
        model.fit(X, X[:, :1], verbose=0, callbacks=[callback, BrokenCallback()])
    model.evaluate(X, X[:, :1], verbose=0, callbacks=[callback])
    (run,) = sg.open(tmp_path).values()
    assert "test_loss" in run.tags()


def test_a_training_that_is_resumed_in_another_process_goes_on_in_its_run(tmp_path):
    model, first = compiled(), SightglassCallback("job", dir=tmp_path / "runs")
    model.fit(X, X[:, :1], batch_size=8, epochs=2, verbose=0, callbacks=[first])
    model.save(tmp_path / "model.keras")
    first.checkpoint(path=tmp_path / "model.keras")
    (run,) = sg.open(tmp_path / "runs").values()
    second = SightglassCallback("job", files=sg.Files(into=run.directory))
    saved = keras.models.load_model(tmp_path / "model.keras")
    saved.fit(X, X[:, :1], batch_size=8, epochs=3, initial_epoch=2, verbose=0, callbacks=[second])
    (run,) = sg.open(tmp_path / "runs").values()
    assert [(r.step, r.steps["epoch"]) for r in run.series("loss")] == [(3, 0), (7, 1), (11, 2)]
    assert run.series("file/path")[0].value == str(tmp_path / "model.keras")
