"""What becomes of sown values under the transformations of Flax and of JAX, as docs/flax.md tells it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import nnx

from sightglass.flax import NNXModule, forward

from .models import Block, Linen, NNXBlock, X, Y, params_of, same, shapes

H, H5 = ((3, 4), (3, 4)), ((5, 3, 4), (5, 3, 4))
AXES = {"plots": 0, "intermediates": 0}


class Around(nn.Module):
    """A model whose body is a function."""

    body: Callable[[Any], Any]

    @nn.compact
    def __call__(self, x: Any) -> Any:
        return self.body(x)[0]


def capture(body: Callable[[Any], Any]) -> Any:
    """Return the shapes of what is captured; the output is the same with and without, to the bit."""
    model = Around(body)
    params = model.init(jax.random.key(0), X)["params"]
    outputs = [forward(model, params, X, intermediates=c, loss=lambda *_: 0) for c in (True, False)]
    assert same(outputs[0][0], outputs[1][0])
    return shapes(outputs[0][2]["plots"])


def lifted(transform: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a body with one transformed block in it; modules are made where they are used."""

    def body(x: Any) -> Any:
        return transform(Block)(name="b")(x)

    return body


def scanned(**axes: Any) -> Callable[[Any], Any]:
    options = {"variable_axes": {"params": 0, **axes}, "split_rngs": {"params": True}, "length": 5}
    return lambda x: nn.scan(Block, **options)(name="b")(x, None)


def mapped(**axes: Any) -> Callable[[Any], Any]:
    options = {"variable_axes": {"params": None, **axes}, "split_rngs": {"params": False}}
    return lifted(lambda block: nn.vmap(block, **options))


def looped(x: Any) -> Any:
    def body(block: Any, carry: Any) -> Any:
        return carry[0] + 1, block(carry[1])[0]

    block = Block(name="b")
    block(x)
    return nn.while_loop(lambda _, carry: carry[0] < 3, body, block, (0, x))[1], None


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (lifted(nn.jit), {"b": {"h": H}}),
        (lifted(nn.remat), {"b": {"h": H}}),
        (scanned(**AXES), {"b": {"h": H5}}),
        (scanned(), {}),
        (mapped(**AXES), {"b": {"h": H}}),
        (mapped(plots=1, intermediates=0), {"b": {"h": ((4, 3), (4, 3))}}),
        (mapped(), {}),
        (lambda x: nn.cond(True, lambda m, x: m(x), lambda m, x: m(2 * x), Block(name="b"), x), {"b": {"h": H}}),
        (looped, {"b": {"h": H}}),
    ],
    ids=["jit", "remat", "scan", "scan without axes", "vmap", "vmap axis 1", "vmap without axes", "cond", "while"],
)
def test_linen(body: Any, expected: Any) -> None:
    assert capture(body) == expected


@pytest.mark.parametrize(
    ("body", "n"), [(scanned(**AXES), 0), (scanned(), 1), (mapped(), 1), (looped, 1), (lifted(nn.jit), 0)]
)
def test_what_flax_drops_is_warned_of(body: Any, n: int) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        capture(body)
    texts = {str(one.message) for one in seen if "Flax drops" in str(one.message)}
    assert texts == (
        {
            "Flax drops what 'b' sows into 'plots': nn.scan and nn.vmap need an axis for it, such as "
            "variable_axes={'plots': 0}; nn.while_loop keeps nothing"
        }
        if n
        else set()
    )


def test_a_module_called_twice_makes_one_longer_tuple() -> None:
    def twice(x: Any) -> Any:
        block = Block(name="b")
        return block(block(x)[0])

    assert capture(twice) == {"b": {"h": H + H}}


def test_a_scan_stacks_layers_in_order() -> None:
    model = Around(scanned(**AXES))
    params = model.init(jax.random.key(0), X)["params"]
    output, _, meta = forward(model, params, X, loss=lambda *_: 0)
    np.testing.assert_array_equal(meta["plots"]["b"]["h"][1][-1], output)


