"""Evaluation aside: queries that do not fit into an event, on a copy of what they read, off the training thread.

Making the copy must fit into the event; one is alive at a time in a run. While it is evaluated, further events of its
query are skipped and counted. What the evaluation takes counts in the run's budget.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from sightglass.core.copies import snapshot
from sightglass.core.errors import PriceError, SightglassError
from sightglass.core.guarded import FAILURES
from sightglass.core.values import Value
from sightglass.query.costs import MODEL
from sightglass.query.meter import MAX_BYTES
from sightglass.query.pipeline import Evaluation, PerEventResult
from sightglass.query.price import Price
from sightglass.query.reads import Path, copied, n_bytes_read, paths

from .deferred import Defer

MAX_ASIDE_S: Final = 1.0  # of another core: at a budget of 5 %, once in 20 s
MAX_LOCKED_S: Final = 0.005  # of Python, for which other threads wait
COPIED_AT_ONCE: Final = 2**18  # bytes between two looks at the clock: at most a millisecond
COPY_NS: Final = 0.4  # for each byte, into memory that was used before


class Aside:
    """The place of a run for one evaluation off the training thread.

    Attributes:
        defer: Evaluates and settles there, in order.
    """

    def __init__(self, defer: Defer) -> None:
        self.defer = defer
        self._taken = False

    def calibrating(self) -> bool:
        """Return whether prices are not exact yet; measure the machine here if nobody did."""
        if MODEL.wanted:
            MODEL.wanted = False
            self.defer(MODEL.calibrate, lambda error: None)
        return not MODEL.calibrated

    def take(self) -> bool:
        """Take the place; return whether it was free."""
        taken, self._taken = self._taken, True
        return not taken

    def free(self) -> None:
        """Give the place back."""
        self._taken = False


class AsideEvaluation:
    """The evaluation of one query aside.

    Attributes:
        copy_s: The seconds of the training thread that the copy of an event takes.
        limit_s: The seconds that it may take.
    """

    def __init__(self, evaluation: Evaluation, place: Aside, *, copy_s: float, limit_s: float) -> None:
        self.copy_s = copy_s
        self.limit_s = limit_s
        self._cpu_s = time.thread_time
        self._until_s = 0.0
        self._place = place
        self._paths = paths(evaluation.query)
        self._kept: dict[Path, Any] = {}
        evaluation.holds = True
        evaluation.meter.limit_s = MAX_ASIDE_S

    @classmethod
    def of(
        cls, evaluation: Evaluation, place: Aside, observables: Mapping[str, Any], *, limit_s: float
    ) -> AsideEvaluation | None:
        """Return the evaluation aside of a query that costs more than `limit_s`; `None` if it is not possible."""
        price, wanted = evaluation.meter.price, paths(evaluation.query)
        if price is None or price.seconds <= limit_s or not _bearable(price) or () in wanted:
            return None
        try:
            n_bytes = n_bytes_read(observables, wanted)
        except (SightglassError, *FAILURES):
            return None
        copy_s = n_bytes * COPY_NS * MODEL.machine / 1e9
        if copy_s > limit_s or price.n_bytes + n_bytes > MAX_BYTES + price.largest_bytes:
            return None
        return cls(evaluation, place, copy_s=copy_s, limit_s=limit_s)

    def post(
        self,
        evaluation: Evaluation,
        observables: Mapping[str, Any],
        settle: Callable[[PerEventResult | None, float, BaseException | None], None],
    ) -> bool:
        """Copy what the query reads, and evaluate it on the other thread; return whether that thread is free.

        Args:
            evaluation: The evaluation of the query.
            observables: The observables of the event.
            settle: Called there with the result or the error, and the processor time that it took, in seconds.

        Raises:
            SightglassError: What the query reads cannot be copied.
        """
        if not self._place.take():
            return False
        self._until_s = self._cpu_s() + self.limit_s
        try:
            copies = copied(observables, self._paths, self._copy)
        except BaseException:
            self._place.free()
            raise
        heads: list[PerEventResult] = []

        def evaluate() -> None:
            heads.append(evaluation.per_event(copies))
            heads[0].read()

        def settled(error: BaseException | None) -> None:
            self._place.free()
            settle(heads[0] if error is None else None, evaluation.meter.taken_s, error)

        self._place.defer(evaluate, settled)
        return True

    def _copy(self, path: Path, value: Value) -> Any:
        """Copy a value, an array into the memory of the last copy if it has the same shape.

        Raises:
            PriceError: It takes too long: memory that was never used is slow. The next copy is faster.
        """
        if type(value) is not np.ndarray:
            return snapshot(value)
        kept = self._kept.get(path)
        if kept is None or (kept.shape, kept.dtype) != (value.shape, value.dtype):
            kept = self._kept[path] = np.empty_like(value, order="C", subok=False)
        if not value.ndim:
            return value[()]
        n_rows = max(1, COPIED_AT_ONCE * len(value) // max(1, value.nbytes))
        for i in range(0, len(value), n_rows):
            np.copyto(kept[i : i + n_rows], value[i : i + n_rows])
            if self._cpu_s() > self._until_s:
                raise PriceError("Expected the copy of what a query reads to fit into an event", seconds=0.0)
        return kept


def _bearable(price: Price) -> bool:
    return price.known and not price.more and price.seconds <= MAX_ASIDE_S and price.python_s <= MAX_LOCKED_S
