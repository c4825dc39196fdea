"""What was logged: laws of concatenating and slicing, pytrees, masks, steps of each tag's own, printing, records."""

from __future__ import annotations

import copy
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from tests.profiles import examples

from sightglass.core.errors import LogError, UnknownNameError
from sightglass.jax.logs.columns import no_step
from sightglass.jax.logs.logdict import logdict, stepdict
from sightglass.jax.reducers.accumulate import histogram, last_k

unhurried = settings(max_examples=examples(40), deadline=None)
SHAPES = {"loss": (), "grads": (2,), "acc": (2, 3)}


@st.composite
def logdicts(draw: st.DrawFn, *, masked: bool = False) -> logdict:
    """Draw one of NumPy arrays, each of its entries another number."""
    tags = draw(st.lists(st.sampled_from(sorted(SHAPES)), unique=True, max_size=3))
    lengths = {tag: draw(st.integers(0, 4)) for tag in tags}
    start = draw(st.integers(0, 100))
    leaf = lambda tag: start + np.arange(lengths[tag] * 6).reshape(-1, 6)[:, : int(np.prod(SHAPES[tag]))]  # noqa: E731
    data = {tag: leaf(tag).astype(np.float32).reshape(-1, *SHAPES[tag]) for tag in tags}
    steps = {
        name: {tag: start + np.arange(lengths[tag], dtype=np.int32) for tag in tags if draw(st.booleans())}
        for name in ("step", "epoch")
    }
    holes = {tag: np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool) for tag, n in lengths.items()}
    return logdict(data, steps, holes if masked else None)


def equal(a: Any, b: Any) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert np.asarray(x).dtype == np.asarray(y).dtype
        np.testing.assert_array_equal(x, y)


def happened(logs: logdict) -> dict[str, list[Any]]:
    out: dict[str, list[Any]] = {tag: [] for tag in logs}
    for tag, steps, value in logs.events():
        out[tag].append((value.tolist(), {name: int(step) for name, step in sorted(steps.items())}))
    return out


@unhurried
@given(logdicts(), logdicts(), logdicts())
def test_adding_is_associative_and_has_a_zero(a: logdict, b: logdict, c: logdict) -> None:
    equal(((a + b) + c).to_numpy(), (a + (b + c)).to_numpy())
    equal(((a + b) + c).to_numpy(), logdict.concatenate([a, b, c]).to_numpy())
    equal(a + logdict({}), a)
    equal(logdict({}) + a, a)
    assert list(a + b) == list(dict.fromkeys([*a, *b]))


@unhurried
@given(logdicts(masked=True), logdicts())
def test_adding_puts_the_events_one_after_the_other(a: logdict, b: logdict) -> None:
    mine, theirs, both = happened(a), happened(b), happened(a + b)
    assert both == {tag: mine.get(tag, []) + theirs.get(tag, []) for tag in (a + b)}


cuts = st.none() | st.integers(-5, 5)


@unhurried
@given(logdicts(masked=True), cuts, cuts, st.none() | st.sampled_from([-2, -1, 1, 2, 3]))
def test_slicing_slices_every_leaf(logs: logdict, start: Any, stop: Any, step: Any) -> None:
    where = slice(start, stop, step)
    equal(logs.slice[where], jax.tree.map(lambda x: x[where], logs))
    equal(
        logs.slice[where].step if logs.steps.get("step") else 0, logs.step.slice[where] if logs.steps.get("step") else 0
    )


@unhurried
@given(logdicts(), st.integers(0, 5))
def test_two_slices_make_the_whole(logs: logdict, at: int) -> None:
    equal(logs.slice[:at] + logs.slice[at:], logs)


@unhurried
@given(logdicts(masked=True))
def test_it_is_a_pytree(logs: logdict) -> None:
    equal(jax.tree.map(lambda x: x, logs), logs)
    assert list(jax.tree.map(lambda x: x, logs)) == list(logs)
    leaves, structure = jax.tree.flatten(logs)
    with_paths, same = jax.tree_util.tree_flatten_with_path(logs)
    assert same == structure
    assert [leaf is other for (_, leaf), other in zip(with_paths, leaves, strict=True)] == [True] * len(leaves)
    assert len({jax.tree_util.keystr(path) for path, _ in with_paths}) == len(leaves)
    equal(copy.deepcopy(logs), logs)
    repr(jax.tree.map(lambda x: object(), logs))


