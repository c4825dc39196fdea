"""The wire format and the messages, compared with the protobuf runtime."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightglass.core.columns import Columns
from sightglass.core.errors import WireError
from sightglass.storage.format import summary
from sightglass.storage.format.block import Key, encode
from sightglass.storage.format.protobuf import signed, varint, walk
from sightglass.storage.format.summary import (
    bytes_field,
    dialect,
    double_field,
    float_field,
    read_event,
    varint_field,
)

from ..schema import message, parse_schema  # noqa: TID252  tests are not a package

INT64 = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False)
TEXTS = st.text(max_size=300)


@st.composite
def events(draw):
    event = message("Event")(wall_time=draw(FLOATS))
    if draw(st.booleans()):
        event.step = draw(INT64)
    if draw(st.booleans()):
        event.version = draw(TEXTS)
        return event
    for _ in range(draw(st.integers(0, 4))):
        value = event.summary.value.add(tag=draw(TEXTS))
        match draw(st.integers(0, 3)):
            case 0:
                value.scalar_value = draw(st.floats(width=32, allow_nan=False))
            case 1:
                value.image.height, value.image.width, value.image.colorspace = draw(
                    st.tuples(*[st.integers(0, 9)] * 3)
                )
                value.image.encoded_image = draw(st.binary(max_size=300))
            case 2:
                value.tensor.dims.extend(draw(st.lists(INT64)))
                value.tensor.float_data.extend(draw(st.lists(st.floats(width=32, allow_nan=False))))
            case 3:
                value.histogram.buckets.add(left=draw(FLOATS), width=draw(FLOATS), count=draw(INT64))
    return event


def joined(*parts):
    return b"".join(map(bytes, parts))


@given(events())
def test_an_event_reads_as_with_the_protobuf_runtime(event):
    payload = event.SerializeToString()

    head = read_event(memoryview(payload))

    assert head.wall_time == event.wall_time
    assert head.step == event.step
    assert head.version == (event.version if event.HasField("version") else None)
    assert [bytes(value) for value in head.values] == [value.SerializeToString() for value in event.summary.value]
    assert head.others == []


@given(events())
def test_walking_gives_each_field_that_the_runtime_lists(event):
    payload = memoryview(event.SerializeToString())

    assert [number for number, _, _ in walk(payload)] == [field.number for field, _ in event.ListFields()]


@given(st.binary(max_size=64))
def test_bytes_are_a_message_or_a_wire_error(data):
    try:
        read_event(memoryview(data))
    except WireError:
        return


@given(events(), st.data())
def test_a_truncated_or_changed_event_raises_nothing_but_wire_errors(event, data):
    payload = bytearray(event.SerializeToString())
    for _ in range(3):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        read_event(memoryview(payload)[: data.draw(st.integers(0, len(payload)))])
    except WireError:
        return


@given(INT64, FLOATS, st.floats(width=32, allow_nan=False), TEXTS)
def test_what_is_written_is_read_by_the_runtime(step, wall_time, scalar, tag):
    value = bytes_field(1, *bytes_field(1, tag.encode()), float_field(3, scalar))
    event = message("Event").FromString(
        joined(double_field(1, wall_time), varint_field(2, step), *bytes_field(5, *value))
    )

    assert (event.wall_time, event.step) == (wall_time, step)
    assert [(v.tag, v.scalar_value) for v in event.summary.value] == [(tag, scalar)]


@given(INT64)
def test_integers_survive_as_varints(n):
    ((_, _, value),) = walk(memoryview(varint_field(1, n)))

    assert signed(value) == n
    assert len(varint(n)) == max(1, -(-(n % 2**64).bit_length() // 7))


def test_a_float_that_is_too_large_becomes_infinite():
    assert float_field(1, -1e300) == float_field(1, float("-inf"))


def test_large_buffers_are_not_copied():
    array = np.zeros(10)
    parts = bytes_field(8, array.data.cast("B"))

    assert parts[1].obj is array
    assert joined(*parts) == b"\x42\x50" + bytes(80)


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("Sightglass.Event:2", "sightglass"),
        ("MindSpore.Event:1", "mindspore"),
        ("brain.Event:1", "tensorboard"),
        ("brain.Event:2", "tensorboard"),
    ],
)
def test_the_version_record_tells_the_dialect(version, name):
    assert dialect(version) == name


@pytest.mark.parametrize("version", ["MindSpore.Event:2", "brain.Event:3", "Sightglass.Event:0", "Sightglass.Event:99"])
def test_a_newer_version_is_refused(version):
    with pytest.raises(WireError, match="update sightglass"):
        dialect(version)


@pytest.mark.parametrize("version", ["", "brain.Event", "brain.Event:x", "Tensor.Event:1", "brain.Event:2\n"])
def test_an_unknown_version_is_refused(version):
    with pytest.raises(WireError, match=r"'Sightglass\.Event:2'"):
        dialect(version)


def test_the_version_record_reads_back():
    payload = joined(*summary.encode_version(summary.MINDSPORE_VERSION, 1.5))

    assert message("Event").FromString(payload).version == "MindSpore.Event:1"
    assert read_event(memoryview(payload)).version == "MindSpore.Event:1"


def test_a_text_that_is_none_is_refused():
    with pytest.raises(WireError, match="UTF-8"):
        read_event(memoryview(joined(*bytes_field(3, b"\xff"))))


def test_the_runtime_skips_a_block():
    columns = Columns(index=0, steps=np.arange(3), wall_times=np.arange(3) + 0.5, values=np.zeros((3, 2)))
    payload = joined(*encode(Key(kind="logged", tag="x"), columns, segment=1))

    from tensorboard.compat.proto.event_pb2 import Event

    event = message("Event").FromString(payload)

    assert (event.wall_time, len(event.block)) == (2.5, len(payload) - 16)
    assert Event.FromString(payload).wall_time == 2.5
    assert read_event(memoryview(payload)).others == [1001]


def test_the_schema_is_parsed_with_its_numbers_and_labels():
    event = message("Event").DESCRIPTOR
    tensor = message("TensorProto").DESCRIPTOR.fields_by_name

    assert tensor["data_type"].enum_type.values_by_name["DT_BFLOAT16"].number == 46
    assert [field.name for field in event.oneofs_by_name["what"].fields] == ["version", "summary"]
    assert event.fields_by_name["block"].number == 1001
    assert tensor["float_data"].GetOptions().packed


def test_a_schema_that_is_none_is_refused():
    with pytest.raises(ValueError, match=r"x\.proto.*'service'"):
        parse_schema("x.proto", 'syntax = "proto2"; service X {}')


def test_our_messages_live_beside_others_of_the_same_file_names():
    from tensorboard.compat.proto.event_pb2 import Event

    assert Event.DESCRIPTOR.file.pool is not message("Event").DESCRIPTOR.file.pool
    assert Event(wall_time=1).SerializeToString() == message("Event")(wall_time=1).SerializeToString()
