"""Every failure of a query is an error of Sightglass that names the place, whatever it computes on."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.profiles import examples

from sightglass.core.errors import QueryError, SightglassError
from sightglass.query.evaluation import Evaluation
from sightglass.query.parser import parse


def nested(depth: int) -> Any:
    value: Any = 1.0
    for _ in range(depth):
        value = {"k": value}
    return value


def odd() -> dict[str, Any]:
    """Return values of many kinds, most of them odd."""
    values: dict[str, Any] = {
        "big": 10**5000, "wide": 10**25, "i": 7, "zero": 0, "f": 1e308, "c": 1 + 2j, "none": None, "flag": True,
        "x": np.arange(6.0).reshape(2, 3), "k": np.arange(4), "empty": np.zeros((0, 3)), "cx": np.ones(2, complex),
        "bytes": np.ones(3, np.uint8), "z": np.float64(0), "objects": np.array([object()], object),
        "texts": np.array(["a"]), "dates": np.array(["2020-01-01"], "M8[D]"), "fields": np.zeros(2, "i4,f4"),
        "s": "w", "raw": b"raw", "l": [1, 2], "mixed": [1, "a"], "ragged": [[1], [1, 2]], "m": {"a": 1}, "o": object(),
        "deep": nested(500), "e": [], "t": (), "d": {},
    }  # fmt: skip
    if importlib.util.find_spec("torch"):
        import torch

        values |= {
            "tx": torch.arange(6.0).reshape(2, 3), "ti": torch.arange(4), "tb": torch.ones(3, dtype=torch.bool),
            "th": torch.ones(3, dtype=torch.bfloat16), "te": torch.ones(0),
        }  # fmt: skip
    return values


ODD = odd()
ONE = """
    -{} ; ~{} ; {}[::0] ; {}[::-1] ; {}['a':] ; {}[5] ; {}[1.5] ; {}[0, 0, 0, 0] ; {}[b.k > 1] ; {}[None] ; {}[...] ;
    {}.imag ; {}.T ; {}.real ; {}.mean(axis=7) ; {}.sum(axis='q') ; {}.reshape((5, 5)) ; {}.reshape((-1, -1)) ;
    quantile({}, 0.5) ; median({}) ; histogram({}) ; topk({}, 2) ; sample({}, 1) ; first({}) ; last({}) ; len({}) ;
    norm({}) ; norm({}, axis=3) ; cumsum({}) ; diff({}) ; round({}, 400) ; round({}) ; isnan({}) ; clip({}, 'a', 2) ;
    item({}) ; square({}) ; abs({}) ; sqrt({}) ; where({}, 1, 2) ; any({}) ; argmax({}) ; min({}) ; std({}) ;
    shape({}) ; {} // 0 ; {} % 0 ; {} ** -1 ; {} ** 0.5 ; {} ** 64 ; {} + 'a' ; {} & 3 ; {} - 0.5 ; {} < 'a' ; {} == 1 ;
    keys({}) ;
    {}.map(lambda n, v: v + 1) ; {}.filter(lambda n, v: v > 0) ; {}.map(lambda v: v.k) ; startswith({}, 'a') ; {}.k ;
    f({})
"""
TWO = """
    {} + {} ; {} - {} ; {} * {} ; {} / {} ; {} // {} ; {} % {} ; {} ** {} ; {} == {} ; {} < {} ; {} & {} ; {} | {} ;
    maximum({}, {}) ; contains({}, {}) ; {}[{}] ; [{}, {}].sum() ; [{}, {}] ; where({}, {}, 1) ; {}[{}:] ;
    quantile({}, {})
"""
FORMS = [form.strip() for form in f"{ONE};{TWO}".split(";")]
BARE = re.compile(r"^[A-Za-z]+(Error|Exception|Warning|Iteration)\b")
expressions = st.recursive(
    st.sampled_from([f"b.{name}" for name in ODD]),
    lambda inner: st.sampled_from(FORMS).flatmap(
        lambda form: st.tuples(*[inner] * form.count("{}")).map(lambda parts: form.format(*(f"({p})" for p in parts)))
    ),
    max_leaves=3,
)


def fails(*args: object) -> Any:
    raise ValueError("of the program")


def ask(text: str) -> Any:
    evaluation = Evaluation(parse(f"on('e').map(lambda b: {text})"), {"f": fails})
    return evaluation.across_events(evaluation.per_event(ODD), ordinal=0, step=0, wall_time=0.0)


def check(text: str) -> None:
    try:
        ask(text)
    except SightglassError as error:
        said = str(error)
        assert not BARE.match(said), f"{text}: {said}"
        assert len(said) < 1_000


@settings(max_examples=examples(400), deadline=None, suppress_health_check=list(HealthCheck))
@given(expressions)
@pytest.mark.filterwarnings("ignore")
def test_errors_are_ours(text: str) -> None:
    check(text)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ODD)
def test_errors_of_one_operation_are_ours(name: str) -> None:
    for form in FORMS:
        check(form.format(*[f"b.{name}"] * form.count("{}")))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("b.big ** 2", "64 bits, got larger"),
        ("b.l[::0]", "not 0, got [::0]"),
        ("b.x[::0]", "not 0, got [::0]"),
        ("b.l['a':]", "slice, got str"),
        ("b.x[5]", "[5] of float64[2, 3]: IndexError: "),
        ("b.x.reshape((5, 5))", "b.x.reshape((5, 5)) of float64[2, 3], tuple of 2: ValueError: "),
        ("b.x & 3", "b.x & 3 of float64[2, 3]: TypeError: ufunc 'bitwise_and'"),
        ("f(b.i)", "f(b.i) of int: ValueError: of the program"),
    ],
)
def test_the_place_is_named(text: str, said: str) -> None:
    with pytest.raises(QueryError) as caught:
        ask(text)
    assert said in str(caught.value)


def test_negative_steps_of_tensors_are_refused() -> None:
    pytest.importorskip("torch")
    with pytest.raises(QueryError, match=r"\[::-1\] of float32\[2, 3\]: ValueError"):
        ask("b.tx[::-1]")


def test_divisions_by_zero_follow_ieee() -> None:
    assert ask("b.i // 0")[0].value == float("inf")
    assert np.isnan(ask("b.i % 0")[0].value)
