"""A law: nothing that a credential sends makes a message arrive on a subject that its role may not publish to.

A server answers some requests wherever they say, with rights of its own. So each credential sends every request that
the server knows, with each of its fields, towards every subject that is not theirs; JetStream is on in their project,
with a stream in it. A user who hears everything tells what arrives.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.hub_server import PATIENCE_S, USERS, Hub, needs_server

from sightglass.hub.address import HubAddress
from sightglass.hub.nats_client import tls

from .test_rights import CLIENT, ID, SUBJECTS, may_publish

pytestmark = needs_server
pytest.importorskip("nats")

OWNER, STORE, SUBJECT = "owner", "KEPT", "sightglass.kept.other.0.1.records"
TARGETS = [one for one in SUBJECTS if one.startswith("sightglass.")]
JS = "$JS.API"
READS: list[Mapping[str, Any]] = [
    {"seq": 1}, {"last_by_subj": SUBJECT}, {"next_by_subj": SUBJECT}, {"seq": 1, "batch": 3},
    {"multi_last": ["sightglass.>"]}, {"seq": 999},
    {"seq": 1, "batch": 3, "max_bytes": 10_000}, {"multi_last": [SUBJECT], "up_to_seq": 9},
    {"start_time": "2020-01-01T00:00:00Z", "batch": 3}, {"multi_last": [SUBJECT], "up_to_time": "2090-01-01T00:00:00Z"},
]  # fmt: skip


def requests(target: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the requests that a NATS server answers, each with where it is sent and its fields."""
    for read in READS:
        for no_headers in (False, True):
            yield f"{JS}.DIRECT.GET.{STORE}", {**read, "no_hdr": no_headers}
            yield f"{JS}.STREAM.MSG.GET.{STORE}", {**read, "no_hdr": no_headers}
    yield f"{JS}.DIRECT.GET.{STORE}.{SUBJECT}", {}
    for verb in ("INFO", "PURGE", "SNAPSHOT", "RESTORE", "DELETE"):
        yield f"{JS}.STREAM.{verb}.{STORE}", {"deliver_subject": target, "no_consumers": True}
    for verb in ("INFO", "ACCOUNT.INFO", "STREAM.NAMES", "STREAM.LIST", f"CONSUMER.LIST.{STORE}"):
        yield f"{JS}.{verb}", {}
    pushed = {"durable_name": "d", "deliver_subject": target, "ack_policy": "none", "deliver_policy": "all"}
    for config in (pushed, {**pushed, "flow_control": True, "idle_heartbeat": 10**9}, {"ack_policy": "none"}):
        for name in (f"CONSUMER.CREATE.{STORE}", f"CONSUMER.DURABLE.CREATE.{STORE}.d"):
            yield f"{JS}.{name}", {"stream_name": STORE, "config": config}
    yield f"{JS}.CONSUMER.MSG.NEXT.{STORE}.d", {"batch": 3, "no_wait": True}
    copy = {"name": "COPY", "storage": "memory", "sources": [{"name": STORE}]}
    for extra in ({}, {"republish": {"src": ">", "dest": target}}, {"subjects": ["sightglass.ask.>"]}):
        yield f"{JS}.STREAM.CREATE.COPY", {**copy, **extra}
        yield f"{JS}.STREAM.UPDATE.{STORE}", {"name": STORE, "subjects": ["sightglass.kept.>"], **extra}
    for subject in (
        "$SYS.REQ.USER.INFO",
        "$SYS.REQ.SERVER.PING",
        "$SYS.REQ.ACCOUNT.PING.CONNZ",
        "$SYS.REQ.SERVER.PING.VARZ",
    ):
        yield subject, {}
    for verb in ("PING", "INFO", "STATS"):
        yield f"$SRV.{verb}", {}


