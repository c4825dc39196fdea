"""Make the store of each project: the JetStream stream in which the server keeps the streams of runs."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any, Final

from sightglass.core.errors import TransportError
from sightglass.core.guarded import message as message_of
from sightglass.protocol.hub_address import HubAddress
from sightglass.protocol.kept_reader import STORE, SUBJECTS
from sightglass.protocol.nats_client import close, connect

from .configuration import KEEPER, keeper_key

if TYPE_CHECKING:
    from .folder import HubFolder

API: Final = "$JS.API.STREAM"
MAX_PIECES: Final = 100_000  # of one stream, so that a fast one leaves the others room
READY_S: Final = 30.0  # servers that have just begun first choose a leader, which takes seconds
REPLY_S: Final = 5.0
REST_S: Final = 0.2
EXISTS: Final = 10058  # JetStream's number for a stream of this name with another configuration


def make_stores(folder: HubFolder, *, url: str = "", replicas: int = 1) -> None:
    """Make or change the store of each project, or do nothing if the hub keeps nothing.

    Args:
        folder: The hub's folder.
        url: Where its servers are; by default where it listens on this machine.
        replicas: On how many servers of a cluster each store is.

    Raises:
        TransportError: The server does not make it within `READY_S`.
    """
    settings = folder.settings()
    if not settings.keep_s:
        return
    store = {
        "name": STORE, "subjects": list(SUBJECTS), "storage": "file", "retention": "limits", "discard": "old",
        "max_age": round(settings.keep_s * 1e9), "max_bytes": settings.keep_bytes, "max_msgs_per_subject": MAX_PIECES,
        "allow_direct": True, "no_ack": True, "num_replicas": replicas,
    }  # fmt: skip
    for project in sorted({user.project for user in folder.users()}):
        address = HubAddress(
            url=url or settings.own_url, user=KEEPER, project=project, key=keeper_key(folder.secret, project),
            certificate=folder.certificate,
        )  # fmt: skip
        asyncio.run(_make(address, store))


async def _make(address: HubAddress, store: dict[str, Any]) -> None:
    deadline_s, problem = time.monotonic() + READY_S, ""
    while time.monotonic() < deadline_s:
        try:
            problem = await _attempt(address, store)
        except Exception as error:  # noqa: BLE001  whatever a server answers, the next attempt may succeed
            problem = message_of(error) or type(error).__name__
        if not problem:
            return
        await asyncio.sleep(REST_S)
    raise TransportError(f"The hub cannot keep the streams of project {address.project!r}: {problem}")


async def _attempt(address: HubAddress, store: dict[str, Any]) -> str:
    """Make a store, or change it; return the problem with it."""
    client = await connect(address, noticed=_ignore)
    try:
        answer = await _ask(client, f"{API}.CREATE.{STORE}", store)
        if answer.get("error", {}).get("err_code") == EXISTS:
            answer = await _ask(client, f"{API}.UPDATE.{STORE}", store)
        return str(answer.get("error", {}).get("description", ""))
    finally:
        await close(client)


async def _ask(client: Any, subject: str, content: dict[str, Any]) -> dict[str, Any]:
    inbox = client.new_inbox()
    answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def answered(subject: str, data: bytes, headers: bytes | None) -> None:
        if not answer.done():
            answer.set_result(data)

    await client.subscribe(inbox, cb=answered)
    await client.publish(subject, json.dumps(content).encode(), reply=inbox)
    async with asyncio.timeout(REPLY_S):
        data = await answer
    return dict(json.loads(data)) if data else {"error": {"description": "JetStream does not answer"}}


async def _ignore(error: Exception) -> None:
    """Do nothing: what is refused is not answered."""
