"""A channel to a run that is gone: what answers is what its hub keeps. To a client it looks as any other."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from typing import Final

from sightglass.core.errors import QueryError, WireError
from sightglass.protocol import kept, messages
from sightglass.protocol.hub_address import HubAddress
from sightglass.protocol.kept_reader import KeptMessage, KeptReader
from sightglass.protocol.nats import ROOT
from sightglass.protocol.transport import Frames, Sent

from .kept import GoneRun, KeptStreamReading, refusal

N_IDLE: Final = 3  # pings without a stream to read; the first ones come before a client has opened its streams again
FIND_S: Final = 5.0  # for what all runs said of themselves: a thousand times some kilobytes


class KeptChannel:
    """A client's end, whose other end is what a hub keeps of a run.

    Attributes:
        heard_s: When the hub was last heard of.
    """

    def __init__(self, address: HubAddress, *, owner: str, id: str, goes_on: bool = False) -> None:
        """Begin to read what the run said of itself, and which of its streams are kept.

        Args:
            address: The hub.
            owner: The user whose run it is.
            id: The run's id.
            goes_on: Whether the client goes on with streams. When these have ended, so has the run.

        Raises:
            MissingExtraError: nats-py is not installed.
            TransportError: The hub does not answer, or no thread can be started.
            RefusedError: The hub does not know the user, or they were revoked.
        """
        self.heard_s = -math.inf
        self._kept = f"{ROOT}.kept.{owner}.{id}"
        self._id = id
        self._goes_on = goes_on
        self._n_idle = 0
        self._asked: deque[Frames] = deque()
        self._event = threading.Event()
        self._heads: dict[str, KeptMessage] = {}
        self._run: GoneRun | None = None
        self._readings: deque[KeptStreamReading] = deque()
        self._reading: KeptStreamReading | None = None
        self._reader = KeptReader(address, notify=self._event.set)
        self._reader.read_last(f"{self._kept}.*")

    @property
    def over(self) -> bool:
        """Whether the connection to the hub is lost."""
        return bool(self._reader.lost)

    @property
    def left(self) -> bool:
        """Whether the run has left: it is not looked for any more."""
        return False

    def wait(self, timeout_s: float) -> None:
        """Wait for messages."""
        self._event.wait(timeout_s)

    def receive(self) -> list[Frames]:
        """Return the answers to what was sent, as far as they have been read."""
        self._event.clear()
        stored = self._reader.take()
        self.heard_s = time.monotonic() if stored else self.heard_s
        if self._run is None:
            self._heads |= {one.subject: one for one in stored}
            if not self._reader.done:
                return []
            self._run, stored = _run_of(self._heads, self._id), []
        answers: list[Frames] = []
        while self._asked:
            answers += self._answer(self._asked.popleft())
        if self._reading is not None:
            answers += self._reading.take(stored)
            if self._reader.done and self._reading.go_on():
                self._read()
            elif self._reader.done:
                answers += self._reading.finish()
                self._reading = None
                self._event.set()
        if self._reading is None and self._readings and self._reader.done:
            self._reading = self._readings.popleft()
            self._read()
        return answers

    def _read(self) -> None:
        assert self._reading is not None
        self._reader.read(f"{self._kept}.{self._reading.head.stream}{kept.RECORDS}")

    def send(self, frames: Frames) -> Sent:
        """Take a message, which `receive` answers."""
        if self._reader.lost:
            return "lost"
        self._asked.append(frames)
        self._event.set()
        return "sent"

    def wake(self) -> None:
        """End a wait."""
        self._event.set()

    def close(self) -> None:
        """Read no more."""
        self._reader.close()
        self._event.set()

    def _answer(self, frames: Frames) -> list[Frames]:
        run = self._run
        try:
            message, _ = messages.decode_from_client(frames)
        except WireError as error:
            return [refusal(0, "WireError", str(error))]
        if run is None:
            return [refusal(getattr(message, "request", 0), "RunLostError", "The hub does not keep this run any more")]
        match message:
            case messages.Open():
                try:
                    heads = run.find(message)
                except QueryError as error:
                    return [refusal(message.request, type(error).__name__, str(error))]
                self._readings.append(KeptStreamReading(heads, message, run.ended_as))
                return []
            case messages.Close(stream=stream):
                self._readings = deque(one for one in self._readings if one.number != stream)
                if self._reading is not None and self._reading.number == stream:
                    self._reading = None
                    self._reader.stop()
            case messages.Ping(pace_s=None) if self._goes_on and not (self._reading or self._readings):
                self._n_idle += 1
                if self._n_idle >= N_IDLE:
                    return [messages.encode(messages.Bye(reason=run.ended or "gone"))]
        return list(run.answer(message))


def gone_runs(address: HubAddress, *, owner: str = "*", id: str = "*") -> list[GoneRun]:
    """Return the runs of which a hub keeps streams, live ones among them, those that were heard of last first.

    Errors as of `KeptReader`.
    """
    if not address.keeps:
        return []
    reader = KeptReader(address)
    try:
        reader.read_last(f"{ROOT}.kept.{owner}.{id}.{kept.RUN}")
        stored = {one.subject: one for one in reader.read_all(FIND_S)}
    finally:
        reader.close()
    found = [run for subject in stored if (run := _run_of({subject: stored[subject]}, subject.split(".")[3]))]
    return sorted(found, key=lambda run: -run.heard_s)


def _run_of(stored: dict[str, KeptMessage], id: str) -> GoneRun | None:
    """Return the run that was kept under these subjects, if it was."""
    runs = [one for subject, one in stored.items() if subject.endswith(f".{id}.{kept.RUN}")]
    try:
        return GoneRun(runs[0], [one for one in stored.values() if one is not runs[0]]) if runs else None
    except (WireError, ValueError, TypeError):
        return None
