"""Streams that clients publish: their records become events of the run.

The records of a publication have numbers. A connection may be lost with records on their way: the client offers the
stream again on the next one, under the number that it had, and the records that are missing by then are counted.
"""

from __future__ import annotations

import itertools
from typing import Final

from sightglass.core.errors import WireError
from sightglass.protocol import block_codec, messages
from sightglass.protocol.transport import Frames

from .clients import Client, Outbox, Publication
from .telemetry import Telemetry

MAX_PUBLICATIONS: Final = 1_000  # as many as there may be clients; each takes a hundred bytes


class PublishedStreams:
    """Takes in the records of published streams."""

    def __init__(self, telemetry: Telemetry, *, outbox: Outbox, run: str) -> None:
        self._telemetry = telemetry
        self._outbox = outbox
        self._run = run
        self._numbers = itertools.count(1)
        self._publications: dict[int, Publication] = {}

    def begin(self, peer: bytes, client: Client, message: messages.Publish) -> None:
        """Let a client publish an event, or go on with it, unless the run produces it itself."""
        request, event = message.request, message.event
        if not client.may_command:
            reason = f"Expected a controller's key to publish {event!r}; a viewer's key is read-only"
            self._outbox.refuse(peer, request, "RefusedError", reason)
            return
        try:
            with self._telemetry.lock.turn():
                self._telemetry.subscriptions.source(event, "publish")
                self._telemetry.subscriptions.refresh()
        except ValueError as error:
            self._outbox.refuse(peer, request, "RefusedError", str(error))
            return
        number, known = message.stream, self._publications.get(message.stream)
        if known is None or known.event != event:
            number, known = next(self._numbers), Publication(event)
            self._publications[number] = known
            if len(self._publications) > MAX_PUBLICATIONS:
                del self._publications[next(iter(self._publications))]
        known.request = request
        client.published[number] = known
        self._outbox.reply(peer, request, number)

    def take(self, peer: bytes, client: Client, block: messages.Block, buffers: Frames) -> None:
        """Take in a block of records, except those that arrived before; count those that are missing before it.

        Raises:
            WireError: The client publishes no such stream, or the block is malformed.
        """
        if block.stream not in client.published:
            raise WireError(f"Expected records of a published stream, got number {block.stream}")
        columns = block_codec.decode_block(block, buffers)
        published = client.published[block.stream]
        expected = block.index if published.next_index is None else published.next_index
        event, n_repeated = published.event, min(block.n, max(0, expected - block.index))
        published.next_index = max(expected, block.index + block.n)
        try:
            self._telemetry.events.miss(event, max(0, block.index - expected))
            for i in range(n_repeated, block.n):
                record = columns.record(i, tag=event, run=self._run)
                observables = {
                    "value": columns.values[i],
                    "wall_time": record.wall_time,
                    "step": record.step,
                    "n_events": record.n_events,
                    "complete": record.complete and record.closed,
                    "source": client.name,
                }
                self._telemetry.events.take(event, observables, origin="publish", steps=record.steps or None)
        except ValueError as error:  # the run has begun to produce this event itself
            self._outbox.refuse(peer, published.request, "RefusedError", str(error))
