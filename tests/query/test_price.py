"""The price is known before a query is evaluated, and the limit holds while it is."""

from __future__ import annotations

import itertools
import subprocess
import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples
from tests.query.lambdas import lambda_of

from sightglass.core.errors import PriceError, RefusedQueryError, SightglassError
from sightglass.query.access import selected_shape
from sightglass.query.blocks import BLOCK
from sightglass.query.costs import CostModel, without
from sightglass.query.evaluation import Evaluation
from sightglass.query.functions import FUNCTIONS, containers
from sightglass.query.limits import Total
from sightglass.query.meter import MAX_BYTES, HeldMemory, Meter
from sightglass.query.parser import parse
from sightglass.query.price import Price, price_of
from sightglass.query.reads import paths

COST = FUNCTIONS["sort"].cost
LARGE = np.broadcast_to(np.float64(1), (4_000_000,))  # 32 MB in name only


def priced(text: str, **observables: Any) -> Price:
    return price_of(lambda_of(f"lambda b: {text}"), [observables], CostModel())


def evaluation(text: str, *, limit_s: float = 0.02, functions: Any = None, **options: Any) -> Evaluation:
    query = parse(f"on('batch').map(lambda b: {text})", functions=functions or {})
    return Evaluation(query, functions, meter=Meter(limit_s=limit_s, max_bytes=MAX_BYTES, **options))


NASTY = {
    "sines": f"[{', '.join(['sin(b.x * 1e300).sum()'] * 60)}]",
    "powers": f"[{', '.join(['(b.x ** 0.37).sum()'] * 60)}]",
    "tops": f"[{', '.join(f'topk(b.x + {i}, 1)' for i in range(80))}]",
    "medians": f"[{', '.join(['median(b.x)'] * 100)}]",
    "histograms": f"[{', '.join(['histogram(b.x, bins=1000000)'] * 4)}]",
    "nested": "sin(" * 45 + "b.x" + ")" * 45,
    "sums of quantiles": "+".join(f"b.x.quantile({(i + 1) / 60})" for i in range(45)),
    "sums of tops": "+".join(f"b.x.topk({100_000 + i}).sum()" for i in range(40)),
    "outer product": "(b.x[:, None] * b.x).sum()",
    "stacked": f"[{', '.join(['b.x'] * 60)}].mean(axis=0)",
    "many bins": f"[{', '.join(['b.x[:10].histogram(1000000)'] * 60)}]",
}


@pytest.mark.parametrize("name", NASTY)
def test_what_costs_too_much_is_refused_before_it_is_evaluated(name: str) -> None:
    one = evaluation(NASTY[name])
    with pytest.raises(PriceError, match=r"(20 ms|\d+ MiB).*Ask for") as found:
        one.per_event({"x": LARGE})
    assert "stopped after" not in str(found.value)


def test_the_refusal_says_what_to_ask_instead() -> None:
    with pytest.raises(PriceError, match="sin of 4,000,000 items of float64") as found:
        evaluation("[sin(b.x).sum(), sin(b.x * 2).sum(), sin(b.x * 3).sum()]").per_event({"x": LARGE})
    assert found.value.seconds > 0.02
    n = int(str(found.value).rpartition("sample(")[2].partition(")")[0])
    advised = evaluation(f"sin(b.x.ravel().sample({n})).sum()", cpu_s=lambda: 0.0)  # by its price, not by this machine
    assert advised.per_event({"x": np.ones(4_000_000)}).passed


@pytest.mark.parametrize("text", ["b.x.sum()", "b.x[:1000].median()", "b.x.shape", "b.x[5]", "b.x.sample(1000).mean()"])
def test_what_costs_less_is_answered(text: str) -> None:
    assert evaluation(text, limit_s=10.0).per_event({"x": LARGE}).passed


@given(n=st.integers(1, 10_000), text=st.sampled_from(["sin(b.x)", "b.x.median()", "b.x + b.x * 2", "b.x.histogram()"]))
@settings(max_examples=examples(50))
def test_the_price_grows_with_the_items(n: int, text: str) -> None:
    less, more = priced(text, x=np.zeros(n)), priced(text, x=np.zeros(2 * n))
    assert less.seconds < more.seconds
    assert less.n_bytes <= more.n_bytes


