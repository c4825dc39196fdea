"""Queries read the program's objects as they are stored: what its classes override is not run."""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
import types
from collections import Counter, OrderedDict, UserDict, defaultdict, deque
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import numpy as np
import pytest

from sightglass.core.errors import (
    EvaluationError,
    RefusedQueryError,
    SightglassError,
    UnknownNameError,
    UnsendableError,
)
from sightglass.core.program_values import guarded
from sightglass.query import access
from sightglass.query.evaluation import Evaluation
from sightglass.query.parser import parse

ran: list[str] = []


def loud(base: type) -> Any:
    """Return a subclass whose methods all note that they ran, and raise."""

    def method(name: str) -> Any:
        def run(self: object, *args: object, **kwargs: object) -> Any:
            ran.append(f"{base.__name__}.{name}")
            raise RuntimeError(f"{name} was run")

        return run

    kept = {
        "__new__",
        "__array_finalize__",
        "__init__",
        "__init_subclass__",
        "__subclasshook__",
        "__del__",
        "__class__",
        "__getattribute__",
    }
    names = {name for name in dir(base) if callable(getattr(base, name)) and name not in kept}
    names |= {"__array_ufunc__", "__array_function__", "__array_wrap__", "__getattr__", "__missing__", "__iter__"}
    return type(f"Loud{base.__name__}", (base,), {name: method(name) for name in names})


class Fields(NamedTuple):
    first: Any
    other: Any


class Level(IntEnum):
    HIGH = 3


OFFERED = {
    "d": {"a": 1.5, "b": 2.0}, "o": OrderedDict(a=1.5, b=2.0), "f": defaultdict(float, a=1.5, b=2.0),
    "c": Counter(a=2, b=1), "l": [3.0, 1.0, 2.0], "t": (3, 1), "s": "words", "i": 7, "x": 0.5, "p": Fields(1.0, 2),
    "w": np.arange(6.0).reshape(2, 3), "n": np.float64(2.5), "mixed": {"a": [1, {"b": 2}], "k": (1, "x")},
}  # fmt: skip
QUERIES = """
    b.d.a ; b.d['a'] ; b.o.a ; b.f.a ; b.c.a ; b.d.keys() ; b.o.values() ; b.d.items() ; len(b.d) ; first(b.o) ;
    last(b.d) ; sample(b.l, 1) ; contains(b.d, 'a') ; contains(b.d, 'q') ; contains(b.l, 1.0) ; contains(b.t, 9) ;
    b.d.map(lambda n, v: v + 1) ; b.d.filter(lambda n, v: v > 1.6) ; b.l.map(lambda v: -v) ; b.l[1] ; b.l[-1] ;
    b.l[:2] ; b.t[1:] ; len(b.l) ; len(b.s) ; b.s[0] ; b.s[1:3] ; b.s + 'x' ; b.s == 'words' ; b.s < 'x' ;
    contains(b.s, 'or') ; startswith(b.s, 'w') ; endswith(b.s, 'x') ; b.i + 1 ; b.i ** 2 ; b.i == 7 ; -b.i ;
    abs(b.i) ; b.x * 2 ; b.x < 1 ; round(b.x) ; sqrt(b.x) ; isnan(b.x) ; sum(b.l) ; mean(b.l) ; max(b.t) ; b.l + 1 ;
    b.p.first ; b.p[1] ; b.w.mean() ; b.w + 1 ; b.w[0, 1:] ; b.w[b.w > 2] ; b.w.T ; b.w.shape ; b.w == 1 ;
    len(b.w) ; b.w.max(axis=0) ; norm(b.w) ; b.n + 1 ; b.n > 2 ; b.mixed ; b.mixed.a[1].b ; b.d ; b.l ; b.t ; b.s ;
    b.i ; b.x ; b.w ; b.n ; b.p ; [b.d.a, b.l[0]] ; b.o.map(lambda n, v: n) ; where(b.x > 1, b.i, b.x) ;
    b.w.reshape((3, 2)) ; histogram(b.l) ; b.c.map(lambda n, v: v).values() ; topk(b.w, 2) ;
    b.l.filter(lambda v: v > 1)
"""


