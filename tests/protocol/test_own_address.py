"""Under which address other machines reach this one, for names that lead out and names that lead back."""

from __future__ import annotations

import socket
from ipaddress import ip_address

import pytest

from sightglass.protocol.address import outer_address, outer_name


def test_the_address_of_the_way_out_is_not_a_loopback_one() -> None:
    address = outer_address()
    if address is not None:  # a machine without a network
        assert not ip_address(address.strip("[]")).is_loopback


@pytest.mark.parametrize(("found", "reached"), [
    (["127.0.1.1", "::1"], outer_address() or "desk"),  # what Debian writes into /etc/hosts
    (["192.0.2.9"], "desk"),
    (["127.0.1.1", "fe80::1%eth0"], "desk"),
    (None, "desk"),
])  # fmt: skip
def test_a_name_that_leads_back_to_the_machine_is_replaced(
    monkeypatch: pytest.MonkeyPatch, found: list[str] | None, reached: str
) -> None:
    def look_up(name: str, port: None) -> list[tuple[object, ...]]:
        if found is None:
            raise socket.gaierror(-2, "Name or service not known")
        return [(0, 0, 0, "", (address, 0)) for address in found]

    monkeypatch.setattr(socket, "getfqdn", lambda: "desk")
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert outer_name() == reached
