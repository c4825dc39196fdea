"""A session, round by round: it connects again, goes on with its streams, and ends as the run did."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from tests.still import Still

from sightglass.client.connection import Connection
from sightglass.client.live_runs import RunRoute
from sightglass.client.reconnect import AWAY_S, GREET_S, LASTED_S, MAX_REST_S, REST_S, RESTART_S
from sightglass.client.resumable_stream import RecordBuffer, ResumableStream
from sightglass.client.session import Session
from sightglass.core import codec
from sightglass.core.columns import Restart, of_rows
from sightglass.core.errors import RefusedError, RunLostError, TransportError
from sightglass.protocol import messages
from sightglass.protocol.transport import MemoryListener

pytestmark = pytest.mark.smoke


class FakeRun:
    """A run's end: where clients come in, and what became of it."""

    def __init__(self, id: str = "abc", *, remote: bool = False) -> None:
        self.id = id
        self.listener = MemoryListener()
        self.peer = b""
        self.fate: Any = None
        self.remote = remote
        self.refuses_channels = False

    def route(self) -> RunRoute:
        return RunRoute(run="job", id=self.id, connect=self.connect, alive=None if self.remote else lambda: True)

    def connect(self) -> Any:
        if self.refuses_channels:
            raise TransportError("no descriptors")
        return self.listener.connect()

    def find_again(self, route: RunRoute) -> Any:
        return self.fate or self.route()


class Client:
    """A session whose rounds the test runs."""

    def __init__(self, run: FakeRun, **options: Any) -> None:
        self.run = run
        self.now_s = 100.0
        self.session = Session(run, run.route(), client="c", worker=Still, **options)  # type: ignore[arg-type]
        self.connections: list[Connection] = [self.session.connection]
        made = self.session.connect

        def connect(route: RunRoute) -> Connection:
            self.connections.append(made(route))
            return self.connections[-1]

        self.session.connect = connect  # type: ignore[method-assign]
        self.turn()
        self.welcome()

    def turn(self, after_s: float = 0.0) -> float | None:
        """Run a round of each loop at a later time; return for how long the session rests."""
        self.now_s += after_s
        self.connections[-1]._worker.supervised.round(self.now_s)
        rest_s: float | None = 0.0
        while rest_s == 0.0:
            rest_s = self.session._reconnector.round(self.now_s)
        self.connections[-1]._worker.supervised.round(self.now_s)
        return rest_s

    def heard(self) -> list[messages.Message]:
        """Return what the run has received since the last time, and answer to the last peer from now on."""
        deliveries = self.run.listener.receive()
        if deliveries:
            self.run.peer = deliveries[-1].peer
        heard = [messages.decode_from_client(delivery.frames)[0] for delivery in deliveries]
        return [message for message in heard if not isinstance(message, messages.Ping)]

    def tell(self, *sent: messages.Message | list[Any]) -> None:
        """Send to the client, which takes it in."""
        for message in sent:
            frames = message if isinstance(message, list) else messages.encode(message)
            assert self.run.listener.send(self.run.peer, frames) == "sent"
        self.turn()

    def welcome(self) -> list[messages.Message]:
        """Greet the client; return what it says then."""
        assert [type(message) for message in self.heard()] == [messages.Hello]
        self.tell(messages.Welcome(version=1, run="job", id=self.run.id, may_command=True, lease_s=8.0))
        return self.heard()

    def open(self, number: int = 1, index: int = 0) -> ResumableStream:
        """Open a stream."""
        stream = ResumableStream("batch.loss", RecordBuffer(tag="", run="job"))
        self.session.start_stream(stream)
        self.turn()
        (message,) = self.heard()
        self.answer(message, number, index)
        return stream

    def answer(self, message: messages.Message, number: int = 1, index: int = 0) -> None:
        """Answer to a message that opens a stream."""
        assert isinstance(message, messages.Open)
        self.tell(messages.Opened(request=message.request, stream=number, tag="t", index=index))

    def lose(self) -> None:
        """Let the lease end."""
        self.tell(messages.Bye(reason="lease ended"))


def block(number: int, *indexes: int) -> list[Any]:
    return list(messages.encode_block(number, of_rows([(i, i, 0.0, float(i), None, i) for i in indexes])))