def test_the_price_of_a_mapping_is_that_of_its_items() -> None:
    one = priced("b.m.map(lambda n, v: v.norm())", m={"a": np.zeros(100_000)})
    many = priced("b.m.map(lambda n, v: v.norm())", m={str(i): np.zeros(100_000) for i in range(100)})
    assert many.seconds == pytest.approx(100 * one.seconds, rel=0.05)


def test_an_axis_that_is_added_counts() -> None:
    assert priced("b.x[:, None] - b.x", x=np.zeros(10_000)).n_bytes >= 8 * 10_000**2


def test_results_along_an_axis_count() -> None:
    one, nine = (
        priced(f"b.x.quantile([{q}], axis=0)", x=np.zeros((2, 100_000))) for q in ("0.5", ", ".join(["0.5"] * 9))
    )
    assert nine.n_bytes - one.n_bytes == 8 * 8 * 100_000
    assert nine.seconds > 2 * one.seconds
    assert priced("b.x.cumsum(axis=0).sum(axis=0)", x=np.zeros((2, 100_000))).n_bytes >= 8 * 100_000


def test_an_evaluation_stops_within_a_block_of_its_limit() -> None:
    ticks, model = itertools.count(), CostModel()
    model.factors = dict.fromkeys(model.factors, 0.01)  # so that it looks cheap before it runs
    one = evaluation("(b.x * 1.5).sum()", limit_s=0.0215, cpu_s=lambda: next(ticks) / 1_000, model=model)
    with pytest.raises(PriceError, match=r"18\.2 ms.*\(b\.x \* 1\.5\)\.sum\(\)"):
        one.per_event({"x": np.broadcast_to(1.0, (200 * BLOCK,))})


def test_a_shape_that_grows_is_priced_again() -> None:
    one = evaluation("sin(b.x * 2).sum()")
    assert one.per_event({"x": np.ones(200_000)}).passed
    with pytest.raises(PriceError):
        one.per_event({"x": LARGE[:, None] + np.zeros((1, 4))[:, :1]})


def test_a_function_of_the_run_is_not_called_before_the_price_is_known() -> None:
    calls: list[int] = []
    functions = {"confusion": lambda x: calls.append(1) or 0.0}
    one = evaluation("[confusion(b.x), median(b.x), median(b.x)]", functions=functions)
    with pytest.raises(PriceError):
        one.per_event({"x": LARGE})
    assert not calls
    assert evaluation("confusion(b.x)", functions=functions).per_event({"x": LARGE}).passed
    assert len(calls) == 1


def test_an_operation_is_known_once_it_has_run() -> None:
    model = CostModel()
    before = model.ns("sort", COST, np.dtype("f8"), "float64", 1_000_000)
    model.learn("sort", COST, "float64", 1_000_000, taken_ns=100e6)
    assert model.ns("sort", COST, np.dtype("f8"), "float64", 1_000_000) == pytest.approx(120e6) != before
    model.learn("sort", COST, "float64", 1_000_000, taken_ns=1e6)
    assert model.ns("sort", COST, np.dtype("f8"), "float64", 1_000_000) > 100e6, "slower counts at once, faster slowly"


@pytest.mark.parametrize("text", ["b.x.reshape(-1, 1).sum(axis=1).max()", "b.x[::3].sum()"])
def test_short_rows_and_gaps_say_little_of_whole_arrays(text: str) -> None:
    model, ticks, x = CostModel(), itertools.count(), np.zeros(600_000)

    def price(text: str) -> float:
        return price_of(lambda_of(f"lambda b: {text}"), [{"x": x}], model).seconds

    before, dear = price("b.x.sum()"), price(text)
    one = evaluation(text, limit_s=100.0, model=model, cpu_s=lambda: next(ticks) * 2 * dear)
    assert one.per_event({"x": x}).passed
    assert price(text) > dear
    assert price("b.x.sum()") < 4 * before