@unhurried
@given(logdicts(masked=True))
def test_events_that_did_not_happen_are_not_read(logs: logdict) -> None:
    host = logs.to_numpy()
    assert not host.valid
    for tag in logs:
        np.testing.assert_array_equal(host[tag], logs[tag][logs.valid[tag]])
    assert {tag: len(records) for tag, records in logs.records().items()} == {
        tag: int(logs.valid[tag].sum()) for tag in logs
    }


def test_it_goes_through_transformations_in_its_order() -> None:
    logs = logdict({"b": jnp.arange(4.0), "a": jnp.ones((4, 2))}, {"step": {"a": jnp.arange(4), "b": jnp.arange(4)}})
    through = jax.jit(lambda logs: logs.slice[-2:] + logs.slice[:1])(logs)
    assert list(through) == list(through.step) == ["b", "a"]
    assert through.step["b"].tolist() == [2, 3, 0]
    many = jax.tree.map(lambda x: jnp.stack([x, x + 1]), logs)
    means = jax.vmap(lambda logs: logs.reduce("mean"))(many)
    assert means["b"].tolist() == [[1.5], [2.5]]

    def body(total: Any, x: Any) -> Any:
        made = logdict.of({"x": x, "twice": {"y": 2 * x}}, {"step": x})
        return total + made["x"][0], made

    _, stacked = lax.scan(body, 0.0, jnp.arange(3.0))
    assert stacked["twice"]["y"].shape == (3, 1)
    grad = jax.grad(lambda x: logdict({"x": x}).reduce("mean")["x"].sum())(jnp.arange(4.0))
    assert grad.tolist() == [0.25] * 4
    branch = lambda c: lax.cond(c, lambda: logs.slice[:2], lambda: logs.slice[2:])  # noqa: E731
    assert jax.jit(branch)(False)["b"].tolist() == [2, 3]


def test_one_event_gets_its_axis_when_it_is_read() -> None:
    calls = []

    def thunk() -> Any:
        calls.append(1)
        return {"inner": jnp.ones(2)}

    def f(x: Any) -> Any:
        logs = logdict.of({"x": x, "thunk": thunk, "scalar": 2.5}, {"step": 3})
        assert len(logs.prefix("a/").filter(lambda tag: tag != "a/x")) == 2
        return x

    assert jax.make_jaxpr(f)(1.0).eqns == []
    assert calls == []
    data = {"x": np.int8(2), "thunk": thunk, "scalar": 2.5}
    logs = logdict.of(data, {"step": 3, "epoch": 0.5})
    equal(logs, logdict(logs.data, logs.steps))
    assert (logs["x"].dtype, logs["x"].shape, logs["thunk"]["inner"].shape) == (jnp.int8, (1,), (1, 2))
    assert logs.epoch["scalar"].tolist() == [0.5]
    assert logs.step["x"].shape == (1,)
    del logs["thunk"]
    assert list(logs.step) == list(logs) == ["x", "scalar"]
    assert list(data) == ["x", "thunk", "scalar"]

    def leaky(x: Any) -> Any:
        logs = logdict.of({"x": x}, {"step": 1})
        inner = jax.jit(lambda: logs["x"] * 2)()
        return inner + logs["x"]

    with jax.checking_leaks():
        assert jax.jit(leaky)(1.0).tolist() == [3.0]


