"""Which runs live on a hub. There is no registry: runs say that they live, and silent ones are gone.

A run announces itself every `BEAT_EVERY_S` to all clients, and at once to a client that asks. The message is its entry,
as in the registry of a machine (`discovery.LiveRun`), without addresses; the subject names its owner. A run that is
closed sends an empty message. One that has been silent for `GONE_S` is gone.

The message also says how long ago the run began, so that clients can tell a restarted run from one that lived beside
the first. Clocks of different machines are never compared.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from sightglass.core.counts import Failures
from sightglass.core.errors import TransportError
from sightglass.core.process.unpatched import threading
from sightglass.hub.nats import ROOT
from sightglass.protocol.discovery import MAX_ENTRY_BYTES, LiveRun

from .address import HubAddress, checked_token
from .link import MAX_RATE, drop_link, use_connected_link, use_link

BEAT_EVERY_S: Final = 2.5
GONE_S: Final = 8.0  # three beats, and a rest for a busy machine: a killed run is gone within 10 s
QUIET_S: Final = 0.3  # runs answer within milliseconds: after this long without another answer, all have answered
MAX_RUNS: Final = 20_000  # twice the runs that a hub is meant for; the rest is counted


class Announced(LiveRun, frozen=True, kw_only=True):
    """What a run says of itself: its entry, and the time since it began."""

    age_s: float = 0.0


class HubAnnouncement:
    """What a run says of itself on a hub.

    Attributes:
        subjects: What it listens to.
        failures: How often the hub was not reached or was lost, the first time with a warning, or a user sent too much.
    """

    def __init__(self, address: HubAddress, entry: LiveRun) -> None:
        """Begin to announce a run. Errors as of `HubLink`."""
        self._subject = f"{ROOT}.live.{checked_token(address.user)}.{checked_token(entry.id)}"
        self._entry, self._began_s = entry, time.monotonic()
        self.subjects: Sequence[str] = (f"{ROOT}.who.*.*",)
        self.failures = Failures("The hub")
        self._what = f"run {entry.name!r} continues without it, and connects when it can"
        self._at_most = f"the runs of this process take {MAX_RATE:,} messages a second, and leave the rest at the hub"
        self._beat_s = -BEAT_EVERY_S
        self._n_full = 0
        self._closed = False
        self._link = use_link(address)
        self._link.join(self)

    def close(self) -> None:
        """Say that the run has ended. In a forked child this does nothing."""
        if self._closed or self._link.is_foreign:
            return
        self._closed = True
        self._link.send(self._subject, [b""])
        self._link.leave(self)
        drop_link(self._link)

    # On the thread of the hub

    def received(self, subject: str, data: bytes) -> None:
        """Answer a client that asks which runs live."""
        *_, user, client = subject.split(".")
        self._link.pace.count(user)
        self._link.send(f"{ROOT}.here.{user}.{client}.{self._subject.removeprefix(f'{ROOT}.live.')}", [self._message()])

    def broken(self, reason: str) -> None:
        """Count that the connection was lost."""
        self._beat_s = -BEAT_EVERY_S  # the next one begins with a beat
        self._fail(f"{reason}; {self._link.n_dropped} messages were dropped so far")

    def beat(self) -> None:
        """Say that the run lives, if it is time; or count that the hub is not reached."""
        if not self._link.connected:
            self._fail(self._link.reason)
            return
        now_s = time.monotonic()
        if now_s - self._beat_s >= BEAT_EVERY_S:
            self._beat_s = now_s
            self._link.send(self._subject, [self._message()])
        pace = self._link.pace
        if pace.n_full > self._n_full:
            self._n_full = pace.n_full
            self.failures.add(TransportError(f"user {pace.sender!r} sends more"), self._at_most)

    def _message(self) -> bytes:
        said = Announced(**msgspec.structs.asdict(self._entry), age_s=time.monotonic() - self._began_s)
        return msgspec.json.encode(said)

    def _fail(self, reason: str) -> None:
        self.failures.add(TransportError(reason), self._what, warn=not self.failures.n)


@dataclass(frozen=True, slots=True)
class HubRun:
    """A run on a hub.

    Attributes:
        owner: The user whose run it is.
        entry: What it says of itself.
        began_s: When it began, on this machine's clock, or a moment later.
        heard_s: When it was last heard of.
    """

    owner: str
    entry: LiveRun
    began_s: float
    heard_s: float


class HubDirectory:
    """The live runs of a hub, kept up to date as runs begin and end.

    Attributes:
        subjects: What it listens to.
        n_refused: How many messages were not valid, or came from too many runs.
    """

    def __init__(self, address: HubAddress, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Ask which runs live.

        Errors as of `use_connected_link`.
        """
        self._clock = clock
        asker = f"{checked_token(address.user)}.{secrets.token_hex(12)}"
        self.subjects: Sequence[str] = (f"{ROOT}.live.*.*", f"{ROOT}.here.{asker}.*.*")
        self.n_refused = 0
        self._asks = f"{ROOT}.who.{asker}"
        self._runs: dict[str, HubRun] = {}
        self._changed = threading.Condition()
        self._heard_s = time.monotonic()
        self._closed = False
        self._connected_s = -math.inf  # since when, after it was lost
        self._link = use_connected_link(address)
        self._link.join(self)
        self._link.send(self._asks, [b""])

    @property
    def problem(self) -> str:
        """Why the hub cannot be reached now; empty while it can."""
        return "" if self._link.connected else self._link.reason or "the connection to the hub was lost"

    def runs(self) -> list[HubRun]:
        """Return the runs that live, the newest first; while the hub is away, those that lived before.

        The newest is the one that began last by this machine's clock: those of the runs' machines may differ.
        """
        with self._changed:
            old_s = self._clock() - GONE_S
            if self._connected_s < old_s:
                self._runs = {key: run for key, run in self._runs.items() if run.heard_s > old_s}
            return sorted(self._runs.values(), key=lambda run: -run.began_s)

    def wait(self, timeout_s: float, *, until: Callable[[HubRun], bool] | None = None) -> list[HubRun]:
        """Wait until all runs have answered, or one that is looked for; return those that live."""
        end_s = time.monotonic() + timeout_s
        with self._changed:
            while (now_s := time.monotonic()) < end_s:
                quiet_s = now_s - self._heard_s
                is_there = any(until is None or until(run) for run in self._runs.values())
                if is_there and quiet_s >= QUIET_S:
                    break
                self._changed.wait(min(end_s - now_s, max(0.01, QUIET_S - quiet_s) if is_there else timeout_s))
        return self.runs()

    def close(self) -> None:
        """Listen no more."""
        if not self._closed and not self._link.is_foreign:
            self._closed = True
            self._link.leave(self)
            drop_link(self._link)

    # On the thread of the hub

    def received(self, subject: str, data: bytes) -> None:
        """Note that a run lives, or has ended."""
        owner, id = subject.split(".")[-2:]
        key = f"{owner}.{id}"
        with self._changed:
            if not data:
                self._runs.pop(key, None)
            elif (entry := _entry(data, id)) is None or (key not in self._runs and len(self._runs) >= MAX_RUNS):
                self.n_refused += 1
                return
            else:
                if key not in self._runs:
                    self._heard_s = time.monotonic()
                known, now_s = self._runs.get(key), self._clock()
                began_s = min(now_s - entry.age_s, math.inf if known is None else known.began_s)
                self._runs[key] = HubRun(owner, entry, began_s, now_s)
            self._changed.notify_all()

    def broken(self, reason: str) -> None:
        """Note that nothing can be heard: runs are gone only if they stay silent once the hub is back."""
        self._connected_s = math.inf

    def beat(self) -> None:
        """Note that the hub is back."""
        if self._link.connected:
            self._connected_s = min(self._connected_s, self._clock())


def _entry(data: bytes, id: str) -> Announced | None:
    if len(data) > MAX_ENTRY_BYTES:
        return None
    try:
        entry = msgspec.json.decode(data, type=Announced)
    except (msgspec.MsgspecError, ValueError):
        return None
    return entry if entry.id == id else None  # nobody speaks for another run