def made_loud(value: Any) -> Any:
    """Return a value in which each object is of a class that notes what is run."""
    if isinstance(value, np.ndarray):
        return value.view(loud(np.ndarray))
    if isinstance(value, Mapping):
        cls = loud(type(value))
        own = cls.__new__(cls)
        for key, item in value.items():
            dict.__setitem__(own, key, made_loud(item))
            if isinstance(own, OrderedDict):
                OrderedDict.__setitem__(own, key, made_loud(item))
        return own
    if isinstance(value, list):
        own = (cls := loud(list)).__new__(cls)
        list.extend(own, map(made_loud, value))
        return own
    if isinstance(value, tuple):
        return tuple.__new__(loud(type(value)), map(made_loud, value))
    if isinstance(value, np.generic):
        return loud(np.float64)(value)
    return loud(type(value))(value)


def ask(text: str, offered: Mapping[str, Any]) -> Any:
    evaluation = Evaluation(parse(f"on('batch').map(lambda b: {text})"))
    return evaluation.per_event(offered).value


@pytest.mark.parametrize("priced", [False, True])
@pytest.mark.parametrize("text", [text.strip() for text in QUERIES.split(";")])
def test_what_a_subclass_overrides_is_not_run(text: str, priced: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if priced:
        monkeypatch.setattr("sightglass.query.evaluator.FREE_NS", 0.0)
    plain, own = ask(text, OFFERED), {name: made_loud(value) for name, value in OFFERED.items()}
    ran.clear()
    answer = ask(text, own)
    assert ran == []
    np.testing.assert_equal(as_plain(answer), as_plain(plain))


def as_plain(value: Any) -> Any:
    """Return an answer as the built-in types, all of which it must have."""
    assert type(value).__module__ in (
        "builtins",
        "collections",
        "numpy",
        "sightglass.core.values",
        "sightglass.core.program_values.guarded",
    )
    assert not type(value).__name__.startswith("Loud")
    if isinstance(value, dict):
        return {key: as_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(as_plain, value)) if type(value) in (list, tuple) else tuple(map(as_plain, value))
    return value


def test_enums_are_numbers() -> None:
    assert ask("b.level + 1", {"level": Level.HIGH}) == 4


def test_an_object_that_pretends_to_be_another_is_refused() -> None:
    class Proxy:
        @property
        def __class__(self) -> Any:
            raise AssertionError("the program's code was run")

    for text in ("b.p", "b.p + 1", "b.p.x", "b.p[0]", "[b.p, 1]", "len(b.p)", "b.p == 'a'"):
        with pytest.raises(RefusedQueryError, match=r"Proxy.*__class__"):
            ask(text, {"p": Proxy()})


def test_a_key_that_is_not_there_does_not_print_the_others() -> None:
    class Key:
        def __str__(self) -> str:
            raise AssertionError("the program's code was run")

        __repr__ = __format__ = __str__

    with pytest.raises(UnknownNameError, match=r"'q'.*: a\.$"):
        ask("b.d.q", {"d": {Key(): 1, "a": 2}})
    assert ask("b.d.map(lambda n, v: v).values()", {"d": {"a": 2}}) == [2]


# Mappings that do not extend `dict` are read by their own code.


class Store(Mapping[str, Any]):
    """A mapping over a file."""

    def __init__(self, keys: Any, *, broken: str = "") -> None:
        self._keys, self._broken = keys, broken

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys())

    def __getitem__(self, key: str) -> Any:
        if key == self._broken:
            raise OSError("closed file")
        if key not in "abc":
            raise KeyError(key)
        return 1.5


