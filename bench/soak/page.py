"""The tabs of the soak: each a process that speaks the page's protocol, or a real browser."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from .clients import N_NUMBERS, Client
from .formula import GROUP, SIZE, losses

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
ARGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"]
LOSS, MEAN, TENSOR = "batch.loss", "batch.n.mean(every=100)", "batch.x"
REST_S = 1.0  # between two requests of a tab


@contextlib.contextmanager
def serving(folder: Path, log: Path) -> Iterator[tuple[int, str]]:
    """Serve a folder; gives the process number of the server and the link."""
    command = [sys.executable, "-m", "sightglass", "ui", str(folder), "--no-browser"]
    with log.open("w") as errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as server:
        assert server.stdout is not None
        try:
            link = server.stdout.readline().partition(":")[2].strip()
            yield server.pid, link
        finally:
            server.terminate()


class Tab:
    """A tab: a socket with three streams, and requests; it checks what comes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._base, self._token = client.link.split("/#token=")
        self._expected: dict[int, int] = {}
        self._numbers = itertools.count(client.number * N_NUMBERS)
        self._next_s = 0.0
        self._http = httpx.Client(
            base_url=self._base + "/api/v1", timeout=60, headers={"Authorization": f"Bearer {self._token}"}
        )
        self._key = next(run["key"] for run in self._get("/runs")["runs"] if run["name"] == client.name)
        self.report: dict[str, Any] = {
            "n": 0,
            "n_wrong": 0,
            "wrong": "",
            "n_lost": 0,
            "n_requests": 0,
            "n_sockets": 0,
            "told": "left",
        }
        client.report = self.report

    def run(self) -> None:
        """Follow the run until it is time to leave or it has ended, and ask something every second."""
        queries = (LOSS, MEAN, TENSOR)
        ended: set[int] = set()
        self._expected.clear()
        with self._connected() as socket:
            for id, query in enumerate(queries):
                socket.send(json.dumps({"type": "open", "id": id, "run": self._key, "query": query}))
            while not self._client.over and len(ended) < len(queries):
                with contextlib.suppress(TimeoutError):
                    self._take(socket, socket.recv(timeout=0.2), ended)
                if time.monotonic() > self._next_s and not ended:
                    self._next_s = time.monotonic() + REST_S
                    self._ask()
        if len(ended) == len(queries):
            self.report["told"] = self.report.get("error") or "ended"

    def _connected(self) -> ClientConnection:
        socket = connect(self._base.replace("http", "ws", 1) + "/api/v1/live", max_size=2**26, open_timeout=60)
        socket.send(json.dumps({"type": "hello", "token": self._token}))
        socket.send(json.dumps({"type": "runs"}))
        self.report["n_sockets"] += 1
        return socket

    def _take(self, socket: ClientConnection, frame: str | bytes, ended: set[int]) -> None:
        if isinstance(frame, bytes):
            message = msgspec.msgpack.decode(frame)
            self._check(message)
            socket.send(json.dumps({"type": "ack", "id": message["id"], "n": 1}))
            return
        told = json.loads(frame)
        if told["type"] == "ended":
            ended.add(told["id"])
            if "error" in told:
                self.report["error"] = f"{told['error']}: {told['reason']}"
        elif told["type"] == "statistics":
            self.report["n_lost"] = max(self.report["n_lost"], told["n_lost"])
        elif told["type"] == "refused":
            self._note(f"refused: {told}")

    def _check(self, message: dict[str, Any]) -> None:
        """Check a message with records: they follow the last ones, and their values are what they must be."""
        id, first, steps = message["id"], message["first"], np.frombuffer(message["step"], "<f8")
        if first != self._expected.get(id, 0):
            self._note(f"stream {id}: expected record {self._expected.get(id, 0)}, got {first}")
        self._expected[id] = first + message["n"]
        self.report["n"] += len(steps)
        if id == 2:
            arrays = [np.frombuffer(value["data"], value["dtype"]) for value in message["values"]]
            right = all(np.array_equal(a, np.arange(s, s + SIZE)) for a, s in zip(arrays, steps, strict=True))
        else:
            y = np.frombuffer(message["y"], "<f8")
            right = bool((y == losses(steps)).all()) if id == 0 else _are_means(steps, y)
        if not right:
            self._note(f"stream {id}: wrong values from step {steps[0]}")

    def _ask(self) -> None:
        """Ask something of the API, and check the answer."""
        self.report["n_requests"] += 1
        run, choice = f"/runs/{self._key}", self._client.random.randrange(9)
        try:
            if choice < 3:
                tag, axis = ("logged/loss", LOSS, "logged/loss")[choice], ("step", "step", "relative")[choice]
                told = self._get(f"{run}/scalars", tag=tag, x=axis)
                self._verify(np.array_equal(told["y"], losses(told["step"])), tag)
            elif choice == 3:
                body = {"requests": [{"run": self._key, "tag": tag} for tag in ("logged/loss", LOSS)]}
                for line in msgspec.msgpack.decode(self._http.post("/scalars", json=body).content):
                    steps, y = (np.frombuffer(line[name], "<f8") for name in ("step", "y"))
                    self._verify(np.array_equal(y, losses(steps)), "POST /scalars")
            elif choice == 4:
                told = self._get(f"{run}/tensor", tag="logged/x", format="npy", raw=True)
                self._verify(len(told) > 4 * SIZE, "/tensor")
            elif choice == 5:
                told = self._get(f"{run}/histograms", tag="logged/x")
                self._verify(all(sum(counts) == SIZE for counts in told["counts"]), "/histograms")
            elif choice == 6:
                told = self._get(f"{run}/media", tag="figure", raw=True)
                self._verify(told.startswith(b"\x89PNG"), "/media")
            elif choice == 7:
                self._verify(self._get(run)["key"] == self._key and bool(self._get(f"{run}/tags")["tags"]), run)
            else:
                self._command(f"{run}/commands")
        except httpx.HTTPStatusError as error:
            early = error.response.status_code == 404  # nothing was recorded under the tag yet
            over = error.response.status_code == 409  # the run has ended
            if not early and not over:
                self._note(f"{error.response.status_code}: {error.response.text[:200]}")

    def _command(self, path: str) -> None:
        number = next(self._numbers)
        self._client.note("sent", number)
        told = self._http.post(path, json={"kind": "call", "name": "apply", "value": [number]})
        told.raise_for_status()
        if told.json()["applied"]:
            self._client.note("acknowledged", number)
            self._verify(told.json()["result"] == number, "the result of a command")

    def _get(self, path: str, *, raw: bool = False, **query: Any) -> Any:
        answer = self._http.get(path, params=query)
        answer.raise_for_status()
        return answer.content if raw else answer.json()

    def _verify(self, right: bool, what: str) -> None:
        if not right:
            self._note(f"a wrong answer: {what}")

    def _note(self, what: str) -> None:
        self.report["n_wrong"] += 1
        self.report["wrong"] = self.report["wrong"] or what


