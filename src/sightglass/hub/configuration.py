"""The configuration of a hub's NATS server. Pure: values in, text out.

A project is an account: its users can neither hear nor name what is in another one. What a user may do within their
project are the subjects that they may publish to and subscribe to, as in the table of docs/wire.md; all others, such as
those of JetStream's API, are refused.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from sightglass.protocol.hub_address import Role, login
from sightglass.protocol.hub_link import MAX_PIECE_BYTES
from sightglass.protocol.kept import RECORDS
from sightglass.protocol.kept_reader import GET, STORE
from sightglass.protocol.nats import ROOT

PROJECT_LIMITS: Final = {
    "max_connections": 4_000,  # processes with runs, and clients
    "max_subscriptions": 200_000,  # three for a run, one for a channel and for each stream that it shares with others
    "max_payload": MAX_PIECE_BYTES,
}
KEEPER: Final = "$hub"  # no user's name: these have no dollar
MAX_FILE_BYTES: Final = 2**50  # of JetStream; each store has a limit of its own, which it reserves
TLS_S: Final = 10  # for a handshake: the first ones of a thousand runs come together
MAX_LOG_BYTES: Final = 10 * 2**20  # somebody who guesses passwords writes a line for each
N_LOGS: Final = 3


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """A user of a hub.

    Attributes:
        name: Their name, a token of the subjects that they may use.
        project: Their project.
        role: What they may do.
        key: What they prove it with.
        added: When they were added, in seconds since the Unix epoch.
    """

    name: str
    project: str
    role: Role
    key: str
    added: float


def rights(user: str, role: Role) -> dict[str, list[str]]:
    """Return the subjects that a user may publish to and subscribe to."""
    if role == "run":
        return {
            "publish": [
                f"{ROOT}.answer.*.*", f"{ROOT}.stream.{user}.*.*", f"{ROOT}.live.{user}.*", f"{ROOT}.here.*.*.{user}.*",
                f"{ROOT}.kept.{user}.*.*", f"{ROOT}.kept.{user}.*.*{RECORDS}",
            ],
            "subscribe": [f"{ROOT}.ask.*.{user}.*.*", f"{ROOT}.command.*.{user}.*.*", f"{ROOT}.who.*.*"],
        }  # fmt: skip
    commands = [f"{ROOT}.command.{user}.*.*.*"] if role == "controller" else []
    return {
        "publish": [f"{ROOT}.ask.{user}.*.*.*", f"{ROOT}.who.{user}.*", GET, *commands],
        "subscribe": [
            f"{ROOT}.answer.{user}.*", f"{ROOT}.stream.*.*.*", f"{ROOT}.live.*.*", f"{ROOT}.here.{user}.*.*.*",
        ],
    }  # fmt: skip


def keeper_key(secret: bytes, project: str) -> str:
    """Return the key with which the hub itself makes the store of a project."""
    return hmac.new(secret, project.encode(), "sha256").hexdigest()


def keeper_rights() -> dict[str, list[str]]:
    """Return the subjects that the hub itself may use: it makes and changes a store, and cannot read or empty it."""
    return {
        "publish": [f"$JS.API.STREAM.{verb}.{STORE}" for verb in ("CREATE", "UPDATE", "INFO")],
        "subscribe": ["_INBOX.>"],
    }


def configuration(
    users: Iterable[Credential], *, listen: str, certificate: Path, folder: Path, secret: bytes, keeps: bool
) -> str:
    """Return the configuration of the server, in the subset of its language that is JSON.

    Args:
        users: Who may connect.
        listen: The address and port, such as "127.0.0.1:4222".
        certificate: A PEM file with the certificate and its key.
        folder: A folder for JetStream and logs.
        secret: What the keys are made of with which the hub makes the stores of projects.
        keeps: Whether it keeps streams.
    """
    projects: defaultdict[str, list[Credential]] = defaultdict(list)
    for user in users:
        projects[user.project].append(user)
    # With a user that nobody is, the server asks everyone for a name, also while there are no projects.
    accounts: dict[str, Any] = {"$SYS": {"users": [{"user": "nobody", "password": secrets.token_urlsafe()}]}}
    for project, members in sorted(projects.items()):
        accounts[project] = {
            "limits": PROJECT_LIMITS,
            "users": [
                {"user": login(one.project, one.name), "password": one.key, "permissions": rights(one.name, one.role)}
                for one in members
            ],
        }
        if keeps:
            key = keeper_key(secret, project)
            keeper = {"user": login(project, KEEPER), "password": key, "permissions": keeper_rights()}
            accounts[project]["users"].append(keeper)
            accounts[project]["jetstream"] = {"max_file": -1, "max_memory": 0, "max_streams": 1}
    content = {
        "listen": listen,
        "max_payload": MAX_PIECE_BYTES,
        # The handshake comes first: a server that greets in plain text lets somebody in between strip TLS off.
        "tls": {
            "cert_file": str(certificate), "key_file": str(certificate), "handshake_first": True,
            "min_version": "1.3", "timeout": TLS_S,
        },
        "jetstream": {"store_dir": str(folder), "max_file_store": MAX_FILE_BYTES, "max_memory_store": 0},
        "log_file": str(folder / "nats.log"),
        "logfile_size_limit": MAX_LOG_BYTES,
        "logfile_max_num": N_LOGS,
        "accounts": accounts,
    }  # fmt: skip
    return json.dumps(content, indent=1)
