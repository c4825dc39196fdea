"""Initial values of parameters in JAX: asked for when they are long overwritten, and donated."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import sightglass as sg
import sightglass.jax as sgx
from sightglass.training.run import wiring


@pytest.fixture
def run() -> Any:
    with sg.init("t") as run:
        yield run


def test_they_are_asked_for_an_hour_later_though_the_arrays_are_gone(run: sg.Run) -> None:
    params = {"dense": {"kernel": jnp.arange(6.0).reshape(2, 3), "bias": jnp.ones(3)}, "layers": [jnp.full(4, 2.0)]}
    norms = {"dense.kernel": 55**0.5, "dense.bias": 3**0.5, "layers.0": 4.0}
    sgx.initial(params)
    step = jax.jit(lambda params: jax.tree.map(lambda p: p * 0, params), donate_argnums=0)
    for _ in range(3):
        params = step(params)
        run.observe("batch", loss=1.0)
    with sg.connect(run) as client:
        found = client.ask("initial.norms").value
        assert found == pytest.approx(norms)
        histogram = client.ask("initial.histograms['dense.kernel']").value
        assert (histogram.total, histogram.edges[0], histogram.edges[-1]) == (6, 0.0, 5.0)
        assert client.describe().events["initial"].note == ""


def test_modules_of_equinox_and_flax_by_their_paths_and_two_models_by_their_names(run: sg.Run) -> None:
    net = eqx.nn.MLP(2, 1, 4, 1, key=jax.random.key(0))
    state = nnx.state(nnx.Linear(2, 3, rngs=nnx.Rngs(0)))
    sgx.initial(net, run, name="critic")
    sgx.initial(state, run, name="actor")
    with sg.connect(run) as client:
        critic, actor = client.ask("initial.critic.norms").value, client.ask("initial.actor.norms").value
    assert critic["layers.0.weight"] == pytest.approx(float(jnp.linalg.norm(net.layers[0].weight)))
    assert {"layers.0.bias", "layers.1.weight"} <= critic.keys()
    assert any("kernel" in name for name in actor)


def test_the_first_ones_stay_and_limits_are_told(run: sg.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    sgx.initial({"a": jnp.ones(4)}, run)
    sgx.initial({"a": jnp.zeros(4)}, run)
    monkeypatch.setattr("sightglass.training.evaluation.initial.MAX_ITEMS", 10)
    sgx.initial({"small": np.ones(4), "large": jnp.ones(100)}, run, name="more")
    with sg.connect(run) as client:
        assert client.ask("initial.norms").value == {"a": 2.0}
        assert client.ask("initial.more.norms").value == {"small": 2.0}
        assert "'large'" in client.describe().events["initial"].note


def test_without_a_run_nothing_is_kept() -> None:
    sgx.initial({"a": jnp.ones(4)})
    with sg.init("t", mode="disabled") as run:
        sgx.initial({"a": jnp.ones(4)}, run)
    with sg.init("t") as run:
        assert "initial" not in wiring(run).telemetry.subscriptions.sources


KERAS = """
import keras, numpy as np, sightglass as sg
from sightglass.callbacks.keras import SightglassCallback
model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2, name="first"), keras.layers.Dense(1)])
first = {one.path: float(np.linalg.norm(one.numpy())) for one in model.weights}
model.compile("sgd", "mse")
with sg.init("k") as run:
    model.fit(np.ones((8, 3)), np.ones((8, 1)), epochs=2, verbose=0, callbacks=[SightglassCallback(run)])
    with sg.connect(run) as client:
        found = client.ask("initial.norms").value
assert found.keys() == first.keys(), (found, first)
assert all(abs(found[name] - first[name]) < 1e-5 for name in first), (found, first)
print(keras.backend.backend())
"""


def test_keras_on_jax_keeps_them(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    done = subprocess.run([sys.executable, "-c", KERAS], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "jax"), done.stderr[-2000:]
