"""Who may use the page: tokens, personal links, and the hosts under which it may be asked.

Theory of operation
    * There are two tokens: the controller's allows commands, the viewer's is read-only. Each start makes new ones,
      unless the user chose the port: then they are stored, so that open pages find a restarted server. People with
      personal links have tokens of their own. A token travels in the fragment of the printed link, which browsers do
      not send, then in the header `Authorization` and in the first message of a socket. It never stands in a path, a
      query or a cookie: cookies are shared by all ports of a host, so the browser would send them to another user's
      server on this machine. Tokens are compared in constant time.
    * A page of another site can make a browser send requests here, and can point its own name at this machine (DNS
      rebinding). So the header `Host` must be one of the server's own names, or of those under which a proxy serves it.
      Numeric addresses cannot be rebound: all of them are allowed if the server listens on all addresses.
    * `Origin`, if the browser sends it, must be the `Host` of the request, port included, since other ports are other
      users' servers; or a name of the proxy. CORS is not supported.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import ipaddress
import json
import os
import re
import secrets
import socket
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

import msgspec

from sightglass.core.errors import TransportError, UnknownNameError
from sightglass.core.process.files import read_private, write_private

from .http_errors import Problem

# Personal links: one for each person, to be listed and revoked.
#
# Each link is a file in a folder that only this user can write to. The file has the hash of the link's token: who reads
# it cannot use the link. All servers of this user take the links, and read the folder again when it changes.

Role = Literal["controller", "viewer"]

NAME: Final = re.compile(r"\w[\w.@+-]{0,63}")  # a person's name or address; a file's name; nothing invisible
SETTLED_S: Final = 1.0  # two changes within a tick of the file system's clock look like one


class PersonalLink(msgspec.Struct, frozen=True, kw_only=True):
    """A link of one person.

    Attributes:
        name: The person's name, which signs commands.
        role: What the link allows.
        digest: The SHA-256 of its token, in hexadecimal.
        added: When it was added, in seconds since the Unix epoch.
    """

    name: str
    role: Role
    digest: str
    added: float


def links_folder() -> Path:
    """Return the folder of this user's links: they outlive the session, unlike the links that a server prints."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(state) / "sightglass" / "links"


class Links:
    """The personal links of this user."""

    def __init__(self, folder: Path | None = None) -> None:
        """Read the links in a folder, by default this user's."""
        self._folder = folder or links_folder()
        self._by_digest: dict[str, PersonalLink] = {}
        self._read_at: tuple[int, int] | None = None
        self.refresh()

    def refresh(self) -> None:
        """Read the folder again if it changed."""
        try:
            status = self._folder.lstat()
        except FileNotFoundError:
            self._by_digest, self._read_at = {}, None
            return
        except OSError:
            return  # what is known stays until the folder can be read again
        read_at = (status.st_ino, status.st_mtime_ns)
        if read_at == self._read_at:
            return
        files = sorted(self._folder.glob("*.json")) if _is_own(status) else []
        found = filter(None, map(_read, files))
        self._by_digest = {link.digest: link for link in found}
        self._read_at = read_at if time.time() - status.st_mtime > SETTLED_S else None

    def all(self) -> list[PersonalLink]:
        """Return the links, by name."""
        return sorted(self._by_digest.values(), key=lambda link: link.name)

    def holds(self, link: PersonalLink) -> bool:
        """Return whether a link is still valid."""
        return self._by_digest.get(link.digest) == link

    def find(self, token: str) -> PersonalLink | None:
        """Return the link of a token, also if it was added just now."""
        digest = _digest(token)
        if digest not in self._by_digest:
            self.refresh()
        return self._by_digest.get(digest)

    def add(self, name: str, role: Role) -> str:
        """Add a link, and return its token, which is stored nowhere.

        Raises:
            ValueError: The name is not valid, or has a link.
            TransportError: The link cannot be stored.
        """
        if not NAME.fullmatch(name):
            expected = "a name of 1 to 64 letters, digits and any of . _ @ + -, which begins with a letter or digit"
            raise ValueError(f"Expected {expected}, got {name!r:.100}")
        if not self._folder.is_absolute():  # this user has no home folder, as in some containers
            raise TransportError("Expected a home folder to store the link in: set XDG_STATE_HOME to a folder")
        path = self._folder / f"{name}.json"
        if path.exists():
            raise ValueError(f"{name!r} has a link already: revoke it first")
        token = secrets.token_urlsafe(TOKEN_BYTES)
        link = PersonalLink(name=name, role=role, digest=_digest(token), added=time.time())
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_own(self._folder.lstat()):
                raise TransportError(f"Expected a folder that only this user can write to, got {self._folder}")
            write_private(path, msgspec.json.encode(link))
        except OSError as error:
            raise TransportError(f"Cannot store the link: {error}") from None
        return token

    def revoke(self, name: str) -> None:
        """Revoke a link: running servers end what it opened within seconds.

        Raises:
            UnknownNameError: Nobody of this name has a link.
            TransportError: The link cannot be removed.
        """
        self.refresh()
        if name not in {link.name for link in self.all()}:
            raise UnknownNameError("link", name, [link.name for link in self.all()])
        try:
            (self._folder / f"{name}.json").unlink()
        except OSError as error:
            raise TransportError(f"Cannot revoke the link: {error}") from None


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def _is_own(status: os.stat_result) -> bool:
    """Return whether only this user can add links to a folder."""
    own = not hasattr(os, "getuid") or (status.st_uid == os.getuid() and not status.st_mode & 0o022)
    return stat.S_ISDIR(status.st_mode) and own


