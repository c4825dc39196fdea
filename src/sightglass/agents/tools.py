"""What the tools answer: plain data. What comes from a run stands under `data`; all other words are ours.

A public method of `Tools` is a tool: its arguments are those of the tool, its docstring is what an agent reads.
"""

from __future__ import annotations

import itertools
import operator
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal

import msgspec
import numpy as np

from sightglass.client.describe import RunInfo
from sightglass.client.many.folder import RecordedRuns
from sightglass.client.many.table import TableColumn, known_value, parse_column
from sightglass.client.recorded.run import RecordedRun
from sightglass.client.run import RemoteRun
from sightglass.client.streams.answer import answer_of
from sightglass.client.streams.own_data import stream as stream_of
from sightglass.client.streams.stream import Stream
from sightglass.core.columns import Columns, Record
from sightglass.core.description import Description
from sightglass.core.errors import QueryError, RunLostError, RunNotFoundError, SightglassError
from sightglass.core.process.unpatched import threading
from sightglass.core.values import Image, Images
from sightglass.diagnosis.diagnose import diagnose
from sightglass.query.condition import as_condition, holds
from sightglass.query.query import Query
from sightglass.storage import run_file
from sightglass.storage.format.png import encode_png
from sightglass.storage.read.series import Series
from sightglass.storage.run_listing import RunEntry
from sightglass.views import plot

from .reply import fit
from .runs import AgentRuns

MAX_QUERIES: Final = 8
MAX_ASKED: Final = 16  # runs that are asked together
MAX_WAIT_S: Final = 20.0
MAX_LIMIT_S: Final = 45.0
MAX_RECORDS: Final = 1_000
MAX_POINTS: Final = 1_000
MAX_WATCHES: Final = 16
MAX_IDLE_S: Final = 300.0
N_EXAMPLES: Final = 5
N_ALERTS: Final = 5
N_HISTORY: Final = 100
MAX_LINES: Final = 12  # of a stack: the innermost calls

_CONDITION: Final = re.compile(r"\s*(.+?)\s*(<=|>=|!=|==|=|<|>)\s*(.+?)\s*")
_OPERATORS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "=": operator.eq, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


