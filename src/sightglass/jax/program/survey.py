"""Find what a program will log from its jaxpr, before it is traced again: how often, with which shapes, and where.

Loops and branches need this: a scan's carry must exist before the scan, and the branches of a `cond` must return equal
trees.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import jax

from sightglass.core.errors import LogError
from sightglass.jax.pytree import PyTree

from . import compat
from .primitive import LogEvent, Site, log_p

CollectedAs = Callable[[str, Site], str | None]
"""Returns the name under which a key of a log is collected; `None` if it is not."""


@dataclass(frozen=True, slots=True)
class ExpectedLog:
    """The logs under one key.

    Attributes:
        value: Shapes and dtypes of the value, including its batch axes.
        steps: Shapes and dtypes of the steps, by name.
        n_batch: How many leading axes are batch axes.
        n_events: The largest number of events; `None` if a while loop decides.
        masked: Whether some of them may not happen.
        where: The user's file and line of the first of them.
    """

    value: Any
    steps: dict[str, Any]
    n_batch: int
    n_events: int | None
    masked: bool
    where: str

    @property
    def stacked(self) -> Any:
        """Shapes and dtypes of the value with the event axis in front; only outside of while loops."""
        return jax.tree.map(lambda a: compat.Aval((self.n_events, *a.shape), a.dtype), self.value)

    @property
    def batch(self) -> tuple[int, ...]:
        """The sizes of the batch axes."""
        return tuple(jax.tree.leaves(self.value)[0].shape[: self.n_batch])


Survey = dict[str, ExpectedLog]


def survey(jaxpr: compat.AnyJaxpr, takes: CollectedAs) -> Survey:
    """Return what a jaxpr will log under each name, in order of first appearance.

    Raises:
        LogError: Two logs under one key differ in structure, shape, dtype or steps.
    """
    found: Survey = {}
    for eqn in compat.opened(jaxpr)[0].eqns:
        for key, expected in _of(eqn, takes).items():
            found[key] = _joined(key, found[key], expected) if key in found else expected
    return found


def _of(eqn: compat.Equation, takes: CollectedAs) -> Survey:
    if eqn.primitive is log_p:
        return _logged(eqn, takes)
    inner = [survey(jaxpr, takes) for jaxpr in compat.subjaxprs(eqn.params)]
    match eqn.primitive.name:
        case "cond":
            return branches(inner)
        case "scan":
            return _times(inner[0], eqn.params["length"])
        case "while":
            return {key: dataclasses.replace(e, n_events=None) for found in inner for key, e in found.items()}
        case "shard_map":
            sizes = (eqn.params["mesh"].shape[axis] for axis in compat.manual_axes(eqn.params))
            return _times(inner[0], math.prod(sizes))
    return inner[0] if inner else {}


def _logged(eqn: compat.Equation, takes: CollectedAs) -> Survey:
    avals = [compat.Aval(v.aval.shape, v.aval.dtype) for v in eqn.invars]
    event = LogEvent.of(eqn, avals)
    masked = event.mask is not None
    return {
        name: ExpectedLog(value, event.steps, event.n_batch, 1, masked, event.site.where)
        for key, value in event.data.items()
        if (name := takes(key, event.site)) is not None
    }


def _times(found: Survey, n: int) -> Survey:
    return {
        key: dataclasses.replace(e, n_events=None if e.n_events is None else e.n_events * n) for key, e in found.items()
    }


def branches(found: Iterable[Survey]) -> Survey:
    """Return what a `cond` will log: as often as the branch that logs most, masked if the branches differ."""
    every = list(found)
    result: Survey = {}
    for key in dict.fromkeys(key for one in every for key in one):
        present = [one[key] for one in every if key in one]
        counts = [one[key].n_events if key in one else 0 for one in every]
        first = present[0]
        for other in present[1:]:
            first = _joined(key, first, other)
        most = None if None in counts else max(n for n in counts if n is not None)
        masked = any(e.masked for e in present) or len(set(counts)) > 1
        result[key] = dataclasses.replace(first, n_events=most, masked=masked)
    return result


def _joined(key: str, first: ExpectedLog, second: ExpectedLog) -> ExpectedLog:
    """Return what two logs under one key add up to."""
    shared = first.steps.keys() & second.steps.keys()
    a, b = _type_of(first, shared), _type_of(second, shared)
    if a != b:
        raise LogError(
            f"Two logs under the key {key!r} cannot be stacked: {a} at {first.where}, but {b} at {second.where}. "
            "Give one of them another name"
        )
    n = None if first.n_events is None or second.n_events is None else first.n_events + second.n_events
    steps = {**first.steps, **second.steps}
    return dataclasses.replace(first, steps=steps, n_events=n, masked=first.masked or second.masked)


def _type_of(expected: ExpectedLog, steps: Iterable[str]) -> str:
    """Return the structure, shapes and dtypes of a value and of some of its steps, as text."""

    def name(tree: PyTree) -> str:
        return str(jax.tree.map(lambda a: f"{a.dtype}{list(a.shape)}", tree)).replace("'", "")

    batch = f" of which {expected.n_batch} axes are of vmap" if expected.n_batch else ""
    return name(expected.value) + batch + "".join(f", step {k}={name(expected.steps[k])}" for k in sorted(steps))
