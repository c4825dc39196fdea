"""Arrays as they lie in messages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sightglass.core.errors import WireError
from sightglass.storage.format import summary
from sightglass.storage.format.block import DATA_TYPES
from sightglass.storage.format.protobuf import varint
from sightglass.storage.format.summary import (
    bytes_field,
    encode_tensor,
    from_raw,
    raw,
    read_tensor,
    unpack,
    varint_field,
)

from ..schema import message  # noqa: TID252  tests are not a package

SHAPES = hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=5)
FIELDS = {
    "float_data": ("float32", 3),
    "int32_data": ("int32", 4),
    "int64_data": ("int64", 5),
    "double_data": ("float64", 6),
    "uint64_data": ("uint64", 7),
}


def decode_tensor(buffer):
    return read_tensor(buffer).array()


def joined(*parts):
    return memoryview(b"".join(map(bytes, parts)))


@given(st.sampled_from(sorted(FIELDS)), SHAPES, st.data())
def test_numbers_written_by_the_runtime_are_read(field, shape, data):
    dtype, _ = FIELDS[field]
    array = data.draw(hnp.arrays(dtype, shape))
    tensor = message("TensorProto")(dims=shape, **{field: array.ravel().tolist()})

    read = decode_tensor(memoryview(tensor.SerializeToString()))

    np.testing.assert_array_equal(read, array)
    assert read.dtype == array.dtype if array.size else True


@given(hnp.arrays("float32", 6), st.integers(0, 6))
def test_numbers_may_come_in_several_parts_and_one_by_one(array, cut):
    packed_first = bytes_field(3, raw(array[:cut]))
    alone = [b"\x1d" + bytes(raw(number)) for number in array[cut:]]
    payload = joined(varint_field(1, 2), *packed_first, varint_field(1, 3), *alone)

    runtime = message("TensorProto").FromString(payload)

    np.testing.assert_array_equal(decode_tensor(payload), np.array(runtime.float_data, np.float32).reshape(2, 3))


@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.integers(0, 5))
def test_integers_one_by_one_and_packed(numbers, cut):
    payload = joined(
        varint_field(1, len(numbers)),
        *(varint_field(5, n) for n in numbers[:cut]),
        *bytes_field(5, *map(varint, numbers[cut:])),
    )

    assert decode_tensor(payload).tolist() == numbers


@given(st.lists(st.integers(0, 2**64 - 1)))
def test_varints_are_unpacked(numbers):
    assert unpack(b"".join(map(varint, numbers)), "uint64").tolist() == numbers


@pytest.mark.parametrize("data", [b"\x80", b"\x01\xff", b"\xff" * 10 + b"\x01", b"\xff" * 11])
def test_a_varint_without_an_end_is_refused(data):
    with pytest.raises(WireError, match="10 bytes"):
        unpack(data, "int64")


def test_floats_are_a_view_of_the_message():
    payload = joined(*encode_tensor(np.ones((1000, 10), np.float32)))

    array = decode_tensor(payload)

    assert np.shares_memory(array, np.frombuffer(payload, np.uint8))
    assert array.shape == (1000, 10)
    assert not array.flags.writeable


def test_encoding_float32_copies_nothing():
    array = np.ones((2, 3), np.float32)

    *_, numbers = encode_tensor(array)

    assert np.shares_memory(array, np.frombuffer(numbers, np.uint8))


@pytest.mark.parametrize(
    "dims", [[-1], [2**62, 4], [2**63 - 1, 2**63 - 1], [3], [], [0], [1] * 100, [-1, -2], [2, 2], [0, -1]]
)
def test_a_shape_that_does_not_fit_is_refused_before_anything_is_allocated(dims):
    tensor = message("TensorProto")(dims=dims, float_data=[1.0, 2.0])

    with pytest.raises(WireError, match="shape"):
        read_tensor(memoryview(tensor.SerializeToString()))


@pytest.mark.parametrize("dims", [[0, 2**62, 2**62], [2**62, 2**62, 0, 2]])
def test_an_empty_array_of_an_impossible_shape_is_refused(dims):
    tensor = message("TensorProto")(dims=dims)

    with pytest.raises(WireError, match="shape"):
        decode_tensor(memoryview(tensor.SerializeToString()))


def test_integers_that_do_not_fill_their_shape_are_refused():
    tensor = message("TensorProto")(dims=[2**40], int64_data=[1])

    with pytest.raises(WireError, match="got 1"):
        decode_tensor(memoryview(tensor.SerializeToString()))


def test_numbers_in_two_fields_are_refused():
    tensor = message("TensorProto")(dims=[1], float_data=[1], int32_data=[1])

    with pytest.raises(WireError, match=r"\[3, 4\]"):
        decode_tensor(memoryview(tensor.SerializeToString()))


def test_bytes_of_an_unknown_dtype_are_refused():
    with pytest.raises(WireError, match="type 99"):
        decode_tensor(joined(varint_field(2, 99), *bytes_field(8, b"12")))


@pytest.mark.parametrize("name", sorted(DATA_TYPES))
def test_every_dtype_survives_as_bytes(name):
    pytest.importorskip("ml_dtypes")
    dtype = from_raw(b"", name).dtype
    array = np.array([[0, 1, 1]]).astype(dtype)
    payload = joined(
        varint_field(1, 1), varint_field(1, 3), varint_field(2, DATA_TYPES[name]), *bytes_field(8, raw(array))
    )

    read = decode_tensor(payload)

    assert read.dtype == dtype
    np.testing.assert_array_equal(read, array)


def test_bfloat16_without_ml_dtypes_is_widened(monkeypatch):
    monkeypatch.setattr(summary, "find_spec", lambda name: None)

    array = from_raw(b"\xc0\x3f\x00\xc0", "bfloat16")

    assert array.dtype == np.float32
    assert array.tolist() == [1.5, -2.0]


def test_bools_are_checked():
    with pytest.raises(WireError, match="got 2"):
        from_raw(b"\x00\x02", "bool")


def test_big_endian_arrays_are_written_little_endian():
    assert bytes(raw(np.array([1, 2], ">i2"))) == b"\x01\x00\x02\x00"


def test_the_dtype_is_told_and_the_numbers_become_float32():
    stored = read_tensor(joined(*encode_tensor(np.array([2**53 + 1, 3]))))

    assert (stored.declared, stored.dtype, stored.shape) == ("int64", "float32", (2,))
    assert stored.array().tolist() == [2.0**53, 3.0]


def test_a_large_float64_becomes_infinite_without_a_warning():
    assert decode_tensor(joined(*encode_tensor(np.array([1e300, -1e300])))).tolist() == [float("inf"), float("-inf")]


@given(st.binary(max_size=80))
def test_bytes_are_a_tensor_or_a_wire_error(data):
    try:
        decode_tensor(memoryview(data))
    except WireError:
        return
