"""What every logger does: each of them, and all together, by tap and by spool, plain, jitted and over seeds."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from rich.console import Console

import sightglass as sg
from sightglass.jax.loggers import (
    ConsoleLogger,
    Logger,
    MultiLogger,
    RunLogger,
    SaveLogger,
    TensorBoardLogger,
    WandBLogger,
)

from ...storage.wandb_files import read_all  # noqa: TID252  tests are no package
from .programs import losses, train

Series = list[tuple[float, float]]
Seen = Callable[[str], Series]
Make = Callable[[Path, ExitStack], tuple[Logger, Seen]]


def console(path: Path, stack: ExitStack) -> tuple[Logger, Seen]:
    file = io.StringIO()

    def seen(lane: str) -> Series:
        start = rf"^{re.escape(f'[{lane}] ') if lane else ''}step "
        found = re.findall(start + r"(\d+)  epoch \d  p/loss (\S+)$", file.getvalue(), flags=re.MULTILINE)
        return [(int(step), float(value)) for step, value in found]

    return ConsoleLogger(Console(file=file, width=200)), seen


def save(path: Path, stack: ExitStack) -> tuple[Logger, Seen]:
    def seen(lane: str) -> Series:
        with sg.open(path / "saved" / lane) as run:
            return [(record.step, float(record.value)) for record in run.series("p/loss")]

    return SaveLogger(path / "saved"), seen


def tensorboard(path: Path, stack: ExitStack) -> tuple[Logger, Seen]:
    def seen(lane: str) -> Series:
        accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
        events = accumulator.EventAccumulator(str(path / "tb" / lane)).Reload()
        return [(event.step, event.value) for event in events.Scalars("p/loss")]

    return TensorBoardLogger(path / "tb"), seen


def wandb(path: Path, stack: ExitStack) -> tuple[Logger, Seen]:
    pytest.importorskip("wandb")

    def seen(lane: str) -> Series:
        runs = {run.name: run for run in read_all(path)}
        return runs[f"r-{lane}" if lane else "r"].series("p/loss")

    return WandBLogger(name="r", dir=str(path), mode="offline", settings={"silent": True}), seen


def run(path: Path, stack: ExitStack) -> tuple[Logger, Seen]:
    run = stack.enter_context(sg.init("job", dir=path / "runs"))

    def seen(lane: str) -> Series:
        run.flush()
        with sg.open(run.directory) as kept:
            series = kept.series(f"{lane}/p/loss" if lane else "p/loss")
            return [(record.step, float(record.value)) for record in series]

    return RunLogger(), seen


def several(path: Path, stack: ExitStack) -> tuple[Logger, Seen]:
    every = [make(path, stack) for make in MAKE]

    def seen(lane: str) -> Series:
        first, *rest = (seen(lane) for _, seen in every)
        assert rest == [first] * len(rest)
        return first

    return MultiLogger(*(logger for logger, _ in every)), seen


MAKE: list[Make] = [console, save, tensorboard, wandb, run]


WAYS = [("tap", False), ("tap", True), ("spool", False), ("spool", True)]
# A run of W&B takes seconds: alone, it has half of the ways, and the others together with all loggers.
WAYS_OF = dict.fromkeys(MAKE, WAYS) | {wandb: WAYS[::3], several: WAYS[1:3]}


@pytest.mark.parametrize(
    ("make", "way", "jitted"),
    [
        pytest.param(make, way, jitted, id=f"{make.__name__}-{way}-{'jitted' if jitted else 'plain'}")
        for make, ways in WAYS_OF.items()
        for way, jitted in ways
    ],
)
class TestEveryLogger:
    @pytest.fixture
    def made(self, make: Make, tmp_path: Path) -> Any:
        with ExitStack() as stack:
            yield make(tmp_path, stack)

    def test_it_writes_what_is_logged(self, made, way, jitted):
        logger, seen = made

        def program(state: Any, x: Any) -> Any:
            return getattr(logger, way)(train, state, prefix="p/")(x)

        with logger:
            state = logger.init()
            out = (jax.jit(program) if jitted else program)(state, 2.0)
            assert float(out) == 6.0
        assert seen("") == losses(2.0)

    def test_each_seed_has_its_own(self, made, way, jitted):
        logger, seen = made

        def program(seed: Any, x: Any) -> Any:
            return getattr(logger, way)(train, logger.init(seed), prefix="p/")(x)

        with logger:
            mapped = jax.vmap(program)
            out = (jax.jit(mapped) if jitted else mapped)(jnp.array([3, 8]), jnp.array([1.0, 2.0]))
            assert out.tolist() == [3.0, 6.0]
        assert (seen("3"), seen("8")) == (losses(1.0), losses(2.0))