def test_steps_are_each_tags_own() -> None:
    a = logdict({"loss": jnp.arange(2.0)}, {"step": {"loss": jnp.array([5, 6])}})
    b = logdict(
        {"loss": jnp.arange(1.0), "acc": jnp.ones(1)}, {"epoch": {"loss": jnp.array([0.5]), "acc": jnp.ones(1)}}
    )
    both = a + b
    assert both.step["loss"].tolist() == [5, 6, no_step(jnp.arange(1))]
    assert "acc" not in both.step
    assert [event.steps for event in both.events() if event.tag == "loss"] == [{"step": 5}, {"step": 6}, {"epoch": 0.5}]
    assert [(r.step, r.steps) for r in both.records()["loss"]] == [(5, {}), (6, {}), (2, {"epoch": 0.5})]
    assert no_step(jnp.zeros(1, jnp.uint8)) == 255
    assert isinstance(both.steps["epoch"], stepdict)
    assert both.epoch.reduce()["acc"].tolist() == [1]
    slice_track = logdict({"x": jnp.ones(1)}, {"slice": {"x": jnp.ones(1)}})
    assert slice_track.steps["slice"]["x"].tolist() == [1]


def test_values_of_all_kinds() -> None:
    keys = jax.random.split(jax.random.key(0), 2)
    data = {
        "key": keys, "bf16": jnp.ones((2, 3), jnp.bfloat16), "int4": jnp.array([1, -2], jnp.int4),
        "tree": {"a": (jnp.ones(2), [jnp.zeros((2, 1), bool)]), "none": None}, "complex": jnp.array([1j, 2.0]),
    }  # fmt: skip
    logs = logdict(data)
    both = jax.jit(lambda logs: logs + logs.slice[::-1])(logs)
    assert (jax.random.key_data(both["key"]) == jax.random.key_data(keys)[np.array([0, 1, 1, 0])]).all()
    host = both.to_numpy()
    assert host["key"].shape == (4, 2)
    assert [str(host[tag].dtype) for tag in ("bf16", "int4", "complex")] == ["bfloat16", "int4", "complex64"]
    equal(both.reduce("last")["tree"], both.slice[-1]["tree"])
    assert both.records()["tree"][0].value == {"a": (1.0, [np.array([False])]), "none": None}
    assert [r.value for r in both.records()["int4"]] == [1, -2, -2, 1]


def test_masked_lanes() -> None:
    ok = np.array([[True, False], [False, False], [True, True]])
    logs = logdict(
        {"x": np.array([[1, 2], [3, 4], [5, 6]]), "y": {"v": np.arange(12.0).reshape(3, 2, 2)}},
        {"step": {"x": np.array([[0, 0], [1, 1], [2, 2]])}},
        {"x": ok, "y": ok},
    )
    host = logs.to_numpy()
    assert host.valid["x"].tolist() == [[True, False], [True, True]]
    assert host.step["x"].tolist() == [[0, 0], [2, 2]]
    records = logs.records()
    np.testing.assert_array_equal(records["x"][0].value, [1, np.nan])
    np.testing.assert_array_equal(records["x"][1].value, [5, 6])
    np.testing.assert_array_equal(records["y"][0].value["v"], [[0, 1], [np.nan, np.nan]])
    assert [r.step for r in records["x"]] == [0, 2]
    first = next(event for event in logs.events() if event.tag == "x")
    assert first.value.mask.tolist() == [False, True]
    for numpy_or_jax in (logs, jax.tree.map(jnp.asarray, logs)):
        assert numpy_or_jax.reduce("mean")["x"].tolist() == [[3, 6]]
        assert numpy_or_jax.reduce("first")["x"].tolist() == [[1, 6]]
        assert numpy_or_jax.reduce("count")["y"].tolist() == [[2, 1]]
        assert numpy_or_jax.reduce("max").valid["x"].tolist() == [[True, True]]
        assert numpy_or_jax.reduce(last_k(2))["x"].tolist() == [[1, 0], [5, 6]]
        counts = numpy_or_jax.reduce(histogram([0, 4, 8]))
        assert counts["x"].counts.tolist() == [[[1, 1], [0, 1]]]
        assert [made.total for made in counts.records()["x"][0].value] == [2, 1]
    assert (logs + logdict({"x": np.zeros((1, 2), int)})).valid["x"].tolist() == [*ok.tolist(), [True, True]]


