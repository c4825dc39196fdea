"""`chunked`: a training that is one compiled loop runs some rounds at a time, so that clients can ask in between.

Theory of operation:

1. The function is traced and split where its one outermost loop is (`program/loop_split.py`): what is before it, its
   rounds, what is after it. Each part is compiled once.
2. A call of the rounds is a call of a live step. The carry and what is stacked are donated from one to the next, so
   that memory is that of the plain loop: nothing is concatenated.
3. Between two of them the device is idle for as long as a dispatch takes. There commands apply, another variant takes
   over, a stop ends the loop, and the caller may save the state.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Generic, ParamSpec, TypeVar

import jax
import numpy as np

from sightglass.core.errors import LogError
from sightglass.jax.program.control import number
from sightglass.jax.program.loop_split import LoopInputs, SplitProgram, Values, split
from sightglass.jax.program.traced_function import ArgumentTemplate, FunctionOfArrays, StaticResult, delivered
from sightglass.training.run import Run

from .live import Live

P = ParamSpec("P")
R = TypeVar("R")


@functools.partial(jax.tree_util.register_dataclass, data_fields=["carry", "ys"], meta_fields=["n_done", "length"])
@dataclass(frozen=True, slots=True)
class LoopState:
    """Where a training is, between two chunks of its loop.

    Attributes:
        n_done: How many rounds are done.
        length: How many there are in all.
        carry: The leaves of what the loop carries, in their order. The next chunk takes their memory over: copy what
            you keep, for example by `jax.tree.map(jax.numpy.copy, state)`.
        ys: The leaves of what the loop stacks; rows of later rounds are NaN, or 0 where the type has no NaN.
    """

    n_done: int
    length: int
    carry: list[Any]
    ys: list[Any]


class Chunked(FunctionOfArrays, Generic[P, R]):
    """A function whose loop runs in chunks. Created by `chunked`.

    Attributes:
        n_done: How many rounds the last call has done: fewer than there are after a stop.
    """

    def __init__(
        self,
        function: Callable[P, R],
        every: int,
        run: Run | None,
        event: str,
        between: Callable[[LoopState], object] | None,
    ) -> None:
        if every < 1:
            raise ValueError(f"Expected every= as a number of rounds, at least 1, got {every}")
        super().__init__(function)
        self.n_done = 0
        self._every = every
        self._between = between
        self._before: dict[tuple[int, ...], Any] = {}
        self._after = jax.jit(lambda program, *values: program.results(*values), static_argnums=0)
        self._rounds = Live(
            _rounds_of(function), run, event, n_rounds=lambda args: int(args[-1] - args[-2]), rows=_Rows()
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function; its loop in chunks. After a stop, the results are those of the rounds that were done."""
        return self._call(None, args, kwargs)  # type: ignore[no-any-return]

    def resume(self, state: LoopState, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function from a state that was saved between two chunks, with the arguments of that call."""
        return self._call(state, args, kwargs)  # type: ignore[no-any-return]

    def _call(self, state: LoopState | None, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        shape, arrays, donated = self._split(args, kwargs)
        if any(isinstance(array, jax.core.Tracer) for array in arrays):
            raise LogError(
                f"{self._name!r} runs its loop in chunks, so JAX cannot trace the call: put jax.vmap, jax.jit and "
                "others inside, as in chunked(jax.vmap(train), every=10)"
            )
        if donated not in self._before:
            self._before[donated] = jax.jit(self._begin, static_argnums=0, donate_argnums=[i + 1 for i in donated])
        first, given, kept = self._before[donated](shape, *arrays)
        program: SplitProgram = first.value
        carry, ys, self.n_done = given.carry, given.ys, 0
        if state is not None:
            carry, ys, self.n_done = _restored(state, given, program.length)
        n_chunks = -(-program.length // self._every)
        for i in range(1, n_chunks + 1):
            stop = i * program.length // n_chunks
            if stop <= self.n_done:
                continue
            if self._rounds.stopping:
                break
            inputs = given.consts, given.xs, [number(control) for control in program.controls]
            carry, ys = self._rounds(program, inputs, carry, ys, np.int32(self.n_done), np.int32(stop))
            self.n_done = stop
            if self._between is not None:
                self._between(LoopState(stop, program.length, carry, ys))
        return delivered(self._after(program, carry, ys, kept), args, kwargs)

    def _begin(self, shape: ArgumentTemplate, *arrays: jax.Array) -> tuple[StaticResult, LoopInputs, Values]:
        program, given, kept = split(lambda *a: shape.call(self._function, a), arrays, self._name)
        return StaticResult(program), given, kept

    @property
    def _name(self) -> str:
        return getattr(self._function, "__name__", "the function")


def _rounds_of(function: Callable[..., Any]) -> Any:
    """Return a jitted function of some rounds, under the name of the user's: it is this one's live step."""

    def rounds(  # noqa: PLR0917  static and donated arguments are told by position
        program: SplitProgram,
        given: tuple[Values, Values, Values],
        carry: Values,
        ys: Values,
        start: jax.Array,
        stop: jax.Array,
    ) -> tuple[Values, Values]:
        consts, xs, controls = given
        return program.run(LoopInputs(consts, xs, carry, ys), start, stop, controls)

    for name in ("__name__", "__qualname__", "__module__"):
        setattr(rounds, name, getattr(function, name, getattr(rounds, name)))
    return jax.jit(rounds, static_argnums=0, donate_argnums=(2, 3))


class _Rows:
    """Reads what the rows of a chunk tell of its logs."""

    def __init__(self) -> None:
        self.jitted = jax.jit(lambda program, *values: program.log_rows(*values), static_argnums=0)

    def keys(self, args: Sequence[Any]) -> Collection[str]:
        program, _, _, ys, _, _ = args
        is_on_one = all(len(rows.sharding.device_set) == 1 for rows in ys)
        return program.stacked.keys if program.stacked is not None and is_on_one else ()

    def arguments(self, args: Sequence[Any], results: tuple[Values, Values] | None = None) -> tuple[Any, ...]:
        program, (consts, xs, _), _, ys, start, stop = args
        return program, consts, xs, ys if results is None else results[1], start, stop


def _restored(state: LoopState, given: LoopInputs, length: int) -> tuple[Values, Values, int]:
    """Return what a state holds, as copies that the loop may take over.

    Raises:
        ValueError: It is the state of another loop.
    """
    saved, fresh = (state.carry, state.ys), (given.carry, given.ys)
    shapes = [[(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(one)] for one in (saved, fresh)]
    if state.length != length or shapes[0] != shapes[1]:
        raise ValueError("Expected a state of this loop, got one of another length, or with other shapes or dtypes")
    carry, ys = jax.tree.map(lambda leaf, new: jax.device_put(leaf, new.sharding, may_alias=False), saved, fresh)
    return carry, ys, state.n_done


def chunked(
    f: Callable[P, R],
    *,
    every: int,
    run: Run | None = None,
    event: str = "batch",
    between: Callable[[LoopState], object] | None = None,
) -> Chunked[P, R]:
    """Run the one outermost `lax.scan` of a function in chunks, so that clients can ask while it runs.

    Queries are answered as by `live`: a chunk is a call of a live step, and a round of the loop is its event. Commands
    apply, `pause` holds and `stop` ends the loop between two chunks.

    Args:
        f: A function that JAX can trace, jitted or not, for example `jax.jit(jax.vmap(train))`. Its outermost loop is
            one `lax.scan`, with any code before and after; of several, the one that logs.
        every: How many rounds a chunk has at most. Chunks are of equal length, give or take one round.
        run: The run; `None` for the newest one, or the next to begin.
        event: The name of the event that each round of the loop is.
        between: Called after each chunk with the `LoopState`, to save it, for example.

    Returns:
        A function to call in place of `f`, outside of other transformations. On a CPU, what the loop computes is
        bit-equal. What is before and after it is compiled apart, so sums there may differ in their last digit.

    Raises:
        ValueError: `every` is less than 1.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from sightglass.jax import chunked, log
        >>> def train(w):
        ...     def update(w, i):
        ...         log({"loss": w * w}, step=i)
        ...         return 0.9 * w, w
        ...     return jax.lax.scan(update, w, jnp.arange(100))
        >>> w, ws = chunked(train, every=10)(1.0)
        >>> ws.shape
        (100,)
    """
    return Chunked(f, every, run, event, between)
