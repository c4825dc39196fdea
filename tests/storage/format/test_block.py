"""Blocks: what was encoded comes back with its types; what is no block is refused, whatever it claims."""

from __future__ import annotations

import contextlib
import math
import struct
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sightglass.core.columns import Columns
from sightglass.core.errors import DamagedError
from sightglass.core.values import Histogram, Image, Tensor, Text
from sightglass.storage.format import block
from sightglass.storage.format.block import KINDS, BlockHead, Key, decode, decode_head, encode, head_of, raw_values
from sightglass.storage.format.block_entries import ROW, BlockEntries, Heads
from sightglass.storage.format.framing import checksum
from sightglass.storage.format.protobuf import BYTES, FIXED32, FIXED64, VARINT, key, varint, zigzag

finite = st.floats(allow_nan=False)
numbers = st.one_of(
    hnp.array_shapes(min_dims=1, max_dims=3, max_side=5).flatmap(
        lambda shape: hnp.arrays(st.sampled_from(["f8", "i8", "f4", "u1", "?", "i2", "u8", "c16", "f2"]), shape)
    )
)
whole_numbers = st.integers(-(2**61), 2**61)
lists = st.lists(
    st.one_of(st.none(), st.text(max_size=5), st.integers(), st.dictionaries(st.text(max_size=3), finite, max_size=2)),
    min_size=1,
    max_size=5,
)


@st.composite
def blocks(draw: st.DrawFn) -> tuple[BlockHead, Columns]:
    values = draw(st.one_of(numbers, lists))
    n = len(values)
    whole = draw(st.booleans())
    steps = draw(hnp.arrays("i8", n, elements=whole_numbers) if whole else hnp.arrays("f8", n))
    columns = Columns(
        index=draw(st.integers(0, 2**40)),
        steps=steps if draw(st.booleans()) else np.arange(n) * 3 - 1,
        wall_times=draw(hnp.arrays("f8", n)),
        values=values,
        ordinals=draw(st.one_of(st.none(), hnp.arrays("i8", n, elements=st.integers(0, 2**40)))),
        n_events=draw(st.one_of(st.none(), hnp.arrays("i8", n, elements=whole_numbers))),
        flags=draw(st.one_of(st.none(), hnp.arrays("u1", n))),
        tracks=draw(
            st.one_of(st.none(), st.lists(st.dictionaries(st.text(max_size=3), finite), min_size=n, max_size=n))
        ),
    )
    name = Key(kind=draw(st.sampled_from(KINDS)), tag=draw(st.text(max_size=200)), query=draw(st.text(max_size=200)))
    return head_of(name, columns, segment=draw(st.integers(0, 2**64 - 1)), since=draw(st.integers(0, 2**40))), columns


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return repr(a) == repr(b)


def payload(head: BlockHead, columns: Columns) -> memoryview:
    return memoryview(b"".join(map(bytes, encode(head, columns))))


def simple(n: int = 4, values: Any = None, **others: Any) -> tuple[BlockHead, Columns]:
    values = np.arange(n) * 0.5 if values is None else values
    columns = Columns(index=7, steps=np.arange(n), wall_times=np.arange(n) + 0.25, values=values, **others)
    return head_of(Key(kind="logged", tag="loss"), columns, segment=5), columns


@given(blocks())
def test_what_was_encoded_comes_back(given: tuple[BlockHead, Columns]) -> None:
    head, columns = given
    data = payload(head, columns)
    assert repr(decode_head(data)) == repr(head)
    found = decode(data, head)
    usual = np.arange(head.ordinal, head.ordinal + head.n)
    assert found.index == columns.index
    for name in ("steps", "wall_times", "values", "n_events", "flags", "tracks"):
        assert same(getattr(columns, name), getattr(found, name)), name
    assert same(usual if columns.ordinals is None else columns.ordinals, found.ordinals)


@given(blocks())
@example(simple())
def test_heads_are_read_alike_the_fast_and_the_slow_way(given: tuple[BlockHead, Columns]) -> None:
    data = payload(*given)
    heads = Heads()
    slow = heads._slow(data, len(data), 99)
    for _ in range(2):  # the second time, the series is known
        assert repr(heads._fast(data, len(data), 99)) == repr(slow)
    segment, name, row = slow
    entries = BlockEntries(name, heads.types, np.array([row], ROW))
    assert (segment, name) == (given[0].segment, given[0].key)
    assert (entries[0].offset, entries[0].length, entries[0].type) == (99, len(data), given[0].type)
    told = entries.head(row)
    assert repr(told) == repr(BlockHead(**{**{f: getattr(given[0], f) for f in BlockHead.__slots__}, "segment": 0}))
    assert BlockEntries.of(name, list(entries)).rows.tobytes()[16:] == entries.rows.tobytes()[16:]


