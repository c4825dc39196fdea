"""The streams of a query in all runs of a fleet: one for each run, and their union, which later runs join."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Final

from sightglass.client.beginning import with_beginning
from sightglass.client.derived import UnionProducer
from sightglass.client.pending_reply import PendingReply
from sightglass.client.record_buffer import RecordBuffer
from sightglass.client.resumable_stream import ResumableStream
from sightglass.client.stream import Stream
from sightglass.client.subscription import SubscriptionProducer, note_of_stream
from sightglass.core.counts import Statistics
from sightglass.core.errors import RunLostError, SightglassError
from sightglass.core.guarded import message
from sightglass.core.unpatched import threading
from sightglass.query.parser import as_query
from sightglass.query.query import Query

from .members import Member, Members

MAX_NAMED: Final = 3  # runs that a remark names


class RunStream:
    """The stream of a query in one run of a fleet, which is opened without waiting.

    Attributes:
        member: The run.
        buffer: The records.
        stream: The stream of them.
        n_read: How many of its records the one stream has.
        asked_s: When it was asked.
        late: Where the stream begins, if not with the run; empty if it does.
        error: Why the run does not answer, or `None`.
    """

    def __init__(self, member: Member, query: Query, text: str, *, confirm: bool) -> None:
        self.member = member
        self.buffer = RecordBuffer(tag=text, run=member.name, client=member.session)
        self.n_read = 0
        self.asked_s = time.monotonic()
        self.late = ""
        self.error: Exception | None = None
        self._resumable = ResumableStream(text, self.buffer, confirm=confirm)
        self._reply: PendingReply | None = None
        self._counts: PendingReply | None = None
        self._opened = False
        self.stream = Stream(
            SubscriptionProducer(member.session, self._resumable), self.buffer, query=query.key, note=self._note,
            check_wait=member.run._check_wait,
        )  # fmt: skip

    @property
    def answered(self) -> bool:
        """Whether the run has answered, or cannot."""
        return self._opened or self.error is not None or bool(self.member.why_left)

    @property
    def problem(self) -> str:
        """Why the run does not answer, or does not any more; empty if there is nothing to say."""
        error = self.error or self.buffer.error
        return "" if error is None else message(error)

    def look(self) -> None:
        """Ask the run how many records it has made so far."""
        self._counts = None
        if self._opened and not (self.member.why_left or self.member.session.why_lost()):
            with contextlib.suppress(SightglassError):  # it takes no messages: what has arrived must do
                self._counts = self.member.session.connection.start_query("statistics")

    @property
    def caught_up(self) -> bool:
        """Whether all records have arrived that the run had made when `look` was called."""
        if self._counts is None or self.buffer.ended or self.member.why_left:
            return True
        if not self._counts.wait(0):
            return False
        try:
            entries = self._counts.result()
        except SightglassError:
            return True
        made = next((entry["n_records"] for entry in entries if entry["stream"] == self._resumable.number), 0)
        return (self.buffer.next_index or 0) >= made + self._resumable.base

    def advance(self) -> None:
        """Open the stream, as soon as there is a connection; take in the run's reply."""
        if self._opened or self.error is not None or self.buffer.ended:
            return
        try:
            if self._reply is None:
                self._reply = self.member.session.start_stream(self._resumable, timeout_s=0.0)
            elif self._reply.wait(0):
                opened = self._reply.result()
                self.late, self._opened = opened.late, True
        except RunLostError:  # tried again when there is a connection
            self.member.session.close_stream(self._resumable)
            self._resumable.closed, self._reply = False, None
        except SightglassError as error:
            self.error = error
            self.stream.close()

    def fill(self) -> None:
        """Fill a hole in its records, if there is one, from what the run recorded."""
        if self._resumable.waiting is not None:
            self.stream.since(self.buffer.n)

    def _note(self) -> str:
        note = note_of_stream(self.member.session, self._resumable)
        return with_beginning(note, self.late, self.buffer)()


