"""Runs and clients on a real NATS server: what becomes of them when it goes, and of those who do what they may not."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import subprocess
import sys
import threading

import pytest
from tests.hub_server import PATIENCE_S, HubServer, needs_server
from tests.waiting import wait_until

from sightglass.core.errors import MissingExtraError, TransportError

pytestmark = needs_server

ID = "0123456789ab"
pytest.importorskip("nats")

from sightglass.hub import chunks, nats, nats_client  # noqa: E402
from sightglass.hub import link as hub_link  # noqa: E402
from sightglass.hub.address import HubAddress  # noqa: E402
from sightglass.hub.nats import NatsChannel, NatsListener  # noqa: E402


@pytest.fixture
def server():
    server = HubServer()
    yield server
    server.close()


@pytest.fixture
def address(server):
    return HubAddress(url=server.url)


@pytest.fixture
def listener(address):
    listener = listen(address)
    yield listener
    listener.close()


def listen(address):
    """Return a listener that is connected; the first attempts may fail on a busy machine."""
    listener = NatsListener(address, ID)
    wait_until(lambda: listener.link.connected, listener.link.reason)
    return listener


def channel_to(address):
    return NatsChannel(address, owner="anyone", id=ID)


def heard(end, n=1):
    """Return the next `n` messages."""
    found = []

    def enough():
        end.wait(0.01)
        found.extend(end.receive())
        return len(found) >= n

    wait_until(enough, found)
    assert len(found) == n
    return found


def meet(listener, address):
    """Return a new channel, and the listener's name for it."""
    channel = channel_to(address)
    assert channel.send([b"hello"]) == "sent"
    (delivery,) = heard(listener)
    return channel, delivery.peer


def publish(server, subject, *data):
    """Publish as any other program on the hub does."""
    import nats

    async def main():
        client = await nats.connect(server.url, connect_timeout=PATIENCE_S)
        for each in data:
            await client.publish(subject, each)
        await client.flush(PATIENCE_S)
        await client.close()

    asyncio.run(main())


def test_a_process_has_one_connection_to_a_hub_and_closes_it_with_its_last_use(server, address):
    listener = listen(address)
    channels = [channel_to(address) for _ in range(3)]
    assert {channel.link for channel in channels} == {listener.link}
    assert [thread.name for thread in threading.enumerate()].count("sightglass-hub") == 1
    for end in [*channels, listener]:
        end.close()
        end.close()  # twice does nothing
    wait_until(lambda: "sightglass-hub" not in [thread.name for thread in threading.enumerate()], "the thread ends")
    assert not hub_link._links


@pytest.mark.parametrize("how", ["by another task", "with an error", "too late"])
def test_the_end_leaves_no_socket_open_that_nats_py_did_not_close(address, monkeypatch, how):
    from nats.aio.client import Client

    clients = []

    async def close(client):
        clients.append(client)
        if how == "with an error":
            raise ConnectionResetError
        if how == "too late":
            await asyncio.sleep(PATIENCE_S)

    monkeypatch.setattr(Client, "close", close)
    monkeypatch.setattr(nats_client, "LINGER_S", 0.1)
    link = hub_link.use_link(address)
    assert link.wait_connected(PATIENCE_S), link.reason
    hub_link.drop_link(link)
    wait_until(lambda: not link._thread.alive, "the thread ends")
    (client,) = clients
    assert client._transport._io_writer.get_extra_info("socket").fileno() == -1


def test_a_loop_that_always_has_work_still_reads_its_sockets():
    near, far = socket.socketpair()
    loop = asyncio.SelectorEventLoop(hub_link.RareSelector())
    n_steps = 0

    def work():
        nonlocal n_steps
        n_steps += 1
        if n_steps == 10 * hub_link.MAX_STEPS:  # without a failure, it is stopped long before
            loop.stop()
        loop.call_soon(work)

    with near, far:
        far.send(b"x")
        loop.add_reader(near, loop.stop)
        loop.call_soon(work)
        loop.run_forever()
        loop.remove_reader(near)
    loop.close()
    assert n_steps <= hub_link.MAX_STEPS + 1


