"""The streams of clients: equal queries share one subscription, whose records go to all that opened it.

What is held for clients that come late or come back, and which subscriptions are recorded, stand at the end.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sightglass.core import codec
from sightglass.core.buffer import Buffer
from sightglass.core.columns import Columns, Row, of_rows
from sightglass.core.description import HistoryEntry, as_mapping
from sightglass.core.errors import (
    QueryError,
    RefusedError,
    RefusedQueryError,
    UnconfirmedError,
    UnknownNameError,
    UnsendableError,
    cut,
    warn,
)
from sightglass.core.process.clock import WorkClock
from sightglass.protocol import messages
from sightglass.query.evaluation import Evaluation
from sightglass.query.meter import MAX_BYTES, Meter
from sightglass.query.parser import parse
from sightglass.query.query import Query, in_states
from sightglass.query.reduce.states import Numbering
from sightglass.query.stages import ByValue, Every, Group, Per, Reduce
from sightglass.storage.format.block import Key
from sightglass.training.controls import check_functions
from sightglass.training.evaluation.subscription import LOG, Subscription
from sightglass.training.evaluation.tail import consecutive
from sightglass.training.evaluation.telemetry import Telemetry
from sightglass.training.options import Limits
from sightglass.training.recorder import Recorder
from sightglass.training.serving import describe, waiting
from sightglass.training.serving.clients import Client, Clients, Outbox

MAX_BACKLOGS_BYTES: Final = 64 * 2**20  # of all streams together: 256 charts, or four streams of images
MAX_READERS: Final = 64  # of a stream of one client; more share with these
MAX_STREAMS: Final = 256  # a page of charts needs a few dozen; each stream costs the run time at every event


class ClientSubscriptions:
    """The subscriptions of a run, and the clients that opened each of them.

    A client that closes a group by itself gets a subscription of its own from there on.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        *,
        clients: Clients,
        outbox: Outbox,
        recorded: RecordedSubscriptions,
        functions: Mapping[str, Callable[..., Any]],
        clock: WorkClock,
        limits: Limits | None,
        watch: Callable[[Key, Columns], None] | None = None,
    ) -> None:
        self._watch = watch
        self._telemetry = telemetry
        self._clients = clients
        self._outbox = outbox
        self._recorded = recorded
        self._functions = functions
        self._clock = clock
        self._limits = limits
        self._numbers = itertools.count(1)
        self._by_key: dict[str, Subscription] = {}
        self._parked = ParkedStreams()
        self._backlogs: dict[int, StreamBacklog] = {}
        self._peers: dict[int, dict[bytes, None]] = {}  # in the order in which they opened the stream
        self._notes: dict[tuple[bytes, int], tuple[int, str]] = {}  # the request that opened it, and what it waits for
        self._remarks: dict[tuple[bytes, int], tuple[int, str]] = {}  # the request, and what its records leave out

    def find(self, query: Query) -> Subscription | None:
        """Return the subscription of a query, if there is one."""
        return self._by_key.get(query.key)

    def names(self, subscription: Subscription) -> list[str]:
        """Return the names of the clients that a subscription goes to."""
        return self._clients.names(self._peers.get(subscription.id, ()))

    def open(self, peer: bytes, client: Client, message: messages.Open) -> None:
        """Open a stream; a late client first gets the latest records, and one that comes back those it has missed."""
        request = message.request
        if len(client.streams) >= MAX_STREAMS:
            reason = f"Expected at most {MAX_STREAMS} streams of a client, got more"
            self._outbox.refuse(peer, request, "RefusedError", reason)
            return
        try:
            query = parse(message.query, functions=self._functions)
            if message.states is not None:
                query = in_states(query, Numbering(*message.states))
            check_functions(query, self._functions, may_command=client.may_command)
            self.check_price(query, client, confirm=message.confirm)
            subscription = self.find(query) or self.start(query, confirmed=message.confirm, may_compile=message.confirm)
            subscription.may_compile = subscription.may_compile or message.confirm
        except (QueryError, RefusedError, LookupError) as error:
            self._outbox.refuse(peer, request, error)
            return
        client.streams.add(subscription.id)
        self._peers[subscription.id][peer] = None
        self._remarks[peer, subscription.id] = request, ""
        self._note_holders(subscription)
        self._outbox.publications.dismiss(peer, subscription.id)  # or a new record would overtake those of the past
        comes_back = message.stream == subscription.id
        backlog = self._backlogs[subscription.id]
        past = backlog.since(min(max(0, message.since), subscription.rows.n_made) if comes_back else backlog.began)
        if message.stream and not comes_back:  # it may have seen these records, with the numbers of another stream
            past = past.slice(0, 0)
        with self._telemetry.lock.turn():
            index = past.index if len(past) else subscription.rows.next_index
        opened = messages.Opened(
            request=request, stream=subscription.id, tag=query.tag, note=self.note(query), index=index,
            late=self._why_late(subscription, client) if backlog.late else "",
        )  # fmt: skip
        self._outbox.send(peer, opened)
        source = self._telemetry.subscriptions.sources.get(query.event)
        if source is not None and (source.origin == "live" or source.providers) and not subscription.rows.n_made:
            self._notes[peer, subscription.id] = request, opened.note
        self._send(subscription, backlog.parts(past), peer)

    def close(self, peer: bytes, stream: int, *, lost: bool = False) -> None:
        """Close a stream of a client; the subscription ends when nobody else needs it.

        Args:
            peer: The client.
            stream: The stream's number.
            lost: Whether the client was lost, and may come back for the stream.
        """
        self._peers.get(stream, {}).pop(peer, None)
        self._clients.forget_readers(peer, stream)
        subscription = self._telemetry.subscriptions.active.get(stream)
        if subscription is not None:
            self._note_holders(subscription)
            self.release(subscription, park=lost)

    def name_readers(self, client: Client, stream: int, names: tuple[str, ...]) -> None:
        """Note for whom a client reads one of its streams."""
        subscription = self._telemetry.subscriptions.active.get(stream)
        if subscription is not None and stream in client.streams:
            client.readers[stream] = names[:MAX_READERS]
            self._note_holders(subscription)

    def _note_holders(self, subscription: Subscription) -> None:
        """Note who shares the cost of a subscription."""
        subscription.holders = self._clients.holders(self._peers.get(subscription.id, ()), subscription.id)

    def end_group(self, peer: bytes, client: Client, request: int, stream: int) -> None:
        """Close the open group of a client's stream."""
        subscription = self._telemetry.subscriptions.active.get(stream)
        if subscription is None or stream not in client.streams:
            reason = f"Expected the number of a stream that you opened, got {stream}"
            self._outbox.refuse(peer, request, "RefusedError", reason)
            return
        if not any(isinstance(window, Group) for window in subscription.windows):
            reason = f"Expected a reducer without a named window to close, got {subscription.query}"
            self._outbox.refuse(peer, request, "QueryError", reason)
            return
        if subscription.query.states is not None:
            reason = "Expected the run to close the groups that are merged with those of other processes"
            self._outbox.refuse(peer, request, "QueryError", reason)
            return
        shared = self._peers[stream].keys() != {peer} or subscription in self._recorded
        if self.find(subscription.query) is subscription and shared:
            subscription = self._split_off(peer, client, subscription)
        elif self.find(subscription.query) is subscription:
            del self._by_key[subscription.query.key]  # its groups differ from now on
        with self._telemetry.lock.turn():
            subscription.tail.end_group()
        self._outbox.reply(peer, request, subscription.id)

    def check_price(self, query: Query, client: Client, *, confirm: bool) -> None:
        """Refuse a query that has a price, unless a controller confirmed it.

        The price is that of its event, and of those that it joins or that delimit its groups.

        Raises:
            RefusedError: A viewer set `confirm`.
            UnconfirmedError: The query has a price, and `confirm` is not set.
        """
        if confirm and not client.may_command:
            raise RefusedError("Expected a controller's key to accept a cost with confirm=True; this is a viewer's key")
        if confirm or query.key in self._by_key:
            return
        sources = self._telemetry.subscriptions.sources
        windows = (stage.window for stage in query.stages if isinstance(stage, Reduce))
        for event in (query.event, *query.joins, *(window.event for window in windows if isinstance(window, Per))):
            price = sources[event].price_of(query) if event in sources else ""
            if price:
                how = "Ask again with confirm=True" if client.may_command else "Only a controller's key can confirm it"
                raise UnconfirmedError(f"{price} {how} to go on")

    def start(self, query: Query, *, confirmed: bool = False, may_compile: bool = False) -> Subscription:
        """Start to evaluate a query that has no subscription yet.

        Args:
            query: The query.
            confirmed: Whether a controller accepts that it takes more of an event than queries may.
            may_compile: Whether the program or a controller accepts that compiled programs are compiled again for it.

        Raises:
            QueryError: The query calls a function that does not exist.
        """
        limit_s = math.inf if confirmed else (self._limits or Limits()).max_event_s
        meter = Meter(limit_s=limit_s, max_bytes=MAX_BYTES, memory=self._telemetry.memory)
        evaluation = Evaluation(query, self._functions, meter=meter)
        parked = self._parked.take(query)
        number = next(self._numbers) if parked is None else parked.number
        subscription = Subscription(
            number, query, evaluation, clock=self._clock,
            defer=self._telemetry.deferred.defer, limits=self._limits,
            aside=self._telemetry.aside,
        )  # fmt: skip
        subscription.may_compile = may_compile
        self._by_key[query.key] = subscription
        self._peers[subscription.id] = {}
        with self._telemetry.lock.turn():
            backlog = (parked and parked.backlog) or StreamBacklog(self._limits, late=self._is_late(query))
            self._backlogs[subscription.id] = backlog
            replay = parked is None or self._resume(subscription, parked)
            self._telemetry.open(subscription, replay=replay)
            if parked is not None and not replay:
                self._resume(subscription, parked)  # with the events that were counted until it was open
        return subscription

    def _resume(self, subscription: Subscription, parked: ParkedStream) -> bool:
        """Let a subscription go on where a parked one stopped; return whether the event's snapshot is new to it."""
        source = self._telemetry.subscriptions.sources.get(subscription.event)
        snapshot = None if source is None or subscription.query.joins else source.snapshot
        is_new = snapshot is not None and snapshot[0] >= parked.n_events
        after = self._n_events(subscription.query) - is_new
        index = parked.next_index + n_missing(subscription.query, parked.n_events, after)
        subscription.resume(index=index, n_skipped=parked.n_skipped + after - parked.n_events)
        self._backlogs[subscription.id].began = index
        return is_new

    def note(self, query: Query) -> str:
        """Return a remark for the user: what the query waits for, or that it asks for something else than it seems."""
        subscription = self.find(query)
        lost = [event for event, one in subscription.latest.items() if one.is_lost] if subscription else []
        return waiting.note(query, self._telemetry.subscriptions.sources, lost=lost)

    def renew_notes(self) -> None:
        """Tell clients what their streams wait for as long as they have no records, and what these leave out."""
        active = self._telemetry.subscriptions.active
        for (peer, stream), (request, told) in list(self._remarks.items()):
            subscription = active.get(stream)
            if subscription is None or peer not in self._peers.get(stream, ()):
                del self._remarks[peer, stream]
            elif (remark := _remark(subscription)) != told:
                self._remarks[peer, stream] = request, remark
                self._outbox.send(peer, messages.Waiting(request=request, note=remark, thinned=True))
        for (peer, stream), (request, known) in list(self._notes.items()):
            subscription = active.get(stream)
            if subscription is None or subscription.rows.n_made or peer not in self._peers.get(stream, ()):
                del self._notes[peer, stream]
            elif (note := self.note(subscription.query)) != known:
                self._notes[peer, stream] = request, note
                self._outbox.send(peer, messages.Waiting(request=request, note=note))

    def _is_late(self, query: Query) -> bool:
        """Return whether a query that is new has missed events; one that is replayed to it does not count."""
        source = self._telemetry.subscriptions.sources.get(query.event)
        return (
            not waiting.for_first(query, self._telemetry.subscriptions.sources)
            and source is not None
            and source.n_events > (source.snapshot is not None)
        )

    def _why_late(self, subscription: Subscription, client: Client) -> str:
        """Say why a stream begins late, and how to have its past the next time."""
        query = subscription.query
        if subscription in self._recorded or query.event == LOG:
            return ", when you asked; since='start' begins with what is recorded"
        if not client.may_command or client.advised:
            return ", when you asked"
        client.advised = True  # it would be the same on every stream
        return f", when you asked; {query.advice}"

    def flush(self, subscription: Subscription) -> None:
        """Record the rows since the last call, and send them to the clients."""
        began_s = self._clock.cpu()
        rows = subscription.rows.take()
        self._recorded.store(subscription, rows)
        blocks = [of_rows(part) for part in consecutive(rows)]
        for block in blocks:
            self._backlogs[subscription.id].add(block)
            if self._watch is not None:
                self._watch(Key(kind="stream", tag=subscription.query.tag), block)
        n_bytes = self._send(subscription, blocks)
        if subscription not in self._recorded:  # or who looks at it would end the recording
            subscription.cost.sent(self._clock.cpu() - began_s, n_bytes)

    def bound_backlogs(self) -> None:
        """Shorten the backlogs that take most, until all of them together are within their limit."""
        backlogs = self._backlogs.values()
        excess_bytes = sum(one.records.n_bytes for one in backlogs) + self._parked.n_bytes - MAX_BACKLOGS_BYTES
        if excess_bytes <= 0:
            return
        for backlog in sorted(backlogs, key=lambda one: -one.records.n_bytes):
            n_bytes = backlog.records.n_bytes
            backlog.shorten(n_bytes // 2)
            excess_bytes -= n_bytes - backlog.records.n_bytes
            if excess_bytes <= 0:
                return

    def release(self, subscription: Subscription, *, park: bool = False) -> None:
        """End a subscription that no client has open, and that is not recorded; with `park`, keep its numbers."""
        if self._peers.get(subscription.id) or subscription in self._recorded:
            return
        park = park and self.find(subscription.query) is subscription and not subscription.suspended
        with self._telemetry.lock.turn():
            n_events = self._n_events(subscription.query)  # once nobody asks, events are counted without the lock
            self._drop(subscription)
            self.flush(subscription)  # the last rows go into the backlog
            backlog = self._backlogs.pop(subscription.id)
            if park:
                self._parked.park(subscription, backlog, n_events=n_events)

    def fail(self, subscription: Subscription, error: Exception) -> None:
        """End a subscription that failed, and send the error to its clients."""
        self._recorded.discard(subscription, str(error))
        counts = self._counts(subscription)
        for peer in self._peers.pop(subscription.id, {}):
            self._clients[peer].streams.discard(subscription.id)
            kind = type(error).__name__
            ended = messages.Ended(stream=subscription.id, error=kind, reason=str(error), counts=counts)
            self._outbox.send(peer, ended)
        self._backlogs.pop(subscription.id, None)
        self._drop(subscription)

    def finish(self, peer: bytes, stream: int) -> None:
        """Tell a client that a stream has ended with the run."""
        subscription = self._telemetry.subscriptions.active.get(stream)
        counts = self._counts(subscription) if subscription else b""
        self._outbox.send(peer, messages.Ended(stream=stream, counts=counts))

    def _split_off(self, peer: bytes, client: Client, subscription: Subscription) -> Subscription:
        """Give a client a subscription of its own, which continues from the state of the shared one."""
        with self._telemetry.lock.turn():
            own = subscription.fork(next(self._numbers))
            self._telemetry.open(own, replay=False)
        self._peers[own.id] = {peer: None}
        self._backlogs[own.id] = StreamBacklog(self._limits)
        self._peers[subscription.id].pop(peer, None)
        self._note_holders(own)
        self._note_holders(subscription)
        client.streams.discard(subscription.id)
        client.streams.add(own.id)
        self._remarks[peer, own.id] = self._remarks.pop((peer, subscription.id), (0, ""))
        self._outbox.send(peer, messages.Moved(stream=subscription.id, to=own.id))
        return own

    def _send(self, subscription: Subscription, columns: Iterable[Columns], peer: bytes | None = None) -> int:
        """Send records in blocks, each encoded once; return the bytes of all copies.

        Args:
            subscription: Whose records they are.
            columns: The records.
            peer: The client to send them to; `None` for all that have opened the stream.
        """
        n_bytes, peers = 0, self._peers.get(subscription.id, {})
        if not peers:
            return n_bytes
        try:
            for part in columns:
                for frames in messages.encode_blocks(subscription.id, part):
                    if peer is not None:
                        self._outbox.put(peer, frames)
                        continue
                    n_bytes += self._outbox.put_for(subscription.id, peers, frames) * sum(map(len, frames))
        except UnsendableError as error:
            self.fail(subscription, error)
        return n_bytes

    def _n_events(self, query: Query) -> int:
        """Return how many events of a query's kind there were."""
        source = self._telemetry.subscriptions.sources.get(query.event)
        return 0 if source is None else source.n_events

    def _counts(self, subscription: Subscription) -> bytes:
        return codec.encode(as_mapping(describe.stream(subscription, self.names(subscription))))[0]

    def _drop(self, subscription: Subscription) -> None:
        if self.find(subscription.query) is subscription:
            del self._by_key[subscription.query.key]
        self._peers.pop(subscription.id, None)
        self._recorded.discard(subscription)
        self._telemetry.close_subscription(subscription)


# The records of a stream for clients that open it late, or come back. The `io` thread owns them.


class StreamBacklog:
    """The records that were sent; of a long stream, some of the older.

    Attributes:
        began: The number of the first record after the stream was parked: only its earlier clients get those before.
        late: Whether its event happened before the stream began.
        records: The records.
    """

    def __init__(self, limits: Limits | None = None, *, late: bool = False) -> None:
        self.began = 0
        self.late = late
        self._limits = limits = limits or Limits()
        self.records = Buffer(max_rows=limits.max_backlog_records, max_bytes=limits.max_backlog_bytes)
        self._kept = bool(limits.max_backlog_records and limits.max_backlog_bytes)

    def add(self, columns: Columns) -> None:
        """Keep records that follow the last ones."""
        if self._kept:
            self.records.add(columns)

    def shorten(self, max_bytes: int) -> None:
        """Hold at most this many bytes from now on."""
        limits = self._limits
        self.records.bound(max_rows=limits.max_backlog_records, max_bytes=max_bytes)
        if self.records.n_bytes > max_bytes:  # of one record, which a buffer holds in any case
            self.records = Buffer(max_rows=limits.max_backlog_records, max_bytes=limits.max_backlog_bytes)

    def since(self, index: int) -> Columns:
        """Return the records from a number on."""
        return self.records.since(index)[1]

    def parts(self, columns: Columns) -> Iterator[Columns]:
        """Split records of the backlog where one is missing, so that it counts as lost and not as thinned."""
        indexes = columns.numbers
        missing = (np.diff(indexes) != 1) & (indexes[1:] > self.records.exact_from)
        starts = [0, *(np.flatnonzero(missing) + 1).tolist(), len(columns)]
        yield from (columns.slice(start, stop) for start, stop in itertools.pairwise(starts) if start < stop)


# Streams whose clients were lost: what the run keeps of them until a client comes back. They cost no evaluation.

MAX_PARKED: Final = 1_000  # as many as a few dozen pages of charts; each takes about a kilobyte beside its records
MAX_PARKED_BYTES: Final = 4 * 2**20  # of records, of all streams together: seconds of what was on its way, and charts


@dataclass(slots=True, kw_only=True)
class ParkedStream:
    """A stream that nobody reads, and that is not evaluated.

    Attributes:
        number: The stream's number.
        next_index: The number of its next record.
        n_events: The number of the first event that was not evaluated.
        n_skipped: How many events before were not evaluated.
        backlog: Its records; `None` if they were dropped.
    """

    number: int
    next_index: int
    n_events: int
    n_skipped: int
    backlog: StreamBacklog | None


class ParkedStreams:
    """The parked streams of a run, by the keys of their queries. The oldest lose their records first."""

    def __init__(self) -> None:
        self._by_key: dict[str, ParkedStream] = {}

    @property
    def n_bytes(self) -> int:
        """The bytes of all records that are kept."""
        return sum(parked.backlog.records.n_bytes for parked in self._by_key.values() if parked.backlog)

    def park(self, subscription: Subscription, backlog: StreamBacklog, *, n_events: int) -> None:
        """Keep what a client that comes back needs; the subscription is not evaluated any more."""
        self._by_key[subscription.query.key] = ParkedStream(
            number=subscription.id, next_index=subscription.rows.n_made,
            n_events=n_events - subscription.tail.n_deferred, n_skipped=subscription.n_skipped, backlog=backlog,
        )  # fmt: skip
        if len(self._by_key) > MAX_PARKED:
            del self._by_key[next(iter(self._by_key))]
        excess_bytes = self.n_bytes - MAX_PARKED_BYTES
        for parked in self._by_key.values():
            if parked.backlog and excess_bytes > 0:
                excess_bytes -= parked.backlog.records.n_bytes
                parked.backlog = None

    def take(self, query: Query) -> ParkedStream | None:
        """Return what is kept of a query's stream, and forget it."""
        return self._by_key.pop(query.key, None)


def n_missing(query: Query, first: int, after: int) -> int:
    """Return how many records are missing because events were not evaluated.

    An event that a condition might have held back counts as a record. Windows of `every=n` are missing if they close
    among these events. Of other windows the number is not known: they count as one, since the open group is lost.

    Args:
        query: The query.
        first: The number of the first event that was not evaluated.
        after: The number of the first one that is evaluated again.
    """
    reducers = [stage for stage in query.stages if isinstance(stage, Reduce)]
    if all(isinstance(stage.window, ByValue) for stage in reducers):
        return after - first
    window = reducers[0].window
    return after // window.n - first // window.n if len(reducers) == 1 and isinstance(window, Every) else 1


# The subscriptions of a run that are recorded, each with the number of the event since which it is.


class RecordedSubscriptions:
    """Passes the rows of recorded subscriptions to the recorder."""

    def __init__(self, telemetry: Telemetry, recorder: Recorder | None, *, run: str) -> None:
        self._telemetry = telemetry
        self._recorder = recorder
        self._run = run
        self._since: dict[int, int] = {}

    def __contains__(self, subscription: Subscription) -> bool:
        return subscription.id in self._since

    def check(self, query: Query, subscription: Subscription | None) -> None:
        """Refuse a query that cannot be recorded.

        Raises:
            RefusedError: This run does not record.
            RefusedQueryError: The query costs more than the run's budget.
        """
        if self._recorder is None:
            raise RefusedError(f"Run {self._run!r} does not record")
        if subscription is not None and subscription.stride > 1:
            raise RefusedQueryError(
                f"{query} costs {self._telemetry.budget.cost(subscription)}, so it is evaluated on every "
                f"{subscription.stride}th event only; recorded queries are never thinned"
            )

    def add(self, subscription: Subscription) -> None:
        """Record rows from now on; the caller holds the lock."""
        source = self._telemetry.subscriptions.sources.get(subscription.event)
        self._since.setdefault(subscription.id, 0 if source is None else source.n_events)
        subscription.recorded = True

    def discard(self, subscription: Subscription, problem: str = "") -> None:
        """Stop recording a subscription; a problem is reported as a warning."""
        if self._since.pop(subscription.id, None) is not None and problem:
            message = f"Run {self._run!r} no longer records {subscription.query}: {problem}"
            warn(message)
        subscription.recorded = False

    def find(self, query: Query, subscription: Subscription | None) -> Subscription:
        """Return the subscription of a query that is recorded.

        Raises:
            UnknownNameError: The query is not recorded.
        """
        if subscription is None or subscription not in self:
            active = self._telemetry.subscriptions.active.values()
            raise UnknownNameError(
                "recorded query", str(query), [str(other.query) for other in active if other in self]
            )
        return subscription

    def store(self, subscription: Subscription, rows: Sequence[Row]) -> None:
        """Record rows, if the subscription is recorded."""
        if rows and subscription in self and self._recorder is not None:
            self._recorder.record(subscription, rows, self._since[subscription.id])

    def command(self, entry: HistoryEntry) -> None:
        """Record an entry of the history, if anything else is recorded."""
        # The first command may come before the first row of a recorded query.
        if self._recorder is not None and (self._since or self._recorder.active):
            self._recorder.command(as_mapping(entry))

    def lapsed(self, subscription: Subscription) -> bool:
        """Return whether the review of the budget gave up recording a subscription."""
        return subscription in self and not (subscription.recorded or subscription.suspended)


def _remark(subscription: Subscription) -> str:
    """Return which events, and which items of mappings, the records of a stream leave out."""
    stride = max(subscription.stride, subscription.program_stride)
    remark = f"answered on 1 of {stride:,} events: the budget" if stride > 1 else ""
    left_out = subscription.left_out
    if not left_out:
        return remark
    name, reason = next(iter(left_out.items()))
    others = f", and {len(left_out) - 1:,} others" if len(left_out) > 1 else ""
    return f"{remark}{remark and '; '}without {cut(str(name))!r}{others}: {cut(reason)}"
