"""Reducers against NumPy, pushed one by one, in any chunks that are merged, and in any order."""

from __future__ import annotations

import inspect
import math
import sys
from collections import Counter
from contextlib import nullcontext
from functools import reduce as fold
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tests.profiles import examples

from sightglass.core.columns import Columns
from sightglass.core.errors import EvaluationError, QueryError, RefusedQueryError
from sightglass.core.values import Histogram
from sightglass.query.reduce.reducer import Reducer, by_key
from sightglass.query.reduce.sketches import ACCURACY, EXACT, Bins, Quantiles
from sightglass.query.reduce.states import pack
from sightglass.query.reduce.table import ENTRIES, reduce_columns, reducer
from sightglass.query.stages import Chain

numbers = st.floats(-1e6, 1e6, allow_nan=False).map(lambda x: round(x, 6))
wild = st.floats() | st.integers(-(2**40), 2**40)
MERGEABLE: dict[str, dict[str, Any]] = {
    "count": {}, "sum": {}, "mean": {}, "var": {}, "std": {}, "min": {}, "max": {}, "first": {}, "last": {},
    "median": {}, "quantile": {"q": (0.0, 0.3, 0.5, 1.0)}, "percentile": {"q": 30},
    "histogram": {"bins": 7}, "top": {"k": 3}, "sample": {"k": 4},
    "collect": {"limit": 5}, "argmax": {}, "argmin": {}, "distinct": {"limit": 5}, "rate": {},
}  # fmt: skip
EXACTLY = MERGEABLE.keys() - {"sum", "mean", "var", "std"}


def run(made: Reducer, values: list[Any], start: int = 0) -> Any:
    return made.finish(pushed(made, list(enumerate(values, start))))


def pushed(made: Reducer, pairs: list[tuple[int, Any]]) -> Any:
    def update(state: Any, pair: tuple[int, Any]) -> Any:
        ordinal, value = pair
        place = (float(ordinal), 10.0 * ordinal, None)
        return made.update(state, (value, place) if made.reads_place else value, ordinal)

    return fold(update, pairs, made.start())


def chunks(pairs: list[Any], cuts: list[int]) -> list[list[Any]]:
    places = sorted({0, len(pairs), *(cut % (len(pairs) + 1) for cut in cuts)})
    return [pairs[a:b] for a, b in pairwise(places)] or [[]]


def same(a: Any, b: Any, *, exactly: bool, rounding: float = 0.0) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key], exactly=exactly) for key in a)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(same(x, y, exactly=exactly) for x, y in zip(a, b, strict=True))
    if isinstance(a, np.ndarray):
        return bool(np.allclose(a, b, rtol=1e-6, atol=1e-6, equal_nan=True)) and a.dtype == b.dtype
    if isinstance(a, float) and math.isnan(a):
        return math.isnan(b)
    return a == b if exactly or not isinstance(a, float) else bool(np.isclose(a, b, rtol=1e-6, atol=1e-6 + rounding))


@pytest.mark.parametrize("name", MERGEABLE)
@settings(max_examples=examples(25))
@given(values=st.lists(numbers, max_size=30), cuts=st.lists(st.integers(0, 40), max_size=4))
def test_merged_chunks_equal_one_by_one(name: str, values: list[float], cuts: list[int]) -> None:
    made = reducer(name, MERGEABLE[name], seed=3)
    assert made.merge is not None
    pairs = list(enumerate(values))
    merged = fold(made.merge, [pushed(made, chunk) for chunk in chunks(pairs, cuts)])
    assert same(made.finish(merged), run(made, values), exactly=name in EXACTLY)


@pytest.mark.parametrize("name", [*MERGEABLE])
@settings(max_examples=examples(25))
@given(pairs=st.lists(st.tuples(st.sampled_from("abc"), numbers), max_size=30), cuts=st.lists(st.integers(0, 40)))
def test_merged_groups_equal_one_by_one(name: str, pairs: list[tuple[str, float]], cuts: list[int]) -> None:
    made = by_key(reducer(name, MERGEABLE[name], seed=3))
    assert made.merge is not None
    merged = fold(made.merge, [pushed(made, chunk) for chunk in chunks(list(enumerate(pairs)), cuts)])
    assert same(made.finish(merged), run(made, pairs), exactly=name in EXACTLY)


