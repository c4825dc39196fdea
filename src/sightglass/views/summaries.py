"""Records in words: a line of a log, a row of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np
import numpy.typing as npt

from sightglass.core import plotly_json
from sightglass.core.columns import Record
from sightglass.core.program_values.guarded import message
from sightglass.core.table import Table
from sightglass.core.values import Audio, Figure, Histogram, Image, Images, Tensor, Text, to_host, type_name
from sightglass.storage.format import wav

from .choose import flatten
from .scales import number

MAX_TEXT: Final = 400  # a few lines of a terminal
MAX_COLUMNS: Final = 24  # as many as a wide screen shows
RESTARTED: Final = "restarted"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCell:
    """A value in a table.

    Attributes:
        text: The value in words.
        numeric: Whether it is a number.
    """

    text: str
    numeric: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A record in words.

    Attributes:
        step: Its step.
        wall_time: When it was made.
        value: Its whole value.
        cells: The values of a mapping by name, at most `MAX_COLUMNS` of them; empty for other values.
        n_more: How many more there are.
        mark: Whether it stands for something that happened to the run, instead of a record.
    """

    step: float
    wall_time: float
    value: TableCell
    cells: tuple[tuple[str, TableCell], ...] = ()
    n_more: int = 0
    mark: bool = False


def restart_row(record: Record) -> Row:
    """Return the row before the first record of a run that began again."""
    return Row(step=record.step, wall_time=record.wall_time, value=TableCell(text=RESTARTED), mark=True)


def row_of(record: Record) -> Row:
    """Return a record in words; of a value that cannot be read, the reason."""
    step, wall_time = record.step, record.wall_time
    try:
        value = _cell(record.value)
        named = flatten(record.value) if isinstance(record.value, Mapping) else iter(())
        cells = tuple((one_line(name), _cell(item)) for name, item in islice(named, MAX_COLUMNS))
        return Row(step=step, wall_time=wall_time, value=value, cells=cells, n_more=sum(1 for _ in named))
    except Exception as error:  # noqa: BLE001  the program's own class
        failed = TableCell(text=f"{type_name(record.value)}: {message(error)}")
        return Row(step=step, wall_time=wall_time, value=failed)


def one_line(value: object) -> str:
    """Return a text as one line without control characters, so that it cannot move a terminal's cursor."""
    text = value.value if isinstance(value, Text) else str(value)
    line = " ".join(text[: 4 * MAX_TEXT].split())
    return "".join(char if char.isprintable() else "�" for char in line)[:MAX_TEXT]


def summary(value: object) -> str:
    """Describe a value in one line."""
    match value:
        case str() | Text():
            return one_line(value)
        case bool() | None:
            return str(value)
        case int() | float() | np.integer() | np.floating():
            return number(value)
        case Audio():
            return str(wave_of(value))
        case Figure(data=data, media_type=media_type):
            about = plotly_json.summary_of(data) if media_type == plotly_json.MEDIA_TYPE else None
            return one_line(about or f"a figure, {media_type}, {len(data) / 1000:,.1f} kB")
        case Table():
            return one_line(f"{len(value):,} rows of {', '.join(value.value)}")
        case np.datetime64() | np.timedelta64():
            return str(value)
        case Tensor() | Image() | Images():
            return f"{type(value).__name__} {type_name(value.value)}"
        case tuple() | list() if len(value) <= 8:
            return f"({', '.join(summary(item) for item in value)})"
        case Mapping() if len(value) <= 8:
            return ", ".join(f"{one_line(key)}={summary(item)}" for key, item in value.items()) or "empty"
        case Histogram():
            return repr(value)
    name = type_name(value)
    return name if "[" in name or " of " in name else one_line(repr(value))


def _cell(value: object) -> TableCell:
    numeric = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return TableCell(text=summary(value), numeric=numeric)


# Sounds in words, and the outline of their waves.

N_PEAKS: Final = 400  # places along a wave: two pixels each in a column of the page


@dataclass(frozen=True, slots=True, kw_only=True)
class Wave:
    """What a sound is, and its outline.

    Attributes:
        rate: Samples in a second of each channel.
        n_samples: How many samples each channel has.
        dtype: The dtype of the samples.
        peaks: Shape (n_channels, at most `N_PEAKS`, 2), float32: the lowest and the highest sample at each place, as
            parts of full scale; NaN where no sample is finite.
        peak: The largest magnitude of all finite samples, as a part of full scale.
    """

    rate: int
    n_samples: int
    dtype: str
    peaks: npt.NDArray[np.float32]
    peak: float

    @property
    def seconds(self) -> float:
        """How long the sound is."""
        return self.n_samples / self.rate

    def __str__(self) -> str:
        """Describe the sound in one line."""
        n_channels = len(self.peaks)
        channels = {1: "mono", 2: "stereo"}.get(n_channels, f"{n_channels} channels")
        return (
            f"{number(self.seconds)} s, {self.rate:,} Hz, {channels}, {self.dtype}, peak {number(round(self.peak, 3))}"
        )


def wave_of(audio: Audio) -> Wave:
    """Return what a sound is, and its outline.

    Raises:
        TypeError: See `Audio`.
        ValueError: See `Audio`.
    """
    samples = wav.samples_of(audio)
    n, n_channels = samples.shape
    places = np.arange(min(n, N_PEAKS)) * n // max(1, min(n, N_PEAKS))
    peaks = np.zeros((n_channels, len(places), 2), np.float32)
    if n:
        ends = [reduced.reduceat(samples, places, axis=0) for reduced in (np.fmin, np.fmax)]
        peaks = np.stack([_part(end) for end in ends], axis=-1).transpose(1, 0, 2)
    finite = peaks[np.isfinite(peaks)]
    return Wave(
        rate=audio.rate,
        n_samples=n,
        dtype=str(np.asarray(to_host(audio.value)).dtype),
        peaks=peaks,
        peak=float(abs(finite).max()) if len(finite) else 0.0,
    )


def _part(samples: npt.NDArray[np.generic]) -> npt.NDArray[np.float32]:
    """Return samples as parts of full scale; silence is 128 in uint8."""
    with np.errstate(over="ignore"):
        wide = samples.astype(np.float64)
        match samples.dtype.kind:
            case "u":
                wide = wide / 128 - 1
            case "i":
                wide = wide / 2.0 ** (8 * samples.dtype.itemsize - 1)
        return wide.astype(np.float32)
