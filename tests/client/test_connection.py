"""A connection, round by round: nothing waits, the time is given, and a fault costs its stream or request only."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from tests.still import Still

from sightglass.client.connection import LEAVE_S, POLL_S, Connection, exception_of
from sightglass.client.resumable_stream import RecordBuffer, ResumableStream
from sightglass.core import codec
from sightglass.core.columns import of_rows
from sightglass.core.errors import CommandError, QueryError, RefusedError, RunLostError, SightglassError
from sightglass.protocol import messages
from sightglass.protocol.transport import MAX_QUEUED, MemoryListener

pytestmark = pytest.mark.smoke


class Full:
    """Wraps a channel whose queue can be full, or whose calls fail."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.full = False
        self.error: BaseException | None = None
        self.n_closed = 0

    def receive(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.channel.receive()

    def send(self, frames: Any) -> Any:
        return "full" if self.full else self.channel.send(frames)

    def close(self) -> None:
        self.n_closed += 1
        self.channel.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.channel, name)


class Link:
    """A connection and the run's end of it."""

    def __init__(self, **options: Any) -> None:
        self.listener = MemoryListener()
        self.channel = Full(self.listener.connect())
        self.connection = Connection(self.channel, run="job", client="c", worker=Still, **options)
        self.now_s = 100.0
        self.rest_s: float | None = 0.0
        self.peer = b""
        self.turn()
        self.tell(messages.Welcome(version=1, run="job", id="abc", may_command=True, lease_s=8.0))
        self.heard()

    def turn(self, after_s: float = 0.0) -> None:
        """Run a round at a later time, under supervision."""
        self.now_s += after_s
        self.rest_s = self.connection._worker.supervised.round(self.now_s)

    def heard(self) -> list[messages.Message]:
        """Return what the run has received."""
        deliveries = self.listener.receive()
        self.peer = deliveries[0].peer if deliveries else self.peer
        return [messages.decode_from_client(delivery.frames)[0] for delivery in deliveries]

    def tell(self, *sent: messages.Message | list[bytes]) -> None:
        """Send to the client, which takes it in."""
        if not self.peer:
            self.heard()
        for message in sent:
            frames = message if isinstance(message, list) else messages.encode(message)
            assert self.listener.send(self.peer, frames) == "sent"
        self.turn()

    def open(self, stream: int, *, index: int | None = None) -> RecordBuffer:
        """Open a stream that the run gives a number, and says where it begins."""
        buffer = RecordBuffer(tag="", run="job")
        pending = self.connection.open_stream(ResumableStream("batch.loss", buffer))
        self.turn()
        [message] = self.heard()
        assert isinstance(message, messages.Open)
        self.tell(messages.Opened(request=message.request, stream=stream, tag=f"s{stream}", index=index))
        assert pending.result().stream == stream
        return buffer


def block(stream: int, index: int, value: object = 1.0) -> list[bytes]:
    return list(messages.encode_block(stream, of_rows([(index, index, 0.0, value, None, index)])))


@pytest.fixture
def link():
    return Link()


def test_records_lost_before_the_first_and_after_the_last_are_counted(link):
    buffer = link.open(3, index=10)
    link.tell(block(3, 12))
    assert buffer.n_lost == 2
    link.tell(messages.Ended(stream=3, counts=codec.encode({"n_records": 20})[0]))
    assert (buffer.n, buffer.n_lost) == (1, 2 + 7)


def test_a_stream_that_is_closed_while_another_of_its_query_opens_goes_on(link):
    """The run knows one stream for both: it must not hear that the first is closed after it has opened the second."""
    first, second = (ResumableStream("batch.loss", RecordBuffer(tag="", run="job")) for _ in range(2))
    link.connection.open_stream(first)
    link.turn()
    link.tell(messages.Opened(request=link.heard()[0].request, stream=3, tag="s", index=0))
    link.connection.open_stream(second)
    link.connection.close_stream(first)
    link.turn()
    [message] = link.heard()
    assert isinstance(message, messages.Open)
    link.tell(messages.Opened(request=message.request, stream=3, tag="s", index=0), block(3, 0), block(3, 1))
    assert (second.buffer.n, second.buffer.n_lost, link.heard()) == (2, 0, [])
    link.connection.close_stream(second)
    link.turn()
    assert link.heard() == [messages.Close(stream=3)]


def test_a_stream_that_is_closed_while_a_request_is_refused_is_closed_then(link):
    link.open(3)
    [stream] = link.connection._streams[3]
    link.connection.open_stream(ResumableStream("batch.nope", RecordBuffer(tag="", run="job")))
    link.connection.close_stream(stream)
    link.turn()
    [message] = link.heard()
    link.tell(messages.Refused(request=message.request, error="QueryError", reason="no"))
    assert link.heard() == [messages.Close(stream=3)]


