"""Real receivers of alerts."""

from __future__ import annotations

import pytest
from tests.receiving import http_server, mail_server


@pytest.fixture
def mails():
    with mail_server() as server:
        yield server


@pytest.fixture
def posts():
    with http_server() as server:
        yield server
