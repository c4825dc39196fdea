"""Read what a hub keeps of runs, for those who ask when they are gone.

JetStream, which is part of a NATS server, stores what is published under `SUBJECTS` in one stream of each project: the
records of runs' streams, in blocks of a second; a head for each stream; and what the run says of itself (`kept`). Of
heads and runs, the last message counts.

Clients read with Direct Get (NATS ADR-31), which changes nothing, in pages. The server sends its answers wherever a
request says, with rights of its own, so that a viewer can have what is stored sent to any subject, and stored again
under it. But the answers have headers, and so has what is stored of them. Runs and clients send none: see
`hub_link.HubReader` and `stored_of`.
"""

from __future__ import annotations

import datetime
import json
import re
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .hub_address import HubAddress, checked_token
from .hub_link import drop_link, use_connected_link
from .kept import RECORDS
from .nats import ROOT

STORE: Final = "KEPT"
SUBJECTS: Final = (f"{ROOT}.kept.*.*.*", f"{ROOT}.kept.*.*.*{RECORDS}")
GET: Final = f"$JS.API.DIRECT.GET.{STORE}"
PAGE: Final = 200  # messages; the next page is asked for when this one was read
PAGE_BYTES: Final = 4 * 2**20
ASK_AGAIN_S: Final = 2.0  # a server answers within milliseconds; one that died does not, and another takes over
GIVE_UP_S: Final = 10.0
STATUS: Final = re.compile(rb"NATS/1\.0 (\d{3})")
NOTHING, END, TOO_MANY, NO_STORE = 404, 204, 413, 503


@dataclass(frozen=True, slots=True)
class KeptMessage:
    """A message that a hub keeps.

    Attributes:
        subject: Under which it was published.
        number: Its number among all messages of the store.
        wall_time: When it was stored, in seconds since the Unix epoch, by the server's clock.
        data: Its content.
    """

    subject: str
    number: int
    wall_time: float
    data: bytes


