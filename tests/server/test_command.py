"""The command `sightglass ui`."""

from __future__ import annotations

import builtins
import contextlib
import os
import signal
import socket
import subprocess
import sys
import webbrowser
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from sightglass.cli import main
from sightglass.server.app import Server

from .conftest import record, wait_until


def test_it_prints_links_serves_and_ends_by_an_interrupt():
    record()
    command = [sys.executable, "-m", "sightglass", "ui", "--no-browser"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ), start_new_session=True
    ) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        links = [child.stdout.readline().split() for _ in range(2)]
        assert [name for name, _ in links] == ["controller:", "viewer:"]
        base, token = links[1][1].split("/#token=")
        headers = {"Authorization": f"Bearer {token}"}

        def session():
            try:
                return httpx.get(base + "/api/v1/session", headers=headers, timeout=60).json()
            except httpx.TransportError:
                return None

        assert wait_until(session)["role"] == "viewer"
        assert len(httpx.get(base + "/api/v1/runs", headers=headers, timeout=60).json()["runs"]) == 1
        assert httpx.get(base + "/", timeout=60).status_code == 200
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 0
        assert child.stdout.read() == child.stderr.read() == ""


@pytest.fixture
def asked(monkeypatch):
    """Do not serve, and note what would be opened in a browser: the address, the file, and its permissions."""
    opened = []

    def note(address):
        page = Path(address.removeprefix("file://"))
        opened.append((page, page.read_text(), page.stat().st_mode & 0o777))

    monkeypatch.setattr(Server, "run", lambda self: self._socket.close())
    monkeypatch.setattr(webbrowser, "open", note)
    return opened


def test_it_opens_a_private_page_that_leads_to_the_controller_s_link(asked):
    """All users of a machine can read the command line of a browser: no token is in it."""
    done = CliRunner().invoke(main, ["ui"])
    assert done.exit_code == 0
    [(page, text, mode)] = asked
    link = done.stdout.split()[1]
    assert link in text
    assert link.split("token=")[1] not in str(page)
    assert mode == 0o600
    assert not page.exists()
    assert CliRunner().invoke(main, ["ui", "--no-browser"]).exit_code == 0
    assert len(asked) == 1


def test_other_machines_come_in_only_when_that_is_meant(asked):
    refused = CliRunner().invoke(main, ["ui", "--host", "0.0.0.0"])
    assert (refused.exit_code, "--expose" in refused.stderr) == (2, True)
    exposed = ["ui", "a", "b", "--host", "0.0.0.0", "--expose"]
    refused = CliRunner().invoke(main, exposed)
    assert (refused.exit_code, "--unencrypted" in refused.stderr) == (2, True)
    done = CliRunner().invoke(main, [*exposed, "--unencrypted"])
    assert done.exit_code == 0
    assert "not encrypted" in done.stderr
    assert "your live runs and a, b" in done.stderr
    assert "b does not exist so far: the page shows its runs once it does" in done.stderr
    done = CliRunner().invoke(main, [*exposed[:1], *exposed[3:], "--unencrypted"], env={"SIGHTGLASS_RUNS": "jobs"})
    assert "your live runs and jobs;" in done.stderr
    assert f"http://{socket.gethostname()}:" in done.stdout


def test_a_port_that_is_taken(asked):
    with socket.create_server(("127.0.0.1", 0)) as other:
        done = CliRunner().invoke(main, ["ui", "--port", str(other.getsockname()[1])])
    assert (done.exit_code, "Cannot listen on 127.0.0.1" in done.stderr) == (1, True)


def test_without_the_extra_it_says_what_to_install(asked, monkeypatch):
    usual = builtins.__import__

    def without(name, *rest, **more):
        if name == "sightglass.server.app":
            raise ModuleNotFoundError("No module named 'uvicorn'", name="uvicorn")
        return usual(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    done = CliRunner().invoke(main, ["ui"])
    assert (done.exit_code, "pip install 'sightglass[ui]'" in done.stderr) == (1, True)


@pytest.mark.parametrize(("answer", "code"), [(b"n\n", 1), (b"\n", 1), (b"y\n", 0)])
def test_in_a_terminal_it_asks_before_it_exposes_without_encryption(answer, code):
    import pty

    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "sightglass", "ui", "--host", "0.0.0.0", "--expose", "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        os.write(ours, answer)
        if code == 0:
            assert child.stdout.readline().startswith("controller: http://")
            wait_until(lambda: child.stdout.readline().startswith("viewer:"))
            child.send_signal(signal.SIGINT)
        printed, said = child.communicate(timeout=60)
        assert child.returncode == code
        assert "not encrypted without --tls" in said
        assert not printed  # nothing after the links
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_removes_the_first_page_and_is_the_reason_of_the_exit(runtime, number, request):
    before = signal.signal(number, signal.SIG_DFL)  # `nohup` has SIGHUP ignored, and processes inherit that
    request.addfinalizer(lambda: signal.signal(number, before))
    browser = f"{sys.executable} -c pass %s"
    command = [sys.executable, "-m", "sightglass", "ui", "--port", "0"]
    environment = {**os.environ, "BROWSER": browser}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as child:
        link = child.stdout.readline().split()[1]

        def serves():
            with contextlib.suppress(httpx.TransportError):
                return httpx.get(link.partition("/#")[0], timeout=60).status_code == 200

        wait_until(serves)
        assert len(list(runtime.glob("page-*.html"))) == 1
        child.send_signal(number)
        assert child.wait(60) == -number
        assert child.stderr.read() == ""
    assert not list(runtime.glob("page-*.html"))
