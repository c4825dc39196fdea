"""The alerts of a run: what its program raises, and, where somebody is to be told, what the run sees of itself.

Rule 1: an alert of the program enters the history at once, and is delivered if there are receivers.
Rule 2: with receivers, the run tells of its failure, of the first NaN in what is logged or streamed, and of a full
disk, once each. Without any, it looks for nothing.
"""

from __future__ import annotations

import itertools
import math
import numbers
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sightglass.alerts.alert import LEVELS, Alert, Level
from sightglass.alerts.delivery import EXIT_S, AlertDelivery
from sightglass.core.columns import Columns
from sightglass.core.counts import Failures
from sightglass.core.description import Ending
from sightglass.core.errors import unknown
from sightglass.core.process.clock import Clock, spoken
from sightglass.core.process.threads import Worker
from sightglass.core.process.unpatched import threading
from sightglass.core.values import array_kind
from sightglass.storage.format.block import Key, columns_of
from sightglass.storage.format.totals import numbers_of
from sightglass.storage.run_file import State
from sightglass.training.commands import Command, CommandResult

if TYPE_CHECKING:
    from sightglass.alerts.receivers import Receiver

MAX_TITLES: Final = 1_000  # of which it is known when they were last raised


class RunAlerts:
    """Raises and delivers the alerts of one run; a chore of its `io` thread.

    Attributes:
        streams: Those that `Run.alert_when` follows.
    """

    def __init__(
        self,
        receivers: Sequence[Receiver],
        *,
        run: str,
        id: str,
        leads: bool,
        clock: Clock,
        worker: type[Worker],
        remember: Callable[[CommandResult], None],
        latest: Callable[[], tuple[str, int]],
        disk_problem: Callable[[], str],
    ) -> None:
        """Begin without alerts.

        Args:
            receivers: Where alerts go.
            run: How the run is called in them.
            id: Its id.
            leads: Whether this is rank 0, which speaks for the others where all see the same.
            clock: The time.
            worker: Runs the delivery.
            remember: Adds an entry to the history.
            latest: Returns the name and the number of the last event.
            disk_problem: Returns why records cannot be written, if the disk is full; else an empty text.
        """
        self._run, self._id, self._leads, self._clock = run, id, leads, clock
        self._remember, self._latest = remember, latest
        self._disk_problem = disk_problem
        self._delivery = AlertDelivery(receivers, clock=clock, worker=worker) if receivers else None
        self.streams: list[object] = []
        self._lock = threading.RLock()  # a handler of a signal may raise an alert within another one
        self._number = itertools.count()
        self._raised_s: dict[str, float] = {}
        self._began_s = clock.monotonic()
        self._looks_for_nan = self._delivery is not None and leads
        self._disk_is_full = self._is_over = False

    @property
    def failures(self) -> tuple[Failures, ...]:
        """What went wrong with the delivery."""
        return () if self._delivery is None else (self._delivery.failures,)

    def raise_one(self, title: str, text: str, level: Level, wait_s: float, step: float | None) -> None:
        """Raise an alert that was checked; see `Run.alert`."""
        now_s = self._clock.monotonic()
        with self._lock:
            if now_s - self._raised_s.get(title, -math.inf) < wait_s:
                return
            self._raised_s.pop(title, None)
            self._raised_s[title] = now_s
            if len(self._raised_s) > MAX_TITLES:
                del self._raised_s[next(iter(self._raised_s))]
        self._tell(title, text, level=level, step=step)

    def saw(self, key: Key, columns: Columns) -> None:
        """Look for the first NaN in records; from any thread."""
        if not self._looks_for_nan:
            return
        numbers = numbers_of(columns.values)
        if numbers is None or numbers.dtype.kind != "f" or numbers.ndim > 1 + (key.kind == "wide"):
            return
        at = np.argwhere(np.isnan(numbers))
        with self._lock:
            first, self._looks_for_nan = self._looks_for_nan and len(at) > 0, self._looks_for_nan and not len(at)
        if first:
            tag = columns_of(key)[at[0][1]] if key.kind == "wide" else key.tag
            step = float(columns.steps[at[0][0]])
            self._tell(f"NaN in {tag}", f"The first NaN is in {tag}, at step {step:,.15g}.", level="error", step=step)

    def tick(self, now_s: float) -> None:
        """Look whether the disk is full; once more after there was room again."""
        if self._delivery is not None:
            problem = self._disk_problem()
            if problem and not self._disk_is_full:
                self._tell(
                    "the disk is full", f"Records cannot be written, and wait in memory: {problem}", level="error"
                )
            self._disk_is_full = bool(problem)

    def ends(self, state: State, ending: Ending) -> None:
        """Tell how the run ends, if it fails, or a signal ends it."""
        signalled = state == "terminated" and ending.signal and self._leads
        if self._is_over or self._delivery is None or not (state == "failed" or signalled):
            return
        self._is_over = True
        frames = [f'  File "{frame.file}", line {frame.line}, in {frame.function}' for frame in ending.frames]
        self._tell(
            f"{state} after {spoken(self._clock.monotonic() - self._began_s)}: {ending}",
            "\n".join([*frames, ending.error]),
            level="error" if state == "failed" else "warning",
        )

    def close(self) -> None:
        """As a chore of the `io` thread: nothing. Alerts are delivered until the run is closed, see `deliver`."""

    def deliver(self, timeout_s: float = EXIT_S) -> None:
        """Deliver what waits, for the last time."""
        if self._delivery is not None:
            self._delivery.close(timeout_s)

    def _tell(self, title: str, text: str, *, level: Level, step: float | None = None) -> None:
        event, index = self._latest()
        alert = Alert.of(
            f"{self._id}-{next(self._number)}", title, text, level=level, run=self._run, run_id=self._id,
            host=socket.gethostname(), wall_time=self._clock.wall(), step=step,
        )  # fmt: skip
        self._remember(
            CommandResult(
                command=Command(id=0, client="", kind="alert", name=alert.title, value=alert.text),
                event=event, index=index, step=math.nan if alert.step is None else alert.step,
                wall_time=alert.wall_time, note=level,
            )
        )  # fmt: skip
        if self._delivery is not None:
            self._delivery.put(alert)


def check_alert(title: object, text: object, level: object, wait_s: Any, step: object) -> None:
    """Check the arguments of `Run.alert`.

    Raises:
        TypeError: `title` or `text` is not a text, or `step` is not a number.
        ValueError: `level` is unknown, or `wait_s` is negative.
    """
    if not isinstance(title, str) or not title:
        raise TypeError(f"Expected the title of an alert as text, got {title!r:.100}")
    if not isinstance(text, str):
        raise TypeError(f"Expected the text of an alert as text, got {text!r:.100}")
    if level not in LEVELS:
        raise ValueError(unknown("level", level, LEVELS))
    if step is not None and not isinstance(step, numbers.Real) and array_kind(step) is None:
        raise TypeError(f"Expected a number as step, got {step!r:.100}")
    if not isinstance(wait_s, int | float):
        raise TypeError(f"Expected a number of seconds as wait_s, got {wait_s!r:.100}")
    if not wait_s >= 0:
        raise ValueError(f"Expected wait_s to be at least 0, got {wait_s!r:.100}")
