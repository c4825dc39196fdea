"""Helpers for the tests of `live`: a run with a client, and a step that is called until queries have results."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import Any

import jax
from tests.waiting import wait_until

import sightglass as sg
from sightglass.jax import live
from sightglass.training.run import wiring

PATIENCE_S = 90.0
PAUSE_S = 0.002


class QueriedRun:
    """A run, and clients of it in the same process."""

    def __init__(self, **options: Any) -> None:
        self.run = sg.init("t", **{"budget": None, **options})
        self.telemetry = wiring(self.run).telemetry
        self._clients: list[Any] = []
        self._cursors: dict[int, tuple[Any, int]] = {}

    @property
    def client(self) -> Any:
        """The first client."""
        return self._clients[0] if self._clients else self.another()

    def another(self) -> Any:
        """Connect one more client."""
        self._clients.append(sg.connect(self.run))
        return self._clients[-1]

    def live(self, function: Any, *example: Any, event: str = "batch", **named: Any) -> Any:
        """Make a jitted function live; call it once with the example, if there is one, so that its events are found."""
        step = live(function, run=self.run, event=event)
        if example or named:
            jax.block_until_ready(step(*example, **named))
        return step

    def query(self, call: Callable[[], Any], *queries: Any) -> Any:
        """Open a stream for each query and call the step until all have records; later methods return only new ones."""
        streams = [self.client.stream(query) for query in queries]
        wait_until(lambda: (jax.block_until_ready(call()), all(self._has_record(s) for s in streams))[1], "a record")
        for stream in streams:
            self.new_records(stream)
        return streams if len(streams) > 1 else streams[0]

    def refused(self, call: Callable[[], Any], query: Any) -> str:
        """Open a stream and call the step until the stream ends with an error; return its text."""
        stream = self.client.stream(query)
        wait_until(lambda: (jax.block_until_ready(call()), stream.ended)[1], "a refusal")
        try:
            list(stream)
        except sg.SightglassError as error:
            return f"{type(error).__name__}: {error}"
        raise AssertionError("the stream ended without an error")

    def idle(self, step: Any) -> bool:
        """Return whether the step's calls are only counted."""
        return step._event in self.telemetry.subscriptions.idle_steps

    def new_records(self, stream: Any) -> list[Any]:
        """Wait for calls in progress, and return the new records."""
        self.run.flush(PATIENCE_S)
        made = [
            answer.rows.n_made
            for answer in self.telemetry.subscriptions.active.values()
            if answer.query.key == stream.query
        ]
        if made and made[0]:
            wait_until(
                lambda: stream.ended or (stream.latest and stream.latest.index + 1 >= made[0]), "the last record"
            )
        _, cursor = self._cursors.get(id(stream), (stream, 0))
        cursor, columns = stream.since(cursor)
        self._cursors[id(stream)] = stream, cursor  # the stream too, as Python reuses the ids of dead objects
        return columns.records(tag=stream.tag, run=stream.run)

    def values(self, stream: Any) -> list[Any]:
        """Return the values of the new records."""
        return [record.value for record in self.new_records(stream)]

    def end(self, *streams: Any) -> None:
        """Close streams, and wait until the run has ended their subscriptions."""
        for stream in streams:
            stream.close()
        wait_until(lambda: not self.telemetry.subscriptions.active, "the end of the streams")

    def close(self) -> None:
        """Close the clients and the run."""
        for client in self._clients:
            client.close()
        self.run.close()
        wait_until(lambda: not gc.get_freeze_count(), "the end of the compiler's work, during which old garbage stays")

    def _has_record(self, stream: Any) -> bool:
        if stream.ended:
            list(stream)  # raises
        return stream.latest is not None


def same(got: Sequence[Any], wanted: Sequence[Any]) -> None:
    """Check that results are bit-equal, shardings included."""
    got, wanted = jax.tree.leaves(got), jax.tree.leaves(wanted)
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted, strict=True):
        assert (a.dtype, a.shape, a.sharding) == (b.dtype, b.shape, b.sharding)
        assert bytes(jax.device_get(a).tobytes()) == bytes(jax.device_get(b).tobytes())
