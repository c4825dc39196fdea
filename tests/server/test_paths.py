"""No error that a viewer is shown names a folder: of any endpoint, and of the socket."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path

import msgspec
import pytest

from sightglass.server.app import ROUTES

from .conftest import place_foreign, record, wait_until

NAMED = {
    "tag": ["kernel", "batch.loss", "digits", "broken", "no", "batch.loss.nope()"],
    "what": ["nan"],
    "step": ["0", "7"],
}
ERRORS = ("error", "problem", "problems", "last_error", "note", "reason", "damaged")


def said(value, inside=False):
    """Yield the texts of errors and problems in a reply."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from said(each, inside or name in ERRORS)
    elif isinstance(value, list):
        for each in value:
            yield from said(each, inside)
    elif inside and isinstance(value, str):
        yield value


def ask_everything(page, keys):
    """Yield where a viewer asked, and what the reply says of errors."""
    for route in ROUTES:
        fields = [field.encode_name for field in msgspec.structs.fields(route.query)]
        choices = [[(name, each) for each in NAMED[name]] for name in fields if name in NAMED]
        for key, query in itertools.product(keys if "{key}" in route.path else [""], itertools.product(*choices)):
            path = route.path.replace("{key}", key)
            if route.method == "GET":
                reply = page.get(path, role="viewer", **dict(query))
            else:
                requests = [{"run": key, "tag": tag, "x": "no"} for key in keys for tag in NAMED["tag"]]
                body = {"requests": requests} if path == "/scalars" else {"query": "batch.fails(loss", "runs": keys}
                reply = page.post(path, body, role="viewer")
            if "msgpack" in reply.headers["content-type"]:
                found = msgspec.msgpack.decode(reply.content)
            elif "json" in reply.headers["content-type"]:
                found = reply.json()
            else:
                continue
            for text in said(found):
                yield f"{route.method} {path} {query}", text


@pytest.fixture
def keys(page, begin):
    """Runs with all that can go wrong."""
    for name in ("whole", "torn", "gone", "linked", "odd"):
        record(name, n=20)
    place_foreign()
    live = begin("alive", record=["batch.loss"])
    live.control("lr", 0.1)
    live.observe("batch", loss=1.0)
    found = {name: wait_until(lambda name=name: page.runs().get(name))["key"] for name in page.runs()}
    directories = {run["name"]: Path(run["directory"]) for run in page.json("/runs")["runs"]}
    for segment in directories["torn"].glob("*.sgr"):
        data = bytearray(segment.read_bytes())
        for place in range(200, len(data), 211):
            data[place] ^= 255
        segment.write_bytes(data)
    shutil.rmtree(directories["gone"])
    shutil.move(directories["linked"], "away")
    directories["linked"].symlink_to(Path("away").resolve())
    (directories["odd"] / "run.json").write_text("{")
    Path("runs/views.json").write_text("{")
    return found


def test_no_error_names_a_folder(page, keys, tmp_path):
    wait_until(lambda: page.runs()["gone"]["problem"])
    texts = list(ask_everything(page, list(keys.values())))
    assert len({text for _, text in texts}) > 10
    assert [(where, text) for where, text in texts if str(tmp_path) in text] == []


def test_nor_does_the_socket(page, begin, tmp_path):
    live = begin("alive")
    live.function("opens", lambda x: (tmp_path / "missing.txt").read_text() + x, viewers=True)
    key = page.key("alive")
    live.observe("batch", loss=1.0)
    socket = page.socket("viewer")
    socket.send(type="open", id=1, run=key, query="opens(batch.loss)", confirm=False, points=100)
    texts, over = [], False
    while not over:
        live.observe("batch", loss=1.0)
        message = socket.next()
        texts += said(message)
        over = message["type"] in ("refused", "ended")
    assert any("missing.txt" in text for text in texts)
    assert [text for text in texts if str(tmp_path) in text] == []
