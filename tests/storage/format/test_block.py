"""Blocks: what was encoded comes back with its types; what is no block is refused, whatever it claims."""

from __future__ import annotations

import contextlib
import math
import tracemalloc
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sightglass.core.columns import Columns
from sightglass.core.errors import DamagedError
from sightglass.core.values import Histogram, Image, Tensor, Text
from sightglass.storage.format import block
from sightglass.storage.format.block import COLUMNS, HEAD, HEAD_BYTES, KINDS, Key, decode, encode, raw_values
from sightglass.storage.format.framing import checksum
from sightglass.storage.format.index import BlockEntries, Heads
from sightglass.storage.format.protobuf import walk
from sightglass.storage.format.summary import DATA_TYPES

from ..blocks import changed, entry_of  # noqa: TID252  tests are not a package

pytestmark = pytest.mark.smoke

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


OWN = [kind for kind in KINDS if kind != "wide"]  # whose blocks hold one series; for wide ones see test_wide


class Given(NamedTuple):
    """What a block is made of."""

    key: Key
    columns: Columns
    segment: int = 5
    since: int = 0
    n_missed: int = 0

    @property
    def payload(self) -> memoryview:
        """The block."""
        key, columns, segment, since, n_missed = self
        return memoryview(b"".join(encode(key, columns, segment=segment, since=since, n_missed=n_missed)))


@st.composite
def blocks(draw: st.DrawFn) -> Given:
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
    name = Key(kind=draw(st.sampled_from(OWN)), tag=draw(st.text(max_size=200)), query=draw(st.text(max_size=200)))
    return Given(
        name, columns, draw(st.integers(0, 2**64 - 1)), draw(st.integers(0, 2**40)), draw(st.integers(0, 2**40))
    )


def same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return repr(a) == repr(b)


def simple(n: int = 4, values: Any = None, **others: Any) -> Given:
    values = np.arange(n) * 0.5 if values is None else values
    columns = Columns(index=7, steps=np.arange(n), wall_times=np.arange(n) + 0.25, values=values, **others)
    return Given(Key(kind="logged", tag="loss"), columns)


@given(blocks())
def test_what_was_encoded_comes_back(given: Given) -> None:
    columns, data = given.columns, given.payload
    found = decode(data)
    first = columns.index if columns.ordinals is None else int(columns.ordinals[0])
    assert found.index == columns.index
    for name in ("steps", "wall_times", "values", "n_events", "flags", "tracks"):
        assert same(getattr(columns, name), getattr(found, name)), name
    usual = np.arange(first, first + len(columns))
    assert same(usual if columns.ordinals is None else columns.ordinals, found.ordinals)


@given(blocks())
@example(simple())
def test_a_head_says_what_is_in_a_block(given: Given) -> None:
    steps, walls, columns = given.columns.steps, given.columns.wall_times, given.columns
    entry = entry_of(given.payload, offset=99)
    assert (entry.offset, entry.length, entry.key) == (99, len(given.payload), given.key)
    assert (entry.n, entry.index, entry.since, entry.n_missed) == (
        len(columns), columns.index, given.since, given.n_missed
    )  # fmt: skip
    with np.errstate(invalid="ignore"):
        extents = [steps[0], steps[-1], np.fmin.reduce(steps), np.fmax.reduce(steps), walls[0], walls[-1]]
    told = [entry.first_step, entry.last_step, entry.min_step, entry.max_step, entry.first_wall, entry.last_wall]
    assert repr(told) == repr([float(extent) for extent in extents])
    assert BlockEntries.of(given.key, [entry])[0] == entry or any(map(math.isnan, told))


@given(st.lists(blocks(), min_size=1, max_size=6), st.data())
def test_many_heads_are_read_at_once_as_one_by_one(several: list[Given], data: st.DataObject) -> None:
    payloads = [bytes(given.payload) for given in several]
    i = data.draw(st.integers(0, len(payloads)))
    payloads[i:i] = [data.draw(st.binary(max_size=300))]
    lengths = list(map(len, payloads))
    starts = (np.cumsum(lengths) - lengths).tolist()
    together = Heads()
    numbers, rows = together.read(b"".join(payloads), starts, lengths, starts)
    for payload, number, row, start in zip(payloads, numbers, rows, starts, strict=True):
        if number < 0:
            with pytest.raises(DamagedError):
                entry_of(payload)
            continue
        named = together.named[number]
        assert repr(BlockEntries(named.key, together.types, np.array([row]))[0]) == repr(
            entry_of(payload, offset=start)
        )
    assert (numbers < 0).sum() <= 1


@given(blocks())
def test_a_head_is_one_struct_of_fixed_size(given: Given) -> None:
    data = given.payload
    head = np.frombuffer(data, HEAD, 1)[0]
    assert block._HEAD.size == HEAD_BYTES == HEAD.itemsize
    flat = [part for name in HEAD.names or () if name not in ("size", "reserved") for part in np.ravel(head[name])]
    struct_of = block._HEAD.unpack_from(data)
    assert repr([*struct_of[:3], *struct_of[4:]]) == repr([part.item() for part in flat])
    for name, code, offset in zip(COLUMNS, head["codes"], head["offsets"], strict=True):
        assert (offset == 0) == (code == block.ABSENT), name
        assert offset % 8 == 0, name
    assert bytes(data[HEAD_BYTES:]).startswith(
        b"".join(text.encode("utf-8", "surrogatepass") for text in (given.key.tag, given.key.query))
    )


