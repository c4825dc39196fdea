"""Where a run is reached over ZeroMQ: its address and keys, and connection files, which hand both to other machines."""

from __future__ import annotations

import contextlib
import json
import socket
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from sightglass.core.errors import WireError
from sightglass.core.process.files import write_private


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """A CURVE key pair, as the 40 characters of Z85."""

    public: str
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of a run, and the keys to connect with.

    Attributes:
        endpoint: Such as "ipc:///…" or "tcp://host:port".
        server: The run's public key, or empty on a Unix socket.
        client: The key pair to present, or `None` on a Unix socket.
    """

    endpoint: str
    server: str = ""
    client: Keys | None = None


def write_connection(path: Path, address: Address, *, run: str, id: str) -> None:
    """Write a connection file with the address and keys of a run. Only this user can read it, whatever was there.

    Raises:
        OSError: The file cannot be written.
    """
    assert address.client is not None
    content = {
        "sightglass": 1,
        "run": run,
        "id": id,
        "endpoint": address.endpoint,
        "server_key": address.server,
        "client_public": address.client.public,
        "client_secret": address.client.secret,
    }
    write_private(path, json.dumps(content, indent=1).encode())


def read_connection(path: Path) -> tuple[str, str, Address]:
    """Read a connection file; return the run's name, its id, and its address.

    Raises:
        WireError: `path` is not a connection file.
        OSError: `path` cannot be read.
    """
    try:
        content = json.loads(path.read_text())
        keys = Keys(public=content["client_public"], secret=content["client_secret"])
        address = Address(endpoint=content["endpoint"], server=content["server_key"], client=keys)
        return str(content["run"]), str(content["id"]), address
    except (ValueError, KeyError, TypeError) as error:
        raise WireError(f"Expected a connection file, got {str(path)!r}: {error!r}") from error


# Under which address other machines reach this one.


TEST_ADDRESSES: Final = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
"""Of no machine, for documentation (RFC 5737, RFC 3849)."""


def outer_address() -> str | None:
    """Return the address from which this machine reaches others, as URLs have it: IPv4, or `[IPv6]` without that.

    `None` if it has no route to them.
    """
    for family, address in TEST_ADDRESSES:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))  # choosing the route sends nothing
            return in_url(str(probe.getsockname()[0]))
    return None


def in_url(host: str) -> str:
    """Return a host as URLs have it: an IPv6 address in brackets.

    >>> in_url("::1"), in_url("10.0.0.1")
    ('[::1]', '10.0.0.1')
    """
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def outer_name() -> str:
    """Return this machine's full name, or its address if that name leads back to the machine that looks it up."""
    name = socket.getfqdn()
    try:
        found = {str(entry[4][0]).partition("%")[0] for entry in socket.getaddrinfo(name, None)}
    except OSError:
        return name  # others may know it
    return outer_address() or name if all(ip_address(one).is_loopback for one in found) else name
