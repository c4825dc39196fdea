"""Scalars read many at a time are those read one by one."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples

from sightglass.core.errors import WireError
from sightglass.storage.foreign import mindspore, tensorboard
from sightglass.storage.foreign.event_scan import read_scalars
from sightglass.storage.format.summary import bytes_field, double_field, float_field, varint_field

DIALECTS = {"mindspore": mindspore, "tensorboard": tensorboard}
STEPS = st.one_of(st.integers(0, 300), st.integers(-(2**63), 2**63 - 1))
TAGS = st.sampled_from(["a", "b", "loss", "x" * 130, "", "_hparams_/x", "ü", "ab"])
FLOATS = st.floats(width=32, allow_nan=False)


@st.composite
def plain_events(draw):
    value = [*bytes_field(1, draw(TAGS).encode()), float_field(draw(st.sampled_from([2, 2, 3])), draw(FLOATS))]
    step = [varint_field(2, draw(STEPS))] if draw(st.booleans()) else []
    return b"".join(map(bytes, [double_field(1, draw(FLOATS)), *step, *bytes_field(5, *bytes_field(1, *value))]))


@st.composite
def tensor_events(draw):
    number = struct.pack("<f", draw(FLOATS))
    content = draw(st.sampled_from([bytes_field(4, number), bytes_field(5, number), [b"\x2d" + number]]))
    shape = draw(st.sampled_from([[], bytes_field(2), bytes_field(2, *bytes_field(2, varint_field(1, 1)))]))
    tensor = bytes_field(8, varint_field(1, draw(st.sampled_from([1, 1, 1, 3]))), *shape, *content)
    plugin = draw(st.sampled_from([b"scalars", b"", b"hparams", b"text"]))
    metadata = bytes_field(9, *bytes_field(1, *bytes_field(1, plugin))) if plugin else []
    value = [*bytes_field(1, draw(TAGS).encode()), *tensor, *metadata]
    parts = [double_field(1, draw(FLOATS)), varint_field(2, draw(STEPS)), *bytes_field(5, *bytes_field(1, *value))]
    return b"".join(map(bytes, parts))


@st.composite
def odd_events(draw):
    """Change an event, or put fields into it twice or in another order."""
    event = draw(st.one_of(plain_events(), tensor_events()))
    match draw(st.integers(0, 3)):
        case 0:
            return event + event
        case 1:
            return event[9:] + event[:9]
        case 2:
            return event + varint_field(2, draw(STEPS))
    place = draw(st.integers(0, len(event) - 1))
    return event[:place] + bytes([draw(st.integers(0, 255))]) + event[place + 1 :]


def laid_out(payloads):
    """Return the payloads in one buffer with something between them, and where they are."""
    lengths = np.array([len(payload) for payload in payloads], np.int64)
    starts = np.cumsum(lengths + 3) - lengths
    return b"".join(b"\xff" * 3 + payload for payload in payloads), starts, lengths


def one_by_one(dialect, payload):
    try:
        return dialect.decode_event(memoryview(payload))
    except WireError:
        return []


def check(dialect, payloads):
    scalars = read_scalars(*laid_out(payloads), dialect.find_scalar)
    for i in np.flatnonzero(scalars.ids >= 0):
        (item,) = one_by_one(dialect, payloads[i])
        assert item.kind == "scalar"
        assert (scalars.tags[scalars.ids[i]], scalars.steps[i]) == (item.tag, item.step)
        np.testing.assert_array_equal([scalars.wall_times[i], scalars.values[i]], [item.wall_time, item.value])
    return scalars


@pytest.mark.parametrize("name", DIALECTS)
@given(data=st.data())
@settings(max_examples=examples(200))
def test_batches_are_decoded_as_single_events_are(name, data):
    events = data.draw(st.lists(st.one_of(plain_events(), tensor_events(), odd_events()), max_size=20))
    copies = [data.draw(st.sampled_from(events)) for _ in range(data.draw(st.integers(0, 20)))] if events else []

    check(DIALECTS[name], events + copies)


@pytest.mark.parametrize("name", DIALECTS)
def test_files_of_scalars_are_read_as_a_whole(name):
    dialect, rng = DIALECTS[name], np.random.default_rng(0)
    values = rng.normal(size=3000).astype(np.float32)
    tags = ["loss", "accuracy", "a/b", "a/c", "learning_rate"]
    payloads = [
        b"".join(map(bytes, dialect.encode_event({tags[i % 5]: float(v)}, step=i // 5, wall_time=i / 7)[0]))
        for i, v in enumerate(values)
    ]

    scalars = check(dialect, payloads)

    assert [scalars.tags[i] for i in scalars.ids[:5]] == tags
    np.testing.assert_array_equal(scalars.ids, np.resize(scalars.ids[:5], 3000))
    np.testing.assert_array_equal(scalars.values, values)
    np.testing.assert_array_equal(scalars.steps, np.arange(3000) // 5)
    np.testing.assert_array_equal(scalars.wall_times, np.arange(3000) / 7)


def test_scalars_that_tensorflow_2_writes_are_read_as_a_whole():
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.scalar.summary_v2 import scalar_pb

    payloads = [Event(wall_time=1, step=i, summary=scalar_pb("loss", 0.5 * i)).SerializeToString() for i in range(100)]

    scalars = check(tensorboard, payloads)

    assert scalars.tags == ["loss"]
    assert scalars.values.tolist() == [0.5 * i for i in range(100)]


def test_other_events_are_left_to_be_decoded_one_by_one():
    scalar = b"".join(map(bytes, tensorboard.encode_event({"a": 1.0}, step=1, wall_time=1)[0]))
    text = b"".join(map(bytes, tensorboard.encode_event({"a": "hello"}, step=1, wall_time=1)[0]))

    scalars = check(tensorboard, [text] * 5 + [scalar] * 5 + [b""] * 5 + [scalar[:-1]] * 5)

    assert scalars.ids.tolist() == [-1] * 5 + [0] * 5 + [-1] * 10


def test_no_events_are_no_scalars():
    assert read_scalars(*laid_out([]), tensorboard.find_scalar).tags == []


def test_payloads_beyond_the_buffer_are_refused():
    with pytest.raises(ValueError, match="3 bytes"):
        read_scalars(b"abc", np.array([1]), np.array([3]), tensorboard.find_scalar)
