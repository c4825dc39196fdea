"""The part of an answer over many runs that comes from one of them.

For a reduction it is the state of the query's last reducer. `merged` makes of the states what one reducer gives that
takes the values of all runs, run after run; for this, the ordinals of a run's events are moved behind those of the runs
before it. For a table it is the last value of each query.

The functions here run wherever an executor runs them: what goes in and out can be pickled.

`in_order` runs such parts on an executor: here, in processes, on Dask.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from sightglass.client.describe import LACKS_ENTRY, RunInfo
from sightglass.client.recorded.plan import ReplayPlan, parse, plan
from sightglass.client.recorded.playback import Playback
from sightglass.client.recorded.replay import Replay
from sightglass.client.recorded.timeline import items_of
from sightglass.core.columns import Columns
from sightglass.core.errors import MissingExtraError, QueryError, SightglassError, WorkerLostError
from sightglass.core.process.threads import process_pool
from sightglass.core.program_values.guarded import message
from sightglass.query.pipeline import last_reducer
from sightglass.query.query import Query
from sightglass.query.reduce.reducer import Reducer, State
from sightglass.query.reduce.table import can_reduce, reduce_columns, reducer
from sightglass.query.stages import Group, Reduce, WholeRun
from sightglass.query.windows import PipelineItem
from sightglass.storage import cache_file
from sightglass.storage.format.block import Key
from sightglass.storage.read import run_totals
from sightglass.storage.read.recording import Recording, may_name
from sightglass.storage.read.series import Series

from .table import parse_column, value_at

# Of a run: at a million a second, twelve days. A million such runs have event numbers below 2^63.
MAX_EVENTS: Final = 2**40
PIECE_ROWS: Final = 2**20  # 24 MB of a series of numbers

By = Callable[[RunInfo], Any]
"""What runs are grouped by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A piece of work about one run.

    Attributes:
        path: The run's directory or file.
        rank: The rank whose records to read; `None` for the lowest.
        queries: The queries, as texts.
        number: The run's number among those that are asked.
        part: Which part of its records, from 0.
        n_parts: Into how many parts its records are divided.
    """

    path: str
    rank: int | None = None
    queries: tuple[str, ...]
    number: int = 0
    part: int = 0
    n_parts: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """What a run, or a part of its records, contributes.

    Attributes:
        values: By the text of each query, for a reduction the state of its last reducer, else its last value; `None` if
            there is none.
        problems: Why a query is not answered, or not from all records, by its text.
    """

    values: dict[str, Any] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)


def whole_run(query: Query) -> Query:
    """Return a query whose last reducer closes at the end of the run.

    Raises:
        QueryError: It does not end in a reducer without a window, or in one whose states do not merge.
    """
    last = query.stages[-1] if query.stages else None
    if not isinstance(last, Reduce) or not isinstance(last.window, Group | WholeRun):
        raise QueryError(f"Expected a query that ends in a reducer without a window, got {query}")
    if last_reducer(query).merge is None:
        raise QueryError(
            f"Expected a reducer that merges over runs, got {last.name}: it depends on the order of events"
        )
    return replace(query, stages=(*query.stages[:-1], replace(last, window=WholeRun())))


def partial(task: Task) -> Contribution:
    """Return the states of the queries' last reducers over a part of a run's records."""
    return _answer(task, _Recorded.state)


def last_values(task: Task) -> Contribution:
    """Return the last value of each query's stream in a run."""
    return _answer(task, _Recorded.last_value)