def test_reducing() -> None:
    logs = logdict(
        {"x": jnp.array([[1.0, 4.0], [3.0, jnp.nan]]), "n": {"a": jnp.array([1, 2])}},
        {"step": {"x": jnp.array([7, 8]), "n": jnp.array([7, 9])}},
    )
    mean = logs.reduce("mean")
    np.testing.assert_array_equal(mean["x"], [[2, np.nan]])
    assert mean["n"]["a"].tolist() == [1.5]
    assert (mean.step["x"].tolist(), mean.step["n"].tolist()) == ([8], [9])
    assert not mean.valid
    assert logs.reduce("first").step["x"].tolist() == [7]
    assert logs.reduce("sum", keep_steps=False).steps == {}
    assert logs.reduce("count")["n"].tolist() == [2]
    np.testing.assert_array_equal(logs.reduce(jnp.median)["n"]["a"], [1.5])
    assert logs.reduce(lambda rows: rows[1] - rows[0])["n"]["a"].tolist() == [1]
    assert logs.reduce(jnp.mean)["n"]["a"].tolist() == [1.5]
    assert (mean + mean)["n"]["a"].tolist() == [1.5, 1.5]
    empty = logs.slice[:0].reduce("max")
    assert (empty["x"].shape, empty.valid["x"].tolist(), empty.records()["x"]) == ((1, 2), [False], [])
    assert logs.slice[:0].reduce("count")["n"].tolist() == [0]
    host = logs.to_numpy().reduce("sum")
    assert isinstance(host["x"], np.ndarray)
    assert host["n"]["a"].dtype == np.int64


def test_dictionary_interface() -> None:
    logs = logdict({"a": jnp.ones(1), "b": jnp.zeros(2)}, {"step": {"a": jnp.ones(1)}}, {"b": jnp.array([True, False])})
    assert (len(logs), list(logs), "a" in logs, "c" in logs, logs.get("c")) == (2, ["a", "b"], True, False, None)
    assert dict(logs).keys() == logs.data.keys()
    new = logs | {"b": jnp.ones(3), "c": jnp.ones(1)}
    assert (new["b"].shape, new.valid, list(new)) == ((3,), {}, ["a", "b", "c"])
    assert list((logs | logdict({"a": jnp.zeros(1)})).steps) == []
    assert list(logs.prefix("val/").step) == ["val/a"]
    assert list(logs.filter(lambda tag: tag == "b").valid) == ["b"]
    assert logs.filter(lambda tag: tag == "b").steps == {}
    del logs["b"]
    assert (list(logs), logs.valid) == (["a"], {})
    del logs.step["a"]
    steps = stepdict({"a": jnp.ones(1)}).prefix("x/") | {"y": jnp.ones(2)}
    assert list((steps + steps).filter(lambda tag: tag != "y")) == ["x/a"]
    assert (steps + steps)["y"].shape == (4,)
    assert list(jax.tree.map(lambda x: x, steps)) == ["x/a", "y"]
    del steps["y"]
    assert len(steps) == 1
    assert steps == steps
    assert (logs == 3) is False


def test_a_ring_buffers_count_comes_along() -> None:
    logs = logdict({"x": jnp.arange(3)}, {}, {"x": jnp.array([False, True, True])}, {"x": jnp.int32(4)})
    assert [record.index for record in logs.records()["x"]] == [4, 5]
    assert int((logs + logs).n_dropped["x"]) == 8
    assert int(logs.reduce(last_k(1)).n_dropped["x"]) == 5
    assert "4 dropped" in repr(logs)


def test_printing() -> None:
    logs = logdict(
        {
            "loss": jnp.array([2.5, 0.125, jnp.nan]),
            "grads": {"w": jnp.arange(6).reshape(2, 3)},
            "on": jnp.array([True]),
        },
        {"step": {"loss": jnp.arange(3), "grads": jnp.array([4, 4])}, "epoch": {"loss": jnp.zeros(3)}},
        {"grads": jnp.array([True, False])},
        {"grads": jnp.int32(2)},
    )
    assert repr(logs).split("\n") == [
        "logdict of 3 tags",
        "  loss     float32[3]   0.125 … 2.5, 1 NaN  step 0 … 2, epoch 0",
        "  grads/w  int32[2, 3]  0 … 2               step 4  1 of 2 happened  2 dropped",
        "  on       bool[1]      1 of 1 true",
    ]
    assert repr(logs.step) == "stepdict\n  loss   int32[3]  0 … 2\n  grads  int32[2]  4"
    seen = []
    jax.jit(lambda logs: (seen.append(repr(logs)), logs)[1])(logs)
    assert seen[0].split("\n")[2] == "  grads/w  int32[2, 3]  step  masked"
    assert repr(logdict({})) == "logdict of 0 tags"
    assert len(repr(logdict({str(i): np.ones(1) for i in range(500)})).split("\n")) == 62
    donated = jnp.ones(3)
    donated.delete()
    assert "float32[3]" in repr(logdict({"gone": donated}))
    assert len(repr(logdict({"big": np.ones((1000, 5000))}))) < 100


