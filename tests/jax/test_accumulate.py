"""Accumulating in a compiled loop against NumPy on the stacked values: any kind, mask, chunks that are merged."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache, partial
from functools import reduce as fold
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from jax import lax
from tests.profiles import examples

import sightglass as sg
import sightglass.jax as sgx
import sightglass.jax.loggers
from sightglass.core.errors import UnknownNameError
from sightglass.jax.logs.logdict import logdict
from sightglass.jax.logs.reduction import NAMES
from sightglass.jax.reducers.accumulate import accumulator, every, function, histogram, last_k, plan
from sightglass.jax.reducers.accumulator import Accumulator, per_lane
from sightglass.query.reduce.table import reducer

N = 24
EDGES = (-100.0, -1.0, 0.0, 0.5, 1.0, 1e3)
unhurried = settings(max_examples=examples(15), deadline=None)
rounded = st.floats(-1e6, 1e6).map(lambda x: float(np.float32(round(x, 3))))  # squares stay numbers of float32
numbers = rounded | st.sampled_from([0.0, -1.0, 1.0, 1000.0, np.nan, np.inf, -np.inf])
columns = hnp.arrays(np.float32, (N, 2), elements=numbers)
masks = hnp.arrays(bool, N)

Array = Any
Expected = Callable[[Array], Array]


def as_in_queries(name: str) -> Expected:
    """Return what the table of reducers gives for the rows of an array, one by one."""

    def expected(x: Array) -> Array:
        made = reducer(name, {})
        with np.errstate(all="ignore"):
            state = fold(lambda state, i: made.update(state, x[i], i), range(len(x)), made.start())
            return np.asarray(made.finish(state))[None]

    return expected


def widening(n_bins: int) -> Expected:
    """Return the counts in the narrowest bins, of a width that is a power of two, in which all values have room."""

    def expected(x: Array) -> Array:
        finite = [Fraction(float(value)) for value in np.ravel(x) if np.isfinite(value)] or [Fraction(0)]
        exponent = np.frexp(max(float(abs(value)) for value in finite))[1] - 24 if any(finite) else -126
        while (places := [value // Fraction(2) ** int(exponent) for value in finite]) and (
            max(places) - min(places) >= n_bins
        ):
            exponent += 1
        counts = np.bincount([place - min(places) for place in places], minlength=n_bins)
        return counts[None] * bool(np.isfinite(x).any())

    return expected


KINDS: dict[str, tuple[Accumulator, Expected]] = {
    **{name: (accumulator(name), as_in_queries(name)) for name in NAMES},
    "every": (every(3), lambda x: x[::3]),
    "every, bounded": (every(2, limit=4), lambda x: x[::2][-4:]),
    "last_k": (last_k(5), lambda x: x[-5:]),
    "histogram": (histogram(EDGES), lambda x: np.histogram(x[np.isfinite(x)], EDGES)[0][None]),
    "histogram, widening": (histogram(6), widening(6)),
}
MERGEABLE = [name for name, (made, _) in KINDS.items() if made.mergeable]


@cache
def in_a_scan(made: Accumulator, n_events: int | None = None) -> Callable[..., Any]:
    def run(values: Any, ok: Any = None) -> Any:
        def body(state: Any, row: Any) -> Any:
            return made.step(state, row[0], True if ok is None else row[1]), None

        return lax.scan(body, made.start(jax.tree.map(lambda x: x[0], values), n_events=n_events), (values, ok))[0]

    return jax.jit(run)


@cache
def jitted(fn: Callable[..., Any], n_events: int | None = None) -> Callable[..., Any]:
    return jax.jit(fn if n_events is None else partial(fn, n_events=n_events))


def finished(made: Accumulator, state: Any, n_events: int | None = None) -> Any:
    value, valid, _ = jitted(made.finish, n_events)(state)
    value = value.counts if hasattr(value, "counts") else value
    return np.asarray(value) if valid is None else np.asarray(value)[np.asarray(valid)]


def check(got: Any, want: Any) -> None:
    finite = np.abs(want[np.isfinite(want)])
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-6 * (finite.max() if finite.size else 0))


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("name", KINDS)
@unhurried
@given(values=columns, ok=masks)
@example(values=np.full((N, 2), np.inf, np.float32), ok=np.arange(N) == 3)
@example(values=np.full((N, 2), 7e5, np.float32), ok=np.ones(N, bool))
def test_it_equals_numpy_on_the_events_that_happened(name: str, values: Array, ok: Array) -> None:
    made, expected = KINDS[name]
    got = finished(made, in_a_scan(made)(values, ok))
    if ok.any() or name == "count":
        check(got, expected(values[ok]))
    else:
        assert not got.any(), "the sum of nothing is zero, and the rest is masked"


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("name", KINDS)
@unhurried
@given(values=columns)
def test_a_known_number_of_events_needs_no_mask(name: str, values: Array) -> None:
    made, expected = KINDS[name]
    state = in_a_scan(made, N)(values)
    assert made.finish(state, n_events=N).valid is None
    check(finished(made, state, n_events=N), expected(values))


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("name", MERGEABLE)
@unhurried
@given(values=columns, ok=masks, cuts=st.tuples(st.integers(0, N), st.integers(0, N)))
@example(values=np.full((N, 2), -np.inf, np.float32), ok=np.ones(N, bool), cuts=(0, 12))
def test_chunks_merge_to_the_whole(name: str, values: Array, ok: Array, cuts: tuple[int, int]) -> None:
    made, _ = KINDS[name]
    chunk = np.searchsorted(sorted(cuts), np.arange(N), side="right")
    run = in_a_scan(made)
    states = [run(values, ok & (chunk == part)) for part in range(3)]
    merge = jitted(made.merge)
    whole = run(values, ok)
    for merged in (merge(merge(states[0], states[1]), states[2]), merge(states[0], merge(states[1], states[2]))):
        check(finished(made, merged), finished(made, whole))
        goes_on, want = (finished(made, jitted(made.step)(state, values[0])) for state in (merged, whole))
        check(goes_on, want)


@cache
def reduced_logs(spec: Any) -> Callable[..., Any]:
    return jax.jit(lambda x, ok: logdict({"x": x}, {"step": {"x": jnp.arange(N)}}, {"x": ok}).reduce(spec))


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("name", KINDS)
@unhurried
@given(values=columns, ok=masks)
def test_reducing_a_logdict_gives_the_same(name: str, values: Array, ok: Array) -> None:
    made, _ = KINDS[name]
    spec = made if "every" in name or "histogram" in name or name == "last_k" else name
    logs = reduced_logs(spec)(values, ok)
    want = jitted(made.finish)(in_a_scan(made, N)(values, ok))
    steps = jitted(made.steps.finish)(in_a_scan(made.steps, N)(np.arange(N), ok))
    valid = slice(None) if want.valid is None else np.asarray(want.valid)
    for got, expected in zip(jax.tree.leaves(logs["x"]), jax.tree.leaves(want.value), strict=True):
        assert got.dtype == expected.dtype
        check(np.asarray(got)[valid].astype(float), np.asarray(expected)[valid].astype(float))
    assert ("x" in logs.valid) == (want.valid is not None)
    if ok.any():
        kept = np.asarray(steps.valid)
        np.testing.assert_array_equal(np.asarray(logs.step["x"])[kept], np.asarray(steps.value)[kept])


@pytest.mark.parametrize("wrap", ["while", "cond", "vmap", "lanes"])
def test_it_works_in_every_kind_of_loop(wrap: str) -> None:
    values = np.linspace(-3, 5, 3 * 12).astype(np.float32).reshape(3, 12)
    taken = values > np.array([[-9], [0], [4]])
    one = jax.ShapeDtypeStruct((), jnp.float32)

    def in_a_while(made: Accumulator, row: Any, ok: Any) -> Any:
        body = lambda carry: (carry[0] + 1, made.step(carry[1], row[carry[0]], ok[carry[0]]))  # noqa: E731
        return lax.while_loop(lambda carry: carry[0] < 12, body, (0, made.start(one)))[1]

    def in_a_cond(made: Accumulator, row: Any, ok: Any) -> Any:
        body = lambda i, s: lax.cond(ok[i], lambda s: made.step(s, row[i]), lambda s: s, s)  # noqa: E731
        return lax.fori_loop(0, 12, body, made.start(one))

    def in_lanes(made: Accumulator, values: Any, ok: Any) -> Any:
        lanes = per_lane(made)
        done = lanes.finish(in_a_scan(lanes)(values.T, ok.T))
        return jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), (done.value, done.valid))

    def mapped(made: Accumulator, values: Any, ok: Any) -> Any:
        run = {"while": in_a_while, "cond": in_a_cond, "vmap": lambda made, *given: in_a_scan(made)(*given)}[wrap]
        return jax.vmap(lambda row, ok: tuple(made.finish(run(made, row, ok)))[:2])(values, ok)

    reduce = in_lanes if wrap == "lanes" else mapped
    each = jax.jit(lambda *given: {name: reduce(made, *given) for name, (made, _) in KINDS.items()})(values, taken)
    for name, done in each.items():
        for lane in range(3):
            value, valid = jax.tree.map(lambda x, lane=lane: np.asarray(x[lane]), done)
            value = value.counts if hasattr(value, "counts") else value
            check(value if valid is None else value[valid], KINDS[name][1](values[lane][taken[lane]]))


@pytest.mark.parametrize(
    "dtype", ["bool", "int4", "int8", "uint8", "int32", "uint32", "bfloat16", "float16", "complex64"]
)
def test_types(dtype: str) -> None:
    x = jnp.asarray([1, 0, 3, 2, 3]).astype(dtype)
    names = ["mean", "sum", "min", "max", "first", "last", "var", "every", "histogram"]
    if dtype == "complex64":
        names.remove("histogram")
        with pytest.raises(TypeError, match="complex64"):
            KINDS["histogram"][0].start(x[0])
    axis = {"mean": np.mean, "sum": np.sum, "min": np.min, "max": np.max, "var": np.var}
    both = {name for name in names if name in axis or name in ("first", "last")}

    @jax.jit
    def reduce(x: Any) -> Any:
        done = {name: KINDS[name][0].finish(in_a_scan(KINDS[name][0])(x))[:2] for name in names}
        return done, {name: logdict({"x": x}).reduce(name)["x"] for name in both}

    done, reduced = reduce(x)
    reals = {"mean": "float32", "var": "float32"}
    wide = {"bool": "int32", "uint8": "uint32", "uint32": "uint32"}
    same = {"bfloat16": "float32", "float16": "float32", "complex64": "complex64"}
    numpy = np.asarray(x).astype(complex if dtype == "complex64" else float)
    for name, (value, valid) in done.items():
        if name == "histogram":
            assert np.asarray(value.counts).sum() == 5
            continue
        want = {**reals, "sum": same.get(dtype, wide.get(dtype, "int32"))}.get(name, dtype)
        assert str(value.dtype) == ("complex64" if name == "mean" and dtype == "complex64" else want), name
        got = np.asarray(value)[np.asarray(valid)] if name == "every" else np.asarray(value)
        expected = axis[name](numpy)[None] if name in axis else KINDS[name][1](numpy)
        np.testing.assert_allclose(got.astype(numpy.dtype), expected, err_msg=name)
        if name in both:
            assert reduced[name].dtype == value.dtype, name


def test_bfloat16_is_summed_in_float32() -> None:
    x = jnp.full(1000, 1.0078125, jnp.bfloat16)
    assert float(finished(accumulator("sum"), in_a_scan(accumulator("sum"))(x))[0]) == 1007.8125


def test_keys_and_trees_and_python_numbers() -> None:
    keys = jax.random.split(jax.random.key(0), 6)
    for made, want in ((accumulator("first"), keys[:1]), (accumulator("last"), keys[-1:]), (last_k(2), keys[-2:])):
        got = made.finish(in_a_scan(made)(keys), n_events=6).value
        assert (jax.random.key_data(got) == jax.random.key_data(want)).all()
    made = accumulator("mean")
    state = made.step(made.start({"a": 1.0, "b": [2, True]}), {"a": 1.0, "b": [2, True]})
    assert jax.tree.map(float, jax.tree.map(lambda x: x[0], made.finish(state).value)) == {"a": 1.0, "b": [2.0, 1.0]}
    assert accumulator("mean").finish(made.step(made.start({}), {})).value == {}
    assert last_k(3).over({}).value == {}


def test_means_stay_right_past_the_digits_of_float32() -> None:
    n = 2**25 + 2**20

    @jax.jit
    def run(x: Any) -> Any:
        mean, total = accumulator("mean"), accumulator("sum")
        start = mean.start(x), total.start(x)
        states = lax.fori_loop(0, n, lambda i, s: (mean.step(s[0], x), total.step(s[1], x)), start)
        return mean.finish(states[0]).value[0], total.finish(states[1]).value[0]

    mean, total = run(jnp.float32(1))
    assert (float(mean), float(total)) == (1.0, n)


@pytest.mark.parametrize("name", ["last", "mean", "sum", "max", "var", "histogram", "histogram, widening", "last_k"])
def test_the_loop_needs_constant_memory(name: str) -> None:
    made = KINDS[name][0]

    def run(x: Any) -> Any:
        step = lambda state, i: (made.step(state, jnp.sin(x * i)), None)  # noqa: E731
        return made.finish(lax.scan(step, made.start(x), jnp.arange(1000.0))[0], n_events=1000)

    memory = jax.jit(run).lower(jax.ShapeDtypeStruct((2**18,), jnp.float32)).compile().memory_analysis()
    most = {"last": 4, "mean": 5, "sum": 5, "max": 4, "var": 10, "last_k": 14}.get(name, 10)
    assert memory.temp_size_in_bytes + memory.output_size_in_bytes <= most * 2**20


def test_counts_and_sums_stay_at_their_largest() -> None:
    count, bins = accumulator("count"), histogram([0, 1])
    assert int(count.finish(count.step(jnp.uint32(2**32 - 1), 0)).value[0]) == 2**31 - 1
    state = bins.step(bins.start(jnp.zeros(())), 0.5)
    full = jax.tree.map(lambda x: jnp.where(x > 0, ~jnp.zeros_like(x), 0), state)
    assert bins.finish(bins.step(bins.merge(full, state), 0.5)).value.counts.tolist() == [[2**32 - 1]]
    total = accumulator("sum")
    state = total.step(total.step(total.start(0), 2**31 - 1), 1)
    assert int(total.finish(state).value[0]) == 2**31 - 1
    assert int(total.finish(total.step(state, -2)).value[0]) == 2**31 - 2  # the state is exact
    assert int(total.finish(total.merge(state, total.step(total.start(0), -(2**31)))).value[0]) == 0
    small = total.start(jnp.zeros((), jnp.uint32))
    largest = jnp.uint32(2**32 - 1)
    assert int(total.finish(total.step(total.step(small, largest), largest)).value[0]) == 2**32 - 1


def test_a_histogram_counts_values_outside_the_edges_separately() -> None:
    logs = logdict({"x": jnp.array([[-5, 0.5], [7, jnp.nan], [jnp.inf, -jnp.inf], [1, 0]])}).reduce(
        histogram([0, 0.5, 1])
    )
    made = logs.records()["x"][0].value
    assert (made.counts.tolist(), made.edges[1:-1].tolist()) == ([1, 1, 2, 1], [0, 0.5, 1])
    assert (made.n_nan, made.n_posinf, made.n_neginf, made.total) == (1, 1, 1, 5)
    both = (logs + logs).reduce("sum").records()["x"][0].value
    assert both.counts.tolist() == [2, 2, 4, 2]


@unhurried
@given(
    chunks=st.lists(hnp.arrays(np.float32, 5, elements=st.integers(-(2**16), 2**16).map(lambda n: n / 64)), max_size=4),
    n_bins=st.integers(1, 40),
)
@example(chunks=[np.float32([1, 3, 6, 10, 10])], n_bins=4)
@example(chunks=[np.float32([0, 0, 0, 0, 0]), np.float32([-1e-3, 0, 0, 0, 1e9])], n_bins=2)
def test_bins_without_edges_are_those_of_queries(chunks: list[Array], n_bins: int) -> None:
    made, of_queries = histogram(n_bins), reducer("histogram", {"bins": n_bins})
    state, wanted = made.start(np.zeros(5, np.float32)), of_queries.start()
    for i, chunk in enumerate([*chunks, np.float32([2, np.nan, np.inf, -np.inf, 70])]):
        state, wanted = made.step(state, chunk), of_queries.update(wanted, chunk, i)
    (got,) = made.finish(state).value.read()
    assert got == of_queries.finish(wanted)


def test_histograms_of_steps_add_up_to_that_of_all_values() -> None:
    values = np.float32([[1, 3], [6, 10], [np.nan, 1e6], [-np.inf, 0]])
    one_by_one = [logdict({"x": jnp.asarray(row)[None]}).reduce(histogram(8)) for row in values]
    every = logdict.concatenate(one_by_one)
    (whole,) = logdict({"x": jnp.asarray(values)}).reduce(histogram(8)).records()["x"]
    (added,) = every.reduce("sum").records()["x"]
    assert added.value == whole.value
    assert isinstance(added.value, sg.Histogram)
    assert [event.value.total for event in every.events()] == [2, 2, 1, 1]
    (last,) = every.reduce("last").records()["x"]
    assert (last.value.total, last.value.n_neginf) == (1, 1)
    for mode in ("mean", "max", jnp.median):
        with pytest.raises(TypeError, match="'sum', 'first' or 'last' for histograms"):
            every.reduce(mode)


def test_histograms_of_lanes_and_masked_events_add_up() -> None:
    values = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    each = [
        logdict({"x": row[None]}, valid={"x": ok[None]}).reduce(histogram(8))
        for row, ok in zip(values, np.array([[True, False, True], [True, True, False]]), strict=True)
    ]
    (made,) = logdict.concatenate(each).reduce("sum").records()["x"]
    assert [(one.total, one.edges[0]) for one in made.value] == [(4, 0), (2, 8), (2, 4)]


def test_a_recorded_histogram_is_one_of_the_run(tmp_path: Path) -> None:
    with sg.init("job", dir=tmp_path) as run, sgx.loggers.RunLogger() as logger:
        f = lambda xs: lax.scan(lambda c, x: (c, sgx.log({"x": x}) and None), 0, xs)[0]  # noqa: E731
        logger.spool(f, logger.init(), reduce=histogram(4))(jnp.float32([1, 3, 6, 10]))
    (record,) = sg.open(run.directory).series("x")
    assert record.value == sg.Histogram.from_counts([2, 1, 1], [0, 4, 8, 12])
    (median,) = sg.open(run.directory).stream("on('log').map(lambda e: e.x.total)").to_arrays().values[-1:]
    assert median == 4


def test_bins_that_widen_saturate() -> None:
    made = histogram(2)
    state = made.step(made.start(jnp.zeros(2)), jnp.float32([0, 1]))
    full = jax.tree.map(lambda x: jnp.where(x > 0, ~jnp.zeros_like(x), 0) if x.dtype == jnp.uint32 else x, state)
    assert made.finish(made.step(full, jnp.float32([3, 2]))).value.counts.tolist() == [[2**32 - 1, 2]]


def test_functions() -> None:
    assert accumulator(jnp.mean) == accumulator("mean") == accumulator(np.mean)
    assert accumulator(max) == accumulator("max")
    median = accumulator(jnp.median)
    assert median.stacks
    assert not median.mergeable
    assert hash(median) == hash(function(jnp.median))
    x = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    state = in_a_scan(median, 9)(x)
    np.testing.assert_array_equal(median.finish(state, n_events=9).value, np.median(x, axis=0)[None])
    np.testing.assert_array_equal(median.over(jnp.asarray(x)).value, np.median(x, axis=0)[None])
    ok = x[:, 0] > 0
    np.testing.assert_array_equal(median.over(x, ok).value, np.median(x[ok], axis=0)[None])
    spread = accumulator(lambda rows: rows[-1] - rows[0])
    np.testing.assert_array_equal(spread.over(x).value, (x[-1] - x[0])[None])
    np.testing.assert_array_equal(jax.jit(function(jnp.nansum).over)(x, ok).value, jnp.nansum(x[ok], axis=0)[None])


def test_a_plan_says_which_tag_is_accumulated_how() -> None:
    made = plan({"val/*": "mean", "val/loss": every(10), "layer[0]": "max"})
    assert made.of("val/loss") == every(10)
    assert made.of("val/accuracy") == accumulator("mean")
    assert made.of("layer[0]") == accumulator("max")
    assert made.of("loss") is None
    assert hash(made) == hash(plan({"val/*": "mean", "val/loss": every(10), "layer[0]": "max"}))
    assert plan(jnp.max).of("anything") == accumulator("max")
    assert plan(None).of("loss") is None
    made.check(["val/loss", "layer[0]"])
    with pytest.raises(UnknownNameError, match=r"'los' in `reduce`.*'loss'"):
        plan({"los": "mean"}).check(["loss", "grads"])


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(UnknownNameError) as unknown:
        accumulator("men")
    assert str(unknown.value).startswith(
        "Unknown reduction 'men'. Did you mean 'mean'? Known: count, first, last, max,"
    )
    for refused, message in {
        lambda: accumulator(
            3
        ): "Expected a name such as 'mean', an accumulator such as every(10), or a function, got 3",
        lambda: every(0): "Expected a positive integer as k, got 0",
        lambda: last_k(True): "Expected a positive integer as k, got True",
        lambda: histogram([1, 1]): "Expected at least two finite edges that increase, as float32, got [1, 1]",
        lambda: histogram(2_000_000): "Expected at most 65,536 bins, got 2,000,000: give the edges",
        lambda: accumulator("mean").start(jax.random.key(0)): (
            "Expected numbers to reduce by 'mean', got key<fry>: take 'first' or 'last' of these"
        ),
        lambda: accumulator(jnp.median).start(0.0): (
            "Function 'median' needs all events at once, but their number is not known in advance: reduce by one of "
            "count, sum, mean, var, std, min, max, first, last, or keep the last with last_k(n)"
        ),
        lambda: every(2).merge(None, None): (
            "Expected an accumulator whose states can be merged, got Ring(limit=1000, every=2)"
        ),
        lambda: jax.jit(function(jnp.median).over)(jnp.zeros(3), jnp.ones(3, bool)): (
            "Function 'median' cannot skip the events that did not happen: use one with an argument `where`, such as "
            "jnp.mean, or reduce on the host, after `to_numpy()`"
        ),
    }.items():
        with pytest.raises((TypeError, ValueError)) as error:
            refused()
        assert str(error.value) == message