def test_messages_are_cut_to_what_the_server_takes(address):
    small = HubServer(config="max_payload: 10KB")
    listener = listen(HubAddress(url=small.url))
    channel, peer = meet(listener, HubAddress(url=small.url))
    assert listener.send(peer, [b"head", bytes(3_000_000)]) == "sent"
    assert [len(frame) for frame in heard(channel)[0]] == [4, 3_000_000]
    for end in (channel, listener, small):
        end.close()


def test_two_hubs_in_one_process_know_nothing_of_each_other(listener, address):
    other = HubServer()
    elsewhere = listen(HubAddress(url=other.url))
    channels = [channel_to(address), channel_to(HubAddress(url=other.url))]
    for n, (end, channel) in enumerate(zip((listener, elsewhere), channels, strict=True)):
        assert channel.send([b"%d" % n]) == "sent"
        assert [bytes(delivery.frames[0]) for delivery in heard(end)] == [b"%d" % n]
    for end in (*channels, elsewhere, other):
        end.close()


def test_without_a_hub_a_client_says_so_and_a_run_waits():
    address = HubAddress(url="nats://127.0.0.1:9")
    with pytest.raises(TransportError, match=r"nats://127.0.0.1:9"):
        channel_to(address)
    listener = NatsListener(address, ID)
    assert listener.send(b"hub-command.anyone.x", [b"x"]) == "gone"
    wait_until(lambda: "nats://127.0.0.1:9" in listener.link.reason, "it says where nobody answers")
    listener.close()


def test_a_hub_that_comes_later_is_found(server):
    server.kill()
    address = HubAddress(url=server.url)
    numbers = random.getstate()
    listener = NatsListener(address, ID)
    wait_until(lambda: listener.link.reason, "it has tried")
    server.start()
    wait_until(lambda: listener.link.connected, listener.link.reason)
    channel, _ = meet(listener, address)
    assert random.getstate() == numbers, "a hub draws none of the program's random numbers"
    channel.close()
    listener.close()


def test_a_hub_that_dies_breaks_the_channels_and_serves_new_ones_when_it_is_back(server, listener, address):
    channel, peer = meet(listener, address)
    assert listener.send(peer, [b"before"]) == "sent"
    heard(channel)
    server.kill()
    wait_until(lambda: channel.send([b"x"]) == "lost", "the channel is broken")
    wait_until(lambda: listener.send(peer, [b"x"]) == "gone", "the client is forgotten")
    server.start()
    wait_until(lambda: listener.link.connected, listener.link.reason)
    listener.receive()
    assert channel.send([b"x"]) == "lost"  # for good: it does not know what was lost
    again, other = meet(listener, address)
    assert other != peer
    assert listener.send(other, [b"after"]) == "sent"
    assert bytes(heard(again)[0][0]) == b"after"
    for end in (channel, again):
        end.close()


@pytest.mark.slow
def test_a_hub_that_stands_still_holds_nobody(server, address, monkeypatch):
    monkeypatch.setattr(nats_client, "PING_S", 1)
    listener = listen(address)
    channel, peer = meet(listener, address)
    server.stop()
    try:
        wait_until(lambda: listener.send(peer, [bytes(2**20)]) in ("full", "gone"), "it takes no more than it may")
        wait_until(lambda: channel.send([b"x"]) == "lost", "nobody answers its pings")
    finally:
        monkeypatch.undo()  # the next connection has time to answer
        server.go_on()
    wait_until(lambda: listener.link.connected, listener.link.reason)
    again, _ = meet(listener, address)
    for end in (again, channel, listener):
        end.close()


def test_a_client_is_known_by_the_subject_it_speaks_under(server, listener, address):
    ann = HubAddress(url=server.url, user="ann", may_command=False)
    link = hub_link.use_link(ann)
    wait_until(lambda: link.connected, link.reason)
    viewer = NatsChannel(ann, owner="anyone", id=ID)
    viewer.send([b"hello"])
    (delivery,) = heard(listener)
    assert delivery.peer.startswith(b"hub-ask.ann.")
    assert not delivery.may_command
    assert listener.send(delivery.peer, [b"welcome"]) == "sent"
    assert bytes(heard(viewer)[0][0]) == b"welcome"
    viewer.close()
    hub_link.drop_link(link)


