"""Laws of the choice of a view: a table of what is seen as what, and of who may share a view with whom."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightglass.core.errors import ViewError
from sightglass.core.table import Table
from sightglass.core.values import Audio, Figure, Histogram, Image, Images, Tensor, Text
from sightglass.views.choose import MAX_BARS, VIEWS, VIEWS_OF_KIND, Form, choose, form_of, views_of

pytestmark = pytest.mark.smoke

SEEN = [
    (1.5, "number", "line"),
    (3, "number", "line"),
    (True, "number", "line"),
    (np.float32(2), "number", "line"),
    (np.array(2.0), "number", "line"),
    (Tensor(np.array(2.0)), "number", "line"),
    ((1.0, 2), "pair", "xy"),
    ((1.0, 2.0, 3.0), "triple", "line3d"),
    ((1.0, 2.0, "here"), "note", "annotated"),
    ((1.0, 2.0, Text("here")), "note", "annotated"),
    (np.ones(3), "vector", "bars"),
    ([1, 2], "vector", "bars"),
    (np.ones(MAX_BARS), "vector", "bars"),
    (np.ones(MAX_BARS + 1), "vector", "histogram"),
    (Histogram([1.0, 2.0]), "histogram", "histogram"),
    (np.ones((3, 4)), "matrix", "heatmap"),
    (Tensor(np.ones((3, 4), np.uint8)), "matrix", "heatmap"),
    ({"a": 1.0, "b": 2}, "numbers", "bars"),
    ({"dense": {"kernel": 1.0, "bias": 2.0}}, "numbers", "bars"),
    (Image(np.zeros((4, 4))), "image", "images"),
    (np.zeros((4, 5, 3), np.uint8), "image", "images"),
    (np.zeros((2, 4, 5, 3), np.uint8), "images", "images"),
    (np.zeros((28, 28), np.uint8), "pixels", "images"),
    (np.zeros((4, 28), np.uint8), "matrix", "heatmap"),
    (np.zeros((28, 28), np.int32), "matrix", "heatmap"),
    (Images(np.zeros((2, 4, 4))), "images", "images"),
    (Figure(b""), "figure", "picture"),
    (Audio(np.zeros(4), 8_000), "audio", "sounds"),
    (Table({"a": [1, 2]}), "rows", "sheet"),
    ((Audio(np.zeros(4), 8_000), Audio(np.zeros((4, 2)), 8_000)), "audio", "sounds"),
    ("hello", "text", "log"),
    (Text("hello"), "text", "log"),
    (None, "other", "table"),
    ({}, "other", "table"),
    ({"a": "x"}, "other", "table"),
    ([], "other", "table"),
    (1j, "other", "table"),
    (np.ones((2, 2, 2)), "other", "table"),
    (np.ones(0), "other", "table"),
    (np.array(["a"]), "other", "table"),
    ((1.0, "x", 2.0), "other", "table"),
]

SHARED = [
    ("number", "number", "line"),
    ("number", "histogram", "line"),
    ("number", "numbers", "line"),
    ("pair", "note", "annotated"),
    ("pair", "triple", "xy"),
    ("vector", "histogram", "histogram"),
    ("vector", "numbers", "bars"),
    ("image", "images", "images"),
    ("text", "other", "log"),
]


@pytest.mark.parametrize(("value", "kind", "view"), SEEN, ids=[repr(value)[:40] for value, *_ in SEEN])
def test_view_follows_the_data(value, kind, view):
    form = form_of(value)
    assert form.kind == kind
    assert choose([form]).view == view


@pytest.mark.parametrize(("one", "other", "view"), SHARED)
def test_streams_that_share(one, other, view):
    assert choose([Form(kind=one), Form(kind=other)]).view == view


@pytest.mark.parametrize(
    ("one", "other"),
    [("number", "image"), ("number", "pair"), ("number", "text"), ("matrix", "image"), ("figure", "image")],
)
def test_streams_that_cannot_share_are_named_with_both_kinds(one, other):
    from sightglass.views.choose import KIND_NAMES

    with pytest.raises(ViewError) as caught:
        choose([Form(kind=one), Form(kind=other)], names=["a", "b"])
    message = str(caught.value)
    assert "'a'" in message
    assert "'b'" in message
    assert KIND_NAMES[one] in message
    assert KIND_NAMES[other] in message


def test_message_of_a_clash():
    with pytest.raises(ViewError, match=r"'loss' is a number .*'line'.*'kernel' is a matrix .*'heatmap'"):
        choose([Form(kind="number"), Form(kind="matrix")], names=["loss", "kernel"])


def test_unknown_view_is_guessed():
    with pytest.raises(ViewError, match=r"'histgram'.*'histogram'"):
        choose([Form(kind="number")], view="histgram")


def test_view_that_cannot_show_a_kind_is_refused():
    with pytest.raises(ViewError, match=r"'heatmap'.*'loss'.*a number.*: line, histogram, bars, log, table"):
        choose([Form(kind="number")], view="heatmap", names=["loss"])


def test_no_stream_is_no_view():
    with pytest.raises(ViewError, match="value"):
        choose([])


forms = st.builds(Form, kind=st.sampled_from(sorted(VIEWS_OF_KIND)), length=st.integers(1, 100))


@given(st.lists(forms, min_size=1, max_size=4))
def test_the_choice_can_show_all_streams_and_is_the_default_of_one(given_forms):
    try:
        choice = choose(given_forms)
    except ViewError:
        # Refused only where no view is both wanted by one of them and possible for all.
        common = set.intersection(*(set(views_of(form)) for form in given_forms))
        assert not {views_of(form)[0] for form in given_forms} & common - {"log", "table"}
        return
    assert all(choice.view in views_of(form) for form in given_forms)
    assert choice.view in {views_of(form)[0] for form in given_forms}
    assert choice.view in choice.possible
    assert choice.kinds == tuple(form.kind for form in given_forms)


@given(st.lists(forms, min_size=1, max_size=4), st.randoms())
def test_the_order_of_streams_does_not_matter(given_forms, random):
    def outcome(of):
        try:
            return choose(of).view
        except ViewError:
            return None

    shuffled = list(given_forms)
    random.shuffle(shuffled)
    assert outcome(shuffled) == outcome(given_forms)


@given(forms, st.sampled_from(VIEWS))
def test_override_is_obeyed_or_refused(form, view):
    if view in views_of(form):
        assert choose([form], view=view).view == view
    else:
        with pytest.raises(ViewError):
            choose([form], view=view)


def test_every_view_can_be_reached():
    assert {view for views in VIEWS_OF_KIND.values() for view in views} == set(VIEWS)


def test_table_of_sharing_is_symmetric():
    for one, other in itertools.combinations(VIEWS_OF_KIND, 2):
        outcomes = []
        for pair in ((one, other), (other, one)):
            try:
                outcomes.append(choose([Form(kind=kind) for kind in pair]).view)
            except ViewError:
                outcomes.append(None)
        assert outcomes[0] == outcomes[1]
