"""Which programs an equation has within, how often each of them runs, and all equations and logs of a program."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from . import compat
from .primitive import Site, log_p

KINDS: Final = {"scan": "loop", "while": "loop", "cond": "branch", "shard_map": "devices"}
"""As what a primitive runs the programs within it, if it does more than to call them."""
TEST: Final = "cond_jaxpr"
"""The parameter of a loop that holds its test."""


class Inner(NamedTuple):
    """A program within an equation: as what it runs, the parameter, how often (`None`: it decides), the open jaxpr."""

    kind: str
    name: str
    n: int | None
    jaxpr: Any


Path = tuple[Inner, ...]


def kind_of(eqn: compat.Equation) -> str:
    """Return as what an equation runs the programs within it: a "loop", "branch", "devices" or "call"."""
    return KINDS.get(eqn.primitive.name, "call")


def within(eqn: compat.Equation) -> list[Inner]:
    """Return the programs within an equation."""
    params, kind = eqn.params, kind_of(eqn)
    n = params.get("length") if kind == "loop" else None if kind == "branch" else 1
    if kind == "devices":
        n = math.prod(params["mesh"].shape[axis] for axis in compat.manual_axes(params))
    each = ((name, jaxpr) for name in params for jaxpr in compat.subjaxprs({name: params[name]}))
    return [Inner(kind, name, n, compat.opened(jaxpr)[0]) for name, jaxpr in each]


def equations(eqns: Iterable[compat.Equation], path: Path = ()) -> Iterator[tuple[Any, Path]]:
    """Yield equations and all within them, in the order of the program, each with the programs around it."""
    for eqn in eqns:
        yield eqn, path
        for inner in within(eqn):
            yield from equations(inner.jaxpr.eqns, (*path, inner))


def sites(eqns: Iterable[compat.Equation]) -> Iterator[tuple[Site, Path]]:
    """Yield the logs among equations and within them, as `equations` does."""
    return ((eqn.params["site"], path) for eqn, path in equations(eqns) if eqn.primitive is log_p)
