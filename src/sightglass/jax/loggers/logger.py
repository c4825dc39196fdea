"""Loggers: a state that identifies the origin of logs, and `log`, `tap` and `spool` that take this state.

Theory of operation:

1. A logger's state is a pytree with one leaf, the *lane*: a few integers made from a seed, a key or a name. `jax.vmap`
   over seeds makes one lane for each, and the logs of each lane are written separately.
2. `tap` and `spool` put one callback into the program (see `routed`). It only queues the logs: it computes nothing,
   never waits and never raises.
3. The first failure is reported as a warning; all are counted, and raised by `flush` and `close`. Loggers that are open
   when the program ends are closed then.
"""

from __future__ import annotations

import atexit
import functools
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from sightglass.core.counts import Statistics
from sightglass.core.errors import LogError, StorageError, warn_user
from sightglass.core.process.current_run import Handle
from sightglass.jax.logs.columns import Lanes, check_lanes, read, where_it_happened
from sightglass.jax.logs.logdict import logdict
from sightglass.jax.program.primitive import wanted_logs
from sightglass.jax.pytree import Array, PyTree
from sightglass.jax.spool import Reduce
from sightglass.jax.spool import spool as spooled

from .routed import COLLECTED, Routed, Words, by_lane, hand_over

# Long enough for a slow disk or network to take what is waiting; a program that ends should not hang for longer.
TIMEOUT_S: Final = 60.0
WORDS: Final = np.dtype(np.uint32)

_live: weakref.WeakSet[Logger] = weakref.WeakSet()


@functools.partial(jax.tree_util.register_dataclass, data_fields=["lane"], meta_fields=[])
@dataclass(frozen=True, slots=True)
class LoggerState:
    """Identifies the origin of logs; a pytree to pass to jitted and mapped functions as an argument.

    Attributes:
        lane: Shape (n_words,), uint32: a single 0, 1 followed by the words of a seed or a key, or 2 and the number of a
            name; with leading axes for several lanes.
    """

    lane: Array


