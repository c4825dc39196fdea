"""Messages and blocks: what goes in comes out, with its types, within the limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightglass.core.columns import of_rows
from sightglass.core.errors import UnsendableError, WireError
from sightglass.core.values import Histogram, Tensor, Text
from sightglass.protocol import messages

pytestmark = pytest.mark.smoke

FROM_CLIENT = [
    messages.Hello(version=1, client="me"),
    messages.Ping(),
    messages.Bye(reason="enough"),
    messages.Ask(request=1, what="describe"),
    messages.Open(request=2, query="batch.loss"),
    messages.Close(stream=3),
    messages.EndGroup(request=4, stream=3),
    messages.Readers(stream=3, names=("tab 1", "tab 2")),
    messages.RunCommand(request=5, kind="set", name="lr", value=b"\x01", at="epoch", hold=True),
    messages.Publish(request=6, event="best"),
    messages.RecordQuery(request=7, query="batch.loss", record=False),
    messages.Block(stream=1, index=2, n=0, steps=b"d", wall_times=b"", values=b"\x90"),
]
FROM_AGENT = [
    messages.Welcome(version=1, run="job", id="abc", may_command=True, lease_s=12.0),
    messages.Reply(request=1, value=b"\xc0"),
    messages.Refused(request=1, error="QueryError", reason="no"),
    messages.Opened(request=1, stream=2, tag="batch.loss", note="so"),
    messages.Moved(stream=1, to=2),
    messages.Waiting(request=1, note="so"),
    messages.Ended(stream=1, error="", reason=""),
    *FROM_CLIENT[-1:],
    messages.Bye(),
    messages.Ping(),
]


@pytest.mark.parametrize("message", FROM_CLIENT, ids=lambda message: type(message).__name__)
def test_messages_of_clients_come_back(message):
    assert messages.decode_from_client(messages.encode(message, [b"raw"])) == (message, [b"raw"])


@pytest.mark.parametrize("message", FROM_AGENT, ids=lambda message: type(message).__name__)
def test_messages_of_runs_come_back(message):
    assert messages.decode_from_run(messages.encode(message, [b"raw"])) == (message, [b"raw"])


def test_every_type_of_message_is_tried():
    tried = {type(message) for message in (*FROM_CLIENT, *FROM_AGENT)}
    assert tried == set(messages.Message.__subclasses__())


def test_each_side_speaks_its_own_types():
    with pytest.raises(WireError, match="version 2"):
        messages.decode_from_client(messages.encode(FROM_AGENT[0]))
    with pytest.raises(WireError, match="version 2"):
        messages.decode_from_run(messages.encode(FROM_CLIENT[0]))


def test_further_fields_of_a_later_version_are_skipped_and_missing_ones_have_defaults():
    import msgspec

    assert messages.decode_from_client([msgspec.msgpack.encode(["ask", 1, "describe", 0, "new"])])[0] == FROM_CLIENT[3]
    assert messages.decode_from_client([msgspec.msgpack.encode(["bye"])])[0] == messages.Bye()


steps = st.integers(-(2**62), 2**62) | st.floats(allow_nan=False)
floats = st.floats(allow_nan=False)
extras = st.none() | st.tuples(
    st.integers(0, 2**40),
    st.integers(0, 7),
    st.none() | st.dictionaries(st.text(max_size=4), floats, max_size=2),
)
uniform = st.sampled_from(
    [
        floats,
        st.integers(-(2**63), 2**63 - 1),
        st.integers(-(2**70), 2**70),
        st.booleans(),
        st.text(max_size=5),
        st.binary(max_size=5),
    ]
).flatmap(lambda kind: st.lists(kind, min_size=1, max_size=6))
mixed = st.lists(
    st.recursive(
        st.none() | floats | st.integers() | st.booleans() | st.text(max_size=5) | st.complex_numbers(allow_nan=False),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.tuples(inner, inner)
            | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        ),
        max_leaves=6,
    ),
    min_size=1,
    max_size=6,
)


def usual(extra):
    n_events, flags, tracks = extra or (1, 3, None)
    return n_events, flags, tracks or {}


@given(uniform | mixed, st.integers(0, 2**40), st.data())
def test_a_block_is_its_rows(values, index, data):
    column = data.draw(st.sampled_from([st.integers(-(2**62), 2**62), st.floats(allow_nan=False)]))
    rows = [
        (index + i, data.draw(column), data.draw(floats), value, data.draw(extras), i) for i, value in enumerate(values)
    ]
    block, buffers = messages.decode_from_run(messages.encode_block(7, of_rows(rows)))
    assert (block.stream, block.index, block.n) == (7, index, len(rows))
    got = messages.decode_block(block, buffers)
    at, wall_times, out = got.steps, got.wall_times, got.values
    n_events, flags, tracks = got.n_events, got.flags, got.tracks
    assert at.tolist() == [row[1] for row in rows]
    assert wall_times.tolist() == [row[2] for row in rows]
    out = out.tolist() if isinstance(out, np.ndarray) else out
    assert out == values
    assert list(map(type, out)) == list(map(type, values))
    for i, row in enumerate(rows):
        decoded = (
            1 if n_events is None else int(n_events[i]),
            3 if flags is None else int(flags[i]),
            tracks[i] if tracks else {},
        )
        assert decoded == usual(row[4])


@pytest.mark.parametrize("dtype", ["float16", "float32", "int8", "uint64", "bool", "complex64", "<U3", "datetime64[s]"])
def test_numpy_numbers_keep_their_type(dtype):
    values = np.array(["abc", "de", ""]) if dtype == "<U3" else np.zeros(3, dtype)
    rows = [(i, i, 0.0, value, None, i) for i, value in enumerate(values)]
    block, buffers = messages.decode_from_run(messages.encode_block(7, of_rows(rows)))
    out = messages.decode_block(block, buffers).values
    assert out.dtype == values.dtype
    assert np.array_equal(out, values)


def test_arrays_and_kinds_come_back():
    big = np.arange(10_000.0).reshape(100, 100)
    values = [big, Histogram([1.0, 2.0]), Tensor(big), Text("hello"), (1, [2], {"a": None})]
    block, buffers = messages.decode_from_run(
        messages.encode_block(1, of_rows([(i, 0, 0.0, v, None, i) for i, v in enumerate(values)]))
    )
    assert len(buffers) == 2
    out = messages.decode_block(block, buffers).values
    assert np.array_equal(out[0], big)
    assert np.array_equal(out[2].value, big)
    assert (out[1], out[3], out[4]) == (values[1], values[3], values[4])


def test_integers_of_any_length_come_back():
    values = [2**70, -1, 5]
    block, buffers = messages.decode_from_run(
        messages.encode_block(1, of_rows([(i, 0, 0.0, v, None, i) for i, v in enumerate(values)]))
    )
    assert messages.decode_block(block, buffers).values == values
    assert {type(value) for value in messages.decode_block(block, buffers).values} == {int}


def test_odd_numbers_come_back():
    rows = [
        (i, step, 0.0, value, None, i)
        for i, (step, value) in enumerate([(0, math.nan), (0.5, math.inf), (np.int32(3), -math.inf)])
    ]
    block, buffers = messages.decode_from_run(messages.encode_block(1, of_rows(rows)))
    got = messages.decode_block(block, buffers)
    at, values = got.steps, got.values
    assert at.tolist() == [0, 0.5, 3]
    assert [str(value) for value in values] == ["nan", "inf", "-inf"]


@pytest.mark.parametrize(("limit", "frames"), [
    ("no frame", []),
    ("4096 frames, got 4097", [b""] * 4097),
    ("16777216 bytes, got 16777217", [bytes(2**24 + 1)]),
    ("67108864 bytes, got 67108865", [b"", bytes(2**26 + 1)]),
])  # fmt: skip
def test_limits(limit, frames):
    with pytest.raises(WireError) as caught:
        messages.decode_from_client(frames)
    assert limit in str(caught.value)


@pytest.mark.parametrize(("value", "n", "n_blocks"), [
    (1.5, 4_000, 1), (1.5, 4_001, 2),
    ("a" * 2**20, 4, 1), ("a" * 2**20, 5, 2), ("a" * 2**22, 3, 3), ("a" * 2**23, 2, 2),
    ({str(i): np.zeros(600) for i in range(100)}, 8, 1), ({str(i): np.zeros(600) for i in range(100)}, 17, 3),
    ([2**8_000] * 100, 200, 2),  # larger than it seems: its header is halved
])  # fmt: skip
def test_blocks_are_split_at_the_limits(value, n, n_blocks):
    rows = [(i, i, 0.0, value, None, i) for i in range(n)]
    parts = [messages.decode_from_run(frames) for frames in messages.encode_blocks(7, of_rows(rows))]
    assert [block.index + i for block, _ in parts for i in range(block.n)] == list(range(n))
    assert len(parts) == n_blocks


def test_what_cannot_travel_is_refused():
    with pytest.raises(UnsendableError, match=r"set at \$\[0\]\.a$"):
        messages.encode_block(1, of_rows([(0, 0, 0.0, {"a": set()}, None, 0)]))
