"""What was told of which run, on the disk: a watcher that is killed and started again tells nothing twice.

An alert is noted before it is sent, and once more when all receivers have it. What was noted once is sent again, with
the same id. So each alert is told at least once, and twice only if the watcher is killed between the two.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from sightglass.alerts.alert import Alert
from sightglass.core.errors import AlertError
from sightglass.core.process.unpatched import threading
from sightglass.protocol.discovery import lock

LOG: Final = "log.jsonl"
STATUS: Final = "status.json"
LOCK: Final = "lock"
N_TRIES, TRY_S = 10, 0.05


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """That a rule tells something of a run: the rule's key, the run's id, how often it was told, and the alert."""

    rule: str
    run: str
    n: int
    alert: Alert


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the log: something is told, an alert has arrived everywhere, or a condition holds no more."""

    told: Told | None = None
    sent: str = ""
    over: tuple[str, str] | None = None


class Journal:
    """What was told, in a folder of its own.

    Attributes:
        told: The last alert of each rule and run.
        holding: The rules and runs of which it was told that the condition holds.
        unsent: The alerts that may not have arrived, the oldest first.
        problem: Why what is told cannot be noted now; empty if it can.
    """

    def __init__(self, folder: Path) -> None:
        """Read what earlier watchers wrote, and write it again without what is over.

        Raises:
            AlertError: Another watcher uses the folder, or it cannot be written to.
        """
        self.told: dict[tuple[str, str], Told] = {}
        self.holding: set[tuple[str, str]] = set()
        self.problem = ""
        self._unwritten = b""
        self._mutex = threading.Lock()
        unsent: dict[str, Told] = {}
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            if not _locked(self._lock):
                os.close(self._lock)
                raise AlertError(f"Another watcher uses {str(folder)!r}: end it first")
            for line in _lines(folder / LOG):
                if line.told is not None:
                    self.told[line.told.rule, line.told.run] = line.told
                    self.holding.add((line.told.rule, line.told.run))
                    unsent[line.told.alert.id] = line.told
                elif line.over is not None:
                    self.holding.discard(line.over)
                unsent.pop(line.sent, None)
            self.unsent = [told.alert for told in unsent.values()]
            older = [told for told in unsent.values() if told is not self.told[told.rule, told.run]]
            lines = [_Line(told=told) for told in (*older, *self.told.values())]
            lines += [_Line(over=key) for key in self.told if key not in self.holding]
            lines += [_Line(sent=told.alert.id) for told in self.told.values() if told.alert.id not in unsent]
            new = folder / f"{LOG}.new"
            new.write_bytes(b"".join(map(_encoded, lines)))
            os.replace(new, folder / LOG)
            self._log = os.open(folder / LOG, os.O_WRONLY | os.O_APPEND)
        except OSError as error:
            raise AlertError(f"Cannot write to {str(folder)!r}: {error.strerror}") from None

    def tell(self, told: Told) -> None:
        """Note an alert before it is sent."""
        self.told[told.rule, told.run] = told
        self.holding.add((told.rule, told.run))
        self._write(_Line(told=told))

    def sent(self, alert: Alert) -> None:
        """Note that all receivers have an alert."""
        self._write(_Line(sent=alert.id))

    def over(self, rule: str, run: str) -> None:
        """Note that a condition of which it was told holds no more."""
        if (rule, run) in self.holding:
            self.holding.discard((rule, run))
            self._write(_Line(over=(rule, run)))

    def status(self, status: Any) -> None:
        """Write how it goes, for `read_status`."""
        new = self._folder / f"{STATUS}.new"
        with contextlib.suppress(OSError):
            new.write_bytes(msgspec.json.encode(status, enc_hook=repr))
            os.replace(new, self._folder / STATUS)

    def close(self) -> None:
        """Let another watcher use the folder."""
        with self._mutex:
            log, self._log = self._log, -1
        os.close(log)
        os.close(self._lock)

    def _write(self, line: _Line) -> None:
        """Append a line; what cannot be written now, as on a full disk, is written with the next one."""
        with self._mutex:
            self._unwritten += _encoded(line)
            try:
                while self._unwritten and self._log >= 0:
                    n = os.write(self._log, self._unwritten)
                    self._unwritten = self._unwritten[n:]
                self.problem = ""
            except OSError as error:
                self.problem = f"What is told cannot be noted: {error.strerror}"


def _locked(descriptor: int) -> bool:
    """Take the lock of a watcher, which `read_status` holds for a moment; return whether that was possible."""
    for _ in range(N_TRIES):
        if lock(descriptor):
            return True
        time.sleep(TRY_S)
    return False


def read_status(folder: Path) -> tuple[dict[str, Any], bool]:
    """Return the last status that a watcher wrote, and whether it still watches.

    Raises:
        AlertError: None has used the folder so far.
    """
    try:
        status = msgspec.json.decode((folder / STATUS).read_bytes())
        descriptor = os.open(folder / LOCK, os.O_RDONLY)
    except (FileNotFoundError, msgspec.DecodeError):
        raise AlertError(f"No watcher has used {str(folder)!r} so far: start `sightglass alerts RULES`") from None
    except OSError as error:
        raise AlertError(f"Cannot read {str(folder)!r}: {error.strerror}") from None
    try:
        return status, not lock(descriptor, shared=True)
    finally:
        os.close(descriptor)


def _encoded(line: _Line) -> bytes:
    return msgspec.json.encode(line) + b"\n"


def _lines(path: Path) -> list[_Line]:
    """Return the lines of a log; the last one may be torn."""
    found = []
    with contextlib.suppress(FileNotFoundError):
        for line in path.read_bytes().splitlines():
            with contextlib.suppress(msgspec.MsgspecError):
                found.append(msgspec.json.decode(line, type=_Line))
    return found
