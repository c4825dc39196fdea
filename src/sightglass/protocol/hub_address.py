"""Where a hub is, and who connects to it: a URL, or a hub file that names the user, too."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from sightglass.core.errors import TransportError

MAX_FILE_BYTES: Final = 100_000
ROLES: Final = ("run", "viewer", "controller")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubAddress:
    """Where a hub is, and who connects to it.

    Attributes:
        url: Such as "nats://127.0.0.1:4222".
        user: The user's name, a part of the subjects that they may use; "anyone" where the server asks for none.
        may_command: Whether the user may command runs.
    """

    url: str
    user: str = "anyone"
    may_command: bool = True


def hub_address(hub: str | os.PathLike[str]) -> HubAddress:
    """Return the address of a hub.

    Args:
        hub: A URL such as "nats://127.0.0.1:4222", or the path of a hub file: a JSON object with `sightglass_hub` (1),
            `url`, `user` and `role`, which is "run", "viewer" or "controller".

    Raises:
        TransportError: It is neither.
    """
    text = os.fspath(hub)
    if "://" in text:
        return HubAddress(url=_checked(text))
    try:
        path = Path(text)
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ValueError(f"it has more than {MAX_FILE_BYTES} bytes")
        content = json.loads(path.read_text())
        if content["sightglass_hub"] != 1 or content["role"] not in ROLES:
            raise ValueError(f"expected sightglass_hub 1 and a role of {', '.join(ROLES)}")
        return HubAddress(
            url=_checked(str(content["url"])), user=str(content["user"]), may_command=content["role"] == "controller"
        )  # fmt: skip
    except OSError as error:
        raise TransportError(f"Cannot read the hub file {text!r}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise TransportError(
            f"Expected a hub file, or a URL such as 'nats://host:4222', got {text!r}: {error}"
        ) from None


def _checked(url: str) -> str:
    parts = urlsplit(url)
    try:
        port = parts.port or 4222
    except ValueError:
        port = 0
    if parts.username or parts.password:
        raise TransportError("Expected a URL without a password: other users of this machine could read it")
    if parts.scheme != "nats" or not parts.hostname or not port or parts.path.strip("/") or parts.query:
        raise TransportError(f"Expected the URL of a hub, such as 'nats://host:4222', got {url!r}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"nats://{host}:{port}"
