"""`live`: clients of a run query the logs of a compiled step while it runs.

Theory of operation:

1. Without a query, a call runs the user's own jitted function, unchanged.
2. With one, a *variant* of the function with the query compiled into it is traced and compiled on a background thread,
   from shapes and shardings. The old program runs meanwhile; the variant takes over between two calls. After the last
   subscription ends, the user's own function runs again.
3. A bounded number of variants is cached: repeating a query costs nothing.
4. Query results are copied asynchronously and read by the drain thread. The training thread never waits.
5. The number of a call is the index of the events that happen once per call. Commands and `pause` apply between calls.
6. Clients see the events of a step once it has been called.
"""

from __future__ import annotations

import functools
import itertools
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from sightglass.core.errors import LogError, warn
from sightglass.jax.program import compat
from sightglass.jax.program.traced_function import is_wrapped, pure
from sightglass.training.process_runs import current, when_begun
from sightglass.training.run import Run, wiring

from .live_step import LiveStep, is_held
from .step_variants import LoopRows

P = ParamSpec("P")
R = TypeVar("R")


_numbers = itertools.count()


class Live(Generic[P, R]):
    """A jitted function whose logs clients of a run can query. Created by `live`."""

    def __init__(
        self,
        function: Callable[P, R],
        run: Run | None,
        event: str,
        n_rounds: Callable[[Sequence[Any]], int] | None = None,
        rows: LoopRows | None = None,
    ) -> None:
        if isinstance(function, types.MethodType):
            raise LogError(
                f"Expected a function that jax.jit returned, got the bound method {function!r:.200}: "
                "write live(jax.jit(…)) in the class, around the function"
            )
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._event = event
        self._number = next(_numbers)
        self._n_rounds = n_rounds
        self._rows = rows
        self._step: LiveStep | None = None
        self._can_query = not isinstance(function, jax.stages.Compiled)
        self._pure = pure(function) if is_wrapped(function) else None
        if self._can_query and self._pure is None:
            compat.options_around(function)
        self._detach()
        begun = run or current()
        if begun is not None and not begun.disabled:
            self._attach(begun)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, or its variant with queries compiled into it."""
        count = self._idle.get(self._event)
        if count is None:
            step = self._step or self._attach_to_next()
            self._called_s = self._monotonic()
            return step.call(args, kwargs) if step else self._function(*args, **kwargs)
        count()
        self._called_s = self._monotonic()
        return self._function(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the jitted function, such as `lower`."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._function, name)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Bind like a function when it is an attribute of a class."""
        return self if instance is None else functools.partial(self, instance)

    @property
    def stopping(self) -> bool:
        """Whether a client has asked the run to stop."""
        return self._step is not None and self._step.stopping

    def _detach(self, replaced: bool = False) -> None:
        """Run without queries until the next run begins; say so at the next call if another step took the event."""
        self._monotonic: Callable[[], float] = float
        self._replaced = replaced
        self._idle: Mapping[str, Callable[[], int]] = {} if replaced else {self._event: int}
        self._step = None
        self._next: weakref.ref[Run] | None = None
        begun = weakref.WeakMethod(self._begun)
        when_begun(lambda run: on_begin(run) if (on_begin := begun()) else None)

    def _begun(self, run: Run) -> None:
        """Attach to a new run at the next call. A step that is never called again claims no event."""
        if self._step is None:
            self._next, self._idle = weakref.ref(run), {}

    def _attach_to_next(self) -> LiveStep | None:
        """Attach to the run that began, if it has not ended."""
        run = None if self._next is None else self._next()
        later = run is not None and is_held(run, self._event, after=self._number)
        if later or (self._replaced and run is None):
            warn(
                f"The live step of the event {self._event!r} was replaced by another one, and answers no more: where "
                f"both are called, give each an event of its own, such as live(step, event='validation')"
            )
        if later or run is None or run.disabled or wiring(run).telemetry.closed:
            self._detach()
        else:
            self._attach(run)
        return self._step

    def _attach(self, run: Run) -> None:
        ended = weakref.WeakMethod(self._detach)
        self._step = LiveStep(
            self._function, self._event, run, ended,
            number=self._number, can_query=self._can_query, pure=self._pure, n_rounds=self._n_rounds, rows=self._rows,
        )  # fmt: skip
        self._monotonic = monotonic = wiring(run).telemetry.clock.monotonic
        self._called_s = monotonic()
        live = weakref.ref(self)
        self._step.called_by(lambda: monotonic() - it._called_s if (it := live()) else 0.0)
        self._idle = {} if self._n_rounds else wiring(run).telemetry.subscriptions.idle_steps


def live(f: Callable[P, R], run: Run | None = None, event: str = "batch") -> Live[P, R]:
    """Let clients of a run query the logs of a jitted function while it runs.

    Without a query, the function runs unchanged. When a client sends one, a variant with the query compiled into it is
    compiled in the background and takes over between two calls. Only the query's results leave the device.

    Args:
        f: A function that `jax.jit` returned; its options apply: donated and static arguments, shardings. Or one of
            `nnx.jit` or `eqx.filter_jit`; while it is queried, its arguments are not donated.
        run: The run; `None` for the newest one, or the next to begin.
        event: The name of the event that each call of the function is. A live step replaces an earlier one of its
            event, so that a cell of a notebook may run again.

    Returns:
        A function to call in place of `f`. Its logs are observables of `event`, once per call. Those in a loop whose
        body is the function `update` are observables of the event "batch_update", once per round; a log may also name
        its event.

    Raises:
        LogError: `f` is not such a function.
        ValueError: The run observes events of this name, or they are a loop of another live step.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from sightglass.jax import live, log
        >>> @jax.jit
        ... def train_step(w, x):
        ...     log({"loss": (w * x) ** 2})
        ...     return w - 0.1 * w * x * x
        >>> step = live(train_step)
        >>> float(step(jnp.float32(1), jnp.float32(1)))
        0.8999999761581421
    """
    return Live(f, run, event)


# `agree`: the broadcast that `sightglass.Ranks` needs in a JAX program of several processes.


def agree(data: bytes) -> bytes:
    """Return what rank 0 called this with, on every rank; for `sightglass.Ranks(agree=…)`.

    All ranks must call it at the same point of the program. It runs one or two small collectives on the devices, so it
    costs a step about as much as any other collective that waits.

    Args:
        data: Any bytes; those of the other ranks do not matter.
    """
    n_bytes = int(multihost_utils.broadcast_one_to_all(np.int32(len(data))))
    buffer = np.zeros(n_bytes, np.uint8)
    buffer[: min(n_bytes, len(data))] = np.frombuffer(data, np.uint8)[:n_bytes]
    return bytes(np.asarray(multihost_utils.broadcast_one_to_all(buffer)).astype(np.uint8))
