"""The table of the functions that queries may call, and what a call of them must look like."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sightglass.core.errors import QuerySyntaxError
from sightglass.query import expressions as e


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryFunction:
    """A named function of the query language.

    Attributes:
        name: What it is called by.
        call: What it does.
        doc: What it is for, one paragraph.
        signature: How it is called.
        method: Whether it is usually written behind its first argument: `x.mean()`.
        lambdas: Whether it takes a lambda; such functions are evaluated by `evaluate`.
    """

    name: str
    call: Callable[..., Any]
    doc: str
    signature: str
    method: bool
    lambdas: bool = False


FUNCTIONS: dict[str, QueryFunction] = {}


def check_call(tree: e.Call) -> None:
    """Refuse the call of one of `FUNCTIONS` with arguments that it does not take.

    Raises:
        QuerySyntaxError: It is.
    """
    function = FUNCTIONS[tree.name]
    check_arguments(function.call, tree, function.signature)
    for place, arg in enumerate(tree.args):
        if isinstance(arg, e.Lambda) != (function.lambdas and place == 1):
            what = "a value, got a lambda" if isinstance(arg, e.Lambda) else "a lambda, got a value"
            raise QuerySyntaxError(f"Wrong arguments for {function.signature}: argument {place + 1} must be {what}")


def check_arguments(function: Callable[..., Any], tree: e.Call, signature: str) -> None:
    """Refuse a call with arguments that a function does not take, as far as it tells.

    Raises:
        QuerySyntaxError: It is.
    """
    try:
        inspect.signature(function).bind(*tree.args, **dict(tree.kwargs))
    except TypeError as error:
        raise QuerySyntaxError(f"Wrong arguments for {signature}: {error}") from None
    except ValueError:
        return  # a builtin without a signature


def function(signature: str, *, lambdas: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Enter a function into the table under the name that its signature begins with; its docstring is its help."""

    def register(call: Callable[..., Any]) -> Callable[..., Any]:
        name = signature.partition("(")[0]
        doc = " ".join((call.__doc__ or "").split())
        FUNCTIONS[name] = QueryFunction(
            name=name, call=call, doc=doc, signature=signature, method=name in e.METHODS, lambdas=lambdas
        )
        return call

    return register