class Tools:
    """The tools, over some runs."""

    def __init__(self, runs: AgentRuns, *, client: str = "agent") -> None:
        """Answer about some runs.

        Args:
            runs: The runs.
            client: How the history of a run names this client.
        """
        self._runs = runs
        self._client = client
        self._watches = Watches()

    def find_runs(
        self,
        *,
        where: tuple[str, ...] = (),
        sort: str = "-run.started",
        columns: tuple[str, ...] = (),
        limit: int = 20,
        cursor: int = 0,
    ) -> str:
        """List runs with their state, newest first, and columns of your choice.

        where: conditions that all must hold: "config.lr<0.01", "run.state=failed", "val/accuracy.max>=0.8".
        sort, columns: "config.lr", "run.duration", "loss.min", "val/accuracy.max", "loss@val/accuracy.max" (the loss
        where accuracy is best), or a query. A "-" before sort: highest first. cursor: of an earlier answer.
        """
        entries = self._runs.entries()
        infos = self._runs.infos(entries)
        conditions = [_condition(text) for text in where]
        falls, by = sort.startswith("-"), parse_column(sort.lstrip("-"))
        wanted = {column.title: column for column in (*map(parse_column, columns), by, *(c for c, _, _ in conditions))}
        rows = _rows(infos, entries, list(wanted.values()))
        problems = {key: row.pop("problem") for key, row in rows.items() if "problem" in row}
        kept = {key: row for key, row in rows.items() if all(_holds(row.get(c.title), o, v) for c, o, v in conditions)}
        known = [key for key in kept if _sortable(kept[key].get(by.title))]
        known.sort(key=lambda key: _rank(kept[key][by.title]), reverse=falls)
        order = [*known, *(key for key in kept if not _sortable(kept[key].get(by.title)))]
        page = order[cursor : cursor + max(1, limit)]
        titles = [column.title for column in map(parse_column, columns)]
        listed = [
            {"run": key, "how": infos[key].sentence, **{title: kept[key].get(title) for title in titles}}
            for key in page
        ]
        answer: dict[str, Any] = {"data": {"runs": listed}}
        if problems:
            answer["problems"] = f"{len(problems):,} runs lack a column; the first problem is in data"
            answer["data"]["problem"] = next(iter(problems.items()))

        def head(n: int) -> dict[str, Any]:
            more = {"cursor": cursor + n} if cursor + n < len(order) else {}
            return {"shown": f"{n:,} of {len(order):,} runs; {len(infos):,} in all", **more}

        return fit(answer, "runs", how="Pass the cursor for the next ones.", head=head)

    def describe_run(self, run: str) -> str:
        """Say how a run is, what can be asked of it, with types, some queries that work, controls, actions, alerts."""
        with self._runs.opened(run) as found:
            about = found.describe()
            told = [one for one in found.last_commands(N_HISTORY) if one.kind == "alert"][-N_ALERTS:]
        tags: list[str] = []
        with suppress(RunNotFoundError), self._runs.recorded(run) as files:
            tags = files.tags()
        events = {
            name: {key: f"{one.type} {one.example}".strip() for key, one in event.observables.items()}
            for name, event in about.events.items()
        }
        data = {
            "how": about.sentence, "config": about.config, "queries": _examples(about, tags), "events": events,
            "tags": tags,
            "controls": {name: msgspec.to_builtins(one, enc_hook=repr) for name, one in about.controls.items()},
            "actions": {name: f"{name}{one.signature}: {one.doc}" for name, one in about.actions.items()},
            "command": about.facts.get("command"), "git": about.facts.get("git"),
            "alerts": [
                {"title": one.name, "text": one.value, "level": one.note, "step": one.step, "wall_time": one.wall_time}
                for one in told
            ],
        }  # fmt: skip
        return fit({"data": data}, "tags", how="find_runs and history take any tag.")

    def diagnose_run(self, run: str) -> str:
        """Say what looks wrong: why it ended, whether it is stuck, NaN, divergence, plateau, gradients, the machine.

        Each finding has figures, and the query that shows it. not_judged: kinds without anything to look at.
        """
        with self._runs.opened(run) as found:
            told = diagnose(found)
        findings = [
            {**msgspec.to_builtins(one), "detail": one.detail.splitlines()[-MAX_LINES:]} for one in told.findings
        ]
        data = {"run": told.run, "how": told.sentence, "findings": findings}
        answer = {"n_series": told.n_series, "not_judged": list(told.not_judged), "unread": list(told.unread)}
        return fit({**answer, "data": data}, "findings")

    def ask(
        self,
        *,
        runs: list[str],
        queries: list[str],
        n: int = 1,
        since: Literal["now", "start"] = "now",
        wait_s: float = 10.0,
    ) -> str:
        """Ask runs, live or over, for the last n values of each query: "batch.loss", "batch.loss.mean(every=100)".

        Of a live run, values begin now, or with what it recorded with since="start". Each query is answered by itself,
        with its coverage. describe_run has queries that work; the resource sightglass://language has the language.
        """
        if not 1 <= len(queries) <= MAX_QUERIES or not 1 <= len(runs) <= MAX_ASKED:
            raise ValueError(f"Expected 1 to {MAX_QUERIES} queries to 1 to {MAX_ASKED} runs")
        n, until_s = min(max(1, n), MAX_RECORDS), time.monotonic() + min(max(0.0, wait_s), MAX_WAIT_S)
        answers: list[dict[str, Any]] = []
        opened: dict[str, RemoteRun | RecordedRun] = {}
        with ExitStack() as stack:
            infos = self._runs.infos()
            asked: list[tuple[str, str, Stream | None, str]] = []
            for name, query in itertools.product(runs, queries):
                try:
                    if name not in opened:
                        opened[name] = stack.enter_context(self._runs.opened(name, infos))
                    asked.append((name, query, stack.enter_context(_stream(opened[name], query, since)), ""))
                except SightglassError as error:
                    asked.append((name, query, None, str(error)))
            for name, query, stream, problem in asked:
                about = {"run": name, "query": query}
                answers.append({**about, **(_answer(stream, n, until_s) if stream is not None else {"error": problem})})
        return fit(
            {"data": {"answers": answers}}, "answers", how="Ask fewer queries, for fewer values, or reduce them."
        )

    def history(
        self, *, run: str, metrics: list[str], x: Literal["step", "time"] = "step", start: float | None = None,
        end: float | None = None, points: int = 50,
    ) -> str:  # fmt: skip
        """Return recorded numbers over steps, or seconds since the first, joined so that no row is lost.

        Of more than `points` rows, each row stands for some: last, min and max of each metric. start, end: on x.
        """
        if not 1 <= len(metrics) <= MAX_QUERIES:
            raise ValueError(f"Expected 1 to {MAX_QUERIES} metrics, got {len(metrics)}")
        with self._runs.recorded(run) as found:
            series = {metric: found.series(metric) for metric in metrics}
            columns = {metric: _numbers(metric, one, x) for metric, one in series.items()}
        if x == "time":
            began = min((places[0] for places, _ in columns.values() if len(places)), default=0.0)
            columns = {metric: (places - began, values) for metric, (places, values) in columns.items()}
        inside = {metric: _between(places, values, start, end) for metric, (places, values) in columns.items()}
        rows, n = joined(inside, x, min(max(2, points), MAX_POINTS))
        told = f"{len(rows):,} rows of {n:,}" + (
            ": each has the last, the least and the greatest" if n > len(rows) else ""
        )
        return fit({"shown": told, "data": {"rows": rows}}, "rows", how="Ask for fewer points, or for a part of x.")

    def compare_runs(self, *, metric: str, runs: tuple[str, ...] = (), where: tuple[str, ...] = ()) -> str:
        """Compare runs by a column such as "val/accuracy.max": values, the config and code that differ, correlations.

        Runs are named, or chosen by conditions as in find_runs. Correlations are Spearman's, of each number of the
        config with the metric, over n runs.
        """
        entries = self._runs.entries()
        infos = self._runs.infos(entries)
        infos = dict(self._runs.find(run, infos) for run in runs) if runs else infos
        column, conditions = parse_column(metric), [_condition(text) for text in where]
        rows = _rows(infos, entries, [column, *(c for c, _, _ in conditions)])
        kept = [key for key, row in rows.items() if all(_holds(row.get(c.title), o, v) for c, o, v in conditions)]
        configs = {key: _flat(infos[key].config) for key in kept}
        values = {key: rows[key].get(column.title) for key in kept}
        keys = sorted({name for config in configs.values() for name in config})
        differing = [name for name in keys if len({repr(configs[key].get(name)) for key in kept}) > 1]
        compared = [
            {"run": key, metric: values[key], "config": {name: configs[key].get(name) for name in differing}}
            for key in sorted(kept, key=lambda key: _rank(values[key]) if _sortable(values[key]) else (True, ""))
        ]
        data = {
            "runs": compared,
            "correlations": _correlations(differing, configs, values),
            "code": self._code(infos, kept),
        }
        return fit({"shown": f"{len(kept):,} of {len(infos):,} runs", "data": data}, "runs", how="Name fewer runs.")

    def wait_for(self, *, run: str, condition: str, limit_s: float = 30.0, cursor: str = "") -> str:
        """Wait until a condition holds in a live run, such as "batch.loss > 10", or until it ends, at most limit_s.

        The answer has how often it was evaluated, and the last value. Call it again with its cursor to wait on, within
        five minutes: no event between the calls is missed.
        """
        until_s = time.monotonic() + min(max(0.0, limit_s), MAX_LIMIT_S)
        watch = self._watches.pop(cursor) or self._watch(run, condition)
        try:
            what = "ended" if watch is None else watch.wait(until_s)
        except SightglassError:  # the condition cannot be computed
            if watch is not None:
                watch.close()
            raise
        n, last, note = (0, None, "") if watch is None else (watch.n, watch.last, watch.note)
        if watch is not None and what != "not yet":
            watch.close()
        elif watch is not None and last is None:
            watch.close()
            raise TimeoutError(f"{condition!r} was not evaluated once in {limit_s:g} s: its event did not come. {note}")
        value = None if last is None else {"step": last.step, "wall_time": last.wall_time, "value": last.value[1]}
        answer: dict[str, Any] = {"what": what, "evaluated": n, "coverage": note, "data": {"last": value}}
        if watch is not None and what == "not yet":
            answer["cursor"] = self._watches.keep(watch)
        return fit(answer)

    def _watch(self, run: str, condition: str) -> Watch | None:
        """Begin to watch a live run; return `None` if it is over."""
        query = as_condition(condition)
        key, info = self._runs.find(run)
        if info.live:
            with suppress(RunLostError, RunNotFoundError):
                return Watch(self._runs.live(key), query)
        return None

    def look(
        self, *, run: str, query: str, step: float | None = None, slice: str = "", wait_s: float = 5.0
    ) -> bytes:  # fmt: skip
        """Return a picture: a chart of what a query answers; or what a tag has at a step: an image, a tensor, a number.

        slice: a part of a tensor, such as "[0, :, 2:5]"; without a step, of the last one. Of a live run, a chart begins
        with what it recorded, or now.
        """
        if step is not None or slice:
            with self._runs.recorded(run) as files:
                return _seen(files.series(query), step, slice)
        with self._runs.opened(run) as found:
            if isinstance(found, RecordedRun) and query in found.tags() and found.series(query).kind == "image":
                return _seen(found.series(query), None, "")
            with _stream(found, query, "start") as stream, TemporaryDirectory() as folder:
                path = Path(folder, "chart.png")
                view = plot(stream, surface="matplotlib", path=str(path))
                view.wait(min(max(0.0, wait_s), MAX_WAIT_S) if isinstance(found, RemoteRun) else MAX_WAIT_S)
                view.close()
                if not path.exists():
                    raise TimeoutError(f"No record of {query!r} to draw: {stream.note or 'none came in time'}")
                return path.read_bytes()

    def command(
        self, *, run: str, kind: Literal["set", "call", "pause", "resume", "stop"], reason: str, name: str = "",
        value: Any = None,
    ) -> str:  # fmt: skip
        """Send a command to a live run: set a control, call an action, pause, resume, stop; say why.

        The answer says at which step it was applied. The history of the run has the client and the reason.
        """
        with self._runs.live(run) as found:
            sender = found.sent_by(f"{self._client}: {reason.strip()[:200]}")
            match kind:
                case "set":
                    done = sender.set(name, value)
                case "call":
                    done = sender.call(name, *(value if isinstance(value, list) else [] if value is None else [value]))
                case "pause":
                    done = sender.pause(hold=True)
                case "resume":
                    done = sender.resume()
                case _:
                    done = sender.stop()
        return fit({"applied": done.applied, "data": msgspec.to_builtins(done, enc_hook=repr)})

    def note(
        self,
        *,
        run: str,
        text: str = "",
        labels: tuple[str, ...] = (),
        verdict: Literal["", "keep", "discard"] = "",
    ) -> str:
        """Write down something about a run: a line of its notes, labels, and whether to keep or to discard it."""
        with self._runs.recorded(run) as found:
            before = found.annotations.notes
            notes = "\n\n".join(filter(None, [before, text and f"{self._client}: {text}"]))
            other = {"keep": "discard", "discard": "keep"}.get(verdict)
            now = found.annotate(
                notes=notes, add_labels=[*labels, *filter(None, [verdict])], remove_labels=[other] if other else []
            )
        return fit({"data": msgspec.to_builtins(now)})

    def _code(self, infos: Mapping[str, RunInfo], keys: Sequence[str]) -> dict[str, list[str]]:
        """Return the commits of runs, with a word if files were changed, and the runs of each."""
        found: dict[str, list[str]] = {}
        for key in keys:
            path = infos[key].directory
            files = run_file.read_all(Path(path), cached=True) if path else []
            git = (run_file.together(files).facts if files else {}).get("git") or {}
            commit = str(git.get("commit", "unknown"))[:12] + (" with changes" if git.get("dirty") else "")
            found.setdefault(commit, []).append(key)
        return {commit: several[:MAX_ASKED] for commit, several in found.items()}


