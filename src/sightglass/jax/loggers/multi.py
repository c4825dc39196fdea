"""Several loggers as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sightglass.core.errors import StorageError
from sightglass.jax.logs.logdict import logdict
from sightglass.storage.delivery_queue import DeliveryStatistics

from .logger import Logger, LoggerState


class MultiLogger(Logger):
    """Hands the same logs to several loggers, with one callback in the program for all.

    A failure of one is none of the others'. Closing it closes them all.

    Args:
        *loggers: At least one.

    Raises:
        TypeError: At the call: there is none.
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

    def statistics(self) -> DeliveryStatistics:
        """Return the sums of theirs."""
        every = [logger.statistics() for logger in self._loggers]
        return DeliveryStatistics(
            n_delivered=sum(one.n_delivered for one in every),
            n_lost=sum(one.n_lost for one in every),
            n_waiting=sum(one.n_waiting for one in every),
            last_error=next((one.last_error for one in every if one.last_error), ""),
        )

    def init(self, key: Any = None) -> LoggerState:
        """Make the one state that all of them take; see `Logger.init`."""
        return [logger.init(key) for logger in self._loggers][-1]  # what tells lanes apart is the same for all

    def _receive(self, logs: logdict | None, lane: Any = None) -> None:
        for logger in self._loggers:
            logger._receive(logs, lane)

    def _flush(self, timeout_s: float) -> None:
        self._each(lambda logger: logger._flush(timeout_s))

    def _close(self, timeout_s: float) -> None:
        self._each(lambda logger: logger.close(timeout_s))

    def _each(self, act: Callable[[Logger], None]) -> None:
        failures = []
        for logger in self._loggers:
            try:
                act(logger)
            except StorageError as error:
                failures.append(str(error))
        if failures:
            raise StorageError("; ".join(failures))
