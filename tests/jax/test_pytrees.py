"""What JAX programs call data: callable dataclasses, such as the modules of Equinox, and registered pytrees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.waiting import wait_until

import sightglass as sg
from sightglass.jax import live, log


@dataclass
class Layer:
    weight: Any
    bias: Any = 0.5

    def __call__(self, x: Any) -> Any:
        return x @ self.weight + self.bias


class Keyed:
    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b

    def tree_flatten_with_keys(self) -> Any:
        return ((jax.tree_util.GetAttrKey("a"), self.a), (jax.tree_util.DictKey("b"), self.b)), None

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> Any:
        return cls(*children)

    def __call__(self) -> None:
        """Modules are called."""


class Listed:
    __slots__ = ("_items",)

    def __init__(self, *items: Any) -> None:
        self._items = items

    def tree_flatten(self) -> Any:
        return self._items, None

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> Any:
        return cls(*children)


jax.tree_util.register_pytree_with_keys_class(Keyed)
jax.tree_util.register_pytree_node_class(Listed)

ROWS = np.arange(6.0).reshape(2, 3)
OFFERED = {
    "layer": Layer(ROWS), "layers": [Layer(ROWS), Layer(2 * ROWS)], "keyed": Keyed(ROWS, {"c": 3}),
    "listed": Listed(ROWS, 7), "deep": {"m": Keyed(Listed(1, Layer(ROWS)), 2)}, "empty": Listed(),
}  # fmt: skip
QUERIES = {
    "b.layer.weight.sum()": 15.0, "b.layers[1].weight.max()": 10.0, "b.layers.map(lambda v: v.bias)": [0.5, 0.5],
    "b.layer.map(lambda n, v: mean(v))": {"weight": 2.5, "bias": 0.5}, "b.keyed.a.sum()": 15.0, "b.keyed.b.c": 3,
    "b.keyed['b']": {"c": 3}, "b.listed[1]": 7, "b.listed[0].max()": 5.0, "len(b.listed)": 2, "len(b.empty)": 0,
    "b.deep.m.a[1].bias": 0.5, "b.keyed.map(lambda v: 1)": {"a": 1, "b": 1},
}  # fmt: skip


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with sg.init("trees", dir=tmp_path_factory.mktemp("trees"), budget=None) as run, sg.connect(run) as client:
        streams = {query: client.stream(query) for query in QUERIES}
        whole = client.stream("b.layer")
        for _ in range(3):
            run.observe("b", **OFFERED)
        found = {query: stream.wait(1, timeout_s=30)[0].value for query, stream in streams.items()}
        return {**found, "whole": whole.wait(1, timeout_s=30)[0].value}


@pytest.mark.parametrize("query", QUERIES)
def test_modules_and_pytrees_are_values_by_their_fields_and_leaves(answers: dict[str, Any], query: str) -> None:
    assert answers[query] == QUERIES[query]


def test_a_whole_module_is_a_mapping(answers: dict[str, Any]) -> None:
    assert answers["whole"].keys() == {"weight", "bias"}
    np.testing.assert_array_equal(answers["whole"]["weight"], ROWS)


def test_functions_and_classes_are_refused_as_before(tmp_path: Any) -> None:
    with sg.init("functions", dir=tmp_path, budget=None) as run, sg.connect(run) as client:
        streams = [client.stream(f"b.{name}") for name in ("f", "cls", "jitted", "method")]
        for _ in range(4):
            run.observe("b", f=lambda x: x, cls=Layer, jitted=jax.jit(jnp.sin), method=Layer(1).__call__)
        run.flush(30)
        for name, stream in zip(("f", "cls", "jitted", "method"), streams, strict=True):
            with pytest.raises(sg.SightglassError, match=f"Expected {name!r}"):
                stream.wait(1, timeout_s=30)


def test_gradients_that_are_modules_of_equinox_are_asked_in_a_compiled_step(tmp_path: Any) -> None:
    eqx = pytest.importorskip("equinox")

    @eqx.filter_jit
    def fit(model: Any, x: Any) -> Any:
        loss, grads = eqx.filter_value_and_grad(lambda m: (jax.vmap(m)(x) ** 2).mean())(model)
        log({"loss": loss, "grads": eqx.filter(grads, eqx.is_array)})
        return eqx.apply_updates(model, jax.tree.map(lambda g: -0.1 * g, grads))

    model = eqx.nn.MLP(3, 1, 8, 2, key=jax.random.key(0))
    x = jnp.ones((8, 3))
    with sg.init("eqx", dir=tmp_path, budget=None) as run, sg.connect(run) as client:
        step = live(fit, run)
        names = ("batch.loss", "batch.grads.layers[0].weight.norm()", "batch.grads.layers[2].bias.sum()")
        streams = [client.stream(name) for name in names]

        def again() -> None:
            nonlocal model
            model = step(model, x)

        wait_until(lambda: all(stream.latest for stream in streams), [s.note for s in streams], pause=again)
        assert all(np.isfinite(stream.latest.value) for stream in streams)
