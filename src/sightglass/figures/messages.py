"""The messages between a process and its renderer: what to draw, and what became of it.

They are plain data, so every renderer takes the same ones: a child process, a thread, and the caller's own thread.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import IO, TYPE_CHECKING, Any, Final, TypeAlias

import msgspec

from sightglass.core.codec import Buffer
from sightglass.core.errors import FigureError, WireError

if TYPE_CHECKING:
    from sightglass.core.values import Figure


Pictures: TypeAlias = "dict[str, Figure]"
"""What was drawn, by the figures' names: PNGs, or Plotly's JSON."""

IN_BAND: Final = -1
"""The offset of a buffer that is not in shared memory: it follows its message."""

PRIORITY: Final = "SIGHTGLASS_RENDERER_PRIORITY"
"""The variable of the environment that says how a child shares processors: "idle", the default, or "low"."""

MAX_TRACEBACK: Final = 8_000
"""How many characters of a traceback are stored, from its end, with the user's own frames: about a hundred lines."""


class FigureTheme(msgspec.Struct, frozen=True, kw_only=True):
    """The theme of a figure; see `sightglass.views.theme.rc`."""

    style: str = "light"
    size: str | tuple[float, float] | None = None
    context: str = "paper"
    font_scale: float = 1.0


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """What to make of a figure.

    Attributes:
        theme: The theme.
        dpi: The resolution of the PNG, in dots per inch.
        folder: Where files go, as the file system's bytes; empty for no files.
        formats: The file formats, such as "pdf".
        inputs: Whether the arguments of the function are stored there, too.
    """

    theme: FigureTheme = FigureTheme()
    dpi: float = 150.0
    folder: bytes = b""
    formats: tuple[str, ...] = ()
    inputs: bool = False


class StartRenderer(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The first message to a child.

    Attributes:
        path: Its `sys.path`, as bytes, since folders may have names that UTF-8 cannot encode.
        arena: The file descriptor of the shared memory, or -1.
        arena_bytes: The size of the shared memory.
        limit_s: How long it may take for one figure after its parent has gone.
    """

    path: list[bytes]
    arena: int = -1
    arena_bytes: int = 0
    limit_s: float


class DrawFigure(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """One call of a function that draws.

    Attributes:
        id: The number of the job.
        name: The name of its figure, unless the function returns names.
        step: The step of the figures.
        function: The function, as module:qualname.
        pickled: The function itself, if the child cannot import it.
        source: The file that defines the function, or empty.
        blob: Its arguments, a tuple, as `core.codec` encodes them.
        spans: Where the buffers beside the blob are: offset and length in the arena, or `IN_BAND` and length.
        output: What to make of the figures.
        lost: Why an earlier renderer did not draw it; then a card takes its place, and the function is not called.
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
    lost: str = ""


class StopRenderer(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The last message to a child. If the pipe ends without it, the training has died."""


class DrawStarted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The child has started to draw this job."""

    id: int


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a figure, or a whole job, could not be drawn."""

    figure: str
    kind: str
    message: str
    traceback: str = ""


class DrawFinished(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What became of a job; the figures' bytes follow it.

    Attributes:
        id: The number of the job.
        names: The figures, error cards among them.
        sizes: The size of each, in bytes.
        media_types: What each is: a PNG, or Plotly's JSON.
        cards: Which figures are error cards.
        files: The files that were written.
        failures: What failed.
        pid: The process that drew.
    """

    id: int
    names: list[str] = []
    sizes: list[int] = []
    media_types: list[str] = []
    cards: list[bool] = []
    files: list[str] = []
    failures: list[Failure] = []
    pid: int = 0

    def pictures(self, data: Iterable[bytes]) -> Pictures:
        """Return the figures by their names, of the bytes that follow."""
        from sightglass.core.values import Figure  # the child is told where NumPy is after it has imported this module

        figures = map(Figure, data, self.media_types)
        return dict(zip(self.names, figures, strict=True))


def figure_error(failure: Failure, step: float | None) -> FigureError:
    """Return a failure as an error."""
    at = "" if step is None else f" at step {step:g}"
    what = f"{failure.kind}: {failure.message}" if failure.kind else failure.message
    return FigureError(
        f"Figure {failure.figure!r}{at}: {what}", figure=failure.figure, step=step, kind=failure.kind,
        traceback=failure.traceback,
    )  # fmt: skip


def failure_of(figure: str, error: BaseException, traceback: str = "") -> Failure:
    """Return an exception as a failure, with its traceback as text; UTF-8 can encode all of it."""
    kind, shown = plain(type(error).__name__), plain(traceback[-MAX_TRACEBACK:])
    return Failure(figure=figure, kind=kind, message=plain(error), traceback=shown)


def plain(value: object) -> str:
    """Return the text of any value, even if its `__str__` raises, such that UTF-8 can encode it."""
    try:
        return str(value).encode("utf-8", "replace").decode()
    except Exception:  # noqa: BLE001  an exception's text is the user's own code
        return f"<{type(value).__name__}>"


# Messages on the private pipe between a process and its renderer: a head, a struct, and the buffers that follow it.
#
# Both ends are the same release of this package, so a message that cannot be read is a bug or a torn pipe.

HEAD: Final = struct.Struct("<4sIQ")
MAGIC: Final = b"SGF1"
MAX_PIPED_BYTES: Final = 2**31  # beyond any real message, so a larger length is a torn head
CHUNK_BYTES: Final = 2**20  # the most that a pipe holds by default on Linux, so one read returns no more

Message = StartRenderer | DrawFigure | StopRenderer | DrawStarted | DrawFinished

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Message)


def frame(message: Message, buffers: Sequence[Buffer] = ()) -> list[Buffer]:
    """Return a message and its buffers as parts to write in order; buffers are not copied."""
    body = _encoder.encode(message)
    return [HEAD.pack(MAGIC, len(body), sum(map(len, buffers))) + body, *buffers]


def read(file: IO[bytes]) -> tuple[Message, bytearray] | None:
    """Read a message and the bytes that follow it; `None` at the end of the pipe, even within a message.

    Raises:
        WireError: The bytes are not a message.
    """
    head = _exactly(file, HEAD.size)
    if head is None:
        return None
    magic, n_body, n_following = HEAD.unpack(head)
    if magic != MAGIC or n_body > MAX_PIPED_BYTES:
        raise WireError(f"Expected a message between a process and its renderer, got {bytes(head)!r}")
    body = _exactly(file, n_body)
    following = _exactly(file, n_following)
    if body is None or following is None:
        return None
    try:
        return _decoder.decode(body), following
    except msgspec.MsgspecError as error:
        raise WireError(f"Expected a message between a process and its renderer: {error}") from error


def parts(data: bytearray, sizes: Sequence[int]) -> list[memoryview]:
    """Cut the bytes that followed a message into buffers of these sizes."""
    view, start, found = memoryview(data), 0, []
    for size in sizes:
        found.append(view[start : start + size])
        start += size
    return found


def _exactly(file: IO[bytes], n_bytes: int) -> bytearray | None:
    data = bytearray(n_bytes)
    view, at = memoryview(data), 0
    while at < n_bytes:
        n_read = _into(file, view[at : at + CHUNK_BYTES])
        if not n_read:
            return None
        at += n_read
    return data


def _into(file: Any, view: memoryview) -> int:
    return file.readinto(view) or 0
