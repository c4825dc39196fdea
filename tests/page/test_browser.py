"""The search for the tests' browser; no command that installs one runs here."""

from __future__ import annotations

import os
import sys

import pytest
from tests import browser

SOUND = f"#!{sys.executable}\nprint('Chromium 1.2.3')\n"
STUB = f"#!{sys.executable}\nraise SystemExit('Command requires the chromium snap to be installed')\n"

pytestmark = pytest.mark.skipif(os.name != "posix", reason="scripts stand in for browsers")


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Return a machine without a browser; commands that would get one are noted, and may bring one."""

    class Machine:
        path = tmp_path / "bin"
        own = tmp_path / "own" / "chrome"
        commands: list[list[str]]
        brings: dict[str, object]

        def put(self, place, script=SOUND):
            place.parent.mkdir(exist_ok=True)
            place.write_text(script)
            place.chmod(0o755)

    machine = Machine()
    machine.commands, machine.brings = [], {}
    machine.path.mkdir()
    machine.put(machine.path / "apt-get")
    monkeypatch.setenv("PATH", str(machine.path))
    monkeypatch.setattr(browser, "PLACES", ())
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    def noted(command, timeout_s):
        machine.commands.append(command)
        if bring := machine.brings.get("playwright" if "playwright" in command else command[-1]):
            bring()
        return f"  {command[0]}: tried"

    monkeypatch.setattr(browser, "_run", noted)
    return machine


def test_a_browser_is_found_or_installed(machine):
    one_on_the_path_that_starts_precedes_playwrights_own(machine)
    machine.own.unlink()
    (machine.path / "google-chrome").unlink()
    playwright_installs_it_or_else_apt(machine)


def one_on_the_path_that_starts_precedes_playwrights_own(machine):
    machine.put(machine.own)
    assert browser.find_browser(str(machine.own)) == str(machine.own)
    machine.put(machine.path / "google-chrome")
    assert browser.find_browser(str(machine.own)) == str(machine.path / "google-chrome")
    machine.put(machine.path / "google-chrome", STUB)  # one that does not start is not a browser
    assert browser.find_browser(str(machine.own)) == str(machine.own)
    assert machine.commands == []


def playwright_installs_it_or_else_apt(machine):
    machine.brings["playwright"] = lambda: machine.put(machine.own)
    assert browser.find_browser(str(machine.own)) == str(machine.own)
    assert [command[1:4] for command in machine.commands] == [["-m", "playwright", "install"]]
    machine.own.unlink()
    machine.brings = {"fonts-dejavu-core": lambda: machine.put(machine.path / "chromium")}
    assert browser.find_browser(str(machine.own)) == str(machine.path / "chromium")
    assert [command[0] for command in machine.commands[1:]] == [sys.executable, "apt-get", "apt-get"]


def test_the_error_names_three_ways(machine, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(browser.NoBrowserError) as caught:
        browser.find_browser(str(machine.own))
    for way in ("on the PATH", "playwright install", "apt-get install", "only root"):
        assert way in str(caught.value)
    assert [command[0] for command in machine.commands] == [sys.executable]
    (machine.path / "apt-get").unlink()
    with pytest.raises(browser.NoBrowserError, match="apt-get"):
        browser.find_browser(str(machine.own))