def headers(target: str) -> Iterator[dict[str, str]]:
    """Yield the headers by which a server sends something of its own, or keeps and sends later."""
    yield {"Nats-Trace-Dest": target}
    yield {"Nats-Trace-Dest": target, "Nats-Trace-Only": "true"}
    yield {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "Nats-Trace-Dest": target}
    yield {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": target}
    yield {"Nats-Msg-Id": "1", "Nats-Rollup": "all", "Nats-Expected-Stream": STORE}


class Line:
    """A connection that speaks the protocol itself, so that nothing is left out."""

    def __init__(self, address: HubAddress, options: Mapping[str, Any]) -> None:
        place = ("127.0.0.1", int(address.url.rpartition(":")[2]))
        plain = socket.create_connection(place, PATIENCE_S)
        self._socket = tls(address.certificate).wrap_socket(plain)
        self._lines = self._socket.makefile("rb")
        self.heard: list[str] = []
        self.n_sent = 0
        content = {"verbose": False, "headers": True, "no_responders": True, "protocol": 1, **options}
        self.say(f"CONNECT {json.dumps(content)}\r\n")

    def say(self, text: str) -> None:
        """Send a text, and read until the server has taken it."""
        self.n_sent += text.count("PUB ")
        self._socket.sendall(f"{text}PING\r\n".encode())
        while (line := self._lines.readline().strip()) != b"PONG":
            assert line, "the server ended the connection"
            kind, *rest = line.split()
            if kind in (b"MSG", b"HMSG"):
                self._lines.read(int(rest[-1]) + 2)
                self.heard.append(rest[0].decode())

    def close(self) -> None:
        self._lines.close()
        self._socket.close()


def published(subject: str, reply: str, content: dict[str, Any], header: Mapping[str, str] | None = None) -> str:
    data = json.dumps(content)
    if header is None:
        return f"PUB {subject} {reply} {len(data)}\r\n{data}\r\n"
    head = "NATS/1.0\r\n" + "".join(f"{key}: {value}\r\n" for key, value in header.items()) + "\r\n"
    return f"HPUB {subject} {reply} {len(head)} {len(head) + len(data)}\r\n{head}{data}\r\n"


def with_store(*grants: str) -> Callable[[dict[str, Any]], None]:
    """Return what turns JetStream on in a hub's configuration, and lets a user use more subjects than theirs."""

    def change(content: dict[str, Any]) -> None:
        folder = str(Path(content["tls"]["cert_file"]).parent / "store")
        content["jetstream"] = {"store_dir": folder}
        project = content["accounts"]["P"]
        project["jetstream"] = "enabled"
        project["users"].append({"user": OWNER, "password": OWNER})
        (ann,) = (user for user in project["users"] if user["user"] == "P.ann")
        ann["permissions"]["publish"] += grants

    return change


@contextlib.contextmanager
def lines(hub: Hub, *names: str) -> Iterator[list[Line]]:
    """Connect the owner, who hears all of the project and has stored something in it, and other users."""
    address = hub.address("ann")
    logins = [(OWNER, OWNER), *((f"P.{name}", hub.address(name).key) for name in names)]
    with contextlib.ExitStack() as stack:
        found = [
            stack.enter_context(contextlib.closing(Line(address, {"user": user, "pass": key}))) for user, key in logins
        ]
        store = {
            "name": STORE,
            "subjects": ["sightglass.kept.>"],
            "allow_direct": True,
            "storage": "memory",
            "no_ack": True,
        }
        found[0].say(published(f"{JS}.STREAM.CREATE.{STORE}", "_INBOX.owner", store))
        found[0].say("".join(published(SUBJECT, "", {"stored": n}) for n in range(3)) + "SUB > 1\r\n")
        yield found


def breaches(owner: Line, line: Line, name: str) -> set[str]:
    """Let a user send all that there is; return the subjects that are not theirs on which something arrived."""
    foreign = [one for one in TARGETS if not may_publish(name, USERS[name], one)]
    own = [one for one in TARGETS if may_publish(name, USERS[name], one)]
    owner.heard.clear()
    for target in foreign:
        line.say("".join(published(subject, target, content) for subject, content in requests(target)))
        line.say("".join(published(one, target, {}, header) for one in own for header in headers(target)))
        line.say("".join(published(one, target, {}) for one in own))
    owner.say("")
    return set(owner.heard) & set(foreign)


@pytest.mark.parametrize("name", USERS)
def test_nothing_arrives_where_a_role_may_not_publish(tmp_path: Path, name: str, record_property: Any) -> None:
    hub = Hub(tmp_path, change=with_store())
    with contextlib.closing(hub.server), lines(hub, name) as (owner, line):
        assert breaches(owner, line, name) == set()
        assert owner.heard  # what it may publish has arrived
        record_property("tried", line.n_sent)


@pytest.mark.parametrize(
    "grant", [f"{JS}.DIRECT.GET.{STORE}", f"{JS}.STREAM.MSG.GET.{STORE}", f"{JS}.CONSUMER.CREATE.{STORE}"]
)
def test_a_planted_grant_is_found(tmp_path: Path, grant: str) -> None:
    """The first one is what clients of a hub had: a viewer could command, and end runs for others."""
    hub = Hub(tmp_path, change=with_store(grant))
    with contextlib.closing(hub.server), lines(hub, "ann") as (owner, line):
        found = breaches(owner, line, "ann")
        assert f"sightglass.command.bob.node.{ID}.{CLIENT}" in found
