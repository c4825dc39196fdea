"""Attributes as controls: numbers that offered objects store, and nothing else."""

from __future__ import annotations

import threading
from collections import namedtuple
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from sightglass.core.errors import CommandError
from sightglass.training.commands import Command
from sightglass.training.controls import attribute_path

pytestmark = pytest.mark.smoke

Point = namedtuple("Point", "x")


class Slotted:
    __slots__ = ("rate",)

    def __init__(self):
        self.rate = 1.0


class Computed:
    default = 1.0

    def __init__(self):
        self.__dict__["hidden_by_property"] = 1.0

    @property
    def hidden_by_property(self):
        raise AssertionError("a property ran")

    @property
    def computed(self):
        raise AssertionError("a property ran")


@dataclass(frozen=True)
class Frozen:
    rate: float = 1.0


@dataclass
class Optimizer:
    kind: ClassVar[int] = 1
    lr: float = 0.1
    n: int = 3
    on: bool = True
    name: str = "sgd"
    _secret: float = 1.0
    scale: object = field(default_factory=lambda: np.float32(1))
    param_groups: list = field(default_factory=lambda: [{"lr": 0.1, "betas": (0.9, 0.99), "_x": 1.0}])
    inner: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(steps=[1, 2], slotted=Slotted()))


def set_at(path, value, **observables):
    return attribute_path(path).set(observables, value)


@pytest.mark.parametrize(
    ("path", "value", "old", "new"),
    [
        ("batch.o.lr", 0.5, 0.1, 0.5),
        ("batch.o.lr", 1, 0.1, 1.0),
        ("batch.o.n", 5, 3, 5),
        ("batch.o.on", False, True, False),
        ("batch.o.param_groups[0]['lr']", 0.5, 0.1, 0.5),
        ("batch.o.param_groups[-1].lr", 0.5, 0.1, 0.5),
        ("batch.o.inner.steps[1]", 7, 2, 7),
        ("batch.o.inner.slotted.rate", 2.0, 1.0, 2.0),
        ("on('my event').map(lambda e: e.o.lr)", 0.5, 0.1, 0.5),
    ],
)
def test_a_number_is_set_and_keeps_its_type(path, value, old, new):
    o = Optimizer()
    assert set_at(path, value, o=o) == (old, new)
    assert set_at(path, value, o=o) == (new, new)
    assert type(set_at(path, value, o=o)[1]) is type(old)


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("batch.o.lr", "fast", "Control 'batch.o.lr': expected float, got str 'fast'"),
        ("batch.o.lr", True, "Control 'batch.o.lr': expected float, got bool True"),
        ("batch.o.lr", float("nan"), "Control 'batch.o.lr': expected a number, got nan"),
        ("batch.o.n", 1.5, "Control 'batch.o.n': expected int, got float 1.5"),
        ("batch.o.on", 1, "Control 'batch.o.on': expected bool, got int 1"),
        ("batch.o.name", "adam", "batch.o.name: expected a number, got str 'sgd'"),
        ("batch.o.scale", 2.0, "batch.o.scale: expected a number, got float32 "),
        ("batch.o.inner", 2.0, "batch.o.inner: expected a number, got SimpleNamespace "),
        ("batch.o.rl", 2.0, "'rl' of Optimizer. Did you mean 'lr'?"),
        ("batch.q.lr", 2.0, "'q' at event 'batch'. Known: c, f, o, p."),
        ("batch.o.param_groups[0]['rl']", 2.0, "'rl'. Did you mean 'lr'?"),
        ("batch.o.param_groups[5].lr", 2.0, "index below 1, got 5"),
        ("batch.o.param_groups[0]['betas'][0]", 2.0, "Cannot set "),
        ("batch.p.x", 2.0, "Cannot set batch.p.x: "),
        ("batch.c.computed", 2.0, "Cannot set batch.c.computed: "),
        ("batch.c.hidden_by_property", 2.0, "Cannot set batch.c.hidden_by_property: "),
        ("batch.c.default", 2.0, "class Computed. "),
        ("batch.o.kind", 2.0, "lr, n, on. In the program, declare run.control("),
    ],
)
def test_anything_else_is_refused(path, value, reason):
    offered = {"o": Optimizer(), "p": Point(1.0), "c": Computed(), "f": Frozen()}
    with pytest.raises(Exception) as caught:  # noqa: PT011  the messages tell them apart
        set_at(path, value, **offered)
    assert reason in str(caught.value)
    o = offered["o"]
    assert (o.lr, o.n, o.on, o.name, o.param_groups) == (0.1, 3, True, "sgd", Optimizer().param_groups)


