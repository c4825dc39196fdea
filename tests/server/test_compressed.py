"""The page, and the API's JSON, come compressed to whoever says that they may."""

from __future__ import annotations

import gzip
import json
import re

import pytest
from starlette.datastructures import Headers

import sightglass as sg
from sightglass.server.app import MIN_PACKED_BYTES
from sightglass.server.page_files import takes_gzip

from .conftest import Page

PLAIN = {"accept-encoding": "identity"}
PACKED = {"accept-encoding": "br;q=1.0, gzip;q=0.8"}
FIRST_BYTES = 160_000  # before the first chart; a tunnel of 50 kB/s takes 3 s for them


def raw(page: Page, path: str, headers: dict[str, str]) -> tuple[bytes, dict[str, str]]:
    with page.http.stream("GET", path, headers=headers) as reply:
        return b"".join(reply.iter_raw()), dict(reply.headers)


def test_the_page_is_small_before_its_first_chart(page: Page) -> None:
    shell, about = raw(page, "/", PACKED)
    assert about["content-encoding"] == "gzip"
    html = gzip.decompress(shell).decode()
    assert "Loading the page" in html
    assets = re.findall(r'(?:src|href)="\.(/assets/[^"]+)"', html)
    assert len(assets) == 2
    n_bytes = len(shell)
    for path in assets:
        packed, about = raw(page, path, PACKED)
        plain, others = raw(page, path, PLAIN)
        assert gzip.decompress(packed) == plain
        assert (about["content-encoding"], about["vary"]) == ("gzip", "accept-encoding")
        assert "content-encoding" not in others
        assert about["content-type"] == others["content-type"]
        assert "immutable" in about["cache-control"]
        n_bytes += len(packed)
        known = page.http.get(path, headers=PACKED | {"if-none-match": about["etag"]})
        assert (known.status_code, known.content) == (304, b"")
    assert n_bytes <= FIRST_BYTES


def test_json_is_the_same_compressed(page: Page) -> None:
    for n in range(8):
        with sg.init(f"run{n}", dir=f"runs/run{n}", config={"text": "x" * MIN_PACKED_BYTES}) as run:
            run.log({"loss": 1.0})
    packed, about = raw(page, "/api/v1/runs", page.headers() | PACKED)
    plain, others = raw(page, "/api/v1/runs", page.headers() | PLAIN)
    assert about["content-encoding"] == "gzip"
    assert "content-encoding" not in others
    assert json.loads(gzip.decompress(packed)) == json.loads(plain)
    assert len(packed) < len(plain) / 4
    _, about = raw(page, "/api/v1/session", page.headers() | PACKED)
    assert "content-encoding" not in about  # it fits one packet


@pytest.mark.parametrize(
    ("accepts", "takes"),
    [
        ("gzip", True),
        ("deflate, gzip;q=0.5", True),
        ("gzip;q=0", False),
        ("identity", False),
        ("", False),
        ("x-gzip2", False),
    ],
)
def test_who_takes_gzip(accepts: str, takes: bool) -> None:
    assert takes_gzip(Headers({"accept-encoding": accepts})) is takes
