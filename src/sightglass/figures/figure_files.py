"""Files of figures: their names, and how they are written.

* `{name with / as _}_step{step}.pdf`. Of the names in a folder that would give the same file, the first one gets it,
  and the others get a few hex digits. `.figure-names` in the folder says which was first, to all processes that write
  there.
* A file appears under its final name when it is complete; a full disk leaves nothing behind.
* Beside the figures lie the arguments that they were drawn from, as an npz that NumPy opens, too: arrays by their
  paths, and an entry `figure` that says which function drew which figures from them.

The sinks take the pictures: the current run, and Weights & Biases.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import sys
import weakref
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final, Protocol, runtime_checkable

import msgspec
import numpy as np
import numpy.typing as npt

from sightglass.core.columns import Record
from sightglass.core.errors import DamagedError, StorageError
from sightglass.core.process import current_run
from sightglass.storage.delivery_queue import Waits

from .messages import FigureTheme

MAX_STEM_BYTES: Final = 150  # file systems allow 255 bytes; the step, the suffix and a temporary name need room
DIGITS: Final = re.compile("-[0-9a-f]{6}$")
NAMES: Final = ".figure-names"
ABOUT: Final = "figure"
VERSION: Final = 1

_parts = itertools.count()


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """The description in an npz of arguments.

    Attributes:
        version: The version of the format.
        function: The function that drew, as module:qualname.
        source: The file that defined it.
        step: The step.
        figures: The figures that it drew.
        theme: Their theme.
        tree: The arguments as nested containers; arrays are named by their entries in the file.
    """

    version: int
    function: str
    source: str
    step: int | float
    figures: list[str]
    theme: FigureTheme
    tree: Any


def file_stem(name: str, folder: Path) -> str:
    """Return the name of a figure's files in a folder, without step and suffix; different names give different ones.

    Raises:
        OSError: The names in the folder cannot be read or written.
    """
    stem = safe(name)
    is_free = _first_of(stem, name, folder) == name if "_" in stem else stem == name  # others end in digits
    if is_free and not DIGITS.search(stem):
        return stem
    return f"{stem}-{hashlib.blake2s(name.encode('utf-8', 'surrogatepass'), digest_size=3).hexdigest()}"


def _first_of(stem: str, name: str, folder: Path) -> str:
    """Return the first name that gave a stem in a folder: this one, unless there is another."""
    path, key = folder / NAMES, (os.fspath(folder), stem)
    if key not in _first:
        folder.mkdir(parents=True, exist_ok=True)
        with open(path, "a+b") as file:
            # Appending is atomic: of two processes, both see the line that is first.
            file.write(msgspec.json.encode([stem, name.encode("utf-8", "surrogatepass").hex()]) + b"\n")
            file.flush()
            file.seek(0)
            lines = [msgspec.json.decode(line, type=tuple[str, str]) for line in file if line.endswith(b"\n")]
        first = next(by for known, by in lines if known == stem)
        _first[key] = bytes.fromhex(first).decode("utf-8", "surrogatepass")
    return _first[key]


_first: dict[tuple[str, str], str] = {}


def safe(name: str) -> str:
    """Return a name that every file system accepts.

    >>> safe("analysis/cum_scores"), safe("../a b")
    ('analysis_cum_scores', '_a b')
    """
    stem = "".join(c if c.isalnum() or c in " -_.()+=,@%" else "_" for c in name).lstrip(". ")
    return stem.encode()[:MAX_STEM_BYTES].decode("utf-8", "ignore").rstrip(" .") or "figure"


def at_step(stem: str, step: float, suffix: str) -> str:
    """Return a file's name.

    >>> at_step("a", 4096, "pdf"), at_step("a", 0.5, "npz")
    ('a_step4096.pdf', 'a_step0.5.npz')
    """
    shown = str(int(step)) if float(step).is_integer() else repr(float(step))
    return f"{stem}_step{shown}.{suffix}"


def write(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Write a file that appears when it is complete.

    Raises:
        OSError: The file cannot be written; no part of it is left.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}-{next(_parts)}.part")
    try:
        with part.open("xb") as file:
            fill(file)
        part.replace(path)
    except BaseException:  # an interrupt, too, leaves no part of a file behind
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def inputs_writer(arguments: tuple[Any, ...], about: Callable[[Any], Inputs]) -> Callable[[IO[bytes]], None]:
    """Return what writes the arguments of a function into a file.

    Args:
        arguments: The arguments, on the host.
        about: Makes the description of the file from the tree of the arguments.
    """

    def fill(file: IO[bytes]) -> None:
        arrays: dict[str, npt.NDArray[Any]] = {}
        tree = [_flat(value, str(i) if len(arguments) > 1 else "", arrays) for i, value in enumerate(arguments)]
        arrays[ABOUT] = np.frombuffer(msgspec.json.encode(about(tree)), np.uint8)
        with zipfile.ZipFile(file, "w") as archive:
            for name, array in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)

    return fill


def read_about(path: Path) -> Inputs:
    """Read the description in an npz of arguments.

    Raises:
        DamagedError: The file is not such an npz.
    """
    with _opened(path) as file:
        return msgspec.json.decode(file[ABOUT].tobytes(), type=Inputs)


def read_inputs(path: Path) -> tuple[Inputs, tuple[Any, ...]]:
    """Read the arguments of a function. Errors as in `read_about`."""
    with _opened(path) as file:
        about = msgspec.json.decode(file[ABOUT].tobytes(), type=Inputs)
        return about, tuple(_built(item, file) for item in about.tree)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            yield file
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, msgspec.MsgspecError) as error:
        raise DamagedError(f"Expected the inputs of a figure in {str(path)!r}: {error}") from error


def _flat(value: object, path: str, arrays: dict[str, npt.NDArray[Any]]) -> dict[str, Any]:
    """Return a value as JSON; its arrays go to `arrays`."""
    match value:
        case Mapping():
            return {"dict": {str(k): _flat(v, f"{path}/{k}", arrays) for k, v in value.items()}}
        case tuple():
            return {"tuple": [_flat(v, f"{path}/{i}", arrays) for i, v in enumerate(value)]}
        case list():
            return {"list": [_flat(v, f"{path}/{i}", arrays) for i, v in enumerate(value)]}
        case np.ndarray() | np.generic():
            # Names of an archive's members must not lead outside of it.
            entry = name = path.strip("/").replace("..", "__") or "value"
            while entry in arrays or entry == ABOUT:
                entry = f"{name}_{len(arrays)}"
            arrays[entry] = np.asarray(value)
            return {"array" if isinstance(value, np.ndarray) else "scalar": entry}
        case bool() | str() | int() | None:
            return {"value": value}
        case float() if np.isfinite(value):
            return {"value": value}
        case float() | complex():
            return {type(value).__name__: repr(value)}
    return {"value": str(value)}


def _built(item: object, arrays: Mapping[str, npt.NDArray[Any]]) -> Any:
    match item:
        case {"dict": dict(items)}:
            return {name: _built(value, arrays) for name, value in items.items()}
        case {"tuple": list(items)}:
            return tuple(_built(value, arrays) for value in items)
        case {"list": list(items)}:
            return [_built(value, arrays) for value in items]
        case {"array": str(entry)}:
            return arrays[entry]
        case {"scalar": str(entry)}:
            return arrays[entry][()]
        case {"float": str(text)}:
            return float(text)
        case {"complex": str(text)}:
            return complex(text)
        case {"value": value}:
            return value
    raise ValueError(f"Expected an encoded value, got {item!r:.100}")


# Where figures go: the current run, and Weights & Biases.
#
# A sink takes records and never waits. A figure is one record with a `core.values.Figure` and the step that it was
# submitted with, however late it comes. Sinks are chosen when a figure is submitted, so it does not go to the next run
# if it is drawn after the first one has ended.
#
# A run, or a W&B run, may end before the plotter is closed. Its sink knows the queues that write to it, and has the end
# wait for them; afterwards it refuses figures at once.


class FigureSink(Protocol):
    """Takes figures; called on a thread, one call at a time."""

    def write(self, records: Sequence[Record], /) -> None:
        """Take records; must not wait. An exception is reported as a failure of the figure."""

    def flush(self, timeout_s: float, /) -> None:
        """Wait until every record has reached its destination; must return at once if that has ended."""


@runtime_checkable
class EndingSink(FigureSink, Protocol):
    """A sink that may end before the queues that write to it, and waits for them then."""

    def used_by(self, queue: Waits, /) -> None:
        """Remember a queue that may still write records."""


class RunSink:
    """Logs figures in a run: they are recorded, and clients see them at once.

    Attributes:
        folder: Makes the run's directory, and returns it.
    """

    def __init__(
        self, log: Callable[..., None], *, ended: Callable[[], bool], folder: Callable[[], Path], name: str
    ) -> None:
        self.folder = folder
        self._log = log
        self._ended = ended
        self._name = name
        self._users: weakref.WeakSet[Waits] = weakref.WeakSet()

    def write(self, records: Sequence[Record]) -> None:
        """Log records.

        Raises:
            StorageError: The run has ended.
        """
        if self._ended():
            raise StorageError(f"Run {self._name!r} has ended; flush or close the plotter first")
        for record in records:
            self._log({record.tag: record.value}, step=record.step)

    def flush(self, timeout_s: float) -> None:
        """Do nothing: the run writes its records by itself."""

    def used_by(self, queue: Waits) -> None:
        """Remember a queue that may still deliver figures."""
        self._users.add(queue)

    def drain(self) -> None:
        """Wait for the figures that are still being drawn for the run, before it ends."""
        for queue in list(self._users):
            queue.wait(None)


def run_sink() -> RunSink | None:
    """Return the sink of the newest live run, or `None`."""
    sink: RunSink | None = current_run.current()
    return sink


def wandb_sink() -> FigureSink | None:
    """Return the sink of the active W&B run, or `None`; does not import W&B."""
    wandb = sys.modules.get("wandb")
    run = getattr(wandb, "run", None)
    if run is None or getattr(run, "disabled", False):
        return None
    from sightglass.storage.wandb import WandB

    return WandB.shared(run)
