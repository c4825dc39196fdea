"""New expressions on JAX arrays: evaluated off the training thread until each of their operations is compiled.

Outside of `jit`, JAX compiles each operation for each shape when it is first used, which takes tens of milliseconds.
Its arrays do not change, so an event waits for that by reference. Arrays that the program has donated or deleted
meanwhile cannot be read any more: their event is skipped and counted, and zeros are compiled for in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from sightglass.core.copies import snapshot
from sightglass.core.guarded import FAILURES
from sightglass.core.values import Value, array_kind
from sightglass.query.arrays import namespace
from sightglass.query.evaluation import Evaluation, PerEventResult
from sightglass.query.meter import Meter
from sightglass.query.reads import Path, copied, n_bytes_read, paths

from .aside import Aside

MAX_COMPILE_S: Final = 10.0  # of another thread; the price of the evaluation itself is checked before
MAX_WAITING: Final = 64  # events, each of which holds on to arrays of the program


class CompilingEvaluation:
    """The evaluation of one query aside, as long as it meets operations that are not compiled.

    Attributes:
        copy_s: The seconds of the training thread that an event takes: nearly none.
        left_s: The seconds that it may take of this event.
        n_waiting: How many events wait for their evaluation.
    """

    copy_s: Final = 0.0

    def __init__(self, evaluation: Evaluation, place: Aside) -> None:
        self.left_s = 0.0
        self.n_waiting = 0
        self._place = place
        self._bytes = 0
        evaluation.holds = True
        of = evaluation.meter
        meter = Meter(limit_s=MAX_COMPILE_S, max_bytes=of.max_bytes, memory=of.memory)
        meter.compiled = of.compiled
        meter.result_s = meter.tail_s = of.limit_s
        self._evaluation = Evaluation(evaluation.query, evaluation.functions, meter=meter)
        self._evaluation.holds = True

    def post(
        self,
        evaluation: Evaluation,
        observables: Mapping[str, Any],
        settle: Callable[[PerEventResult | None, float, BaseException | None], None],
    ) -> bool:
        """Evaluate an event on the other thread; return whether it has room. Arguments as of `AsideEvaluation.post`.

        Raises:
            SightglassError: What the query reads cannot be read.
        """
        wanted = paths(evaluation.query)
        if () in wanted:
            wanted = [(name,) for name in observables]
        n_bytes = n_bytes_read(observables, wanted)
        left_bytes = evaluation.meter.bytes_left(n_bytes) - self._bytes
        if self.n_waiting >= MAX_WAITING or (self.n_waiting and n_bytes > left_bytes):
            return False
        held = copied(observables, wanted, _held)
        self.n_waiting += 1
        self._bytes += n_bytes
        heads: list[PerEventResult] = []

        def evaluate() -> None:
            try:
                heads.append(self._evaluation.per_event(held))
                heads[0].read()
            except FAILURES:
                if not _some_deleted(held):
                    raise
                heads.clear()
                self._evaluation.per_event(_zeros(held))

        def settled(error: BaseException | None) -> None:
            self.n_waiting -= 1
            self._bytes -= n_bytes
            settle(heads[0] if heads and error is None else None, self._evaluation.meter.taken_s, error)

        self._place.defer(evaluate, settled)
        return True


def _held(path: Path, value: Value) -> Any:
    """Return a value that does not change any more: JAX's arrays as they are, others copied."""
    if type(value) is dict:
        return {key: _held((*path, key), one) for key, one in value.items()}
    return value if array_kind(value) == "jax" else snapshot(value)


def _zeros(value: Value) -> Any:
    """Return a value with zeros in place of arrays that were deleted."""
    if type(value) is dict:
        return {key: _zeros(one) for key, one in value.items()}
    if array_kind(value) == "jax" and value.is_deleted():
        place = value.sharding if len(value.sharding.device_set) > 1 else None  # one device is mostly the default
        return namespace(value).zeros(value.shape, dtype=value.dtype, device=place)
    return value


def _some_deleted(value: Value) -> bool:
    if type(value) is dict:
        return any(map(_some_deleted, value.values()))
    return array_kind(value) == "jax" and value.is_deleted()
