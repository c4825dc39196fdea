"""Personal links: one for each person, to be listed and revoked.

Each link is a file in a folder that only this user can write to. The file has the hash of the link's token: who reads
it cannot use the link. All servers of this user take the links, and read the folder again when it changes.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
import time
from pathlib import Path
from typing import Final, Literal

import msgspec

from sightglass.core.errors import TransportError, UnknownNameError
from sightglass.core.private_file import write_private

Role = Literal["controller", "viewer"]

TOKEN_BYTES: Final = 32  # 256 bits cannot be guessed, so that their hash needs no salt and no slow function
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
