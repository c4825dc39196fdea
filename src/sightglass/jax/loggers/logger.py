"""Loggers as programs see them: a state that says whose logs these are, and `log`, `tap` and `spool` that take it.

Theory of operation:

1. A logger's state is a pytree with one leaf, the *lane*: a few integers made of a seed or a key. `jax.vmap` over seeds
   makes one lane for each, and each lane's logs go to a place of their own.
2. `tap` and `spool` put one callback into the program (see `routed`). It only passes on what it is handed: nothing is
   computed there, nothing waits, nothing is raised.
3. Failures are warned of once, counted, and raised by `flush` and `close`. Loggers that are still open when the program
   ends are closed then.
"""

from __future__ import annotations

import atexit
import functools
import warnings
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import jax
import jax.numpy as jnp
import numpy as np

from sightglass.core.errors import LogError, StorageError
from sightglass.jax.logs.logdict import logdict
from sightglass.jax.logs.reading import read
from sightglass.jax.program.primitive import wanted_logs
from sightglass.jax.spool import Reduce
from sightglass.jax.spool import spool as spooled
from sightglass.storage.delivery_queue import DeliveryStatistics

from .routed import COLLECTED, Routed, hand_over, parted

TIMEOUT_S: Final = 60.0
WORDS: Final = np.dtype(np.uint32)

_live: weakref.WeakSet[Logger] = weakref.WeakSet()


@functools.partial(jax.tree_util.register_dataclass, data_fields=["lane"], meta_fields=[])
@dataclass(frozen=True, slots=True)
class LoggerState:
    """Whose logs these are; a pytree, to be handed to jitted and mapped functions as an argument.

    Attributes:
        lane: Shape (n_words,), uint32: 0 alone, or 1 and the words of a seed or a key; with the axes in front that
            `jax.vmap` gave it.
    """

    lane: Any


