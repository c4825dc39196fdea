"""Text that people write: queries and slices."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from sightglass.core.columns import of_rows
from sightglass.core.errors import QueryError, UnsendableError
from sightglass.core.process.clock import SystemClock
from sightglass.core.values import Histogram
from sightglass.protocol import messages
from sightglass.query.evaluation import Evaluation
from sightglass.query.parser import parse
from sightglass.query.query import Query
from sightglass.storage.tensors import slices
from sightglass.training.evaluation.subscription import Subscription

FUNCTIONS = {"f": lambda x: x}
SHAPE = (3, 4, 5)
# Errors that are never the query's fault: a run survives them, and tells them to the client.
BUGS = tuple(f"{kind.__name__}: " for kind in (
    AssertionError, AttributeError, KeyError, MemoryError, NameError, NotImplementedError, RecursionError, RuntimeError,
    StopIteration, SystemError, UnboundLocalError, Warning, RuntimeWarning, DeprecationWarning,
))  # fmt: skip


def query(data: bytes) -> None:
    """Parse a query, print it, parse it again, and evaluate it on a few events."""
    try:
        asked = parse(data.decode("utf-8", "surrogateescape"))
    except QueryError as error:
        str(error)
        return
    check_text(asked)
    evaluate(asked)


def check_text(asked: Query) -> None:
    """Check that a query is its text."""
    again = parse(str(asked))
    assert again == asked
    assert str(again) == str(asked)
    assert parse(asked.key) == asked
    assert asked.short is None or parse(asked.short) == asked
    assert (again.seed, again.tag, again.names, again.reads_all) == (
        asked.seed, asked.tag, asked.names, asked.reads_all
    )  # fmt: skip


def evaluate(asked: Query) -> None:
    """Evaluate a query as a run does, and send what comes out."""
    try:
        evaluation = Evaluation(asked, FUNCTIONS)
    except QueryError:
        return
    subscription = Subscription(1, asked, evaluation, clock=SystemClock(), defer=_not_on_a_device)
    for i in range(4):
        if not subscription.suspended:
            subscription.post(i, i, float(i), observables(i))
        if i % 2:
            subscription.tail.boundary("epoch")
    subscription.tail.end_group()
    subscription.tail.finish()
    check_error(subscription)
    rows = subscription.rows.take()
    if rows:
        with contextlib.suppress(UnsendableError):
            for frames in messages.encode_blocks(1, of_rows(rows)):
                block, buffers = messages.decode_from_run(frames)
                assert isinstance(block, messages.Block)
                messages.decode_block(block, buffers)


def check_error(subscription: Subscription) -> None:
    """Check that a query failed, if it did, for a reason that its author can do something about."""
    assert not str(subscription.last_error).startswith(BUGS), f"{subscription.query}: {subscription.last_error}"


def _not_on_a_device(*args: Any) -> None:
    raise AssertionError("Expected values on the host to be evaluated at once")


def observables(i: int) -> dict[str, Any]:
    """Return the observables of an event: one of each kind of values."""
    return {
        "loss": 1.5 * i, "n": i, "flag": i % 2 == 0, "text": "words", "names": ["a", "b"], "pair": (1, 2.5),
        "x": np.arange(6.0).reshape(2, 3) + i, "k": np.arange(4), "e": np.zeros((0, 3), np.float32),
        "nan": float("nan"), "none": None, "c": 1 + 2j, "h": Histogram(np.arange(10.0)),
        "grads": {"dense": {"kernel": np.eye(2, dtype=np.float32), "bias": np.zeros(2)}, "out": {"bias": np.ones(1)}},
    }  # fmt: skip


def slice_text(data: bytes) -> None:
    """Parse the text of a slice, print it, parse it again, and use it on a tensor."""
    text = data.decode("utf-8", "surrogateescape")
    try:
        index = slices.parse_index(text)
    except QueryError as error:
        str(error)
        return
    assert slices.parse_index(slices.write_index(index)) == index
    array = np.arange(60).reshape(SHAPE)
    with contextlib.suppress(QueryError):
        resolved = slices.resolve(text, SHAPE)
        assert np.array_equal(array[resolved], array[index])
    for use in (slices.restrict, slices.cells):
        with contextlib.suppress(QueryError):
            use(text, SHAPE)
    with contextlib.suppress(QueryError):
        slices.table(array, text)
