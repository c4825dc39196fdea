"""Functions that a run lends to queries, with `Run.function`. They cannot be interrupted, so they are watched.

Rule 1: Viewers may call those that are declared with `viewers=True`.
Rule 2: One that takes longer for one call than an event's queries may is refused from then on: streams that call it end
with the reason, and new ones are refused. Only its first call may take longer, once in a run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from sightglass.core.current_run import awaited
from sightglass.core.errors import RefusedFunctionError
from sightglass.core.guarded import first_line
from sightglass.query.arrays import readable
from sightglass.query.query import Query

MAX_CALL_S: Final = 0.02  # as `options.Limits.max_event_s` by default
N_FIRST: Final = 1  # it may import and compile what it needs, which says nothing of the others; the budget pays for it


class LentFunction:
    """A function that queries may call.

    Attributes:
        name: The name that queries call.
        viewers: Whether viewers may call it.
        doc: The first line of its docstring.
        refused: Why it is refused; empty while it is not.
        n_calls: How often it was called.
        n_refused: How often a query called it after it was refused.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        viewers: bool = False,
        run: str = "",
        max_call_s: float = MAX_CALL_S,
        in_event: Callable[[], bool] = lambda: True,
        cpu_s: Callable[[], float] = time.thread_time,
        wall_s: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Lend a function.

        Args:
            name: The name that queries call.
            function: The function.
            viewers: Whether viewers may call it.
            run: The id of the run.
            max_call_s: The seconds that a call may take, of the thread's processor time and in all.
            in_event: Returns whether this thread evaluates an event; other calls, such as JAX's traces, are not timed.
            cpu_s: Returns the thread's processor time.
            wall_s: Returns the time.
        """
        self.name = name
        self.viewers = viewers
        self.doc = first_line(function)
        self.refused = ""
        self.n_calls = self.n_refused = 0
        self.__wrapped__ = function  # its signature is that of this object
        self._run = run
        self._max_call_s = max_call_s
        self._in_event = in_event
        self._cpu_s = cpu_s
        self._wall_s = wall_s

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Call the function.

        Raises:
            RefusedFunctionError: It is refused, from this call on if the call took too long and is not the first.
        """
        if self.refused:
            self.n_refused += 1
            raise RefusedFunctionError(self.refused)
        self.n_calls += 1
        cpu_s, wall_s = self._cpu_s(), self._wall_s()
        try:
            with awaited(self._run):
                result = self.__wrapped__(*args, **kwargs)
        finally:
            taken_s = min(self._cpu_s() - cpu_s, self._wall_s() - wall_s)
            if taken_s > self._max_call_s and self.n_calls > N_FIRST and self._in_event():
                self.refused = (
                    f"Function {self.name!r} of the run took {taken_s * 1e3:.3g} ms for one call, and is refused from "
                    f"then on: an event's queries may take {self._max_call_s * 1e3:.3g} ms. Make it faster, or set "
                    "sg.Limits(max_event_s=…)"
                )
        if self.refused:
            raise RefusedFunctionError(self.refused)
        return readable(result, f"{self.name}(…)")


def check_functions(query: Query, functions: Mapping[str, Callable[..., Any]], *, may_command: bool) -> None:
    """Refuse a query that calls a function which is refused, or which the client may not call.

    Raises:
        RefusedFunctionError: It calls one.
    """
    for name in query.functions:
        lent = functions.get(name)
        if isinstance(lent, LentFunction) and lent.refused:
            lent.n_refused += 1
            raise RefusedFunctionError(lent.refused)
        if not may_command and not getattr(lent, "viewers", False):
            raise RefusedFunctionError(
                f"Expected functions that viewers may call, got {name!r}: the run has to declare it with "
                f"run.function({name!r}, …, viewers=True)"
            )
