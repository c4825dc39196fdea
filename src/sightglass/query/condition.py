"""Conditions: queries whose records say whether something holds, such as `batch.loss > 10`."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sightglass.core.columns import Record
from sightglass.core.program_values.guarded import text

from . import expressions as e
from .arrays import truth
from .parser import as_query
from .query import Query
from .stages import Map, Where

MAX_VALUE: Final = 200  # characters


def as_condition(condition: Query | str) -> Query:
    """Return a query whose records are pairs: whether a condition holds, and the value that it is about.

    That value is the left side of a comparison, or the right one if that is a constant; otherwise it is what the
    condition computes. Of a query that ends in `where`, every record counts.

    Raises:
        QueryError: The text of the condition is not valid.

    >>> print(as_condition("batch.loss.mean(every=100) > 3"))
    on('batch').map(lambda batch: batch.loss).mean(every=100).map(lambda v0: (v0 > 3, v0))
    """
    query = as_query(condition)
    last = query.stages[-1] if query.stages else None
    if isinstance(last, Map):
        test = last.fn
        compares = isinstance(test.body, e.Binary) and test.body.op in e.COMPARE_AST
        sides = (test.body.left, test.body.right) if compares else (test.body,)
        about = next((side for side in sides if not isinstance(side, e.Const)), test.body)
        return replace(query, stages=(*query.stages[:-1], Map(replace(test, body=e.Tuple((test.body, about))))))
    if isinstance(last, Where):
        return query.map(lambda value: (True, value))
    return query.map(lambda value: (value, value))


def said(condition: Query | str, about: object) -> str:
    """Return a sentence about a condition that holds, with the value that it is about."""
    return f"{condition}: the value is {text(about, MAX_VALUE)}"


def holds(record: Record) -> bool:
    """Return whether a record of such a query says that the condition holds.

    Raises:
        EvaluationError: It is an array of more than one item.
    """
    return truth(record.value[0])