@given(blocks())
def test_other_readers_see_a_wall_time_and_a_field_to_skip(given: Given) -> None:
    fields = list(walk(given.payload))
    assert [(number, kind) for number, kind, _ in fields] == [(1, 1), (1001, 2)]
    assert bytes(fields[0][2]) == given.columns.wall_times[-1:].tobytes()  # type: ignore[arg-type]
    assert len(fields[1][2]) == len(given.payload) - 16  # type: ignore[arg-type]


@given(blocks(), st.data())
def test_a_flipped_bit_in_a_head_is_seen(given: Given, data: st.DataObject) -> None:
    bad = bytearray(given.payload)
    n_names = int(np.frombuffer(bad, HEAD, 1)["texts"].sum())
    place = data.draw(st.integers(8 * 16, 8 * (HEAD_BYTES + n_names) - 1))
    bad[place // 8] ^= 1 << place % 8
    with pytest.raises(DamagedError):
        entry_of(bad)


@given(blocks(), st.data())
def test_mutated_blocks_are_refused_or_decoded_but_nothing_else(given: Given, data: st.DataObject) -> None:
    bad = bytearray(given.payload)
    for _ in range(data.draw(st.integers(1, 4))):
        bad[data.draw(st.integers(0, len(bad) - 1))] = data.draw(st.integers(0, 255))
    cut = memoryview(bad)[: data.draw(st.integers(1, len(bad)))]
    for read in (
        lambda: entry_of(cut),
        lambda: decode(cut),
        lambda: raw_values(lambda at, n: cut[at : at + n], len(cut)),
    ):
        with contextlib.suppress(DamagedError):
            read()


def test_evenly_spaced_numbers_that_do_not_fit_their_type_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 100
    times = np.arange(float(n))
    given = Given(Key(kind="logged", tag="x"), Columns(index=0, steps=np.arange(n), wall_times=times, values=times))
    assert decode(given.payload).steps.tolist() == [*range(n)]
    pair = block._PAIR
    monkeypatch.setattr(block, "NUMERIC", dict.fromkeys(block.NUMERIC, np.dtype("<f2")))
    bad = bytes(given.payload).replace(pair.pack(0, 1), pair.pack(10**9, 1))
    with pytest.raises(DamagedError):
        decode(memoryview(bad))


@given(st.binary(max_size=300))
def test_bytes_that_are_not_a_block_are_refused(data: bytes) -> None:
    with pytest.raises(DamagedError):
        entry_of(data)
    with pytest.raises(DamagedError):
        decode(memoryview(data))


@pytest.mark.parametrize(
    "value",
    [Tensor(np.eye(2)), Text("x"), Image(np.zeros((2, 2))), Histogram([1.0, 2.0]), {"a": [1, (2, 3.5)]}, 1 + 2j, 2**70],
    ids=lambda value: type(value).__name__,
)
def test_values_keep_their_kind(value: Any) -> None:
    found = decode(simple(2, [value, value]).payload).values
    assert repr(found) == repr([value, value])


def test_arrays_of_one_shape_lie_row_after_row() -> None:
    arrays = [np.full((2, 3), i, np.float32) for i in range(4)]
    data = simple(4, arrays).payload
    raw = raw_values(lambda at, n: data[at : at + n], len(data))
    assert raw is not None
    assert (raw.dtype, raw.shape) == (np.dtype("<f4"), (2, 3))
    assert bytes(data[raw.offset :]) == np.stack(arrays).tobytes()
    assert same(decode(data).values, np.stack(arrays))
    assert entry_of(data).type == "float32[2, 3]"


def test_a_list_of_arrays_has_no_raw_values() -> None:
    data = simple(2, [np.zeros(2), np.zeros(3)]).payload
    assert raw_values(lambda at, n: data[at : at + n], len(data)) is None


FLOAT = DATA_TYPES["float64"]
HUGE = 2**62
arrays = simple(1, np.zeros((1, 3)))
odd = simple(3, ["a", 1, None], tracks=[{"x": 1.0}] * 3)


def with_shape(*shape: int) -> bytes:
    """Return a block whose head claims arrays of a shape, which lies where its numbers are."""
    data = bytearray(changed(simple(8).payload, n_dims=len(shape)))
    at = int(np.frombuffer(data, HEAD, 1)["offsets"][0, -1])
    data[at : at + 8 * len(shape)] = np.array(shape, "<i8").tobytes()
    return bytes(data)


@pytest.mark.parametrize("shape", [(0, 2**62, 2**62), (2**62, 0, 8, 8), (0, 2**41), (-1, 0)])
def test_an_empty_array_cannot_claim_more_than_numpy_allows(shape: tuple[int, ...]) -> None:
    data = with_shape(*shape)
    for read in (decode, lambda data: raw_values(lambda at, n: data[at : at + n], len(data))):
        with pytest.raises(DamagedError):
            read(memoryview(data))


def with_sizes(*sizes: int) -> bytes:
    """Return a block whose values are a list of which the parts claim these sizes."""
    data = bytearray(odd.payload)
    at = int(np.frombuffer(data, HEAD, 1)["offsets"][0, -1])
    data[at : at + 8 * len(sizes)] = np.array(sizes, "<u8").tobytes()
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [
        with_shape(HUGE),
        with_shape(0, HUGE),
        with_shape(HUGE, HUGE),
        with_shape(0, HUGE, HUGE, HUGE),
        with_shape(-1),
        with_shape(-1, -8),
        changed(simple(8).payload, n_dims=40),
        changed(simple(8).payload, n_dims=255),
        changed(simple(8).payload, values=block.ABSENT),
        changed(simple(8).payload, values=99),
        changed(simple(8).payload, values=block.EVEN),
        changed(simple(8).payload, values=block.PACKED),
        changed(simple(8).payload, values=DATA_TYPES["bool"]),
        changed(simple(8).payload, values_offset=2**32 - 1),
        changed(simple(8).payload, steps=block.ABSENT),
        changed(simple(8).payload, steps=block.PACKED),
        changed(simple(8).payload, wall_times=block.ABSENT),
        changed(simple(8).payload, tracks=FLOAT),
        changed(simple(8).payload, n_events=FLOAT),
        changed(simple(8).payload, flags=block.EVEN | DATA_TYPES["bfloat16"]),
        changed(simple(8, flags=np.zeros(8, np.uint8)).payload, flags_offset=2**32 - 8),
        changed(odd.payload, tracks_offset=0),
        with_sizes(0),
        with_sizes(HUGE),
        with_sizes(1, HUGE),
        with_sizes(2, 5, 2**63),
        changed(odd.payload, n=2),
    ],
)
def test_absurd_columns_allocate_nothing(data: bytes) -> None:
    decode(simple().payload)
    tracemalloc.start()
    try:
        found = decode(memoryview(data))
        assert len(found) < 10
    except DamagedError:
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**18


