"""The values of W&B's interface as those of a run: pictures, histograms, tables, sounds, pages, charts."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from enum import Enum
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np

from sightglass.core.errors import warn
from sightglass.core.program_values.guarded import OwnValue
from sightglass.core.table import Table
from sightglass.core.values import PLAIN, Audio, Figure, Histogram, Image, Images, Text, array_kind, to_host
from sightglass.storage.foreign.event_format import figure
from sightglass.storage.format.wav import decode_wav

PICTURE_MODES: Final = ("L", "RGB", "RGBA")
DEFAULT_COLUMNS: Final = ("Input", "Output", "Expected")
MAX_DEPTH: Final = 32  # of a config, which may hold itself

_warned: Final[set[str]] = set()


class Unkept:
    """Takes every call, and keeps nothing: what a program does with an artifact or a sweep goes on without effect."""

    def __init__(self, *arguments: Any, **options: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Return itself."""
        return self

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exception: object) -> None: ...

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __fspath__(self) -> str:
        return ""


def unkept(name: str, instead: str = "") -> Unkept:
    """Return what takes every call; warn of the first of each name."""
    if name not in _warned:
        _warned.add(name)
        warn(f"{name} is not kept{instead and ': '}{instead}. The program goes on")
    return Unkept()


@cache
def unkept_class(name: str, instead: str = "") -> type[Unkept]:
    """Return a class of such objects."""
    return type(name, (Unkept,), {"__init__": lambda self, *arguments, **options: (unkept(name, instead), None)[1]})


class Media:
    """A value of W&B's interface.

    Attributes:
        kept: What a run records.
    """

    kept: Any


class WandbImage(Media):
    """A picture: an array, PyTorch's tensor with channels first, Pillow's or Matplotlib's picture, or a file."""

    def __init__(
        self, data_or_path: Any, mode: str | None = None, caption: str | None = None, *unused: Any, **options: Any
    ) -> None:
        """Take a picture; other numbers than uint8 are from 0 to 255, or from 0 to 1."""
        if any(options.get(name) for name in ("boxes", "masks")):
            unkept("Image(boxes=…, masks=…)", "draw them into the picture")
        value = data_or_path.gcf() if isinstance(data_or_path, ModuleType) else data_or_path
        if isinstance(value, WandbImage):
            self.kept = value.kept
        elif isinstance(value, str | os.PathLike):
            self.kept = figure(memoryview(Path(value).read_bytes()))  # as it is, without its caption
        elif hasattr(value, "savefig"):
            self.kept = value  # a run draws it
        else:
            if hasattr(value, "getbands"):
                wanted = mode or (value.mode if value.mode in PICTURE_MODES else "RGB")
                value = np.asarray(value if value.mode == wanted else value.convert(wanted))
            pixels = _as_pixels(np.asarray(to_host(value)), first=array_kind(value) == "torch")
            self.kept = Image(pixels, caption=str(caption or ""))


def _as_pixels(pixels: Any, *, first: bool) -> Any:
    """Return uint8, or floats from 0 to 1; `first` is whether the channels come first."""
    if first and pixels.ndim == 3:
        pixels = np.moveaxis(pixels, 0, -1)
    if pixels.dtype == bool:
        return pixels.astype(np.uint8) * 255
    if pixels.dtype.kind == "f" and pixels.size and np.nanmin(pixels) >= 0 and np.nanmax(pixels) <= 1:
        return pixels.astype(np.float32)
    return pixels if pixels.dtype == np.uint8 else np.clip(np.nan_to_num(pixels), 0, 255).astype(np.uint8)


class WandbHistogram(Media):
    """A histogram.

    Attributes:
        histogram: The counts.
        bins: The edges.
    """

    def __init__(self, sequence: Any = None, np_histogram: Any = None, num_bins: int = 64) -> None:
        """Count a sequence, or take the counts and edges that `numpy.histogram` returned."""
        if np_histogram is not None:
            counts, edges = np_histogram
            self.kept = Histogram.from_counts(np.rint(np.asarray(to_host(counts))), to_host(edges))
        else:
            samples = () if sequence is None else sequence
            self.kept = Histogram(np.asarray(to_host(samples), np.float64).ravel(), bins=num_bins)
        self.histogram, self.bins = self.kept.counts.tolist(), self.kept.edges.tolist()