def test_records_replies_and_pings(link):
    buffer = link.open(3)
    pending = link.connection.start_query("describe")
    link.turn()
    [ask] = link.heard()
    link.tell(block(3, 0), messages.Reply(request=ask.request, value=codec.encode({"a": 1})[0]), block(3, 1))
    assert ([record.value for record in buffer.records()], pending.result()) == ([1.0, 1.0], {"a": 1})
    assert link.rest_s == POLL_S
    link.turn(1.9)
    assert link.heard() == []
    link.turn(0.2)  # a quarter of the lease
    assert link.heard() == [messages.Ping()]


def test_a_stream_whose_records_cannot_be_taken_ends_alone(link):
    bad, good = link.open(1), link.open(2)

    def fail(columns: object) -> None:
        raise MemoryError("no room")

    bad.add = fail
    with pytest.warns(RuntimeWarning, match="'job': .*Block.*MemoryError: no room"):
        link.tell(block(1, 0), block(2, 0), block(1, 1), block(2, 1))
    assert (good.n, good.ended, bad.ended) == (2, False, True)
    assert type(bad.error) is SightglassError
    assert "MemoryError: no room" in str(bad.error)
    assert (link.connection.n_failures, link.connection.ended) == (1, "")
    assert link.heard() == [messages.Close(stream=1)]


def test_a_request_whose_reply_fails_fails_alone(link, monkeypatch):
    one, two = link.connection.start_query("describe"), link.connection.start_query("history")
    link.turn()
    [first, second] = link.heard()
    real = codec.decode

    def decode(blob: bytes, *arguments: Any) -> object:
        value = real(blob, *arguments)
        if value == "deep":
            raise RecursionError("too deep")
        return value

    monkeypatch.setattr(codec, "decode", decode)
    with pytest.warns(RuntimeWarning, match="RecursionError"):
        link.tell(messages.Reply(request=first.request, value=codec.encode("deep")[0]),
                  messages.Reply(request=second.request, value=codec.encode("flat")[0]))  # fmt: skip
    with pytest.raises(SightglassError, match="RecursionError: too deep"):
        one.result()
    assert (two.result(), link.connection.ended) == ("flat", "")


def test_an_answer_to_nobody_is_passed_over(link):
    buffer = link.open(1)
    link.tell(messages.Opened(request=99, stream=1, tag="x"), messages.Reply(request=98, value=codec.encode(1)[0]),
              messages.Ended(stream=7), messages.Moved(stream=8, to=9), block(5, 0), block(1, 0))  # fmt: skip
    assert (buffer.n, buffer.ended, link.connection.n_failures, link.connection.ended) == (1, False, 0, "")


def test_an_invalid_message_ends_the_connection(link):
    buffer, pending = link.open(1), link.connection.start_query("describe")
    link.tell([b"nonsense"], block(1, 0))
    assert (link.rest_s, buffer.n) == (None, 0)
    assert "an invalid message" in link.connection.ended
    for error in (buffer.error, pending._error):
        assert isinstance(error, RunLostError)
    assert link.channel.n_closed == 1


@pytest.mark.parametrize("error", [RuntimeError("broken"), SystemExit(3), GeneratorExit()])
def test_two_rounds_that_fail_end_the_connection(link, error):
    buffer, pending = link.open(1), link.connection.start_query("describe")
    link.channel.error = error
    with pytest.warns(RuntimeWarning, match="sightglass-client"):
        link.turn()
    assert (link.connection.ended, link.rest_s) == ("", 0.0)
    with pytest.warns(RuntimeWarning, match="sightglass-client"):
        link.turn()
    assert "failed: an internal error" in link.connection.ended
    assert isinstance(buffer.error, RunLostError)
    assert isinstance(pending._error, RunLostError)
    link.turn(1.0)
    assert (link.rest_s, link.channel.n_closed, link.connection.n_failures) == (None, 1, 2)
    with pytest.raises(RunLostError, match="failed"):
        link.connection.request(lambda number: messages.Ask(request=number, what="describe"))


def test_one_round_that_fails_costs_nothing(link):
    buffer = link.open(1)
    link.channel.error = RuntimeError("once")
    with pytest.warns(RuntimeWarning, match="round"):
        link.turn()
    link.channel.error = None
    link.tell(block(1, 0))
    assert (buffer.n, link.connection.ended) == (1, "")


def test_leaving_says_goodbye(link):
    buffer = link.open(1)
    link.connection.close()
    link.turn()
    assert (link.heard(), link.rest_s, link.channel.n_closed) == ([messages.Bye()], None, 1)
    assert (buffer.ended, buffer.error) == (True, None)
    assert "'job' was closed" in link.connection.ended
    link.turn(5.0)
    assert (link.rest_s, link.channel.n_closed) == (None, 1)


