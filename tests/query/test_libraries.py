"""One evaluator for NumPy, PyTorch and JAX: the same numbers, in the array's own library."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.query.lambdas import lambda_of

from sightglass.core.errors import EvaluationError, RefusedQueryError
from sightglass.core.values import DeviceHistogram, Histogram, array_kind, to_host
from sightglass.query.evaluation import Evaluation, host
from sightglass.query.evaluator import evaluator
from sightglass.query.functions import FUNCTIONS
from sightglass.query.query import on

EXPRESSIONS = [
    "abs(b.x)", "sign(b.x)", "square(b.x)", "sqrt(abs(b.x))", "exp(b.x)", "expm1(b.x)", "log(abs(b.x) + 1)",
    "log2(abs(b.x) + 1)", "log10(abs(b.x) + 1)", "log1p(abs(b.x))", "tanh(b.x)", "sin(b.x)", "cos(b.x)", "floor(b.x)",
    "ceil(b.x)", "isnan(b.x)", "isinf(b.x)", "isfinite(b.x)", "round(b.x)", "round(b.x, 2)", "b.x.clip(-1, 1)",
    "b.x.clip(None, 0.5)", "b.x.clip(b.x * 0, b.x + 1)", "where(b.x > 0, b.x, -1)", "where(b.m, b.x, b.i)",
    "maximum(b.x, 0)", "minimum(b.x, -b.x)", "b.x.sum()", "b.x.sum(axis=0)", "b.x.prod()", "b.x.mean()", "b.x.std()",
    "b.x.var(axis=1)", "b.x.min()", "b.x.max(axis=-1)", "b.x.argmin()", "b.x.argmax(axis=0)", "b.m.any()", "b.m.all()",
    "b.x.norm()", "b.x.norm(axis=0)", "b.i.norm()", "b.x.quantile(0.3)", "b.x.quantile([0, 0.5, 1])", "b.x.median()",
    "b.x.topk(3)", "b.i.topk(100)", "b.x.ravel()", "pieces(b.x)", "b.x.reshape(4, 3)",
    "b.x.reshape((2, -1))", "b.x[0, 0].item()",
    "b.x.diff()", "b.x.cumsum()", "b.x.first()", "b.x.last()", "b.x.ravel().sample(3)", "b.i.mean()", "b.m.mean()",
    "b.i.std()", "b.m.sum()", "b.i.sum()", "exp(b.i)", "sqrt(abs(b.i))", "b.x + 1", "1 - b.x", "b.x * b.x", "b.x / 2",
    "b.x // 0.3", "b.x % 0.7", "b.x ** 2", "2.0 ** b.x", "-b.x", "+b.x", "~b.m", "b.m & (b.x > 0)", "b.m | b.m",
    "b.m ^ (b.x > 0)", "b.x == b.x", "b.x != 0", "b.x <= 0", "b.i // 2", "b.i % 3", "b.i / 0", "b.x / 0", "b.x[1]",
    "b.x[1, 2]", "b.x[-1]", "b.x[:, 1]", "b.x[..., ::2]", "b.x[None]", "b.x[:, None, 1:]", "b.x[[0, 2, 0]]",
    "b.x[[0, 1], [2, 3]]", "b.x[b.i[0]]", "b.x[b.i[:, 0], 0]", "b.x.T", "b.x.T[0]", "b.x.real",
    "(b.x[0], b.x[1]).mean()", "[b.x[0, 0], b.x[1, 1]].sum()", "[1, 2, 3].mean()",
    "b.d.map(lambda n, v: v.norm())", "b.d.map(lambda v: v.mean())",
    "b.d.values().map(lambda v: v.max())", "(b.x > 0).sum()",
    "b.x @ b.x.T", "matmul(b.x, b.x[0])", "dot(b.x[0], b.x[1])", "svdvals(b.x)", "cov(b.x)", "cov(b.x[0], b.x[1])",
    "corr(b.x)", "corr(b.x, b.i)", "cosine(b.x, b.i)", "b.x.sort()", "b.x.sort(axis=0, descending=True)",
    "b.i.argsort(axis=0)", "b.x.argsort(descending=True)", "searchsorted(b.x[0].sort(), b.x[1:])",
    "searchsorted(b.x[0].sort(), 0.25)", "b.i.bincount(4)", "bincount(b.i, 2)", "isin(b.i, [0, 2])",
    "isin(b.x, b.x[0])", "softmax(b.x)", "b.x.softmax(axis=0)", "b.x.logsumexp()", "b.x.logsumexp(axis=1)",
    "b.x.percentile(30)", "b.x.percentile([0, 50])", "b.x.astype('int32')", "b.m.astype('float32')",
    "b.i.astype('bool')", "stack([b.x, b.x * 2])", "stack([b.x[0], b.x[1]], axis=1)", "concat([b.x, b.x[:1]])",
    "concat([b.x, b.x[:, 1:]], 1)", "concat([b.x, b.x[0]], None)", "float(b.x[0, 0])", "b.x.sum(dim=1)",
    "b.x.diff(axis=0)", "b.x.cumsum(axis=0)", "b.x.cumsum(1)", "b.i.cumsum(axis=-1)", "b.x.median(axis=0)",
    "b.i.median(-1)", "b.x.quantile(0.3, axis=1)", "b.x.quantile([0, 0.5], dim=0)", "b.x.quantile(0.9, axis=(1, 0))",
    "b.x.percentile(30, axis=0)",
    "b.x[0, 0] if b.x.sum() > 0 else 1", "{'a': b.x.mean(), 'b': (b.x, b.i.max())}",
]  # fmt: skip
COMPUTED_PLACES = ("b.x[b.i[0]]", "b.x[b.i[:, 0], 0]")
TEXTS_AND_SHAPES = {
    "b.x.shape": (3, 4), "b.x.ndim": 2, "b.x.size": 12, "b.x.size()": 12, "b.x.shape()": (3, 4), "len(b.x)": 3,
    "b.x.dtype": "float32", "b.i.dtype": "int32", "b.m.dtype": "bool", "b.x.dtype.startswith('float')": True,
    "b.d.keys()": ["v", "w"], "leaves(b.d).keys()": ["v", "w"], "len(b.d)": 2, "b.d.contains('w')": True,
}  # fmt: skip


def arrays(make: Callable[[Any], Any]) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 4)).astype(np.float32)
    i = np.array([[0, 1, 2, 1], [2, 1, 0, 0], [1, 1, 2, 0]], np.int32)
    return {"x": make(x), "i": make(i), "m": make(x > 0.3), "d": {"v": make(x[0]), "w": make(x)}}


def of_torch(array: Any) -> Any:
    return pytest.importorskip("torch").from_numpy(np.array(array))


def of_jax(array: Any) -> Any:
    return pytest.importorskip("jax").numpy.asarray(array)


LIBRARIES = pytest.mark.parametrize(("kind", "make"), [("torch", of_torch), ("jax", of_jax)])


def evaluate(text: str, observables: dict[str, Any]) -> Any:
    return evaluator(lambda_of(f"lambda b: {text}"), event="batch")(observables)


def kinds(value: Any) -> set[Any]:
    if isinstance(value, dict):
        return {kind for item in value.values() for kind in kinds(item)}
    if isinstance(value, list | tuple):
        return {kind for item in value for kind in kinds(item)}
    return {array_kind(value)}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_torch_gives_the_same_numbers_as_tensors(text: str) -> None:
    found = evaluate(text, arrays(of_torch))
    if text != "[1, 2, 3].mean()":
        assert kinds(found) == {"torch"}
    compare(host(found), host(evaluate(text, arrays(np.asarray))))


@pytest.fixture(scope="module")
def compiled() -> dict[str, Any]:
    """Evaluate every expression within one compiled step; one by one each operation would be compiled by itself."""
    jax = pytest.importorskip("jax")
    texts = [text for text in EXPRESSIONS if text not in COMPUTED_PLACES]
    return jax.jit(lambda b: {text: evaluate(text, b) for text in texts})(arrays(of_jax))


def test_places_that_a_compiled_step_computes_are_not_used_without_a_check() -> None:
    jax = pytest.importorskip("jax")
    for text in COMPUTED_PLACES:
        with pytest.raises(EvaluationError, match="Tracer"):  # nobody reads the check later, as `Evaluation` does
            jax.jit(functools.partial(evaluate, text))(arrays(of_jax))
        compare(host(evaluate(text, arrays(of_jax))), host(evaluate(text, arrays(np.asarray))))


@pytest.mark.parametrize("text", [text for text in EXPRESSIONS if text not in COMPUTED_PLACES])
def test_jax_gives_the_same_numbers_within_a_compiled_step(text: str, compiled: dict[str, Any]) -> None:
    assert kinds(compiled[text]) == {"jax"}
    compare(host(compiled[text]), host(evaluate(text, arrays(np.asarray))))


@pytest.mark.parametrize("text", ["abs(b.x)", "b.x.mean()", "b.x.T", "b.x[1, 2]", "b.d.map(lambda v: v.max())"])
def test_jax_arrays_stay_where_they_are(text: str) -> None:
    found = evaluate(text, arrays(of_jax))
    assert kinds(found) == {"jax"}
    compare(host(found), host(evaluate(text, arrays(np.asarray))))


def compare(found: Any, wanted: Any) -> None:
    if isinstance(wanted, dict):
        assert list(found) == list(wanted)
        found, wanted = list(found.values()), list(wanted.values())
    if isinstance(wanted, list | tuple):
        assert (type(found), len(found)) == (type(wanted), len(wanted))
        for a, b in zip(found, wanted, strict=True):
            compare(a, b)
        return
    assert np.shape(found) == np.shape(wanted)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@LIBRARIES
@pytest.mark.parametrize("text", TEXTS_AND_SHAPES)
def test_shapes_and_names_are_known_at_once(text: str, kind: str, make: Callable[[Any], Any]) -> None:
    found = evaluate(text, arrays(make))
    assert (found, type(found)) == (TEXTS_AND_SHAPES[text], type(TEXTS_AND_SHAPES[text]))


def test_every_function_is_tried_here() -> None:
    calls = " ".join([*EXPRESSIONS, *TEXTS_AND_SHAPES])
    untried = {name for name in FUNCTIONS if f"{name}(" not in calls}
    assert untried == {"histogram", "filter", "items", "endswith", "nonzero", "unique"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("b.i.unique()", ([0, 1, 2], [4, 5, 3])),
        ("b.i.nonzero()", np.nonzero(arrays(np.asarray)["i"])),
        ("b.i.bincount()", [4, 5, 3]),
    ],
)
def test_a_result_whose_size_depends_on_values_needs_them_on_the_host(text: str, wanted: Any) -> None:
    for make in (np.asarray, of_torch):
        found = host(evaluate(text, arrays(make)))
        assert str([np.asarray(part).tolist() for part in found]) == str([np.asarray(part).tolist() for part in wanted])
    with pytest.raises(RefusedQueryError, match="depends"):
        evaluate(text, arrays(of_jax))


SAMPLES = {
    "normal": np.random.default_rng(1).normal(size=1000).astype(np.float32),
    "one": np.full(5, 3.0, np.float32),
    "single": np.array([-2.5], np.float32),
    "integers": np.arange(10, dtype=np.int32),
    "matrix": np.arange(12, dtype=np.float32).reshape(3, 4),
    "not finite": np.array([1, 2, math.nan, math.inf, -math.inf, 4, math.inf], np.float32),
    "nothing finite": np.array([math.nan, math.inf], np.float32),
    "empty": np.zeros(0, np.float32),
    "ends": np.array([0, 0, 0, 4, 4], np.float32),
}


@pytest.mark.parametrize(
    ("make", "name", "bins"),
    [(of_torch, name, bins) for name in SAMPLES for bins in (1, 4, 64)]
    + [(of_jax, name, 4) for name in ("normal", "one", "not finite", "empty")],
)
def test_a_histogram_on_the_device_is_the_one_of_numpy(
    make: Callable[[Any], Any], name: str, bins: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sightglass.query.functions.statistics.on_device", lambda x: True)  # as if PyTorch's were, too
    found = evaluate(f"b.x.histogram({bins})", {"x": make(SAMPLES[name])})
    assert isinstance(found, DeviceHistogram if SAMPLES[name].size else Histogram)
    read = {
        part: host(evaluate(f"b.x.histogram({bins}).{part}", {"x": make(SAMPLES[name])}))
        for part in ("counts", "edges", "total", "n_nan", "n_posinf", "n_neginf")
    }
    found = host(found)
    for part, value in read.items():
        np.testing.assert_array_equal(value, getattr(found, part))
    finite = SAMPLES[name][np.isfinite(SAMPLES[name])].astype(np.float64)
    counts, edges = np.histogram(finite, bins)
    np.testing.assert_allclose(found.edges, edges, rtol=1e-5, atol=1e-6)
    assert found.total == len(finite)
    assert (found.n_nan, found.n_posinf, found.n_neginf) == (
        np.isnan(SAMPLES[name]).sum(), np.isposinf(SAMPLES[name]).sum(), np.isneginf(SAMPLES[name]).sum()
    )  # fmt: skip
    assert np.abs(np.cumsum(found.counts) - np.cumsum(counts)).max() <= (2 if name == "normal" else 0)


@LIBRARIES
def test_half_precision_is_summed_in_single(kind: str, make: Callable[[Any], Any]) -> None:
    x = make(np.full(5000, 100.0, np.float16))
    for observable in (x, np.full(5000, 100.0, np.float16)):
        assert float(to_host(evaluate("b.x.norm()", {"x": observable}))) == pytest.approx(7071.07, rel=1e-3)


def test_bfloat16_of_numpy_is_computed_with() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.full(1000, 1.5, ml_dtypes.bfloat16)
    assert float(evaluate("b.x.mean()", {"x": x})) == pytest.approx(1.5, rel=1e-3)
    assert float(evaluate("b.x.sum()", {"x": x})) == pytest.approx(1500, rel=1e-3)
    assert float(evaluate("b.x.norm()", {"x": x})) == pytest.approx(47.43, rel=1e-3)


def test_a_stream_of_jax_arrays_waits_for_nothing_in_its_head() -> None:
    jnp = pytest.importorskip("jax").numpy
    query = (
        on("batch")
        .where(lambda b: b.x.sum() > 0)
        .map(lambda b: b.x.mean())
        .mean(
            every=2,
        )
    )
    evaluation = Evaluation(query)
    results = [evaluation.per_event({"x": jnp.full(3, float(i))}) for i in range(4)]
    assert all(result.on_device and result.pending and array_kind(result.value) == "jax" for result in results)
    items = [
        item
        for i, result in enumerate(results)
        for item in evaluation.across_events(result, ordinal=i, step=i, wall_time=0.0)
    ]
    assert [(item.value, item.n_events) for item in items] == [(1.0, 1), (2.5, 2)]


def test_a_condition_on_a_window_may_rest_on_a_device() -> None:
    jnp = pytest.importorskip("jax").numpy
    evaluation = Evaluation(on("batch").map(lambda b: b.x).sum(when=lambda b: b.x > 1))
    items = []
    for i in range(4):
        result = evaluation.per_event({"x": jnp.asarray(float(i))})
        items += evaluation.across_events(result, ordinal=i, step=i, wall_time=0.0)
    assert [item.value for item in items] == [3.0, 3.0]


def test_singular_values_of_what_is_not_finite_are_not_a_number() -> None:
    for make in (np.asarray, of_torch, of_jax):
        found = host(evaluate("svdvals(b.x)", {"x": make(np.array([[1, math.nan, 2], [3, 4, 5]], np.float32))}))
        assert np.isnan(found).all()
        assert np.shape(found) == (2,)
