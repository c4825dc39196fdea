"""What the server lets each credential do: every subject is tried with every credential."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.hub_server import PATIENCE_S, USERS, Hub, listed, needs_server, wait_until

import sightglass as sg
from sightglass.core.errors import RunNotFoundError
from sightglass.hub import link as hub_link
from sightglass.hub import nats_client
from sightglass.hub.address import HubAddress
from sightglass.hub.link import drop_link, use_link
from sightglass.hub.nats_client import tls

pytestmark = needs_server
nats = pytest.importorskip("nats")

ID, CLIENT = "0123456789ab", "0" * 24
SUBJECTS = [
    *(f"sightglass.ask.{user}.{owner}.{ID}.{CLIENT}" for user in USERS for owner in USERS),
    *(f"sightglass.command.{user}.{owner}.{ID}.{CLIENT}" for user in USERS for owner in USERS),
    *(f"sightglass.{kind}.{user}.{CLIENT}" for kind in ("answer", "who") for user in USERS),
    *(f"sightglass.live.{owner}.{ID}" for owner in USERS),
    *(f"sightglass.stream.{owner}.{ID}.7" for owner in USERS),
    *(f"sightglass.here.{user}.{CLIENT}.{owner}.{ID}" for user in USERS for owner in USERS),
    *(f"$JS.API.STREAM.{verb}.KEPT" for verb in ("CREATE", "UPDATE", "DELETE", "PURGE", "INFO", "SNAPSHOT", "RESTORE")),
    *(f"$JS.API.STREAM.MSG.{verb}.KEPT" for verb in ("GET", "DELETE")),
    *("$JS.API.CONSUMER.CREATE.KEPT", "$JS.API.CONSUMER.CREATE.KEPT.x.y", "$JS.API.CONSUMER.DURABLE.CREATE.KEPT.x"),
    *("$JS.API.CONSUMER.MSG.NEXT.KEPT.x", "$JS.API.CONSUMER.LIST.KEPT", "$JS.API.CONSUMER.DELETE.KEPT.x"),
    *("$JS.API.DIRECT.GET.KEPT", "$JS.API.DIRECT.GET.KEPT.x", "$JS.API.DIRECT.GET.x", "$JS.API.ACCOUNT.INFO"),
    *("$JS.ACK.KEPT.x", "$JS.API.SERVER.REMOVE", "$JS.API.META.LEADER.STEPDOWN", "$JS.EVENT.x"),
    *("sightglass", "sightglass.other", f"sightglass.ask.ann.{CLIENT}", f"sightglass.answer.ann.{CLIENT}.more"),
    *("$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.CREATE.x", "$JS.API.STREAM.DELETE.x", "$KV.x.y"),
    *("$JS.API.CONSUMER.CREATE.x", "$SYS.REQ.SERVER.PING", "$SYS.REQ.USER.INFO", "$SRV.PING", "_INBOX.x", "anything"),
]  # fmt: skip
WIDE = [
    *(">", "*.>", "sightglass.>", "sightglass.*.>", "sightglass.answer.>", "sightglass.answer.*.*", "$JS.>", "$SYS.>"),
    *("sightglass.ask.>", "sightglass.command.*.*.*.*", "sightglass.live.>", "sightglass.here.>", "_INBOX.>"),
    *("sightglass.stream.>", "sightglass.kept.>", "$JS.API.>", "$JS.EVENT.>", "$SRV.>"),
]


def may_publish(name: str, role: str, subject: str) -> bool:
    match subject.split("."):
        case ["sightglass", "ask", user, _, _, _] | ["sightglass", "who", user, _]:
            return role in ("viewer", "controller") and user == name
        case ["sightglass", "command", user, _, _, _]:
            return role == "controller" and user == name
        case ["sightglass", "answer", _, _]:
            return role == "run"
        case (
            ["sightglass", "live", owner, _]
            | ["sightglass", "stream", owner, _, _]
            | ["sightglass", "here", _, _, owner, _]
        ):
            return role == "run" and owner == name
    return False


def may_hear(name: str, role: str, subject: str) -> bool:
    match subject.split("."):
        case ["sightglass", "ask" | "command", _, owner, _, _]:
            return role == "run" and owner == name
        case ["sightglass", "who", _, _]:
            return role == "run"
        case ["sightglass", "answer", user, _] | ["sightglass", "here", user, _, _, _]:
            return role in ("viewer", "controller") and user == name
        case ["sightglass", "live", _, _] | ["sightglass", "stream", _, _, _]:
            return role in ("viewer", "controller")
    return False


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let connections take their time on a busy machine."""
    for module in (nats_client, hub_link):
        monkeypatch.setattr(module, "CONNECT_S", PATIENCE_S)


async def client_of(address: HubAddress) -> Any:
    return await nats.connect(
        address.url, user=f"{address.project}.{address.user}", password=address.key, tls=tls(address.certificate),
        tls_handshake_first=True, connect_timeout=PATIENCE_S, allow_reconnect=False,
    )  # fmt: skip


