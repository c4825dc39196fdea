"""`strip`: a function as if no log had been written into it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from .program.primitive import wanted

P = ParamSpec("P")
R = TypeVar("R")


def strip(f: Callable[P, R]) -> Callable[P, R]:
    """Hide a function's logs from whoever wants logs further out.

    A `log` that nobody wants leaves nothing in the program anyway; `strip` makes it so inside `spool`, `tap` and `live`
    too. The backward pass of a `jax.custom_vjp` function is traced by JAX after the call, where the logs of its rule
    are seen again.

    Args:
        f: Any function, jitted or not.

    Returns:
        A function with the same results, and the same program as if no log had been written.
    """

    @functools.wraps(f)
    def stripped(*args: P.args, **kwargs: P.kwargs) -> R:
        with wanted(None):
            return f(*args, **kwargs)

    return stripped
