"""A real JupyterLab, and notebooks that are opened in it."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, Locator, Page
from tests.waiting import PATIENCE_S, wait_until

LOOK_MS = 50
OPTIONS = (
    "--no-browser", "--allow-root", "--LabApp.news_url=", "--LabApp.extension_manager=readonly",
    "--LabApp.expose_app_in_browser=True", "--ServerApp.open_browser=False",
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
)  # fmt: skip
WATCH = """
addEventListener('unhandledrejection', () => 0)
window.drawn = {}
document.addEventListener('sightglass:drawn', ({ detail }) => (window.drawn[detail.key] = detail.streams))
"""


class Lab:
    """A server in a folder of its own, with settings of its own."""

    def __init__(self, folder: Path, runtime: str) -> None:
        self.runtime = runtime
        self.root = folder / "notebooks"
        self.root.mkdir(parents=True)
        self.token = secrets.token_hex(8)
        self._log = (folder / "lab.log").open("w+")
        settings = folder / "config" / "lab" / "user-settings" / "@jupyterlab"
        # No question about news, nothing saved behind the tests' back.
        for place, values in {
            "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False}
        }.items():
            path = settings / f"{place}.jupyterlab-settings"
            path.parent.mkdir(parents=True)
            path.write_text(json.dumps(values))
        self._env = dict(
            os.environ,
            JUPYTER_CONFIG_DIR=str(folder / "config"), JUPYTER_DATA_DIR=str(folder / "data"),
            JUPYTER_RUNTIME_DIR=str(folder / "runtime"), IPYTHONDIR=str(folder / "ipython"),
            JUPYTERLAB_SETTINGS_DIR=str(folder / "config" / "lab" / "user-settings"),
            SIGHTGLASS_RUNTIME_DIR=runtime, PYDEVD_DISABLE_FILE_VALIDATION="1",
        )  # fmt: skip
        self.port = _free_port()
        command = [sys.executable, "-m", "jupyterlab", *OPTIONS, f"--port={self.port}", "--ServerApp.port_retries=0"]
        command += [f"--IdentityProvider.token={self.token}", f"--ServerApp.root_dir={self.root}"]
        self._process = subprocess.Popen(
            command, env=self._env, stdout=self._log, stderr=self._log, start_new_session=True, cwd=self.root
        )
        wait_until(self._answers, "JupyterLab answers")

    def _answers(self) -> bool:
        if self._process.poll() is not None:
            self._log.seek(0)
            raise RuntimeError(f"JupyterLab ended with {self._process.returncode}: {self._log.read()[-2000:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api?token={self.token}", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def write(self, name: str, cells: Sequence[str]) -> None:
        """Write a notebook."""
        kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
        listed = [
            {"cell_type": "code", "id": f"cell{i}", "execution_count": None, "metadata": {}, "outputs": [],
             "source": source}
            for i, source in enumerate(cells)
        ]  # fmt: skip
        document = {"cells": listed, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
        (self.root / f"{name}.ipynb").write_text(json.dumps(document))

    def close(self) -> None:
        """Stop the server and its kernels."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait(10)
        self._log.close()


class Notebook:
    """A notebook in a browser's tab."""

    def __init__(self, lab: Lab, name: str, context: BrowserContext) -> None:
        self.lab, self.name = lab, name
        self.page: Page = context.new_page()
        self.problems: list[str] = []
        self.page.on("pageerror", self._fail)
        self.page.on("dialog", lambda dialog: (self.problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("console", self._note)
        self.page.add_init_script(WATCH)
        self.open()

    def _fail(self, error: Any) -> None:
        if "create_subshell_request" not in str(error):  # JupyterLab's own, when a kernel restarts
            self.problems.append(f"page error: {error}")

    def _note(self, said: Any) -> None:
        if said.type == "error" and ("sightglass" in said.text.lower() or "anywidget" in said.text.lower()):
            self.problems.append(f"console: {said.text}")

    def open(self) -> None:
        """Open the notebook, or load the page anew."""
        place = f"lab/workspaces/{self.name}/tree/{self.name}.ipynb"  # a workspace of its own: others' tabs stay away
        self.page.goto(f"http://127.0.0.1:{self.lab.port}/{place}?token={self.lab.token}")
        self.page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=PATIENCE_S * 1000)
        self.page.wait_for_function(
            "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
            " || window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'busy'",
            timeout=PATIENCE_S * 1000,
        )

    def run(self, place: int) -> None:
        """Run a cell; does not wait for it."""
        self.command("notebook:enter-command-mode")
        self.page.evaluate("i => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = i }", place)
        # Not waited for: the command ends when the cell does.
        self.page.evaluate("() => { window.jupyterapp.commands.execute('notebook:run-cell') }")

    def finish(self, place: int) -> None:
        """Run a cell to its end."""
        self.run(place)
        self.wait_done(place)

    def wait_done(self, place: int) -> None:
        """Wait until a cell has run."""
        self.until(lambda: self.prompt(place).strip("[]: ").isdigit(), f"cell {place} is done")

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait for a fact, as `wait_until` does, while the page goes on."""
        return wait_until(condition, what, pause=lambda: self.page.wait_for_timeout(LOOK_MS))

    def prompt(self, place: int) -> str:
        """Return what stands before a cell: "[*]:" while it is running."""
        return self.cell(place).locator(".jp-InputPrompt").first.inner_text()

    def cell(self, place: int) -> Locator:
        """Return a cell."""
        return self.page.locator(".jp-Notebook .jp-CodeCell").nth(place)

    def view(self, place: int) -> Locator:
        """Return the view under a cell."""
        return self.cell(place).locator(".sightglass-notebook")

    def card(self, place: int) -> Locator:
        """Return the card of a run under a cell."""
        return self.cell(place).locator("article.run-card")

    def command(self, name: str, **options: Any) -> None:
        """Run one of JupyterLab's commands."""
        self.page.evaluate("([name, options]) => window.jupyterapp.commands.execute(name, options)", [name, options])

    def said(self, place: int) -> str:
        """Return what a cell printed."""
        return self.cell(place).locator(".jp-OutputArea-output pre").all_inner_texts()[-1]

    def close(self) -> None:
        """Stop the kernel, and fail if anything went wrong in the page."""
        self.page.evaluate(
            "async () => { const { sessionContext } = window.jupyterapp.shell.currentWidget ?? {};"
            " await sessionContext?.shutdown?.() }"
        )
        self.page.close()
        assert not self.problems, "\n".join(self.problems)


def pixels(canvas: Locator) -> dict[str, int]:
    """Return how many coloured pixels a canvas has, and a number that differs when they do."""
    found: dict[str, int] = canvas.evaluate(
        """canvas => {
          const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height)
          let [n, sum] = [0, 0]
          for (let i = 0; i < data.length; i += 4) {
            const [r, g, b] = [data[i], data[i + 1], data[i + 2]]
            if (data[i + 3] < 100 || Math.max(r, g, b) - Math.min(r, g, b) < 40) continue
            n++
            sum = (sum * 31 + i) % 1000000007
          }
          return { n, sum }
        }"""
    )
    return found


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
