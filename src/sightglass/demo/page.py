"""Serve the page beside the demo: `sightglass ui` in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final

NEEDS: Final = ("starlette", "uvicorn", "websockets")


@contextmanager
def page(directory: Path, *, browser: bool) -> Iterator[str | None]:
    """Serve the page while the context lasts.

    Args:
        directory: The folder of the run directories.
        browser: Whether to open the page in a browser.

    Yields:
        The controller's link, or `None` if the page's requirements are not installed or it does not start.
    """
    if not all(find_spec(name) for name in NEEDS):
        yield None
        return
    command = [sys.executable, "-m", "sightglass", "ui", str(directory), *(() if browser else ("--no-browser",))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield _link(server)
        finally:
            server.terminate()


def _link(server: subprocess.Popen[str]) -> str | None:
    """Read the controller's link, which the server prints first."""
    assert server.stdout is not None
    role, _, link = server.stdout.readline().partition(":")
    return link.strip() if role == "controller" else None
