"""The plotter: takes a training's intermediates, and draws figures from them in another process.

* Whether a model draws anything is decided once, when the plotter is made. If it does not, `submit` does nothing:
  nothing is copied, imported or started.
* Only the main process of a program draws; in all others every call does nothing. The same holds in a run's renderer,
  and with `SIGHTGLASS_MODE=disabled`.
* A call copies its arguments and returns: it waits neither for a figure nor for room.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, get_args

import msgspec

from sightglass.core.columns import Record
from sightglass.core.counts import Statistics
from sightglass.core.errors import FigureError, FigureErrors, UnknownNameError
from sightglass.core.process.ranks import is_first_rank
from sightglass.core.values import to_host
from sightglass.views.theme import CONTEXTS, STYLES

from .closures import Draws
from .figure_files import FigureSink, RunSink, run_sink, wandb_sink
from .messages import FigureTheme, Output, plain
from .render_job import OnError, OnFull, RendererKind, RenderRequest
from .render_queue import RenderQueue

MAX_JOBS: Final = 8  # absorbs a burst; a longer queue would only delay figures that come faster than they are drawn
MAX_BYTES: Final = 256 * 2**20  # address space only: pages of the arena that were never used take no memory
LIMIT_S: Final = 120.0  # a figure that takes longer most likely hangs
DPI: Final = 150.0  # sharp on a screen; 300, for print, has four times the pixels, and PDF is better there
FORMATS: Final = ("pdf", "svg", "png")
FOLDER: Final = "figures"


def no_plot(intermediates: object) -> dict[str, Any]:
    """Draw nothing: the static `plot` of a base class whose models draw no figures.

    Args:
        intermediates: Ignored.
    """
    return {}


class Plotter:
    """Draws figures in a child process, and passes them to the run, to W&B, and to files.

    Args:
        model_cls: A class with a static `plot(intermediates)` that returns figures by name, or such a function. With
            `None`, or a class that does not override `plot`, `submit` does nothing.
        save: The file formats: `True` for PDF; "pdf", "svg", "png", or several of them; `False` for no files. A figure
            of Plotly is saved as its JSON, whatever the formats.
        save_dir: The folder for files; by default the run's directory, or `figures/` without a run.
        sinks: Where figures go; by default the current run, and W&B if one of its runs is active.
        renderer: Where figures are drawn: in a child "process", in a "thread", or "inline", at once.
        on_full: What to do when the queue is full: "spill" figures to a temporary file, which drops none while the disk
            has room; "drop_oldest", "drop_new", or "replace" the waiting figure of the same name. Calls may have their
            own.
        on_error: How to report failures: "raise" in the next call, "warn", or "ignore".
        inputs: Whether to store the arguments beside the figures, so that they can be drawn again; by default if there
            is a run or a `save_dir`.
        theme: The name of a style, or arguments of `theme` by name.
        dpi: The resolution of the PNGs, in dots per inch.
        max_jobs: How many calls may wait behind the one being drawn.
        max_bytes: How many bytes of arguments may wait.
        limit_s: How long one call may take to draw, in seconds.

    Raises:
        TypeError: `model_cls` is neither a class nor a function.
        ValueError: A number is not above 0, or no file system can have a folder of the name `save_dir`.
        UnknownNameError: An option has an unknown value; the message names the nearest.
    """

    def __init__(
        self,
        model_cls: type | Draws | None = None,
        *,
        save: bool | str | Sequence[str] = False,
        save_dir: str | os.PathLike[str] | None = None,
        sinks: Sequence[FigureSink] | None = None,
        renderer: RendererKind = "process",
        on_full: OnFull = "spill",
        on_error: OnError = "raise",
        inputs: bool | None = None,
        theme: str | Mapping[str, object] = "light",
        dpi: float = DPI,
        max_jobs: int = MAX_JOBS,
        max_bytes: int = MAX_BYTES,
        limit_s: float = LIMIT_S,
    ) -> None:
        _choose("renderer", renderer, get_args(RendererKind))
        _choose("on_full", on_full, get_args(OnFull))
        _choose("on_error", on_error, get_args(OnError))
        numbers = {"dpi": dpi, "max_jobs": max_jobs, "max_bytes": max_bytes, "limit_s": limit_s}
        for name, value in numbers.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ValueError(f"Expected a number above 0 as {name!r}, got {value!r}")
        self._function = override(model_cls)
        self._name = _name_of(model_cls)
        self._on_full = on_full
        self._run: RunSink | None = None
        self._sinks = None if sinks is None else tuple(sinks)
        self._formats = _formats(save)
        self._folder = None if save_dir is None else Path(save_dir)
        os.fsencode(self._folder or "")
        self._inputs = inputs
        self._output = Output(theme=theme_of(theme), dpi=float(dpi), formats=self._formats)
        self._queue = RenderQueue(renderer, on_error=on_error, n_jobs=max_jobs, n_bytes=max_bytes, limit_s=limit_s)
        self._pid = os.getpid()
        self._disabled = os.environ.get("SIGHTGLASS_MODE") == "disabled"
        weakref.finalize(self, self._queue.close_later).atexit = False

    @classmethod
    def from_config(
        cls, config: str | os.PathLike[str] | Mapping[str, Any], model_cls: type | Draws | None = None, **options: Any
    ) -> Plotter:
        """Make a plotter from a YAML file, or from a mapping of the same structure.

        It reads `cluster.root`, `project`, `group`, `run_name` and `logging.plots`; files go to
        `{root}/{project}/{group}/{run_name}`. Under `logging.plots` you can set `save`, `renderer`, `on_full`,
        `on_error`, `inputs`, `theme`, `dpi`, `max_jobs`, `max_bytes` and `limit_s`.

        Args:
            config: The file's path, or a mapping.
            model_cls: As for `Plotter`.
            **options: Further options, which override the file's.

        Raises:
            MissingExtraError: PyYAML is needed and not installed.
            UnknownNameError: A key under `logging.plots` is not an option.
            ValueError: A value has the wrong type, or the file is not a mapping.
        """
        from .config import read

        return cls(model_cls, **{**read(config), **options})

    @classmethod
    def of_run(cls, sink: RunSink) -> Plotter:
        """Make the plotter of one run, whichever run is current; it reports failures as warnings, and never waits."""
        plotter = cls(on_error="warn", on_full="replace")
        plotter._run = sink
        return plotter

    def submit(self, intermediates: object, step: object, *, on_full: OnFull | None = None) -> None:
        """Draw figures with the model's `plot`; the values are copied, so you may overwrite them.

        Args:
            intermediates: Nested mappings and sequences of arrays, numbers and strings.
            step: The step of the figures: a number, or an array of one.
            on_full: As for `Plotter`, for this call.

        Raises:
            TypeError: `step` is not a number.
            ValueError: `step` is beyond 64 bits, or the plotter is closed.
            UnknownNameError: `on_full` is unknown.
            FigureErrors: Earlier figures failed; these are drawn all the same.
        """
        if self._function is not None and self._works():
            self._submit(self._function, (intermediates,), step, f"{self._name}.plot", on_full)

    def plot(
        self, fn: Draws, *arrays: object, step: object, name: str | None = None, on_full: OnFull | None = None
    ) -> None:
        """Draw with any function that returns a figure, or figures by name.

        Args:
            fn: The function. It runs in another process, so pass what it needs as arguments.
            *arrays: Its arguments; they are copied.
            step: The step of the figures: a number, or an array of one.
            name: The name of a single figure; by default the function's name.
            on_full: As for `Plotter`, for this call.

        Raises:
            TypeError: `fn` is not callable, `step` is not a number, or `name` is not text.
            ValueError: `step` is beyond 64 bits, UTF-8 cannot encode `name`, or the plotter is closed.
            UnknownNameError: `on_full` is unknown.
            FigureErrors: Earlier figures failed; these are drawn all the same.
        """
        if not callable(fn):
            raise TypeError(f"Expected a function that draws, got {type(fn).__name__} {fn!r:.80}")
        if self._works():
            self._submit(fn, arrays, step, name or _name_of(fn), on_full)

    def log(self, data: Mapping[str, object], step: object) -> None:
        """Pass numbers and other values to the sinks, at the same steps as figures.

        Args:
            data: Values by name.
            step: The step: a number, or an array of one.

        Raises:
            TypeError: `data` is not a mapping, or `step` is not a number.
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
        sinks = self._current_sinks()
        self._queue.use(sinks)
        for sink in sinks:
            try:
                sink.write(records)
            except Exception as error:  # noqa: BLE001  a sink's failure must not cost the other sinks their values
                self._queue.failures.add(
                    FigureError(f"{type(sink).__name__}: {error}", step=at, kind=type(error).__name__)
                )
        self._queue.failures.report()

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every figure is drawn and has reached its sinks.

        Args:
            timeout_s: How long to wait; by default as long as the renderer makes progress.

        Raises:
            FigureErrors: Some failed, or are late.
        """
        if self._pid == os.getpid():
            self._queue.flush(timeout_s)

    def close(self, timeout_s: float | None = None) -> None:
        """Draw what is left, and end. Calling it again does nothing. Arguments and errors as in `flush`."""
        if self._pid == os.getpid():
            self._queue.close(timeout_s)

    @property
    def closed(self) -> bool:
        """Whether it takes no more figures."""
        return self._queue.closed

    def statistics(self) -> Statistics:
        """Return counts of what became of the figures so far."""
        return self._queue.statistics()

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
        """Return whether calls in this process draw figures.

        Raises:
            ValueError: The plotter is closed.
        """
        if self._disabled or self._pid != os.getpid() or not is_first_rank():
            return False
        if self._queue.closed:
            raise ValueError("Expected an open plotter, got one that is closed")
        return True

    def _submit(
        self, function: Draws, arguments: tuple[object, ...], step: object, name: str, on_full: OnFull | None
    ) -> None:
        if on_full is not None:
            _choose("on_full", on_full, get_args(OnFull))
        sinks = self._current_sinks()
        request = RenderRequest(
            name=name, step=_step(step), output=self._output, sinks=sinks, on_full=on_full or self._on_full
        )
        folder = self._current_folder(sinks, name)
        if folder:
            inputs = self._inputs if self._inputs is not None else True
            output = msgspec.structs.replace(self._output, folder=folder, inputs=inputs)
            request = replace(request, output=output)
        self._queue.submit(function, arguments, request)

    def _current_sinks(self) -> tuple[FigureSink, ...]:
        if self._sinks is not None:
            return self._sinks
        return tuple(sink for sink in (self._run or run_sink(), wandb_sink()) if sink is not None)

    def _current_folder(self, sinks: tuple[FigureSink, ...], name: str) -> bytes:
        """Return the folder for files, as the file system's bytes; empty for none."""
        try:
            if self._folder is not None:
                return os.fsencode(os.path.abspath(self._folder))
            for sink in sinks:
                if isinstance(sink, RunSink):
                    return os.fsencode(os.path.abspath(sink.folder() / FOLDER))
            return os.fsencode(os.path.abspath(FOLDER)) if self._formats else b""
        except OSError as error:
            self._queue.failures.add(FigureError(f"No files for {name!r}: {error}", figure=name, kind="OSError"))
            return b""