def grouped(
    names: Iterable[str], info_of: Callable[[str], RunInfo], by: By | None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what each run is grouped by, and why some are not, by their names."""
    groups: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for name in names:
        try:
            groups[name] = None if by is None else by(info_of(name))
        except LACKS_ENTRY as error:
            problems[name] = message(error)
    return groups, problems


def merged(query: Query, states: Iterable[tuple[Any, State]], by: By | None) -> Any:
    """Return the result of a query's last reducer over the states of runs; with `by`, a result for each group.

    Args:
        query: The query.
        states: The groups and the states, in the order of the runs; `None` stands for no value.
        by: What runs are grouped by.
    """
    reducer = last_reducer(query)
    totals: dict[Any, State] = {}
    for group, state in states:
        totals[group] = _together(reducer, totals.get(group), state)
    results = {group: reducer.finish(reducer.start() if total is None else total) for group, total in totals.items()}
    return results[None] if by is None else results


def _answer(task: Task, ask: Callable[[_Recorded, str, Task], Any]) -> Contribution:
    answer = Contribution()
    try:
        recorded = _Recorded(task)
    except (SightglassError, OSError) as error:
        return Contribution(problems=dict.fromkeys(task.queries, message(error)))
    try:
        for text in task.queries:
            try:
                answer.values[text] = ask(recorded, text, task)
            except (SightglassError, OSError) as error:
                answer.problems[text] = message(error)
        n_damaged = recorded.n_damaged
        if n_damaged and not answer.problems:
            answer.problems[task.queries[0]] = f"{n_damaged} parts of its files are damaged and were left out"
    finally:
        recorded.close()
    return answer


class _Recorded:
    """A recorded run: its totals, and its files, which are opened when they are needed.

    Of its series each is read once, however many queries ask about it.
    """

    def __init__(self, task: Task) -> None:
        self._path, self._rank = Path(task.path), task.rank
        self._files = cache_file.files_of(self._path, rank=self._rank)
        self._totals = run_totals.load(self._path, self._files, rank=self._rank)
        self._recording: Recording | None = None
        self._read: dict[Key, list[Columns]] = {}
        self._keys = tuple(self.recording.keys() if self._totals is None else self._totals.keys)

    def _keys_for(self, text: str) -> tuple[Key, ...]:
        """Return all keys, and what else a query names; the files are opened only if it may name something."""
        return (*self._keys, *self.recording.keys_in(text)) if may_name(text) else self._keys

    @property
    def recording(self) -> Recording:
        """The files."""
        if self._recording is None:
            self._recording = Recording(self._path, rank=self._rank)
        return self._recording

    @property
    def n_damaged(self) -> int:
        """How many parts of the files are known to be damaged."""
        return len(self._recording.damages) if self._recording is not None else 0

    def close(self) -> None:
        """Close the files; keep the totals of an intact run that has none."""
        if self._recording is not None:
            if self._totals is None and not self.n_damaged:
                with suppress(SightglassError, OSError):  # such as a sum beyond 64 bits: there are no totals then
                    run_totals.make(self._recording, self._files, rank=self._rank)
            self._recording.close()

    def state(self, text: str, task: Task) -> State:
        """Return the state of a query's last reducer over a part of the records."""
        chosen = _plan_of_states(text, self._keys_for(text))
        query = chosen.query
        first_ordinal = task.number * MAX_EVENTS
        if _takes_series(chosen):
            series = self._series(chosen)
            start, stop = (len(series) * part // task.n_parts for part in (task.part, task.part + 1))
            return _reduced(query, self._parts(series, start, stop), first_ordinal)
        if task.part:
            return None  # the first part reads all: the stages before need the records in order
        items = Playback.of_all(chosen, self.recording).items(Replay(chosen, but_last=True))
        return _updated(last_reducer(query), None, items, first_ordinal)

    def last_value(self, text: str, task: Task) -> Any:
        """Return the last value of a query's stream, or the value of a series where another one is best."""
        column = parse_column(text, title=text)
        if column.at and not any(key.tag == text.rpartition(".")[0] for key in self._keys):
            best = self.last_value(f"{column.at}.arg{column.reducer}", task)
            found = None if best is None else value_at(self.recording.series(column.text), best["step"])
            return _plain(found)
        chosen = _plan_of_values(text, self._keys_for(text))
        if chosen.how == "records":
            total = self._total(chosen, "last")
            if total is not None:
                return total[1]
            series = self._series(chosen)
            rows = [columns for columns in series.parts(max(0, len(series) - 1)) if len(columns)]
            return _plain(rows[-1].values[-1]) if rows else None
        last = chosen.query.stages[-1]
        if isinstance(last, Reduce) and isinstance(last.window, WholeRun) and _takes_series(chosen):
            total = self._total(chosen, last.name) if last.by is None and not last.args else None
            if total is not None:
                return reducer(last.name, {}).finish(total)
            series = self._series(chosen)
            state = _reduced(chosen.query, self._parts(series, 0, len(series)), 0)
            if state is not None:
                return last_reducer(chosen.query).finish(state)
        items = deque(Playback.of_all(chosen, self.recording).items(Replay(chosen)), maxlen=1)
        return items[0].value if items else None

    def _total(self, chosen: ReplayPlan, name: str) -> State:
        (key,) = chosen.keys.values()
        return None if self._totals is None else self._totals.state(key, name)

    def _series(self, chosen: ReplayPlan) -> Series:
        (key,) = chosen.keys.values()
        return self.recording.series(key)

    def _parts(self, series: Series, start: int, stop: int) -> Iterable[Columns]:
        if stop - start > PIECE_ROWS:
            pieces = itertools.pairwise([*range(start, stop, PIECE_ROWS), stop])
            return itertools.chain.from_iterable(series.parts(low, high) for low, high in pieces)
        if series.key not in self._read:
            self._read[series.key] = series.parts(start, stop)
        return self._read[series.key]


# The runs of a sweep have the same series, and are asked the same.
@lru_cache(maxsize=256)
def _plan_of_values(text: str, keys: tuple[Key, ...]) -> ReplayPlan:
    return plan(parse(text, keys), keys)


@lru_cache(maxsize=256)
def _plan_of_states(text: str, keys: tuple[Key, ...]) -> ReplayPlan:
    query = whole_run(parse(text, keys))
    # A result over the whole run may have been recorded: it does not merge.
    return plan(query, [key for key in keys if key.query != query.key])


def _takes_series(chosen: ReplayPlan) -> bool:
    """Return whether the last stage, a reducer, takes the records of a series as they are."""
    return chosen.how == "prefix" and chosen.n_done == len(chosen.query.stages) - 1


def _reduced(query: Query, parts: Iterable[Columns], first_ordinal: int) -> State:
    """Return the state of a query's last reducer after the records of a series; `None` without any."""
    total = None
    for columns in parts:
        total = folded(query, total, columns, first_ordinal)
    return total


def folded(query: Query, state: State, columns: Columns, first_ordinal: int) -> State:
    """Return the state of a query's last reducer after more records of what it reduces; `None` for no record so far."""
    reducer = last_reducer(query)
    if reducer.merge is not None and len(columns) and can_reduce(reducer, columns.values):
        return _together(reducer, state, reduce_columns(reducer, columns, first_ordinal))
    return _updated(reducer, state, items_of(columns), first_ordinal)


def _updated(reducer: Reducer, state: State, items: Iterable[PipelineItem], first_ordinal: int) -> State:
    """Return a reducer's state after more items; `None` if there are none at all."""
    for item in items:
        if state is None:
            state = reducer.start()
        place = item.step, item.wall_time, item.steps
        value = (item.value, place) if reducer.reads_place else item.value
        state = reducer.update(state, value, first_ordinal + item.ordinal)
    return state


def _together(reducer: Reducer, first: State, second: State) -> State:
    """Return the state of what two states are of; `None` stands for no value."""
    assert reducer.merge is not None
    return second if first is None else first if second is None else reducer.merge(first, second)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


# Run tasks on an executor: in this process, in processes of this machine, on Dask, or on any other.
#
# An executor is anything with the interface of `concurrent.futures.Executor`. Tasks and results must be picklable.

Item = TypeVar("Item")
Result = TypeVar("Result")

SCHEDULER: Final = "SIGHTGLASS_EXECUTOR"

Chosen = Executor | str | None
"""`None` for this process, or for the scheduler that SIGHTGLASS_EXECUTOR names; "processes"; the address of a Dask
scheduler, such as "tcp://10.0.0.1:8786"; or an executor."""


def in_order(function: Callable[[Item], Result], tasks: Sequence[Item], executor: Chosen = None) -> list[Result]:
    """Return a function's result for each task.

    An exception of a task, or Ctrl-C, is raised; what has not begun is cancelled then. On a terminal, a bar shows how
    many are done.

    Raises:
        MissingExtraError: The address of a scheduler is given, and Dask is not installed.
        WorkerLostError: A process of the executor ended without an answer.
    """
    with _opened(executor if executor is not None else os.environ.get(SCHEDULER)) as chosen, _progress(tasks) as done:
        if chosen is None:
            return [done(function(task)) for task in tasks]
        futures: list[Future[Result]] = []
        try:
            for task in tasks:
                futures.append(chosen.submit(function, task))
                futures[-1].add_done_callback(done)
            return [future.result() for future in futures]
        except BrokenExecutor as error:
            raise WorkerLostError(_why_lost(executor)) from error
        finally:
            for future in futures:
                future.cancel()


def _why_lost(executor: Chosen) -> str:
    advice = "A script needs `if __name__ == '__main__':` around its work." if executor == "processes" else ""
    return (
        "A worker process ended before it answered; the system may have killed it for lack of memory. Ask fewer runs "
        f"at a time, leave executor= out, or use Dask, which repeats lost work. {advice}".strip()
    )


@contextmanager
def _progress(tasks: Sequence[Item]) -> Iterator[Callable[[Any], Any]]:
    """Return a function that counts a task as done, and returns what it is given."""
    if len(tasks) < 2 or not sys.stderr.isatty():
        yield lambda result: result
        return
    from sightglass.views.surfaces.terminal.progress import TaskProgress  # slow to import, and seldom needed

    with TaskProgress("Reading runs", len(tasks)) as progress:

        def done(result: Any) -> Any:
            progress.advance()
            return result

        yield done


@contextmanager
def _opened(executor: Chosen) -> Iterator[Executor | None]:
    """Return an executor; one that is made here is closed again."""
    if not isinstance(executor, str):
        yield executor
    elif executor == "processes":
        pool = process_pool()
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)
    else:
        with _dask_client(executor) as client:
            yield client.get_executor()


def _dask_client(address: str) -> Any:
    try:
        import distributed
    except ImportError:
        raise MissingExtraError("distributed", extra="dask", purpose=f"Asking runs on {address}") from None
    client: Any = distributed.Client
    return client(address, set_as_default=False)