def _read(path: Path) -> PersonalLink | None:
    try:
        link = msgspec.json.decode(path.read_bytes(), type=PersonalLink)
    except (OSError, msgspec.MsgspecError):
        return None
    return link if NAME.fullmatch(link.name) and path.stem == link.name else None


TOKEN_BYTES: Final = 32  # 256 bits cannot be guessed, so their hash needs no salt and no slow function
MAX_TOKEN: Final = 200  # far more than a token has; what is longer is not compared
MAX_STORED_BYTES: Final = 4_096  # two tokens as JSON, with room


def _token() -> str:
    return secrets.token_urlsafe(TOKEN_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Visitor:
    """A client that has shown a token.

    Attributes:
        role: What the token allows.
        link: The personal link that it belongs to, if it does.
    """

    role: Role
    link: PersonalLink | None = None

    @property
    def name(self) -> str:
        """The name of the person, if the link is personal."""
        return self.link.name if self.link else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """The two tokens of a server, and those of personal links. `repr` hides them."""

    controller: str = field(default_factory=_token, repr=False)
    viewer: str = field(default_factory=_token, repr=False)
    links: Links = field(default_factory=Links, repr=False)

    @classmethod
    def stored(cls, path: Path, *, renew: bool = False) -> Tokens:
        """Return the tokens in a file, so that printed links stay valid when the server restarts.

        Args:
            path: The file, in a folder that only this user can enter. It is created with new tokens if it is missing.
            renew: Replace the tokens in the file by new ones.
        """
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            stored = {} if renew else json.loads(read_private(path, max_bytes=MAX_STORED_BYTES))
            one, other = str(stored["controller"]), str(stored["viewer"])
            if one != other and min(len(one), len(other)) >= TOKEN_BYTES:
                return cls(controller=one, viewer=other)
        tokens = cls()
        with contextlib.suppress(OSError):
            content = {"controller": tokens.controller, "viewer": tokens.viewer}
            write_private(path, json.dumps(content).encode())
        return tokens

    def visitor(self, token: str) -> Visitor | None:
        """Return who has a token, or `None` if this server does not know it."""
        text = token[: MAX_TOKEN + 1]
        given = text.encode("utf-8", "replace")
        # Compare both in any case, so that the time it takes reveals nothing.
        is_controller = hmac.compare_digest(given, self.controller.encode())
        is_viewer = hmac.compare_digest(given, self.viewer.encode())
        if is_controller or is_viewer:
            return Visitor(role="controller" if is_controller else "viewer")
        link = self.links.find(text)
        return None if link is None else Visitor(role=link.role, link=link)

    def bearer(self, authorization: str) -> Visitor:
        """Return who sent the header `Authorization`.

        Raises:
            Problem: The token is missing or unknown.
        """
        scheme, _, token = authorization.partition(" ")
        visitor = self.visitor(token.strip()) if scheme.lower() == "bearer" else None
        if visitor is None:
            given = "none" if not authorization else "an unknown one"
            message = f"Expected the token of the printed link in 'Authorization: Bearer TOKEN', got {given}"
            raise Problem(401, "UnauthorizedError", message)
        return visitor


@dataclass(frozen=True, slots=True, kw_only=True)
class AllowedHosts:
    """The host names that requests may use, with any port: a tunnel may have another one.

    Attributes:
        own: The server's names and addresses, in lower case, without port.
        proxied: The names under which proxies serve the page.
        any_address: Whether every numeric address is allowed.
        any_name: Whether every name is allowed, because a proxy checks it.
    """

    own: frozenset[str]
    proxied: frozenset[str] = frozenset()
    any_address: bool = False
    any_name: bool = False

    @classmethod
    def of(cls, host: str, proxied: Iterable[str] = ()) -> AllowedHosts:
        """Return the names of a server that listens on a host, an address, or all addresses ("0.0.0.0", "::").

        Args:
            host: What it listens on.
            proxied: The names under which proxies serve the page; ports are ignored. "*" stands for any name.
        """
        given = list(proxied)
        names = {host.lower().strip("[]"), "127.0.0.1", "localhost", "::1"}
        wide = not is_loopback(host)
        if wide:
            own = socket.gethostname().lower()
            names |= {own, own.partition(".")[0], socket.getfqdn().lower()}
        return cls(
            own=frozenset(names - {""}), proxied=frozenset(host_of(name) for name in given if name != "*"),
            any_address=wide and is_any(host), any_name="*" in given,
        )  # fmt: skip

    def check(self, host: str | None, origin: str | None) -> None:
        """Refuse requests to another host, and requests of other sites' pages.

        Raises:
            Problem: The host is not this server's, or the page was not served from there.
        """
        name = host_of(host or "")
        is_any = bool(name) and (self.any_name or (self.any_address and _is_address(name)))
        if name not in self.own | self.proxied and not is_any:
            message = f"Expected one of this server's own names as Host, got {host!r:.100}. Open the printed link; "
            message += "behind a proxy, start the server with --allow-host NAME"
            raise Problem(403, "HostError", message)
        if origin is None:
            return
        scheme, _, authority = origin.lower().partition("://")
        is_same = authority == (host or "").strip().lower()  # browsers write the port in both or in neither
        # A proxy may send a name of its own as Host, but the browser's Origin.
        if scheme not in ("http", "https") or not (is_same or host_of(authority) in self.proxied):
            message = f"Expected this server's own page as Origin, got {origin!r:.100}"
            raise Problem(403, "OriginError", message)


def host_of(authority: str) -> str:
    """Return the host of HOST:PORT, in lower case without brackets; an empty text if that is invalid.

    >>> host_of("[::1]:8080"), host_of("LocalHost"), host_of("a:b")
    ('::1', 'localhost', '')
    """
    text = authority.strip().lower()
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        is_valid = "]" in text and (not port or (port[0] == ":" and _is_port(port[1:])))
    else:
        host, colon, port = text.partition(":")
        is_valid = not colon or _is_port(port)
    return host if is_valid else ""


def _is_port(text: str) -> bool:
    return not text or (text.isascii() and text.isdigit() and len(text) <= 5)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a server that listens on a host."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def is_any(host: str) -> bool:
    """Return whether a host stands for all addresses of the machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