def test_the_transformations_of_jax_put_axes_in_front() -> None:
    params = params_of(Linen())

    def meta(x: Any) -> Any:
        return forward(Linen(), params, (x, Y))[2]["plots"]["Block_0"]

    assert shapes(jax.vmap(meta)(jnp.stack([X] * 7))) == {"h": ((7, 3, 4), (7, 3, 4))}
    assert shapes(jax.lax.scan(lambda c, x: (c, meta(x)), 0, jnp.stack([X] * 6))[1]) == {"h": ((6, 3, 4), (6, 3, 4))}
    assert shapes(jax.checkpoint(meta)(X)) == {"h": H}


def test_the_second_pass_of_a_gradient_captures_nothing() -> None:
    model = Around(lifted(nn.remat))
    params = model.init(jax.random.key(0), X)["params"]

    def loss_of(params: Any) -> Any:
        _, loss, meta = forward(model, params, X, loss=lambda out, _: out.sum())
        return loss, meta["plots"]

    assert shapes(jax.grad(loss_of, has_aux=True)(params)[1]) == {"b": {"h": H}}


# NNX


def stacked(n: int) -> Any:
    return nnx.vmap(NNXBlock, in_axes=0, out_axes=0)(nnx.Rngs(0).split(n))


class AroundNNX(NNXModule):
    def __init__(self, block: Any, body: Callable[[Any, Any], Any]) -> None:
        self.block = block
        self.body = body

    def __call__(self, x: Any) -> Any:
        return self.body(self.block, x)


def capture_nnx(block: Any, body: Callable[[Any, Any], Any]) -> Any:
    model = AroundNNX(block, body)
    outputs = [forward(model, None, X, intermediates=c, loss=lambda *_: 0) for c in (True, False)]
    assert same(outputs[0][0], outputs[1][0])
    return shapes(outputs[0][2]["plots"])


def scan_nnx(blocks: Any, x: Any) -> Any:
    return nnx.scan(lambda x, block: block(x), in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)(x, blocks)


def share(axes: Any) -> Callable[[Any, Any], Any]:
    return nnx.vmap(lambda block, x: block(x), in_axes=(axes, 0))


@pytest.mark.parametrize(
    ("make", "body", "expected"),
    [
        (lambda: NNXBlock(nnx.Rngs(0)), nnx.jit(lambda b, x: b(x)), {"block": {"h": H}}),
        (lambda: NNXBlock(nnx.Rngs(0)), nnx.remat(lambda b, x: b(x)), {"block": {"h": H}}),
        (lambda: NNXBlock(nnx.Rngs(0)), lambda b, x: b(b(x)), {"block": {"h": H + H}}),
        (lambda: stacked(5), scan_nnx, {"block": {"h": H5}}),
        (lambda: stacked(5), nnx.vmap(lambda b, x: b(x), in_axes=(0, None)), {"block": {"h": H5}}),
        (
            lambda: NNXBlock(nnx.Rngs(0)),
            share(nnx.StateAxes({nnx.Intermediate: 0, ...: None})),
            {"block": {"h": H}},
        ),
    ],
    ids=["jit", "remat", "twice", "scan", "vmap", "vmap of one module"],
)
def test_nnx(make: Any, body: Any, expected: Any) -> None:
    assert capture_nnx(make(), body) == expected


def test_nnx_needs_to_know_where_sown_values_of_a_shared_module_go() -> None:
    with pytest.raises(ValueError, match="axis spec None"):
        capture_nnx(NNXBlock(nnx.Rngs(0)), share(None))
    model = AroundNNX(NNXBlock(nnx.Rngs(0)), share(None))
    assert forward(model, None, X, intermediates=False, loss=lambda *_: 0)[0].shape == X.shape


def test_nnx_compiled_around() -> None:
    model = AroundNNX(stacked(5), scan_nnx)
    graph, state = nnx.split(model)
    expected = {"block": {"h": H5}}
    for jitted in (
        nnx.jit(lambda model: forward(model, None, X, loss=lambda *_: 0)[2]["plots"])(model),
        jax.jit(lambda state: forward(graph, state, X, loss=lambda *_: 0)[2]["plots"])(state),
        jax.jit(lambda x: forward(model, None, x, loss=lambda *_: 0)[2]["plots"])(X),
    ):
        assert shapes(jitted) == expected
