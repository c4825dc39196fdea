"""What may be given as a hub, and what is said where it is no hub, another user's, or no run is there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.hub_server import PATIENCE_S, Hub, HubServer, needs_server, wait_until

import sightglass as sg
from sightglass.core.errors import RunNotFoundError, SightglassError, TransportError
from sightglass.hub.address import hub_address

pytest.importorskip("nats")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"sightglass_hub": 1}', r"hub file.*'nats://host:4222', got '.*': "),
        ("junk", r"hub file.*'nats://host:4222'"),
        (None, r"hub file '.*': No such file"),
    ],
)
def test_a_hub_file_that_is_none_is_refused(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "a.hub").write_text(content)
    with pytest.raises(TransportError, match=message):
        sg.runs(hub=tmp_path / "a.hub")
    with pytest.warns(RuntimeWarning, match="'lone'.*without a hub: "):
        run = sg.init("lone", hub=tmp_path / "a.hub")
    run.observe("batch", loss=1.0)
    run.close()


@pytest.mark.parametrize(
    "url",
    [
        *("http://a:1", "nats://", "nats://a:x", "nats://a/path", "nats://ann:secret@a:4222", "nats://a:99999"),
        *("nats://a:1,", "nats://a:1,tls://b:1", "nats://a:1,nats://ann:secret@b:1"),
    ],
)
def test_a_url_that_is_no_hubs_is_refused(url: str) -> None:
    with pytest.raises(TransportError, match=r"^Expected ") as caught:
        hub_address(url)
    assert "secret" not in str(caught.value)


def test_a_hub_of_another_type_is_refused_at_the_call() -> None:
    with pytest.raises(TypeError, match=r"hub file.*int 4222$"):
        sg.init("x", hub=4222)  # type: ignore[arg-type]


def test_the_url_of_a_cluster_names_several_servers() -> None:
    assert hub_address("nats://a,nats://b:1").url == "nats://a:4222,nats://b:1"


def test_where_no_hub_answers_clients_say_so() -> None:
    for ask in (sg.runs, sg.fleet):
        with pytest.raises(TransportError, match=r"nats://127.0.0.1:9$"):
            ask(hub="nats://127.0.0.1:9")


@pytest.fixture
def near() -> Iterator[tuple[HubServer, Any]]:
    server = HubServer()
    with sg.init("near", hub=server.url) as run:
        wait_until(lambda: [info.name for info in sg.runs(hub=server.url)] == ["near"], "it is found")
        yield server, run
    server.close()


@needs_server
def test_a_run_that_is_not_there_is_named_with_those_that_are(near: tuple[HubServer, Any]) -> None:
    server, run = near
    with pytest.raises(RunNotFoundError, match=r"^Unknown run 'neer' on this hub\. Did you mean 'near'\?"):
        sg.connect("neer", hub=server.url)
    with pytest.raises(RunNotFoundError, match=r"on a hub.*Run$"):
        sg.connect(run, hub=server.url)
    with sg.connect(run.id[:6], hub=server.url) as by_id, sg.connect(hub=server.url) as only:
        assert by_id.id == only.id == run.id
    for url in (f"nats://127.0.0.1:9,{server.url}", f"{server.url},nats://127.0.0.1:9"):  # another one of a cluster
        assert [info.id for info in sg.runs(hub=url)] == [run.id]


@needs_server
def test_a_key_of_one_role_does_nothing_in_another(hub: Hub, tmp_path: Path) -> None:
    node, ann = hub.files["P", "node"], hub.files["P", "ann"]
    with pytest.raises(TransportError, match=r"viewer or controller, got a run's: "):
        sg.runs(hub=node)
    with pytest.warns(RuntimeWarning, match="'lone'.*without a hub: .*got a vi"):
        sg.init("lone", hub=ann).close()
    forged = tmp_path / "forged.hub"
    forged.write_text(json.dumps(json.loads(ann.read_text()) | {"role": "controller"}))
    with sg.init("guarded", hub=node):
        sg.connect("guarded", hub=ann, wait_s=PATIENCE_S).close()
        with pytest.raises(SightglassError):  # the server drops what it says
            sg.connect("guarded", hub=forged, timeout_s=1.0)
