"""The boundary to the program's objects: whatever a value does, a copy of it is made of our own values."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from decimal import Decimal
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from tests.nasty import (
    KNOWN,
    Box,
    Duck,
    Mute,
    Odd,
    Pair,
    Plan,
    Short,
    Sized,
    Store,
    Three,
    Units,
    boxes,
    cycle,
    nested,
    unfinished,
)
from tests.profiles import examples

from sightglass.core import codec
from sightglass.core.errors import UnsendableError
from sightglass.core.program_values.copier import Copier, CopyLimits, freeze, leaf, sendable, snapshot
from sightglass.core.program_values.guarded import (
    FAILURES,
    LostValue,
    class_name,
    first_line,
    is_container,
    length,
    message,
    parts,
    rebuild,
    text,
)
from sightglass.core.values import (
    Figure,
    Histogram,
    Image,
    Images,
    Tensor,
    Text,
    array_kind,
    n_bytes,
    to_host,
    type_name,
)

SCALARS = (bool, int, float, complex, str, bytes, type(None))
OURS = (LostValue, Tensor, Text, Image, Images, Figure, Histogram)


def is_own(value: Any) -> bool:
    """Return whether a value is made of built-in and our own types only."""
    cls = type(value)
    if (
        cls in SCALARS
        or cls in OURS
        or cls is np.ndarray
        or (issubclass(cls, np.generic) and cls.__module__ == "numpy")
    ):
        return True
    if cls is SimpleNamespace:
        return is_own(vars(value))
    if cls is dict:
        return all(is_own(key) and is_own(item) for key, item in value.items())
    if cls in (list, tuple) or (issubclass(cls, tuple) and cls.__name__ == "Fields"):
        return all(map(is_own, value))
    return array_kind(value) == "other"  # of an unknown library: it is not read before a query needs it


@settings(max_examples=examples(400), suppress_health_check=[HealthCheck.too_slow])
@given(boxes)
def test_a_copy_is_made_of_our_own_values(box: Box) -> None:
    kept = freeze({"x": box.value}, "batch")["x"]
    assert is_own(kept.value)
    assert (kept.n_lost > 0) == (kept.first is not None)
    assert kept.first is None or kept.first.path.startswith("batch.x")


@settings(max_examples=examples(400), suppress_health_check=[HealthCheck.too_slow])
@given(boxes)
def test_what_is_sendable_can_be_sent(box: Box) -> None:
    kept = sendable({"x": box.value})
    assert type(codec.decode(*codec.encode(kept.value))) is dict
    assert codec.encode(sendable(kept.value).value) == codec.encode(kept.value)


@settings(max_examples=examples(400), suppress_health_check=[HealthCheck.too_slow])
@given(boxes)
def test_a_value_is_encoded_or_refused(box: Box) -> None:
    value = box.value
    try:
        codec.decode(*codec.encode(value))
    except UnsendableError:
        pass
    try:
        assert is_own(snapshot(value))
    except UnsendableError:
        pass
    except FAILURES:  # what arrays raise is theirs; queries guard it
        assert array_kind(value) == "other"


@settings(max_examples=examples(400), suppress_health_check=[HealthCheck.too_slow])
@given(boxes)
def test_questions_to_an_object_are_answered(box: Box) -> None:
    value = box.value
    for answer in (text(value), class_name(value), first_line(value), type_name(value)):
        assert type(answer) is str
        answer.encode()
    assert type(length(value)) in (int, type(None))


def test_the_name_of_a_dtype_can_be_sent() -> None:
    assert type_name(np.zeros(2, [("\ud800", "f4")])).encode() == rb"[('\ud800', '<f4')][2]"


@pytest.mark.parametrize("name", KNOWN)
def test_every_known_value_is_copied_in_bounded_time(name: str) -> None:
    value = KNOWN[name]()
    assert is_own(freeze({"x": value}, "batch")["x"].value)
    codec.encode(sendable(value).value)


@pytest.mark.parametrize("copy", [snapshot, lambda value: freeze({"x": value}, "batch")["x"].value])
def test_a_copy_shares_nothing_that_can_be_overwritten(copy: Any) -> None:
    w = np.zeros(2)
    pair = namedtuple("pair", "a b")
    value = {"a": w, "b": [w, (w,)], "c": pair(w, 1), "d": Image(w, "x"), "e": Plan(0, w), "f": np.array(1.0)}
    copied = copy(value)
    w[:] = 7
    assert copied["a"].tolist() == copied["b"][0].tolist() == copied["b"][1][0].tolist() == [0, 0]
    assert copied["c"].a.tolist() == copied["c"][0].tolist() == [0, 0]
    assert copied["d"].value.tolist() == copied["e"]["b"].tolist() == [0, 0]
    assert (copied["d"].caption, copied["e"]["a"], copied["f"]) == ("x", 0, 1.0)


def frozen(value: object) -> Any:
    return freeze({"x": value}, "batch")["x"]


def test_freezing_reaches_into_plain_objects() -> None:
    w = np.zeros(2)
    copied = frozen(SimpleNamespace(w=w, inner=SimpleNamespace(w=w), _private=1, f=len)).value
    w[:] = 7
    assert copied.w.tolist() == copied.inner.w.tolist() == [0, 0]
    assert copied.f == "<built-in function len>"
    assert not hasattr(copied, "_private")


def test_objects_inside_each_other_are_copied_to_a_depth() -> None:
    value: Any = SimpleNamespace(last=1)
    for _ in range(9):
        value = SimpleNamespace(inner=value)
    copied = frozen(value).value
    for _ in range(8):
        copied = copied.inner
    assert copied == "namespace(inner=namespace(last=1))"


@pytest.mark.parametrize(
    ("value", "copied"),
    [
        (Pair(1, 2), (1, 2)), (Three(1), (1, 2)), (Sized(2, 0.5), [0.5, 0.5]), (Short([1]), [1]),
        (Plan(1, [2]), {"a": 1, "b": [2]}), (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (Store("no"), dict.fromkeys("abc", 1.0)),
        ({(1, "a"): 1, 2: 3, None: 4}, {(1, "a"): 1, 2: 3, None: 4}), ({1}, [1]), (Decimal("0.5"), 0.5),
    ],
)  # fmt: skip
def test_values_are_read_as_they_are_stored(value: Any, copied: Any) -> None:
    kept = frozen(value)
    assert (kept.value, kept.n_lost) == (copied, 0)
    assert type(kept.value) is type(copied) or isinstance(kept.value, tuple)


@pytest.mark.parametrize(
    ("value", "path", "why"),
    [
        (Mute(), "", "RuntimeError: no repr"), ([1, {"k": Mute()}], "[1]['k']", "RuntimeError: no repr"),
        (unfinished(), "['b']", "AttributeError: 'Plan' object has no attribute 'b'"),
        (Store("b"), "['b']", "OSError: closed file"), (Store("all"), "", "OSError: closed file"),
        (cycle(list), "[1]", "it contains itself"), (cycle(object), ".me", "it contains itself"),
        (nested(65), "[0]" * 4 + "…" + "[0]" * 4, "it is nested more than 64 levels deep"),
        (list(range(250_001)), "", "it has 250,001 items, which is too large to copy"),
        (KNOWN["endless"](), "", "ValueError: it has more than 250,000 items"),
        (np.array([Mute()]), "[0]", "RuntimeError: no repr"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_is_named(value: Any, path: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sightglass.core.program_values.copier.Copier", partial(Copier, clock=lambda: 0.0)
    )  # however slow the machine is
    assert frozen(value).first == LostValue(why, f"batch.x{path}")
    assert frozen(value).n_lost == 1
    assert frozen({"ok": 1, "bad": value}).value["ok"] == 1


def test_only_the_first_is_named_but_all_are_counted() -> None:
    kept = sendable({"a": Mute(), "b": [Mute(), 1], "c": 2}, "config")
    assert kept.value == {
        "a": "unreadable: RuntimeError: no repr",
        "b": ["unreadable: RuntimeError: no repr", 1],
        "c": 2,
    }
    assert (kept.n_lost, str(kept.first and kept.first.path)) == (2, "config['a']")


def test_keys_with_the_same_text_are_counted() -> None:
    assert sendable({1: "a", "1": "b", 2: "c"}) == (
        {"1": "b", "2": "c"}, 1, LostValue("two of its keys have the same text", "value"),
    )  # fmt: skip
    assert sendable({Odd(): 1}).value == {"unreadable: RuntimeError: no repr": 1}


def test_a_user_who_interrupts_is_heard() -> None:
    class Interrupted(Mute):
        def __repr__(self) -> str:
            raise KeyboardInterrupt

    for call in (frozen, sendable, text):
        with pytest.raises(KeyboardInterrupt):
            call(Interrupted())


def test_reading_takes_a_bounded_time_of_the_programs_own_code() -> None:
    now_s = 0.0

    class Slow(Store):
        def __getitem__(self, key: str) -> Any:
            nonlocal now_s
            now_s += 0.4
            return 1.0

    copier = Copier(leaf, form="snapshot", limits=CopyLimits(max_reading_s=1.0), clock=lambda: now_s)
    assert copier.copy(Slow("no", keys=lambda: iter("ab")), "a").value == {"a": 1.0, "b": 1.0}
    late = copier.copy({"slow": Slow("no"), "list": [1, 2]}, "b")
    assert late.first == LostValue("TimeoutError: reading it takes longer than 1 s", "b['slow']")
    assert late.value["list"] == [1, 2]


def test_long_texts_are_cut() -> None:
    class Long:
        def __repr__(self) -> str:
            return "x" * 50_000

    assert (len(text(Long())), len(sendable(Long()).value), len(message(ValueError("y" * 9_999)))) == (
        1_000,
        10_000,
        2_012,
    )
    assert text(set(range(20_000))) == "set of 20000"


def test_no_constructor_and_no_overridden_method_is_called() -> None:
    class Traced(dict[str, Any]):
        def __init__(self) -> None:
            raise AssertionError

        __iter__ = __len__ = __getitem__ = keys = items = values = __init__  # type: ignore[assignment]

    traced = Traced.__new__(Traced)
    dict.__setitem__(traced, "a", 1)
    assert frozen({"t": traced}).value == {"t": {"a": 1}}
    assert rebuild(traced, lambda item: item + 1) == {"a": 2}


def test_one_level_of_a_container() -> None:
    assert [is_container(value) for value in ({}, [], (), Plan(1, 2), Tensor(1), Store(""))] == [True] * 6
    assert [is_container(value) for value in (1, "a", Plan, Text("a"), LostValue(""), {1}, np.zeros(1))] == [False] * 7
    assert rebuild("text", len) == "text"
    assert rebuild(Tensor([1, 2]), len) == Tensor(2)
    assert parts(1) is None


def test_an_array_that_cannot_be_converted_says_so() -> None:
    with pytest.raises(TypeError, match="got Duck"):
        to_host(Duck())
    with pytest.raises(UnsendableError, match=r"TypeError.*got Duck"):
        codec.encode(Duck())
    assert type(snapshot(Units([1.0], "m"))) is np.ndarray


def test_a_size_is_not_asked_of_the_object() -> None:
    class Vast:
        def __sizeof__(self) -> int:
            raise RuntimeError("no size")

    assert n_bytes(Vast()) == 64
