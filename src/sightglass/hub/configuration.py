"""The configuration of a hub's NATS server. Pure: values in, text out.

A project is an account: its users can neither hear nor name what is in another one. What a user may do within their
project are the subjects that they may publish to and subscribe to, as in the table of docs/wire.md; all others are
refused. JetStream is off, and no user may use a subject under `$JS.`, `$SYS.` or `$SRV.`: there a server answers where
a request says, with rights of its own.
"""

from __future__ import annotations

import json
import secrets
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import msgspec

from sightglass.protocol.hub_address import Role, login
from sightglass.protocol.hub_link import MAX_PIECE_BYTES
from sightglass.protocol.nats import ROOT

PROJECT_LIMITS: Final = {
    "max_connections": 4_000,  # processes with runs, and clients
    "max_subscriptions": 200_000,  # three for a run, one for a channel and for each stream that it shares with others
    "max_payload": MAX_PIECE_BYTES,
}
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
            ],
            "subscribe": [f"{ROOT}.ask.*.{user}.*.*", f"{ROOT}.command.*.{user}.*.*", f"{ROOT}.who.*.*"],
        }  # fmt: skip
    commands = [f"{ROOT}.command.{user}.*.*.*"] if role == "controller" else []
    return {
        "publish": [f"{ROOT}.ask.{user}.*.*.*", f"{ROOT}.who.{user}.*", *commands],
        "subscribe": [
            f"{ROOT}.answer.{user}.*", f"{ROOT}.stream.*.*.*", f"{ROOT}.live.*.*", f"{ROOT}.here.{user}.*.*.*",
        ],
    }  # fmt: skip


def configuration(users: Iterable[Credential], *, listen: str, certificate: Path, folder: Path) -> str:
    """Return the configuration of the server, in the subset of its language that is JSON.

    Args:
        users: Who may connect.
        listen: The address and port, such as "127.0.0.1:4222".
        certificate: A PEM file with the certificate and its key.
        folder: A folder for logs.
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
    content = {
        "listen": listen,
        "max_payload": MAX_PIECE_BYTES,
        # The handshake comes first: a server that greets in plain text lets somebody in between strip TLS off.
        "tls": {
            "cert_file": str(certificate), "key_file": str(certificate), "handshake_first": True,
            "min_version": "1.3", "timeout": TLS_S,
        },
        "log_file": str(folder / "nats.log"),
        "logfile_size_limit": MAX_LOG_BYTES,
        "logfile_max_num": N_LOGS,
        "accounts": accounts,
    }  # fmt: skip
    return json.dumps(content, indent=1)
