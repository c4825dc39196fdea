"""What answers in place of a run that is gone: messages in, messages out, from what its hub keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightglass.client.kept import GoneRun, KeptStreamReading
from sightglass.client.record_buffer import RecordBuffer
from sightglass.client.resumable_stream import ResumableStream
from sightglass.core import codec
from sightglass.core.columns import Columns
from sightglass.core.errors import QueryError, WireError
from sightglass.protocol import block_codec, kept, messages
from sightglass.protocol.kept_reader import KeptMessage, stored_of
from sightglass.protocol.pieces import Cutter
from sightglass.query.parser import parse

N = 60
PIECE_BYTES = 200  # of a message of several


def stored(subject: str, content: Any) -> KeptMessage:
    return KeptMessage(subject, 1, 100.0, kept.encode(content))


def run_of(*streams: kept.KeptStream, ended: str = "the end") -> GoneRun:
    told, _ = codec.encode({"name": "far", "id": "abc", "pid": 7, "started": 1.0})
    run = kept.KeptRun(version=kept.VERSION, description=told, buffers=[], ended=ended)
    heads = [stored(f"sightglass.kept.node.abc.{one.stream}", one) for one in streams]
    return GoneRun(stored("sightglass.kept.node.abc.run", run), heads)


def head_of(query: str = "batch.n", stream: int = 7, **options: Any) -> kept.KeptStream:
    return kept.KeptStream(query=parse(query).key, stream=stream, tag=query, **options)


def pieces(sizes: Sequence[int], *, stream: int = 7, base: int = 0) -> list[bytes]:
    """Return the pieces of blocks of these sizes, whose records are their own numbers and a base."""
    cutter, made, index = Cutter(), [], 0
    for size in sizes:
        numbers = np.arange(index, index + size)
        columns = Columns(index=index, steps=numbers, wall_times=numbers * 1.0, values=numbers + float(base))
        made += cutter.cut(block_codec.encode_block(stream, columns), PIECE_BYTES)
        index += size
    return made


def read(stream: ResumableStream, run: GoneRun, *stored: Sequence[bytes]) -> None:
    """Let a client read what is stored of each stream."""
    request = stream.request(1, "abc")
    reading = KeptStreamReading(run.find(request), request, run.ended_as)
    answers: list[Any] = []
    for parts in stored:
        answers += reading.take(KeptMessage("", n, 0.0, one) for n, one in enumerate(parts))
        assert reading.go_on() == (parts is not stored[-1])
    for frames in [*answers, *reading.finish()]:
        message, buffers = messages.decode_from_agent(frames)
        match message:
            case messages.Opened():
                stream.opened(message, "abc")
            case messages.Block():
                stream.add(block_codec.decode_block(message, buffers))
            case messages.Ended():
                counts = codec.decode(message.counts) if message.counts else {}
                stream.finish(counts, None)


def client_stream() -> ResumableStream:
    return ResumableStream("batch.n", RecordBuffer(tag="batch.n", run="far"))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.sets(st.integers(0, 40)), st.integers(0, 5), st.data())
def test_whatever_is_lost_each_record_comes_once_or_is_counted(
    sizes: list[int], lost: set[int], n_oldest: int, data: st.DataObject
) -> None:
    """Pieces are lost on the way, and the oldest left out by the limits; a client may have seen some records before."""
    n = sum(sizes)
    head = head_of(over=True, counts=codec.encode({"n_records": n})[0])
    parts = [one for number, one in enumerate(pieces(sizes)) if number not in lost][n_oldest:]
    stream, n_seen = client_stream(), data.draw(st.integers(0, n))
    if n_seen:
        stream.opened(messages.Opened(request=1, stream=7, tag="batch.n", index=0), "abc")
        columns = np.arange(n_seen)
        stream.add(Columns(index=0, steps=columns, wall_times=columns * 1.0, values=columns * 1.0))
    read(stream, run_of(head), parts)
    values = [record.value for record in stream.buffer.records()]
    assert values == sorted(set(values))
    assert values[:n_seen] == list(range(n_seen))
    first = 0 if n_seen else int(values[0]) if values else 0
    assert len(values) + stream.buffer.n_lost == n - first
    if not lost and not n_oldest:
        assert values == list(range(n))


def test_a_query_that_was_not_kept_is_refused_with_what_is() -> None:
    run = run_of(head_of("batch.n"), head_of("batch.loss", 8))
    with pytest.raises(QueryError, match=r"'far'.*batch\.loss, batch\.n"):
        run.find(messages.Open(request=1, query="batch.x"))
    with pytest.raises(QueryError, match="no stream"):
        run_of().find(messages.Open(request=1, query="batch.x"))


def test_of_two_streams_of_a_query_a_client_goes_on_with_its_own() -> None:
    run = run_of(head_of(stream=7), head_of(stream=9))
    (own,) = run.find(messages.Open(request=1, query="batch.n", stream=7, since=3))
    assert own.stream == 7
    both = run.find(messages.Open(request=1, query="on('batch').map(lambda b: b.n)"))
    assert [head.stream for head in both] == [7, 9]


@given(st.lists(st.integers(1, 20), max_size=4), st.lists(st.integers(1, 20), max_size=4), st.integers(0, 3))
def test_a_late_client_reads_all_streams_of_a_query_as_one(first: list[int], second: list[int], n_lost: int) -> None:
    n, m = sum(first) + n_lost, sum(second)
    heads = [
        head_of(stream=number, over=True, counts=codec.encode({"n_records": n_records})[0])
        for number, n_records in ((7, n), (9, m))
    ]
    stream = client_stream()
    read(stream, run_of(*heads), pieces(first), pieces(second, stream=9, base=1_000))
    values = [record.value for record in stream.buffer.records()]
    assert values == [*range(n - n_lost), *range(1_000, 1_000 + m)]
    assert stream.buffer.n_lost == (n_lost if values or not n else n)
    assert stream.buffer.ended


def test_a_stream_of_a_run_that_was_not_closed_says_so_at_its_end() -> None:
    head = head_of()
    assert run_of(head).ended_as(head).error == ""
    ended = run_of(head, ended="").ended_as(head)
    assert (ended.error, ended.reason[:16]) == ("RunLostError", "Run 'far' is gon")
    failed = head_of(over=True, error="QueryError", reason="no n")
    assert run_of(failed, ended="").ended_as(failed).reason == "no n"


def test_each_request_is_answered() -> None:
    run = run_of(head_of())
    command = messages.RunCommand(request=3, kind="stop")
    for message in (command, messages.RecordQuery(request=3, query="batch.n"), messages.EndGroup(request=3, stream=7),
                    messages.Publish(request=3, event="x"), messages.Ask(request=3, what="history")):  # fmt: skip
        (frames,) = run.answer(message)
        refused, _ = messages.decode_from_agent(frames)
        assert isinstance(refused, messages.Refused)
        assert (refused.request, refused.error) == (3, "RunLostError")


def test_what_is_no_description_is_refused() -> None:
    with pytest.raises(WireError):
        GoneRun(KeptMessage("sightglass.kept.node.abc.run", 1, 1.0, b"junk"))
    nameless = kept.KeptRun(version=1, description=codec.encode({})[0], buffers=[])
    with pytest.raises(WireError, match="description"):
        GoneRun(stored("sightglass.kept.node.other.run", nameless))


STORED = (
    b"NATS/1.0\r\nNats-Stream: KEPT\r\nNats-Subject: a.b\r\nNats-Sequence: 3\r\n"
    b"Nats-Time-Stamp: 2026-11-24T20:05:21.5Z\r\n\r\n"
)


def test_only_what_was_stored_without_headers_was_published_by_a_run() -> None:
    found = stored_of(b"x", STORED)
    assert found is not None
    assert (found.subject, found.number, found.wall_time % 60) == ("a.b", 3, 21.5)
    again = STORED.removesuffix(b"\r\n") + STORED.removeprefix(b"NATS/1.0\r\n")
    for data, headers in ((b"", STORED), (b"x", again), (b"x", STORED.replace(b"1.0\r\n", b"1.0\r\nOwn: 1\r\n")),
                          (b"x", b"NATS/1.0 404 Not Found" + STORED[8:])):  # fmt: skip
        assert stored_of(data, headers) is None
