"""Draw: from a function and its arguments to pictures and files. All renderers use this; it knows no thread or process.

* A function can spoil only its own figure: an exception, or a result that is not a figure, becomes a failure with its
  traceback, and an error card takes the figure's place: under the name of the job, or under the one that the function
  gave to this result. A card never replaces a file.
* A figure is rendered once as a PNG, and once for each file format; one of Plotly is its JSON, as a file, too. Large
  meshes are rasterized in vector files, which would take seconds and megabytes otherwise.
* Saving a figure applies the style, too, so drawing and saving happen within one theme; rcParams are restored.
* Every figure that a function made is closed, even if the function failed. Arrays of dtypes that Matplotlib lacks, such
  as bfloat16, become float32.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback as tracebacks
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from sightglass.core import plotly_json
from sightglass.core.errors import FigureError, MissingExtraError
from sightglass.core.program_values.guarded import rebuild
from sightglass.core.values import Figure as Picture
from sightglass.core.values import is_extended
from sightglass.views import frames
from sightglass.views.theme import theme

from .closures import Draws
from .figure_files import VERSION, Inputs, at_step, file_stem, inputs_writer, write
from .messages import DrawFigure, DrawFinished, Failure, Pictures, failure_of, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Drawn: TypeAlias = "Figure | Picture"
"""A figure of Matplotlib, or what is drawn already: a picture as a PNG, a figure of Plotly as its JSON."""

SUFFIXES: Final = {"image/png": "png", plotly_json.MEDIA_TYPE: "json"}

MAX_ARTISTS: Final = 2_000
"""Collections of more items than this are rasterized in vector files: beyond it, the vectors take more room."""

FONTS_EVERY: Final = 16  # some 20 kB of glyphs a figure; opening the fonts again takes as long as half a small figure
CARD_LINES: Final = 14  # of a traceback: the last frames and the message
CARD_COLUMNS: Final = 96  # what fits the width of a card at its font size


@dataclass(kw_only=True)
class Drawing:
    """What becomes of a job, while it is drawn.

    Attributes:
        pictures: The figures, by their names.
        cards: The names of those that are error cards.
        files: The files that were written.
        failures: What failed.
    """

    pictures: Pictures = field(default_factory=dict)
    cards: set[str] = field(default_factory=set)
    files: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    _unwritten: set[str] = field(default_factory=set)

    def write(self, message: DrawFigure, name: str, suffix: str, fill: Callable[[IO[bytes]], object]) -> None:
        """Write a file of a figure; what cannot be written is one failure of the figure, however many files it has."""
        try:
            path = _path(message, name, suffix)
            if name in self.cards and path.exists():
                return
            write(path, fill)
            self.files.append(plain(path))
        except Exception as error:  # noqa: BLE001  a full disk, or arguments that have no file: the figure is drawn
            if name not in self._unwritten:
                self.failures.append(failure_of(name, error))
            self._unwritten.add(name)

    def result(self, message: DrawFigure) -> tuple[DrawFinished, list[bytes]]:
        """Return this as a message and the bytes that follow it."""
        data = [one.data for one in self.pictures.values()]
        return DrawFinished(
            id=message.id, names=list(self.pictures), sizes=list(map(len, data)),
            media_types=[one.media_type for one in self.pictures.values()],
            cards=[name in self.cards for name in self.pictures], files=self.files, failures=self.failures,
            pid=os.getpid(),
        ), data  # fmt: skip


class Drawer:
    """Draws one job after the other."""

    def __init__(self, *, alone: bool = True) -> None:
        """Draw nothing yet.

        Args:
            alone: Whether no other thread makes figures with pyplot meanwhile, so that all new ones may be closed.
        """
        self._alone = alone
        self._n_drawn = 0

    @staticmethod
    def prepare() -> None:
        """Import Matplotlib ahead of the first figure; if it is missing, the first job fails."""
        with contextlib.suppress(MissingExtraError, ImportError), theme():
            import matplotlib.figure  # noqa: F401

    def draw(self, message: DrawFigure, load: Callable[[], Draws], arguments: Callable[[], Any]) -> Drawing:
        """Draw the figures of a job.

        Args:
            message: What to draw.
            load: Returns the function.
            arguments: Returns its arguments, a tuple; they may be read-only, and are not changed.
        """
        drawing = Drawing()
        seen = _numbers()
        made: list[Figure] = []
        values: tuple[Any, ...] | None = None
        try:
            with _theme(message):
                try:
                    if message.lost:
                        raise FigureError(message.lost, figure=message.name, step=message.step)
                    values = arguments()
                    result = load()(*usual(values))
                    figures = _named(result, message, made, _left_in_pyplot(seen) if self._alone else ())
                except (Exception, SystemExit) as error:  # noqa: BLE001  a user's function
                    made += _held_figures(error)
                    self._put_card(message.name, error, message, drawing)
                else:
                    for name, figure in figures.items():
                        self._save(name, figure, message, drawing)
            if values is not None and message.output.inputs and message.output.folder and drawing.pictures:
                self._store_inputs(message, values, drawing)
        except MissingExtraError as error:
            drawing.failures.append(failure_of(message.name, error))
        finally:
            _close(made, since=seen if self._alone else None)
            self._n_drawn += 1
            if self._n_drawn % FONTS_EVERY == 0:
                _close_fonts()
        return drawing

    def render(
        self, message: DrawFigure, name: str, function: Draws, arguments: tuple[Any, ...]
    ) -> tuple[dict[str, bytes], list[Failure]]:
        """Render one figure of a job in every format, and write nothing; return the files' bytes, or the failures."""
        seen = _numbers()
        made: list[Figure] = []
        with _theme(message):
            try:
                figure = _named(function(*usual(arguments)), message, made).get(name)
                if isinstance(figure, FigureError):
                    raise figure
                if figure is None:
                    raise FigureError(f"Expected a figure {name!r} from {message.function}, it draws others now")
                return dict(_rendered(figure, message)), []
            except (Exception, SystemExit) as error:  # noqa: BLE001  a user's function
                made += _held_figures(error)
                return {}, [failure_of(name, error, "" if isinstance(error, FigureError) else _traceback(error))]
            finally:
                _close(made, since=seen)

    @staticmethod
    def write_pictures(message: DrawFigure, pictures: Pictures) -> None:
        """Write figures of a job that the parent could not take; failures to write are ignored."""
        for name, one in pictures.items() if message.output.folder else ():
            with contextlib.suppress(OSError):
                write(_path(message, name, SUFFIXES[one.media_type]), _writer(one.data))

    def _save(self, name: str, figure: Drawn | FigureError, message: DrawFigure, drawing: Drawing) -> None:
        """Save one figure in every format, or a card in its place."""
        try:
            if isinstance(figure, FigureError):
                raise figure
            forms = dict(_rendered(figure, message))
        except (Exception, SystemExit) as error:  # noqa: BLE001  saving a figure runs the user's code
            self._put_card(name, error, message, drawing)
        else:
            self._put(name, forms, message, drawing)

    def _put_card(self, name: str, error: BaseException, message: DrawFigure, drawing: Drawing) -> None:
        """Count a failure, and put a card in the place of the figure."""
        traceback = plain(error.traceback if isinstance(error, FigureError) else _traceback(error))
        failure = failure_of(name, error, traceback)
        drawing.failures.append(msgspec.structs.replace(failure, kind="") if message.lost else failure)
        drawing.cards.add(name)
        self._put(name, dict(_card(name, message, error, traceback)), message, drawing)

    def _put(self, name: str, forms: Mapping[str, bytes], message: DrawFigure, drawing: Drawing) -> None:
        """Take a figure in every format, and write its files."""
        media_type = "image/png" if "png" in forms else plotly_json.MEDIA_TYPE
        drawing.pictures[name] = Picture(forms[SUFFIXES[media_type]], media_type)
        formats = message.output.formats if message.output.folder else ()
        for form in formats if "png" in forms else [*forms] if formats else ():
            drawing.write(message, name, form, _writer(forms[form]))

    def _store_inputs(self, message: DrawFigure, values: tuple[Any, ...], drawing: Drawing) -> None:
        names = list(drawing.pictures)

        def about(tree: object) -> Inputs:
            return Inputs(
                version=VERSION, function=message.function, source=message.source, step=message.step, figures=names,
                theme=message.output.theme, tree=tree,
            )  # fmt: skip

        drawing.write(message, names[0], "npz", inputs_writer(tuple(map(widened, values)), about))