@pytest.mark.parametrize(
    "mapping", [UserDict(a=1.5, b=2), types.MappingProxyType({"a": 1.5, "b": 2}), Store(lambda: "abc")]
)
def test_other_mappings_are_read(mapping: Mapping[str, Any]) -> None:
    assert ask("b.m.a", {"m": mapping}) == 1.5
    assert ask("contains(b.m, 'a')", {"m": mapping}) is True
    assert ask("b.m.map(lambda n, v: v * 2).a", {"m": mapping}) == 3.0
    assert ask("len(b.m)", {"m": mapping}) == len(mapping)
    assert ask("first(b.m)", {"m": mapping}) == 1.5
    with pytest.raises(UnknownNameError, match=r"'q'.*: a, b"):
        ask("b.m.q", {"m": mapping})


def test_an_error_of_a_mapping_is_told() -> None:
    broken = Store(lambda: "abc", broken="b")
    with pytest.raises(EvaluationError, match=r"'b' of mapping.*OSError: closed file"):
        ask("b.m.b", {"m": broken})
    assert ask("b.m.a", {"m": broken}) == 1.5
    assert ask("b.m.map(lambda n, v: v + 1)", {"m": broken}) == {"a": 2.5, "c": 2.5}
    with pytest.raises(EvaluationError, match="closed file"):
        ask("b.m.map(lambda n, v: v + 1)", {"m": Store(lambda: "b", broken="b")})


def test_a_mapping_without_end_is_read_for_a_limited_time(monkeypatch: pytest.MonkeyPatch) -> None:
    endless = Store(lambda: itertools.repeat("a"))
    with pytest.raises(RefusedQueryError, match=r"10,000 items|longer than"):
        ask("b.m.values()", {"m": endless})
    monkeypatch.setattr(access, "MAX_READING_S", -1.0)
    with pytest.raises(RefusedQueryError, match="-1 s"):
        ask("b.m.values()", {"m": Store(lambda: "abc")})
    assert ask("b.m.a", {"m": endless}) == 1.5


# Only what a query reads is walked.


def test_items_that_are_not_used_may_be_anything() -> None:
    offered = {"d": {"f": len, "m": itertools, "a": 1.0}, "l": [len, 2.0]}
    assert ask("b.d.filter(lambda n, v: n == 'a')", offered) == {"a": 1.0}
    assert ask("b.l.map(lambda v: 1)", offered) == [1, 1]
    with pytest.raises(RefusedQueryError, match="got module"):
        ask("b.d.map(lambda n, v: v + 1)", {"d": {"m": itertools}})


def large(kind: str) -> Any:
    """Return a large list, or one that holds itself."""
    own: Any = [1.0] * (250_000 if kind == "own" else 9_000)
    own.append(own)
    tree: Any = []
    for _ in range(60):
        tree = [tree, tree]
    return {
        "own": own, "small own": own, "tree": tree, "numbers": [1.0] * 250_000, "lists": [[i] for i in range(200_000)],
        "objects": [object() for _ in range(200_000)],
    }[kind]  # fmt: skip


@pytest.mark.parametrize("kind", ["own", "small own", "tree", "numbers", "lists", "objects"])
def test_only_what_is_read_is_walked(kind: str) -> None:
    value, n_steps = large(kind), 0

    def step(frame: Any, event: str, arg: object) -> Any:
        nonlocal n_steps
        n_steps += 1
        return None

    texts = ("len(b.v)", "b.v[0]", "first(b.v)", "last(b.v)", "b.v[:3]", "sum(b.v)", "b.v + 1", "sample(b.v, 2)", "b.v",
             "b.v.map(lambda v: 1)", "contains(b.v, 'q')", "[b.v[0], 1]")  # fmt: skip
    maps = [f"on('batch').map(lambda b: {text})" for text in texts]
    for text in (*maps, "on('batch').where(lambda b: b.v).map(lambda b: 1)"):
        evaluation = Evaluation(parse(text))
        n_steps = 0
        sys.setprofile(step)
        try:
            with contextlib.suppress(SightglassError):
                evaluation.per_event({"v": value})
        finally:
            sys.setprofile(None)
        assert n_steps < 600_000, text  # calls of functions, about a tenth of a microsecond each


class Phase(Enum):
    TRAIN = 1


