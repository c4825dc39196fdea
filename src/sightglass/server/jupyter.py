"""The page in Jupyter, behind jupyter-server-proxy: an entry in JupyterLab's launcher, at `…/sightglass/`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

from sightglass.protocol import discovery

from .access import Tokens

START_S: Final = 30.0  # importing takes seconds on a file system of a cluster
ICON: Final = Path(__file__).with_name("jupyter.svg")


def server_process() -> dict[str, Any]:
    """Return how jupyter-server-proxy starts the page, and how it reaches it.

    The page listens on a port that all users of the machine can reach, so it keeps its tokens. They are in a file that
    only this user can read. The proxy, which has authenticated the user, adds the controller's token to each request.
    The proxy passes on the Host that browsers ask Jupyter for, which Jupyter has checked.

    Raises:
        TransportError: There is no folder for the file.
    """
    stored = discovery.folder() / "page-jupyter.tokens"
    command = [sys.executable, "-m", "sightglass", "ui", "--no-browser", "--port", "{port}", "--allow-host", "*"]
    return {
        "command": [*command, "--token-file", str(stored)],
        "timeout": START_S,
        "request_headers_override": {"Authorization": f"Bearer {Tokens.stored(stored).controller}"},
        "launcher_entry": {"title": "Sightglass", "icon_path": str(ICON)},
    }