def test_a_frozen_instance_refuses_by_itself():
    with pytest.raises(AttributeError, match="'rate'"):
        set_at("batch.f.rate", 2.0, f=Frozen())


@pytest.mark.parametrize(
    "path",
    [
        "batch", "batch.loss", "batch['loss']", "lr", "batch.o._secret", "batch.o.__class__.x",
        "batch.o.param_groups[0]['_x']",
        "batch.o.param_groups[0:1]", "batch.o.lr + 1", "batch.o.mean()", "batch.o.x.mean(every=5)", "batch.o[batch.n]",
        "batch.o.param_groups[True]", "batch.o.lr = 1", "import os", "", "batch.o.param_groups[0.5].lr",
    ],
)  # fmt: skip
def test_what_is_no_path_is_refused_at_once(path):
    with pytest.raises(CommandError, match=r"batch.optimizer.lr"):
        attribute_path(path)


# In a run


def command(name, value, *, id=1, at=None):
    return Command(id=id, client="c", kind="set", name=name, value=value, at=at)


@pytest.fixture
def open_bench(bench):
    b = bench()
    b.telemetry.commands.queue.sets_attributes = True
    b.observe("batch", o=Optimizer())
    return b


def test_it_is_off_by_default(bench):
    b = bench()
    b.observe("batch", o=Optimizer())
    with pytest.raises(CommandError, match=r"'batch.o.lr'.*sg.init\(…, controls='attributes'\)"):
        b.telemetry.commands.add(command("batch.o.lr", 0.5))
    with pytest.raises(CommandError, match=r"'lr'.*none"):
        b.telemetry.commands.add(command("lr", 0.5))


def test_it_is_set_at_the_next_event_that_offers_it_and_remembered(open_bench):
    b, o = open_bench, Optimizer()
    b.telemetry.commands.add(command("batch.o.lr", 0.5))
    b.telemetry.commands.apply(None)
    b.observe("epoch", o=o)
    assert o.lr == 0.1
    thread = threading.Thread(target=lambda: b.observe("batch", step=7, o=o))
    thread.start()
    thread.join(60)
    (entry,) = b.telemetry.commands.queue.history
    assert (entry.event, entry.step, entry.old, entry.result, entry.error) == ("batch", 7, 0.1, 0.5, "")
    assert (o.lr, b.telemetry.commands.queue.pending) == (0.5, [])


def test_a_path_that_leads_nowhere_is_an_error_in_the_history(open_bench):
    b = open_bench
    b.telemetry.commands.add(command("batch.q.lr", 0.5))
    b.observe("batch", o=Optimizer())
    (entry,) = b.telemetry.commands.queue.history
    assert entry.error == "Unknown observable 'q' at event 'batch'. Known: o, step."


@pytest.mark.parametrize(
    ("name", "at", "reason"),
    [
        ("bacth.o.lr", None, "event 'bacth'.*'batch'"),
        ("batch.o.lr", "epoch", "at='batch' or None for batch.o.lr, got at='epoch'$"),
        ("batch.o._secret", None, "path"),
        ("log.o.lr", None, "event 'log'.*: batch.$"),
    ],
)
def test_what_cannot_succeed_is_refused_before_it_waits(open_bench, name, at, reason):
    open_bench.log({"o": 1})
    with pytest.raises(CommandError, match=reason):
        open_bench.telemetry.commands.add(command(name, 0.5, at=at))


def test_a_declared_control_comes_first(open_bench):
    from sightglass.training.controls import Control

    open_bench.telemetry.commands.queue.controls["batch.o.lr"] = Control("batch.o.lr", 0.1, max=0.2)
    with pytest.raises(CommandError, match=r"'batch.o.lr'.*0.2, got 0.5"):
        open_bench.telemetry.commands.add(command("batch.o.lr", 0.5))
