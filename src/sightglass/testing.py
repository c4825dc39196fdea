"""Test what a program offers: ask it from a test, as any client does, and compare the records.

    from sightglass import testing

    def test_the_training_offers_its_loss():
        with testing.ask("batch.loss", "epoch.accuracy") as asked:
            train(n_epochs=2)  # calls sg.init, observe and close, as it always does
        assert asked.values("epoch.accuracy")[-1] > 0.9

The queries are open before the program's first event, and nothing is left out to save time. The run is out of reach of
everything else: it has no hub, and a registry and a folder of its own, which are removed in the end. Test and run talk
in memory, by the same messages as over a network.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from sightglass.core.description import StreamInfo

from .client.discover import connect
from .client.run import RemoteRun
from .client.streams.stream import Stream
from .core.columns import Record
from .core.counts import Statistics
from .core.errors import EvaluationError, UnknownNameError
from .query.query import Query
from .training import process_runs
from .training.run import Run

PATIENCE_S: Final = 60.0


class Asked:
    """What a test asked the first run that began, and what the run answered."""

    def __init__(self, queries: Sequence[Query | str]) -> None:
        self._queries = queries
        self._streams: dict[str, Stream] = {}
        self._answers: dict[str, list[Record] | Exception] = {}
        self._program: Run | None = None
        self._run: RemoteRun | None = None

    @property
    def run(self) -> RemoteRun:
        """The run as a client has it, to send commands and further queries while it is live.

        A command that is sent on the program's own thread is applied at the next event of it.

        Raises:
            AssertionError: No run has begun.
        """
        if self._run is None:
            raise AssertionError("Expected the program to begin a run with sightglass.init(…), but none has begun")
        return self._run

    def records(self, query: Query | str) -> list[Record]:
        """Return the records of one of the queries: of all events so far, or of all there were.

        Raises:
            AssertionError: No run has begun, or there were more records than a client can hold.
            EvaluationError: The run could not evaluate the query.
            UnknownNameError: The test did not ask this query.
        """
        key = _key(query)
        if key not in self._answers:
            run = self.run
            if key not in self._streams:
                raise UnknownNameError("query", key, list(self._streams))
            return _checked(self._answer(self._streams[key], run))
        return _checked(self._answers[key])

    def values(self, query: Query | str) -> list[Any]:
        """Return the values of `records`."""
        return [record.value for record in self.records(query)]

    def _meet(self, program: Run) -> None:
        self._program, self._run = program, connect(program)
        self._streams = {_key(query): self._run.stream(query) for query in self._queries}

    def _answer(self, stream: Stream, run: RemoteRun) -> list[Record] | Exception:
        assert self._program is not None
        counts: StreamInfo | Statistics
        live: dict[str, StreamInfo] = {}
        if not self._program.ended:
            self._program.flush(PATIENCE_S)
            live = {info.tag: info for info in run.describe().streams}
        if stream.tag in live:
            counts = live[stream.tag]
            found = stream.wait(counts.n_records, timeout_s=PATIENCE_S)
        else:  # the run has ended, or the query: it failed too often
            try:
                found = list(stream)
            except EvaluationError as error:
                return error
            counts = stream.statistics()
        if counts.last_error:
            return EvaluationError(counts.last_error)
        if counts.n_skipped or counts.n_dropped or len(found) < counts.n_records:
            return AssertionError(f"Expected the answers to all events of {stream.tag!r}, got {counts}")
        return found

    def _end(self) -> None:
        if self._program is not None and self._run is not None:
            self._program.close()
            self._answers = {key: self._answer(stream, self._run) for key, stream in self._streams.items()}
            self._run.close()


@contextmanager
def ask(*queries: Query | str) -> Iterator[Asked]:
    """Ask the first run that the block begins, from its first event on.

    When the block ends, the run is closed, if the program has not done so, and its answers stay readable.

    Args:
        *queries: Queries, or their text, such as "batch.loss.mean(every=10)".

    Raises:
        AssertionError: The block began no run.
        QueryError: A query is not valid; the program's call of `init` raises it.

    >>> with ask("batch.loss.mean(every=2)") as asked:
    ...     run = process_runs.init("job")
    ...     for loss in (4.0, 2.0, 1.0, 1.0):
    ...         run.observe("batch", loss=loss)
    >>> asked.values("batch.loss.mean(every=2)")
    [3.0, 1.0]
    """
    asked = Asked(queries)
    # The path of a socket has a hundred characters at most, less than some folders of tests.
    with tempfile.TemporaryDirectory(prefix="sg", ignore_cleanup_errors=True) as folder, patch.dict(os.environ):
        os.environ["SIGHTGLASS_RUNTIME_DIR"] = folder
        for name in ("SIGHTGLASS_HUB", "SIGHTGLASS_MODE"):
            os.environ.pop(name, None)
        with process_runs.under_test(Path(folder, "runs"), asked._meet):
            try:
                yield asked
            finally:
                asked._end()
        assert asked.run


def records(values: Iterable[Any], *, tag: str = "loss", run: str = "run", first_step: int = 0) -> list[Record]:
    """Return records as a stream has them, to test what consumes them: one a step and a second, from a moment on.

    >>> [record.step for record in records([0.5, 0.25], first_step=10)]
    [10, 11]
    """
    return [
        Record(tag=tag, run=run, index=index, step=first_step + index, wall_time=1_700_000_000.0 + index, value=value)
        for index, value in enumerate(values)
    ]


def _key(query: Query | str) -> str:
    return query if isinstance(query, str) else str(query)


def _checked(answer: list[Record] | Exception) -> list[Record]:
    if isinstance(answer, Exception):
        raise answer
    return answer
