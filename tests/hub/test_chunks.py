"""Messages come out of their chunks as they went in; whatever else arrives is refused, and nothing grows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightglass.core.errors import WireError
from sightglass.hub.chunks import (
    ALIGNMENT,
    HEAD,
    LAST,
    MAX_CHUNKS,
    MORE,
    READ,
    Allowance,
    Dialogue,
    goodbye,
    is_broken,
    is_first,
    kind_of,
)
from sightglass.protocol.messages import MAX_FRAMES

pytestmark = pytest.mark.smoke

WIDE = Allowance(1_000, 2**30, 2**20)
NARROW = Allowance(4, 1_000, 4_000)


def pair(allowance=WIDE):
    """Return two ends of a dialogue."""
    return Dialogue(out=allowance, into=allowance), Dialogue(out=allowance, into=allowance)


def pass_on(chunks, to):
    """Let an end take chunks in; return the messages that they make."""
    return [message for chunk in chunks if (message := to.add(chunk)) is not None]


@given(
    messages=st.lists(st.lists(st.binary(max_size=300), min_size=1, max_size=5), max_size=8),
    size=st.integers(HEAD.size + 1, 400),
)
def test_messages_come_out_as_they_went_in(messages, size):
    here, there = pair()
    for frames in messages:
        chunks = here.cut(frames, size)
        assert all(len(chunk) <= size for chunk in chunks)
        (found,) = pass_on(chunks, there)
        assert [bytes(frame) for frame in found] == frames


def test_arrays_come_out_where_they_can_be_read_fast():
    here, there = pair()
    array = np.arange(1_000.0)
    (found,) = pass_on(here.cut([b"odd", b"", memoryview(array).cast("B")], 500), there)
    read = np.frombuffer(found[2])
    assert read.flags.aligned
    assert read.ctypes.data % ALIGNMENT == 0
    np.testing.assert_array_equal(read, array)


def test_a_buffer_counts_its_bytes_not_its_items():
    here, there = pair()
    (found,) = pass_on(here.cut([memoryview(np.arange(10))], 500), there)
    assert bytes(found[0]) == np.arange(10).tobytes()


@given(lost=st.integers(0, 9))
def test_a_lost_chunk_is_noticed_at_the_next_one(lost):
    here, there = pair()
    chunks = here.cut([bytes(1_000)], HEAD.size + 101) + here.cut([b"next"], 500)
    n = len(chunks)
    assert n > 10
    with pytest.raises(WireError, match=f"chunk {lost}, got {lost + 1}"):
        pass_on(chunks[:lost] + chunks[lost + 1 :], there)


def test_a_chunk_that_comes_twice_is_refused():
    here, there = pair()
    (chunk,) = here.cut([b"once"], 500)
    assert pass_on([chunk], there)
    with pytest.raises(WireError, match="chunk 1, got 0"):
        there.add(chunk)


def test_a_sender_waits_for_a_reader_and_no_longer():
    here, there = pair(NARROW)
    sent = [here.cut([b"%d" % n], 500) for n in range(5)]
    assert [chunks is not None for chunks in sent] == [True] * 4 + [False]
    messages = [message for chunks in sent[:4] for message in pass_on(chunks, there)]
    told = there.read(messages[0])  # a quarter
    assert kind_of(told) == READ
    assert here.add(told) is None
    assert here.cut([b"more"], 500) is not None
    assert here.cut([b"too many"], 500) is None


def test_a_large_message_travels_alone():
    here, _ = pair(NARROW)
    assert here.cut([bytes(2_000)], 500) is not None
    assert here.cut([b"x"], 500) is None


@given(sizes=st.lists(st.integers(0, 900), min_size=1, max_size=60))
def test_a_reader_that_reads_lets_any_sender_go_on(sizes):
    here, there = pair(NARROW)
    for size in sizes:
        chunks = here.cut([bytes(size)], 200)
        assert chunks is not None
        (message,) = pass_on(chunks, there)
        if told := there.read(message):
            here.add(told)


def test_who_sends_more_than_is_allowed_is_refused():
    freely, there = Dialogue(out=WIDE, into=WIDE), Dialogue(out=NARROW, into=NARROW)
    for n in range(4):
        assert pass_on(freely.cut([b"%d" % n], 500), there)
    with pytest.raises(WireError, match="unread"):
        pass_on(freely.cut([b"one more"], 500), there)


@pytest.mark.parametrize("size", [0, 1_000])
def test_a_message_that_never_ends_is_refused(size):
    there = Dialogue(out=NARROW, into=NARROW)
    endless = [HEAD.pack(MORE, number) + bytes(size) for number in range(MAX_CHUNKS + 1)]
    with pytest.raises(WireError, match="4000 bytes"):
        pass_on(endless, there)
    assert there.part_bytes < 200_000


def test_a_reader_that_claims_more_than_was_sent_is_believed_no_further():
    here, _ = pair(NARROW)
    assert here.cut([b"one"], 500) is not None
    here.add(HEAD.pack(READ, 2**63))
    assert sum(here.cut([b"x"], 500) is not None for _ in range(10)) == 4


@given(chunks=st.lists(st.binary(max_size=60) | st.builds(lambda kind, number, rest: HEAD.pack(kind, number) + rest,
       st.integers(0, 5), st.integers(0, 3), st.binary(max_size=60)), max_size=10))  # fmt: skip
def test_any_bytes_are_read_or_refused(chunks):
    there = Dialogue(out=NARROW, into=NARROW)
    for chunk in chunks:
        try:
            kind_of(chunk), is_first(chunk)
            there.add(chunk)
        except WireError:
            return


@pytest.mark.parametrize(
    "body",
    [b"", bytes(4), (MAX_FRAMES + 1).to_bytes(4, "little"), bytes([1, 0, 0, 0, 255, 0, 0, 0]), bytes([2, 0, 0, 0])],
)
def test_a_body_that_is_none_is_refused(body):
    with pytest.raises(WireError, match="body"):
        Dialogue(out=WIDE, into=WIDE).add(HEAD.pack(LAST, 0) + body)


def test_a_goodbye_says_whether_anything_was_lost():
    assert not is_broken(goodbye())
    assert is_broken(goodbye(broken=True))
    assert not is_first(goodbye())
