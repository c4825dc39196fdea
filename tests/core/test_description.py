"""Descriptions cross versions: what is unknown is ignored, what is missing has its default, a fault costs itself."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightglass.core import codec, description
from sightglass.core.description import (
    ControlInfo,
    Description,
    EventInfo,
    HistoryEntry,
    ObservableInfo,
    StreamInfo,
    as_mapping,
    read_struct,
)

STRUCTS = [
    value
    for value in vars(description).values()
    if isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__module__ == description.__name__
]
FULL = Description(
    name="job", id="a" * 12, pid=7, started=1.5, config={"lr": 0.1, "shape": [1, 2]},
    events={"batch": EventInfo(n_events=3, observables={"loss": ObservableInfo(type="float", fields={"a": "int"})})},
    controls={"lr": ControlInfo(type="float", value=0.1, min=0, max=float("inf"), choices=[1, 2])},
    streams=[StreamInfo(stream=1, query="batch.loss", clients=["a"], n_records=9)], failures={"The hub": "1; no"},
)  # fmt: skip
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def over_the_wire(described: Description) -> Description:
    return read_struct(Description, codec.decode(*codec.encode(as_mapping(described))))


def test_a_description_crosses_the_wire():
    assert over_the_wire(FULL) == FULL


def test_values_keep_their_types_on_the_wire():
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = over_the_wire(Description(controls={"mask": ControlInfo(value=value)}, config={"pair": (1, 2j)}))
    np.testing.assert_array_equal(found.controls["mask"].value, value)
    assert found.config == {"pair": (1, 2j)}


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.__name__)
@given(extra=st.dictionaries(st.text(max_size=8), json_values, max_size=3))
def test_what_is_unknown_is_ignored_and_what_is_missing_has_its_default(kind, extra):
    unknown = {name: value for name, value in extra.items() if name not in kind.__struct_fields__}
    assert read_struct(kind, unknown) == kind()


@given(st.data())
def test_a_field_of_another_type_costs_the_others_nothing(data):
    entries = as_mapping(FULL)
    broken = data.draw(st.sampled_from(sorted(entries)))
    found = read_struct(Description, {**entries, broken: data.draw(json_values)})
    for name in Description.__struct_fields__:
        if name != broken:
            assert getattr(found, name) == getattr(FULL, name)


def test_an_entry_of_another_type_costs_the_other_entries_nothing():
    entries = as_mapping(FULL)
    entries["events"]["odd"] = {"n_events": "many", "observables": {"x": 3, "y": {"type": "int", "fields": 4}}}
    found = read_struct(Description, entries)
    assert found.events["batch"] == FULL.events["batch"]
    assert found.events["odd"] == EventInfo(observables={"x": ObservableInfo(), "y": ObservableInfo(type="int")})


def test_infinite_bounds_may_be_texts_as_json_needs_them():
    assert read_struct(ControlInfo, {"min": "-inf", "max": "inf"}) == ControlInfo(min=-np.inf, max=np.inf)


def test_an_entry_of_an_older_history_is_read():
    entry = {"kind": "set", "name": "lr", "value": 0.1, "event": "batch", "index": 3, "step": 3, "wall_time": 1.0}
    assert read_struct(HistoryEntry, entry) == HistoryEntry(**entry)