@pytest.mark.parametrize("n", [0, -1, 1000, 2**20, 2**20 + 1, 2**32 - 1, HUGE])
def test_a_head_cannot_claim_more_records_than_there_are_bytes(n: int) -> None:
    data = changed(simple().payload, n=n)
    with pytest.raises(DamagedError):
        entry_of(data)
    with pytest.raises(DamagedError):
        decode(memoryview(data))


@pytest.mark.parametrize("name", ["index", "ordinal", "since", "n_missed"])
@pytest.mark.parametrize("count", [-1, 2**62])
def test_counts_beyond_what_can_be_counted_are_refused(name: str, count: int) -> None:
    assert entry_of(changed(simple().payload, **{name: 2**62 - 1}))
    with pytest.raises(DamagedError):
        entry_of(changed(simple().payload, **{name: count}))


@pytest.mark.parametrize("fields", [{"format": 1}, {"format": 3}, {"kind": 5}, {"texts": (2**32 - 1, 1, 1)}])
def test_heads_of_another_form_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(DamagedError):
        entry_of(changed(simple().payload, **fields))


def test_texts_that_are_not_utf_8_are_refused() -> None:
    data = bytearray(simple().payload)
    data[HEAD_BYTES] = 0xFF
    data[16:20] = checksum(data[20 : HEAD_BYTES + 9]).to_bytes(4, "little")
    with pytest.raises(DamagedError):
        entry_of(data)


def test_steps_that_are_not_numbers_have_no_place() -> None:
    columns = Columns(index=0, steps=np.array([math.nan, 2.0, 1.0]), wall_times=np.zeros(3), values=np.zeros(3))
    entry = entry_of(Given(Key(kind="logged", tag="x"), columns).payload)
    assert (entry.min_step, entry.max_step) == (1.0, 2.0)
    assert math.isnan(entry.first_step)


def test_a_long_name_is_read_from_a_longer_beginning() -> None:
    key = Key(kind="stream", tag="x", query="q" * 9000)
    data = simple()._replace(key=key).payload
    with pytest.raises(DamagedError):
        entry_of(data[:4096], length=len(data))
    assert entry_of(data[:9500], length=len(data)).key == key


def test_numbers_whose_distance_is_beyond_64_bits_are_not_even() -> None:
    far = 2**62 + 1
    columns = simple(3, n_events=np.array([-far + 2, far, -far + 2])).columns
    assert same(decode(simple()._replace(columns=columns).payload).n_events, columns.n_events)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.integers(3, 40))
def test_evenly_spaced_integers_come_back(first: int, distance: int, n: int) -> None:
    if -(2**63) <= first + distance * (n - 1) < 2**63:
        steps = np.array([first + distance * i for i in range(n)], np.int64)
        data = simple(n)._replace(columns=Columns(index=0, steps=steps, wall_times=np.zeros(n), values=steps)).payload
        assert same(decode(data).steps, steps)
        assert len(data) <= HEAD_BYTES + 8 + 16 + 16 * n
