"""`strip`: a function without its logs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from .program.primitive import wanted

P = ParamSpec("P")
R = TypeVar("R")


def strip(f: Callable[P, R]) -> Callable[P, R]:
    """Hide a function's logs from outer transformations.

    A `log` outside of any transformation leaves nothing in the program; under `strip`, this holds inside `spool`, `tap`
    and `live` too. JAX traces the backward pass of a `jax.custom_vjp` function after the call, so logs in that rule
    are not hidden.

    Args:
        f: Any function, jitted or not.

    Returns:
        A function with the same results, and the same program as without any log.
    """

    @functools.wraps(f)
    def stripped(*args: P.args, **kwargs: P.kwargs) -> R:
        with wanted(None):
            return f(*args, **kwargs)

    return stripped