class FleetProducer:
    """Produces the records of a query in all runs of a fleet.

    Attributes:
        query: The query.
        text: Its text, as it was given.
        parts: The streams of the runs.
        closed: Whether the runs are not asked any more.
    """

    def __init__(
        self, members: Members, chosen: Callable[[], Sequence[Member]], query: Query | str, *, confirm: bool = False
    ) -> None:
        """Ask the runs, and those that join later, without waiting.

        Args:
            members: The runs.
            chosen: Returns those of them to ask.
            query: The query.
            confirm: As in `RemoteRun.stream`.

        Raises:
            QueryError: The query is not valid.
        """
        self.query = as_query(query)
        self.text = query if isinstance(query, str) else str(self.query)
        self.parts: list[RunStream] = []
        self._members, self._chosen, self._confirm = members, chosen, confirm
        self._union = UnionProducer([])
        self.closed = False
        self._lock = threading.Lock()
        members.follow(self)
        self.update()

    def update(self) -> None:
        """Ask the runs that joined, and take in what the others replied."""
        with self._lock:
            if self.closed:
                return
            asked = {part.member for part in self.parts}
            for member in self._chosen():
                if member not in asked and member.present:
                    part = RunStream(member, self.query, self.text, confirm=self._confirm)
                    self._union.add(part.stream)
                    self.parts.append(part)
            for part in self.parts:
                part.advance()

    def settle(self, timeout_s: float) -> None:
        """Wait until each run has answered, for at most this long."""

        def answered() -> bool:
            self.update()
            return all(part.answered for part in self.parts)

        self._members.wait_until(answered, timeout_s)

    def stream(self) -> Stream:
        """Return the one stream."""
        return Stream(
            self, RecordBuffer(tag=self.text, run=""), query=self.query.key, note=self._note, members=self._drawn,
            check_wait=self._check_wait,
        )  # fmt: skip

    def advance(self, buffer: RecordBuffer) -> None:
        """Add the new records of all runs."""
        if buffer.ended:
            return
        for part in self.parts:
            part.fill()
        closed = self.closed or self._members.closed  # before reading: what arrived until then is read
        over = not self._members.follows and self._members.settled and all(part.buffer.ended for part in self.parts)
        fresh = [i for i, part in enumerate(self.parts) if part.buffer.n != part.n_read]
        for i in fresh:
            self.parts[i].n_read = self.parts[i].buffer.n
        if fresh:
            buffer.tag = self.parts[fresh[0]].buffer.tag
            self._union.take(buffer, fresh)
        buffer.n_lost = sum(part.buffer.n_lost for part in self.parts)
        if over or closed:
            buffer.end()

    def end_group(self, buffer: RecordBuffer) -> None:
        """Close the open group in each run."""
        for part in self.parts:
            if not part.buffer.ended:
                part.stream.end_group()

    def close(self) -> None:
        """Stop asking; the runs stop evaluating the query unless another client uses it."""
        with self._lock:
            self.closed = True
        self._members.unfollow(self)
        for part in self.parts:
            part.stream.close()

    def statistics(self) -> Statistics:
        """Return how many of the runs failed to answer, and the last reason."""
        problems = [part.problem for part in self.parts if part.problem]
        return Statistics(n_errors=len(problems), last_error=problems[-1] if problems else "")

    def raise_refused(self) -> None:
        """Raise the first error, if every run that answered refused the query."""
        answers = [part.error for part in self.parts if part.answered]
        if answers and all(answers):
            self.close()
            raise answers[0]  # type: ignore[misc]  # none of them is `None`

    def _drawn(self) -> list[Stream]:
        return [part.stream for part in self.parts if part.buffer.n]

    def _note(self) -> str:
        if not self.parts:
            return "no run has joined the fleet so far"
        notes = [(part.member.name, part.problem or part.stream.note) for part in self.parts]
        shown = [f"{name}: {note}" for name, note in notes if note]
        more = [f"and {len(shown) - MAX_NAMED} more"] if len(shown) > MAX_NAMED else []
        return "; ".join([*itertools.islice(shown, MAX_NAMED), *more])

    def _check_wait(self) -> None:
        for part in self.parts:
            part.member.run._check_wait()
