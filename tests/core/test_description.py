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
    Ending,
    EventInfo,
    HistoryEntry,
    ObservableInfo,
    StackFrame,
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


def events(n=12_346, interval_s=1 / 38, age_s=0.2):
    often = EventInfo(n_events=n, interval_s=interval_s, age_s=age_s)
    return {
        "log": EventInfo(n_events=10 * n, interval_s=5.0, age_s=4.0),
        "batch": often,
        "epoch": EventInfo(n_events=3),
    }


FRAMES = (StackFrame(file="/a/train.py", line=7, function="fit"),)
NO_MEMORY = Ending(error="RuntimeError: no memory\nmore", frames=FRAMES)
SENTENCES = {
    "running, batch 12,345, 38/s, the last 0.2 s ago": {"state": "running", "events": events()},
    "running": {"state": "running"},
    "running, log 0, the last 4 s ago": {"state": "running", "events": {"log": EventInfo(n_events=1, age_s=4.0)}},
    "quiet for 3 min, usually one event every 0.1 s, batch 7": {
        "state": "quiet", "events": events(n=8, interval_s=0.1, age_s=180)
    },
    "paused, batch 12,345, the last 2 min ago": {"state": "paused", "events": events(age_s=120.0)},
    "stopping, batch 12,345, 38/s, the last 0.2 s ago: stopped by ann": {
        "state": "stopping", "events": events(), "ending": Ending(stopped_by="ann")
    },
    "failed at batch 199 after 2 h 5 min: RuntimeError: no memory (train.py, line 7, in fit)": {
        "state": "failed", "events": events(n=200), "started": 1.0, "wall_time": 7_501.0, "ending": NO_MEMORY
    },
    "terminated: SIGTERM": {"state": "terminated", "ending": Ending(signal="SIGTERM")},
    "ended at step 0.5 after 12 s": {"state": "ended", "last_step": 0.5, "started": 1.0, "wall_time": 13.0},
    "recorded at step 9": {"state": "recorded", "last_step": 9, "events": {"log": EventInfo(n_events=3)}},
    "died": {"state": "died", "started": 5.0, "wall_time": 5.0},
}  # fmt: skip


@pytest.mark.parametrize("sentence", SENTENCES)
def test_a_run_is_described_in_one_sentence(sentence):
    described = Description(name="job", **SENTENCES[sentence])
    assert described.sentence == sentence
    first, second = str(described).splitlines()[:2]
    assert first.startswith(f"run job  {described.state} for ")
    assert "process" not in first
    assert second.strip() == sentence
