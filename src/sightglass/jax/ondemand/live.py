"""`live`: clients of a run ask for what a compiled step logs, while it runs.

Theory of operation:

1. While nobody asks, the step that runs is the user's own jitted function, called as it is.
2. When somebody asks, a *variant* of it, with the queries compiled into it, is traced and compiled on a background
   thread, from shapes and shardings. The step that runs goes on meanwhile; the variant takes over between two calls.
   When nobody asks any more, the user's own function is back.
3. Variants are kept for a while, a bounded number of them: asking again costs nothing.
4. What leaves a variant is copied asynchronously, and read by the drain thread. The training thread never waits.
5. The number of a call is the index of the events that happen once a call. Acts and `pause` apply between calls.
6. Clients see a new run's steps as soon as they have been called once.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Generic, ParamSpec, TypeVar

import jax

from sightglass.core.errors import LogError
from sightglass.jax.program import compat
from sightglass.training.run import Run, current, when_begun, wiring

from .live_step import LiveStep

P = ParamSpec("P")
R = TypeVar("R")


class Live(Generic[P, R]):
    """A jitted function that clients of a run can look into. Made by `live`."""

    def __init__(self, function: Callable[P, R], run: Run | None, event: str) -> None:
        if isinstance(function, types.MethodType):
            raise LogError(
                f"Expected a function of jax.jit's, got {function!r:.200} of one object: "
                "write live(jax.jit(…)) in the class, around the function"
            )
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._event = event
        self._watched: LiveStep | None = None
        self._is_askable = not isinstance(function, jax.stages.Compiled)
        if self._is_askable:
            compat.options_around(function)
        self._rest()
        begun = run or current()
        if begun is not None and not begun.disabled:
            self._attach(begun)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function, as it is or with what is asked compiled into it."""
        count = self._idle.get(self._event)
        if count is None:
            watched = self._watched or self._attached()
            return watched.call(args, kwargs) if watched else self._function(*args, **kwargs)
        count()
        return self._function(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        """Return what the jitted function has, such as `lower`."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._function, name)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Bind like a function, when it stands in a class."""
        return self if instance is None else functools.partial(self, instance)

    def _rest(self) -> None:
        """Do without a run until the next one begins."""
        self._idle: Mapping[str, Callable[[], int]] = {self._event: int}
        self._watched = None
        self._next: weakref.ref[Run] | None = None
        begun = weakref.WeakMethod(self._begun)
        when_begun(lambda run: see(run) if (see := begun()) else None)

    def _begun(self, run: Run) -> None:
        """See a run begin: the next call attaches to it. A step that is not called any more is in nobody's way."""
        if self._watched is None:
            self._next, self._idle = weakref.ref(run), {}

    def _attached(self) -> LiveStep | None:
        """Attach to the run that began, if it still goes on."""
        run = None if self._next is None else self._next()
        if run is None or run.disabled or wiring(run).emitter.closed:
            self._rest()
        else:
            self._attach(run)
        return self._watched

    def _attach(self, run: Run) -> None:
        ended = weakref.WeakMethod(self._rest)
        self._watched = LiveStep(self._function, self._event, run, ended, is_askable=self._is_askable)
        self._idle = wiring(run).emitter.demand.resting


def live(f: Callable[P, R], run: Run | None = None, event: str = "batch") -> Live[P, R]:
    """Let clients of a run ask for what a jitted function logs, while it runs.

    While nobody asks, the function runs as it is. When somebody does, a variant with the queries compiled into it is
    made in the background, and takes over between two calls; only what was asked leaves the device.

    Args:
        f: What `jax.jit` returned. Its options stay in force: donated and static arguments, shardings.
        run: The run that clients ask; `None` for the newest one, or the next to begin.
        event: What clients call a call of the function.

    Returns:
        The function, to be called in its place. Logs in it are observables of `event`, or of the event that they name.
        An event happens once each time the innermost loop body runs that holds all its logs, or once a call.

    Raises:
        LogError: It is no function of `jax.jit`'s.
        ValueError: The event comes from elsewhere already.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from sightglass.jax import live, log
        >>> @jax.jit
        ... def train_step(w, x):
        ...     log({"loss": (w * x) ** 2})
        ...     return w - 0.1 * w * x * x
        >>> step = live(train_step)
        >>> float(step(jnp.float32(1), jnp.float32(1)))
        0.8999999761581421
    """
    return Live(f, run, event)
