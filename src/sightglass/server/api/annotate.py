"""The endpoint that names runs, labels them, and puts them into the archive or the trash."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from sightglass.core.errors import SightglassError
from sightglass.server.http_errors import without_folders
from sightglass.server.runs.run_table import Runs, summary_of
from sightglass.server.runs.served_run import RunSummary
from sightglass.storage.object_file import Edit

from .schema import ApiRequest, Request, Route

MAX_EDITS: Final = 10_000


class RunEdit(Edit, frozen=True, kw_only=True):
    """A change of a run's annotations; what is `null` stays as it is."""

    key: str


class AnnotateRequest(Request, frozen=True, kw_only=True):
    """The changes, at most one for each run."""

    edits: Annotated[list[RunEdit], msgspec.Meta(min_length=1, max_length=MAX_EDITS)]


class AnnotatedRuns(msgspec.Struct, frozen=True, kw_only=True):
    """The runs that were changed, as in the list of runs; and by their keys why others were not."""

    runs: list[RunSummary]
    problems: dict[str, str]


async def annotate(call: ApiRequest, query: Request, body: AnnotateRequest) -> AnnotatedRuns:
    """Name and label runs, write notes about them, archive them, or put them into the trash, in files beside them.

    Records are not touched. A run in the trash keeps its files; a live one goes on.
    """
    return await call.read(_annotate, call.runs, body.edits)


def _annotate(runs: Runs, edits: list[RunEdit]) -> AnnotatedRuns:
    changed, problems = [], {}
    for edit in edits:
        try:
            source = runs.find(edit.key)
            source.annotate(edit)
            changed.append(summary_of(source))
        except (SightglassError, ValueError) as error:
            problems[edit.key] = without_folders(str(error))
    return AnnotatedRuns(runs=changed, problems=problems)


ROUTES: Final = (
    Route(method="POST", path="/annotations", handler=annotate, body=AnnotateRequest, response=AnnotatedRuns,
          controllers_only=True),
)  # fmt: skip