def test_a_run_that_has_forgotten_a_client_tells_it(listener, address):
    channel, _ = meet(listener, address)
    listener._peers.clear()
    assert channel.send([b"who am I?"]) == "sent"
    wait_until(lambda: channel.send([b"x"]) == "lost", "it is told")
    assert listener.receive() == []
    channel.close()


def test_a_run_that_ends_is_gone_for_its_clients(server, address):
    listener = listen(address)
    channel, peer = meet(listener, address)
    assert listener.send(peer, [b"bye"]) == "sent"
    listener.close()
    wait_until(lambda: channel.send([b"x"]) == "gone", "it has left")
    assert bytes(heard(channel)[0][0]) == b"bye"  # what it sent before is still read
    channel.close()


def test_lost_chunks_end_the_dialogue_at_both_ends(server, listener, address):
    channel, peer = meet(listener, address)
    publish(server, channel._subject, chunks.HEAD.pack(chunks.LAST, 99) + bytes(8))  # as if 1 to 98 were lost
    wait_until(lambda: listener.send(peer, [b"x"]) == "gone", "it gives the client up")
    wait_until(lambda: channel.send([b"x"]) == "lost", "and tells it")
    assert listener.n_broken == 1
    channel.close()


def test_a_flood_costs_the_run_nothing_and_others_nothing(server, listener, address, monkeypatch):
    monkeypatch.setattr(nats, "TO_RUN", chunks.Allowance(1_000, 2**22, 2**22))
    friend, peer = meet(listener, address)
    flood = [chunks.HEAD.pack(chunks.MORE, number) + bytes(2**20 - 9) for number in range(6)]
    publish(server, f"sightglass.ask.mallory.anyone.{ID}.flood", *flood)
    wait_until(lambda: listener.n_broken, "a message of 6 MB is refused")
    publish(server, f"sightglass.ask.mallory.anyone.{ID}.junk", b"", b"x", b"junk" * 10, chunks.HEAD.pack(77, 0))
    publish(server, f"sightglass.ask.mallory.anyone.{ID}.many", *[
        chunks.HEAD.pack(chunks.LAST, n) + bytes([1, 0, 0, 0, 8, 0, 0, 0]) + bytes(16) for n in range(1_100)
    ])  # fmt: skip
    wait_until(lambda: listener.n_broken >= 4, listener.n_broken)
    assert listener._in_bytes - listener._read_bytes < 2**20
    listener.receive()
    assert listener.send(peer, [b"still"]) == "sent"
    assert bytes(heard(friend)[0][0]) == b"still"
    friend.close()


def test_clients_that_have_been_silent_are_forgotten(listener, address):
    channel, peer = meet(listener, address)
    listener._peers[peer].heard_s -= 61.0
    listener._swept_s -= 31.0
    other, _ = meet(listener, address)
    assert list(listener._peers) != [peer]
    assert peer not in listener._peers
    for end in (channel, other):
        end.close()


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX's own, if another test has loaded it
def test_a_forked_child_leaves_the_connection_to_its_parent(listener, address):
    channel, peer = meet(listener, address)
    child = os.fork()
    if child == 0:
        channel.close()
        listener.close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert listener.send(peer, [b"still"]) == "sent"
    assert bytes(heard(channel)[0][0]) == b"still"
    channel.close()