@pytest.mark.parametrize("name", ["count", "sum", "min", "max", "histogram", "sample", "top"])
@settings(max_examples=examples(25))
@given(values=st.lists(st.integers(-(2**50), 2**50), min_size=1, max_size=30), data=st.data())
def test_the_order_of_arrival_does_not_matter(name: str, values: list[int], data: st.DataObject) -> None:
    made = reducer(name, MERGEABLE[name], seed=1)
    pairs = list(enumerate(values))
    shuffled = data.draw(st.permutations(pairs))
    assert made.finish(pushed(made, shuffled)) == made.finish(pushed(made, pairs))


NUMPY = {"sum": np.sum, "mean": np.mean, "var": np.var, "std": np.std, "min": np.min, "max": np.max}


@pytest.mark.parametrize("name", NUMPY)
@settings(max_examples=examples(40))
@given(values=st.lists(numbers, min_size=1, max_size=40))
def test_numbers_as_numpy(name: str, values: list[float]) -> None:
    scale = max(1.0, max(map(abs, values)) ** (2 if name == "var" else 1))
    assert run(reducer(name, {}), values) == pytest.approx(float(NUMPY[name](values)), rel=1e-6, abs=1e-6 * scale)


@pytest.mark.parametrize("name", NUMPY)
@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int64", "uint64", "float16", "float32", "float64"])
def test_arrays_as_numpy_place_by_place(name: str, dtype: str) -> None:
    arrays = (np.random.default_rng(0).random((7, 2, 3)) * 100).astype(dtype)
    found = run(reducer(name, {}), list(arrays))
    wide = arrays.astype(np.float64) if name in ("mean", "var", "std") or dtype == "float16" else arrays
    wanted = NUMPY[name](wide, axis=0)
    np.testing.assert_allclose(found, wanted.astype(np.float64), rtol=1e-6)
    assert found.shape == (2, 3)
    assert found.dtype == (dtype if name in ("min", "max") else wanted.dtype if dtype[0] in "biu" else np.float64)


@pytest.mark.parametrize("name", ["mean", "var", "std", "min", "max", "sum"])
@pytest.mark.parametrize("values", [[1.0, math.nan, 2.0], [math.nan], [math.nan, 1.0]])
def test_nan_is_never_hidden(name: str, values: list[float]) -> None:
    assert math.isnan(run(reducer(name, {}), values))
    assert math.isnan(run(reducer(name, {}), [np.array([v, v]) for v in values])[0])


def test_infinities_are_ordinary_to_extremes_and_quantiles() -> None:
    values = [1.0, math.inf, -math.inf, 2.0]
    assert run(reducer("min", {}), values) == -math.inf
    assert run(reducer("max", {}), values) == math.inf
    assert run(reducer("sum", {}), [1.0, math.inf]) == math.inf
    assert run(reducer("quantile", {"q": [0, 0.5, 1]}), values) == (-math.inf, 1.5, math.inf)
    assert math.isnan(run(reducer("quantile", {"q": 0.5}), [1.0, math.nan]))


def test_integers_accumulate_in_64_bits() -> None:
    big = 2**53 + 1
    assert run(reducer("sum", {}), [big, 1]) == big + 1
    assert run(reducer("max", {}), [big, big - 1]) == big
    assert run(reducer("sum", {}), [np.int8(127), np.int8(127)]) == 254
    assert type(run(reducer("sum", {}), [np.int8(1)])) is int
    sums = run(reducer("sum", {}), [np.full(2, 200, np.uint8)] * 3)
    assert (sums.tolist(), sums.dtype) == ([600, 600], np.uint64)
    with pytest.raises(RefusedQueryError, match="64 bits, got 65 bits"):
        run(reducer("sum", {}), [2**64 - 1, 2**64 - 1])


