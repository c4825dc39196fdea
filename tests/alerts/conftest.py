"""Real receivers of alerts: a server for mail, and one for HTTP."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.handlers import Message


class Mails(Message):
    def __init__(self):
        super().__init__()
        self.got = []

    def handle_message(self, message):
        self.got.append(message)


class FreePort(Controller):
    """Listens where there is room, and knows where."""

    def _trigger_server(self):
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


@pytest.fixture
def mails():
    handler = Mails()
    controller = FreePort(handler, hostname="127.0.0.1", port=0)
    controller.start()
    handler.port = controller.port
    yield handler
    controller.stop()


@pytest.fixture
def posts():
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            server.got.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(server.status)
            self.end_headers()

        def log_message(self, *arguments):
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.got, server.status = [], 200
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
