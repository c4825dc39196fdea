"""Mirrors of a run: what it records goes to other trackers, too, such as TensorBoard or Weights & Biases.

A mirror gets what reaches the run directory as a series: logged values, and the records of recorded queries. It copies
what the program could overwrite, and a thread of its own (`DeliveryQueue`) passes it on, so neither a disk nor a
network holds up the training. What a sink refuses is counted, warned of once, and raised by `flush` and `close`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

from sightglass.core.columns import APPROXIMATE, CLOSED, COMPLETE, USUAL_FLAGS, Record, Row
from sightglass.core.errors import StorageError
from sightglass.core.program_values.copier import snapshot
from sightglass.core.program_values.guarded import FAILURES, message
from sightglass.core.values import PLAIN, n_bytes, to_host
from sightglass.storage.delivery_queue import DeliveryQueue, RecordSink
from sightglass.storage.file_names import EVENT_FILES, SUMMARY_FILES

MirrorTarget = Literal["tensorboard", "mindspore", "wandb"] | RecordSink

LOST: Final = object()
TIMEOUT_S: Final = 60.0  # to close: W&B hands rows to a process of its own, which may be busy uploading


class Mirror:
    """Passes the records of a run on to a sink, which it opens for the first record."""

    def __init__(
        self,
        target: MirrorTarget,
        *,
        run: str,
        config: Mapping[str, Any],
        folder: Callable[[], Path],
        opened: Callable[[], None],
    ) -> None:
        """Begin without a sink.

        Args:
            target: Where to.
            run: The run's name.
            config: Its configuration.
            folder: Makes the run directory.
            opened: Called when the sink is open.
        """
        self._target = target
        self._run = run
        self._config = config
        self._folder = folder
        self._opened = opened
        self._sink: RecordSink | None = None
        self._failure: Exception | None = None
        self._name = target if isinstance(target, str) else type(target).__name__
        self._queue: DeliveryQueue[Callable[[], list[Record]]] = DeliveryQueue(
            f"mirror {self._name}",
            self._deliver,
            settle=lambda: self._end_of("flush"),
            end=lambda: self._end_of("close"),
        )

    def log(
        self, index: int, step: Any, wall_time: float, values: dict[str, Any], steps: Mapping[str, float] | None
    ) -> None:
        """Take logged values; see `RecordWriter.log`."""
        values = {tag: kept for tag, value in values.items() if (kept := self._own(value, tag)) is not LOST}
        at = self._own(step, "step")
        self._queue.put(
            lambda: [
                self._record(tag, (index, at, wall_time, value, (1, USUAL_FLAGS, steps), index))
                for tag, value in values.items()
            ],
            n_bytes(values),
        )

    def _own(self, value: Any, tag: str) -> Any:
        try:
            return value if type(value) in PLAIN else snapshot(value, tag)
        except FAILURES as error:
            self._queue.drop(message(error), n=1)
            return LOST

    def rows(self, tag: str, rows: Sequence[Row]) -> None:
        """Take rows of a recorded query; their values do not change any more."""
        self._queue.put(lambda: [self._record(tag, row) for row in rows], sum(n_bytes(row[3]) for row in rows))

    def flush(self, timeout_s: float) -> None:
        """Wait until the sink has written everything.

        Raises:
            StorageError: It has not in time, or some records were lost.
        """
        self._queue.flush(timeout_s)

    def close(self, timeout_s: float) -> None:
        """Pass on what is left, and close the sink; errors as in `flush`."""
        self._queue.close(max(timeout_s, TIMEOUT_S))

    # On the queue's thread

    def _record(self, tag: str, row: Row) -> Record:
        index, step, wall_time, value, extra, _ = row
        n_events, flags, steps = extra or (1, USUAL_FLAGS, None)
        return Record(
            tag=tag, index=index, step=to_host(step), wall_time=wall_time, value=value, run=self._run,
            closed=bool(flags & CLOSED), complete=bool(flags & COMPLETE), approximate=bool(flags & APPROXIMATE),
            n_events=n_events, steps={name: to_host(at) for name, at in (steps or {}).items()},
        )  # fmt: skip

    def _deliver(self, records: Callable[[], list[Record]]) -> None:
        self._open().write(records())

    def _open(self) -> RecordSink:
        """Return the sink; one that could not be opened is not tried again, because that may take long."""
        if self._failure is not None:
            raise StorageError(message(self._failure))
        if self._sink is None:
            try:
                self._sink = self._begin()
            except Exception as error:
                self._failure = error
                raise
            self._opened()
        return self._sink

    def _begin(self) -> RecordSink:
        match self._target:
            case "tensorboard":
                from sightglass.storage.event_log import TensorBoard

                return TensorBoard(self._folder() / EVENT_FILES)
            case "mindspore":
                from sightglass.storage.event_log import MindSpore

                return MindSpore(self._folder() / SUMMARY_FILES)
            case "wandb":
                from sightglass.storage.wandb import WandB, load

                active = load().run
                if active is None:
                    return WandB.begin(name=self._run, config=dict(self._config))
                shared = WandB.shared(active)
                shared.used_by(self._queue)
                return _Lent(shared)
        return self._target

    def _end_of(self, what: Literal["flush", "close"]) -> None:
        if self._sink is not None:
            getattr(self._sink, what)(TIMEOUT_S)


class _Lent:
    """A sink that others write to as well, and end."""

    def __init__(self, sink: RecordSink) -> None:
        self.write = sink.write
        self.flush = self.close = sink.flush


def checked(mirror: MirrorTarget | Sequence[MirrorTarget]) -> tuple[MirrorTarget, ...]:
    """Return the argument `mirror` of `init` as a tuple.

    Raises:
        TypeError: It contains something that is not a sink.
        ValueError: It contains an unknown name.
        MissingExtraError: It contains "wandb", and `wandb` is not installed.
    """
    targets = tuple(mirror) if isinstance(mirror, list | tuple) else (mirror,)
    for target in targets:
        if isinstance(target, str):
            if target not in ("tensorboard", "mindspore", "wandb"):
                raise ValueError(f"Expected mirror='tensorboard', 'mindspore', 'wandb' or a sink, got {target!r:.100}")
        elif not isinstance(target, RecordSink):
            raise TypeError(f"Expected a sink with write, flush and close as mirror, got {target!r:.100}")
    if "wandb" in targets:
        from sightglass.storage import wandb

        wandb.load()  # now, because Python cannot import it while the interpreter ends
    return targets