@contextlib.contextmanager
def spoken_to(address: HubAddress) -> Iterator[Callable[[str], str]]:
    """Connect without nats-py, which may miss a refusal; give what sends a text and returns the reply to it."""
    place = ("127.0.0.1", int(address.url.rpartition(":")[2]))
    with (
        socket.create_connection(place, PATIENCE_S) as plain,
        tls(address.certificate).wrap_socket(plain) as connection,
        connection.makefile("r") as lines,
    ):

        def say(text: str) -> str:
            connection.sendall(f"{text}PING\r\n".encode())
            reply = ""
            while (line := lines.readline()).strip() != "PONG":
                assert line, "the server ended the connection"
                reply += line.lower()
            return reply

        options = {"user": f"{address.project}.{address.user}", "pass": address.key, "verbose": False, "protocol": 1}
        say(f"CONNECT {json.dumps(options)}\r\n")
        yield say


@pytest.mark.parametrize("name", USERS)
def test_each_subject_with_each_credential(hub: Hub, name: str) -> None:
    with spoken_to(hub.address(name)) as say:
        refused = "".join(say(f"PUB {one} 1\r\nx\r\n") for one in SUBJECTS)
        refused += "".join(say(f"SUB {one} {n}\r\n") for n, one in enumerate([*SUBJECTS, *WIDE], 1))
    published = [one for one in SUBJECTS if f'publish to "{one.lower()}"' not in refused]
    heard = [one for one in [*SUBJECTS, *WIDE] if f'subscription to "{one.lower()}"' not in refused]
    assert published == [one for one in SUBJECTS if may_publish(name, USERS[name], one)]
    assert heard == [one for one in SUBJECTS if may_hear(name, USERS[name], one)]
    assert published
    assert heard


def test_who_has_no_key_or_another_ones_is_refused(hub: Hub) -> None:
    ann = hub.address("ann")
    for wrong in (
        dataclasses.replace(ann, key="", user="anyone"),
        dataclasses.replace(ann, key="guess"),
        dataclasses.replace(ann, project="Q"),
        dataclasses.replace(ann, user="bob"),
        dataclasses.replace(hub.address("ann"), user="nobody", project=""),
    ):
        link = use_link(wrong)
        try:
            wait_until(lambda link=link, user=wrong.user: f"refuses user '{user}'" in link.reason, wrong)
            assert not link.connected
        finally:
            drop_link(link)


def test_one_project_neither_lists_nor_reaches_the_runs_of_another(hub: Hub) -> None:
    with sg.init("mine", hub=hub.files["P", "node"]) as mine, sg.init("theirs", hub=hub.files["Q", "node"]) as theirs:
        with sg.connect("mine", hub=hub.files["P", "bob"], wait_s=PATIENCE_S) as found:
            assert found.id == mine.id
        with sg.connect("theirs", hub=hub.files["Q", "ann"], wait_s=PATIENCE_S) as found:
            assert found.id == theirs.id
        for project, name in (("P", "mine"), ("Q", "theirs")):
            file = hub.files[project, "ann"]
            wait_until(lambda file=file, name=name: listed(file) == [name], "its own run alone is found")
        with pytest.raises(RunNotFoundError):
            sg.connect(theirs.id, hub=hub.files["P", "bob"])


def test_a_project_that_is_full_takes_no_place_of_another(tmp_path: Path) -> None:
    hub = Hub(tmp_path, change=lambda content: content["accounts"]["P"]["limits"].update(max_connections=2))
    links = [use_link(hub.address(name)) for name in ("node", "ann")]
    try:
        wait_until(lambda: all(link.connected for link in links), "both have a place")
        full = ("is full", "ended the connection at once")
        wait_until(lambda: any(text in str(listed(hub.files["P", "bob"])) for text in full), "there is no third one")
        wait_until(lambda: listed(hub.files["Q", "bob"]) == [], "the other project has room")
    finally:
        for link in links:
            drop_link(link)
        hub.server.close()


@pytest.mark.slow
def test_a_flood_in_one_project_loses_nothing_of_another(hub: Hub) -> None:
    async def flood() -> None:
        client = await client_of(hub.address("ann"))
        for _ in range(200):
            await client.publish(f"sightglass.ask.ann.node.{ID}.{CLIENT}", bytes(2**20))
        await client.flush(PATIENCE_S)
        await client.close()

    with (
        sg.init("victim", hub=hub.files["P", "node"]),
        sg.init("calm", hub=hub.files["Q", "node"]) as run,
        sg.connect("calm", hub=hub.files["Q", "ann"], wait_s=PATIENCE_S) as client,
    ):
        stream = client.stream("batch.loss")
        for n in range(50):
            run.observe("batch", loss=float(n))
        asyncio.run(flood())
        for n in range(50, 100):
            run.observe("batch", loss=float(n))
        assert [record.value for record in stream.wait(100, timeout_s=PATIENCE_S)] == [float(n) for n in range(100)]
        assert client.n_reconnects == 0
