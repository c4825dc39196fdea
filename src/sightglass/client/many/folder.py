"""The recorded runs of one or more folders: chosen by what they say about themselves, and asked together.

A question to all runs becomes one task for each run, or for each part of a large one (`partial`). An executor works on
the tasks (`partial.in_order`); what comes back is small, states of reducers or single values, and is put together here.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from sightglass.client.describe import (
    RunInfo,
    check_condition,
    choose,
    coverage_of,
    recorded_info,
    warn_of_coverage,
)
from sightglass.client.recorded.run import RecordedRun, opened
from sightglass.client.streams.answer import Answer
from sightglass.client.streams.stream import Stream, union_of_runs
from sightglass.core.errors import (
    DamagedError,
    QueryError,
    RunNotFoundError,
    UnknownNameError,
    warn_user,
)
from sightglass.core.process.current_run import Bound
from sightglass.core.process.files import runs_folder
from sightglass.core.program_values.guarded import message
from sightglass.protocol import discovery
from sightglass.query.parser import as_query
from sightglass.query.query import Query
from sightglass.query.reduce.reducer import State
from sightglass.storage import run_listing
from sightglass.storage.file_names import is_there
from sightglass.storage.format.block import ValueKind
from sightglass.storage.format.series_names import KINDS
from sightglass.storage.run_listing import RunEntry, is_run, is_single, runs_in

from .partial import By, Chosen, Contribution, Task, grouped, in_order, last_values, merged, partial, whole_run
from .table import RunRow, RunsTable, TableColumn, known_value, parse_column, row_of, texts_of

Result = TypeVar("Result")

# Errors of one run in a folder that do not keep the others from being queried.
SKIPPED: Final = (DamagedError, UnknownNameError)
EXPECTED: Final = "expected record files, or folders with some"
PART_BYTES: Final = 64 * 2**20  # of a run that several workers read: a second or so of one worker


class RecordedRuns(Bound, Mapping[str, RecordedRun]):
    """The recorded runs in folders, by their paths in them, newest first. Made by `sightglass.open`."""

    def __init__(self, entries: Mapping[str, RunEntry], *, place: str, rank: int | None, follow: bool) -> None:
        self._entries = entries
        self._place = place
        self._rank = rank
        self._follow = follow
        self._opened: dict[str, RecordedRun] = {}

    def _instead(self) -> str:
        return f"Pass the folder, and open it there: sg.open({self._place!r})"

    def where(self, condition: Callable[[RunInfo], Any]) -> RecordedRuns:
        """Return the runs for which a condition holds.

        Args:
            condition: A function of a `RunInfo`, such as `lambda run: run.config.lr < 0.1`. A run whose
                configuration lacks an entry that it reads is not chosen; if all lack it, a warning says so. A run for
                which it fails, such as for a text where the others have a number, is not chosen; a warning names it.

        Raises:
            Exception: What the condition raises, if it fails for all runs.
        """
        check_condition(condition)
        infos = {name: recorded_info(entry, rank=self._rank) for name, entry in self._entries.items()}
        choice = choose(condition, infos)
        if choice.lacking and len(choice.lacking) == len(infos):
            warn_user(f"No run has what the condition reads: {message(next(iter(choice.lacking.values())))}")
        if choice.failed:
            name, error = next(iter(choice.failed.items()))
            n_failed, n_runs = len(choice.failed), len(infos)
            warn_user(
                f"{n_failed:,} of {n_runs:,} runs are left out: the condition fails for {name!r}: {message(error)}"
            )
        chosen = {name: self._entries[name] for name in choice.chosen}
        return RecordedRuns(chosen, place=self._place, rank=self._rank, follow=self._follow)

    def table(self, *unnamed: Query | str, executor: Chosen = None, **queries: Query | str) -> RunsTable:
        """Return a table with a row for each run: its state, its configuration, and the columns that are asked for.

        A column is the last value of a query, which is one value over the whole run if it ends in `per="run"`; a tag
        and a reducer, `val/accuracy.max`; the value of a series where another one is best, `loss@val/accuracy.max`; an
        entry of the configuration, `config.lr`; or a fact of the run, `run.host`.

        Args:
            *unnamed: Columns that are named by their texts: `table("batch.loss", "val/accuracy.max")`.
            executor: Where to work: `None` for this process, or for the scheduler that `SIGHTGLASS_EXECUTOR` names;
                "processes"; the address of a Dask scheduler; or a `concurrent.futures.Executor`.
            **queries: Columns by name: `loss="batch.loss.min(per='run')"`.

        Returns:
            The table. Where a run does not answer, its cell is `None`, and its "problem" says why.

        Raises:
            QueryError: A column is empty.
            ValueError: A column has the name of one that every table has.
        """
        texts = texts_of(unnamed, queries)
        columns = {name: parse_column(text, title=name) for name, text in texts.items()}
        read = [text for name, text in texts.items() if columns[name].kind in ("query", "series")]
        tasks = [
            Task(path=str(entry.path), rank=self._rank, queries=tuple(dict.fromkeys(read)))
            for entry in self._entries.values()
        ]
        answers = in_order(last_values, tasks, executor) if read else [Contribution()] * len(tasks)
        return RunsTable([self._row(name, texts, columns, answer) for name, answer in zip(self, answers, strict=True)])

    def _row(
        self, run: str, texts: Mapping[str, str], columns: Mapping[str, TableColumn], answer: Contribution
    ) -> RunRow:
        about = recorded_info(self._entries[run], rank=self._rank)
        values = {
            name: answer.values.get(texts[name]) if (known := known_value(column, about)) is None else known
            for name, column in columns.items()
        }
        problems = {name: answer.problems[text] for name, text in texts.items() if text in answer.problems}
        return row_of(run, about.state, about.config, values, problems)

    def reduce(self, query: Query | str, *, by: By | None = None, executor: Chosen = None) -> Any:
        """Return the result of a query's last reducer over the values of all runs together.

        It is the result of one run with the events of all of them, one run after another in the order in which they
        began. Runs that do not answer are left out; a warning names them.

        Args:
            query: A query that ends in a reducer without a window.
            by: A function of a `RunInfo`, such as `lambda run: run.config.optimizer`: the result is a mapping with a
                result for each of its values. A run whose configuration lacks an entry that it reads does not answer.
            executor: As in `table`.

        Raises:
            QueryError: The query is not valid, its last reducer does not merge, or no run answers it.
        """
        whole = whole_run(as_query(query))
        text = str(whole)
        entries = dict(sorted(self._entries.items(), key=lambda entry: (entry[1].started, entry[0])))
        groups, problems = grouped(entries, lambda name: recorded_info(entries[name], rank=self._rank), by)
        tasks = _parts({name: entries[name] for name in groups}, text, rank=self._rank)
        states: list[tuple[Any, State]] = []
        for (name, _), answer in zip(tasks, in_order(partial, [task for _, task in tasks], executor), strict=True):
            states += [(groups[name], state) for state in answer.values.values()]
            if answer.problems:
                problems[name] = answer.problems[text]
        if not states:
            raise QueryError(next(iter(problems.values()), f"No run was recorded in {self._place}"))
        warn_of_coverage(query, problems, len(entries))
        return merged(whole, states, by)

    def map(self, function: Callable[[RecordedRun], Result], *, executor: Chosen = None) -> dict[str, Result]:
        """Call a function with each run, and return the results by the runs' names; its exceptions are raised.

        Args:
            function: A function of a `RecordedRun`. For other processes it must be picklable, such as a function of a
                module; Dask takes any.
            executor: As in `table`.
        """
        tasks = [(function, entry.path, self._rank) for entry in self._entries.values()]
        return dict(zip(self, in_order(_apply, tasks, executor), strict=True))

    def __getitem__(self, name: str) -> RecordedRun:
        if name not in self._entries:
            raise UnknownNameError("run", name, self._entries, where=f"in {self._place}")
        if name not in self._opened:
            self._opened[name] = opened(self._entries[name].path, rank=self._rank, follow=self._follow)
        return self._opened[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def tags(self) -> list[str]:
        """Return the tags of all runs, sorted."""
        tags: set[str] = set()
        for name in self:
            with contextlib.suppress(*SKIPPED), self.borrow(name) as run:
                tags.update(run.tags())
        return sorted(tags)

    def stream(self, query: Query | str) -> Stream:
        """Return the union of the streams of all runs that can answer a query; each record has the name of its run.

        `Stream.note` names the runs that cannot. Values of several kinds are never mixed: if a tag has tensors in some
        runs and histograms in others, the tag means the tensors, and a warning names the runs that are left out;
        "kernel:histogram" means the others.

        Raises:
            QueryError: The query is not valid, or no run can answer it.
        """
        streams: dict[str, Stream] = {}
        kinds: dict[str, ValueKind] = {}
        unanswered: dict[str, Exception] = {}
        for name in self:
            try:
                with self.borrow(name) as run:
                    stream = run.stream(query)
                    stream.since(0)  # read all records before the files are closed
                    series = run.series_of(query)
                    kinds[name] = "" if series is None else series.kind
                    streams[name] = stream
            except (QueryError, *SKIPPED) as error:
                unanswered[name] = error
        if not streams:
            raise next(iter(unanswered.values()), QueryError(f"No run was recorded in {self._place}"))
        kind = next((kind for kind in KINDS if kind and kind in kinds.values()), "")
        others = {
            name: f"the values of {query} are of the kind {kinds[name]}, not {kind}"
            for name in streams
            if kinds[name] not in ("", kind)
        }
        warn_of_coverage(query, others, len(self))
        lacking = {name: message(error) for name, error in unanswered.items()}
        coverage = coverage_of(query, lacking | others, len(self))
        return union_of_runs([stream for name, stream in streams.items() if name not in others], coverage=coverage)

    def ask(self, query: Query | str, n: int = 1, *, timeout_s: float = 0.0) -> dict[str, Answer]:
        """Return the last values of a query in each run, by the runs' names; a warning names the runs without one.

        Args:
            query: As in `stream`, as are the errors.
            n: How many values of each run.
            timeout_s: How long to wait for so many of a run that is followed.
        """
        answers: dict[str, Answer] = {}
        unanswered: dict[str, Exception] = {}
        for name in self:
            try:
                with self.borrow(name) as run:
                    answers[name] = run.ask(query, n, timeout_s=timeout_s)
            except (QueryError, TimeoutError, *SKIPPED) as error:
                unanswered[name] = error
        if not answers and unanswered:
            raise next(iter(unanswered.values()))
        warn_of_coverage(query, {name: message(error) for name, error in unanswered.items()}, len(self))
        return answers

    def latest(self, query: Query | str) -> dict[str, Any]:
        """Return the last value of a query in each run, by the runs' names.

        Runs without a value are left out; a warning names them, and those that do not answer in full.
        """
        text = query if isinstance(query, str) else str(as_query(query))
        tasks = [Task(path=str(entry.path), rank=self._rank, queries=(text,)) for entry in self._entries.values()]
        answers = {name: last_values(task) for name, task in zip(self, tasks, strict=True)}
        problems = {name: answer.problems[text] for name, answer in answers.items() if answer.problems}
        warn_of_coverage(query, problems, len(answers))
        values = {name: answer.values.get(text) for name, answer in answers.items()}
        return {name: value for name, value in values.items() if value is not None}

    @contextlib.contextmanager
    def borrow(self, name: str) -> Iterator[RecordedRun]:
        """Open a run for a moment, unless it is open: a folder may hold more runs than a process may open files."""
        if name in self._opened:
            yield self[name]
            return
        run = opened(self._entries[name].path, rank=self._rank, follow=self._follow)
        if not run.ended:
            self._opened[name] = run
            yield run
            return
        with run:
            yield run

    def close(self) -> None:
        """Close all runs that were opened."""
        for run in self._opened.values():
            run.close()

    def __enter__(self) -> RecordedRuns:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RecordedRuns in {self._place}: {', '.join(itertools.islice(self, 8))}>"


def open(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    *,
    rank: int | None = None,
    follow: bool = False,
    follow_links: bool = False,
) -> RecordedRun | RecordedRuns:
    """Open a recorded run: a run directory, a file that `Stream.save` wrote, or a folder of runs, or several folders.

    Directories of MindSpore, of TensorBoard, of offline runs of W&B and of runs of MLflow open in the same way.

    Args:
        path: The directory, file or folder; or several of them. By default the folder of the environment's
            `SIGHTGLASS_RUNS`, else "runs".
        rank: The rank whose files to read, where several ranks recorded; by default the lowest.
        follow: Whether streams continue while another process is still writing. Other programs do not say when they
            end: streams of their files end when these have not changed for 150 s.
        follow_links: Whether to follow links to directories outside of the folder, too.

    Returns:
        A `RecordedRun`, or for a folder of several runs `RecordedRuns`, by their paths in it.

    Raises:
        RunNotFoundError: The path does not exist, or holds no records.
        DamagedError: The file is not a record file, or a newer version wrote it.
        UnknownNameError: The rank recorded nothing here.
    """
    if path is None:
        path = runs_folder()
    if not isinstance(path, str | os.PathLike):
        return open_all(path, rank=rank, follow=follow, follow_links=follow_links)
    folder = _existing(path)
    if is_single(folder):
        return opened(folder, rank=rank, follow=follow)
    runs = found(folder, follow_links=follow_links)
    entries = {entry.path.relative_to(folder).as_posix(): entry for entry in runs}
    return _runs(entries, [folder], rank=rank, follow=follow)


def open_all(
    paths: Iterable[str | os.PathLike[str]],
    *,
    rank: int | None = None,
    follow: bool = False,
    follow_links: bool = False,
) -> RecordedRuns:
    """Open runs and folders of runs together, by their paths; as `open`."""
    folders = list(map(_existing, paths))
    entries = {str(entry.path): entry for folder in folders for entry in _entries_in(folder, follow_links)}
    return _runs(entries, folders, rank=rank, follow=follow)


def _runs(entries: Mapping[str, RunEntry], folders: Sequence[Path], *, rank: int | None, follow: bool) -> RecordedRuns:
    place = " and ".join(repr(str(folder)) for folder in folders)
    if not entries:
        searched = [runs_in(folder, alive=discovery.alive) for folder in folders]
        why = "all runs there are in the trash" if any(one.runs for one in searched) else EXPECTED
        why = "; ".join(filter(None, [why, *(one.note for one in searched)]))
        raise RunNotFoundError(f"Nothing was recorded in {place}: {why}")
    return RecordedRuns(entries, place=place, rank=rank, follow=follow)


def found(folder: Path, *, follow_links: bool = False) -> list[RunEntry]:
    """List the recorded runs in a folder, newest first, without those in the trash."""
    runs, note = runs_in(folder, alive=discovery.alive, follow_links=follow_links)
    if runs and note:  # else an error says it
        warn_user(note)
    return [entry for entry in runs if not entry.annotations.deleted]


def _existing(path: str | os.PathLike[str]) -> Path:
    if not os.fspath(path) or not is_there(path):
        raise RunNotFoundError(f"{os.fspath(path)!r} does not exist")
    return Path(path)


def _entries_in(folder: Path, follow_links: bool) -> list[RunEntry]:
    one = run_listing.run_at(folder, alive=discovery.alive) if is_run(folder) else None
    return found(folder, follow_links=follow_links) if one is None else [one]


def _parts(entries: Mapping[str, RunEntry], text: str, *, rank: int | None) -> list[tuple[str, Task]]:
    """Return the tasks for a query, each with the name of its run; several for a large run."""
    return [
        (name, Task(path=str(entry.path), rank=rank, queries=(text,), number=number, part=part, n_parts=n_parts))
        for number, (name, entry) in enumerate(entries.items())
        for n_parts in (1 + entry.n_bytes // PART_BYTES,)
        for part in range(n_parts)
    ]


def _apply(task: tuple[Callable[[RecordedRun], Result], Path, int | None]) -> Result:
    function, path, rank = task
    with opened(path, rank=rank, follow=False) as run:
        return function(run)
