"""What a hub's settings say about its address."""

from __future__ import annotations

import pytest

from sightglass.hub.service.folder import HubSettings


@pytest.mark.parametrize(("listen", "url", "leads_back"), [
    ("0.0.0.0:4222", "tls://localhost:4222", True),
    ("[::]:4222", "tls://127.0.1.1:4222", True),
    ("0.0.0.0:4222", "tls://login.example.org:4222", False),
    ("127.0.0.1:4222", "tls://127.0.0.1:4222", False),  # only this machine is meant
])  # fmt: skip
def test_an_address_that_leads_each_machine_to_itself_is_known(listen: str, url: str, leads_back: bool) -> None:
    assert HubSettings(listen=listen, url=url).leads_back is leads_back
