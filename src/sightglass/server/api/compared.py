"""The series of a request, or its comparison with another step, tag or run."""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator
from typing import Annotated, Final

import msgspec

from sightglass.server.runs.run_table import Runs
from sightglass.storage.read.recording import Series
from sightglass.storage.tensors.compare import ATOL, RTOL, Comparison, Measure, When

from .schema import Request, series_of

WHENS: Final[dict[str, When]] = {"same": "same", "previous": "previous", "first": "first"}
NUMBER: Final = r"[-+]?\d{1,25}(\.\d{0,25})?(e[-+]?\d{1,2})?"

Text = Annotated[str, msgspec.Meta(max_length=4_096)]
OtherStep = Annotated[str, msgspec.Meta(pattern=f"^({'|'.join(WHENS)}|{NUMBER})$")]
Tolerance = Annotated[float, msgspec.Meta(ge=0, le=1e300)]


class TagQuery(Request, frozen=True, kw_only=True):
    """A series."""

    tag: Text


class ComparedQuery(TagQuery, frozen=True, kw_only=True):
    """A series, or its comparison with another step, tag or run, if one of these is given.

    `other_step` is a number, `same` (the nearest step, the default), `previous` or `first`. `measure` is the
    `difference`, the `relative` one, or whether values are `close`, as in NumPy's `isclose` with `rtol` and `atol`.
    """

    other_step: OtherStep | None = None
    other_tag: Text | None = None
    other_run: Text | None = None
    measure: Measure = "difference"
    rtol: Tolerance = RTOL
    atol: Tolerance = ATOL

    @property
    def comparison(self) -> tuple[Hashable, ...] | None:
        """What the series is compared with, and how; `None` if it is not."""
        if self.other_step is None and self.other_tag is None and self.other_run is None:
            return None
        return self.other_step, self.other_tag, self.other_run, self.measure, self.rtol, self.atol


@contextlib.contextmanager
def shown_series(runs: Runs, key: str, query: ComparedQuery) -> Iterator[tuple[Hashable, Series, Series | Comparison]]:
    """Open the series of a request.

    Yields:
        A value that is another one whenever the answer may be, the series, and what is shown: the series or its
        comparison.

    Raises:
        UnknownNameError: There is no such run or tag.
    """
    source = runs.find(key)
    with series_of(source, query.tag) as (files, series):
        place = key, files.generation, series.key, len(series)
        if query.comparison is None:
            yield place, series, series
            return
        other_source = source if query.other_run is None else runs.find(query.other_run)
        other_tag = query.other_tag or (series.tag if series.key.values else query.tag)
        with series_of(other_source, other_tag, like=series) as (others, other):
            text = query.other_step or "same"
            when = WHENS.get(text) or float(text)
            comparison = series.compare(other, when=when, measure=query.measure, rtol=query.rtol, atol=query.atol)
            yield (place, others.generation, len(other), query.comparison), series, comparison