@given(blocks(), st.data())
def test_a_flipped_bit_in_a_head_is_seen(given: tuple[BlockHead, Columns], data: st.DataObject) -> None:
    head, columns = given
    good = bytes(payload(head, columns))
    told = block._encode_head(head)
    start = good.index(told)
    place = data.draw(st.integers(8 * start, 8 * (start + len(told) + 5) - 1))
    bad = bytearray(good)
    bad[place // 8] ^= 1 << place % 8
    with pytest.raises(DamagedError):
        Heads().read(memoryview(bad), len(bad), 0)


@given(blocks(), st.data())
def test_mutated_blocks_are_refused_or_decoded_but_nothing_else(given: Any, data: st.DataObject) -> None:
    head, columns = given
    bad = bytearray(payload(head, columns))
    for _ in range(data.draw(st.integers(1, 4))):
        bad[data.draw(st.integers(0, len(bad) - 1))] = data.draw(st.integers(0, 255))
    cut = memoryview(bad)[: data.draw(st.integers(1, len(bad)))]
    try:
        Heads().read(cut, len(cut), 0)
    except DamagedError:
        return
    for read in (lambda: decode(cut, head), lambda: raw_values(cut, len(cut))):
        with contextlib.suppress(DamagedError):
            read()


@given(st.binary(max_size=200))
def test_bytes_that_are_no_block_are_refused(data: bytes) -> None:
    with pytest.raises(DamagedError):
        Heads().read(memoryview(data), len(data), 0)


@pytest.mark.parametrize(
    "value",
    [Tensor(np.eye(2)), Text("x"), Image(np.zeros((2, 2))), Histogram([1.0, 2.0]), {"a": [1, (2, 3.5)]}, 1 + 2j, 2**70],
    ids=lambda value: type(value).__name__,
)
def test_values_keep_their_kind(value: Any) -> None:
    head, columns = simple(2, [value, value])
    found = decode(payload(head, columns), head).values
    assert repr(found) == repr([value, value])


def test_arrays_of_one_shape_lie_row_after_row() -> None:
    arrays = [np.full((2, 3), i, np.float32) for i in range(4)]
    head, columns = simple(4, arrays)
    data = payload(head, columns)
    raw = raw_values(data[:400], len(data))
    assert raw is not None
    assert (raw.dtype, raw.shape) == (np.dtype("<f4"), (2, 3))
    assert bytes(data[raw.offset :]) == np.stack(arrays).tobytes()
    assert same(decode(data, head).values, np.stack(arrays))
    assert head.type == "float32[2, 3]"


def test_a_list_of_arrays_has_no_raw_values() -> None:
    head, columns = simple(2, [np.zeros(2), np.zeros(3)])
    data = payload(head, columns)
    assert raw_values(data, len(data)) is None


def hostile(*values: bytes, n: int = 1, padding: int = 0) -> memoryview:
    """Make a block with a valid head whose column of values is what is given."""
    head = BlockHead(segment=1, key=Key(kind="logged", tag="x"), n=n, index=0, ordinal=0, first_step=0, last_step=0,
                min_step=0, max_step=0, first_wall=0, last_wall=0, type="float")  # fmt: skip
    told = block._encode_head(head)
    column = b"".join(values)
    even = key(1, VARINT) + varint(5) + key(3, VARINT) + varint(zigzag(0)) + key(4, VARINT) + varint(zigzag(1))
    raw = key(1, VARINT) + varint(12) + key(7, BYTES) + varint(8 * n) + bytes(8 * n)
    parts = b"".join(
        key(number, BYTES) + varint(len(data)) + data
        for number, data in ((1, told), (5, even), (6, raw), (3, column), (99, bytes(padding)))
    )
    parts = key(2, FIXED32) + struct.pack("<I", checksum(told)) + parts
    return memoryview(key(1, FIXED64) + bytes(8) + key(1001, BYTES) + varint(len(parts)) + parts)


HUGE = varint(2**62)
FLOATS = key(1, VARINT) + varint(12)


@pytest.mark.parametrize(
    "column",
    [
        FLOATS + key(2, BYTES) + varint(len(HUGE)) + HUGE + key(7, BYTES) + varint(0),
        FLOATS + key(2, BYTES) + varint(len(HUGE) + 1) + HUGE + varint(0) + key(7, BYTES) + varint(0),
        FLOATS + key(2, BYTES) + varint(len(HUGE) * 2) + HUGE * 2 + key(7, BYTES) + varint(8) + bytes(8),
        FLOATS + key(2, BYTES) + varint(10) + varint(2**64 - 1) + key(7, BYTES) + varint(8) + bytes(8),
        FLOATS + key(2, BYTES) + varint(40) + bytes([1]) * 40 + key(7, BYTES) + varint(8) + bytes(8),
        FLOATS + key(7, BYTES) + varint(2**40),
        key(1, VARINT) + varint(999) + key(7, BYTES) + varint(8) + bytes(8),
        key(5, BYTES) + varint(5) + b"\xdd\xff\xff\xff\xff",
        key(5, BYTES) + varint(5) + b"\xdb\xff\xff\xff\xff",
        key(1, VARINT) + varint(5) + key(3, VARINT) + varint(2**64 - 1) + key(4, VARINT) + varint(2**64 - 1),
        FLOATS,
        b"",
    ],
)
def test_absurd_columns_allocate_nothing(column: bytes) -> None:
    data = hostile(column)
    head = decode_head(data)
    tracemalloc.start()
    try:
        found = decode(data, head)
        assert not found.values.size or found.values.nbytes < 100
    except DamagedError:
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20


@pytest.mark.parametrize("n", [2, 1000, 2**20, 2**20 + 1, 2**32 - 1])
def test_a_head_cannot_claim_more_records_than_there_are_bytes(n: int) -> None:
    data = bytearray(hostile(FLOATS + key(7, BYTES) + varint(8) + bytes(8)))
    good = bytes(data)
    told = good[good.index(b"\x09" + struct.pack("<Q", 1)) :]
    old = block._encode_head(decode_head(memoryview(good)))
    new = old.replace(b"\x28\x01", b"\x28" + varint(n))
    assert told
    body = key(1, BYTES) + varint(len(new)) + new + key(2, FIXED32) + struct.pack("<I", checksum(new))
    event = memoryview(key(1, FIXED64) + bytes(8) + key(1001, BYTES) + varint(len(body)) + body)
    if 8 * n > len(event):
        with pytest.raises(DamagedError):
            Heads().read(event, len(event), 0)


def test_counts_beyond_what_can_be_counted_are_refused() -> None:
    head, columns = simple()
    far = BlockHead(**{**{f: getattr(head, f) for f in BlockHead.__slots__}, "index": 2**63})
    data = payload(far, columns)
    with pytest.raises(DamagedError):
        Heads().read(data, len(data), 0)


def test_steps_that_are_no_numbers_have_no_place() -> None:
    columns = Columns(index=0, steps=np.array([math.nan, 2.0, 1.0]), wall_times=np.zeros(3), values=np.zeros(3))
    head = head_of(Key(kind="logged", tag="x"), columns, segment=1)
    assert (head.min_step, head.max_step) == (1.0, 2.0)
    assert math.isnan(head.first_step)


def test_a_long_name_is_read_from_a_longer_beginning() -> None:
    head, columns = simple()
    long = BlockHead(
        **{**{f: getattr(head, f) for f in BlockHead.__slots__}, "key": Key(kind="stream", tag="x", query="q" * 9000)}
    )
    data = payload(long, columns)
    with pytest.raises(DamagedError):
        Heads().read(data[:4096], len(data), 0)
    assert Heads().read(data[:9500], len(data), 0)[1] == long.key


def test_numbers_whose_distance_is_beyond_64_bits_are_not_even() -> None:
    far = 2**62 + 1
    head, columns = simple(3, n_events=np.array([-far + 2, far, -far + 2]))
    found = decode(payload(head, columns), head)
    assert same(found.n_events, columns.n_events)


def test_an_event_without_a_block_is_refused_by_decode() -> None:
    with pytest.raises(DamagedError):
        decode(memoryview(b""), simple()[0])