def test_the_machine_is_measured() -> None:
    model, ticks = CostModel(), itertools.count()
    model.calibrate(lambda: next(ticks) * 1e-3)
    assert model.calibrated
    assert model.factors == {  # each takes a millisecond
        "python": pytest.approx(1e6 / 20_000 / 20), "arithmetic": pytest.approx(1e6 / 65_536 / 0.4),
        "functions": pytest.approx(1e6 / 65_536 / 7.8), "sorting": pytest.approx(1e6 / 65_536 / 4.2),
    }  # fmt: skip


MANY = {f"n{i}": float(i) for i in range(10_000)}
MAPS = {
    "nested": "b.m.map(lambda v: b.m.map(lambda w: v + w))",
    "several": f"[{', '.join(['b.m.map(lambda v: v * 2).len()'] * 30)}]",
    "filters": "b.m.filter(lambda v: b.m.filter(lambda w: w > v).len() > 0)",
}


@pytest.mark.parametrize("name", MAPS)
def test_few_items_are_read_before_a_map_over_many_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    monkeypatch.setattr(containers, "readable", lambda value, key: read.append(key) or value)
    with pytest.raises(PriceError):
        evaluation(MAPS[name]).per_event({"m": MANY})
    assert len(read) < 5_000


def test_a_price_ends_when_there_is_no_time_for_it() -> None:
    ticks = itertools.count(1)
    long = f"[{', '.join(f'(b.x[:{i}] * 2 + 1).sum()' for i in range(90))}]"
    one = evaluation(long, limit_s=0.002, cpu_s=lambda: next(ticks) / 1_000)
    with pytest.raises(PriceError, match="price"):
        one.per_event({"x": np.ones(100)})
    assert next(ticks) < 10


@pytest.mark.parametrize("after", ["", ".last(every=1)"])
def test_the_stages_of_a_query_share_the_time_of_an_event(after: str) -> None:
    ticks = itertools.count()
    meter = Meter(limit_s=0.02, max_bytes=MAX_BYTES, cpu_s=lambda: next(ticks) / 2_000)
    one = Evaluation(
        parse(f"on('batch').map(lambda b: b.x){after}{'.where(lambda v: v.median() > -9)' * 20}"), meter=meter
    )
    with pytest.raises(PriceError):
        one.across_events(one.per_event({"x": np.ones(100_000)}), ordinal=0, step=0, wall_time=0.0)


@pytest.mark.parametrize("result", [list(MANY.items()), {name: [value] for name, value in MANY.items()}])
def test_a_result_of_many_parts_is_refused(result: Any) -> None:
    with pytest.raises(SightglassError, match=r"3333 parts.*got more"):
        evaluation("b.x").per_event({"x": result})


def test_too_many_parts_are_refused_before_they_are_looked_at() -> None:
    total = Total(max_parts=3)
    with pytest.raises(RefusedQueryError, match="3 parts"):
        total.add([("a", 1)] * 3)
    assert total.n_leaves == 0


@pytest.mark.parametrize("reducer", ["histogram(64)", "quantile(0.5)"])
def test_a_reducer_of_many_names_has_a_price(reducer: str) -> None:
    query = parse(f"on('batch').map(lambda b: b.m).{reducer}")
    with pytest.raises(PriceError, match="to reduce"):
        Evaluation(query, meter=Meter(limit_s=0.02, max_bytes=MAX_BYTES)).per_event({"m": MANY})


@pytest.mark.parametrize(
    "reducer", ["histogram(1000000, every=1)", "reduce(lambda a, v: a + topk(v, 1)[0], 0.0, every=2)"]
)
def test_what_has_no_room_to_be_reduced_is_not_copied(reducer: str) -> None:
    x = np.arange(2.0**20)
    one = Evaluation(parse(f"on('batch').map(lambda b: b.x).{reducer}"), meter=Meter(limit_s=10.0, max_bytes=2**20))
    one.holds = True  # the value outlives its event
    tracemalloc.start()
    with pytest.raises(PriceError, match="to reduce"):
        one.per_event({"x": x})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < x.nbytes / 4


def test_small_arrays_that_broadcast_to_large_ones_are_evaluated_in_blocks() -> None:
    x = np.arange(2_800.0)
    one = evaluation("((b.x[:, None] * b.x) * b.x[:, None]).sum()", limit_s=10.0)
    tracemalloc.start()
    result = one.per_event({"x": x}).value
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result == pytest.approx((x**2).sum() * x.sum())
    assert peak < 2**23