def _rows(
    infos: Mapping[str, RunInfo], entries: Mapping[str, RunEntry], columns: Sequence[TableColumn]
) -> dict[str, dict[str, Any]]:
    """Return the values of columns for runs, by their titles; a run's "problem" says why one is missing."""
    rows = {key: {c.title: known_value(c, info) for c in columns} for key, info in infos.items()}
    read = {column.title: column.written for column in columns if column.kind in ("query", "series")}
    listed = {key: entry for key, entry in entries.items() if key in infos}
    if read and listed:
        for row in RecordedRuns(listed, place="", rank=None, follow=True).table(**read):
            rows[row["run"]].update({name: row[name] for name in (*read, "problem") if name in row})
    return rows


@contextmanager
def _stream(run: RemoteRun | RecordedRun, query: str, since: str) -> Iterator[Stream]:
    opened = (
        run.stream(query, since="start" if since == "start" else None)
        if isinstance(run, RemoteRun)
        else run.stream(query)
    )
    with opened as stream:
        yield stream


class Watch:
    """A condition that is evaluated at each event of a live run, also between two calls of `wait_for`."""

    def __init__(self, connecting: AbstractContextManager[RemoteRun], query: Query) -> None:
        """Connect to a run, and ask; errors as of `RemoteRun.stream`."""
        with ExitStack() as stack:
            self._stream = stack.enter_context(stack.enter_context(connecting).stream(query))
            self._stack = stack.pop_all()
        self._cursor = 0
        self.n = 0
        self.last: Record | None = None

    @property
    def note(self) -> str:
        """What the stream says, and of how many events it has values."""
        return self._stream.note or self._stream.coverage

    def wait(self, until_s: float) -> Literal["fired", "ended", "not yet"]:
        """Evaluate until the condition holds, the run ends, or a time on the monotonic clock is over."""
        while True:
            with suppress(TimeoutError, RunLostError):
                self._stream.wait(self.n + 1, timeout_s=max(0.0, until_s - time.monotonic()))
            ended = self._stream.ended
            cursor, columns = self._stream.since(self._cursor)
            for i in range(len(columns)):
                self.n, self.last = self.n + 1, columns.record(i, tag=self._stream.tag, run=self._stream.run)
                if holds(self.last):
                    return "fired"
            self._cursor = cursor
            self._stream.forget(cursor)
            if ended or time.monotonic() >= until_s:
                return "ended" if ended else "not yet"

    def close(self) -> None:
        """Close the stream and the connection."""
        self._stack.close()