def test_columns_and_tables_are_read_as_arrays() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"loss": [0.5, 1.5, 4.0], "label": ["a", "b", "a"]})
    offered = {"df": frame, "series": frame.loss}
    assert ask("b.series.mean() + b.df.loss.max()", offered) == 6.0
    assert ask("b.df.loss[b.df.loss > 1].sum()", offered) == 5.5
    assert ask("b.df.keys()", offered) == ["loss", "label"]
    assert ask("b.df.label.contains('b')", offered) is True
    assert ask("b.df.filter(lambda n, v: n == 'loss').map(lambda n, v: v.mean())", offered) == {"loss": 2.0}
    whole = ask("b.df", offered)
    np.testing.assert_equal(whole, {"loss": np.array([0.5, 1.5, 4.0]), "label": ["a", "b", "a"]})
    with pytest.raises(UnknownNameError, match="'lss'"):
        ask("b.df.lss", offered)


def test_texts_are_compared_item_by_item() -> None:
    offered = {"a": np.array([["x", "yy"], ["x", ""]]), "l": ["x", None, "yy"], "n": np.arange(3), "t": "x"}
    np.testing.assert_array_equal(ask("b.a == 'x'", offered), [[True, False], [True, False]])
    np.testing.assert_array_equal(ask("b.a != 'x'", offered), [[False, True], [False, True]])
    np.testing.assert_array_equal(ask("b.l == 'x'", offered), [True, False, False])
    np.testing.assert_array_equal(ask("b.l == None", offered), [False, True, False])
    np.testing.assert_array_equal(ask("b.l == ['x', 'x', 'yy']", offered), [True, False, True])
    np.testing.assert_array_equal(ask("b.n[b.l == 'yy']", offered), [2])
    np.testing.assert_array_equal(ask("b.a == 3", offered), np.zeros((2, 2), bool))
    np.testing.assert_array_equal(ask("b.a == None", offered), np.zeros((2, 2), bool))
    assert ask("(b.a == 'x').mean()", offered) == 0.5
    assert ask("b.a[0, 0] == 'x'", offered) is True
    assert ask("(b.t == 'x') & (b.t != 3)", offered) is True
    with pytest.raises(RefusedQueryError, match="'<'"):
        ask("b.a < 'x'", offered)
    with pytest.raises(RefusedQueryError, match="broadcast"):
        ask("b.l == ['x', 'y']", offered)


def test_texts_are_counted_and_searched() -> None:
    offered = {"a": np.array([["x", "yy"], ["x", ""]]), "l": ["x", None, "yy", "x"], "t": "x"}
    np.testing.assert_equal(ask("b.a.unique()", offered), (["", "x", "yy"], np.array([1, 2, 1])))
    np.testing.assert_equal(ask("b.l.unique()", offered), (["x", "yy", None], np.array([2, 1, 1])))
    np.testing.assert_array_equal(ask("isin(b.a, ['yy', 'z'])", offered), [[False, True], [False, False]])
    np.testing.assert_array_equal(ask("isin(b.l, ['yy', 'x'])", offered), [True, False, True, True])
    assert ask("isin(b.t, ['yy', 'x'])", offered) is True
    assert ask("isin(b.t, ['yy'])", offered) is False
    for text in ("b.many.unique()", "isin(b.many, ['x'])"):
        with pytest.raises(RefusedQueryError, match="20,000 texts, got 20,001"):
            ask(text, {"many": np.full(20_001, "x")})


def test_a_table_is_read_for_as_long_as_a_busy_machine_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = pytest.importorskip("pandas")
    clock = itertools.count()
    monkeypatch.setattr(guarded, "monotonic", lambda: float(next(clock)))
    frame = pandas.DataFrame({"loss": [0.5, 1.5], "n": [1, 2]})
    np.testing.assert_equal(ask("b.df", {"df": frame}), {"loss": np.array([0.5, 1.5]), "n": np.array([1, 2])})
    assert ask("b.df.map(lambda n, v: v.sum())", {"df": frame}) == {"loss": 2.0, "n": 3}
    with pytest.raises(RefusedQueryError, match="longer"):
        ask("b.m.values()", {"m": Store(lambda: "abc")})


