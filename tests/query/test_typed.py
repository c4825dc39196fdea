"""What people type: it is answered as they expect, or the error names what to write, and that is answered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightglass.core.errors import QueryError, QuerySyntaxError
from sightglass.query.parser import parse

BATCH = "on('batch').map(lambda v0: v0.loss)"
ANSWERED = {
    "batch.loss.mean(every=4) * 2": f"{BATCH}.mean(every=4).map(lambda v0: v0 * 2)",
    "1 - batch.loss.mean(every=4)": f"{BATCH}.mean(every=4).map(lambda v0: 1 - v0)",
    "(batch.loss.mean(every=4) + 1) * 2": f"{BATCH}.mean(every=4).map(lambda v0: (v0 + 1) * 2)",
    "-batch.loss.mean(every=4)": f"{BATCH}.mean(every=4).map(lambda v0: -v0)",
    "log10(batch.loss.mean(every=4))": f"{BATCH}.mean(every=4).map(lambda v0: log10(v0))",
    "batch.loss.mean(every=4) > 0.5": f"{BATCH}.mean(every=4).map(lambda v0: v0 > 0.5)",
    "batch.loss.mean(every=4).round(2)": f"{BATCH}.mean(every=4).map(lambda v0: round(v0, 2))",
    "batch.loss.mean(every=4) ** batch.loss.mean(every=4)": f"{BATCH}.mean(every=4).map(lambda v0: v0 ** v0)",
    "batch.loss.mean(every=4).diff()": f"{BATCH}.mean(every=4).diff()",
    "batch.loss.mean(every=4).ema(0.5)": f"{BATCH}.mean(every=4).ema(0.5)",
    "batch.loss.mean(every=4).max(every=2) * 2": f"{BATCH}.mean(every=4).max(every=2).map(lambda v0: v0 * 2)",
    "(batch.loss.mean(every=4) * 2).max(every=2)": (f"{BATCH}.mean(every=4).map(lambda v0: v0 * 2).max(every=2)"),
    "batch.loss.mean(every=4).map(lambda v: v * 2)": f"{BATCH}.mean(every=4).map(lambda v0: v0 * 2)",
    "batch.loss.mean(every=4).where(lambda v: v > 0.2)": f"{BATCH}.mean(every=4).where(lambda v0: v0 > 0.2)",
    "batch.loss.rolling(3).mean() + 1": f"{BATCH}.rolling(3).mean().map(lambda v0: v0 + 1)",
    "batch.loss.histogram(4, every=4).counts": f"{BATCH}.histogram(4, every=4).map(lambda v0: v0.counts)",
    "batch.loss.argmin(per='run').step": f"{BATCH}.argmin(per='run').map(lambda v0: v0.step)",
    "batch.loss.quantile([0.1, 0.9], every=4)[1]": f"{BATCH}.quantile((0.1, 0.9), every=4).map(lambda v0: v0[1])",
    "batch.loss.mean(every=4) - batch.acc.mean(every=4)": (
        "on('batch').map(lambda v0: {'r0': v0.loss, 'r1': v0.acc}).mean(every=4).map(lambda v0: v0['r0'] - v0['r1'])"
    ),
    "sqrt(batch.x).max(per='epoch') / (1 + batch.y.max(per='epoch'))": (
        "on('batch').map(lambda v0: {'r0': sqrt(v0.x), 'r1': v0.y}).max(per='epoch')"
        ".map(lambda v0: v0['r0'] / (1 + v0['r1']))"
    ),
    "batch.where(lambda b: b.loss > 0.5)": "on('batch').where(lambda v0: v0.loss > 0.5)",
    "batch.where(lambda b: b.loss > 0.1).loss": ("on('batch').where(lambda v0: v0.loss > 0.1).map(lambda v0: v0.loss)"),
    "batch.loss.where(lambda v: v > 0.1)": f"{BATCH}.where(lambda v0: v0 > 0.1)",
    "batch.loss.where(lambda v: v > 0.1).mean(every=4) * 2": (
        f"{BATCH}.where(lambda v0: v0 > 0.1).mean(every=4).map(lambda v0: v0 * 2)"
    ),
    "batch.loss.where(lambda v: v > 0.1).map(lambda v: v * 2)": (
        f"{BATCH}.where(lambda v0: v0 > 0.1).map(lambda v0: v0 * 2)"
    ),
    "on('batch').map(lambda b: b.loss).mean(every=4) * 2": f"{BATCH}.mean(every=4).map(lambda v0: v0 * 2)",
    "batch.loss.median(every=4)": f"{BATCH}.median(every=4)",
    "batch.loss.percentile(90, every=4) / 2": f"{BATCH}.percentile(90, every=4).map(lambda v0: v0 / 2)",
    "batch.loss.rolling(3).median()": f"{BATCH}.rolling(3).median()",
    "batch.return": "on('batch').map(lambda v0: v0.return)",
    "batch.return.mean(every=4) + 1": "on('batch').map(lambda v0: v0.return).mean(every=4).map(lambda v0: v0 + 1)",
    "batch.grads.map(lambda name, g: norm(g))": "on('batch').map(lambda v0: v0.grads.map(lambda v1, v2: v2.norm()))",
    "batch.loss.max()": "on('batch').map(lambda v0: v0.loss.max())",
}
SUGGESTED = [  # what is typed, what its error says, and the query with it
    ("batch.loss.top(3)", ".top(3, every=100)", "batch.loss.top(3, every=100)"),
    ("median(batch.loss, every=4)", ".median(every=100)", "batch.loss.median(every=100)"),
    ("percentile(batch.loss, 90, every=4)", ".percentile(90, every=100)", "batch.loss.percentile(90, every=100)"),
    ("batch.loss.sample(3, axis=0)", "axis", "batch.loss.sample(10, every=100)"),
    ("batch.loss.collect()", ".collect(every=100)", "batch.loss.collect(every=100)"),
    ("mean(batch.loss, every=4)", ".mean(every=100)", "batch.loss.mean(every=100)"),
    ("batch.loss.std(per='epoch', axis=0)", "axis", None),
    ("batch.loss.mean(per=epoch)", "per='epoch'", "batch.loss.mean(per='epoch')"),
    ("batch.loss.mean(by=batch.label, every=4)", "by=lambda batch: batch.label",
     "batch.loss.mean(by=lambda batch: batch.label, every=4)"),
    ("batch.loss.mean(when=batch.loss > 1)", "when=lambda batch: batch.loss > 1",
     "batch.loss.mean(when=lambda batch: batch.loss > 1)"),
    ("on('batch').where(b.loss > 0.5)", "lambda b: b.loss > 0.5", "on('batch').where(lambda b: b.loss > 0.5)"),
    ("on('batch').map(b.loss)", "lambda b: b.loss", "on('batch').map(lambda b: b.loss)"),
    ("on('batch').map(norm)", "lambda x: norm(x)", None),
    ("on('batch').join('epoch').map(lambda b: b.loss - epoch.accuracy)", "b.epoch",
     "on('batch').join('epoch').map(lambda b: b.loss - b.epoch.accuracy)"),
    ("batch.grads.map(norm)", "lambda x: norm(x)", "batch.grads.map(lambda x: norm(x))"),
    ("val/loss - val/acc", 'log["val/loss"] - log["val/acc"]', 'log["val/loss"] - log["val/acc"]'),
    ("log.val/loss", 'log["val/loss"]', 'log["val/loss"]'),
    ("abs(val/loss)", 'abs(log["val/loss"])', 'abs(log["val/loss"])'),
    ("count(batch)", ".count(every=100)", "batch.count(every=100)"),
    ("batch.loss > 0.5 | batch.acc > 0.1", "(batch.loss > 0.5) | (batch.acc > 0.1)",
     "(batch.loss > 0.5) | (batch.acc > 0.1)"),
    ("batch.loss > 0.5 & batch.acc < 0.1", "(batch.loss > 0.5) & (batch.acc < 0.1)",
     "(batch.loss > 0.5) & (batch.acc < 0.1)"),
    ("0 < batch.loss < 1", "(a < b) & (b < c)", "(0 < batch.loss) & (batch.loss < 1)"),
    ("batch.loss.mean(every=lambda b: b.acc > 2)", "when=lambda b: b.acc > 2",
     "batch.loss.mean(when=lambda b: b.acc > 2)"),
    ("batch.loss.ema(0.1, every=4)", "no window", "batch.loss.ema(0.1)"),
    ("batch.loss.diff(per='epoch')", "no window", "batch.loss.rolling(2).mean().diff()"),
    ("batch.loss.mean(every=4) / batch.n", "last(every=100)", "batch.loss.mean(every=100)"),
    ("batch.n * batch.loss.mean(every=4)", "last(every=100)", "batch.loss.mean(every=100)"),
    ("on('batch').join([1])", "string", None),
    ("batch.loss.min(every=4) / batch.loss.max(every=4)", "zip", "batch.loss.min(every=4)"),
    ("batch.loss.mean(every=4) - epoch.accuracy.mean(every=4)", "one event", "batch.loss.mean(every=4)"),
    ("np.mean(batch.loss)", "mean(batch.loss)", "mean(batch.loss)"),
    ("batch.flag and batch.flag", "`&`", "batch.flag & batch.flag"),
    ("not batch.flag", "`~`", "~batch.flag"),
    ("on('batch').filter(lambda b: b.loss > 0.5)", "where", "on('batch').where(lambda b: b.loss > 0.5)"),
    ("batch.loss.men(every=4)", "'mean'", "batch.loss.mean(every=4)"),
    ("batch.loss.mean(evry=4)", "'every'", "batch.loss.mean(every=4)"),
    ("batch.loss.rolling(10)", "rolling(100).mean()", "batch.loss.rolling(100).mean()"),
    ("batch.loss.mean(every 100)", "comma", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "canonical"), ANSWERED.items())
def test_what_is_typed_is_the_long_form(text, canonical):
    assert parse(text).key == canonical
    assert parse(canonical).key == canonical


@pytest.mark.parametrize(("text", "said", "right"), SUGGESTED)
def test_an_error_names_what_to_write(text, said, right):
    with pytest.raises(QuerySyntaxError) as caught:
        parse(text, functions=())
    first = str(caught.value).split("\n")[0]
    assert said in first
    assert not any(name in first for name in ("Lambda(", "Binary(", "slice("))
    if right is not None:
        parse(right, functions=())


operators = st.sampled_from(("+", "-", "*", "/", "**", "//"))
functions = st.sampled_from(
    ("abs({})", "sqrt({})", "({}).round(2)", "maximum({}, 1)", "-({})", "({}) > 0.5", "({}) + 1")
)
results = st.sampled_from(("batch.loss.mean(every=4)", "batch.acc.mean(every=4)", "sqrt(batch.x).mean(every=4)"))
trees = st.recursive(
    results,
    lambda inner: st.one_of(
        st.builds(lambda a, op, b: f"({a}) {op} ({b})", inner, operators, inner),
        st.builds(lambda form, a: form.format(a), functions, inner),
    ),
    max_leaves=5,
)


@given(trees)
def test_any_expression_of_results_is_one_map_behind_one_reducer(text):
    query = parse(text)
    kinds = [type(stage).__name__ for stage in query.stages]
    assert kinds in (["Map", "Reduce"], ["Map", "Reduce", "Map"])
    assert parse(query.key).key == query.key


DEEP = 3_000


@pytest.mark.parametrize("text", [
    f"{'-' * DEEP}batch.loss.mean(every=4)", f"({'-' * DEEP}batch.loss).mean(every=4) * 2",
    f"{'(' * 150}batch.loss.mean(every=4){' + 1)' * 150}", f"{'(' * 90}batch.loss.mean(every=4){' * 2).diff()' * 90}",
    f"batch.loss.mean(every=4){'.map(lambda v: v)' * 500}",
    f"batch.loss.mean(every=4){' + batch.loss.mean(every=4)' * 300}",
    f"{'-' * DEEP}batch.x > 1 | {'-' * DEEP}batch.y > 1", "batch.loss.mean(every=4).mean(every=4)" + ".diff()" * 500,
    f"batch.v0.mean(every=4) * {'batch.v1.v2.mean(every=4)'}", f"batch{'.return' * 500}.mean(every=4) + 1",
])  # fmt: skip
def test_a_hostile_text_is_a_query_or_refused(text):
    try:
        parse(text[:19_000])
    except QueryError:
        pass
