"""What is to be drawn, and what became of it: the messages between a process and its renderer.

They are plain data, so that every renderer is given the same: the one in a child process, in a thread, and at once.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from sightglass.core.errors import FigureError

IN_BAND: Final = -1
"""Where a buffer begins that is not in shared memory, but comes behind its message."""

MAX_TRACEBACK: Final = 8_000
"""How many characters of a traceback are kept, from its end."""


class FigureTheme(msgspec.Struct, frozen=True, kw_only=True):
    """The theme that a figure is drawn in; see `sightglass.views.theme.rc`."""

    style: str = "light"
    size: str | tuple[float, float] | None = None
    context: str = "paper"
    font_scale: float = 1.0


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """What is made of a figure.

    Attributes:
        look: The theme.
        dpi: Dots an inch of the PNG.
        folder: Where files go; empty for none.
        formats: The kinds of file, such as "pdf".
        inputs: Whether the arguments of the function are kept there, too.
    """

    look: FigureTheme = FigureTheme()
    dpi: float = 150.0
    folder: str = ""
    formats: tuple[str, ...] = ()
    inputs: bool = False


class StartRenderer(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The first message to a child.

    Attributes:
        path: Where it finds modules.
        arena: The descriptor of the shared memory, or -1.
        arena_bytes: How large that is.
        limit_s: How long it may draw a figure when nobody waits for it any more.
    """

    path: list[str]
    arena: int = -1
    arena_bytes: int = 0
    limit_s: float


class DrawFigure(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One call of a function that draws.

    Attributes:
        id: Its number.
        name: What its figure is called if the function does not say.
        step: The step that the figures are for.
        function: The function, as module:qualname.
        pickled: The function itself, where the child cannot import it.
        source: The file it stands in, or empty.
        blob: Its arguments, a tuple, as `core.codec` encodes them.
        spans: Where the buffers beside the blob are: offset and bytes in the arena, or `IN_BAND` and bytes.
        output: What is made of the figures.
    """

    id: int
    name: str
    step: int | float
    function: str
    pickled: bytes = b""
    source: str = ""
    blob: bytes
    spans: list[tuple[int, int]]
    output: Output


class StopRenderer(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The last message to a child: all is well. An end without it means that the training died."""


class DrawStarted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The child draws this order now."""

    id: int


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong with a figure, or with a whole order."""

    figure: str
    kind: str
    message: str
    traceback: str = ""


class DrawFinished(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What became of an order; the PNGs come behind it, in this order.

    Attributes:
        id: The order's number.
        names: The figures, error cards among them.
        sizes: How many bytes the PNG of each has.
        cards: Which of them are error cards.
        files: The files that were written.
        troubles: What went wrong.
        pid: The process that drew.
        seconds: How long it took.
    """

    id: int
    names: list[str] = []
    sizes: list[int] = []
    cards: list[bool] = []
    files: list[str] = []
    troubles: list[Failure] = []
    pid: int = 0
    seconds: float = 0.0


def error(trouble: Failure, step: float | None) -> FigureError:
    """Return the error that tells of a trouble."""
    at = "" if step is None else f" at step {step:g}"
    what = f"{trouble.kind}: {trouble.message}" if trouble.kind else trouble.message
    return FigureError(
        f"Figure {trouble.figure!r}{at}: {what}", figure=trouble.figure, step=step, kind=trouble.kind,
        traceback=trouble.traceback,
    )  # fmt: skip


def trouble(figure: str, error: BaseException, told: str = "") -> Failure:
    """Note an exception, with its traceback as text."""
    return Failure(figure=figure, kind=type(error).__name__, message=plain(error), traceback=told[-MAX_TRACEBACK:])


def plain(value: Any) -> str:
    """Return a text for anything, whatever its own `__str__` does."""
    try:
        return str(value).encode("utf-8", "replace").decode()
    except Exception:  # noqa: BLE001  an exception's text is the user's own code
        return f"<{type(value).__name__}>"