class WandbTable(Media):
    """Rows under named columns.

    Attributes:
        columns: The names.
        data: The rows.
    """

    def __init__(
        self, columns: Sequence[Any] | None = None, data: Any = None, rows: Any = None, dataframe: Any = None,
        *unused: Any, **options: Any,
    ) -> None:  # fmt: skip
        """Take rows, or a data frame."""
        given = dataframe if dataframe is not None else data
        if hasattr(given, "columns") and hasattr(given, "itertuples"):
            self.columns = [*given.columns]
            self.data = [[*row] for row in given.itertuples(index=False)]
        else:
            self.columns = [*(DEFAULT_COLUMNS if columns is None else columns)]
            self.data = [[*row] for row in (given if given is not None else rows if rows is not None else ())]

    def add_data(self, *row: Any) -> None:
        """Add a row.

        Raises:
            ValueError: It has another length than the others.
        """
        if len(row) != len(self.columns):
            raise ValueError(f"Expected a cell for each of {self.columns}, got {len(row)}")
        self.data.append([*row])

    add_row = add_data

    def add_column(self, name: str, data: Iterable[Any], optional: bool = False) -> None:
        """Add a column."""
        cells = [*data]
        self.columns.append(name)
        self.data = [[*row, cell] for row, cell in zip(self.data or [[] for _ in cells], cells, strict=True)]

    def get_column(self, name: str, convert_to: str | None = None) -> Any:
        """Return the cells of a column, as a list or, with "numpy", as an array."""
        cells = [row[self.columns.index(name)] for row in self.data]
        return np.array(cells) if convert_to == "numpy" else cells

    def iterrows(self) -> Iterator[tuple[int, list[Any]]]:
        """Yield the number and the cells of each row."""
        yield from enumerate(self.data)

    @property
    def kept(self) -> Table:
        """What a run records; lists and mappings in cells as their JSON."""
        cells = [[_cell(cell) for cell in row] for row in self.data]
        columns = [*zip(*cells, strict=True)] if cells else [() for _ in self.columns]
        return Table({str(name): [*column] for name, column in zip(self.columns, columns, strict=True)})


def _cell(cell: Any) -> Any:
    made = own(cell)
    if isinstance(made, Image | Figure | Audio) or type(made) in PLAIN:
        return made
    found = made.value if isinstance(made, Text) else plain(made)
    return json.dumps(found) if isinstance(found, dict | list) else found


class WandbAudio(Media):
    """A sound: samples, or a WAV file."""

    def __init__(self, data_or_path: Any, sample_rate: int | None = None, caption: str | None = None) -> None:
        """Take samples from -1 to 1 with their rate, or the path of a WAV file."""
        if isinstance(data_or_path, str | os.PathLike):
            self.kept = decode_wav(Path(data_or_path).read_bytes())
            return
        samples = np.asarray(to_host(data_or_path))
        self.kept = Audio(samples if samples.dtype.kind == "f" else samples.astype(np.float32), sample_rate or 44100)


class WandbHtml(Media):
    """A page of HTML, kept as its text: the text, an open file, or the path of a file."""

    def __init__(self, data: Any, inject: bool = True, data_is_not_path: bool = False) -> None:
        if isinstance(data, Path) or (str(data).endswith(".html") and not data_is_not_path):
            data = Path(data).read_text("utf-8")
        self.html: str = data.read() if hasattr(data, "read") else str(data)
        self.kept = Text(self.html)


class WandbPlotly(Media):
    """A figure of Plotly or Matplotlib."""

    def __init__(self, val: Any) -> None:
        self.kept = val


class WandbChart(Media):
    """A chart of `wandb.plot`: its table, which a run has as `{name}_table`."""

    def __init__(self, table: WandbTable) -> None:
        self.table = table

    @property
    def kept(self) -> Table:
        """What a run records."""
        return self.table.kept


