"""Where a run is reached over ZeroMQ: its address and keys, and connection files, which hand both to other machines."""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

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


def outer_address() -> str | None:
    """Return the address from which this machine reaches others; `None` if it has no route to them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # a test address (RFC 5737): choosing the route sends nothing
        except OSError:
            return None
        return str(probe.getsockname()[0])


def outer_name() -> str:
    """Return this machine's full name, or its address if that name leads back to the machine that looks it up."""
    name = socket.getfqdn()
    try:
        found = {str(entry[4][0]).partition("%")[0] for entry in socket.getaddrinfo(name, None)}
    except OSError:
        return name  # others may know it
    return outer_address() or name if all(ip_address(one).is_loopback for one in found) else name
