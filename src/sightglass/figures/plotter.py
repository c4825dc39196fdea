"""The plotter: what a training gives its intermediates to, and has figures drawn from them elsewhere.

Rule 1: whether a model draws anything is found out once, when the plotter is made. If it does not, `submit` is a no-op:
nothing is copied, imported or started.
Rule 2: only the main process of a program draws; in all others every call is a no-op. So it is in a run's renderer, and
with `SIGHTGLASS_MODE=disabled`.
Rule 3: a call copies what it is given and returns. It waits only for room, if that is wanted (`desk`).
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, get_args

import msgspec

from sightglass.core.errors import FigureError, FigureErrors, UnknownNameError
from sightglass.core.ranks import rank_and_size
from sightglass.core.record import Record
from sightglass.core.values import to_host
from sightglass.views.theme import CONTEXTS, STYLES

from .closures import Draws
from .messages import FigureTheme, Output
from .render_queue import FigureStatistics, OnError, OnFull, RendererKind, RenderQueue, RenderRequest
from .sinks import FigureSink, RunSink, run_sink, wandb_sink

MAX_JOBS: Final = 8
MAX_BYTES: Final = 256 * 2**20
LIMIT_S: Final = 120.0
DPI: Final = 150.0
FORMATS: Final = ("pdf", "svg", "png")
FOLDER: Final = "figures"


def no_plot(intermediates: Any) -> dict[str, Any]:
    """Draw nothing: what a base class has as its static `plot`, so that a plotter knows a model without figures.

    Args:
        intermediates: Whatever the model gave.
    """
    return {}


class Plotter:
    """Draws figures in a child process, and hands them to the run, to W&B, and to files.

    Args:
        model_cls: A class with a static `plot(intermediates)` that returns figures by their names, or such a function.
            With `None`, or a class that does not override `plot`, `submit` does nothing.
        save: Whether files are written: `True` for PDF, or "pdf", "svg", "png", or several of them.
        save_dir: Where; by default the run's directory, or `figures/` where there is no run.
        sinks: Where figures go; by default the current run, and W&B if one of its runs is active.
        renderer: "process", "thread", or "inline" for at once.
        on_full: What happens while too much waits: "block", "drop_oldest" or "drop_new".
        on_error: What becomes of failures: "raise" by the next call, "warn", or "ignore".
        inputs: Whether the arguments are kept beside the figures, so that they can be drawn again; by default where
            there is a run or a `save_dir`.
        look: The theme: the name of a style, or the arguments of `theme` by name.
        dpi: Dots an inch of the pictures.
        max_jobs: How many calls may wait behind the one that is being drawn.
        max_bytes: How many bytes of arguments may wait.
        limit_s: How long one call may take to draw, and how long "block" waits for room.

    Raises:
        TypeError: `model_cls` is neither a class nor a function.
        ValueError: An option has a value that it cannot have.
        UnknownNameError: An option's name is none, with its nearest neighbour.
    """

    def __init__(
        self,
        model_cls: Any = None,
        *,
        save: bool | str | Sequence[str] = False,
        save_dir: str | os.PathLike[str] | None = None,
        sinks: Sequence[FigureSink] | None = None,
        renderer: RendererKind = "process",
        on_full: OnFull = "block",
        on_error: OnError = "raise",
        inputs: bool | None = None,
        look: str | Mapping[str, Any] = "light",
        dpi: float = DPI,
        max_jobs: int = MAX_JOBS,
        max_bytes: int = MAX_BYTES,
        limit_s: float = LIMIT_S,
    ) -> None:
        _choose("renderer", renderer, get_args(RendererKind))
        _choose("on_full", on_full, get_args(OnFull))
        _choose("on_error", on_error, get_args(OnError))
        given: dict[str, Any] = {"dpi": dpi, "max_jobs": max_jobs, "max_bytes": max_bytes, "limit_s": limit_s}
        for name, value in given.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ValueError(f"Expected a number above 0 as {name!r}, got {value!r}")
        self._function = override(model_cls)
        self._name = getattr(model_cls, "__name__", "") or type(model_cls).__name__
        self._run: RunSink | None = None
        self._sinks = None if sinks is None else tuple(sinks)
        self._formats = _formats(save)
        self._folder = None if save_dir is None else Path(save_dir)
        self._inputs = inputs
        self._output = Output(look=look_of(look), dpi=float(dpi), formats=self._formats)
        self._desk = RenderQueue(renderer, on_full=on_full, on_error=on_error, n_jobs=max_jobs, n_bytes=max_bytes,
                          limit_s=limit_s)  # fmt: skip
        self._pid = os.getpid()
        self._disabled = os.environ.get("SIGHTGLASS_MODE") == "disabled"
        weakref.finalize(self, self._desk.hang_up).atexit = False

    @classmethod
    def from_config(cls, config: Any, model_cls: Any = None, **options: Any) -> Plotter:
        """Make a plotter from a YAML file, or from what one says.

        It reads `cluster.root`, `project`, `group`, `run_name` and `logging.plots`; files go to
        `{root}/{project}/{group}/{run_name}`. Under `logging.plots` may stand `save`, `renderer`, `on_full`,
        `on_error`, `inputs`, `look`, `dpi`, `max_jobs`, `max_bytes` and `limit_s`.

        Args:
            config: The file's path, or a mapping.
            model_cls: As for `Plotter`.
            **options: Further options, which come before the file's.

        Raises:
            MissingExtraError: PyYAML is needed and not installed.
            UnknownNameError: Something under `logging.plots` is no option.
            ValueError: A value has the wrong type, or the file is no mapping.
        """
        from .config import read

        return cls(model_cls, **{**read(config), **options})

    @classmethod
    def of_run(cls, sink: RunSink) -> Plotter:
        """Make the plotter of a run: for its figures, whichever run is the current one; failures are warned of."""
        plotter = cls(on_error="warn")
        plotter._run = sink
        return plotter

    def submit(self, intermediates: Any, step: Any) -> None:
        """Let the model's `plot` draw from what it gave; the values are copied, and may be overwritten then.

        Args:
            intermediates: Nested mappings and sequences of arrays, numbers and texts.
            step: The step that the figures are for.

        Raises:
            TypeError: The step is no number.
            ValueError: The plotter is closed.
            FigureErrors: Earlier figures failed; these are taken nevertheless.
        """
        if self._function is not None and self._works():
            self._take(self._function, (intermediates,), step, f"{self._name}.plot")

    def plot(self, fn: Draws, *arrays: Any, step: Any, name: str | None = None) -> None:
        """Let any function draw: it returns a figure, or figures by their names.

        Args:
            fn: The function. It is called elsewhere: what it needs should be among the arguments.
            *arrays: Its arguments; they are copied.
            step: The step that the figures are for.
            name: What a single figure is called; by default as the function.

        Raises:
            TypeError: It is no function, or the step is no number.
            ValueError: The plotter is closed.
            FigureErrors: Earlier figures failed; these are taken nevertheless.
        """
        if not callable(fn):
            raise TypeError(f"Expected a function that draws, got {type(fn).__name__} {fn!r:.80}")
        if self._works():
            self._take(fn, arrays, step, name or getattr(fn, "__name__", None) or type(fn).__name__)

    def log(self, data: Mapping[str, Any], step: Any) -> None:
        """Hand numbers and other values to where the figures go, at the same steps.

        Args:
            data: Names to values.
            step: The step.

        Raises:
            TypeError: The data are no mapping, or the step is no number.
            ValueError: The plotter is closed.
            FigureErrors: Earlier figures failed.
        """
        if not isinstance(data, Mapping):
            raise TypeError(f"Expected a mapping of names to values, got {type(data).__name__}")
        if not self._works():
            return
        at, wall_time = _step(step), time.time()
        records = [
            Record(tag=str(tag), index=0, step=at, wall_time=wall_time, value=to_host(value))
            for tag, value in data.items()
        ]
        for sink in self._current_sinks():
            try:
                sink.write(records)
            except Exception as error:  # noqa: BLE001  a sink's failure is its own
                self._desk.fail(FigureError(f"{type(sink).__name__}: {error}", step=at, kind=type(error).__name__))
        self._desk.tell()

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until all figures are drawn, and where they should be.

        Args:
            timeout_s: How long; by default as long as the renderer goes on.

        Raises:
            FigureErrors: Some failed, or are not in time.
        """
        if self._pid == os.getpid():
            self._desk.flush(timeout_s)

    def close(self, timeout_s: float | None = None) -> None:
        """Draw what is left, and end. Calling it again does nothing. Arguments and errors as in `flush`."""
        if self._pid == os.getpid():
            self._desk.close(timeout_s)

    @property
    def closed(self) -> bool:
        """Whether it takes nothing any more."""
        return self._desk.closed

    def statistics(self) -> FigureStatistics:
        """Return what became of the figures so far."""
        return self._desk.statistics()

    def __enter__(self) -> Plotter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *rest: object) -> None:
        try:
            self.close()
        except FigureErrors as errors:
            if error is None:
                raise
            error.add_note(str(errors))

    def _works(self) -> bool:
        """Tell whether figures are drawn in this process.

        Raises:
            ValueError: The plotter is closed.
        """
        if self._disabled or self._pid != os.getpid() or not main_process():
            return False
        if self._desk.closed:
            raise ValueError("Expected an open plotter, got one that is closed")
        return True

    def _take(self, function: Draws, arguments: tuple[Any, ...], step: Any, name: str) -> None:
        at = _step(step)
        sinks = self._current_sinks()
        output = self._output
        folder = self._current_folder(sinks, name)
        if folder:
            inputs = self._inputs if self._inputs is not None else True
            output = msgspec.structs.replace(output, folder=folder, inputs=inputs)
        self._desk.take(function, arguments, RenderRequest(name=name, step=at, output=output, sinks=sinks))

    def _current_sinks(self) -> tuple[FigureSink, ...]:
        if self._sinks is not None:
            return self._sinks
        return tuple(sink for sink in (self._run or run_sink(), wandb_sink()) if sink is not None)

    def _current_folder(self, sinks: tuple[FigureSink, ...], name: str) -> str:
        """Return where files go, or nothing."""
        if self._folder is not None:
            return os.path.abspath(self._folder)
        for sink in sinks:
            if isinstance(sink, RunSink):
                try:
                    return os.path.abspath(sink.folder() / FOLDER)
                except OSError as error:
                    self._desk.fail(FigureError(f"No files for {name!r}: {error}", figure=name, kind="OSError"))
                    return ""
        return os.path.abspath(FOLDER) if self._formats else ""


