"""What proxies say of their clients: believed from the named addresses, and from nobody else."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from tests.waiting import PATIENCE_S
from websockets.sync.client import connect

from sightglass.cli import main
from sightglass.server.access import AllowedHosts
from sightglass.server.http_errors import Problem
from sightglass.server.middleware import Forwarded, Proxies

HUB = "hub.example.org"


def ask(page, **headers):
    return page.get("/session", headers={name.replace("_", "-"): value for name, value in headers.items()})


def test_nobody_s_headers_are_believed_by_default(serve):
    page = serve(allowed_hosts=[HUB])
    assert ask(page, X_Forwarded_Host="evil.example").status_code == 200
    refused = ask(page, Host="evil.example", X_Forwarded_Host=HUB)
    assert (refused.status_code, refused.json()["error"]["type"]) == (403, "HostError")


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        (HUB, f"https://{HUB}", 200),
        (f"{HUB}:8443", f"https://{HUB}:8443", 200),
        (f"evil.example, {HUB}", None, 200),  # the last one is the named proxy's
        ("evil.example", None, 403),
        (HUB, "https://evil.example", 403),
    ],
)
def test_a_named_proxy_s_host_is_checked_in_place_of_its_own(serve, host, origin, status):
    page = serve(allowed_hosts=[HUB], proxies=["127.0.0.0/8"])
    origin_header = {"Origin": origin} if origin else {}
    assert ask(page, Host="internal", X_Forwarded_Host=host, **origin_header).status_code == status


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("client", "type", "sent", "scheme"),
    [
        ("10.0.0.1", "http", b"https", "https"),
        ("10.0.0.1", "websocket", b"https", "wss"),
        ("10.0.0.1", "http", b"gopher", "http"),
        ("10.0.0.2", "http", b"https", "http"),
    ],
)
async def test_the_scheme_is_the_browser_s(client, type, sent, scheme):
    seen = []

    async def app(scope, receive, send):
        seen.append(scope["scheme"])

    scope = {"type": type, "scheme": "http", "client": (client, 1), "headers": [(b"x-forwarded-proto", sent)]}
    await Forwarded(app, proxies=Proxies(["10.0.0.1"]), forward=lambda client, address: None)(scope, None, None)
    assert seen == [scheme]


@pytest.mark.parametrize(
    ("forwarded", "client"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("203.0.113.7, 192.0.2.1", "192.0.2.1"),  # what stands before was sent by the client
        ("203.0.113.7, 192.0.2.1, 10.0.0.2", "192.0.2.1"),
        ("192.0.2.1:4711", "192.0.2.1"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("203.0.113.7, unknown", ""),
        ("10.0.0.2", ""),
        ("", ""),
    ],
)
def test_the_client_is_the_last_address_that_is_not_a_proxy_s(forwarded, client):
    assert Proxies(["10.0.0.1", "10.0.0.2"]).client_of(forwarded) == client


def test_proxies_are_addresses_and_networks():
    proxies = Proxies(["10.0.0.0/8", "2001:db8::1"])
    assert [host in proxies for host in ("10.1.2.3", "::ffff:10.1.2.3", "2001:db8::1", "11.0.0.1", "x")] == [
        True, True, True, False, False,
    ]  # fmt: skip
    done = CliRunner().invoke(main, ["ui", "--no-browser", "--proxy", "hub.example.org"])
    assert (done.exit_code, "Expected an address or a network as --proxy" in done.stderr) == (2, True)


def test_any_name_is_let_in_where_the_proxy_checks_it(serve):
    page = serve(allowed_hosts=["*"])
    assert ask(page, Host="hub.example.org", Origin="https://hub.example.org").status_code == 200
    assert ask(page, Host="hub.example.org", Origin="https://evil.example").status_code == 403
    with pytest.raises(Problem):
        AllowedHosts.of("127.0.0.1", ["*"]).check("", None)


def test_a_proxy_may_add_the_token(page):
    headers = page.headers("viewer")
    address = f"ws://127.0.0.1:{page.server.port}/api/v1/live"
    with connect(address, additional_headers=headers, open_timeout=PATIENCE_S) as live:
        live.send(json.dumps({"type": "hello", "token": ""}))
        assert json.loads(live.recv(PATIENCE_S)) == {"type": "welcome", "role": "viewer"}
    with connect(address, additional_headers=headers, open_timeout=PATIENCE_S) as live:  # the page's own counts
        live.send(json.dumps({"type": "hello", "token": page.server.tokens.controller}))
        assert json.loads(live.recv(PATIENCE_S))["role"] == "controller"