@pytest.mark.parametrize("name", ["sum", "mean", "var", "std", "min", "max", "quantile", "histogram"])
@settings(max_examples=examples(20))
@given(
    rows=st.lists(st.tuples(numbers, numbers), min_size=1, max_size=12), cuts=st.lists(st.integers(0, 12), max_size=2)
)
def test_mappings_and_tuples_are_reduced_name_by_name(name: str, rows: list[Any], cuts: list[int]) -> None:
    made = reducer(name, MERGEABLE[name])
    apart = tuple(run(made, [row[i] for row in rows]) for i in range(2))
    assert run(made, rows) == apart
    assert run(made, [list(row) for row in rows]) == apart
    named = [{"a": {"x": row[0]}, "b": row[1]} for row in rows]
    assert run(made, named) == {"a": {"x": apart[0]}, "b": apart[1]}
    assert made.merge is not None
    merged = fold(made.merge, [pushed(made, chunk) for chunk in chunks(list(enumerate(named)), cuts)])
    assert same(made.finish(merged), run(made, named), exactly=name in EXACTLY)


def test_names_may_come_and_go() -> None:
    assert run(reducer("mean", {}), [{"a": 1.0}, {"a": 3.0, "b": 5.0}]) == {"a": 2.0, "b": 5.0}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([{"a": 1.0}, 2.0], "got float after"),
        ([1.0, {"a": 1.0}], "got mapping of 1 after"),
        ([(1.0,), {"a": 1.0}], "got mapping of 1 after"),
        (["text"], "to reduce, got str"),
        ([np.array(["a"])], "to reduce, got <U1[1]"),
        ([np.zeros(3), np.zeros(2)], "got (3,) and (2,)"),
    ],
)
def test_values_that_cannot_be_reduced_are_refused(values: list[Any], message: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        run(reducer("mean", {}), values)
    assert message in str(caught.value)


@settings(max_examples=examples(60))
@given(values=st.lists(wild, max_size=60), bins=st.integers(1, 20))
@example(values=[1.7976931348623157e308, -5e-324], bins=2)
@example(values=[0.0], bins=1)
def test_a_histogram_counts_every_value_once(values: list[float], bins: int) -> None:
    histogram = run(reducer("histogram", {"bins": bins}), values)
    finite = np.array([x for x in values if math.isfinite(x)], np.float64)
    assert histogram.total == len(finite)
    assert (histogram.n_nan, histogram.n_posinf, histogram.n_neginf) == (
        sum(map(math.isnan, values)), values.count(math.inf), values.count(-math.inf)
    )  # fmt: skip
    assert len(histogram.counts) <= max(2, bins)
    assert (np.diff(histogram.edges) > 0).all()
    if len(finite):  # the last bin includes its right edge, which is the largest float there is for the largest
        places = np.minimum(np.searchsorted(histogram.edges, finite, side="right"), len(histogram.counts)) - 1
        assert histogram.counts.tolist() == np.bincount(places, minlength=len(histogram.counts)).tolist()


@settings(max_examples=examples(40))
@given(values=st.lists(wild, max_size=60), cuts=st.lists(st.integers(0, 60), max_size=4), bins=st.integers(2, 9))
def test_bins_do_not_depend_on_order_or_chunks(values: list[float], cuts: list[int], bins: int) -> None:
    def filled(part: list[float]) -> Bins:
        return fold(lambda state, value: state.add(value), part, Bins(bins))

    whole = filled(values).histogram()
    assert filled(values[::-1]).histogram() == whole
    assert Bins(bins).add(np.array(values, np.float64)).histogram() == whole
    assert fold(Bins.merge, map(filled, chunks(values, cuts)), Bins(bins)).histogram() == whole


@pytest.mark.parametrize("law", ["normal", "lognormal", "integers"])
def test_quantiles_of_many_values_are_within_their_accuracy(law: str) -> None:
    rng = np.random.default_rng(0)
    values = {
        "normal": rng.normal(5, 3, 20_000), "lognormal": rng.lognormal(0, 3, 20_000),
        "integers": rng.integers(-50, 50, 20_000).astype(float),
    }[law]  # fmt: skip
    qs = [0.0, 0.01, 0.25, 0.5, 0.9, 0.99, 1.0]
    singly, at_once, merged = Quantiles(), Quantiles().add(values), Quantiles().add(values[:7])
    for value in values.tolist():
        singly.add(value)
    merged.merge(Quantiles().add(values[7:9000])).merge(Quantiles().add(values[9000:]))
    for q in qs:
        low, high = np.quantile(values, q, method="lower"), np.quantile(values, q, method="higher")
        slack = 2 * ACCURACY * max(abs(low), abs(high)) + 1e-9
        for sketch in (singly, at_once, merged):
            assert low - slack <= sketch.at(q) <= high + slack


@settings(max_examples=examples(30))
@given(values=st.lists(numbers, min_size=1, max_size=50), q=st.floats(0, 1))
def test_quantiles_of_few_values_are_exact(values: list[float], q: float) -> None:
    assert len(values) <= EXACT
    assert run(reducer("quantile", {"q": q}), values) == pytest.approx(
        float(np.quantile(values, q)), rel=1e-12, abs=1e-12
    )


def test_a_sample_is_seeded_and_uniform() -> None:
    made = reducer("sample", {"k": 10}, seed=5)
    first = run(made, list(range(1000)))
    assert first == sorted(first)
    assert first == run(reducer("sample", {"k": 10}, seed=5), list(range(1000)))
    assert first != run(reducer("sample", {"k": 10}, seed=6), list(range(1000)))
    counts = Counter(x for seed in range(400) for x in run(reducer("sample", {"k": 5}, seed=seed), list(range(20))))
    assert set(counts) == set(range(20))
    assert all(abs(n - 100) < 5 * math.sqrt(100 * 0.75) for n in counts.values())


def test_top_keeps_the_earlier_of_equals_and_never_compares_values() -> None:
    by = {"k": 2, "key": lambda x: x["rank"]}
    rows = [{"rank": 1, "at": 0}, {"rank": 2, "at": 1}, {"rank": 2, "at": 2}, {"rank": 2, "at": 3}]
    assert [row["at"] for row in run(reducer("top", by), rows)] == [1, 2]
    assert run(reducer("top", {"k": 3}), [1.0, math.nan, 3.0, 2.0]) == [3.0, 2.0, 1.0]
    with pytest.raises(EvaluationError, match=r"float64\[2\].*key="):
        run(reducer("top", {"k": 1}), [np.zeros(2)])


def test_collect_stops_at_its_limit() -> None:
    assert run(reducer("collect", {"limit": 3}), list("abcde")) == ["a", "b", "c"]


@pytest.mark.parametrize("init", [0, 0.0, (0, 0.0), {"n": 0, "s": [0.0, 0.0]}, np.zeros(3), np.zeros(3, np.float32)])
def test_reduce_keeps_structure_shape_and_type(init: Any) -> None:
    kept = run(reducer("reduce", {"fn": lambda acc, x: acc, "init": init}), [1, 2])
    assert type(kept) is type(init)
    np.testing.assert_equal(kept, init)


@pytest.mark.parametrize(
    ("init", "fn"),
    [
        (0, lambda acc, x: acc + 0.5),
        (0.0, lambda acc, x: (acc, x)),
        ((0, 0), lambda acc, x: (acc[0], acc[1], x)),
        ({"a": 0}, lambda acc, x: {"b": 0}),
        (np.zeros(3), lambda acc, x: np.zeros(4)),
        (np.zeros(3, np.float32), lambda acc, x: acc.astype(np.float64)),
    ],
)
def test_reduce_refuses_another_structure(init: Any, fn: Any) -> None:
    with pytest.raises(EvaluationError, match="accumulator"):
        run(reducer("reduce", {"fn": fn, "init": init}), [1])


def test_reduce_gives_python_numbers_and_starts_again() -> None:
    made = reducer("reduce", {"fn": lambda acc, x: acc + x, "init": 0.0})
    assert run(made, [np.float32(1), np.float64(2)]) == 3.0
    assert type(run(made, [np.float64(2)])) is float
    grown = reducer("reduce", {"fn": lambda acc, x: acc.__setitem__(0, acc[0] + x) or acc, "init": [0]})
    assert (run(grown, [1, 2]), run(grown, [1, 2])) == ([3], [3])


@pytest.mark.parametrize("name", sorted(set(MERGEABLE) - {"collect"}))
def test_memory_is_constant(name: str) -> None:
    def size(n: int) -> int:
        return deep_size(pushed(reducer(name, MERGEABLE[name]), [(i, float(i % 97)) for i in range(n)]))

    assert size(20_000) <= size(4_000) + 512


def deep_size(state: Any) -> int:
    if isinstance(state, list | tuple):
        return sys.getsizeof(state) + sum(map(deep_size, state))
    if isinstance(state, Quantiles | Bins):
        return sum(deep_size(getattr(state, name)) for name in type(state).__slots__)
    if hasattr(state, "store"):
        return sys.getsizeof(state.store.bins) + sys.getsizeof(state.negative_store.bins)
    return int(state.nbytes) if isinstance(state, np.ndarray) else sys.getsizeof(state)


@pytest.mark.parametrize("name", ["top", "sample", "collect"])
def test_stored_values_are_bounded(name: str) -> None:
    args = {"collect": {"limit": 1000}, "top": {"k": 1000, "key": lambda x: 1}, "sample": {"k": 1000}}[name]
    value = np.broadcast_to(np.float64(1), (1024, 1024))
    with pytest.raises(RefusedQueryError, match="64 MiB, got 72 MiB"):
        run(reducer(name, args), [value] * 20)


@pytest.mark.parametrize("name", ["mean", "sum", "var", "min", "first", "last"])
def test_an_enormous_array_is_not_accumulated(name: str) -> None:
    value = np.broadcast_to(np.int8(1), (2**27,))
    with pytest.raises(RefusedQueryError, match="64 MiB"):
        run(reducer(name, {}), [value])


@pytest.mark.parametrize(
    ("name", "args", "message"),
    [
        ("quantile", {"q": 2}, "got 2"),
        ("quantile", {"q": True}, "got True"),
        ("quantile", {"q": ()}, "got ()"),
        ("histogram", {"bins": 0}, "from 1 to 1000000, got 0"),
        ("histogram", {"bins": 10**7}, "from 1 to 1000000, got 10000000"),
        ("top", {"k": 1.5}, "from 1 to 1000000, got 1.5"),
        ("sample", {"k": "3"}, "from 1 to 1000000, got '3'"),
        ("collect", {"limit": True}, "from 1 to 1000000, got True"),
    ],
)
def test_wrong_arguments_are_refused(name: str, args: dict[str, Any], message: str) -> None:
    with pytest.raises(QueryError) as caught:
        reducer(name, args)
    assert message in str(caught.value)


def test_the_laws_know_every_reducer_whose_states_merge() -> None:
    assert set(MERGEABLE) == {name for name in ENTRIES if name not in ("reduce", "scan", "ema", "diff")}


@pytest.mark.parametrize("name", ENTRIES)
def test_every_reducer_has_a_typed_method_with_its_arguments(name: str) -> None:
    method = inspect.signature(getattr(Chain, name)).parameters
    made = inspect.signature(ENTRIES[name].make).parameters.values()
    takes = [one.name for one in made if one.kind is one.POSITIONAL_OR_KEYWORD and one.name != "name"]
    assert [key for key in method if key not in ("self", "window")] == takes
    assert ("window" in method) is not ENTRIES[name].for_each
    assert getattr(Chain, name).__doc__


BY_BLOCKS = [name for name in MERGEABLE if reducer(name, MERGEABLE[name]).of_block is not None]


@pytest.mark.parametrize("name", BY_BLOCKS)
@settings(max_examples=examples(50))
@given(
    values=st.lists(numbers, min_size=1, max_size=30) | st.lists(st.integers(-(2**61), 2**61), min_size=1, max_size=30),
    cut=st.integers(0, 30), first=st.integers(0, 2**40),
)  # fmt: skip
def test_blocks_of_a_column_are_reduced_as_one_by_one(name: str, values: list[Any], cut: int, first: int) -> None:
    made = reducer(name, MERGEABLE[name])
    assert made.merge is not None
    if name == "sum" and abs(sum(map(float, values))) > 2**62:
        return
    array = np.array(values)
    at = np.arange(len(values))
    column = Columns(index=0, steps=at * 1.0, wall_times=at * 10.0, values=array, ordinals=at)
    parts = [part for part in (column.slice(0, cut), column.slice(cut)) if len(part)]
    state = fold(made.merge, [reduce_columns(made, part, first) for part in parts])
    one_by_one = fold(
        lambda state, i: made.update(
            state, (array[i].item(), (float(i), 10.0 * i, None)) if made.reads_place else array[i].item(), first + i
        ),
        range(len(values)),
        made.start(),
    )
    if name in EXACTLY:
        assert same(pack(state), pack(one_by_one), exactly=True)
    # Large values that cancel leave what was rounded on the way, which depends on the order.
    rounding = 1e-12 * max(abs(float(one)) for one in values)
    assert same(made.finish(state), made.finish(one_by_one), exactly=name in EXACTLY, rounding=rounding)


@given(values=st.lists(numbers, min_size=1, max_size=50), q=st.integers(0, 100))
def test_medians_and_percentiles_are_quantiles(values: list[float], q: int) -> None:
    assert same(run(reducer("median", {}), values), run(reducer("quantile", {"q": 0.5}), values), exactly=True)
    found, wanted = run(reducer("percentile", {"q": q}), values), run(reducer("quantile", {"q": q / 100}), values)
    assert same(found, wanted, exactly=True)


@pytest.mark.parametrize("name", ["median", "quantile", "percentile"])
@pytest.mark.parametrize("cut", [10, 700, EXACT])
def test_a_median_of_many_values_says_that_it_is_approximate(name: str, cut: int) -> None:
    """The union counts: two windows of a few hundred exact values make an approximate one."""
    made, values = reducer(name, MERGEABLE[name]), [float(x) for x in range(EXACT + 1)]
    assert made.merge is not None
    parts = [pushed(made, list(enumerate(part))) for part in (values[:cut], values[cut:])]
    assert not any(map(made.is_approximate, parts))
    assert made.is_approximate(made.merge(*parts))
    by_names = pushed(made, [(i, {"a": x, "b": 1.0}) for i, x in enumerate(values)])
    keyed = by_key(made)
    by_keys = fold(lambda state, i: keyed.update(state, ("k", values[i]), i), range(len(values)), keyed.start())
    assert made.is_approximate(by_names)
    assert keyed.is_approximate(by_keys)
    assert not made.is_approximate(made.start())


@pytest.mark.parametrize("name", sorted(set(ENTRIES) - {"reduce", "scan", "ema", "diff"}))
def test_nothing_reduces_to_something(name: str) -> None:
    found = run(reducer(name, MERGEABLE[name]), [])
    if isinstance(found, Histogram):
        assert found.total == 0
    else:
        assume_nothing = {"count": 0, "sum": 0, "top": [], "sample": [], "collect": [], "distinct": []}
        flat = found[0] if isinstance(found, tuple) else found
        assert flat == assume_nothing.get(name) or (isinstance(flat, float) and math.isnan(flat))


@settings(max_examples=examples(30))
@given(values=st.lists(numbers, min_size=2, max_size=20))
def test_a_variance_is_never_negative(values: list[float]) -> None:
    assume(len(set(values)) > 1)
    assert run(reducer("var", {}), [1e8 + x for x in values]) >= 0


@pytest.mark.parametrize("dtype", [np.int64, np.uint64, np.int8])
def test_a_sum_of_integer_arrays_never_wraps(dtype):
    large = np.array([2**62, 1], np.uint64).astype(np.uint64 if dtype == np.uint64 else np.int64)
    values = [large.astype(dtype)] * (4 if dtype == np.uint64 else 2)
    folded = reducer("sum", {})
    if dtype == np.int8:  # widened before it is added
        values = [np.array([127, 1], np.int8)] * 4
    with pytest.raises(RefusedQueryError, match="64 bits") if dtype != np.int8 else nullcontext():
        state = folded.start()
        for ordinal, value in enumerate(values):
            state = folded.update(state, value, ordinal)
        assert folded.finish(state).tolist() == [508, 4]
