"""Endpoints for runs, their series, and the functions of queries."""

from __future__ import annotations

import contextlib
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec.structs import replace

from sightglass import __version__
from sightglass.core.description import Description, HistoryEntry, StreamInfo
from sightglass.core.errors import DamagedError, SightglassError, UnknownNameError
from sightglass.core.process.unpatched import threading
from sightglass.core.values import Audio, Figure, Image, Images
from sightglass.diagnosis.evidence import Evidence, evidence_of
from sightglass.diagnosis.findings import Finding, in_order, judge
from sightglass.query.complete import Completions, FunctionInfo, complete, functions
from sightglass.server.access import Role
from sightglass.server.runs.details import Origin
from sightglass.server.runs.open_files import OpenFiles, SeriesInfo, is_scalar, series_infos
from sightglass.server.runs.run_columns import REST
from sightglass.server.runs.served_run import RunSummary, ServedRun
from sightglass.storage.foreign.tensorboard_charts import ChartLayout
from sightglass.storage.format.block import Key
from sightglass.storage.format.series_names import query_of

from .schema import ApiRequest, Nothing, Request, Route

TagType = Literal["scalar", "tensor", "histogram", "image", "figure", "audio", "table", "text", "other"]

MAX_HISTORY: Final = (
    1_000  # more than a person reads; the page asks every few seconds, and a run holds ten times as many
)
Described = tuple[Description | None, list[HistoryEntry], dict[str, int]]
SEVERAL: Final[dict[TagType, tuple[type, ...]]] = {"image": (Figure, Image, Images), "audio": (Audio,)}
LOOK_S: Final = 10.0  # between two looks into the files of a run that grows
N_REMEMBERED: Final = 200  # runs whose findings are kept, of some kB each
MAX_COMPLETED: Final = 4_000  # fits an address, each character escaped
TEXTS: Final = re.compile(r"[<>|]?[US]\d+(\[[\d, ]*\])")
TENSOR: Final = re.compile(r"(\w+)\[[\d, ]*\]|complex\d*")


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The role of the client, its name if its link is personal, and the directories that are served."""

    role: Role
    name: str
    version: str
    directories: list[str]


class RunList(msgspec.Struct, frozen=True, kw_only=True):
    """All runs, the newest first. `problem` says why the list may be out of date; it is usually empty."""

    runs: list[RunSummary]
    problem: str = ""


class RunDetail(RunSummary, frozen=True, kw_only=True):
    """A run with its description, its history of commands, and the streams that it evaluates.

    `sentence` has what changes with every event, too, such as "running, batch 12,345, 38/s, the last 0.2 s ago".
    `not_shown` says how many values in its files cannot be shown, by what they are, such as `{"graph": 1}`. `findings`
    is what looks wrong: of the files of a run that grows, as of some seconds ago.
    """

    description: Description | None
    history: list[HistoryEntry]
    streams: list[StreamInfo]
    not_shown: dict[str, int]
    findings: list[Finding]


class RunTexts(msgspec.Struct, frozen=True, kw_only=True):
    """What differed from a run's git commit, and what it printed last if it failed; empty if not written."""

    changes: str = ""
    printed: str = ""


