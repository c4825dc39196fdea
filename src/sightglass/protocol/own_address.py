"""Under which address other machines reach this one."""

from __future__ import annotations

import socket
from ipaddress import ip_address


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