class Watches:
    """The conditions that are waited for between calls, by their cursors; those that nobody asks for again end."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[float, Watch]] = {}
        self._lock = threading.Lock()

    def keep(self, watch: Watch) -> str:
        """Keep a watch, and return its cursor; end those that are too old or too many."""
        cursor, now_s = secrets.token_hex(4), time.monotonic()
        with self._lock:
            self._open[cursor] = now_s, watch
            over = [key for key, (kept_s, _) in self._open.items() if now_s - kept_s > MAX_IDLE_S]
            if not over and len(self._open) > MAX_WATCHES:
                over = [next(iter(self._open))]
            ended = [self._open.pop(key)[1] for key in over]
        for one in ended:
            one.close()
        return cursor

    def pop(self, cursor: str) -> Watch | None:
        """Return the watch of a cursor, which is another one afterwards; `None` if it is over."""
        with self._lock:
            _, watch = self._open.pop(cursor, (0.0, None))
        return watch


def _answer(stream: Stream, n: int, until_s: float) -> dict[str, Any]:
    try:
        answer = answer_of(stream, n, max(0.0, until_s - time.monotonic()))
    except (SightglassError, TimeoutError) as error:
        return {"error": str(error)}
    steps = [record.step for record in answer.records]
    return {"values": answer[:], "steps": steps, "coverage": answer.coverage}


def _examples(about: Description, tags: Sequence[str]) -> list[str]:
    """Return some queries that the run answers: of its events, else of its tags."""
    of_events = [
        query
        for event, info in sorted(about.events.items(), key=lambda item: (item[0] == "log", -item[1].n_events))
        for name, one in info.observables.items()
        if name != "step" and re.fullmatch(r"float\d*", one.type) and event.isidentifier() and name.isidentifier()
        for query in (f"{event}.{name}", f"{event}.{name}.mean(every=100)", f'{event}.{name}.min(per="run")')
    ]
    return [*of_events, *tags][:N_EXAMPLES]


def _condition(text: str) -> tuple[TableColumn, str, Any]:
    """Return the column, the operator and the value of a condition.

    Raises:
        QueryError: It is not one.
    """
    parts = _CONDITION.fullmatch(text)
    if parts is None:
        raise QueryError(f"Expected a condition such as 'config.lr<0.01' or 'run.state=failed', got {text!r:.200}")
    try:
        value: Any = float(parts[3])
    except ValueError:
        value = {"true": True, "false": False}.get(parts[3].lower(), parts[3].strip("'\""))
    return parse_column(parts[1]), parts[2], value


def _holds(found: Any, how: str, value: Any) -> bool:
    """Return whether a value meets a condition; one that is missing, or of another type, does not."""
    if found is None or (isinstance(value, float) and isinstance(found, str | bool)):
        return False
    try:
        return bool(_OPERATORS[how](str(found) if isinstance(value, str) else found, value))
    except TypeError:
        return False


def _sortable(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, int | float | np.number) and value == value)  # noqa: PLR0124


def _rank(value: Any) -> tuple[bool, Any]:
    return isinstance(value, str), value


def _numbers(metric: str, series: Series, x: str) -> tuple[Any, Any]:
    """Return where the numbers of a series are, and the numbers.

    Raises:
        QueryError: It holds something else.
    """
    columns: Columns = series.columns()
    try:
        values = np.asarray(columns.values, np.float64)
    except (TypeError, ValueError):
        values = np.empty((0, 0))
    if values.ndim != 1:
        raise QueryError(
            f"Expected a series of numbers, got {metric!r} of {series.type}: ask for a number of it, such as its norm"
        )
    return np.asarray(columns.wall_times if x == "time" else columns.steps, np.float64), values


def _between(places: Any, values: Any, start: float | None, end: float | None) -> tuple[Any, Any]:
    kept = (places >= (-np.inf if start is None else start)) & (places <= (np.inf if end is None else end))
    return places[kept], values[kept]


def joined(columns: dict[str, tuple[Any, Any]], x: str, points: int) -> tuple[list[dict[str, Any]], int]:
    """Join series at their places, and thin the rows: return them, and how many there were.

    Args:
        columns: The places and the numbers of each series.
        x: What places are called.
        points: How many rows there may be. Of more, as many bins of equally many rows; each has the last number, and
            `NAME.min` and `NAME.max`.
    """
    every = np.unique(np.concatenate([places for places, _ in columns.values()] or [np.empty(0)]))
    edges = np.linspace(0, len(every), min(points, len(every)) + 1).astype(int)
    rows: list[dict[str, Any]] = [{x: every[end - 1]} for end in edges[1:]]
    for name, (places, values) in columns.items():
        at = np.searchsorted(edges[1:], np.searchsorted(every, places), side="right")
        for i, row in enumerate(rows):
            inside = values[at == i]
            row[name] = inside[-1] if len(inside) else None
            if len(every) > points:
                finite = inside[~np.isnan(inside)]
                row[f"{name}.min"], row[f"{name}.max"] = (finite.min(), finite.max()) if len(finite) else (None, None)
    return rows, len(every)


def _seen(series: Series, step: float | None, part: str) -> bytes:
    """Return a picture of the value at a step, or of the last one, or of a part of it."""
    at = series[-1].step if step is None else step
    value = series.at(at, part or None)
    if isinstance(value, Image | Images):
        return encode_png(value.value if isinstance(value, Image) else value.value[0])
    with stream_of([value], name=f"{series.tag}{part} at step {at:,.15g}") as stream, TemporaryDirectory() as folder:
        path = Path(folder, "value.png")
        view = plot(stream, surface="matplotlib", path=str(path))
        view.wait(MAX_WAIT_S)
        view.close()
        return path.read_bytes()


def _flat(config: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return the entries of a configuration by their keys with dots between the levels."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        found.update(_flat(value, f"{before}{key}.") if isinstance(value, Mapping) else {f"{before}{key}": value})
    return found


def _correlations(
    names: Sequence[str], configs: Mapping[str, Mapping[str, Any]], values: Mapping[str, Any]
) -> list[Any]:
    """Return Spearman's rank correlation of each number of the configuration with a metric; the strongest first."""
    found = []
    for name in names:
        pairs = [(config.get(name), values[key]) for key, config in configs.items()]
        numbers = [pair for pair in pairs if all(type(one) in (int, float) and one == one for one in pair)]  # noqa: PLR0124
        if len(numbers) >= 3:
            one, other = (_ranks(side) for side in zip(*numbers, strict=True))
            if one.std() and other.std():
                found.append({"key": name, "rho": round(float(np.corrcoef(one, other)[0, 1]), 3), "n": len(numbers)})
    return sorted(found, key=lambda each: -abs(each["rho"]))


def _ranks(values: Sequence[float]) -> Any:
    """Return the mean rank of each value among all."""
    _, place, n = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(n) - (n - 1) / 2)[place]