class Tag(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded series; `query` is its query for the socket.

    `dtype` is that of its latest array as it was logged, `str` of strings, or empty. `stored_as` is the dtype that the
    file has instead. `shape` is that of its latest array, such as `[2, 3]`, or empty. `name` is what other requests
    take as `tag`: the tag, with the kind of its values where a file may have several, such as `kernel:histogram`.
    """

    tag: str
    name: str
    type: TagType
    dtype: str = ""
    stored_as: str = ""
    shape: str = ""
    n: int
    first_step: float | None
    last_step: float | None
    query: str


class CompleteQuery(Request, frozen=True, kw_only=True):
    """The text of a query, and where the caret stands in it."""

    text: Annotated[str, msgspec.Meta(max_length=MAX_COMPLETED)] = ""
    caret: Annotated[int, msgspec.Meta(ge=0, le=MAX_COMPLETED)] | None = None


class ChartInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A chart of several tags that the run's files ask for, such as TensorBoard's custom scalars."""

    category: str
    title: str
    tags: list[str]


class TagList(msgspec.Struct, frozen=True, kw_only=True):
    """The series of a run, sorted by tag, and the charts of several of them that its files ask for."""

    tags: list[Tag]
    charts: list[ChartInfo] = []


async def session(call: ApiRequest, query: Nothing) -> SessionInfo:
    """Return the role of the client; to a viewer, folders without their paths."""
    whole = call.visitor.role == "controller"
    directories = [str(path) if whole else path.name for path in call.runs.directories]
    return SessionInfo(role=call.visitor.role, name=call.visitor.name, version=__version__, directories=directories)


async def list_runs(call: ApiRequest, query: Nothing) -> RunList:
    """List all runs, live and recorded, the newest first."""
    return RunList(runs=await call.read(call.runs.summaries), problem=call.runs.problem)


async def describe_run(call: ApiRequest, query: Nothing) -> RunDetail:
    """Describe a run: events, observables, controls, actions, history, and the streams that it evaluates."""
    source = await call.read(call.runs.find, call.key)
    found: Described | None = None
    if source.live:
        with contextlib.suppress(SightglassError):
            found = await call.query(_of_live, source)
    if found is None:
        found = await call.read(_of_recorded, source)
    description, history, not_shown = found
    streams = list(description.streams) if description is not None else []
    summary = source.summary()
    return RunDetail(
        **msgspec.structs.asdict(summary)
        | {"sentence": replace(description or Description(), state=summary.state).sentence},
        description=description, history=history, streams=streams, not_shown=not_shown,
        findings=await call.read(_findings, source, description or Description(), history),
    )  # fmt: skip


def _findings(source: ServedRun, about: Description, history: Sequence[HistoryEntry]) -> list[Finding]:
    """Return what looks wrong in a run, and in what it recorded."""
    return in_order([*judge(Evidence(description=about, history=history)), *_findings_in_files.of(source)])


class FindingsInFiles:
    """What looks wrong in the files of runs.

    They are read again when they have changed, after a rest of `REST` times as long as it took.
    """

    def __init__(self, n: int) -> None:
        """Read nothing yet.

        Args:
            n: Of how many runs to keep the findings.
        """
        self._n = n
        self._known: OrderedDict[str, tuple[str, float, list[Finding]]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, source: ServedRun) -> list[Finding]:
        """Return the findings in a run's files; of one that grows, as of some seconds ago."""
        version, began_s = "" if source.recorded is None else source.recorded.version, time.monotonic()
        with self._lock:
            read, due_s, found = self._known.get(source.key, ("", 0.0, []))
        if version in ("", read) or began_s < due_s:
            return found
        try:
            with source.borrow() as files:
                found = judge(evidence_of(Description(), (), recording=files.recording))
        except (SightglassError, OSError):
            found = []  # the run's `problem` says why
        due_s = time.monotonic() + max(LOOK_S, REST * (time.monotonic() - began_s))
        with self._lock:
            self._known[source.key] = version, due_s, found
            self._known.move_to_end(source.key)
            while len(self._known) > self._n:
                self._known.popitem(last=False)
        return found


_findings_in_files = FindingsInFiles(N_REMEMBERED)


def _of_live(source: ServedRun) -> Described:
    described = source.describe()
    return described, source.connection.remote().last_commands(MAX_HISTORY), {}


def _of_recorded(source: ServedRun) -> Described:
    try:
        with source.borrow() as files:
            with files.recording.lock:
                not_shown = files.recording.passed_over
            return files.run.describe(), files.run.last_commands(MAX_HISTORY), not_shown
    except (SightglassError, OSError):
        return source.description, [], {}  # the run's `problem` says why


async def texts(call: ApiRequest, query: Nothing) -> RunTexts:
    """Return the texts beside the records of a run, which may have secrets that are not recognised."""
    source = await call.read(call.runs.find, call.key)
    return await call.read(_texts, source)


def _texts(source: ServedRun) -> RunTexts:
    if source.path is None:
        return RunTexts()
    with source.borrow() as files:
        return RunTexts(changes=files.run.changes, printed=files.run.printed)


async def list_tags(call: ApiRequest, query: Nothing) -> TagList:
    """List the recorded series of a run."""
    source = await call.read(call.runs.find, call.key)
    return await call.read(_tags, source)


def _tags(source: ServedRun) -> TagList:
    if source.path is None:  # it does not record, or its directory was not seen yet
        return TagList(tags=[])
    with source.borrow() as files:
        recording = files.recording
        with recording.lock:
            if recording.changed():
                recording.refresh()
            known, charts = series_infos(recording), recording.charts
        origin = source.summary().source
        tags = [_tag(files, key, known[key], origin) for key in known if key.kind in ("logged", "stream")]
    scalars = [tag.tag for tag in tags if tag.type == "scalar"]
    return TagList(tags=sorted(tags, key=lambda tag: tag.tag), charts=_charts(charts, scalars))


def _charts(layouts: Sequence[ChartLayout], tags: Sequence[str]) -> list[ChartInfo]:
    """Return the charts that have tags."""
    found = []
    for layout in layouts:
        # Regular expressions of a file from elsewhere could take for ever.
        patterns = [re.compile(".*".join(map(re.escape, tag.split(".*")))) for tag in layout.tags]
        chosen = [tag for pattern in patterns for tag in sorted(tags) if pattern.fullmatch(tag)]
        if chosen:
            found.append(ChartInfo(category=layout.category, title=layout.title, tags=list(dict.fromkeys(chosen))))
    return found


def _tag(files: OpenFiles, key: Key, info: SeriesInfo, origin: Origin) -> Tag:
    query = query_of(key)
    kind = tag_type(info.type, origin)
    if kind == "other" and info.type.startswith(("tuple of", "list of")):
        kind = _kind_of_several(files, key)
    array = TENSOR.fullmatch(info.type)
    dtype = info.logged_as or (array[1] if array else "")
    if kind == "other" and (texts := TEXTS.fullmatch(info.type)):
        return Tag(
            tag=key.tag, name=key.name, type="tensor", dtype="str", shape=texts[1], n=info.n,
            first_step=info.first_step, last_step=info.last_step, query=query,
        )  # fmt: skip
    return Tag(
        tag=key.tag, name=key.name, type=kind, n=info.n, first_step=info.first_step, last_step=info.last_step,
        query=query,
        dtype=dtype, stored_as=info.stored_as if info.logged_as else "",
        shape=tag_shape(info.type),
    )  # fmt: skip


def _kind_of_several(files: OpenFiles, key: Key) -> TagType:
    with contextlib.suppress(DamagedError, IndexError, UnknownNameError):
        value = files.recording.series(key)[-1].value
        for kind, types in SEVERAL.items():
            if value and all(isinstance(item, types) for item in value):
                return kind
    return "other"


def tag_type(type: str, origin: Origin) -> TagType:
    """Return which page shows a series, by the type of its latest value."""
    match type:
        case "Histogram":
            return "histogram"
        case "Image" | "Images":
            return "image"
        case "str" | "Text":
            return "text"
        case "Audio":
            return "audio"
        case "Table":
            return "table"
        case "Figure":
            return "figure" if origin == "sightglass" else "image"
        case _ if is_scalar(type):
            return "scalar"
        case _ if TENSOR.fullmatch(type):
            return "tensor"
    return "other"


def tag_shape(type: str) -> str:
    """Return the shape in the type of an array, or an empty text."""
    return type[type.index("[") :] if TENSOR.fullmatch(type) else ""


async def list_functions(call: ApiRequest, query: Nothing) -> list[FunctionInfo]:
    """List what queries can call: functions of values, and reducers over events."""
    return list(functions())


async def complete_query(call: ApiRequest, query: CompleteQuery) -> Completions:
    """Return how the text of a query to a run may go on at a caret, by default at its end."""
    source = await call.read(call.runs.find, call.key)
    about = source.description if source.live else None
    if about is None:
        about = await (call.query(source.describe) if source.live else call.read(_recorded_description, source))
    caret = len(query.text) if query.caret is None else query.caret
    return await call.read(complete, query.text, caret, about)


def _recorded_description(source: ServedRun) -> Description:
    with source.borrow() as files:
        return files.run.describe()


ROUTES: Final = (
    Route(method="GET", path="/session", handler=session, response=SessionInfo),
    Route(method="GET", path="/runs", handler=list_runs, response=RunList),
    Route(method="GET", path="/runs/{key}", handler=describe_run, response=RunDetail),
    Route(method="GET", path="/runs/{key}/tags", handler=list_tags, response=TagList, cached=True),
    Route(method="GET", path="/runs/{key}/beside", handler=texts, response=RunTexts, controllers_only=True),
    Route(method="GET", path="/runs/{key}/complete", handler=complete_query, query=CompleteQuery, response=Completions),
    Route(method="GET", path="/functions", handler=list_functions, response=list[FunctionInfo]),
)


# Metrics for operations, in Prometheus' text format: how many runs there are, and how far the live ones are.
#
# The format: https://prometheus.io/docs/instrumenting/exposition_formats/

METRICS_TYPE: Final = "text/plain; version=0.0.4"


def metrics_text(runs: Sequence[RunSummary]) -> bytes:
    """Return the metrics of some runs."""
    live = [run for run in runs if run.live]
    states = sorted(Counter(run.state for run in runs).items())
    lines = [
        *_gauge("sightglass_info", "The version of Sightglass.", [({"version": __version__}, 1)]),
        *_gauge("sightglass_runs", "Runs by state.", [({"state": state}, n) for state, n in states]),
        *_gauge("sightglass_run_started_seconds", "When a live run began, in Unix time.", _of(live, "started")),
        *_gauge("sightglass_run_changed_seconds", "When its files last changed, in Unix time.", _of(live, "changed")),
        *_gauge("sightglass_run_last_step", "The last known step of a live run.", _of(live, "last_step")),
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def _of(runs: Iterable[RunSummary], field: str) -> Iterator[tuple[dict[str, str], float]]:
    for run in runs:
        number: float | None = getattr(run, field)
        if number is not None:
            yield {"run": run.name, "id": run.id, "host": run.host}, number


def _gauge(name: str, told: str, samples: Iterable[tuple[dict[str, str], float]]) -> Iterator[str]:
    yield f"# HELP {name} {told}"
    yield f"# TYPE {name} gauge"
    for labels, number in samples:
        shown = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items())
        yield f"{name}{{{shown}}} {number!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
