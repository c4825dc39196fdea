"""A run that is gone, as its hub keeps it: it answers a client from what is kept. Pure: messages in, messages out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from sightglass.core import codec
from sightglass.core.columns import INT64
from sightglass.core.errors import QueryError, UnsendableError, WireError
from sightglass.protocol import kept, messages
from sightglass.protocol.discovery import LiveRun
from sightglass.protocol.kept_reader import KeptMessage
from sightglass.protocol.pieces import Salvager
from sightglass.protocol.transport import Frames
from sightglass.query.parser import as_query, parse
from sightglass.query.query import in_states
from sightglass.query.states import Numbering

LEASE_S: Final = 12.0  # a client then pings as it pings a run; nothing becomes of it
MAX_NAMED: Final = 10  # queries in a message
UNKNOWN: Final[dict[str, Any]] = {
    **dict.fromkeys(("n_skipped", "n_dropped", "n_errors", "n_records", "n_events"), 0),
    "stride": 1, "spent_s": 0.0, "last_error": "", "clients": (),
}  # fmt: skip


class GoneRun:
    """A run that is gone.

    Attributes:
        owner: The user whose run it was.
        entry: Its entry, without an address.
        heard_s: When the hub last heard what the run is, in seconds since the Unix epoch.
        ended: Why it ended; empty if it was not closed, as far as the hub knows.
        streams: The heads of the streams that are kept, by their numbers.
    """

    def __init__(self, stored: KeptMessage, streams: Iterable[KeptMessage] = ()) -> None:
        """Read what the run said of itself, and the heads of its streams.

        Raises:
            WireError: It is something else.
        """
        *_, self.owner, id, _ = stored.subject.split(".")
        run = kept.decode(stored.data, kept.KeptRun)
        told = codec.decode(run.description, run.buffers)
        if not isinstance(told, dict) or told.get("id") != id:
            raise WireError("Expected the description of the run")
        self._told = told
        self.ended = run.ended
        self.heard_s = stored.wall_time
        self.streams: dict[int, kept.KeptStream] = {}
        for one in streams:
            head = kept.decode(one.data, kept.KeptStream)
            self.streams[head.stream] = head
            self.heard_s = max(self.heard_s, one.wall_time)
        known = {"name": str, "id": str, "pid": int, "host": str, "started": float, "directory": str}
        self.entry = LiveRun(endpoint="", **{key: as_type(told.get(key, as_type())) for key, as_type in known.items()})

    @property
    def description(self) -> dict[str, Any]:
        """What the run said of itself last, its state, and what is kept of it."""
        state = "ended" if self.ended else "gone"
        streams = [
            UNKNOWN | {"stream": head.stream, "tag": head.tag} | _counts(head) | {"query": _as_written(head.query)}
            for head in self.streams.values()
        ]
        return {**self._told, "state": state, "wall_time": self.heard_s, "streams": streams, "n_clients": 0}

    @property
    def what(self) -> str:
        """What became of it, and what is kept, as a sentence."""
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.heard_s))
        became = f"has ended at {when}" if self.ended else f"is gone; it was last heard of at {when}"
        queries = sorted({_as_written(head.query) for head in self.streams.values()})
        named = ", ".join(queries[:MAX_NAMED]) + (f" and {len(queries) - MAX_NAMED} more" * (len(queries) > MAX_NAMED))
        return f"Run {self.entry.name!r} {became}. Its hub keeps {named or 'no stream'}"

    def find(self, message: messages.Open) -> list[kept.KeptStream]:
        """Return the stream that a client goes on with, or those of the query that it opens, one after another.

        Raises:
            QueryError: The query is not valid, or its stream was not kept.
        """
        query = parse(message.query)
        if message.states is not None:
            query = in_states(query, Numbering(*message.states))
        found = [head for _, head in sorted(self.streams.items()) if head.query == query.key]
        if not found:
            raise QueryError(f"{self.what}, and not {query.short or query.key}")
        return [head for head in found if head.stream == message.stream] or found

    def answer(self, message: messages.FromClient) -> Iterator[Frames]:
        """Answer a message that opens no stream."""
        match message:
            case messages.Hello():
                name, id = self.entry.name, self.entry.id
                version = messages.VERSION
                welcome = messages.Welcome(version=version, run=name, id=id, may_command=False, lease_s=LEASE_S)
                yield messages.encode(welcome)
            case messages.Ping():
                yield messages.encode(messages.Ping())
            case messages.Ask(request=request, what="describe"):
                yield _reply(request, self.description)
            case messages.Ask(request=request, what="statistics"):
                yield _reply(request, self.description["streams"])
            case messages.Bye() | messages.Close() | messages.Block():
                pass
            case _:
                yield refusal(message.request, "RunLostError", self.what)

    def ended_as(self, head: kept.KeptStream) -> messages.Ended:
        """Return how a stream has ended; that of a run which was not closed may lack its last records."""
        if head.over or self.ended:
            return messages.Ended(stream=head.stream, error=head.error, reason=head.reason, counts=head.counts)
        return messages.Ended(stream=head.stream, error="RunLostError", reason=self.what)


def _as_written(query: str) -> str:
    """Return a query as people write it."""
    return as_query(query).short or query


class KeptStreamReading:
    """What a client reads of a query, from what is stored to messages: one stream after another, as one.

    A query that nobody had open for a while was answered by one stream before, and by another one after. The numbers of
    the second go on behind those of the first.

    Attributes:
        head: The head of the stream that is read now.
    """

    def __init__(
        self,
        heads: Sequence[kept.KeptStream],
        message: messages.Open,
        ended: Callable[[kept.KeptStream], messages.Ended],
    ) -> None:
        """Begin with the record that the client expects, or with the first one that is kept."""
        self.head, *self._later = heads
        self._last = heads[-1]
        self._request = message.request
        self._since = message.since if message.stream == self.head.stream else None
        self._ended = ended
        self._salvager = Salvager(messages.MAX_MESSAGE_BYTES)
        self._opened = False
        self._base = self._next = 0  # what is added to the numbers of this stream; the number behind the last record

    @property
    def number(self) -> int:
        """The number of the stream, as the client knows it."""
        return self._last.stream

    def take(self, stored: Iterable[KeptMessage]) -> Iterator[Frames]:
        """Return the messages that follow from what was read."""
        for one in stored:
            frames = self._salvager.add(one.data)
            try:
                block, buffers = (None, ()) if frames is None else messages.decode_from_agent(frames)
            except WireError:
                continue
            if not isinstance(block, messages.Block) or block.stream != self.head.stream:
                continue
            if not self._opened:
                if self._since is not None and _end(block) <= self._since:
                    continue
                yield self._open(block.index)
            block = self._moved(block)
            self._next = max(self._next, _end(block))
            yield messages.encode(block, buffers)

    def go_on(self) -> bool:
        """Go on with the next stream, when one was read; return whether there is one."""
        if not self._later:
            return False
        self._base = max(self._next, self._base + _counts(self.head).get("n_records", 0))
        self.head = self._later.pop(0)
        self._salvager = Salvager(messages.MAX_MESSAGE_BYTES)
        return True

    def finish(self) -> Iterator[Frames]:
        """Return the messages that follow when all was read."""
        if not self._opened:
            yield self._open(0)
        ended, counts = self._ended(self.head), _counts(self.head)
        if self._base and counts:
            counts = counts | {"n_records": self._base + counts["n_records"]}
            ended = msgspec.structs.replace(ended, counts=codec.encode(counts)[0])
        yield messages.encode(ended)

    def _moved(self, block: messages.Block) -> messages.Block:
        """Return a block of this stream as one of all of them."""
        if not self._base and self.head is self._last:
            return block
        indexes = np.frombuffer(block.indexes, INT64) + self._base
        return msgspec.structs.replace(
            block, stream=self._last.stream, index=block.index + self._base, indexes=indexes.astype(INT64).tobytes()
        )

    def _open(self, index: int) -> Frames:
        self._opened = True
        opened = messages.Opened(
            request=self._request, stream=self._last.stream, tag=self.head.tag, index=max(index, self._since or 0),
            late=", from which on the hub keeps it" if index else "",
        )  # fmt: skip
        return messages.encode(opened)


def refusal(request: int, error: str, reason: str) -> Frames:
    """Return the refusal of a request."""
    return messages.encode(messages.Refused(request=request, error=error, reason=reason))


def _reply(request: int, value: object) -> Frames:
    try:
        blob, buffers = codec.encode(value)
    except UnsendableError as error:
        return refusal(request, type(error).__name__, str(error))
    return messages.encode(messages.Reply(request=request, value=blob), buffers)


def _counts(head: kept.KeptStream) -> dict[str, Any]:
    counts = codec.decode(head.counts) if head.counts else {}
    return counts if isinstance(counts, dict) else {}


def _end(block: messages.Block) -> int:
    """Return the number behind the last record of a block."""
    return int.from_bytes(block.indexes[-8:], "little") + 1 if block.indexes else block.index + block.n
