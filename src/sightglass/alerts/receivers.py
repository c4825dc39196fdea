"""Where alerts go: addresses that apprise knows, such as of mail and chats, and programs of the user's own.

Rule: an address is a secret, because it holds passwords and tokens. No error, warning or log has it: they name its
kind, such as "mailto".
"""

from __future__ import annotations

import logging
import os
import re
import shlex
import shutil
import signal
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final, Protocol

import msgspec

from sightglass.core.errors import AlertError, MissingExtraError, SightglassError
from sightglass.core.process.unpatched import subprocess

from .alert import VARIABLE, Alert

PROGRAM: Final = "exec:"
PROGRAM_S: Final = 30.0  # it may send a mail itself
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30})://|exec:")
_TYPES: Final = {"info": "info", "warning": "warning", "error": "failure"}


class Receiver(Protocol):
    """Gets alerts, on the thread of a `AlertDelivery`; `kind` names it without its address."""

    kind: str

    def check(self) -> None:
        """Find out whether it can get alerts at all, without sending one.

        Raises:
            AlertError: It cannot.
            MissingExtraError: The package that it needs is not installed.
        """

    def send(self, alert: Alert, *, now: float) -> None:
        """Send an alert; `now` is in seconds since the Unix epoch. Errors as in `check`."""


def receivers_here(unusable: Callable[[Exception], None] | None = None) -> tuple[Receiver, ...]:
    """Return the receivers that the environment names, checked; errors as of `receivers_of` and `Receiver.check`.

    What they need is loaded here: a process that is forked while another thread imports may hang.

    Args:
        unusable: Called with the error of each receiver that cannot be used, which is left out; without it, raise that.
    """
    found = []
    for receiver in receivers_of(os.environ.get(VARIABLE, "")):
        try:
            receiver.check()
            found.append(receiver)
        except SightglassError as error:
            if unusable is None:
                raise
            unusable(error)
    return tuple(found)


def receivers_of(addresses: str) -> tuple[Receiver, ...]:
    """Return the receivers at some addresses, one a line.

    Raises:
        AlertError: An address has no form that is known.
    """
    found: list[Receiver] = []
    for line in filter(None, map(str.strip, addresses.splitlines())):
        scheme = _SCHEME.match(line)
        if scheme is None:
            nth = len(found) + 1
            raise AlertError(
                f"Expected addresses such as 'mailto://…' or 'exec:PROGRAM', got another form as number {nth}"
            )
        found.append(Service(line, scheme[1]) if scheme[1] else Program(line.removeprefix(PROGRAM)))
    return tuple(found)


class Program:
    """A program that gets each alert as JSON on its standard input. It is started without a shell."""

    kind = "exec"

    def __init__(self, command: str) -> None:
        """Take the program and its arguments, with quotes as in a shell.

        Raises:
            AlertError: The command is empty, or a quote does not end.
        """
        try:
            self._command = shlex.split(command)
        except ValueError as error:
            raise AlertError(f"Expected a program for alerts with its arguments: {error}") from None
        if not self._command:
            raise AlertError("Expected a program for alerts, such as 'exec:/usr/local/bin/notify', got none")

    def check(self) -> None:
        """See `Receiver.check`."""
        if shutil.which(self._command[0]) is None:
            raise AlertError("The program for alerts is not there, or cannot be executed")

    def send(self, alert: Alert, *, now: float) -> None:
        """See `Receiver.send`."""
        environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
        try:
            process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True, env=environment,
            )  # fmt: skip
        except OSError as error:
            raise AlertError(f"The program for alerts could not be started: {error.strerror}") from None
        try:
            process.communicate(msgspec.json.encode(alert), timeout=PROGRAM_S)
        except subprocess.TimeoutExpired:
            _kill(process)
            raise AlertError(f"The program for alerts did not end within {PROGRAM_S:g} s") from None
        if process.returncode:
            raise AlertError(f"The program for alerts ended with {process.returncode}")


def _kill(process: Any) -> None:
    """End a program, and what it has started."""
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.communicate()


class Service:
    """A service that apprise sends alerts to."""

    def __init__(self, address: str, kind: str) -> None:
        """Send nothing yet; apprise is loaded by the first use."""
        self.kind = kind
        self._address = address
        self._notify: Any = None

    def check(self) -> None:
        """See `Receiver.check`."""
        self._open()

    def send(self, alert: Alert, *, now: float) -> None:
        """See `Receiver.send`."""
        notify, why = self._open(), ""
        _sends.set(True)
        try:
            sent = notify(
                title=alert.subject, body=alert.body(now), notify_type=_TYPES[alert.level], body_format="text"
            )
        except Exception as error:  # noqa: BLE001  its message may have parts of the address
            sent, why = False, f": {type(error).__name__}"
        finally:
            _sends.set(False)
        if not sent:
            raise AlertError(f"The receiver of alerts by {self.kind} did not take one{why}")

    def _open(self) -> Any:
        if self._notify is None:
            _silence()
            _sends.set(True)
            try:
                self._notify = self._made()
            except Warning:  # modules of the standard library that apprise uses are deprecated; `-W error` raises that
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    self._notify = self._made()
            finally:
                _sends.set(False)
        return self._notify

    def _made(self) -> Any:
        try:
            import apprise
        except ImportError:
            raise MissingExtraError("apprise", extra="alerts", purpose=f"Sending alerts by {self.kind}") from None
        asset = apprise.AppriseAsset(async_mode=False, app_id="Sightglass", app_desc="", app_url="")
        # Not `Apprise.notify`: that needs new threads, which cannot be started where a program ends.
        service = apprise.Apprise.instantiate(self._address, asset=asset)
        if service is None:
            raise AlertError(f"Expected an address that apprise knows, got another form of {self.kind}://…")
        return service.notify


_sends: ContextVar[bool] = ContextVar("sends", default=False)
LOGGERS: Final = ("apprise", "urllib3.connectionpool", "urllib3.util.retry")


def _silence() -> None:
    """Drop what is logged while an alert is sent: it has parts of addresses. What others log is untouched."""
    for logger in map(logging.getLogger, LOGGERS):
        if _is_others not in logger.filters:
            logger.addFilter(_is_others)


def _is_others(record: logging.LogRecord) -> bool:
    return not _sends.get()
