"""What the hub of a run keeps for clients that come when the run is gone: streams, and the description of the run.

A stream is kept from the first client of the hub that opens it, with the latest records before. Its records go there in
blocks of a second, so that it costs run and hub next to nothing, however fast it is and however many clients read it.
Nothing waits for the hub: what does not arrive is missing there, which shows by its index. After a lost connection, the
latest records are sent again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sightglass.core import codec
from sightglass.core.clock import Clock
from sightglass.core.columns import Row, of_rows
from sightglass.core.copies import sendable
from sightglass.core.errors import UnsendableError
from sightglass.protocol import block_codec, kept, messages
from sightglass.protocol.transport import Frames

from .clients import Outbox
from .publications import KEPT
from .subscription import Subscription
from .unsent_rows import consecutive

AGAIN_S: Final = 60.0  # so seldom that it costs nothing, so often that it outlasts the records, of which the oldest go
MAX_WAITING_BYTES: Final = 2**18  # of a stream; larger records gain nothing by waiting
MAX_RUN_BYTES: Final = 2**19  # half of the largest message of a hub
PARTS: Final = (("streams",), ("events",), ("facts", "functions", "lent"), ("config",))  # of a description too large


@dataclass(slots=True)
class WaitingRows:
    """The records of a stream that wait to be sent."""

    rows: list[Row] = field(default_factory=list)
    n_bytes: int = 0


class Keeping:
    """What the hub keeps of a run. Without a hub that keeps streams, this does nothing."""

    def __init__(self, outbox: Outbox, *, clock: Clock) -> None:
        self._outbox = outbox
        self._clock = clock
        self._n_losses: dict[int, int] = {}  # of the connection, when the records of a stream were sent
        self._waiting: dict[int, WaitingRows] = {}
        self._told_s: float | None = None  # when the hub was last told of the run
        self._is_new = False

    def may_begin(self, peer: bytes) -> bool:
        """Return whether to keep a stream that this client opens."""
        keeper = self._outbox.publications.keeper
        return keeper is not None and keeper.reaches(peer)

    def lacks(self, subscription: Subscription) -> bool:
        """Return whether the hub may lack records of a stream that the run still has."""
        keeper = self._outbox.publications.keeper
        return keeper is not None and keeper.reached and self._n_losses.get(subscription.id) != keeper.n_losses

    def begin(self, subscription: Subscription, blocks: Iterable[Frames]) -> None:
        """Keep a stream from now on, with these blocks before what waits; or send them again."""
        keeper = self._outbox.publications.keeper
        assert keeper is not None
        self._n_losses[subscription.id] = keeper.n_losses
        self._waiting.setdefault(subscription.id, WaitingRows())
        self._is_new = True
        self.tell(subscription)
        for frames in blocks:
            self._put(f"{subscription.id}{kept.RECORDS}", frames)

    def next_index(self, subscription: Subscription) -> int | None:
        """Return the number of the first record that waits to be sent; `None` if there is none."""
        rows = self._waiting[subscription.id].rows if subscription in self else ()
        return rows[0][0] if rows else None

    def add(self, subscription: Subscription, rows: Sequence[Row], n_bytes: int) -> None:
        """Add records to a stream, if it is kept; they wait for a moment, unless they are many or large."""
        if subscription in self:
            waiting = self._waiting[subscription.id]
            waiting.rows.extend(rows)
            waiting.n_bytes += n_bytes
            if len(waiting.rows) >= messages.MAX_BLOCK_ROWS or waiting.n_bytes >= MAX_WAITING_BYTES:
                self.send(subscription)

    def send(self, subscription: Subscription) -> None:
        """Send what waits of a stream, if it is kept."""
        if subscription not in self:
            return
        rows, self._waiting[subscription.id] = self._waiting[subscription.id].rows, WaitingRows()
        for part in consecutive(rows):
            with contextlib.suppress(UnsendableError):  # the stream fails: its clients learn why
                for frames in block_codec.encode_blocks(subscription.id, of_rows(part)):
                    self._put(f"{subscription.id}{kept.RECORDS}", frames)

    def __contains__(self, subscription: Subscription) -> bool:
        return subscription.id in self._n_losses

    def tell(
        self, subscription: Subscription, *, counts: bytes = b"", over: bool = False, error: Exception | None = None
    ) -> None:
        """Tell the hub what a stream is, and how it ended. Do nothing if the stream is not kept."""
        if subscription in self:
            self.send(subscription)
            query, failed = subscription.query, "" if error is None else type(error).__name__
            head = kept.KeptStream(
                query=query.key, stream=subscription.id, tag=query.tag, over=over, error=failed,
                reason=str(error or ""), counts=counts,
            )  # fmt: skip
            self._put(str(subscription.id), [kept.encode(head)])
            if over:
                del self._n_losses[subscription.id], self._waiting[subscription.id]

    def is_due(self, ended: str) -> bool:
        """Return whether to describe the run and its streams again: it ends, something is new, or time has passed."""
        if self._told_s is None:
            return self._is_new
        return bool(ended) or self._is_new or self._clock.monotonic() - self._told_s >= AGAIN_S

    def tell_run(self, description: Mapping[str, Any], *, ended: str = "") -> None:
        """Tell the hub what the run is, without the parts that are too large for a message."""
        self._told_s, self._is_new = self._clock.monotonic(), False
        description = dict(description)
        for part in ((), *PARTS):
            description |= {key: type(description[key])() for key in part if key in description}
            try:
                blob, buffers = codec.encode(description)
            except UnsendableError:
                blob, buffers = codec.encode(sendable(description).value)
            if len(blob) + sum(map(len, buffers)) <= MAX_RUN_BYTES:
                break
        run = kept.KeptRun(version=kept.VERSION, description=blob, buffers=list(map(bytes, buffers)), ended=ended)
        self._put(kept.RUN, [kept.encode(run)])

    def _put(self, name: str, frames: Frames) -> None:
        self._outbox.put(KEPT + name.encode(), frames)