def test_leaving_a_run_that_reads_nothing_takes_a_bounded_time(link):
    link.channel.full = True
    link.connection.send(messages.encode(messages.Close(stream=1)))
    link.turn()
    link.connection.close()
    began_s, n_rounds = link.now_s, 0
    link.turn()
    while link.rest_s is not None:
        assert 0 < link.rest_s < 0.1
        link.turn(0.05)
        n_rounds += 1
    assert link.now_s - began_s == pytest.approx(LEAVE_S, abs=0.06)
    assert link.channel.n_closed == 1
    assert "'job' was closed" in link.connection.ended


def test_leaving_a_run_that_reads_late_sends_everything_in_order(link):
    link.channel.full = True
    for number in range(5):
        link.connection.send(messages.encode(messages.Close(stream=number)))
    link.connection.close()
    link.turn()
    link.turn(0.5)
    link.channel.full = False
    link.turn(0.1)
    assert link.heard() == [*(messages.Close(stream=number) for number in range(5)), messages.Bye()]
    assert link.rest_s is None


def test_what_a_run_sent_before_it_left_is_read():
    """The run closes between the client's look at its messages and its next message to the run."""
    link = Link()
    buffer = link.open(1)
    last = [messages.encode_block(1, of_rows([(n, n, 0.0, 1.0, None, n)])) for n in range(10)]
    real = link.channel.channel.receive

    def leave() -> Any:
        link.channel.receive = real  # the next time, all is there
        for frames in last:
            link.listener.send(link.peer, frames)
        link.listener.send(link.peer, messages.encode(messages.Bye(reason="the run has ended")))
        link.listener.close()
        return []

    link.channel.receive = leave
    link.connection.send(messages.encode(messages.Ping()))
    link.turn()
    assert (buffer.n, buffer.error, link.connection.ended) == (10, None, "Run 'job' has ended")


@pytest.mark.parametrize(
    ("name", "kind"),
    [("UnknownNameError", QueryError), ("CommandError", CommandError), ("FigureErrors", RefusedError),
     ("LaterError", RefusedError), ("annotations", RefusedError)],
)  # fmt: skip
def test_the_class_of_an_error_travels_by_its_name_and_does_not_depend_on_its_words(name, kind):
    for words in ("Unknown observable 'x'", "Something else"):
        error = exception_of(name, words)
        assert (type(error), str(error)) == (kind, words)


def test_the_run_learns_that_its_end_was_read(link):
    link.tell(messages.Bye(reason="the run has ended"))
    assert (link.heard()[-1], link.connection.ended) == (messages.Bye(), "Run 'job' has ended")


def test_a_run_that_leaves_before_all_was_sent_does_not_end_a_stream_as_if_it_were_whole(link):
    """The run waits only shortly for a client that takes nothing."""
    buffer = link.open(1)
    link.tell(block(1, 0))
    link.listener.close()
    link.connection.send(messages.encode(messages.Ping()))
    link.turn()
    assert re.match("Run 'job' has ended .*; of 's1', records from number 1 on are missing$", str(buffer.error))


@pytest.mark.parametrize("closed", [True, False])
def test_an_end_without_goodbye_is_told_as_what_it_was(closed):
    alive = [True]
    link = Link(alive=lambda: alive[0], closed=lambda: closed)
    buffer, pending = link.open(1), link.connection.start_query("describe")
    link.tell(block(1, 0))
    alive[0] = False
    for _ in range(4):
        link.turn(POLL_S)
    assert link.rest_s is None
    assert isinstance(pending._error, RunLostError)
    if closed:
        assert link.connection.ended == "Run 'job' has ended before all its records arrived"
    else:
        assert "died: " in link.connection.ended
    assert isinstance(buffer.error, RunLostError)
    assert str(buffer.error) == f"{link.connection.ended}; of 's1', records from number 1 on are missing"


def test_a_refused_client_says_so():
    listener = MemoryListener()
    connection = Connection(listener.connect(), run="job", client="c", worker=Still)
    connection.round(0.0)
    peer = listener.receive()[0].peer
    listener.send(peer, messages.encode(messages.Refused(request=0, error="RefusedError", reason="no room")))
    connection.round(0.1)
    with pytest.raises(RefusedError, match=r"^no room$"):
        connection.wait_welcome(0)


def test_rounds_do_not_wait_and_do_not_read_the_clock(monkeypatch):
    import time

    def refuse(*_: object) -> float:
        raise AssertionError("a round reads the clock or waits")

    link = Link(alive=lambda: True)
    buffer = link.open(1)
    for name in ("monotonic", "sleep", "time", "perf_counter"):
        monkeypatch.setattr(time, name, refuse)
    for n in range(MAX_QUEUED):
        link.tell(block(1, n, np.ones(3)))
    link.connection.close()
    link.turn(math.pi)
    assert (buffer.n, link.rest_s) == (MAX_QUEUED, None)