def block_of_step(number: int, index: int, step: int) -> list[Any]:
    return list(messages.encode_block(number, of_rows([(index, step, 0.0, float(step), None, step)])))


def steps(stream: ResumableStream) -> list[float]:
    return [record.step for record in stream.buffer.records()]


@pytest.fixture
def client() -> Client:
    return Client(FakeRun())


def test_a_stream_goes_on_with_the_next_record(client):
    stream = client.open()
    client.tell(block(1, 0, 1, 2))
    client.lose()
    assert client.session.ended == ""
    assert client.session.why_lost().startswith("Run 'job' ended this client's lease")
    (again,) = client.welcome()
    assert again == messages.Open(request=again.request, query="batch.loss", stream=1, since=3)
    client.answer(again, index=5)
    client.tell(block(1, 5, 6))
    assert (steps(stream), stream.buffer.n_lost, stream.buffer.ended) == ([0, 1, 2, 5, 6], 2, False)
    assert (client.session.why_lost(), client.session.ended, client.session.n_reconnects) == ("", "", 1)


def test_a_run_that_has_forgotten_a_stream_answers_again_from_a_snapshot_that_came_already(client):
    stream = client.open()
    client.tell(block(1, 0, 1, 2))
    client.lose()
    client.answer(client.welcome()[0], number=2, index=0)
    client.tell(block_of_step(2, 0, 2), block_of_step(2, 1, 3))
    assert (steps(stream), stream.buffer.n_lost) == ([0, 1, 2, 3], 0)


def test_where_a_run_has_forgotten_a_stream_one_record_counts_as_lost(client):
    stream = client.open()
    client.tell(block(1, 0, 1, 2))
    client.lose()
    client.answer(client.welcome()[0], number=2, index=0)
    client.tell(block_of_step(2, 0, 7))
    assert (steps(stream), stream.buffer.n_lost) == ([0, 1, 2, 7], 1)


def test_for_whom_a_stream_is_read_is_told_again_after_a_reconnection(client):
    stream = client.open()
    stream.readers = ("tab 1", "tab 2")
    client.connections[-1].name_readers(stream)
    client.turn()
    assert client.heard() == [messages.Readers(stream=1, names=("tab 1", "tab 2"))]
    client.lose()
    client.answer(client.welcome()[0], number=4)
    client.turn()
    assert client.heard() == [messages.Readers(stream=4, names=("tab 1", "tab 2"))]


def test_what_the_run_says_twice_is_taken_once(client):
    stream = client.open()
    client.tell(block(1, 0, 1, 2))
    client.lose()
    client.answer(client.welcome()[0], index=1)
    client.tell(block(1, 1, 2, 3))
    assert (steps(stream), stream.buffer.n_lost) == ([0, 1, 2, 3], 0)


def test_all_streams_that_are_open_go_on_in_their_order(client):
    streams = [client.open(number) for number in (4, 5, 6, 7)]
    client.session.close_stream(streams[1])
    client.tell(messages.Ended(stream=6))
    client.heard()
    client.lose()
    again = client.welcome()
    assert [message.stream for message in again] == [4, 7]
    for message, number in zip(again, (4, 7), strict=True):
        client.answer(message, number)
    client.tell(block(7, 0))
    assert [steps(stream) for stream in streams] == [[], [], [], [0]]


def test_a_stream_that_is_closed_while_it_is_opened_again_is_closed_in_the_run(client):
    stream = client.open()
    client.lose()
    (again,) = client.welcome()
    client.session.close_stream(stream)
    client.answer(again)
    client.turn()
    assert client.heard() == [messages.Close(stream=1)]


def test_a_stream_that_is_refused_when_it_is_opened_again_fails_alone(client):
    bad, good = client.open(1), client.open(2)
    client.lose()
    first, second = client.welcome()
    client.tell(messages.Refused(request=first.request, error="RefusedError", reason="too many"))
    client.answer(second, 2)
    assert isinstance(bad.buffer.error, RefusedError)
    assert not good.buffer.ended


