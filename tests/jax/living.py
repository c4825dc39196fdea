"""What the tests of `live` share: a run, a client of it, and a step that is called until it answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import jax

import sightglass as sg
from sightglass.jax import live
from sightglass.training.run import wiring

PATIENCE_S = 30.0
PAUSE_S = 0.002


def until(condition: Callable[[], Any], what: str = "the condition") -> Any:
    """Ask again and again until the answer is true, and return it."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not (result := condition()):
        assert time.monotonic() < deadline_s, f"{what} did not come true within {PATIENCE_S} s"
        time.sleep(PAUSE_S)
    return result


class Desk:
    """A run, and a client of it in the same process."""

    def __init__(self, **options: Any) -> None:
        self.run = sg.init("t", **{"budget": None, **options})
        self.telemetry = wiring(self.run).telemetry
        self._clients: list[Any] = []
        self._cursors: dict[int, tuple[Any, int]] = {}

    @property
    def client(self) -> Any:
        """A client that stays."""
        return self._clients[0] if self._clients else self.another()

    def another(self) -> Any:
        """Connect one more client."""
        self._clients.append(sg.connect(self.run))
        return self._clients[-1]

    def live(self, function: Any, *example: Any, event: str = "batch", **named: Any) -> Any:
        """Watch a jitted function; call it once if an example is given, so that it is known."""
        step = live(function, run=self.run, event=event)
        if example or named:
            jax.block_until_ready(step(*example, **named))
        return step

    def ask(self, call: Callable[[], Any], *queries: Any) -> Any:
        """Open a stream for each query and call the step until all have answered; then only what is new counts."""
        streams = [self.client.stream(query) for query in queries]
        until(lambda: (jax.block_until_ready(call()), all(self._answered(s) for s in streams))[1], "an answer")
        for stream in streams:
            self.take(stream)
        return streams if len(streams) > 1 else streams[0]

    def refused(self, call: Callable[[], Any], query: Any) -> str:
        """Open a stream and call the step until the stream ends with an error; return its text."""
        stream = self.client.stream(query)
        until(lambda: (jax.block_until_ready(call()), stream.ended)[1], "a refusal")
        try:
            list(stream)
        except sg.SightglassError as error:
            return f"{type(error).__name__}: {error}"
        raise AssertionError("the stream ended without an error")

    def idle(self, step: Any) -> bool:
        """Return whether the step's calls are only counted."""
        return step._event in self.telemetry.subscriptions.idle_steps

    def take(self, stream: Any) -> list[Any]:
        """Return the records that are new; whatever is under way is waited for."""
        self.run.flush(PATIENCE_S)
        made = [
            answer.n_rows for answer in self.telemetry.subscriptions.active.values() if answer.query.key == stream.query
        ]
        if made and made[0]:
            until(lambda: stream.ended or (stream.latest and stream.latest.index + 1 >= made[0]), "the last record")
        _, cursor = self._cursors.get(id(stream), (stream, 0))
        cursor, records = stream.since(cursor)
        self._cursors[id(stream)] = stream, cursor  # the stream itself, too: numbers of what is gone are given again
        return list(records)

    def values(self, stream: Any) -> list[Any]:
        """Return the values of the records that are new."""
        return [record.value for record in self.take(stream)]

    def leave(self, *streams: Any) -> None:
        """Close streams, and wait until the run knows."""
        for stream in streams:
            stream.close()
        until(lambda: not self.telemetry.subscriptions.active, "the end of the streams")

    def close(self) -> None:
        """Leave the run, and end it."""
        for client in self._clients:
            client.close()
        self.run.close()

    def _answered(self, stream: Any) -> bool:
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