class Logger(ABC):
    """Writes what JAX programs log; made once, before the programs. See `SinkLogger` for one of your own."""

    def __init__(self) -> None:
        self._collected = Routed(hand_over, self._receive, COLLECTED, "")
        self._opened = Routed(hand_over, self._open_lanes, COLLECTED, "")
        _live.add(self)

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether nothing is written any more."""

    @abstractmethod
    def statistics(self) -> DeliveryStatistics:
        """Return what became of the logs so far: of callbacks, that is, and of calls of `log` and `init`."""

    def init(self, key: Any = None) -> LoggerState:
        """Make the state that `log`, `tap` and `spool` take.

        Args:
            key: What tells this state's logs from those of others: an integer seed of 32 or 64 bits, or a PRNG key.
                Under `jax.vmap` over several, one lane for each. `None` if there is only one.

        Raises:
            LogError: The key is no single seed or key, or the logger is closed.
        """
        self._check_open()
        lane = _lane_of(key)
        # Opened now, so that what takes its time, such as beginning a run of W&B, is done when the first log comes.
        if isinstance(lane, jax.core.Tracer):
            self._opened.at(lane)(logdict({"lane": lane[None]}))
        else:
            self._receive(None, np.asarray(lane))
        return LoggerState(lane)

    def log(self, state: LoggerState, logs: logdict, prefix: str = "") -> None:
        """Write logs: at once if they are values, else when the program that is being traced has them.

        Args:
            state: Whose they are; with the lanes in front if the logs have them in front, too.
            logs: Such as `spool` and `sightglass.jax.log` return.
            prefix: What to put in front of each tag.

        Raises:
            LogError: These are no logs, or the logger is closed.
        """
        self._check_open()
        if not isinstance(logs, logdict):
            raise LogError(f"Expected a logdict, such as spool() returns, got {type(logs).__name__}")
        logs = logs.prefix(prefix) if prefix else logs
        if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves((state, logs))):
            self._collected.at(self._one_lane(state))(logs)
        else:
            self._receive(read(logs), np.asarray(state.lane))

    def tap(
        self,
        f: Callable[..., Any],
        state: LoggerState,
        *,
        argnames: str | Sequence[str] | None = None,
        prefix: str = "",
    ) -> Callable[..., Any]:
        """Write each log of a function as it happens, in program order.

        Args:
            f: Any function that JAX can trace, jitted or not.
            state: Whose logs they are.
            argnames: The keys to take; `None` for all but explicit ones.
            prefix: What to put in front of each tag.

        Returns:
            A function with the same results. A `spool` or `tap` further out sees the same logs.

        Raises:
            LogError: The state has several lanes, or the logger is closed.
        """
        return Routed(f, self._receive, wanted_logs(argnames), prefix).at(self._one_lane(state))

    def spool(
        self,
        f: Callable[..., Any],
        state: LoggerState,
        *,
        keep_logs: bool = False,
        every: int | None = None,
        reduce: Reduce | Mapping[str, Reduce] | None = None,
        prefix: str = "",
        argnames: str | Sequence[str] | None = None,
        capacity: int | None = None,
    ) -> Callable[..., Any]:
        """Collect what a function logs, and write it when the function is done.

        Args:
            f: Any function that JAX can trace, jitted or not.
            state: Whose logs they are.
            keep_logs: Whether a `spool` or `tap` further out sees these logs as well.
            every: Keep each k-th event of a key only.
            reduce: Reduce each key inside the loops; see `sightglass.jax.spool`.
            prefix: What to put in front of each tag.
            argnames: The keys to take; `None` for all but explicit ones.
            capacity: How many events to keep of what is logged in a while loop.

        Returns:
            A function with the results of `f` alone.

        Raises:
            LogError: The state has several lanes, or the logger is closed. What the function raises is what one made
                by `sightglass.jax.spool` raises.
        """
        collected: Any = spooled(f, argnames, keep_logs, every, reduce, prefix, capacity)

        @functools.wraps(f, updated=())
        def collecting(*args: Any, **kwargs: Any) -> Any:
            out, logs = collected(*args, **kwargs)
            hand_over(logs)
            return out

        return Routed(collecting, self._receive, COLLECTED, "").like(collected).at(self._one_lane(state))

    def flush(self, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until the programs under way have logged, and all of it is written.

        Raises:
            StorageError: It is not in time, or something could not be written.
        """
        jax.effects_barrier()
        self._flush(timeout_s)

    def close(self, timeout_s: float = TIMEOUT_S) -> None:
        """Write what is left, and end; closing twice does nothing. Errors as in `flush`."""
        try:
            if not self.closed:
                jax.effects_barrier()
        finally:
            _live.discard(self)
            self._close(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.close()
        except StorageError as failure:
            if kind is None:
                raise
            warnings.warn(str(failure), RuntimeWarning, stacklevel=2)

    @abstractmethod
    def _receive(self, logs: logdict | None, lane: Any = None) -> None:
        """Take logs in; never raises, never waits.

        Args:
            logs: As a callback was handed them, or, with `lane`, as they are, with NumPy arrays; `None` to open the
                lane only.
            lane: Whose they are; shape (*lanes, n_words).
        """

    @abstractmethod
    def _flush(self, timeout_s: float) -> None:
        """See that what was taken in is written."""

    @abstractmethod
    def _close(self, timeout_s: float) -> None:
        """Write what was taken in, and end."""

    def _open_lanes(self, logs: logdict) -> None:
        for lane, _ in parted(logs):
            self._receive(None, lane)

    def _check_open(self) -> None:
        if self.closed:
            raise LogError(f"This {type(self).__name__} is closed")

    def _one_lane(self, state: LoggerState) -> Any:
        self._check_open()
        if not isinstance(state, LoggerState):
            raise LogError(f"Expected the state that init() returns, got {type(state).__name__}")
        if jnp.ndim(state.lane) != 1:
            raise LogError(
                f"This state is that of {jnp.shape(state.lane)[:-1]} lanes: hand it to a function under jax.vmap"
            )
        return state.lane


def _lane_of(key: Any) -> Any:
    """Make a lane of a seed or a key.

    Raises:
        LogError: It is none, or several.
    """
    if key is None:
        return jnp.zeros(1, WORDS)
    words = jax.random.key_data(key) if jnp.issubdtype(getattr(key, "dtype", int), jax.dtypes.prng_key) else key
    words = jnp.asarray(words)
    if not jnp.issubdtype(words.dtype, jnp.integer):
        raise LogError(f"Expected an integer seed or a PRNG key, got {words.dtype}")
    if words.ndim == 0:
        wide = words.dtype.itemsize == 8
        words = jnp.stack([words >> 32, words]) if wide else words[None]
    elif words.dtype != WORDS or words.ndim > 1:
        raise LogError(f"Expected one seed or key, got shape {words.shape}: use jax.vmap(logger.init) for several")
    return jnp.concatenate([jnp.ones(1, WORDS), words.astype(WORDS)])


def last_of_all() -> None:
    """See that loggers are closed at exit before what was loaded until now ends itself: the last is called first."""
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def _close_all() -> None:
    failures = []
    for logger in list(_live):
        try:
            logger.close()
        except StorageError as error:
            failures.append(str(error))
    if failures:
        warnings.warn("; ".join(failures), RuntimeWarning, stacklevel=1)


last_of_all()
