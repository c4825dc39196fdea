"""A real server at a real port, in a thread of the tests' process, with real runs."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest
from tests.growing import FIXTURES, FOREIGN
from tests.waiting import wait_until
from websockets.sync.client import connect as connect_socket

import sightglass as sg
from sightglass.server import connections
from sightglass.server.app import Server, make_server
from sightglass.server.live import page_socket
from sightglass.server.live.hub import Hub
from sightglass.server.runs import run_table, served_run


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the list of runs read the details of all runs at once, and tests show a token late, on a slow machine."""
    monkeypatch.setattr(run_table, "DETAILS_S", 60.0)
    monkeypatch.setattr(served_run, "SLOW_OPEN_S", 100.0)
    monkeypatch.setattr(connections, "STRANGER_S", 60.0)
    monkeypatch.setattr(page_socket, "HELLO_S", 60.0)


class Page:
    """A client of the server: what the page would do."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.base = f"http://127.0.0.1:{server.port}"
        self.http = httpx.Client(base_url=self.base, timeout=60)
        self.sockets = contextlib.ExitStack()

    def headers(self, role: str = "controller") -> dict[str, str]:
        token = getattr(self.server.tokens, role)
        return {"Authorization": f"Bearer {token}"}

    def get(self, path: str, role: str = "controller", headers: dict[str, str] | None = None, **query: Any) -> Any:
        given = {"from_": "from"}
        params = {given.get(name, name): value for name, value in query.items()}
        return self.http.get(f"/api/v1{path}", params=params, headers={**self.headers(role), **(headers or {})})

    def post(self, path: str, body: Any, role: str = "controller") -> Any:
        return self.http.post(f"/api/v1{path}", json=body, headers=self.headers(role))

    def json(self, path: str, **query: Any) -> Any:
        answer = self.get(path, **query)
        assert answer.status_code == 200, answer.text
        return json.loads(answer.text)

    def runs(self) -> dict[str, Any]:
        return {run["name"]: run for run in self.json("/runs")["runs"]}

    def key(self, name: str) -> str:
        return wait_until(lambda: self.runs().get(name))["key"]

    def socket(self, role: str = "controller", *, greet: bool = True, **options: Any) -> Socket:
        address = f"ws://127.0.0.1:{self.server.port}/api/v1/live"
        raw = self.sockets.enter_context(connect_socket(address, max_size=2**26, open_timeout=60, **options))
        socket = Socket(raw)
        if greet:
            socket.send(type="hello", token=getattr(self.server.tokens, role))
            assert socket.hears("welcome")["role"] == role
        return socket

    @property
    def hub(self) -> Hub:
        """The server's hub."""
        app: Any = self.server._server.config.app
        while not hasattr(app, "router"):
            app = app._app
        return next(route.endpoint.__self__ for route in app.router.routes if route.path.endswith("/live"))

    def close(self) -> None:
        self.sockets.close()
        self.http.close()

    def end(self) -> None:
        """Stop the server, and wait until it has."""
        self.close()
        self.server.stop()
        wait_until(lambda: not self.server._server.started or self.server._socket.fileno() < 0)


class Socket:
    """The page's side of the socket; what is not waited for is kept."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw
        self.kept: list[dict[str, Any]] = []

    def send(self, **message: Any) -> None:
        self.raw.send(json.dumps(message))

    def next(self, timeout_s: float = 60.0) -> dict[str, Any]:
        frame = self.raw.recv(timeout=timeout_s)
        if isinstance(frame, bytes):
            return {"type": "data", **msgspec.msgpack.decode(frame)}
        return json.loads(frame)

    def hears(self, kind: str, **expected: Any) -> dict[str, Any]:
        """Wait for a message of a kind, in which some things are as expected."""
        return self.finds(lambda m: m["type"] == kind and all(m.get(k) == v for k, v in expected.items()))

    def finds(self, test: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        for i, message in enumerate(self.kept):
            if test(message):
                return self.kept.pop(i)
        while not test(message := self.next()):
            self.kept.append(message)
        return message


def floats(data: bytes) -> list[float]:
    return np.frombuffer(data, "<f8").tolist()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Return a function that starts a server over some directories."""
    started: list[tuple[Page, threading.Thread]] = []

    def serve(*directories: str | Path, **options: Any) -> Page:
        server = make_server([Path(one) for one in directories or ("runs",)], **options)
        thread = threading.Thread(target=server.run)
        thread.start()
        wait_until(lambda: server.started or not thread.is_alive())
        started.append((Page(server), thread))
        return started[-1][0]

    yield serve
    for page, thread in started:
        if not thread.is_alive():
            continue
        page.close()
        page.server.stop()
        thread.join(60)
        assert not thread.is_alive()


@pytest.fixture
def page(serve: Callable[..., Page]) -> Page:
    """Return a client of a server over "runs"."""
    return serve()


@pytest.fixture
def begin() -> Iterator[Callable[..., Any]]:
    """Return a function that begins live runs in this process."""
    begun: list[Any] = []

    def begin(name: str = "job", **options: Any) -> Any:
        begun.append(sg.init(name, **{"budget": None, **options}))
        return begun[-1]

    yield begin
    for run in begun:
        run.close()


def record(name: str = "mnist", *, n: int = 300, seed: int = 0) -> Path:
    """Record a run with a bit of everything, and return its directory."""
    rng = np.random.default_rng(seed)
    with sg.init(name, record=["batch.loss"], config={"lr": 0.1 * seed}) as run:
        for i in range(n):
            run.observe("batch", step=i, loss={7: float("nan"), 9: float("inf"), 11: -float("inf")}.get(i, 1 / (i + 1)))
        kernel = rng.normal(size=(3, 8, 5)).astype(np.float32)
        for step in range(0, 300, 100):
            kernel = kernel + 1
            run.log(
                {
                    "val": {"accuracy": 0.5 + step},
                    "kernel": sg.Tensor(kernel),
                    "holes": np.array([1.0, np.nan, np.inf, -np.inf]),
                    "activations": sg.Histogram(rng.normal(size=500)),
                    "digits": sg.Images(rng.random((4, 8, 8))),
                    "note": f"<b>{step}</b>",
                    "figure": sg.Figure(b"%PDF-1.4", "application/pdf"),
                    "point": (1, 2.0),
                },
                step=step,
            )
        return run.directory


def place_foreign(folder: Path = Path("runs")) -> None:
    """Put the fixtures of other programs into a folder."""
    for name, (fixture, called) in FOREIGN.items():
        (folder / name).mkdir(parents=True)
        shutil.copy(FIXTURES / fixture, folder / name / called)


@contextlib.contextmanager
def raises_closed(code: int) -> Iterator[None]:
    """Expect that the server closes the socket with a code."""
    from websockets.exceptions import ConnectionClosed

    with pytest.raises(ConnectionClosed) as caught:
        yield
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == code
