"""`MultiLogger`: one callback for all, and each fails for itself."""

from __future__ import annotations

import jax
import pytest

from sightglass.core.errors import LogError, StorageError
from sightglass.jax.loggers import MultiLogger, SinkLogger

from .programs import Memory, losses, train


class Broken(SinkLogger):
    def open(self, name):
        raise OSError("no room")


def test_there_is_one_callback_for_all():
    with MultiLogger(Memory(), Memory(), Memory()) as logger:
        jaxpr = str(jax.make_jaxpr(logger.tap(train, logger.init()))(1.0))
    assert jaxpr.count("tap[") == 1


def test_each_fails_for_itself():
    good, bad, worse = Memory(), Broken(), Broken()
    logger = MultiLogger(bad, good, worse)
    told = "Broken: .*2 lost: OSError: no room"

    def run():
        logger.spool(train, logger.init())(1.0)
        logger.log(logger.init(), logs)
        logger.flush()

    from sightglass.jax import log

    logs = log({"x": 1.0}, step=3)
    with pytest.warns(RuntimeWarning, match="no room"), pytest.raises(StorageError, match=f"^{told}; {told}$"):
        run()
    assert good.seen() == [*(("loss", *event) for event in losses(1.0)), ("x", 3, 1.0)]
    statistics = logger.statistics()
    assert (statistics.n_dropped, statistics.n_events) == (4, 6)
    logger.close()
    assert good.closed
    assert logger.closed
    with pytest.raises(LogError, match="MultiLogger"):
        logger.tap(train, None)


def test_a_member_may_be_used_alone_as_well():
    one, other = Memory(), Memory()
    with MultiLogger(one, other) as both:
        state = both.init(3)
        both.tap(train, state, prefix="both/")(1.0)
        one.tap(train, state, prefix="one/")(1.0)
        assert {tag for tag, *_ in one.seen("3")} == {"both/loss", "one/loss"}
        assert {tag for tag, *_ in other.seen("3")} == {"both/loss"}


def test_no_logger_is_refused():
    with pytest.raises(TypeError, match="logger"):
        MultiLogger()
