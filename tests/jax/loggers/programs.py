"""What the tests of loggers share: a program that logs, and a logger that remembers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from sightglass.jax import log
from sightglass.jax.loggers import SinkLogger


def train(x: Any) -> Any:
    """Log `loss` = (1, 2, 3)·x at steps 0, 10, 20 of epochs 0, 1, 2."""

    def body(total: Any, i: Any) -> Any:
        log({"loss": (i + 1) * x}, step=10 * i, epoch=i)
        return total + x, None

    return jax.lax.scan(body, jnp.float32(0), jnp.arange(3))[0]


def losses(x: float) -> list[tuple[int, float]]:
    """Return what `train` logs, by step."""
    return [(0, x), (10, 2 * x), (20, 3 * x)]


class Memory(SinkLogger):
    """Remembers the records of each lane.

    Attributes:
        records: By lane.
        calls: Which calls its sinks have had.
    """

    def __init__(self) -> None:
        self.records: dict[str, list[Any]] = {}
        self.calls: list[str] = []
        super().__init__()

    def open(self, name: str) -> Any:
        self.records[name] = []
        return _Remembering(self, name)

    def seen(self, name: str = "") -> list[tuple[str, Any, Any]]:
        """Return the tags, steps and values of a lane, when all is there."""
        self.flush()
        return [(r.tag, r.step, r.value.tolist()) for r in self.records.get(name, [])]


class _Remembering:
    def __init__(self, logger: Memory, name: str) -> None:
        self._logger = logger
        self._name = name

    def write(self, records: Any) -> None:
        self._logger.records[self._name] += records

    def flush(self, timeout_s: float) -> None:
        self._logger.calls.append(f"flush {self._name}".rstrip())

    def close(self, timeout_s: float) -> None:
        self._logger.calls.append(f"close {self._name}".rstrip())
