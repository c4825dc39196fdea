"""Parts of queries: what is computed ahead and what remains give what the query gives."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sightglass.query.evaluation import Evaluation
from sightglass.query.parser import parse
from sightglass.torch.capture import CapturedObservables, PartMeter, Work
from sightglass.torch.precompute import Offers, gives_new, is_answer, split, statistic

pytestmark = pytest.mark.smoke

OFFERS = Offers(timed=frozenset(("grads", "activations")), settled=frozenset(("params", "optimizer")))
TENSORS = {
    "grads": {"a": torch.tensor([1.0, -2.0, 3.0]), "b": torch.tensor([[0.5, 4.0]])},
    "activations": {"a": torch.tensor([7.0]), "b": torch.tensor([-1.0, 1.0])},
}
SETTLED = {"params": {"a": torch.tensor([2.0, 2.0, 1.0]), "b": torch.tensor([[1.0, 3.0]])}, "optimizer": {"lr": 0.5}}

ATOMS = [
    "b.loss",
    "b.optimizer.lr",
    "norm(b.params['a'])",
    "b.grads['a'].norm()",
    "b.grads.a[0]",
    "abs(b.grads['b']).mean()",
    "b.activations['b'].max()",
    "b.grads.map(lambda n, g: norm(g)).values().sum()",
    "b.grads.map(lambda g: g.sum())['b']",
    "b.grads.map(lambda n, g: norm(g) / norm(b.params[n])).values().sum()",
    "b.grads.map(lambda n, g: norm(g) * b.loss)['a']",
    "b.grads.map(lambda n, g: norm(b.activations[n]) * norm(g))['b']",
    "len(b.grads)",
    "b.activations.map(lambda n, x: b.grads['a'] * norm(x))['b'].sum()",
]


def ahead(text, offers=OFFERS, tensors=TENSORS, settled=SETTLED):
    """Evaluate a query in the two halves: the parts tensor by tensor, then what remains."""
    query = parse(text)
    rest, parts = split(query, offers)
    brought = CapturedObservables({"loss": 3.0, **settled})
    for part in parts:
        names = tuple(tensors[part.kind]) if part.name is None else (part.name,)
        meter = PartMeter()
        work = Work(part, part.compiled({}, "batch", meter), meter, statistic(part.tree), names=names)
        work.is_answer = is_answer(rest)
        work.take(settled, [(name, tensors[part.kind][name]) for name in names])
        brought.parts[part.key] = work.hand_over()
    return Evaluation(query).with_per_event_of(rest, is_new=False).per_event(brought).value, parts


def whole(text):
    return Evaluation(parse(text)).per_event({"loss": 3.0, **SETTLED, **TENSORS}).value


@given(st.lists(st.sampled_from(ATOMS), min_size=1, max_size=3), st.sampled_from(["+", "*", "-"]))
def test_parts_and_rest_give_the_result_of_the_query(atoms, operator):
    text = f"on('batch').map(lambda b: {f' {operator} '.join(atoms)})"
    assert ahead(text)[0] == pytest.approx(whole(text))


@pytest.mark.parametrize(
    ("expression", "parts"),
    [
        ("b.loss", []),
        ("norm(b.params['a'])", []),
        ("b.grads['a'].norm() * 2", [("grads", "a", False)]),
        ("b.grads['a'][0:2]", [("grads", "a", True)]),
        ("b.grads['a'] * b.loss", [("grads", "a", True)]),
        ("b.grads['a'].norm() / b.grads['b'].norm()", [("grads", "a", False), ("grads", "b", False)]),
        ("b.grads['a'].norm() / norm(b.params['a'])", [("grads", "a", False)]),
        ("b.grads.map(lambda n, g: abs(g).mean())", [("grads", None, False)]),
        ("b.grads.map(lambda n, g: g)", [("grads", None, True)]),
        ("b.grads.map(lambda n, g: norm(g) * b.loss)", [("grads", None, True)]),
        ("b.grads", [("grads", None, True)]),
        ("(b.activations['a'].sum(), b.grads.map(lambda g: norm(g)))",
         [("activations", "a", False), ("grads", None, False)]),
    ],
)  # fmt: skip
def test_the_largest_parts_are_taken(expression, parts):
    found = split(parse(f"on('batch').map(lambda b: {expression})"), OFFERS)[1]
    assert [(part.kind, part.name, part.copies) for part in found] == parts


def test_conditions_are_taken_apart_too():
    text = "on('batch').where(lambda b: b.grads['a'].norm() > 1).map(lambda b: b.loss).mean(when=lambda b: b.activations['a'].sum() > 0)"  # noqa: E501
    rest, parts = split(parse(text), OFFERS)
    assert [(part.kind, part.name) for part in parts] == [("grads", "a"), ("activations", "a")]
    assert [name.partition("#")[0] for name in rest.names] == ["grads", "loss", "activations"]


def test_later_maps_are_left_alone():
    query = parse("on('batch').map(lambda b: b.grads['a']).map(lambda g: g.norm())")
    rest, parts = split(query, OFFERS)
    assert (len(parts), gives_new(query, rest), rest.stages[1]) == (1, True, query.stages[1])


def test_a_module_with_a_name_offers_nothing_beside_it():
    offers = Offers(timed=OFFERS.timed, settled=OFFERS.settled, under="critic")
    query = parse("on('batch').map(lambda b: b.critic.grads['a'].norm() / norm(b.critic.params['a']) + b.grads)")
    _, parts = split(query, offers)
    assert [(part.key.partition("#")[0], part.kind, part.name) for part in parts] == [("critic.grads", "grads", "a")]
    assert offers.reads(query)
    assert not offers.reads(parse("batch.grads"))


@pytest.mark.parametrize(
    ("expression", "new"),
    [
        ("b.grads['a']", True),
        ("b.grads['a'].norm()", True),
        ("b.grads['a'] * b.loss", True),
        ("b.params['a']", False),
        ("(b.grads['a'], b.params['a'])", True),
        ("(b.grads['a'], b.y)", False),
    ],
)
def test_views_of_the_programs_tensors_are_copied(expression, new):
    query = parse(f"on('batch').map(lambda b: {expression})")
    assert gives_new(query, split(query, OFFERS)[0]) is new


def test_equal_parts_are_one():
    query = parse("on('batch').map(lambda b: b.grads['a'].norm() / (1 + b.grads['a'].norm() * b.loss))")
    assert len(split(query, OFFERS)[1]) == 1
