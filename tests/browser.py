"""The browser of the tests: one that is installed, or else Playwright's own download, or else Debian's package."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Playwright, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
DOWNLOAD_S, INSTALL_S = 300, 600
ARGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
]  # fmt: skip
WAYS = """No browser for the tests of the page. Do one of these:
  1. install Chromium or Chrome so that one of {names} is on the PATH;
  2. let Playwright download its own: {python} -m playwright install --with-deps chromium
  3. on Debian or Ubuntu, as root: apt-get install --no-install-recommends chromium
Tried here:
{tried}"""


class NoBrowserError(Exception):
    """No browser is installed, and none can be installed."""


@contextmanager
def started() -> Iterator[tuple[Browser, asyncio.AbstractEventLoop]]:
    """Start a browser; give it and its event loop."""
    with sync_playwright() as playwright:
        browser = launch(playwright)
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)
        yield browser, loop
        asyncio._set_running_loop(loop)
        browser.close()


def launch(playwright: Playwright) -> Browser:
    """Start a browser. Errors as in `find_browser`."""
    return playwright.chromium.launch(executable_path=find_browser(playwright.chromium.executable_path), args=ARGS)


def find_browser(own: str) -> str:
    """Return the path of a browser that starts; install one if there is none.

    Args:
        own: Where Playwright keeps the browser that it downloads.

    Raises:
        NoBrowserError: None can be installed; the message says what to do.
    """
    if path := _present(own):
        return path
    with _locked():  # several workers come here at once; the first installs it for all
        if path := _present(own):
            return path
        tried = [_run([sys.executable, "-m", "playwright", "install", "chromium"], DOWNLOAD_S)]
        if works(own):
            return own
        tried += _install()
        if path := _present(own):
            return path
    raise NoBrowserError(WAYS.format(names=", ".join(NAMES), python=sys.executable, tried="\n".join(tried)))


def works(path: str | None) -> bool:
    """Return whether a browser starts: some systems have stubs of its name, and downloads may lack libraries."""
    if not path or not Path(path).exists():
        return False
    try:
        return subprocess.run([path, "--version"], capture_output=True, timeout=60, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _present(own: str) -> str | None:
    candidates = [*(shutil.which(name) for name in NAMES), *PLACES, own]
    return next((path for path in candidates if works(path)), None)


def _install() -> list[str]:
    if shutil.which("apt-get") is None:
        return ["apt-get: not found"]
    if os.name != "posix" or os.geteuid() != 0:
        return ["apt-get: only root may install packages"]
    quiet = ["-qq", "-o", "DPkg::Lock::Timeout=300"]
    return [
        _run(["apt-get", *quiet, "update"], INSTALL_S),
        _run(
            ["apt-get", *quiet, "install", "-y", "--no-install-recommends", "chromium", "fonts-dejavu-core"], INSTALL_S
        ),
    ]


def _run(command: list[str], timeout_s: float) -> str:
    """Run a command; return its name and the last line of its output."""
    name = " ".join(command)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"  {name}: {error}"
    output = (done.stderr + done.stdout).strip().splitlines() or ["no output"]
    return f"  {name}: ended with {done.returncode}: {output[-1]}"


@contextmanager
def _locked() -> Iterator[None]:
    """Let one process of this user in at a time."""
    try:
        import fcntl
    except ImportError:  # Windows, where there is no apt-get, and Playwright has a lock of its own
        yield
        return
    import tempfile

    with (Path(tempfile.gettempdir()) / f"sightglass-browser-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