def test_a_restarted_run_goes_on_behind_a_mark(client):
    stream = client.open()
    client.tell(block(1, 0, 1, 2))
    client.run = client.session._reconnector._target = FakeRun("def")
    client.connections[-1]._end("Run 'job' died: its process ended without closing it", "lost")
    client.turn()
    (again,) = client.welcome()
    assert again == messages.Open(request=again.request, query="batch.loss")
    client.answer(again, number=1, index=7)  # the numbers of the new run have nothing to do with the old ones
    client.tell(block(1, 7, 8))
    records = stream.buffer.records()
    assert [(record.index, record.step) for record in records] == [(0, 0), (1, 1), (2, 2), (3, 7), (4, 8)]
    assert (stream.buffer.restarts, stream.buffer.n_lost) == ((Restart(index=3, run_id="def"),), 0)
    assert client.session.id == "def"
    client.lose()  # and then it goes on in the new run
    client.turn(MAX_REST_S)
    (again,) = client.welcome()
    assert (again.stream, again.since) == (1, 9)
    client.answer(again, index=10)
    client.tell(block(1, 10), messages.Ended(stream=1, counts=codec.encode({"n_records": 12})[0]))
    assert [record.index for record in stream.buffer.records()[3:]] == [3, 4, 6]
    assert stream.buffer.n_lost == 2


def test_a_stream_that_the_run_has_forgotten_goes_on_behind_a_gap(client):
    stream = client.open()
    client.tell(block(1, 0, 1, 2))
    client.lose()
    client.answer(client.welcome()[0], number=9, index=0)
    client.tell(block(9, 0, 1))
    assert [record.index for record in stream.buffer.records()] == [0, 1, 2, 4, 5]
    assert (stream.buffer.n_lost, stream.buffer.restarts) == (1, ())


def test_requests_that_were_on_their_way_fail_and_are_not_repeated(client):
    pending = client.session.connection.start_request(
        lambda number: messages.RunCommand(request=number, kind="set", name="lr", value=b"\x01")
    )
    client.turn()
    assert len(client.heard()) == 1
    client.lose()
    assert client.welcome() == []
    with pytest.raises(RunLostError, match="lease"):
        pending.result()


def test_a_request_waits_for_the_next_connection_and_no_longer(client):
    client.lose()
    with pytest.raises(RunLostError, match="silent"):
        client.session.current(0.0)
    client.welcome()
    assert client.session.current(0.0) is client.connections[-1]


@pytest.mark.parametrize("fate", ["ended", "died", "awaited"])
def test_a_run_that_is_gone_ends_the_streams_and_says_which_records_are_missing(client, fate):
    stream = client.open()
    client.tell(block(1, 0, 1, 2))
    client.run.fate = fate
    client.lose()
    if fate == "awaited":
        assert not stream.buffer.ended
        with pytest.raises(RunLostError, match="lease"):  # at once: the run does not come back by itself
            client.session.current()
        client.turn(RESTART_S - 1)
        assert not client.session.ended
        client.turn(1)
    assert stream.buffer.ended
    lost = client.session.connection.ended.removesuffix(". Connect again")
    assert client.session.ended == ("Run 'job' has ended while this client was away" if fate == "ended" else lost)
    assert str(stream.buffer.error) == f"{client.session.ended}; of 't', records from number 3 on are missing"
    assert client.turn() is not None
    assert client.heard() == []


def test_a_run_that_died_may_come_back_in_time(client):
    stream = client.open()
    client.run.fate = "awaited"
    client.lose()
    client.turn(RESTART_S - 1)
    client.run.fate = None
    client.run.id = "def"
    client.turn(1)
    client.answer(client.welcome()[0])
    client.tell(block(1, 0))
    assert (steps(stream), stream.buffer.restarts) == ([0], (Restart(index=0, run_id="def"),))


def test_a_run_elsewhere_is_looked_for_in_a_bounded_time():
    client = Client(FakeRun(remote=True))
    stream = client.open()
    client.lose()
    began_s, n_hellos = client.now_s, 0
    while not client.session.ended:
        rest_s = client.turn()
        assert rest_s is None or 0 < rest_s <= GREET_S
        n_hellos += len(client.heard())
        client.turn(rest_s or 0.0)
    assert client.now_s - began_s == pytest.approx(AWAY_S, abs=2 * GREET_S)
    assert AWAY_S / (GREET_S + MAX_REST_S) <= n_hellos <= AWAY_S / GREET_S + 1
    assert client.session.ended.endswith(" within 900 s")
    assert isinstance(stream.buffer.error, RunLostError)


