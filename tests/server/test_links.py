"""Personal links: added and revoked while the server runs, stored as hashes, and the names of who sends commands."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from sightglass.cli import main
from sightglass.server.access import Links, links_folder

from .conftest import raises_closed, wait_until


def links(*arguments):
    return CliRunner().invoke(main, ["links", *arguments])


def add(name, role="viewer", *options):
    done = links("add", name, "--role", role, *options)
    assert done.exit_code == 0, done.output
    return done.stdout.strip().partition("#token=")[2]


def get(page, token, path="/session"):
    return page.http.get(f"/api/v1{path}", headers={"Authorization": f"Bearer {token}"})


def test_links_are_added_listed_and_revoked():
    done = links("add", "ada", "--role", "viewer", "--base-url", "https://hub.example.org/x/")
    assert done.stdout.startswith("https://hub.example.org/x/#token=")
    assert links("add", "bob", "--role", "controller").stdout.startswith("http://127.0.0.1:7117/#token=")
    again = links("add", "ada", "--role", "viewer")
    assert (again.exit_code, "has a link already" in again.stderr) == (1, True)
    assert [line.split("\t")[:2] for line in links("list").stdout.splitlines()] == [
        ["name", "role"],
        ["ada", "viewer"],
        ["bob", "controller"],
    ]
    assert links("revoke", "ada").exit_code == 0
    assert [link["name"] for link in json.loads(links("list", "--json").stdout)] == ["bob"]
    unknown = links("revoke", "bop")
    assert (unknown.exit_code, "Did you mean 'bob'" in unknown.stderr) == (1, True)


def test_only_a_hash_is_stored_for_this_user_alone():
    token = add("ada")
    [file] = links_folder().iterdir()
    assert token not in file.read_text()
    if os.name == "posix":
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", ["", "../ada", "a/b", ".hidden", "a b", "x" * 65, "a\u202eb", "a\nb", "-x"])
def test_names_that_are_refused(name):
    with pytest.raises(ValueError, match="1 to 64 letters"):
        Links().add(name, "viewer")
    assert not links_folder().exists()


@pytest.mark.parametrize("name", ["ada", "ada@example.org", "José", "a.b-c+d_e", "名前"])
def test_names_that_are_taken(name):
    assert Links().find(Links().add(name, "viewer")).name == name


def test_a_running_server_takes_a_link_at_once(page):
    ada, bob = add("ada"), add("bob", "controller")
    assert get(page, ada).json()["role"] == "viewer"
    assert (get(page, bob).json()["role"], get(page, bob).json()["name"]) == ("controller", "bob")
    assert page.json("/session")["name"] == ""
    assert page.http.post("/api/v1/runs/x/commands", json={"kind": "stop"},
                          headers={"Authorization": f"Bearer {ada}"}).status_code == 403  # fmt: skip


def socket_of(page, token):
    socket = page.socket(greet=False)
    socket.send(type="hello", token=token)
    assert socket.hears("welcome")
    return socket


def test_a_revoked_link_ends_at_once_and_all_others_stay(page):
    tokens = {name: add(name) for name in ("ada", "bob")}
    mine, ada, bob = page.socket(), *(socket_of(page, token) for token in tokens.values())
    assert links("revoke", "ada").exit_code == 0
    with raises_closed(4401):
        while True:
            ada.next()
    wait_until(lambda: get(page, tokens["ada"]).status_code == 401)
    for socket in (mine, bob):
        socket.send(type="runs")
        assert socket.hears("runs")
    # A new link of the same name is another one.
    assert get(page, add("ada")).status_code == 200
    assert get(page, tokens["ada"]).status_code == 401


def test_the_history_says_who_sent_a_command(page, begin, monkeypatch):
    monkeypatch.setenv("_", "/usr/bin/setsid")  # as a shell leaves it: what it started, not what this program is
    run = begin("job")
    run.control("lr", 0.1)
    key = page.key("job")

    def send(token, value):
        body = {"kind": "set", "name": "lr", "value": value}
        return page.http.post(
            f"/api/v1/runs/{key}/commands", json=body, headers={"Authorization": f"Bearer {token}"}
        )  # fmt: skip

    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        for token, value in ((add("ada", "controller"), 0.2), (page.server.tokens.controller, 0.3)):
            reply = pool.submit(send, token, value)
            wait_until(lambda reply=reply: run.observe("batch") or reply.done())
            assert reply.result().json()["applied"], reply.result().text
    ada, other = [entry["client"] for entry in page.json(f"/runs/{key}")["history"]]
    assert ada.startswith("ada (")
    assert ada == f"ada ({other})"
    assert str(os.getpid()) in other
    assert "setsid" not in other


def test_links_in_a_folder_that_others_can_write_to_are_not_taken():
    token = add("ada")
    links_folder().chmod(0o770)
    assert Links().find(token) is None
    assert links("add", "bob", "--role", "viewer").exit_code == 1


def test_files_that_are_no_links_are_passed_over(page):
    token = add("ada")
    [file] = links_folder().iterdir()
    file.with_name("other.json").write_bytes(file.read_bytes())  # another name's
    Path(links_folder() / "damaged.json").write_text("{")
    assert [link.name for link in Links().all()] == ["ada"]
    assert get(page, token).status_code == 200


def test_a_token_of_nobody_is_refused(page):
    assert get(page, "x" * 43).status_code == 401
    add("ada")
    [file] = links_folder().iterdir()
    digest = json.loads(file.read_text())["digest"]
    assert get(page, digest).status_code == 401


def test_a_user_without_a_home_has_no_links_and_a_server_all_the_same(monkeypatch, serve):
    monkeypatch.setenv("XDG_STATE_HOME", "~")  # as `expanduser` leaves it where there is no home
    assert serve().json("/session")["role"] == "controller"
    done = links("add", "ada", "--role", "viewer")
    assert (done.exit_code, "set XDG_STATE_HOME" in done.stderr) == (1, True)
    assert not Path("~").exists()