def _path(message: DrawFigure, name: str, suffix: str) -> Path:
    folder = Path(os.fsdecode(message.output.folder))
    return folder / at_step(file_stem(name, folder), message.step, suffix)


def _theme(message: DrawFigure) -> contextlib.AbstractContextManager[object]:
    options = msgspec.to_builtins(message.output.theme)
    return theme(options.pop("style"), **options)


def usual(value: object) -> Any:
    """Return arguments as a function expects them: arrays that it may change, of NumPy's own dtypes."""
    if isinstance(value, np.ndarray):
        return _wide(value) if is_extended(value.dtype) else value.copy()
    if isinstance(value, np.generic) and is_extended(value.dtype):
        return np.float32(value)
    return rebuild(value, usual)


def widened(value: object) -> Any:
    """Return a value whose arrays have NumPy's own dtypes; arrays that have them already are not copied."""
    if isinstance(value, np.ndarray | np.generic):
        return _wide(np.asarray(value)) if is_extended(value.dtype) else value
    return rebuild(value, widened)


def _wide(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return array.astype(np.int8 if "int" in array.dtype.name else np.float32)


def _named(
    result: object, message: DrawFigure, made: list[Figure], left: Sequence[Figure] = ()
) -> dict[str, Drawn | FigureError]:
    """Return the figures that a function returned, by name, with an error in place of anything else.

    Raises:
        FigureError: It returned neither a figure nor a mapping.
    """
    if result is None and left:  # in pyplot
        result = left[-1]
    single = _drawn(result)
    if single is not None:
        made += [single] if not isinstance(single, Picture) else []
        return {message.name: single}
    if (
        isinstance(result, list | tuple)
        and result
        and all(plotly_json.is_plotly(one) or _figure(one) is not None for one in result)
    ):
        result = {f"{message.name}/{i}": one for i, one in enumerate(result)}
    if not isinstance(result, Mapping):
        raise FigureError(
            f"Expected figures by their names, or a figure, from {message.function}, got {type(result).__name__} "
            f"{result!r:.80}"
        )
    figures: dict[str, Drawn | FigureError] = {}
    for key, value in result.items():
        figure = _drawn(value)
        name = plain(key) or message.name
        if figure is None:
            expected = f"Expected a figure of Matplotlib or Plotly, or a picture, as {name!r}"
            expected = f"{expected}, got {type(value).__name__} {value!r:.80}"
            figures[name] = FigureError(expected)
        elif name != key:
            expected = "Expected text that UTF-8 can encode as the name of a figure"
            figures[name] = FigureError(f"{expected}, got {type(key).__name__} {key!r:.80}")
        else:
            figures[name] = figure
        made += [] if figure is None or isinstance(figure, Picture) else [figure]
    return figures


def _figure(value: object) -> Figure | None:
    """Return a figure, or the figure of axes or of a seaborn grid; `None` for anything else."""
    from matplotlib.figure import Figure

    for _ in range(3):  # axes, the subfigure that they are in, the figure
        if isinstance(value, Figure):
            return value
        value = getattr(value, "figure", None)
    return None


def _drawn(value: object) -> Drawn | None:
    """Return a figure, or what is drawn already; `None` for anything else."""
    if plotly_json.is_plotly(value):
        return plotly_json.as_figure(value)
    figure = _figure(value)
    if figure is not None:
        return figure
    data = frames.as_png(value)
    return None if data is None else Picture(data)


def _rendered(figure: Drawn, message: DrawFigure) -> Iterator[tuple[str, bytes]]:
    """Render a figure as a PNG, and in each format of the files; yield the JSON of one of Plotly."""
    if isinstance(figure, Picture):
        form = SUFFIXES[figure.media_type]
        yield form, figure.data
        for other in {*message.output.formats} - {"png"} if message.output.folder and form == "png" else ():
            yield other, frames.converted(figure.data, other)
        return
    yield "png", _saved(figure, "png", message.output.dpi)
    formats = [form for form in message.output.formats if form != "png"] if message.output.folder else []
    if formats:
        _rasterize(figure)
    for form in formats:
        yield form, _saved(figure, form, None)


def _saved(figure: Figure, form: str, dpi: float | None) -> bytes:
    data = io.BytesIO()
    options: dict[str, Any] = {} if dpi is None else {"dpi": dpi}
    figure.savefig(data, format=form, **options)
    return data.getvalue()


def _rasterize(figure: Figure) -> None:
    """Rasterize large meshes and clouds of points in vector files."""
    from matplotlib.collections import Collection, QuadMesh

    for artist in figure.findobj(Collection):
        if (
            isinstance(artist, QuadMesh)
            or max(len(artist.get_paths()), np.size(artist.get_offsets()) // 2) > MAX_ARTISTS
        ):
            artist.set_rasterized(True)


def _card(name: str, message: DrawFigure, error: BaseException, traceback: str) -> Iterator[tuple[str, bytes]]:
    """Render a card that says why a figure is missing."""
    from matplotlib.figure import Figure

    traceback = traceback or getattr(error, "traceback", "")
    lines = [line[:CARD_COLUMNS] for line in traceback.rstrip().splitlines()[-CARD_LINES:]]
    reason = plain(error.args[0]) if isinstance(error, FigureError) else f"{type(error).__name__}: {plain(error)}"
    card = Figure(figsize=(6.4, 1.1 + 0.14 * len(lines)))
    top = 1.0 / card.get_figheight()
    options: dict[str, Any] = {"parse_math": False, "va": "top", "transform": card.transFigure}
    card.text(0.02, 1 - 0.1 * top, f"{name}, step {message.step:g}, could not be drawn", fontsize=10, **options)
    card.text(0.02, 1 - 0.35 * top, _wrapped(reason), fontsize=8.5, color="C5", **options)
    card.text(0.02, 1 - 0.8 * top, "\n".join(lines), fontsize=6.5, family="monospace", **options)
    yield "png", _saved(card, "png", message.output.dpi)
    for form in message.output.formats if message.output.folder else ():
        if form != "png":
            yield form, _saved(card, form, None)


def _wrapped(text: str) -> str:
    line = " ".join(text.split())
    return f"{line[:CARD_COLUMNS]}\n{line[CARD_COLUMNS : 2 * CARD_COLUMNS]}".rstrip()


def _traceback(error: BaseException) -> str:
    """Return a traceback as text, without the frames of this module."""
    try:
        inner = error.__traceback__
        while inner is not None and inner.tb_frame.f_code.co_filename == __file__ and inner.tb_next is not None:
            inner = inner.tb_next
        return "".join(tracebacks.format_exception(type(error), error, inner))
    except Exception:  # noqa: BLE001  exceptions are the user's own classes
        return type(error).__name__


def _held_figures(error: BaseException) -> list[Figure]:
    """Return the figures in the local variables of a function that failed."""
    found: list[Figure] = []
    if "matplotlib.figure" in sys.modules:
        for frame, _ in tracebacks.walk_tb(error.__traceback__):
            for value in list(frame.f_locals.values()):
                with contextlib.suppress(Exception):
                    found += [figure for figure in [_figure(value)] if figure is not None]
    return found


def _numbers() -> set[int]:
    pyplot = sys.modules.get("matplotlib.pyplot")
    return set() if pyplot is None else set(pyplot.get_fignums())


def _left_in_pyplot(seen: set[int]) -> list[Figure]:
    """Return the figures that pyplot has made since it had only these numbers."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    return [] if pyplot is None else [pyplot.figure(number) for number in sorted(_numbers() - seen)]


def _close(figures: list[Figure], since: set[int] | None) -> None:
    """Close figures, and those that pyplot has made since it had only these numbers."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        for figure in figures:
            pyplot.close(figure)
        for number in _numbers() - since if since is not None else ():
            pyplot.close(number)


def _close_fonts() -> None:
    """Let Matplotlib open its fonts again: an open one holds every glyph of every formula, such as a tick's 10⁶."""
    cached = getattr(sys.modules.get("matplotlib.font_manager"), "_get_font", None)
    with contextlib.suppress(AttributeError):  # another version of Matplotlib
        cached.cache_clear()  # type: ignore[union-attr]


def _writer(data: bytes) -> Callable[[IO[bytes]], object]:
    return lambda file: file.write(data)