def test_a_refusal_at_the_door_ends_it(client):
    stream = client.open()
    client.lose()
    client.heard()
    client.tell(messages.Refused(request=0, error="RefusedError", reason="another version"))
    assert "refused this client" in client.session.ended
    assert isinstance(stream.buffer.error, RunLostError)


def test_a_hub_that_refuses_the_user_ends_it(client, monkeypatch):
    def refuse(route: RunRoute) -> Any:
        raise RefusedError("The hub refuses user 'ann'")

    stream = client.open()
    monkeypatch.setattr(client.run, "find_again", refuse)
    client.lose()
    assert client.session.ended.endswith(". The hub refuses user 'ann'")
    assert isinstance(stream.buffer.error, RunLostError)


def test_an_invalid_message_is_final(client):
    stream = client.open()
    client.tell([b"nonsense"])
    assert "an invalid message" in client.session.ended
    assert isinstance(stream.buffer.error, RunLostError)
    assert client.heard() == []


def test_with_raise_a_lost_connection_ends_the_session():
    client = Client(FakeRun(), resume=False)
    stream = client.open()
    client.lose()
    assert "ended this client's lease" in client.session.ended
    assert isinstance(stream.buffer.error, RunLostError)
    assert client.heard() == []
    with pytest.raises(RunLostError, match="lease"):
        client.session.request(lambda number: messages.Ask(request=number, what="describe"))


def test_connections_that_do_not_last_are_made_at_growing_intervals(client):
    at_s = []
    for _ in range(12):
        client.lose()
        while not client.run.listener._inbox:
            client.turn(0.05)
        at_s.append(client.now_s)
        client.welcome()
    rests_s = [after - before for before, after in itertools.pairwise(at_s)]
    assert rests_s[0] < 3 * REST_S
    assert all(after > before - 0.1 for before, after in itertools.pairwise(rests_s))
    assert MAX_REST_S - 0.1 < rests_s[-1] < MAX_REST_S + 0.1
    client.turn(LASTED_S + 1)
    client.heard()
    client.lose()
    assert len(client.heard()) == 1  # at once: this one lasted


def test_where_no_channel_can_be_opened_it_tries_again_later(client):
    client.run.refuses_channels = True
    client.lose()
    assert client.heard() == []
    client.run.refuses_channels = False
    client.turn(MAX_REST_S)
    assert len(client.heard()) == 1


def test_leaving_while_the_connection_is_lost(client):
    stream = client.open()
    client.lose()
    client.session.close()
    assert client.turn() is None
    assert (stream.buffer.ended, stream.buffer.error) == (True, None)
    assert "'job' was closed" in client.session.ended


def test_a_published_stream_is_offered_again(client, monkeypatch):
    monkeypatch.setattr(Connection, "wait_reply", lambda self, pending: pending.result() if pending.wait(0) else None)
    offer = client.session.publish("best")
    client.turn()
    (publish,) = client.heard()
    assert publish.stream == 0
    client.tell(messages.Reply(request=publish.request, value=codec.encode(7)[0]))
    offer.put(of_rows([(0, 0, 0.0, 1.0, None, 0)]))
    client.turn()
    (records,) = client.heard()
    assert (records.stream, records.index) == (7, 0)
    client.lose()
    client.heard()
    client.tell(messages.Welcome(version=1, run="job", id="abc", may_command=True, lease_s=8.0))
    (publish,) = client.heard()
    assert (type(publish), publish.event, publish.stream) == (messages.Publish, "best", 7)
    client.tell(messages.Reply(request=publish.request, value=codec.encode(7)[0]))
    offer.put(of_rows([(1, 1, 0.0, 2.0, None, 1)]))
    client.turn()
    (records,) = client.heard()
    assert (records.stream, records.index) == (7, 1)
    client.turn(2 * LASTED_S)
    client.heard()
    client.lose()
    client.heard()
    client.tell(messages.Welcome(version=1, run="job", id="restarted", may_command=True, lease_s=8.0))
    (publish,) = client.heard()
    assert publish.stream == 0  # another run does not know the number
