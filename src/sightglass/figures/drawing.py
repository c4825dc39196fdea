"""From a function and its arguments to pictures. The same for every renderer; no thread and no process is known here.

Rule 1: nothing that a function does or returns ends more than its own figure: what is raised, and what is no figure,
becomes a trouble with its traceback, and a card that tells of it takes the figure's place.
Rule 2: a figure is rendered once as a PNG, and once more for each kind of file; large meshes within vector files are
pictures, for else such a file takes seconds and megabytes.
Rule 3: style counts when a figure is saved, too, so both happen within one theme, and rcParams are put back.
Rule 4: every figure that a function made is closed, whether it returned it or failed. Arrays of dtypes that Matplotlib
does not know, such as bfloat16, come as float32.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import traceback as tracebacks
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from sightglass.core.errors import FigureError, MissingExtraError
from sightglass.core.values import is_container, is_extended, rebuild
from sightglass.views.theme import theme

from .figure_files import VERSION, FigureFileNames, Inputs, at_step, write, write_inputs
from .messages import DrawFigure, DrawFinished, Failure, plain, trouble

MAX_ARTISTS: Final = 2_000
"""Collections of more items than this are pictures within vector files."""

CARD_LINES: Final = 14
CARD_COLUMNS: Final = 96


@dataclass(kw_only=True)
class Drawing:
    """What becomes of an order, while it is drawn.

    Attributes:
        pictures: The PNGs, by the figures' names.
        cards: Which of them are error cards.
        files: What was written.
        troubles: What went wrong.
    """

    pictures: dict[str, bytes] = field(default_factory=dict)
    cards: set[str] = field(default_factory=set)
    files: list[str] = field(default_factory=list)
    troubles: list[Failure] = field(default_factory=list)

    def done(self, order: DrawFigure, seconds: float) -> tuple[DrawFinished, list[bytes]]:
        """Return it as a message and the PNGs behind it."""
        return DrawFinished(
            id=order.id, names=list(self.pictures), sizes=[len(png) for png in self.pictures.values()],
            cards=[name in self.cards for name in self.pictures], files=self.files, troubles=self.troubles,
            pid=os.getpid(), seconds=seconds,
        ), list(self.pictures.values())  # fmt: skip


class Drawer:
    """Draws, one order after the other."""

    def __init__(self, *, alone: bool = True) -> None:
        """Begin.

        Args:
            alone: Whether nobody else makes figures with pyplot meanwhile, so that all new ones may be closed.
        """
        self._alone = alone
        self._files = FigureFileNames()
        self._known: dict[str, list[str]] = {}

    @staticmethod
    def prepare() -> None:
        """Load Matplotlib, so that the first figure does not have to; if it is missing, the first order tells."""
        with contextlib.suppress(MissingExtraError, ImportError), theme():
            import matplotlib.figure  # noqa: F401

    def draw(self, order: DrawFigure, load: Callable[[], Callable[..., Any]], arguments: Callable[[], Any]) -> Drawing:
        """Draw the figures of an order.

        Args:
            order: What is to be drawn.
            load: Returns the function.
            arguments: Returns its arguments, a tuple; they may be read-only, and are not changed.
        """
        drawing = Drawing()
        seen = _numbers()
        made: list[Any] = []
        given: tuple[Any, ...] | None = None
        try:
            look = msgspec.to_builtins(order.output.look)
            with theme(look.pop("style"), **look):
                try:
                    given = arguments()
                    figures = _named(load()(*usual(given)), order, drawing, made)
                except (Exception, SystemExit) as error:  # noqa: BLE001  a user's function
                    self._failed(order, error, drawing, made)
                else:
                    self._known[order.function] = list(figures)[:64] or self._known.get(order.function, [])
                    for name, figure in figures.items():
                        self._save(name, figure, order, drawing)
            if given is not None and order.output.inputs and order.output.folder and drawing.pictures:
                self._keep(order, given, drawing)
        except MissingExtraError as error:
            drawing.troubles.append(trouble(order.name, error))
        finally:
            _close(made, since=seen if self._alone else None)
        return drawing

    def render(
        self, order: DrawFigure, name: str, function: Callable[..., Any], arguments: tuple[Any, ...]
    ) -> tuple[dict[str, bytes], list[Failure]]:
        """Render one figure of an order in every form, and write nothing; returns the files' bytes, or the troubles."""
        drawing, seen, made = Drawing(), _numbers(), list[Any]()
        look = msgspec.to_builtins(order.output.look)
        with theme(look.pop("style"), **look):
            try:
                figure = _named(function(*usual(arguments)), order, drawing, made).get(name)
                if isinstance(figure, FigureError):
                    raise figure
                if figure is None:
                    raise FigureError(f"Expected a figure {name!r} from {order.function}, it draws others now")
                return dict(_rendered(figure, order)), []
            except (Exception, SystemExit) as error:  # noqa: BLE001  a user's function
                made += _left_behind(error)
                return {}, [trouble(name, error, "" if isinstance(error, FigureError) else _told(error))]
            finally:
                _close(made, since=seen)

    def write_pictures(self, folder: str, step: float, pictures: Mapping[str, bytes]) -> None:
        """Write PNGs that nobody took, as far as that can be done."""
        for name, png in pictures.items():
            with contextlib.suppress(OSError):
                write(Path(folder) / at_step(self._files.stem(name), step, "png"), _writer(png))

    def _save(self, name: str, figure: Any, order: DrawFigure, drawing: Drawing) -> None:
        """Save one figure in every form."""
        forms: dict[str, bytes] = {}
        try:
            if isinstance(figure, FigureError):
                raise figure
            forms = dict(_rendered(figure, order))
        except (Exception, SystemExit) as error:  # noqa: BLE001  a figure draws itself when it is saved
            told = "" if isinstance(error, FigureError) else _told(error)
            drawing.troubles.append(trouble(name, error, told))
            forms = dict(_card(name, order, error, told))
            drawing.cards.add(name)
        drawing.pictures[name] = forms["png"]
        for form in order.output.formats if order.output.folder else ():
            path = Path(order.output.folder) / at_step(self._files.stem(name), order.step, form)
            try:
                write(path, _writer(forms[form]))
                drawing.files.append(str(path))
            except OSError as error:
                drawing.troubles.append(trouble(name, error))

    def _failed(self, order: DrawFigure, error: BaseException, drawing: Drawing, made: list[Any]) -> None:
        """Put cards in the places of all figures that a function should have drawn."""
        made += _left_behind(error)
        told = _told(error)
        drawing.troubles.append(trouble(order.name, error, told))
        n = len(drawing.troubles)
        for name in self._known.get(order.function) or [order.name]:
            self._save(name, FigureError(f"{type(error).__name__}: {plain(error)}", traceback=told), order, drawing)
        drawing.troubles[n:] = [t for t in drawing.troubles[n:] if t.kind != FigureError.__name__]  # told once

    def _keep(self, order: DrawFigure, given: tuple[Any, ...], drawing: Drawing) -> None:
        names = list(drawing.pictures)
        path = Path(order.output.folder) / at_step(self._files.stem(names[0]), order.step, "npz")

        def about(tree: Any) -> Inputs:
            return Inputs(
                version=VERSION, function=order.function, source=order.source, step=order.step, figures=names,
                look=order.output.look, tree=tree,
            )  # fmt: skip

        try:
            write_inputs(path, tuple(map(widened, given)), about)
            drawing.files.append(str(path))
        except OSError as error:
            drawing.troubles.append(trouble(names[0], error))


