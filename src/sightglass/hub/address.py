"""Where a hub is, and who connects to it: a URL, or a hub file, which holds a user's key and the hub's certificate."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args
from urllib.parse import urlsplit

from sightglass.core.errors import TransportError

Role = Literal["run", "viewer", "controller"]

ROLES: Final[tuple[Role, ...]] = get_args(Role)
RUN: Final[tuple[Role, ...]] = ("run",)
CLIENTS: Final[tuple[Role, ...]] = ("viewer", "controller")
MAX_FILE_BYTES: Final = 100_000
TOKEN: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubAddress:
    """Where a hub is, and who connects to it.

    Attributes:
        url: Such as "nats://127.0.0.1:4222", or "tls://…" with a certificate. Commas join those of a cluster.
        user: The user's name, a part of the subjects that they may use; "anyone" where the server asks for none.
        project: The user's project.
        key: What the user proves their name with.
        certificate: The certificate of the hub, in PEM. Nothing else is accepted in its place.
        may_command: Whether the user may command runs.
    """

    url: str
    user: str = "anyone"
    project: str = ""
    key: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    may_command: bool = True


def hub_address(hub: str | os.PathLike[str], *, roles: Collection[Role] = ROLES) -> HubAddress:
    """Return the address of a hub.

    Args:
        hub: A URL such as "nats://127.0.0.1:4222", or the path of a hub file, as `sightglass hub user add` writes it.
        roles: Whose hub files are taken.

    Raises:
        TransportError: It is neither, or the file is for another role.
    """
    text = os.fspath(hub)
    if "://" in text:
        return HubAddress(url=checked_url(text, scheme="nats"))
    try:
        path = Path(text)
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ValueError(f"it has more than {MAX_FILE_BYTES} bytes")
        content = json.loads(path.read_text())
        if content["sightglass_hub"] != 1 or content["role"] not in ROLES:
            raise ValueError(f"expected sightglass_hub 1 and a role of {', '.join(ROLES)}")
        address = HubAddress(
            url=checked_url(content["url"]), user=checked_token(content["user"]),
            project=checked_token(content["project"]), key=_text(content["key"]),
            certificate=_text(content["certificate"]), may_command=content["role"] == "controller",
        )  # fmt: skip
    except (TransportError, ValueError, KeyError, TypeError) as error:
        message = f"Expected a hub file, or a URL such as 'nats://host:4222', got {text!r}: {error}"
        raise TransportError(message) from None
    except OSError as error:
        raise TransportError(f"Cannot read the hub file {text!r}: {error.strerror}") from None
    if content["role"] not in roles:
        raise TransportError(f"Expected the hub file of a {' or '.join(roles)}, got a {content['role']}'s: {text!r}")
    return address


def login(project: str, user: str) -> str:
    """Return the name under which the server knows a user of a project."""
    return f"{project}.{user}"


def checked_token(text: str) -> str:
    """Return a name that may stand in a subject.

    Raises:
        TransportError: It may not.
    """
    if not TOKEN.fullmatch(text):
        raise TransportError(f"Expected a name of 1 to 64 letters, digits, '-' or '_' on a hub, got {text!r}")
    return text


def checked_url(url: str, *, scheme: str = "tls") -> str:
    """Return a URL, with its port, if it is one of a hub, or several with commas between.

    Raises:
        TransportError: It is not one, or has a password.
    """
    if "," in url:
        return ",".join(checked_url(one, scheme=scheme) for one in url.split(","))
    parts = urlsplit(url)
    try:
        port = parts.port or 4222
    except ValueError:
        port = 0
    if parts.username or parts.password:
        raise TransportError("Expected a URL without a password: other users of this machine could read it")
    if parts.scheme != scheme or not parts.hostname or not port or parts.path.strip("/") or parts.query:
        raise TransportError(f"Expected the URL of a hub, such as '{scheme}://host:4222', got {url!r}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{scheme}://{host}:{port}"


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("expected a key and a certificate")
    return value