# Memory


class Holder:
    """A query that collects, as the run counts it."""

    def __init__(self, memory: HeldMemory) -> None:
        query = parse("on('batch').map(lambda b: b.x).collect(1000, every=1000)")
        self.evaluation = Evaluation(query, meter=Meter(limit_s=10.0, max_bytes=MAX_BYTES, memory=memory))
        self.peak_bytes = self.waiting_bytes = 0

    @property
    def held_bytes(self) -> int:
        return self.evaluation.held_bytes


def test_what_the_queries_of_a_run_hold_is_bounded_together() -> None:
    holders: list[Holder] = []
    memory = HeldMemory(lambda: holders, now_s=itertools.count().__next__)
    holders += [Holder(memory) for _ in range(3)]
    x = np.ones(2**19)
    n_refused = 0
    for i in range(20):
        for holder in holders:
            try:
                head = holder.evaluation.per_event({"x": x})
                holder.evaluation.across_events(head, ordinal=i, step=i, wall_time=0.0)
            except PriceError as error:
                n_refused += error.n_bytes > 0
    held = sum(holder.held_bytes for holder in holders)
    assert 0.7 * MAX_BYTES < held <= MAX_BYTES + x.nbytes
    assert n_refused > 30


SIZED_ONLY_WHEN_THEY_RUN = {
    "lent": " + ".join(f"cumsum(lent(b.x, {i}))" for i in range(10)),
    "lent, in blocks": " + ".join(f"cumsum(lent(b.x, {i}) * 2)" for i in range(10)),
    "lent, picked": " + ".join(f"lent(b.x, {i})[b.places]" for i in range(10)),
    "lent, then a stage": f"lent(b.x, 0)).map(lambda v: {' + '.join(f'cumsum(v * {i})' for i in range(10))}",
    "a list within a list": " + ".join(f"cumsum([lent(b.x, {i})])" for i in range(10)),
}


@pytest.mark.parametrize("name", SIZED_ONLY_WHEN_THEY_RUN)
def test_what_no_price_knows_is_bounded_while_it_is_evaluated(name: str) -> None:
    max_bytes, x = 4 * 2**20, np.ones(200_000)
    functions = {"lent": lambda x, i: x}
    query = parse(f"on('batch').map(lambda b: {SIZED_ONLY_WHEN_THEY_RUN[name]})", functions=functions)
    one = Evaluation(query, functions, meter=Meter(limit_s=10.0, max_bytes=max_bytes))
    tracemalloc.start()
    with pytest.raises(PriceError, match="6 MiB") as found:
        one.per_event({"x": x, "places": np.arange(x.size)})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.value.n_bytes > max_bytes
    assert peak < max_bytes + 3 * x.nbytes


def test_what_no_price_knows_is_answered_within_the_limit() -> None:
    functions = {"lent": lambda x: x}
    query = parse("on('batch').map(lambda b: cumsum(lent(b.x)).max())", functions=functions)
    one = Evaluation(query, functions, meter=Meter(limit_s=10.0, max_bytes=4 * 2**20))
    assert [one.per_event({"x": np.ones(200_000)}).value for _ in range(9)] == [200_000] * 9


@pytest.mark.parametrize("text", ["b.x[:50_000].sum()", "b.matrix[2:].sum()", "b.fortran[:, 2:].sum()"])
def test_a_part_in_one_piece_is_priced_as_an_array_of_its_own(text: str) -> None:
    whole = np.zeros((500, 100))
    parts = {"x": np.zeros(200_000), "matrix": np.zeros((502, 100)), "fortran": np.zeros((500, 102), order="F")}
    assert priced(text, **parts).seconds == pytest.approx(priced("b.x.sum()", x=whole).seconds, rel=0.2)
    assert priced("b.x[::2].sum()", x=np.zeros(100_000)).seconds > 2 * priced("b.x.sum()", x=whole).seconds