def usual(value: Any) -> Any:
    """Return arguments as a function expects them: arrays that it may change, of dtypes that NumPy knows itself."""
    if isinstance(value, np.ndarray):
        return _wide(value) if is_extended(value.dtype) else value.copy()
    if isinstance(value, np.generic) and is_extended(value.dtype):
        return np.float32(value)
    return rebuild(value, usual) if is_container(value) else value


def widened(value: Any) -> Any:
    """Return a value whose arrays have dtypes that NumPy knows itself, without copying the others."""
    if isinstance(value, np.ndarray | np.generic):
        return _wide(np.asarray(value)) if is_extended(value.dtype) else value
    return rebuild(value, widened) if is_container(value) else value


def _wide(array: Any) -> Any:
    return array.astype(np.int8 if "int" in array.dtype.name else np.float32)


def _named(result: Any, order: DrawFigure, drawing: Drawing, made: list[Any]) -> dict[str, Any]:
    """Return what a function drew, by names; in place of what is no figure, the error that says so.

    Raises:
        FigureError: It returned neither figures by their names nor a figure.
    """
    single = _figure(result)
    if single is not None:
        made.append(single)
        return {order.name: single}
    if not isinstance(result, Mapping):
        raise FigureError(
            f"Expected figures by their names, or a figure, from {order.function}, got {type(result).__name__} "
            f"{result!r:.80}"
        )
    figures: dict[str, Any] = {}
    for key, value in result.items():
        figure = _figure(value)
        name = key if isinstance(key, str) and key else plain(key) or order.name
        if figure is None:
            expected = f"Expected a Matplotlib figure as {name!r}, got {type(value).__name__} {value!r:.80}"
            figures[name] = FigureError(expected)
        elif name is not key:
            figures[name] = FigureError(f"Expected text as the name of a figure, got {type(key).__name__} {key!r:.80}")
        else:
            figures[name] = figure
        made += [figure] * (figure is not None)
    return figures