def _are_means(steps: Any, y: Any) -> bool:
    """Return whether values are means of event numbers, over at most `GROUP` events that end with the step."""
    n = 2 * (steps - y) + 1
    return bool(((n == np.round(n)) & (n >= 1) & (n <= GROUP)).all())


def tab(client: Client) -> None:
    """Be a tab: if its socket is closed, such as while it sleeps, make another one and ask again, as the page does."""
    tab = Tab(client)
    with contextlib.suppress(OSError):  # the server has ended
        while True:
            with contextlib.suppress(ConnectionClosed):
                tab.run()
                break


def browser_path() -> str | None:
    """Return the path of a browser, if there is one."""
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def browser(client: Client) -> None:
    """Open the page in a real browser: the charts, then a query, until it is time to leave."""
    from playwright.sync_api import sync_playwright

    errors: list[str] = []
    with sync_playwright() as playwright:
        path = browser_path()
        chromium = playwright.chromium.launch(executable_path=path, headless=True, args=ARGS)
        page = chromium.new_context(viewport={"width": 1440, "height": 900}).new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(client.link)
        page.get_by_role("navigation", name="Pages").wait_for()
        page.wait_for_timeout(5_000)
        page.evaluate("location.hash = '#/charts'")
        box = page.get_by_role("combobox", name="Query")
        box.fill(LOSS)
        box.press("Escape")
        box.press("Enter")
        page.wait_for_selector("canvas")
        while not client.over:
            page.wait_for_timeout(500)
        chromium.close()
    client.report = {"told": "left", "n_wrong": len(errors), "wrong": errors[0] if errors else ""}
