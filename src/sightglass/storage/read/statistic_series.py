"""Statistics of tensors over their steps as series of numbers: "norm(w)" is the norm of the tensor "w" at each step.

They are in no file: they have the rows of the tensor's series, with a number as the value. Each record of the tensor is
read once; `run_digests` keeps what was computed. A number is that of the values that are finite, as in
`TensorStatistics`, so one NaN in a tensor does not hide its norm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.columns import CLOSED, COMPLETE, Columns, Record
from sightglass.core.errors import DamagedError
from sightglass.storage.format.block import Key
from sightglass.storage.format.framing import Damage
from sightglass.storage.tensors import slices
from sightglass.storage.tensors.digests import COUNTS, STATISTICS, UNREADABLE, Table

from .series import ARRAY, Series, SeriesFiles

NAME: Final = re.compile(rf"({'|'.join(STATISTICS)})\((.+)\)", re.DOTALL)
IN_QUERY: Final = re.compile(rf"""(['"])((?:{"|".join(STATISTICS)})\(.+?\))\1""")


def split(name: str) -> tuple[str, str] | None:
    """Return the statistic and the tag in a name such as "norm(w)", or `None` for other names."""
    found = NAME.fullmatch(name)
    return (found[1], found[2]) if found else None


def named_in(query: str) -> list[str]:
    """Return what may be names of statistics in the text of a query, or in a tag with the name of a reducer."""
    return [query, query.rpartition(".")[0], *(found[2] for found in IN_QUERY.finditer(query))]


def has_statistics(series: Series) -> bool:
    """Return whether the latest value of a series is a tensor or a histogram."""
    return series.type == "Histogram" or ARRAY.fullmatch(series.type) is not None


class StatisticSeries(Series):
    """A statistic of a tensor, or of histograms, at each step: float64, or int64 for a count.

    What a histogram does not tell, such as its norm, is NaN.
    """

    def __init__(self, files: SeriesFiles, tensor: Series, statistic: str, *, n: int | None = None) -> None:
        """Take a statistic of a series.

        Args:
            files: The files of the series.
            tensor: The series.
            statistic: One of `STATISTICS`.
            n: How many of its records to show; by default all, also those that come later.
        """
        super().__init__(files, Key(kind="logged", tag=f"{statistic}({tensor.key.name})"))
        self._tensor = tensor
        self._statistic = statistic
        self._n = n

    def ready(self, *, until_s: float) -> StatisticSeries:
        """Return the records up to the first whose statistics are unknown after some time of computing.

        Args:
            until_s: When to stop, on the monotonic clock; at least one more record is read.
        """
        digests, n = self._files.digests, len(self)
        known = digests.read(self._tensor, range(n), until_s=until_s)["known"] != 0
        digests.save()
        return StatisticSeries(self._files, self._tensor, self._statistic, n=n if known.all() else int(known.argmin()))

    def __len__(self) -> int:
        n = len(self._tensor)
        return n if self._n is None else min(n, self._n)

    @property
    def type(self) -> str:
        """The type of the values: "int" for counts, else "float"."""
        return "int" if self._statistic in COUNTS and self._tensor.type != "Histogram" else "float"

    @property
    def dtype(self) -> str:
        """Empty: values are numbers, not arrays."""
        return ""

    @property
    def stored_as(self) -> str:
        """Empty: statistics are computed, not stored."""
        return ""

    @property
    def steps(self) -> Any:
        """Shape (n,), int64 or float64; without damaged records."""
        return self._tensor.steps[: len(self)]

    @property
    def wall_times(self) -> npt.NDArray[np.float64]:
        """Shape (n,), in seconds since the Unix epoch; without damaged records."""
        times: npt.NDArray[np.float64] = self._tensor.wall_times[: len(self)]
        return times

    @property
    def damages(self) -> list[Damage]:
        """The damage found so far in the tensor's series, or in bytes whose series is unknown."""
        return self._tensor.damages

    def parts(self, start: int = 0, stop: int | None = None) -> list[Columns]:
        """Compute records, in pieces whose index numbers have no gaps, without damaged ones; see `Series.parts`."""
        columns = self.columns(start, stop)
        cuts = np.flatnonzero(np.diff(columns.numbers) != 1) + 1
        bounds = zip([0, *cuts.tolist()], [*cuts.tolist(), len(columns)], strict=True)
        pieces = (columns.slice(low, high) for low, high in bounds if high > low)
        return [Columns(**{**_fields(piece), "index": int(piece.numbers[0]), "indexes": None}) for piece in pieces]

    def columns(self, start: int = 0, stop: int | None = None) -> Columns:
        """Compute records as one piece, without damaged ones; see `Series.columns`."""
        start, stop, _ = slice(start, stop).indices(len(self))
        digests = self._files.digests
        table = digests.read(self._tensor, range(start, stop))[start:stop]
        digests.save()
        return self._columns(table[table["known"] != UNREADABLE])

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[Columns]:
        """Compute records, in pieces whose index numbers have no gaps; see `Series.blocks`."""
        yield from self.parts(start, stop)

    def blocks_of(self, rows: Sequence[int]) -> Iterator[tuple[range, Columns | None]]:
        """Compute some records, one at a time; see `Series.blocks_of`."""
        for row in rows:
            columns = self.columns(row, row + 1)
            yield range(row, row + 1), columns if len(columns) else None

    def __getitem__(self, i: int) -> Record:
        if not isinstance(i, int | np.integer):
            raise TypeError(f"Expected the number of a record, got {i!r:.100}; columns(start, stop) reads several")
        columns = self.columns(i := range(len(self))[i], i + 1)
        if not len(columns):
            raise DamagedError(f"Record {i} of {self._tensor.tag!r} is damaged")
        return columns.record(0, tag=self.tag, run=self._files.info.name)

    def __iter__(self) -> Iterator[Record]:
        run = self._files.info.name
        for columns in self.parts():
            yield from (columns.record(i, tag=self.tag, run=run) for i in range(len(columns)))

    def at(self, step: float, index: slices.Index | slices.Entry | str | None = None) -> Any:
        """Return the statistic at a step; errors as in `Series.at`."""
        if index is not None:
            raise TypeError(f"Expected no index for {self.tag!r}, whose values are numbers; got {index!r:.100}")
        columns = self.columns()
        rows = np.flatnonzero(columns.steps == step)
        if not len(rows):
            self._tensor.at(step)  # says what is there instead, or that the record is damaged
        return columns.record(int(rows[-1]), tag=self.tag, run="").value

    def shape_at(self, step: float) -> tuple[int, ...]:
        """Return (), the shape of a number; errors as in `at`."""
        return np.shape(self.at(step))

    @property
    def _view(self) -> Any:
        return self._tensor._view

    def _columns(self, table: Table) -> Columns:
        steps, values = table["step"].copy(), table[self._statistic].copy()
        if (steps == np.trunc(steps)).all() and (np.abs(steps) < 2.0**53).all():
            steps = steps.astype(np.int64)
        if self.type == "float" and values.dtype.kind == "i":
            values = np.where(values < 0, np.nan, values.astype(np.float64))  # a histogram does not tell
        flags, n_events = table["flags"].copy(), table["n_events"].copy()
        return Columns(
            index=int(table["index"][0]) if len(table) else 0,
            indexes=table["index"].copy(),
            steps=steps,
            wall_times=table["wall_time"].copy(),
            values=values,
            ordinals=table["ordinal"].copy(),
            flags=None if (flags == COMPLETE | CLOSED).all() else flags,
            n_events=None if (n_events == 1).all() else n_events,
        )


def _fields(columns: Columns) -> dict[str, Any]:
    return {name: getattr(columns, name) for name in columns.__dataclass_fields__}
