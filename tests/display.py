"""A display without a screen, for windows that are really opened."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator

import numpy as np
import pytest

BLUE = (0x3F, 0x8F, 0xC4)


@contextlib.contextmanager
def virtual_display() -> Iterator[str]:
    """Start an X server that draws into memory, and yield the name of its display; skips where none is installed."""
    if shutil.which("Xvfb") is None:
        pytest.skip("no Xvfb to make a display with")
    read, write = os.pipe()
    # Without -noreset it begins anew whenever its last client leaves, and turns away who comes meanwhile.
    command = ["Xvfb", "-displayfd", str(write), "-screen", "0", "1200x800x24", "-nolisten", "tcp", "-noreset"]
    with subprocess.Popen(command, pass_fds=[write], stderr=subprocess.DEVNULL) as server:
        os.close(write)
        with os.fdopen(read) as told:
            number = told.readline().strip()
        assert number, "Xvfb did not start"
        try:
            yield f":{number}"
        finally:
            server.terminate()


def n_blue(display: str) -> int:
    """Return how many pixels of a display have the colour of the first line."""
    pictures = pytest.importorskip("PIL.ImageGrab")
    away = abs(np.asarray(pictures.grab(xdisplay=display), int)[..., :3] - BLUE)
    return int((away.max(axis=-1) < 12).sum())
