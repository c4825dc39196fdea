"""Recorded runs: opened from their files, queried like live ones."""

from __future__ import annotations

import contextlib
import difflib
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from sightglass.client.describe import EventAttributes, recorded_description
from sightglass.client.resumable_stream import UNRECORDED, RecordBuffer, with_beginning
from sightglass.client.streams.answer import Answer, answer_of
from sightglass.client.streams.stream import Stream
from sightglass.core.description import Description, HistoryEntry, read_struct
from sightglass.core.errors import (
    QueryError,
    QuerySyntaxError,
    RunLostError,
    SightglassError,
    UnknownNameError,
    unknown,
    warn_user,
)
from sightglass.core.process.current_run import Bound
from sightglass.protocol import discovery
from sightglass.query.query import Query
from sightglass.storage import object_file
from sightglass.storage.export.export import Exported, Form, export
from sightglass.storage.file_names import stamp_of
from sightglass.storage.format import series_names
from sightglass.storage.format.block import Key
from sightglass.storage.object_file import Annotations
from sightglass.storage.read.check import Report, check
from sightglass.storage.read.recording import Recording, Series
from sightglass.storage.run_file import CHANGES, PRINTED
from sightglass.storage.run_listing import lives, standing

from .plan import parse, plan
from .playback import SETTLED_S, Playback

# How often `stream` looks for a series that another process has not written yet.
POLL_S: Final = 0.1
# A stream of a recorded run holds all of a series, up to 8 GiB: nothing arrives later that could push it out.
MAX_RECORDS: Final = 2**31
MAX_BYTES: Final = 8 * 2**30