@pytest.mark.parametrize("url", ["", "nats://127.0.0.1:9"])
def test_a_process_that_does_not_close_its_ends_exits(server, url):
    program = f"""
import sys
from sightglass.hub.address import HubAddress
from sightglass.hub.nats import NatsListener
from sightglass.hub.nats import NatsChannel
address = HubAddress(url={url or server.url!r})
listener = NatsListener(address, "{ID}")
import time
for _ in range(6000 if {not url} else 10):
    time.sleep(0.01)
    if listener.link.connected:
        break
if listener.link.connected:
    channel = NatsChannel(address, owner="anyone", id="{ID}")
    channel.send([b"hello"])
print("done")
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, timeout=90, check=False)
    assert (done.stdout, done.stderr, done.returncode) == (b"done\n", b"", 0)


def test_names_that_would_reach_other_subjects_are_refused():
    with pytest.raises(TransportError, match="1 to 64"):
        NatsListener(HubAddress(url="nats://127.0.0.1:9", user="a.>"), ID)


def test_without_nats_py_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "nats.aio.client", None)
    monkeypatch.setitem(sys.modules, "nats.aio", None)
    with pytest.raises(MissingExtraError, match=r"'nats-py'.*'sightglass\[hub\]'"):
        NatsListener(HubAddress(url="nats://127.0.0.1:9"), ID)


def test_what_is_published_keeps_its_place_among_what_is_sent(listener, address):
    """All that a run sends to a client arrives in its order, under whatever subjects."""
    channels, peers = zip(*(meet(listener, address) for _ in range(3)), strict=True)
    assert not any(listener.enter(peer, 7) for peer in peers)
    assert listener.publish(7, [b"too early"]) == "sent"
    wait_until(lambda: all(listener._peers[peer].listens for peer in peers), "they listen")
    assert listener.publish(7, [b"too early"]) == "sent"
    assert all(listener.enter(peer, 7) for peer in peers)
    expected = []
    for n in range(150):  # in bursts, so that several arrive at a time
        listener.publish(7, [b"published", bytes(40_000) if n % 50 == 0 else b"", b"%d" % n])
        expected.append(n)
        if n % 3 == 0:
            assert all(listener.send(peer, [b"sent", b"", b"%d" % (n + 1_000)]) == "sent" for peer in peers)
            expected.append(n + 1_000)
    listener.dismiss(peers[0], 7)
    listener.publish(7, [b"published", b"", b"150"])
    assert [int(frames[-1]) for frames in heard(channels[0], len(expected))] == expected
    for channel in channels[1:]:
        assert [int(frames[-1]) for frames in heard(channel, len(expected) + 1)] == [*expected, 150]
    assert listener.send(peers[0], [b"it listens no more"]) == "sent"
    heard(channels[0])
    assert not channels[0]._published
    assert not listener.enter(peers[0], 7)  # it is invited again
    wait_until(lambda: listener._peers[peers[0]].listens, "it listens")
    assert listener.enter(peers[0], 7)
    listener.publish(7, [b"again"])
    assert bytes(heard(channels[0])[0][0]) == b"again"
    for channel in channels:
        channel.close()
    wait_until(lambda: not channels[0].link.connected or listener.link._users == [listener], "nobody listens any more")


def test_a_client_that_does_not_read_what_is_published_loses_it_and_no_other_does(listener, address, monkeypatch):
    monkeypatch.setattr(nats, "MAX_UNREAD", 10)
    (slow, slow_peer), (quick, quick_peer) = meet(listener, address), meet(listener, address)
    for peer in (slow_peer, quick_peer):
        listener.enter(peer, 1)
    wait_until(lambda: all(listener._peers[peer].listens for peer in (slow_peer, quick_peer)), "they listen")
    for peer in (slow_peer, quick_peer):
        assert listener.enter(peer, 1)
    for n in range(30):
        listener.publish(1, [b"%d" % n])
        heard(quick)
    assert listener.send(slow_peer, [b"after"]) == "sent"
    assert [bytes(frames[0]) for frames in heard(slow, 11)] == [*(b"%d" % n for n in range(10)), b"after"]
    for channel in (slow, quick):
        channel.close()


def test_lost_chunks_of_what_is_published_break_the_channel(server, listener, address):
    channel, peer = meet(listener, address)
    listener.enter(peer, 1)
    wait_until(lambda: listener._peers[peer].listens, "it listens")
    assert listener.enter(peer, 1)
    wait_until(lambda: channel._published[1].assembler, "it has entered: the next message comes by another connection")
    publish(server, f"sightglass.stream.anyone.{ID}.1", chunks.HEAD.pack(chunks.LAST, 5) + b"x")
    wait_until(lambda: channel.send([b"more"]) == "lost", "it connects again")
    channel.close()