def test_misuse_raises_with_the_reason() -> None:
    logs = logdict({"x": jnp.ones((2, 3))}, {"step": {"x": jnp.arange(2)}})
    traced: list[Any] = []
    for refused, kind, message in [
        (lambda: logs + logdict({"x": jnp.ones((2, 4))}), LogError,
         "Expected values of one shape under tag 'x', got (3,) and (4,): log them under different tags"),
        (lambda: logs + logdict({"x": {"a": jnp.ones(2)}}), LogError,
         "Expected values of one structure under tag 'x', got PyTreeDef(*) and PyTreeDef({'a': *})"),
        (lambda: logdict({"k": jnp.ones(1)}) + logdict({"k": jax.random.split(jax.random.key(0), 1)}), LogError,
         "Expected values of one type under tag 'k', got float32 and key<fry>"),
        (lambda: logs + logdict({"x": jnp.ones((1, 3))}, {"step": {"x": jnp.ones((1, 2))}}), LogError,
         "Expected values of one shape under tag 'x' in step track 'step', got () and (2,): "
         "log them under different tags"),
        (lambda: logdict({"x": {"a": jnp.ones(2), "b": jnp.ones(3)}}), ValueError,
         "Expected leaves of tag 'x' with the events along their first axis, got shapes (2,), (3,)"),
        (lambda: logdict({"x": 1.0}), ValueError,
         "Expected leaves of tag 'x' with the events along their first axis, got shapes ()"),
        (lambda: logdict({"x": jnp.ones(2)}, {"step": {"x": jnp.ones(3)}}), ValueError,
         "Expected 2 events in the step track 'step' of 'x', got shape (3,)"),
        (lambda: logdict({"loss": jnp.ones(2)}, {}, {"los": jnp.ones(2, bool)}), UnknownNameError,
         "Unknown tag 'los' in mask. Did you mean 'loss'? Known: loss."),
        (lambda: logs["y"], KeyError, "Unknown tag 'y'. Known: x."),
        (lambda: logs.step["y"], KeyError, "Unknown tag 'y'. Known: x."),
        (lambda: logs.stp, AttributeError, "Unknown step track 'stp'. Did you mean 'step'? Known: step."),
        (lambda: logs.reduce("men"), UnknownNameError, "Unknown reduction 'men'. Did you mean 'mean'?"),
        (lambda: logdict({"k": jax.random.split(jax.random.key(0), 1)}).reduce("sum"), TypeError,
         "Expected numbers to reduce by 'sum', got key<fry>: take 'first' or 'last' of these (tag 'k')"),
        (lambda: logdict.of({"x": "text"}, {})["x"], TypeError, "Expected arrays or numbers at tag 'x', got str: "),
        (lambda: logs.slice["x"], TypeError, "Expected a slice such as [-10:], or one number, got 'x'"),
        (lambda: logs == logdict({}), TypeError,
         "A logdict cannot be compared with ==: compare the arrays, or jax.tree.structure"),
        (lambda: jax.jit(lambda logs: traced.append(logs.to_numpy()))(logs), TypeError,
         "Expected arrays to read on the host, got the tracer "),
    ]:  # fmt: skip
        with pytest.raises(kind) as error:
            refused()
        assert str(error.value).split("\n")[0].startswith(message)


def test_importing_starts_no_backend() -> None:
    code = (
        "import sightglass.jax.logs.logdict, sightglass.jax.reducers.accumulate\n"
        "from jax._src import xla_bridge\n"
        "assert not xla_bridge._backends"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
