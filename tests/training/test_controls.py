"""Controls: types, bounds, choices, binding; refusals name the declaring line."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightglass.core.errors import CommandError
from sightglass.training.controls import Action, BoundControl, Control, declaring_line

pytestmark = pytest.mark.smoke


@pytest.mark.parametrize(
    ("control", "value", "reason"),
    [
        (Control("lr", 0.1, min=0.0, max=1.0), 2.0, "expected at most 1.0, got 2.0"),
        (Control("lr", 0.1, min=0.0, max=1.0), -1, "expected at least 0.0, got -1.0"),
        (Control("lr", 0.1), "fast", "expected float, got str 'fast'"),
        (Control("lr", 0.1), True, "expected float, got bool True"),
        (Control("lr", 0.1), None, "expected float, got NoneType None"),
        (Control("lr", 0.1), float("nan"), "expected a number, got nan"),
        (Control("lr", 0.1), [1.0], "expected float, got list [1.0]"),
        (Control("n", 3), 3.5, "expected int, got float 3.5"),
        (Control("n", 3), True, "expected int, got bool True"),
        (Control("on", True), 1, "expected bool, got int 1"),
        (Control("opt", "sgd", choices=["sgd", "adam"]), "lion", "expected one of 'sgd', 'adam', got 'lion'"),
    ],
)
def test_refusals(control, value, reason):
    before = control.value
    with pytest.raises(CommandError) as caught:
        control.set(value)
    assert str(caught.value) == f"Control {control.name!r}: {reason}"
    assert control.value == before


def test_a_refusal_names_the_declaring_line():
    control = Control("lr", 0.1, max=1.0, where="train.py:12")
    with pytest.raises(CommandError, match=r"'lr'.*1.0, got 2.0 \(.* train.py:12\)$"):
        control.set(2)

    def declare():
        return declaring_line()

    assert declare().rpartition(":")[0] == __file__


@pytest.mark.parametrize("value", [10**400, -(10**400), "x" * 10_000, np.arange(1_000)])
def test_monstrous_values_are_refused_briefly(value):
    with pytest.raises(CommandError) as caught:
        Control("lr", 0.1).set(value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("control", "value", "result"),
    [
        (Control("lr", 0.1), 1, 1.0),
        (Control("lr", 0.1), np.float32(0.5), 0.5),
        (Control("lr", 0.1), np.int64(2), 2.0),
        (Control("n", 3), np.int32(4), 4),
        (Control("on", True), np.bool_(False), False),
        (Control("opt", "sgd"), np.str_("adam"), "adam"),
    ],
)
def test_values_become_the_controls_type(control, value, result):
    old = control.value
    assert control.set(value) == (old, result)
    assert (control.value, type(control.value).__name__) == (result, control.type)


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(0, 10), st.floats(10, 20))
def test_a_value_is_taken_exactly_if_it_lies_within_the_bounds(value, low, high):
    control = Control("x", 10.0, min=low, max=high)
    try:
        control.set(value)
    except CommandError:
        assert not low <= value <= high
        assert control.value == 10.0
    else:
        assert low <= control.value == value <= high


def test_a_bad_declaration_raises_at_once():
    with pytest.raises(TypeError, match="'x', got list"):
        Control("x", [1])
    with pytest.raises(CommandError, match=r"'x'.*1, got 5"):
        Control("x", 5, max=1)
    with pytest.raises(TypeError, match="'save', got int"):
        Action("save", 5)
    with pytest.raises(AttributeError):
        BoundControl("x", (SimpleNamespace(), "missing"))


@pytest.mark.parametrize("owner", [SimpleNamespace(lr=0.1), {"lr": 0.1}])
def test_a_bound_control_reads_and_writes_its_owner(owner):
    control = BoundControl("lr", (owner, "lr"), min=0.0)
    read = owner.__getitem__ if isinstance(owner, dict) else owner.__getattribute__
    assert control.set(1) == (0.1, 1.0)
    assert (read("lr"), control.value) == (1.0, 1.0)
    if isinstance(owner, dict):
        owner["lr"] = 3.0
    else:
        owner.lr = 3.0
    assert control.value == 3.0
    with pytest.raises(CommandError, match=r"'lr'.*0.0.*-1.0"):
        control.set(-1)
    assert repr(control) == "Control('lr', 3.0, 0.0..None)"


def test_an_action_is_described_by_its_first_line():
    def save():
        """Save it.

        In full.
        """

    assert Action("save", save).doc == "Save it."
    assert Action("anonymous", lambda: None).doc == ""