def chart_of(table: WandbTable, *unused: Any, **options: Any) -> WandbChart:
    """Return a chart of a table, such as `wandb.plot.line(table, "x", "y")`: how it is drawn is not kept."""
    return WandbChart(table)


def line_series(
    xs: Any, ys: Sequence[Any], keys: Sequence[Any] | None = None, title: str = "", xname: str = "x", *unused: Any
) -> WandbChart:
    """Return a chart of several lines, with one `xs` for all or one for each."""
    shared = not (len(xs) and isinstance(xs[0], Sequence | np.ndarray))
    named = zip([xs] * len(ys) if shared else xs, keys or [f"line_{i}" for i in range(len(ys))], ys, strict=False)
    rows = [[x, name, y] for line, name, of in named for x, y in zip(line, of, strict=False)]
    return WandbChart(WandbTable(["step", "lineKey", "lineVal"], rows))


def confusion_matrix(
    probs: Any = None, y_true: Any = (), preds: Any = None, class_names: Sequence[str] | None = None, *unused: Any
) -> WandbChart:
    """Return how many items of each class are predicted as each class."""
    guesses = [*map(int, np.argmax(to_host(probs), axis=1) if preds is None else preds)]
    counts = Counter(zip(map(int, y_true), guesses, strict=True))
    n = 1 + max(map(max, counts), default=-1) if class_names is None else len(class_names)
    names = class_names or [f"Class_{i + 1}" for i in range(n)]
    rows = [[names[i], names[j], float(counts[i, j])] for i in range(n) for j in range(n)]
    return WandbChart(WandbTable(["Actual", "Predicted", "nPredictions"], rows))


def own(value: Any) -> Any:
    """Return a value as `Run.log` takes it, without what is `None` in mappings."""
    if type(value) in PLAIN:
        return value
    match value:
        case Media():
            return value.kept
        case OwnValue():
            return value
        case Mapping():
            return own_row(value)
        case list() | tuple() if value and all(isinstance(item, WandbImage) for item in value):
            return _pictures([item.kept for item in value])
        case list() | tuple():
            return [own(item) for item in value]
        case set() | frozenset():
            return [own(item) for item in value]
        case Enum():
            return own(value.value)
        case date() | bytes() | os.PathLike():
            return plain(value)
        case ModuleType() if hasattr(value, "gcf"):
            return value.gcf()
    return own(_fields(value)) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value


def own_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row as `Run.log` takes it: charts as their tables, and nothing that is `None`."""
    kept = {str(name): value for name, value in row.items() if name != "" and not isinstance(value, Unkept | None)}
    return {f"{name}_table" if isinstance(value, WandbChart) else name: own(value) for name, value in kept.items()}


def _pictures(several: list[Any]) -> Any:
    """Return pictures of one size as `Images`, others as they are."""
    shapes = {one.value.shape if isinstance(one, Image) else None for one in several}
    if len(shapes) > 1 or None in shapes:
        return several
    captions = tuple(one.caption for one in several)
    return Images(np.stack([one.value for one in several]), captions=captions if any(captions) else ())


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def plain(value: Any, depth: int = 0) -> Any:
    """Return an entry of a config, or of a summary, as JSON has it; other objects become texts."""
    if depth > MAX_DEPTH:
        return "…"
    match value:
        case None | bool() | int() | str():
            return value.item() if isinstance(value, np.generic) else value.value if isinstance(value, Enum) else value
        case float():
            return None if math.isnan(value) else float(value)
        case Enum():
            return value.name
        case Mapping():
            return {str(name): plain(item, depth + 1) for name, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [plain(item, depth + 1) for item in value]
        case date():
            return value.isoformat()
        case bytes():
            return value.decode("utf-8", "replace")
        case os.PathLike():
            return os.fspath(value)
    if array_kind(value) is not None or isinstance(value, np.generic):
        host = to_host(value)
        return plain(host.tolist() if hasattr(host, "tolist") else host, depth + 1)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(_fields(value), depth + 1)
    if isinstance(value, Sequence):
        return [plain(item, depth + 1) for item in value]
    named = isinstance(value, type) or hasattr(value, "__qualname__")
    return f"{value.__module__}.{value.__qualname__}" if named else str(value)