def override(model_cls: type | Draws | None) -> Draws | None:
    """Return the function that draws for a model, or `None` if the model does not override `plot`.

    Raises:
        TypeError: `model_cls` is neither a class with a callable `plot` nor a function.
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


def _choose(what: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise UnknownNameError(what, value, known)


def _name_of(fn: object) -> str:
    """Return the name of a class or a function, or of its class."""
    name = getattr(fn, "__name__", "")
    return plain(name) if isinstance(name, str) and name else type(fn).__name__


def _step(step: object) -> int | float:
    """Return a step as a Python number.

    Raises:
        TypeError: `step` is not a number.
    """
    value = to_host(step)
    value = value.item() if hasattr(value, "item") and getattr(value, "size", 1) == 1 else value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"Expected a number as the step, got {type(step).__name__} {step!r:.80}")
    return int(value) if isinstance(value, int) else float(value)


def _formats(save: bool | str | Sequence[str]) -> tuple[str, ...]:
    if isinstance(save, bool):
        return ("pdf",) if save else ()
    formats = (save,) if isinstance(save, str) else tuple(save)
    for form in formats:
        _choose("format", form, FORMATS)
    return formats


def theme_of(theme: str | Mapping[str, object]) -> FigureTheme:
    """Return a theme from the name of a style, or from arguments of `theme` by name.

    Raises:
        UnknownNameError: A style, a context or an argument is unknown; the message names the nearest.
    """
    arguments: dict[str, Any] = {"style": theme} if isinstance(theme, str) else dict(theme)
    for name in arguments:
        _choose("argument of theme", name, FigureTheme.__struct_fields__)
    _choose("style", arguments.get("style", "light"), STYLES)
    _choose("context", arguments.get("context", "paper"), list(CONTEXTS))
    return msgspec.convert(arguments, FigureTheme)
