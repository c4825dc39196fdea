"""What the command `sightglass hub` checks, writes and remembers, without a server."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.hub_server import HubServer, needs_server

from sightglass.cli import main
from sightglass.hub.address import hub_address

pytest.importorskip("nats")


def call(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(main, ["hub", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return done.output


def test_what_cannot_be_done_says_why(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    assert "Expected a folder that only you can enter" in call("--dir", tmp_path / "open", code=1)
    assert "Expected these options alone" in call("--dir", tmp_path / "more", "user", "list", code=2)
    assert "Expected an address and a port" in call("--dir", tmp_path / "more", "--listen", "here", code=1)
    assert "run `sightglass hub` first" in call("user", "add", "x", "--role", "run", "--dir", tmp_path, code=1)

    folder = ("--dir", tmp_path / "hub")
    call(*folder, "--config-only")
    call("user", "add", "ann", "--role", "viewer", "--out", tmp_path / "ann.hub", *folder)
    for arguments, message in (
        (("add", "ann", "--role", "run", "--out", tmp_path / "ann.hub"), "has a user 'ann' already"),
        (("add", "x", "--role", "run", "--out", tmp_path / "no" / "x"), "Cannot write"),
        (("add", "a.b", "--role", "run"), "1 to 64 letters"),
        (("revoke", "anne"), "Unknown user 'anne'"),
    ):
        assert message in call("user", *arguments, *folder, code=1)


def test_a_folder_of_before_still_opens_and_is_given_a_configuration_without_a_store(tmp_path: Path) -> None:
    """Hubs used to keep streams with JetStream; their settings, keys and hub files said so."""
    folder = tmp_path / "hub"
    call("--dir", folder, "--config-only")
    settings, file = folder / "hub.json", folder / "run.hub"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"keep_s": 604_800.0, "keep_bytes": 2**30}))
    file.write_text(json.dumps(json.loads(file.read_text()) | {"keeps": True}))
    (folder / "hub.key").write_bytes(bytes(32))
    before = hub_address(file)
    call("--dir", folder, "--listen", "127.0.0.1:4333", "--config-only")
    assert (hub_address(file).key, before.project, before.user) == (before.key, "default", "run")
    content = (folder / "hub.conf").read_text()
    assert "jetstream" not in content
    assert "$JS" not in content
    assert "$SRV" not in content


@needs_server
def test_the_configuration_alone_is_one_that_a_server_takes(tmp_path: Path) -> None:
    folder = tmp_path / "hub"
    path = call("--dir", folder, "--address", "login.example.org", "--listen", "0.0.0.0:4333", "--config-only")
    content = json.loads(Path(path.strip()).read_text())
    assert content["listen"] == "0.0.0.0:4333"
    assert content["tls"]["handshake_first"] is True
    assert json.loads((folder / "run.hub").read_text())["url"] == "tls://login.example.org:4333"
    for private in (folder, folder / "users"):
        assert stat.S_IMODE(private.stat().st_mode) == 0o700
    for file in (*folder.glob("*.*"), *folder.glob("users/*")):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
    del content["log_file"], content["listen"]
    HubServer(config=json.dumps(content)).close()