def _figure(value: Any) -> Any:
    """Return the figure that something is, or is part of: a figure, axes, a grid of seaborn's; else `None`."""
    from matplotlib.figure import Figure

    for candidate in (value, getattr(value, "figure", None)):
        if isinstance(candidate, Figure):
            return candidate
    return None


def _rendered(figure: Any, order: DrawFigure) -> Iterator[tuple[str, bytes]]:
    """Render a figure in every form that is asked for."""
    yield "png", _saved(figure, "png", order.output.dpi)
    formats = [form for form in order.output.formats if form != "png"] if order.output.folder else []
    if formats:
        _rasterize(figure)
    for form in formats:
        yield form, _saved(figure, form, None)


def _saved(figure: Any, form: str, dpi: float | None) -> bytes:
    data = io.BytesIO()
    figure.savefig(data, format=form, **({} if dpi is None else {"dpi": dpi}))
    return data.getvalue()


def _rasterize(figure: Any) -> None:
    """Let large meshes and clouds of points be pictures within vector files."""
    from matplotlib.collections import Collection, QuadMesh

    for artist in figure.findobj(Collection):
        if isinstance(artist, QuadMesh) or max(len(artist.get_paths()), len(artist.get_offsets())) > MAX_ARTISTS:
            artist.set_rasterized(True)


def _card(name: str, order: DrawFigure, error: BaseException, told: str) -> Iterator[tuple[str, bytes]]:
    """Render a card that says why a figure is missing."""
    from matplotlib.figure import Figure

    told = told or getattr(error, "traceback", "")
    lines = [line[:CARD_COLUMNS] for line in told.rstrip().splitlines()[-CARD_LINES:]]
    message = plain(error.args[0] if isinstance(error, FigureError) else f"{type(error).__name__}: {error}")
    card = Figure(figsize=(6.4, 1.1 + 0.14 * len(lines)))
    top = 1.0 / card.get_figheight()
    options: dict[str, Any] = {"parse_math": False, "va": "top", "transform": card.transFigure}
    card.text(0.02, 1 - 0.1 * top, f"{name}, step {order.step:g}, could not be drawn", fontsize=10, **options)
    card.text(0.02, 1 - 0.35 * top, _wrapped(message), fontsize=8.5, color="C5", **options)
    card.text(0.02, 1 - 0.8 * top, "\n".join(lines), fontsize=6.5, family="monospace", **options)
    yield "png", _saved(card, "png", order.output.dpi)
    for form in order.output.formats if order.output.folder else ():
        if form != "png":
            yield form, _saved(card, form, None)


def _wrapped(text: str) -> str:
    line = " ".join(text.split())
    return f"{line[:CARD_COLUMNS]}\n{line[CARD_COLUMNS : 2 * CARD_COLUMNS]}".rstrip()


def _told(error: BaseException) -> str:
    """Return a traceback as text, without the frames of this module."""
    try:
        inner = error.__traceback__
        while inner is not None and inner.tb_frame.f_code.co_filename == __file__ and inner.tb_next is not None:
            inner = inner.tb_next
        return "".join(tracebacks.format_exception(type(error), error, inner))
    except Exception:  # noqa: BLE001  exceptions are the user's own classes
        return type(error).__name__


def _left_behind(error: BaseException) -> list[Any]:
    """Return the figures that a function held when it failed."""
    found: list[Any] = []
    if "matplotlib.figure" in sys.modules:
        for frame, _ in tracebacks.walk_tb(error.__traceback__):
            for value in list(frame.f_locals.values()):
                with contextlib.suppress(Exception):
                    found += [figure for figure in [_figure(value)] if figure is not None]
    return found


def _numbers() -> set[int]:
    pyplot = sys.modules.get("matplotlib.pyplot")
    return set() if pyplot is None else set(pyplot.get_fignums())


def _close(figures: list[Any], since: set[int] | None) -> None:
    """Close figures, and all that pyplot has made since these."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        for figure in figures:
            pyplot.close(figure)
        for number in _numbers() - since if since is not None else ():
            pyplot.close(number)


def _writer(data: bytes) -> Callable[[Any], object]:
    return lambda file: file.write(data)