def test_masks_times_and_other_values_are_read_as_numbers_and_texts() -> None:
    offered = {
        "m": np.ma.masked_array([1, 2, 3], [False, True, False]), "phase": Phase.TRAIN, "price": Decimal("2.5"),
        "path": PurePosixPath("a/b"), "took": timedelta(seconds=3), "ids": {3, 1}, "window": deque([1.0, 3.0]),
        "at": datetime(2026, 1, 2, tzinfo=UTC), "since": datetime(2026, 1, 1, tzinfo=UTC), "steps": range(4),
        "objects": np.array([1, None], dtype=object), "inner": [{"phase": Phase.TRAIN}],
    }  # fmt: skip
    assert ask("b.m[~isnan(b.m)].sum()", offered) == 4.0
    assert np.isnan(ask("b.m.sum()", offered))
    np.testing.assert_array_equal(ask("b.m", offered), [1.0, np.nan, 3.0])
    assert ask("(b.phase == 'TRAIN') & (b.inner[0].phase == 'TRAIN')", offered)
    assert ask("b.price * 2 + b.took", offered) == 8.0
    assert ask("b.path", offered) == "a/b"
    assert ask("b.at - b.since", offered) == 86_400.0
    assert ask("b.ids", offered) == [1, 3]
    assert ask("b.window.mean() + b.steps.max()", offered) == 5.0
    assert ask("isnan(b.objects).sum()", offered) == 1
    assert ask("[b.inner, b.price]", offered) == [[{"phase": "TRAIN"}], 2.5]


def test_complex_numbers_are_numbers() -> None:
    offered = {"z": 3 + 4j, "x": 2.0, "w": np.array([1j, 2])}
    assert ask("b.z.real + b.z.imag + b.x.imag", offered) == 7.0
    assert ask("abs(b.z)", offered) == 5.0
    assert ask("b.z * b.x", offered) == 6 + 8j
    assert ask("b.z == 3", offered) == False  # noqa: E712  a bool of NumPy
    assert np.isinf(ask("b.z / 0", offered))
    assert ask("(b.w * b.z)[0]", offered) == -4 + 3j
    assert ask("b.z", offered) == 3 + 4j


def test_own_objects_asked_whole_are_mappings() -> None:
    class Stats:
        def __init__(self, **values: Any) -> None:
            self.__dict__.update(values)

    stats = Stats(loss=0.5, inner=Stats(w=np.ones(2)), _own=1)
    np.testing.assert_equal(ask("b.stats", {"stats": stats}), {"loss": 0.5, "inner": {"w": np.ones(2)}})
    np.testing.assert_equal(ask("{'s': b.stats.inner}", {"stats": stats}), {"s": {"w": np.ones(2)}})
    stats.model = print
    for query, path in (
        ("on('batch').map(lambda b: b.stats)", "batch.stats.model"),
        ("on('batch').map(lambda b: [b.stats])", "the result[0].model"),
        ("on('batch')", "batch['stats'].model"),
    ):
        with pytest.raises(UnsendableError, match=f"^{re.escape(path)}: a function"):
            Evaluation(parse(query)).per_event({"stats": stats})
    rows = np.zeros(2, [("a", "i4"), ("b", "f8")])
    np.testing.assert_equal(ask("b.rows", {"rows": rows}), {"a": rows["a"], "b": rows["b"]})


def test_an_object_s_arrays_are_reduced_by_name() -> None:
    class Stats:
        def __init__(self, loss: float) -> None:
            self.loss = loss

    evaluation = Evaluation(parse("on('batch').map(lambda b: b.stats).mean(every=2)"))
    out = []
    for i in range(2):
        head = evaluation.per_event({"stats": Stats(float(i))})
        out += evaluation.across_events(head, ordinal=i, step=i, wall_time=i)
    assert [item.value for item in out] == [{"loss": 0.5}]