class RecordedRun(Bound, EventAttributes):
    """A run that is read from its files. Made by `sightglass.open`.

    It answers the same queries as a live run, if the series they need were recorded.
    """

    def __init__(self, recording: Recording, *, follow: bool = False) -> None:
        self._recording = recording
        self._follow = follow
        self._closed = False

    def _instead(self) -> str:
        return f"Pass its directory, and open it there: sg.open({str(self.directory)!r})"

    @property
    def name(self) -> str:
        """The run's name."""
        return self._recording.info.name

    @property
    def id(self) -> str:
        """The run's id; empty if the files do not say."""
        return self._recording.info.id

    @property
    def config(self) -> Mapping[str, Any]:
        """The run's configuration."""
        return self._recording.info.config

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the run tells about its program, see `sightglass.Facts`; empty if its files do not say."""
        return self._recording.info.facts

    @property
    def changes(self) -> str:
        """What differed from the git commit when the run began, as text; empty if nothing, or if it was not written."""
        return self._beside(CHANGES)

    @property
    def printed(self) -> str:
        """The last lines that the program printed, if the run failed: at most 200, without secrets."""
        return self._beside(PRINTED)

    def _beside(self, name: str) -> str:
        with contextlib.suppress(OSError):
            return (self.directory / name).read_text("utf-8", "replace")
        return ""

    @property
    def directory(self) -> Path:
        """The folder or file that was opened."""
        return self._recording.path

    @property
    def annotations(self) -> Annotations:
        """What people wrote down about the run: another name, labels, notes."""
        return object_file.read_annotations(self.directory)

    def annotate(
        self,
        *,
        name: str | None = None,
        labels: Sequence[str] | None = None,
        add_labels: Sequence[str] = (),
        remove_labels: Sequence[str] = (),
        notes: str | None = None,
        archived: bool | None = None,
        baseline: bool | None = None,
        deleted: bool | None = None,
    ) -> Annotations:
        """Change what is written down about the run, in `annotations.json` beside its files, and return all of it.

        What is not given stays as it is. The records are not touched; a live run goes on, and keeps its own name.

        Args:
            name: What to call it; "" for the name that its program gave it.
            labels: Its labels, in place of those that it has.
            add_labels: Labels to add.
            remove_labels: Labels to remove.
            notes: A text in Markdown.
            archived: Whether the page leaves it out unless it is asked for archived runs.
            baseline: Whether others are compared with it.
            deleted: Whether it is in the trash: lists of runs and `open(folder)` leave it out. Its files stay.

        Raises:
            StorageError: The file cannot be written, or is not JSON.
            ValueError: A text is too long, or a label is empty.
        """
        change = object_file.edit_of(
            name=name, labels=labels, add_labels=add_labels, remove_labels=remove_labels, notes=notes,
            archived=archived, baseline=baseline, deleted=deleted,
        )  # fmt: skip
        return object_file.edit_annotations(self.directory, change)

    @property
    def ranks(self) -> Sequence[int]:
        """The ranks that recorded here; see `rank`."""
        return self._recording.ranks

    def rank(self, rank: int) -> RecordedRun:
        """Return the records of another rank of the same program.

        Raises:
            UnknownNameError: The rank recorded nothing here.
        """
        if rank not in self.ranks:
            raise UnknownNameError("rank", rank, self.ranks, where=f"in {str(self.directory)!r}")
        return RecordedRun(Recording(self._recording.path, rank=rank), follow=self._follow)

    @property
    def ended(self) -> bool:
        """Whether no more records can arrive: the run is over, or is not followed."""
        return not self._follow or not self._live()

    def describe(self) -> Description:
        """Return the run's recorded events and streams, and the controls and actions it had."""
        self._check_open()
        with self._recording.lock:
            self._recording.refresh()
            series = {key: self._recording.series(key) for key in self._keys()}
            description = recorded_description(
                self._recording.info, state=self._state(), directory=str(self.directory),
                series={key: (len(one), one.type, _last_step(one)) for key, one in series.items()},
                ended=self._recording.ended,
            )  # fmt: skip
        self._set_event_attributes(description.events)
        return description

    def tags(self) -> list[str]:
        """Return the tags of the recorded series, sorted.

        A tag of another program's file may have values of several kinds. Then "kernel" stands for the first of them,
        in the order scalar, tensor, histogram, image, audio, table, text, and each other one comes with its kind, such
        as "kernel:histogram".
        """
        return series_names.listed(self._keys())

    def series(self, tag: str) -> Series:
        """Return the series of a tag: `steps`, `wall_times`, `[i]`, `at(step)`, `at(step, "[0, :, 2:5]")`.

        Args:
            tag: The tag, such as "kernel"; or with the kind of its values, such as "kernel:histogram".

        Raises:
            UnknownNameError: No series has this tag.
        """
        self._check_open()
        with self._recording.lock:
            self._recording.refresh()
            return self._recording.series(tag)

    def stream(self, query: Query | str) -> Stream:
        """Return the stream that answers a query from the recorded series.

        Args:
            query: A query such as `on("batch").map(lambda b: b.loss)`, its text, a shorthand such as "batch.loss", or
                the tag of logged values. "norm(w)" is a statistic of the tensors under "w" at each step, as
                `Series.statistics_by_step` has them.

        Raises:
            QueryError: The query is not valid, or cannot be answered from the recorded series; the message lists them.
        """
        deadline_s = time.monotonic() + SETTLED_S
        while True:
            keys, over = self._keys(query), self.ended or time.monotonic() > deadline_s
            try:
                parsed = parse(query, keys)
                chosen = plan(parsed, keys)
                break
            except QuerySyntaxError as error:
                raise _with_suggestion(query, keys, error) from None
            except QueryError as error:
                if over:
                    raise _with_suggestion(query, keys, error) from None
                time.sleep(POLL_S)  # the latest values are not in the files yet
        producer = Playback(chosen, self._recording, over=lambda: self.ended, closed=lambda: self._closed)
        buffer = RecordBuffer(
            tag=parsed.tag, run=self.name, run_id=producer.first_run(), client=self._recording,
            max_records=MAX_RECORDS, max_bytes=MAX_BYTES,
        )  # fmt: skip
        buffer.run_ids = self._recording.run_ids
        late = any(self._recording.series(key).since for key in chosen.keys.values())
        note = with_beginning(str, UNRECORDED if late else "", buffer)
        return Stream(producer, buffer, note=note, query=parsed.key)

    def ask(self, query: Query | str, n: int = 1, *, timeout_s: float = 0.0) -> Answer:
        """Return the last values of a query.

        Args:
            query: As in `stream`.
            n: How many values.
            timeout_s: How long to wait for so many, where the run is followed.

        Returns:
            The values, with what they stand for; fewer if there are no more.

        Raises:
            TimeoutError: There is none.
            QueryError: As in `stream`.
        """
        with self.stream(query) as stream:
            return answer_of(stream, n, timeout_s)

    def series_of(self, query: Query | str) -> Series | None:
        """Return the series that holds the records of a query, or `None` if they must be computed.

        Args:
            query: As in `stream`.

        Raises:
            QueryError: The query is not valid, or cannot be answered from the recorded series.
        """
        keys = self._keys(query)
        chosen = plan(parse(query, keys), keys)
        if chosen.how != "records":
            return None
        (key,) = chosen.keys.values()
        return self._recording.series(key)

    @property
    def history(self) -> list[HistoryEntry]:
        """The commands that the run applied while it recorded, the oldest first."""
        return self.last_commands(0)

    def last_commands(self, n: int) -> list[HistoryEntry]:
        """Return the last `n` commands of the history, the oldest first; all with 0."""
        key = Key(kind="commands", tag="commands")
        if key not in self._keys():
            return []
        series = self._recording.series(key)
        entries = series.columns(max(0, len(series) - n) if n else 0).values
        return [read_struct(HistoryEntry, entry) for entry in entries]

    def export(
        self,
        to: Form,
        *,
        out: str | os.PathLike[str] | None = None,
        tags: Sequence[str] = (),
        overwrite: bool = False,
    ) -> Exported:
        """Export the series as "parquet", "csv", "tensorboard", "mindspore" or "files": see `storage.export`."""
        with self._recording.lock:
            return export(self._recording, to=to, out=out, tags=tags, overwrite=overwrite)

    def check(self) -> Report:
        """Read every byte of the run's files, and report which records are damaged and which are intact."""
        return check(self.directory)

    def close(self) -> None:
        """Close the files. Streams end; the records they have read stay."""
        with self._recording.lock:
            self._closed = True
            self._recording.close()

    def __enter__(self) -> RecordedRun:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self.tags())} tags, {self._state()}"
        return f"<RecordedRun {self.name!r} in {str(self.directory)!r}, {state}>"

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        from sightglass.views.surfaces.notebook import bundle_of_run

        return bundle_of_run(self)

    def _check_open(self) -> None:
        if self._closed:
            raise RunLostError(f"Recorded run {self.name!r} in {str(self.directory)!r} was closed: open it again")

    def _keys(self, query: Query | str = "") -> list[Key]:
        """Return the keys of all series, and what else a query names; see `Recording.keys_in`."""
        self._check_open()
        with self._recording.lock:
            self._recording.refresh()
            return [*self._recording.keys(), *self._recording.keys_in(str(query))]

    def _live(self) -> bool:
        return self._state() in ("running", "writing")

    def _state(self) -> str:
        info, changed = self._recording.info, 0.0
        for file in self._recording.parts:
            with contextlib.suppress(OSError):
                changed = max(changed, stamp_of(file.path).changed_ns / 1e9)
        return "running" if lives(info, changed, alive=discovery.alive) else standing(info, changed)


def _last_step(series: Series) -> float | None:
    with contextlib.suppress(IndexError, SightglassError, OSError):
        return series.last_step
    return None


def _with_suggestion(query: Query | str, keys: Sequence[Key], error: QueryError) -> QueryError:
    """Return an error about a query; for a misspelt tag, one that suggests the right tag."""
    if not isinstance(query, str) or "(" in query:
        return error
    tags = sorted(series_names.named(keys))
    close = difflib.get_close_matches(query, tags, n=1)
    return QueryError(unknown("tag", query, tags)) if close else error


def opened(path: Path, *, rank: int | None, follow: bool) -> RecordedRun:
    """Open a run directory, or a file; errors as in `sightglass.open`."""
    recording = Recording(path, rank=rank)
    if rank is not None and rank not in recording.ranks and not follow:
        recording.close()
        raise UnknownNameError("rank", rank, recording.ranks, where=f"in {str(path)!r}")
    if recording.overlap:
        warn_user(f"{str(path)!r}: {recording.overlap}")
    return RecordedRun(recording, follow=follow)
