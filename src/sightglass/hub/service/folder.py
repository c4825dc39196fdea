"""What a hub keeps in a folder that only its user can enter, and so has again when it is started again.

`hub.pem` is its certificate with the key, `hub.json` its settings, `users/PROJECT.NAME.json` a user. `hub.conf`, the
configuration of the server, is made from them.
"""

from __future__ import annotations

import datetime
import json
import os
import re
import secrets
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from sightglass.core.errors import MissingExtraError, TransportError, UnknownNameError
from sightglass.core.process.certificate import made
from sightglass.core.process.files import write_private
from sightglass.hub.address import ROLES, Role, checked_token, checked_url, login
from sightglass.hub.link import MAX_CHUNK_BYTES
from sightglass.hub.nats import ROOT
from sightglass.protocol.address import outer_name

KEY_BYTES: Final = 32  # 256 bits cannot be guessed
VALID: Final = datetime.timedelta(days=3650)  # hub files hold the certificate, and would all be worthless with it
LISTEN: Final = "127.0.0.1:4222"
PROJECT: Final = "default"
EVERYWHERE: Final = ("0.0.0.0", "[::]")  # all addresses of this machine


class HubSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a hub was started.

    Attributes:
        listen: Its address and port.
        url: Where runs and clients connect.
    """

    listen: str
    url: str

    @property
    def leads_back(self) -> bool:
        """Whether the hub listens for all machines, under an address that leads each of them to itself."""
        name = urlsplit(self.url).hostname or ""
        return self.listen.rpartition(":")[0] in EVERYWHERE and name.startswith(("localhost", "127."))


class HubFolder:
    """The folder of a hub.

    Attributes:
        path: The folder.
        configuration: The configuration of the server.
        log: What the server logs.
    """

    def __init__(self, path: Path | None = None) -> None:
        """Find it; by default it is in this user's state folder."""
        state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
        self.path = (path or Path(state) / "sightglass" / "hub").absolute()
        self.configuration = self.path / "hub.conf"
        self.log = self.path / "nats.log"
        self._users = self.path / "users"
        self._certificate = self.path / "hub.pem"
        self._settings = self.path / "hub.json"

    def prepare(self, *, listen: str | None = None, address: str | None = None) -> HubSettings:
        """Make what the hub needs, unless it is there: certificate, settings, configuration, and first users.

        Args:
            listen: The address and port to listen on. By default as before, or loopback.
            address: The host name or address under which runs and clients reach the hub, if it is another one.

        Raises:
            TransportError: The folder cannot be used, or an address is not valid.
            MissingExtraError: The package `cryptography` is not installed.
        """
        try:
            settings = self._chosen(listen, address)  # what may be refused comes first, so that nothing is left
            pem = None if self._certificate.exists() else _certificate()
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.name == "posix" and self.path.stat().st_mode & 0o077:
                raise TransportError(f"Expected a folder that only you can enter (chmod 700), got {str(self.path)!r}")
            self._users.mkdir(mode=0o700, exist_ok=True)
            write_private(self._settings, msgspec.json.encode(settings))
            if pem is not None:
                write_private(self._certificate, pem)
            if not self.users():
                for role in ROLES:
                    self.add(role, PROJECT, role)
            for user in self.users():
                if user.project == PROJECT and user.name in ROLES:
                    write_private(self.path / f"{user.name}.hub", self.hub_file(user))
            self.configure()
        except OSError as error:
            if isinstance(error, TransportError):
                raise
            raise TransportError(f"Cannot keep a hub in {str(self.path)!r}: {error}") from None
        return settings

    def settings(self) -> HubSettings:
        """Return how the hub was started last.

        Raises:
            TransportError: It never was.
        """
        try:
            return msgspec.json.decode(self._settings.read_bytes(), type=HubSettings)
        except (OSError, msgspec.MsgspecError):
            raise TransportError(f"No hub was started in {str(self.path)!r}: run `sightglass hub` first") from None

    def users(self) -> list[Credential]:
        """Return the users, by project and name."""
        found: list[Credential] = []
        for path in self._users.glob("*.json"):
            try:
                user = msgspec.json.decode(path.read_bytes(), type=Credential)
            except (FileNotFoundError, msgspec.MsgspecError):  # revoked just now, or another file
                continue
            if path == self._file_of(user.name, user.project):
                found.append(user)
        return sorted(found, key=lambda user: (user.project, user.name))

    def add(self, name: str, project: str, role: Role) -> Credential:
        """Add a user, and return their credential.

        Raises:
            TransportError: The name of the user or the project is not valid or taken, or cannot be stored.
        """
        path = self._file_of(name, project)
        if path.exists():
            raise TransportError(f"Project {project!r} has a user {name!r} already: revoke them first")
        key = secrets.token_urlsafe(KEY_BYTES)
        user = Credential(name=name, project=project, role=role, key=key, added=time.time())
        write_private(path, msgspec.json.encode(user))
        return user

    def revoke(self, name: str, project: str) -> None:
        """Remove a user.

        Raises:
            UnknownNameError: There is no such user.
        """
        path = self._file_of(name, project)
        try:
            path.unlink()
        except FileNotFoundError:
            known = [user.name for user in self.users() if user.project == project]
            raise UnknownNameError("user", name, known, where=f"in project {project!r}") from None

    def hub_file(self, user: Credential) -> bytes:
        """Return the content of a user's hub file. Errors as of `settings`."""
        content = {"sightglass_hub": 1, "url": self.settings().url, "project": user.project, "user": user.name}
        content |= {"role": user.role, "key": user.key, "certificate": self.certificate}
        return json.dumps(content, indent=1).encode()

    @property
    def certificate(self) -> str:
        """The hub's certificate, in PEM."""
        pem = self._certificate.read_text()
        return pem[pem.index("-----BEGIN CERTIFICATE-----") :]  # the key comes first, and stays here

    def configure(self) -> None:
        """Write the configuration of the server, with the users that there are."""
        users = None
        while users != (users := self.users()):  # others may be added meanwhile
            content = configuration(
                users, listen=self.settings().listen, certificate=self._certificate, folder=self.path
            )
            write_private(self.configuration, content.encode())

    def _file_of(self, name: str, project: str) -> Path:
        return self._users / f"{checked_token(project)}.{checked_token(name)}.json"

    def _chosen(self, listen: str | None, address: str | None) -> HubSettings:
        """Return the settings for what was asked, or else as before."""
        if listen is None and address is None and self._settings.exists():
            return self.settings()
        listen = listen or (self.settings().listen if self._settings.exists() else LISTEN)
        host, _, port = listen.rpartition(":")
        if not host or not re.fullmatch(r"[0-9]{1,5}", port):
            raise TransportError(f"Expected an address and a port, such as {LISTEN!r}, got {listen!r}")
        outside = address or (outer_name() if host in EVERYWHERE else host)
        url = checked_url(f"tls://{outside}:{port}")
        if self._settings.exists():
            return msgspec.structs.replace(self.settings(), listen=listen, url=url)
        return HubSettings(listen=listen, url=url)


def _certificate() -> bytes:
    try:
        return made(["sightglass-hub"], valid=VALID)
    except MissingExtraError as error:  # whose extra lacks the rest of what a hub needs
        raise MissingExtraError(error.package, extra="hub", purpose="A hub") from None


# The configuration of a hub's NATS server. Pure: values in, text out.
#
# A project is an account: its users can neither hear nor name what is in another one. What a user may do within their
# project are the subjects that they may publish to and subscribe to, as in the table of docs/wire.md; all others are
# refused. JetStream is off, and no user may use a subject under `$JS.`, `$SYS.` or `$SRV.`: there a server answers
# where a request says, with rights of its own.

PROJECT_LIMITS: Final = {
    "max_connections": 4_000,  # processes with runs, and clients
    "max_subscriptions": 200_000,  # three for a run, one for a channel and for each stream that it shares with others
    "max_payload": MAX_CHUNK_BYTES,
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
        "max_payload": MAX_CHUNK_BYTES,
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