def test_slices_of_jax_are_copies() -> None:
    jnp = pytest.importorskip("jax.numpy")
    x = jnp.zeros(1_000_000)
    assert priced("b.x[1:].max()", x=x).n_bytes >= 999_999 * x.itemsize
    assert max(priced(text, x=x).n_bytes for text in ("b.x[:].max()", "b.x[0]", "b.x[5:9]")) < 100
    with pytest.raises(PriceError, match="most of it"):
        evaluation("b.x[1:][:10]", limit_s=1e-4).per_event({"x": x})


ITEMS = """
import numpy as np
from sightglass.query.costs import CostModel
from sightglass.query.parser import parse
from sightglass.query.price import price_of
x = np.broadcast_to(1.0, (4_000_000_000,))
for item in ("x[-1]", "m[999999, 3999]", "m[-1][-1]", "m[..., -1]", "m[-1, ...]", "m[-1, -1, None]"):
    tree = parse(f"on('e').map(lambda b: b.{item})").stages[0].fn
    print(price_of(tree, [{"x": x, "m": x.reshape(1_000_000, 4_000)}], CostModel()).known)
"""


def test_the_price_of_an_item_reads_no_memory() -> None:
    """In a process of its own, since reading memory that is not there may end it."""
    found = subprocess.run([sys.executable, "-c", ITEMS], capture_output=True, text=True, timeout=60, check=False)
    assert (found.returncode, found.stdout) == (0, "True\n" * 6), found.stderr


def test_the_paths_that_a_query_reads() -> None:
    assert paths(parse("on('batch').map(lambda b: b.grads['w'].norm() + b.loss)")) == [("grads", "w"), ("loss",)]
    assert paths(parse("on('batch').map(lambda b: b.grads.map(lambda n, g: g.norm()))")) == [("grads",)]
    assert paths(parse("on('batch').where(lambda b: b.ok).map(lambda b: b.x.T).mean(when=lambda b: b.end)")) == [
        ("ok",), ("x", "T"), ("end",),
    ]  # fmt: skip
    assert paths(parse("on('batch').map(lambda b: (b.m['a'], b.m))")) == [("m",)]


@given(shape=st.lists(st.integers(1, 4), min_size=1, max_size=4), data=st.data())
def test_a_shape_without_axes_is_that_of_a_sum_over_them(shape: list[int], data: st.DataObject) -> None:
    n = len(shape)
    axes = data.draw(st.lists(st.integers(-n, n - 1), unique_by=lambda axis: axis % n, max_size=n))
    assert without(tuple(shape), tuple(axes)) == np.zeros(shape).sum(axis=tuple(axes)).shape
    if axes:
        assert without(tuple(shape), axes[0]) == np.zeros(shape).sum(axis=axes[0]).shape


AXES = np.zeros((4, 3, 5), np.float32)
PLACES, CONDITION = np.array([0, 2, 1, 0]), np.arange(4) >= 0
INDICES = [
    0, (0, 1), (..., 2), slice(1, None, 2), (slice(None), 0), None, (None, ..., None), PLACES, (PLACES, 1),
    (PLACES, slice(0, 2)), (slice(None), np.array([2, 0])), (PLACES, slice(None), PLACES), (0, slice(None), PLACES),
    (PLACES[:, None], np.array([0, 2])), (slice(None), PLACES % 3, PLACES), (..., PLACES), (None, PLACES, None, 1),
    CONDITION, (CONDITION, 0), np.ones((4, 3), bool), (np.ones((4, 3), bool), slice(1, 3)), [0, 0, 1],
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_the_shape_of_picked_items_is_known_before(index: Any) -> None:
    parts = [
        np.asarray(part) if isinstance(part, list) else part for part in (index if type(index) is tuple else [index])
    ]
    assert selected_shape(AXES.shape, parts) == AXES[index].shape


def test_what_there_is_no_time_to_price_is_not_evaluated() -> None:
    tree = lambda_of(f"lambda b: [{', '.join(['b.x.logsumexp()'] * 40)}]")
    late = price_of(tree, [{"x": LARGE}], CostModel(), is_late=lambda: True)
    assert late.more
    assert late.late
    now_s = iter(range(10_000))
    meter = Meter(limit_s=0.02, cpu_s=lambda: float(next(now_s)))  # each look at the clock is a second later
    with pytest.raises(PriceError):
        meter.ask(tree, [{"x": LARGE}], {})