def override(model_cls: Any) -> Draws | None:
    """Return the function that draws for a model, or `None` if it has none of its own.

    Raises:
        TypeError: It is neither a class with `plot` nor a function.
    """
    if model_cls is None:
        return None
    function = getattr(model_cls, "plot", None)
    if function is None and callable(model_cls) and not isinstance(model_cls, type):
        function = model_cls
    if function is None and isinstance(model_cls, type):
        return None
    if not callable(function):
        raise TypeError(f"Expected a class with a static method 'plot', or a function, got {model_cls!r:.100}")
    return None if function is no_plot else function


def main_process() -> bool:
    """Tell whether this is the process of its program that draws: rank 0."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return bool(distributed.get_rank() == 0)
    return rank_and_size()[0] == 0


def _choose(what: str, value: Any, known: Sequence[str]) -> None:
    if value not in known:
        raise UnknownNameError(what, value, known)


def _step(step: Any) -> int | float:
    """Return a step as Python's own number.

    Raises:
        TypeError: It is none.
    """
    value = to_host(step)
    value = value.item() if hasattr(value, "item") and getattr(value, "size", 1) == 1 else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"Expected a number as the step, got {type(step).__name__} {step!r:.80}")
    return value


def _formats(save: Any) -> tuple[str, ...]:
    if isinstance(save, bool):
        return ("pdf",) if save else ()
    formats = (save,) if isinstance(save, str) else tuple(save)
    for form in formats:
        _choose("format", form, FORMATS)
    return formats


def look_of(look: str | Mapping[str, Any]) -> FigureTheme:
    """Return a theme from the name of a style, or from the arguments of `theme` by name.

    Raises:
        UnknownNameError: Something is unknown, with its nearest neighbour.
    """
    given: dict[str, Any] = {"style": look} if isinstance(look, str) else dict(look)
    for name in given:
        _choose("argument of theme", name, FigureTheme.__struct_fields__)
    _choose("style", given.get("style", "light"), STYLES)
    _choose("context", given.get("context", "paper"), list(CONTEXTS))
    return msgspec.convert(given, FigureTheme)