class KeptReader:
    """Reads what a hub keeps, one subject or set of subjects at a time.

    Attributes:
        subjects: Where the answers come.
        lost: Why nothing can be read any more; empty while it can.
        n_forged: How many messages were left out that no run has published.
    """

    def __init__(self, address: HubAddress, *, notify: Callable[[], object] | None = None) -> None:
        """Connect to the hub.

        Args:
            address: The hub.
            notify: Called for each answer.

        Raises:
            MissingExtraError: nats-py is not installed.
            TransportError: The hub does not answer, or no thread can be started.
            RefusedError: The hub does not know the user, or they were revoked.
        """
        self._reply = f"{ROOT}.answer.{checked_token(address.user)}.{secrets.token_hex(12)}"
        self.subjects: Sequence[str] = (self._reply,)
        self.lost = ""
        self.n_forged = 0
        self._inbox: deque[tuple[bytes, bytes]] = deque()
        self._event = threading.Event()
        self._notify = notify or (lambda: None)
        self._request: dict[str, Any] | None = None
        self._next = 1
        self._stops = False
        self._asked_s = self._heard_s = 0.0
        self._closed = False
        self.link = use_connected_link(address)
        self.link.join(self)

    @property
    def done(self) -> bool:
        """Whether all was read."""
        return self._request is None

    def read(self, subject: str) -> None:
        """Begin to read all messages under a subject, the oldest first."""
        self._begin({"next_by_subj": subject, "batch": PAGE, "max_bytes": PAGE_BYTES})

    def read_last(self, subject: str) -> None:
        """Begin to read the last message under each subject that matches; earlier ones may come before it."""
        self._begin({"multi_last": [subject], "batch": PAGE, "max_bytes": PAGE_BYTES})

    def stop(self) -> None:
        """Read no more than what was asked for already."""
        self._stops = True

    def take(self) -> list[KeptMessage]:
        """Return the messages that have come since the last call, and ask for more if all of them were returned."""
        messages: list[KeptMessage] = []
        while self._inbox and self._request is not None:
            self._take(*self._inbox.popleft(), messages)
        now_s = time.monotonic()
        if self._request is not None and now_s - self._asked_s >= ASK_AGAIN_S:
            if now_s - self._heard_s >= GIVE_UP_S:
                self.lost = self.lost or "the hub does not answer what is asked of its store"
            self._ask()
        return messages

    def read_all(self, timeout_s: float) -> list[KeptMessage]:
        """Wait until all was read, and return it; what has come in time if that takes longer."""
        messages, deadline_s = self.take(), time.monotonic() + timeout_s
        while not (self.done or self.lost) and (left_s := deadline_s - time.monotonic()) > 0:
            self._event.wait(min(left_s, ASK_AGAIN_S))
            self._event.clear()
            messages += self.take()
        return messages

    def close(self) -> None:
        """Listen no more. In a forked child this does nothing."""
        if not self._closed and not self.link.is_foreign:
            self._closed = True
            self.link.leave(self)
            drop_link(self.link)

    # On the thread of the hub

    def received(self, subject: str, data: bytes) -> None:
        """Do nothing: runs send nothing here."""

    def answered(self, data: bytes, headers: bytes) -> None:
        """Take an answer of the server."""
        self._inbox.append((data, headers))
        self._event.set()
        self._notify()

    def broken(self, reason: str) -> None:
        """Learn that the connection is lost."""
        self.lost = reason
        self._event.set()
        self._notify()

    def beat(self) -> None:
        """Do nothing: the server is asked again by who reads."""

    def _begin(self, request: dict[str, Any]) -> None:
        self._inbox.clear()
        self._request, self._next, self._stops, self._heard_s = request, 1, False, time.monotonic()
        self._ask()

    def _ask(self) -> None:
        assert self._request is not None
        self._asked_s = time.monotonic()
        self.link.send(GET, [json.dumps(self._request | {"seq": self._next}).encode()], reply=self._reply)

    def _take(self, data: bytes, headers: bytes, messages: list[KeptMessage]) -> None:
        """Take an answer: a message, or the end of a page or of a request."""
        assert self._request is not None
        self._asked_s = self._heard_s = time.monotonic()
        status = STATUS.match(headers)
        if status is None or b"\r\nNats-Stream:" in headers:  # which may be such an answer itself that was stored
            number = _number(headers, b"Nats-Sequence")
            if number >= self._next:  # it may come twice, after a page was asked for again
                self._next = number + 1
                message = stored_of(data, headers)
                self.n_forged += message is None
                messages += [] if message is None else [message]
            return
        code, more = int(status[1]), _number(headers, b"Nats-Num-Pending")
        if code == TOO_MANY and "multi_last" in self._request:  # over 1,024: then all messages, which holds the last
            self._begin({"next_by_subj": self._request["multi_last"][0], "batch": PAGE, "max_bytes": PAGE_BYTES})
        elif code == END and _number(headers, b"Nats-Last-Sequence") != self._next - 1:
            pass  # the end of a page of before, which was asked for twice
        elif code == END and more and not self._stops:
            self._ask()
        elif code in (NOTHING, END):
            self._request = None
        elif code == NO_STORE:
            self.lost = "the hub keeps nothing"


def stored_of(data: bytes, headers: bytes) -> KeptMessage | None:
    """Return a message, or `None` if it was not published by a run: then it was stored with headers.

    The server's own headers come behind those with which a message was stored. Of an answer that says only that
    nothing was found, no header is stored, but it has no content either.
    """
    if not data or headers.count(b"\r\nNats-Stream:") != 1 or not headers.startswith(b"NATS/1.0\r\nNats-Stream:"):
        return None
    found = dict(line.partition(b": ")[::2] for line in headers.split(b"\r\n")[1:])
    try:
        subject, wall_time = found[b"Nats-Subject"].decode(), _wall_time(found[b"Nats-Time-Stamp"].decode())
    except (KeyError, ValueError):
        return None
    return KeptMessage(subject, _number(headers, b"Nats-Sequence"), wall_time, data)


def _number(headers: bytes, name: bytes) -> int:
    """Return the last header of a name, the server's own; 0 if there is none."""
    found = re.findall(rb"\r\n" + name + rb": (\d+)", headers)
    return int(found[-1]) if found else 0


def _wall_time(text: str) -> float:
    """Read a time such as "2026-11-24T20:05:21.069682084Z"."""
    whole, _, rest = text.rstrip("Z").partition(".")
    return datetime.datetime.fromisoformat(f"{whole}+00:00").timestamp() + float(f"0.{rest or 0}")
