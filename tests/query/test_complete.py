"""How the text of a query may go on: what the shell, the page and notebooks offer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightglass.core.description import Description, EventInfo, ObservableInfo
from sightglass.query.complete import complete, functions
from sightglass.query.parser import as_query

GRADS = ObservableInfo(type="mapping of 2", fields={"dense": "float32[64, 32]", "layer<b>": "float"})
NESTED = ObservableInfo(
    type="mapping of 2",
    fields={"dense1.kernel": "float32[64, 32]", "dense1.bias": "float32[32]", "out.kernel": "float32[32, 4]"},
)
PARAMS = ObservableInfo(type="mapping of 2", fields={"fc.weight": "float32[4, 2]", "fc.bias": "float32[4]"})
BATCH = EventInfo(
    n_events=1200,
    observables={
        "step": ObservableInfo(type="int"), "loss": ObservableInfo(type="float", example="0.5"), "grads": GRADS,
        "nested": NESTED, "params": PARAMS,
    },
)  # fmt: skip
EPOCH = EventInfo(n_events=2, observables={"accuracy": ObservableInfo(type="float")})
LOG = EventInfo(origin="log", n_events=9, observables={"val/loss": ObservableInfo(type="float")})
ABOUT = Description(events={"batch": BATCH, "epoch": EPOCH, "log": LOG}, functions={"confusion": "Count pairs."})


def at(text, caret=None, about=ABOUT):
    return complete(text, len(text) if caret is None else caret, about)


def texts(text):
    return [item.text for item in at(text).items]


def names(text):
    return [item.text for item in at(text).items if item.kind == "name"]


def test_a_query_begins_with_events_then_functions_of_the_run_and_of_queries():
    assert texts("")[:7] == ["batch.", "epoch.", "log.", 'on("', "confusion(", "mean(", "norm("]
    assert texts("ba")[0] == "batch."
    assert texts("conf") == ["confusion("]


def test_what_is_asked_often_comes_first_and_the_others_by_their_names():
    found = [item.text.partition("(")[0] for item in at("batch.loss.").items]
    assert list(dict.fromkeys(found))[:4] == ["mean", "norm", "max", "min"]
    assert found.index("all") < found.index("any")


def test_observables_tell_what_they_are_now():
    (loss,) = at("batch.lo").items
    assert (loss.text, loss.detail, loss.doc, at("batch.lo").start) == ("loss", "float", "now 0.5", 6)
    assert texts("norm(batch.")[:3] == ["step", "loss", "grads"]


@pytest.mark.parametrize(("text", "expected"), [
    ('batch.grads["', ['dense"]', 'layer<b>"]']),
    ("batch.grads['den", ["dense']"]),
    ("batch.grads.de", ["dense"]),
    ('batch.nested["', ['dense1"]', 'out"]']),
    ("batch.nested.dense1.", ["kernel", "bias"]),
    ('batch.nested["dense1"]["', ['kernel"]', 'bias"]']),
    ('batch.params["', ['fc.weight"]', 'fc.bias"]']),
])  # fmt: skip
def test_the_names_inside_a_mapping(text, expected):
    assert names(text) == expected


@pytest.mark.parametrize(("text", "expected"), [
    ("log.", '["val/loss"]'), ("log.val", '["val/loss"]'), ("batch.grads.lay", '["layer<b>"]'),
    ("batch.params.fc", '["fc.weight"]'),
])  # fmt: skip
def test_a_name_that_cannot_follow_a_dot_takes_its_place_in_brackets(text, expected):
    found = at(text)
    item = next(item for item in found.items if item.text == expected)
    as_query(text[: found.start - item.over] + item.text)


def test_functions_are_called_on_a_value_without_their_first_argument():
    found = [item for item in at("batch.loss.mea").items if item.text.startswith("mean")]
    assert [(item.kind, item.whole) for item in found] == [("function", "mean()"), ("reducer", "mean(every=100)")]
    assert not any("(x" in item.detail for item in found)
    assert "keys()" in texts("batch.grads.ke")
    assert texts("norm(batch.loss).mea")[:2] == ["mean(", "mean("]


@pytest.mark.parametrize("item", at("batch.loss.").items, ids=lambda item: f"{item.kind}-{item.text}")
def test_what_is_whole_is_a_query(item):
    if item.whole:
        as_query(f"batch.loss.{item.whole}")


def test_windows_in_a_reducer_and_events_in_quotes():
    assert texts("batch.loss.mean(")[:2] == ["every=100", 'every="10 s"']
    assert texts('batch.loss.mean(per="') == ['batch"', 'epoch"', 'log"']
    assert texts("on('ep") == ["epoch'"]


@pytest.mark.parametrize(("text", "first"), [
    ('on("batch").map(lambda b: b.lo', "loss"), ('on("batch").map(lambda b: ', "b."),
    ('on("batch").map(lambda b: b.grads["', 'dense"]'), ("on('batch').map(lambda b: nor", "norm("),
])  # fmt: skip
def test_the_variables_of_lambdas(text, first):
    assert texts(text)[0] == first


@pytest.mark.parametrize(
    "text", ['batch.loss + "x', "batch.loss > 1", "batch.loss ", "nothing[", "nope.", "batch.nope."]
)
def test_nothing_where_nothing_is_known(text):
    assert texts(text) == []


def test_what_stands_behind_the_caret_does_not_count():
    assert "loss" in [item.text for item in at("batch. + epoch.accuracy", 6).items]


def test_a_run_of_which_nothing_is_known_has_the_functions():
    assert "norm(" in [item.text for item in at("", about=Description()).items]


@pytest.mark.parametrize(("text", "name", "kind"), [
    ("norm(batch.loss", "norm", "function"), ("batch.loss.mean(every=", "mean", "reducer"),
    ("mean(norm(batch.loss), ", "mean", "function"), ("batch.loss.mean(", "mean", "reducer"),
])  # fmt: skip
def test_the_call_around_the_caret(text, name, kind):
    call = at(text).call
    assert call is not None
    assert (call.name, call.kind) == (name, kind)


def test_no_call_around_the_caret():
    assert at("batch.loss").call is None


@given(st.text("batch.loss()[]'\"=, :x1\n\\é(", max_size=40), st.integers(0, 50))
def test_any_text_is_completed_before_its_caret(text, caret):
    found = complete(text, caret, ABOUT)
    assert 0 <= found.start <= min(caret, len(text))
    assert all(found.start - item.over >= 0 for item in found.items)


@given(
    st.dictionaries(st.text("ab.", min_size=1, max_size=5), st.just("float"), max_size=6),
    st.sampled_from(["mapping of 2", "mapping of 6", "Model", ""]),
    st.sampled_from(["batch.x.", 'batch.x["', "batch.x.a.", 'batch.x["a"]["']),
)
def test_any_fields_are_completed(fields, kind, text):
    about = Description(events={"batch": EventInfo(observables={"x": ObservableInfo(type=kind, fields=fields)})})
    for item in at(text, about=about).items:
        assert item.text


def test_functions_and_reducers_have_words():
    assert all(one.doc and one.signature.startswith(f"{one.name}(") for one in functions())
