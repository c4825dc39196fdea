"""Real receivers of alerts: a server for mail, and one for HTTP."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Message


class Mails(Message):
    """Keeps the mails that arrive."""

    def __init__(self) -> None:
        super().__init__()
        self.got: list[Any] = []
        self.port = 0

    def handle_message(self, message: Any) -> None:
        self.got.append(message)


class FreePort(Controller):
    """Listens where there is room, and knows where."""

    def _trigger_server(self) -> None:
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


@contextlib.contextmanager
def mail_server() -> Iterator[Mails]:
    """Run a server for mail."""
    handler = Mails()
    controller = FreePort(handler, hostname="127.0.0.1", port=0)
    controller.start()
    handler.port = controller.port
    yield handler
    controller.stop()


class Posts(ThreadingHTTPServer):
    """Keeps the JSON that is posted, with its path; answers `status`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Post)
        self.got: list[tuple[str, dict[str, Any]]] = []
        self.n_refused = 0
        self.status = 200


class _Post(BaseHTTPRequestHandler):
    server: Posts

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.server.status == 200:
            self.server.got.append((self.path, body))
        else:
            self.server.n_refused += 1
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def http_server() -> Iterator[Posts]:
    """Run a server for HTTP."""
    server = Posts()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
