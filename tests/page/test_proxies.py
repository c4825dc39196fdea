"""The page behind real proxies: nginx with the configuration of the guide, and Jupyter with jupyter-server-proxy."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import tomllib
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect
from tests.waiting import wait_until

import sightglass as sg
from sightglass.core.process.certificate import Certificate

from ..whole.conftest import Child  # noqa: TID252  tests are no package
from .looks import chart
from .places import Server

ROOT = Path(__file__).parents[2]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def answers(address, **options):
    try:
        return httpx.get(address, **options).status_code == 200
    except httpx.TransportError:
        return False


def check(page):
    """See a recorded run, and ask a live one over the socket."""
    expect(page.get_by_role("status").filter(has_text="connected")).to_be_attached()
    expect(chart(page, "loss")).to_be_visible()
    link = page.url.partition("#")[0]
    page.goto(f"{link}#/charts")
    page.get_by_role("combobox", name="Query").fill("batch.step")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.locator(".ask-panel")).to_contain_text(re.compile(r"records|all \d+"))


@pytest.mark.skipif(shutil.which("nginx") is None, reason="no nginx")
def test_nginx_as_the_guide_says(own_place, open_page, tmp_path):
    own_place.train("live")
    with own_place.recording() as folder, sg.init("recorded", dir=folder) as run:
        run.log({"loss": 1.0}, step=1)
        run.log({"loss": 0.5}, step=2)
    port, inner = free_port(), free_port()
    base = f"https://localhost:{port}/sightglass"
    options = ("--port", str(inner), "--base-url", base, "--proxy", "127.0.0.1")
    server = Server([own_place.runs], own_place.environment, *options)
    own_place.children.append(server)
    [link] = server.hears("controller:")
    assert link.startswith(f"{base}/#token=")
    Certificate.make(["localhost"], stored=tmp_path / "hub.pem")
    [block] = re.findall(r"```nginx\n(.*?)```", (ROOT / "docs/sharing.md").read_text(), re.DOTALL)
    for told, here in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("hub.example.org", "localhost"),
        ("/etc/ssl/certs/hub.pem", f"{tmp_path}/hub.pem"),
        ("/etc/ssl/private/hub.key", f"{tmp_path}/hub.pem"),
        ("127.0.0.1:7117", f"127.0.0.1:{inner}"),
    ):
        assert told in block
        block = block.replace(told, here)
    temporary = "".join(f"{kind}_temp_path {tmp_path}/{kind};" for kind in ("proxy", "fastcgi", "uwsgi", "scgi"))
    user = "user root;" if os.geteuid() == 0 else ""
    (tmp_path / "nginx.conf").write_text(
        f"{user} daemon off; pid {tmp_path}/pid; error_log stderr; events {{}}\n"
        f"http {{ include /etc/nginx/mime.types; access_log off; {temporary} client_body_temp_path {tmp_path}/body;\n"
        f"{block}}}\n"
    )
    nginx = Child(["nginx", "-p", str(tmp_path), "-e", "stderr", "-c", str(tmp_path / "nginx.conf")], {})
    own_place.children.append(nginx)
    wait_until(lambda: answers(f"{base}/", verify=False), "nginx answers")
    check(open_page(link, ignore_https_errors=True))
    assert httpx.get(f"{base}/", verify=False, headers={"Host": "evil.example"}).status_code == 403


def test_jupyter_starts_the_page_and_adds_the_token(own_place, open_page, tmp_path):
    own_place.train("live")
    with own_place.recording() as folder, sg.init("recorded", dir=folder) as run:
        run.log({"loss": 1.0}, step=1)
        run.log({"loss": 0.5}, step=2)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    entries = project["entry-points"]["jupyter_serverproxy_servers"]
    installed = tmp_path / "site" / "sightglass-0.dist-info"  # as pip installs it
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: sightglass\nVersion: 0\n")
    text = "".join(f"{name} = {value}\n" for name, value in entries.items())
    (installed / "entry_points.txt").write_text(f"[jupyter_serverproxy_servers]\n{text}")
    port = free_port()
    environment = {
        **own_place.environment,
        "PYTHONPATH": os.pathsep.join([str(installed.parent), os.environ.get("PYTHONPATH", "")]),
        **{f"JUPYTER_{kind}_DIR": str(tmp_path / kind) for kind in ("CONFIG", "DATA", "RUNTIME")},
    }
    command = [
        sys.executable, "-m", "jupyter_server", f"--port={port}", "--ServerApp.port_retries=0", "--no-browser",
        "--allow-root", "--IdentityProvider.token=secret", f"--ServerApp.root_dir={own_place.folder}",
        "--ServerApp.jpserver_extensions={'jupyter_server_proxy': True}", "--ServerApp.base_url=/user/me/",
        "--ServerApp.log_level=CRITICAL",
    ]  # fmt: skip
    jupyter = Child(command, environment, cwd=own_place.folder)
    jupyter.may_complain = True  # JupyterLab says on stderr that it is loaded
    own_place.children.append(jupyter)
    base = f"http://127.0.0.1:{port}/user/me"
    wait_until(lambda: answers(f"{base}/api"), "Jupyter answers")
    known = httpx.get(f"{base}/server-proxy/servers-info", params={"token": "secret"}).json()
    assert [one["launcher_entry"]["title"] for one in known["server_processes"]] == ["Sightglass"]
    for path in ("/", "/api/v1/session"):  # nobody else gets in
        assert httpx.get(f"{base}/sightglass{path}").status_code in (302, 403)
    page = open_page(f"{base}/sightglass/?token=secret#", expects=["a token in a query"])  # Jupyter's own
    check(page)
    assert page.evaluate("sessionStorage.length") == 0  # the token stays with Jupyter
