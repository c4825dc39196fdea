"""`TensorBoardLogger`: what TensorBoard reads back."""

from __future__ import annotations

import jax.numpy as jnp
import pytest

from sightglass.jax import log
from sightglass.jax.loggers import TensorBoardLogger

from .programs import losses, train

event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")


def read(path):
    return event_accumulator.EventAccumulator(str(path)).Reload()


def test_arrays_are_tensors_and_steps_are_whole(tmp_path):
    with TensorBoardLogger(tmp_path) as logger:
        logger.tap(lambda x: log({"w": jnp.arange(3) * x, "a": {"b": x}}, step=2.5), logger.init())(2.0)
    events = read(tmp_path)
    (tensor,) = events.Tensors("w")
    from tensorboard.util.tensor_util import make_ndarray

    assert make_ndarray(tensor.tensor_proto).tolist() == [0, 2, 4]
    assert [(event.step, event.value) for event in events.Scalars("a/b")] == [(2, 2.0)]


def test_flushed_events_can_be_read_and_files_are_never_mixed(tmp_path):
    """Two loggers of one process may begin within one second."""
    first, second = TensorBoardLogger(tmp_path), TensorBoardLogger(tmp_path)
    first.spool(train, first.init())(1.0)
    first.flush()
    assert [(event.step, event.value) for event in read(tmp_path).Scalars("loss")] == losses(1.0)
    second.spool(train, second.init(), prefix="second/")(2.0)
    second.close()
    first.close()
    assert len(list(tmp_path.glob("events.out.tfevents.*"))) == 2
    assert {*read(tmp_path).Tags()["scalars"]} == {"loss", "second/loss"}


def test_values_without_an_encoding_are_reported_and_the_rest_is_written(tmp_path, monkeypatch):
    logger = TensorBoardLogger(tmp_path)

    def run():
        logger.tap(lambda x: log({"half": jnp.ones(2, jnp.float8_e4m3fn), "x": x}), logger.init())(1.0)
        logger.close()

    with pytest.warns(RuntimeWarning, match="left out 'half'"):
        run()
    assert [event.value for event in read(tmp_path).Scalars("x")] == [1.0]