class Logger(Handle, ABC):
    """Writes the logs of JAX programs; create it once, before the programs. Derive your own from `SinkLogger`."""

    def __init__(self) -> None:
        self._collected = Routed(hand_over, self._receive, COLLECTED, "")
        self._opened = Routed(hand_over, self._open_lanes, COLLECTED, "")
        _live.add(self)

    def _elsewhere(self) -> tuple[Any, ...]:
        return (MuteLogger,)

    @property
    @abstractmethod
    def closed(self) -> bool:
        """Whether the logger is closed."""

    @abstractmethod
    def statistics(self) -> Statistics:
        """Return how many batches of logs were delivered, lost, and are waiting; each callback or call is one batch."""

    def init(self, key: ArrayLike | None = None, *, seeds: Iterable[int | str] | None = None) -> LoggerState:
        """Return a state for `log`, `tap` and `spool`.

        Args:
            key: Distinguishes this state's logs from others: an integer seed of 32 or 64 bits, or a PRNG key. Use
                `jax.vmap` for several: each is a lane. `None` if there is only one.
            seeds: The names of several lanes, such as `range(8)`: the state has a leading axis, to map over.

        Raises:
            LogError: `key` is not one seed or key, `seeds` are not different names, or the logger is closed.

        Example:
            >>> from sightglass.jax import loggers
            >>> with loggers.ConsoleLogger() as logger:
            ...     logger.init(seeds=["small", "large"]).lane.shape
            (2, 2)
        """
        if seeds is not None:
            self._check_open()
            lanes = _lanes_of(seeds)
            for lane in lanes:
                self._receive(None, lane)
            return LoggerState(jnp.asarray(lanes))
        self._check_open()
        lane = _lane_of(key)
        # Opened now, because opening may take time, for example to begin a W&B run.
        if isinstance(lane, jax.core.Tracer):
            self._opened.at(lane)(logdict({"lane": lane[None]}))
        else:
            self._receive(None, np.asarray(lane))
        return LoggerState(lane)

    def log(self, state: LoggerState, logs: logdict, prefix: str = "") -> None:
        """Write logs: at once if they are values, or when the traced program runs.

        Args:
            state: Their origin; with leading lanes if the logs have them.
            logs: A result of `spool` or `sightglass.jax.log`.
            prefix: A text to put in front of each tag.

        Raises:
            LogError: `logs` is not a logdict, or the logger is closed.
        """
        self._check_open()
        if not isinstance(logs, logdict):
            raise LogError(f"Expected a logdict, as spool() returns, got {type(logs).__name__}")
        logs = logs.prefix(prefix) if prefix else logs
        if jnp.ndim(state.lane) == 1:
            logs = logdict._of(where_it_happened(logs._columns()))
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
        lanes: Lanes | None = None,
    ) -> Callable[..., Any]:
        """Write each log of a function as it happens, in program order.

        Args:
            f: Any function that JAX can trace, jitted or not.
            state: The origin of the logs.
            argnames: The keys to collect; `None` for all except explicit ones.
            prefix: A text to put in front of each tag.
            lanes: What is written of the lanes of a `jax.vmap` inside `f`; see `sightglass.jax.spool`.

        Returns:
            A function with the same results. An outer `spool` or `tap` sees the same logs.

        Raises:
            LogError: The state has several lanes, or the logger is closed.
        """
        return Routed(f, self._receive, wanted_logs(argnames), prefix, lanes=check_lanes(lanes)).at(
            self._one_lane(state)
        )

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
        lanes: Lanes | None = None,
    ) -> Callable[..., Any]:
        """Collect a function's logs and write them when the function returns.

        Args:
            f: Any function that JAX can trace, jitted or not.
            state: The origin of the logs.
            keep_logs: Whether an outer `spool` or `tap` sees these logs as well.
            every: Keep only each k-th event of a key.
            reduce: Reduce each key inside the loops; see `sightglass.jax.spool`.
            prefix: A text to put in front of each tag.
            argnames: The keys to collect; `None` for all except explicit ones.
            capacity: How many events to keep of logs in a while loop.
            lanes: What is written of the lanes of a `jax.vmap` inside `f`; see `sightglass.jax.spool`.

        Returns:
            A function with the results of `f` alone.

        Raises:
            LogError: The state has several lanes, or the logger is closed. The function raises the same errors as one
                from `sightglass.jax.spool`.
        """
        collected: Any = spooled(f, argnames, keep_logs, every, reduce, prefix, capacity, lanes)

        @functools.wraps(f, updated=())
        def collecting(*args: PyTree, **kwargs: PyTree) -> Any:
            out, logs = collected(*args, **kwargs)
            hand_over(logs)
            return out

        return Routed(collecting, self._receive, COLLECTED, "").like(collected).at(self._one_lane(state))

    def flush(self, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until running programs have delivered their logs and these are written.

        Raises:
            StorageError: The logs are not written after `timeout_s`, or some could not be written.
        """
        jax.effects_barrier()
        self._flush(timeout_s)

    def close(self, timeout_s: float = TIMEOUT_S) -> None:
        """Write the remaining logs and close; closing twice does nothing. Raises the same errors as `flush`."""
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
            warn_user(str(failure))

    @abstractmethod
    def _receive(self, logs: logdict | None, lane: Words | None = None) -> None:
        """Queue logs; never raises and never waits.

        Args:
            logs: Logs from a callback, which contain their lanes, or, with `lane`, any logs of NumPy arrays; `None` to
                only open the lane.
            lane: Their origin; shape (*lanes, n_words).
        """

    @abstractmethod
    def _flush(self, timeout_s: float) -> None:
        """Write the queued logs."""

    @abstractmethod
    def _close(self, timeout_s: float) -> None:
        """Write the queued logs and close."""

    def _open_lanes(self, logs: logdict) -> None:
        for lane, _ in by_lane(logs):
            self._receive(None, lane)

    def _check_open(self) -> None:
        if self.closed:
            raise LogError(f"This {type(self).__name__} is closed")

    def _one_lane(self, state: LoggerState) -> Array:
        self._check_open()
        if not isinstance(state, LoggerState):
            raise LogError(f"Expected the state that init() returns, got {type(state).__name__}")
        if jnp.ndim(state.lane) != 1:
            raise LogError(
                f"This state has lanes of shape {jnp.shape(state.lane)[:-1]}: pass it to a function under jax.vmap"
            )
        return state.lane


def _lanes_of(seeds: Iterable[int | str]) -> Words:
    """Return the lanes with these names, shape (n, 2)."""
    every = [] if isinstance(seeds, str) else list(seeds)
    names = [str(seed) for seed in every if isinstance(seed, int | str | np.integer)]
    if not names or len(set(names)) < len(every) or not all(names):
        raise LogError(f"Expected different names as seeds=, such as range(8), got {seeds!r:.80}")
    return np.array([[2, number_of(name)] for name in names], WORDS)


def _lane_of(key: ArrayLike | None) -> jax.Array:
    """Return the lane of a seed or a key.

    Raises:
        LogError: `key` is neither, or several of them.
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


def close_first_at_exit() -> None:
    """Close loggers at exit before modules that are loaded by now: exit handlers run last to first."""
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
        warn_user("; ".join(failures))


close_first_at_exit()


# The names of lanes: their seeds, the digits of their keys, or the names that `init` was given.

_names: Final[dict[str, int]] = {}


def number_of(name: str) -> int:
    """Return the number of a given name, the same for all loggers of the process."""
    return _names.setdefault(name, len(_names))


def name_of(words: Iterable[int]) -> str:
    """Return the name of a lane: its seed, the hexadecimal digits of its key, the name it was given, or empty.

    >>> name_of([0]), name_of([1, 7]), name_of([1, 0, 7]), name_of([1, 9, 7]), name_of([2, number_of("large")])
    ('', '7', '7', '0000000900000007', 'large')
    """
    kind, *digits = map(int, words)
    if not kind:
        return ""
    *high, low = digits
    if kind == 2:
        return list(_names)[low]
    return "".join(f"{word:08x}" for word in digits) if any(high) else str(low)


# Several loggers as one.


class MuteLogger(Logger):
    """What a logger becomes in another process, inside an object that is sent there: it writes nothing."""

    closed = False

    def statistics(self) -> Statistics:
        """Return that nothing was delivered."""
        return Statistics(n_events=0)

    def _receive(self, logs: logdict | None, lane: Words | None = None) -> None:
        pass

    def _flush(self, timeout_s: float) -> None:
        pass

    def _close(self, timeout_s: float) -> None:
        pass


class MultiLogger(Logger):
    """Passes the same logs to several loggers, with one callback in the program for all.

    If one fails, the others continue. Closing it closes them all.

    Args:
        *loggers: At least one logger.

    Raises:
        TypeError: There is no logger.
    """

    def __init__(self, *loggers: Logger) -> None:
        if not loggers:
            raise TypeError("Expected at least one logger, such as MultiLogger(ConsoleLogger(), SaveLogger(path))")
        self._loggers = loggers
        super().__init__()

    @property
    def closed(self) -> bool:
        """Whether all of them are closed."""
        return all(logger.closed for logger in self._loggers)

    def statistics(self) -> Statistics:
        """Return the sums over all loggers."""
        every = [logger.statistics() for logger in self._loggers]
        return Statistics(
            n_events=sum(one.n_events for one in every),
            n_dropped=sum(one.n_dropped for one in every),
            n_waiting=sum(one.n_waiting for one in every),
            last_error=next((one.last_error for one in every if one.last_error), ""),
        )

    def init(self, key: ArrayLike | None = None, *, seeds: Iterable[int | str] | None = None) -> LoggerState:
        """Return one state for all of them; see `Logger.init`."""
        seeds = None if seeds is None else list(seeds)
        # The lane depends only on the key, or the names.
        return [logger.init(key, seeds=seeds) for logger in self._loggers][-1]

    def _receive(self, logs: logdict | None, lane: Words | None = None) -> None:
        for logger in self._loggers:
            logger._receive(logs, lane)

    def _flush(self, timeout_s: float) -> None:
        self._each(lambda logger: logger._flush(timeout_s))

    def _close(self, timeout_s: float) -> None:
        self._each(lambda logger: logger.close(timeout_s))

    def _each(self, call: Callable[[Logger], None]) -> None:
        failures = []
        for logger in self._loggers:
            try:
                call(logger)
            except StorageError as error:
                failures.append(str(error))
        if failures:
            raise StorageError("; ".join(failures))
