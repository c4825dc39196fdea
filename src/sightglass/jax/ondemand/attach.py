"""Looking into steps that were never wrapped: `sightglass.init(jax_attach="global")`.

Theory of operation:

1. Each log, wherever it stands, is an event "jax" of its own. It is answered by the queries that read nothing but what
   it gives.
2. The switch is the global value of the user context that stands in JAX's cache keys. So to begin to ask, and to end,
   makes JAX trace and compile anew each jitted function that is called afterwards. Clients are told so, and confirm.
3. Changes are gathered: the switch moves at most once in ten seconds.
4. A query is evaluated on the tracers at the log's place, and its result leaves through a raw callback. Under `vmap`
   one event has the results of all lanes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from sightglass.core.errors import QueryError
from sightglass.core.threads import Worker
from sightglass.jax.program.primitive import MARK, Site, WantedLogs, arrays, wanted
from sightglass.jax.program.walk import Track
from sightglass.jax.tap import LogSpec, tap_p
from sightglass.query.pipeline import PerEventResult
from sightglass.query.query import Query
from sightglass.query.stages import Group, Per, Reduce
from sightglass.training.commands import VariantPlan
from sightglass.training.run import Run, current, when_begun, wiring

from .live_step import offered
from .occurrence import Occurrence
from .variant import Asked, QueriedEvent

EVENT: Final = "jax"
PAUSE_S: Final = 10.0
PRICE: Final = (
    "Event 'jax' is what any jitted function logs. To ask for it makes JAX trace and compile again every jitted "
    "function that is called from now on, and once more when nobody asks any longer: the run stands still for as long "
    "as that takes."
)
SITE: Final = Site(keys=(), steps=(), tree=None, explicit=False, event=EVENT, where="")


class Attached:
    """The logs of all jitted functions of a process, as one event of a run."""

    event = EVENT

    def __init__(self, run: Run) -> None:
        wires = wiring(run)
        self._emitter = wires.emitter
        self._clock_s = wires.clock.monotonic
        self._asked: frozenset[str] = frozenset()
        self._changed_s = -math.inf
        self._worker = Worker("attach", self._switch)
        with self._emitter.turn():
            self._channel = self._emitter.demand.channel(EVENT, "attached")
            self._channel.describe_next = False
            self._channel.price = wires.refuse_variants or PRICE
            self._refusal = wires.refuse_variants
            self._emitter.steps.append(self)
            self._emitter.demand.refresh()

    def asked(self) -> None:
        """See that what is asked has changed, maybe."""
        if self._asked != frozenset(answer.query.key for answer in self._channel.answers):
            self._worker.wake()

    def survey(self) -> bool:
        """Return that nothing is to be found out: what is logged shows when it is traced."""
        return True

    def propose(self) -> VariantPlan:
        """Propose nothing: programs of several processes cannot be attached to."""
        return VariantPlan()

    def adopt(self, plan: VariantPlan) -> None:
        """Follow no plan."""

    def flush(self, timeout_s: float) -> None:
        """Wait for the callbacks that are under way."""
        jax.effects_barrier()

    def close(self) -> None:
        """See the run end: nobody listens any more."""
        if wanted.value is not None and isinstance(wanted.value.listener, _Listener):
            wanted.set_global(None)
        when_begun(attach)

    def _switch(self) -> float | None:
        """Let those be answered who ask now; runs on the worker's thread, which is told how long to sleep."""
        wait_s = self._changed_s + PAUSE_S - self._clock_s()
        if wait_s > 0:
            return wait_s
        with self._emitter.turn():
            answers = [answer for answer in self._channel.answers if not answer.suspended]
            for answer in answers:
                problem = self._refusal or _unfit(answer.query)
                if problem:
                    answer.refuse(QueryError(problem))
            asked = {a.query.key: Asked(query=a.query, functions=a.functions) for a in answers if not a.suspended}
        self._emitter.wake()
        if self._asked != frozenset(asked) and not self._emitter.closed:
            self._asked = frozenset(asked)
            self._changed_s = self._clock_s()
            listener = _Listener(self, tuple(asked.values()))
            wanted.set_global(WantedLogs(False, frozenset(), listener=listener) if asked else None)
        return None

    def seen(self, values: Mapping[str, Any]) -> None:
        """See what a log gives while it is traced."""
        with self._emitter.turn():
            for name, value in values.items():
                self._channel.offered[name] = offered(value)

    def deliver(self, part: QueriedEvent, operands: Sequence[Any]) -> None:
        """Hand over what a callback brought; on a thread of XLA's."""
        wall_time = self._emitter.wall_time()

        def settle(error: BaseException | None) -> None:
            index = self._channel.next_index()
            step, steps = part.steps(operands)
            step = index if step is None else np.ravel(step)[0]
            heads = {}
            for answer in self._channel.answers:
                key = answer.query.key
                head = part.head(key, operands) if key in part.keys else PerEventResult(None, False, (), (), False)
                heads[answer] = [(index, step, wall_time, head, steps)]
            self._emitter.settle(self._channel, heads, n_events=1)

        self._emitter.defer_loop(settle)

    def refuse(self, part: QueriedEvent) -> None:
        """Give up the queries that cannot be evaluated."""
        if part.refused:
            with self._emitter.turn():
                for answer in self._channel.answers:
                    if answer.query.key in part.refused:
                        answer.refuse(part.refused[answer.query.key])
            self._emitter.wake()


