"""What the server gives the page for Plotly's figures: the frame, Plotly's script, and what a figure is."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from pathlib import Path

import plotly
import plotly.graph_objects as go
import pytest

import sightglass as sg
from sightglass.core.plotly_json import MEDIA_TYPE
from sightglass.server import page_files
from sightglass.server.middleware import CSP

SCRIPT = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
FIGURE = go.Figure(go.Bar(y=[1, 2], name="<i>b</i>"), {"title": "<b>A</b> title", "height": 300})


def directives(policy: str) -> dict[str, str]:
    return dict(one.strip().partition(" ")[::2] for one in policy.split(";"))


def test_the_frame_has_no_origin_and_runs_one_script(page):
    answer = page.http.get("/figure-frame")
    policy = directives(answer.headers["content-security-policy"])
    assert policy["sandbox"] == "allow-scripts"
    assert policy["default-src"] == "'none'"
    [script] = re.findall("<script>(.*?)</script>", answer.text, re.DOTALL)
    hashed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy["script-src"] == f"'sha256-{hashed}' 'unsafe-eval'"
    assert policy["frame-ancestors"] == "'self'"
    assert not {"connect-src", "form-action"} & {name for name, to in policy.items() if to != "'none'"}
    assert answer.headers["x-frame-options"] == "SAMEORIGIN"


def test_the_page_may_frame_this_servers_documents_which_refuse_it_but_for_one(page):
    policy = directives(CSP)
    assert policy["frame-src"] == "'self'"
    assert policy["script-src"] == "'self'"
    for path in ("/", "/plotly.js", "/nothing"):
        headers = page.http.get(path).headers
        assert directives(headers["content-security-policy"])["frame-ancestors"] == "'none'"
        assert headers["x-frame-options"] == "DENY"


def test_plotlys_script_is_that_of_the_installed_package(page):
    plain = page.http.get("/plotly.js", headers={"accept-encoding": "identity"})
    assert plain.content == SCRIPT.read_bytes()
    assert plain.headers["content-type"].startswith("text/javascript")
    with page.http.stream("GET", "/plotly.js", headers={"accept-encoding": "gzip"}) as packed:
        data = b"".join(packed.iter_raw())
    assert len(data) < len(plain.content) / 2
    assert gzip.decompress(data) == plain.content
    known = page.http.get("/plotly.js", headers={"if-none-match": plain.headers["etag"]})
    assert (known.status_code, known.content) == (304, b"")


def test_without_plotly_the_answer_says_what_to_install(page, monkeypatch):
    monkeypatch.setattr(page_files, "script_path", lambda: None)
    answer = page.http.get("/plotly.js")
    assert answer.status_code == 404
    assert "pip install plotly" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("figure", "told"),
    [
        (FIGURE, ("A title: bar b", None, 300)),
        (sg.Figure(b"{", MEDIA_TYPE), ("not a figure of Plotly", None, None)),
    ],
)
def test_what_a_figure_is(page, figure, told):
    with sg.init("r") as run:
        run.log({"f": figure}, step=1)
    key = page.key("r")
    [info] = page.get(f"/runs/{key}/pictures", tag="f").json()["pictures"]
    assert info["media_type"] == MEDIA_TYPE
    assert (info["caption"], info["width"], info["height"]) == told
    media = page.get(f"/runs/{key}/media", tag="f")
    assert media.headers["content-type"] == MEDIA_TYPE
    assert "sandbox" in media.headers["content-security-policy"]


def test_a_figure_in_a_cell_of_a_table_is_words(page):
    drawn = sg.Figure(FIGURE.to_json().encode(), MEDIA_TYPE)
    with sg.init("r") as run:
        run.log({"t": sg.Table({"f": [drawn, None], "p": [sg.Figure(b"%PDF", "application/pdf"), None]})}, step=1)
    rows = page.get(f"/runs/{page.key('r')}/rows", tag="t").json()["rows"]
    assert rows == [["A title: bar b", "a figure, application/pdf, 0.0 kB"], [None, None]]
