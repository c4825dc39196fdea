"""The base classes: who draws is known by the class, and who does not costs nothing."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jax
import pytest
from flax import nnx

import sightglass.flax as sgf
from sightglass.figures import Plotter, no_plot

from .models import NNX, Drawing, Linen, NNXBlock, X, Y, params_of


class DrawingNNX(NNX):
    @staticmethod
    def plot(intermediates: Any) -> dict[str, Any]:
        return {}


def test_draws() -> None:
    for kind in (sgf.Module, sgf.NNXModule):
        assert kind.plot is no_plot
        assert kind.plot({"plots": {}}) == {}
    assert [sgf.draws(kind) for kind in (Linen, NNX, Drawing, DrawingNNX)] == [False, False, True, True]
    assert [sgf.draws(model) for model in (Linen(), Drawing(), NNX(nnx.Rngs(0)), DrawingNNX(nnx.Rngs(0)))] == [
        False, True, False, True
    ]  # fmt: skip
    assert not sgf.draws(nnx.Linear)


@pytest.mark.parametrize("base", [sgf.Module, sgf.NNXModule])
def test_a_method_in_place_of_a_static_one_is_refused_where_it_stands(base: type) -> None:
    with pytest.raises(TypeError, match=r"Wrong\.plot.*@staticmethod"):

        class Wrong(base):  # type: ignore[misc,valid-type]
            def plot(self, intermediates: Any) -> Any:
                return {}

    with pytest.raises(TypeError, match="classmethod"):

        class WrongToo(base):  # type: ignore[misc,valid-type]
            @classmethod
            def plot(cls, intermediates: Any) -> Any:
                return {}


def test_outside_of_a_capture_nothing_is_recorded() -> None:
    block = NNXBlock(nnx.Rngs(0))
    before = jax.tree.structure(nnx.state(block))
    block(X)
    assert jax.tree.structure(nnx.state(block)) == before
    assert not hasattr(block, "h")
    model = Linen()
    params = params_of(model)
    assert isinstance(model.apply({"params": params}, X, Y, deterministic=True), tuple), "no second output"


def test_flax_itself_captures_what_our_modules_sow() -> None:
    block = NNXBlock(nnx.Rngs(0))
    _, found = nnx.capture(block, nnx.variable_type_from_name("plots"))(X)
    assert [value.shape for value in found["h"].get_value()] == [X.shape, X.shape]


def test_figures_are_drawn_from_captured_values() -> None:
    written: list[Any] = []

    class Sink:
        def write(self, records: Any) -> None:
            written.extend(records)

        def flush(self, timeout_s: float | None = None) -> None: ...
        def close(self) -> None: ...

    params = params_of(Drawing())
    *_, meta = jax.jit(lambda p: sgf.forward(Drawing(), p, (X, Y)))(params)
    with Plotter(Drawing, renderer="inline", sinks=[Sink()]) as plotter:
        plotter.submit(meta, step=3)
    assert [(record.tag, record.step) for record in written] == [("hidden", 3)]
    assert plotter.statistics().n_errors == 0


QUIET = """
import sys, threading, jax
import sightglass.flax as sgf
from sightglass.figures import Plotter
import flax.linen as nn

class Untouchable:
    def __getattr__(self, name):
        raise AssertionError(name)

class Model(sgf.Module):
    @nn.compact
    def __call__(self, x):
        self.sow("plots", "x", x)
        return x, x.sum()

threads, modules = threading.active_count(), set(sys.modules)
plotter = Plotter(Model)
for step in range(20):
    plotter.submit(Untouchable(), step)
assert plotter.statistics().n_events == 0
plotter.close()
assert threading.active_count() == threads
assert set(sys.modules) == modules, set(sys.modules) - modules
print("quiet")
"""


@pytest.mark.slow
def test_a_model_without_figures_costs_nothing() -> None:
    done = subprocess.run([sys.executable, "-W", "error", "-c", QUIET], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("quiet\n", "")


@pytest.mark.slow
def test_without_flax_one_line_says_how_to_get_it() -> None:
    code = "import sys; sys.modules['flax'] = None; import sightglass.flax"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.endswith("sightglass.flax needs 'flax': pip install 'sightglass[flax]'"), done.stderr
