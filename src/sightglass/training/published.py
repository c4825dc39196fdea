"""Streams that clients publish: their records become events of the run."""

from __future__ import annotations

from sightglass.core.errors import WireError
from sightglass.protocol import messages
from sightglass.protocol.transport import Frames

from .clients import Client, Outbox, Publication
from .telemetry import Telemetry


class PublishedStreams:
    """Takes in the records of published streams."""

    def __init__(self, telemetry: Telemetry, *, outbox: Outbox, run: str) -> None:
        self._telemetry = telemetry
        self._outbox = outbox
        self._run = run

    def begin(self, peer: bytes, client: Client, request: int, event: str) -> None:
        """Let a client publish an event, unless the run produces it itself."""
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
        if request not in client.published or client.published[request].event != event:
            client.published[request] = Publication(event)
        self._outbox.reply(peer, request, request)

    def take(self, peer: bytes, client: Client, block: messages.Block, buffers: Frames) -> None:
        """Take in a block of records, except those that arrived before.

        Raises:
            WireError: The client publishes no such stream, or the block is malformed.
        """
        if block.stream not in client.published:
            raise WireError(f"Expected records of a published stream, got number {block.stream}")
        columns = messages.decode_block(block, buffers)
        published = client.published[block.stream]
        event, n_repeated = published.event, min(block.n, max(0, published.next_index - block.index))
        published.next_index = max(published.next_index, block.index + block.n)
        try:
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
            self._outbox.refuse(peer, block.stream, "RefusedError", str(error))
