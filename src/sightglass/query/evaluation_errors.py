"""What an evaluation that fails says: which part of the query, of which values, and what to write instead."""

from __future__ import annotations

import types
from collections.abc import Sequence

from sightglass.core.errors import EvaluationError, QuerySyntaxError, SightglassError, UnknownNameError
from sightglass.core.guarded import message
from sightglass.core.own_pieces import is_traced
from sightglass.core.values import type_name

from .limits import PLAIN
from .meter import CompilationNeeded, NoRoom, PriceNeeded


class UnknownFunctionError(UnknownNameError, QuerySyntaxError):
    """A query calls a function that neither sightglass nor the run defines."""


def placed(error: BaseException, text: str, values: Sequence[object]) -> BaseException:
    """Return an error of a library, or of a function of the run, with the part of the query and its operands."""
    if isinstance(error, SightglassError | PriceNeeded | CompilationNeeded | NoRoom) or any(map(is_traced, values)):
        return error  # JAX tells by its own errors that a query cannot be traced
    shown = ", ".join(type_name(value) for value in values if not isinstance(value, types.FunctionType))
    why = message(error).partition("\n")[0]
    return EvaluationError(f"Cannot compute {text} of {shown}: {why}{_way_out(error, values)}")


def _way_out(error: BaseException, values: Sequence[object]) -> str:
    """Return what to write in place of what failed; empty if nothing is known."""
    if type(error).__name__ == "AxisError" and type(values[0]) in PLAIN:
        return ". A number has no axis; over events, write every=100"
    if isinstance(error, NotImplementedError) and " not implemented for '" in str(error):  # PyTorch, of a dtype
        return ". PyTorch has no such function of this dtype: convert it first, x.astype('float32')"
    return ""
