"""The messages that wait for a run that takes none: they are bounded; what finds no room is refused at the call."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from tests.client.test_connection import Link

from sightglass.client import connection
from sightglass.client.connection import MAX_WAITING, MAX_WAITING_BYTES, MessageQueue
from sightglass.core.errors import RunLostError
from sightglass.protocol import messages

pytestmark = pytest.mark.smoke


def command(value: bytes):
    return lambda number: messages.RunCommand(request=number, kind="set", name="lr", value=value, by="c")


@pytest.fixture
def link():
    return Link()


def test_a_command_without_room_is_refused_at_the_call_and_never_sent(link):
    link.channel.full = True
    sent = [link.connection.start_request(command(b"%d" % i)) for i in range(MAX_WAITING)]
    for _ in range(3):
        with pytest.raises(RunLostError, match=r"'job'.*1,000 wait"):
            link.connection.start_request(command(b"late"))
    link.turn()
    assert (len(link.connection._send_queue), len(link.connection._pending)) == (MAX_WAITING, MAX_WAITING)
    link.channel.full = False
    heard = []
    while len(heard) < MAX_WAITING:
        link.turn()
        found = link.heard()
        assert found
        heard += found
    assert [message.value for message in heard] == [b"%d" % i for i in range(MAX_WAITING)]
    link.turn()
    assert (link.heard(), link.connection._send_queue._n_bytes) == ([], 0)
    assert not any(pending.wait(0) for pending in sent)
    link.connection.start_request(command(b"now"))  # there is room again


def test_large_messages_are_bounded_by_their_bytes(link, monkeypatch):
    monkeypatch.setattr(connection, "MAX_WAITING_BYTES", 10_000)
    link.channel.full = True
    for _ in range(9):
        link.connection.start_request(command(bytes(1_000)))
    with pytest.raises(RunLostError):
        link.connection.start_request(command(bytes(1_000)))


def test_one_message_of_any_size_may_wait_alone():
    queue = MessageQueue()
    assert queue.offer([memoryview(np.zeros(MAX_WAITING_BYTES + 1, np.uint8))])
    assert not queue.offer([b"x"])
    queue.pop()
    assert queue.offer([b"x"])


def test_messages_of_the_connection_itself_have_room(link):
    link.channel.full = True
    for i in range(MAX_WAITING):
        link.connection.start_request(command(b"%d" % i))
    link.connection.send(messages.encode(messages.Close(stream=1)))
    assert len(link.connection._send_queue) == MAX_WAITING + 1


def test_pings_do_not_pile_up(link):
    link.channel.full = True
    for _ in range(100):
        link.turn(10.0)
    assert len(link.connection._send_queue) == 1
    link.channel.full = False
    link.turn()
    assert link.heard() == [messages.Ping()]


def test_a_publisher_waits_for_room(monkeypatch):
    monkeypatch.setattr(connection, "MAX_WAITING", 1)
    queue, taken = MessageQueue(), []
    assert queue.offer([b"first"])
    thread = threading.Thread(target=lambda: taken.append(queue.offer([b"second"], timeout_s=60)))
    thread.start()
    queue.pop()
    thread.join(60)
    assert (taken, queue.first()) == ([True], [b"second"])


def test_the_end_of_the_connection_ends_the_wait_and_drops_what_waits(link):
    link.channel.full = True
    pending = [link.connection.start_request(command(b"%d" % i)) for i in range(MAX_WAITING)]
    waited = []
    thread = threading.Thread(target=lambda: waited.append(link.connection._send_queue.offer([b"x"], timeout_s=60)))
    thread.start()
    link.connection.reset()
    thread.join(60)
    assert not thread.is_alive()
    assert len(link.connection._send_queue) == 0
    for each in pending:
        with pytest.raises(RunLostError):
            each.result()
