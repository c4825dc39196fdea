"""Several loggers as one."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from jax.typing import ArrayLike

from sightglass.core.counts import Statistics
from sightglass.core.errors import StorageError
from sightglass.jax.logs.logdict import logdict

from .logger import Logger, LoggerState
from .routed import Words


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