def _unfit(query: Query) -> str:
    """Say why a query cannot be asked of the event, or nothing."""
    for stage in query.stages:
        if isinstance(stage, Reduce) and isinstance(stage.window, Group | Per):
            return (
                "Event 'jax' has no groups, and no other event delimits it: name a window for "
                f"{stage.name}, such as {stage.name}(every=100)"
            )
    return ""


class _Listener:
    """Hears of each log while a program is traced, for the queries of the moment. Equal to itself alone."""

    def __init__(self, attached: Attached, asked: Sequence[Asked]) -> None:
        self._attached = attached
        self._asked = asked

    def hear(self, data: Mapping[str, Any], steps: Mapping[str, Any], *, explicit: bool, where: str) -> None:
        """Put a callback in the place of a log, if a query is answered by it."""
        asked = [one for one in self._asked if one.answered_by(data) and not (explicit and one.names is None)]
        if not asked:
            return
        names = data if any(one.names is None for one in asked) else {name for one in asked for name in one.names or ()}
        values = {name: arrays(data[name], f"of {name!r} in the log at {where}") for name in names}
        values = {name: value for name, value in values.items() if jax.tree.leaves(value)}
        tracks = {name: _once(value) for name, value in values.items()}
        if steps:
            tracks[MARK] = _once({name: arrays(value, f"of step {name!r} at {where}") for name, value in steps.items()})
        occurrence = Occurrence(event=EVENT, body=None, n_per_call=None, offers={}, unfit={})
        part = QueriedEvent(occurrence, asked, lambda delivery: None)
        operands = part.arrays(tracks)
        self._attached.seen(values)
        self._attached.refuse(part)
        if part.keys:
            tree = jax.tree.structure(operands)
            kind = LogSpec(SITE, (), (), 0, False, len(operands), tree)
            tap_p.bind(jnp.int32(0), *operands, kinds=(kind,), tap=_Callback(self._attached, part))


class _Callback:
    """What a raw callback hands its arrays to; the interface of `tap_p`."""

    def __init__(self, attached: Attached, part: QueriedEvent) -> None:
        self._attached = attached
        self._part = part

    def deliver(self, kinds: Sequence[LogSpec], operands: Sequence[Any]) -> None:
        """Take what a callback brought; under a mask, of the lanes for which the log happened."""
        (kind,) = kinds
        if kind.masked:
            mask, *operands = operands
            if not np.any(mask):
                return
            operands = [operand[mask] for operand in operands] if kind.n_batch else operands
        self._attached.deliver(self._part, list(operands))


def _once(value: Any) -> Track:
    return Track(jax.tree.map(lambda leaf: leaf[None], value), {}, None)


def attach(run: Run) -> None:
    """Let a run's clients ask for the logs of all jitted functions, if it was begun so; else wait for the next run."""
    if wiring(run).jax_attach == "global" and not run.disabled:
        Attached(run)
    else:
        when_begun(attach)


_begun = current()
if _begun is None:
    when_begun(attach)
else:
    attach(_begun)
