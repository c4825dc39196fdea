"""What a hub keeps is read by its project alone, and what the server sends for a reader is taken for nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.hub_server import PATIENCE_S, USERS, Hub, Trained, listed, needs_server, wait_until

import sightglass as sg
from sightglass.protocol import messages
from sightglass.protocol.hub_address import HubAddress
from sightglass.protocol.kept_reader import GET, KeptReader
from sightglass.protocol.pieces import Cutter

from .test_rights import CLIENT, ID, client_of

pytestmark = needs_server
pytest.importorskip("nats")

READERS = [name for name, role in USERS.items() if role != "run"]
STOP = [
    messages.encode(messages.Hello(version=messages.VERSION, client="mallory")),
    messages.encode(messages.RunCommand(request=1, kind="stop")),
]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    hub = Hub(tmp_path)
    yield hub
    hub.server.close()


def pieces_of(messages: list[Any]) -> list[bytes]:
    cutter = Cutter()
    return [piece for frames in messages for piece in cutter.cut(frames, 2**20)]


def told(address: HubAddress, *said: tuple[str, bytes, str]) -> None:
    """Publish messages: each a subject, its content and where to reply."""

    async def tell() -> None:
        client = await client_of(address)
        for subject, content, reply in said:
            await client.publish(subject, content, reply=reply)
        await client.flush(PATIENCE_S)
        await client.close()

    asyncio.run(tell())


def asked_for(subject: str, reply: str, *, batch: int = 10) -> tuple[str, bytes, str]:
    """Return a request that has the server send what is stored under a subject to another one."""
    return GET, json.dumps({"next_by_subj": subject, "seq": 1, "batch": batch}).encode(), reply


def kept_under(hub: Hub, subject: str, name: str = "ann") -> tuple[list[bytes], int]:
    reader = KeptReader(hub.address(name))
    try:
        reader.read(subject)
        return [one.data for one in reader.read_all(PATIENCE_S)], reader.n_forged
    finally:
        reader.close()


def test_what_is_sent_as_a_command_stops_the_run(hub: Hub) -> None:
    """Who may command does so with these messages: that nobody else can is tried with the same ones."""
    with sg.init("taken", hub=hub.files["P", "node"]) as run, Trained(run):
        wait_until(lambda: listed(hub.files["P", "ann"]) == ["taken"], "it is found")
        target = f"sightglass.command.bob.node.{run.id}.{CLIENT}"
        told(hub.address("bob"), *((target, one, "") for one in pieces_of(STOP)))
        wait_until(lambda: run.stopping, "it is stopped")


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("kind", ["command", "ask"])
def test_no_reader_has_stored_content_taken_for_a_message_to_a_run(hub: Hub, name: str, kind: str) -> None:
    stored = f"sightglass.kept.other.{ID}.1.records"
    told(hub.address("other"), *((stored, one, "") for one in pieces_of(STOP)))
    wait_until(lambda: len(kept_under(hub, stored)[0]) == 2, "it is stored")
    with sg.init("safe", hub=hub.files["P", "node"]) as run, Trained(run):
        run.control("lr", 0.1, thread="any")
        wait_until(lambda: listed(hub.files["P", "ann"]) == ["safe"], "it is found")
        target = f"sightglass.{kind}.bob.node.{run.id}.{CLIENT}"
        before = run._wiring.endpoints.hub._link.pace.n_full
        told(hub.address(name), *([asked_for(stored, target)] * 3))
        with sg.connect("safe", hub=hub.files["P", "bob"]) as bob:
            bob.set("lr", 0.5)  # on the same connection, behind what was sent there
            assert not run.stopping
            assert bob.describe().n_clients == 1
            bob.stop()
        assert run.stopping
        assert run._wiring.endpoints.hub._link.pace.n_full == before


@pytest.mark.parametrize("name", READERS)
def test_no_reader_ends_a_run_for_others(hub: Hub, name: str) -> None:
    """An empty message says that a run has ended; the server's answer "nothing found" is empty."""
    with sg.init("there", hub=hub.files["P", "node"]) as run:
        wait_until(lambda: listed(hub.files["P", "ann"]) == ["there"], "it is found")
        from sightglass.client.discover import runs_on_hub

        live = runs_on_hub(hub.files["P", "bob"])
        try:
            told(
                hub.address(name), asked_for("sightglass.kept.node.nothing.1.records", f"sightglass.live.node.{run.id}")
            )
            told(
                hub.address(name), asked_for("sightglass.kept.node.nothing.1.records", f"sightglass.live.node.{run.id}")
            )
            for _ in range(20):
                assert [one.entry.name for one in live.reachable() if one.entry] == ["there"]
        finally:
            live.close()


@pytest.mark.parametrize("name", READERS)
def test_what_a_reader_has_stored_again_is_not_read_as_a_record(hub: Hub, name: str) -> None:
    mine, other = f"sightglass.kept.node.{ID}.1.records", f"sightglass.kept.other.{ID}.1.records"
    told(hub.address("node"), (mine, b"a", ""))
    told(hub.address("other"), (other, b"forged", ""))
    wait_until(lambda: kept_under(hub, other)[0], "it is stored")
    told(hub.address(name), asked_for(other, mine), asked_for("sightglass.kept.node.nothing.1.records", mine))
    wait_until(lambda: kept_under(hub, mine)[1], "the server has stored its answer")
    told(hub.address("node"), (mine, b"b", ""))
    wait_until(lambda: kept_under(hub, mine)[0] == [b"a", b"b"], "nothing but what the run has published")


def test_one_project_reads_nothing_of_another(hub: Hub) -> None:
    told(hub.address("node", "Q"), (f"sightglass.kept.node.{ID}.1.records", b"theirs", ""))
    told(hub.address("node"), (f"sightglass.kept.node.{ID}.1.records", b"mine", ""))
    wait_until(lambda: kept_under(hub, f"sightglass.kept.node.{ID}.1.records")[0], "it is stored")
    assert kept_under(hub, f"sightglass.kept.node.{ID}.1.records")[0] == [b"mine"]


def test_the_hub_itself_may_make_stores_and_nothing_else() -> None:
    from sightglass.hub.configuration import keeper_rights

    assert keeper_rights()["publish"] == [f"$JS.API.STREAM.{verb}.KEPT" for verb in ("CREATE", "UPDATE", "INFO")]
