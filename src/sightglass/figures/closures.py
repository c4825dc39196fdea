"""Send functions that draw to a child process.

* A function that can be imported is sent by its name, module:qualname.
* Closures, and functions of the script itself, which must not run a second time, are pickled by value with
  `cloudpickle`, for our own child and through its private pipe. Nothing else is ever unpickled: no file, and nothing
  that came over a socket. What a closure holds is bounded: arrays are copied much faster as arguments.
* Redrawing from a file imports what the file names, so only modules that a user could have written are accepted.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import sys
import types
from collections import ChainMap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.machinery import PathFinder
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final

from sightglass.core.errors import FigureError, MissingExtraError, UnsendableError

from .messages import plain

if TYPE_CHECKING:
    from sightglass.core.codec import Buffer

Draws = Callable[..., Any]

SCRIPT: Final = "__main__"
DYNAMIC: Final = "<dynamic-code>"  # cloudpickle's name for all files
MAX_PICKLED_BYTES: Final = 4 * 2**20  # pickling takes some 20 ms for each MB, on the training's own thread


@dataclass(frozen=True, slots=True)
class PackedFunction:
    """A function as it is sent to a child.

    Attributes:
        name: module:qualname.
        pickled: The function, if it cannot be imported by its name.
        source: The file that defines it, or empty.
        lack: Why no child can load it, or empty.
    """

    name: str
    pickled: bytes = b""
    source: str = ""
    lack: str = ""


def name_of(function: Draws) -> str:
    """Return module:qualname; for callable objects that of their class."""
    module = getattr(function, "__module__", None) or type(function).__module__
    return plain(f"{module}:{getattr(function, '__qualname__', None) or type(function).__qualname__}")


def pack(function: Draws) -> PackedFunction:
    """Pack a function for our own child.

    Raises:
        UnsendableError: The function holds more than `MAX_PICKLED_BYTES`.
    """
    name = name_of(function)
    source = _source(function)
    module, _, path = name.partition(":")
    if _importable(module) and _resolves(module, path, function):
        return PackedFunction(name, b"", source)
    try:
        import cloudpickle
    except ImportError:
        lack = MissingExtraError("cloudpickle", extra="plot", purpose=f"Drawing with {name} in a child")
        return PackedFunction(name, lack=str(lack))
    file = _BoundedFile()
    try:
        with _by_value(cloudpickle, function):
            _pickler()(file, buffer_callback=file.look).dump(function)
    except Exception as error:  # noqa: BLE001  pickling runs the code of whatever the closure holds
        if file.n_bytes <= MAX_PICKLED_BYTES:
            return PackedFunction(name, lack=f"Expected a function that can be pickled, got {name}: {plain(error)}")
    if file.n_bytes > MAX_PICKLED_BYTES:
        raise UnsendableError(
            f"Expected a function that holds at most {MAX_PICKLED_BYTES:,} bytes, got {name} with more: pass its "
            "arrays as arguments instead of using them from the enclosing scope"
        )
    return PackedFunction(name, b"".join(file.parts), source)


@lru_cache(maxsize=1)
def _pickler() -> Any:
    """Return cloudpickle's pickler that keeps the names of files, which tracebacks need; 3.1.3 leaves them out."""
    import cloudpickle

    table = cloudpickle.Pickler.dispatch_table

    def reduced(code: types.CodeType) -> tuple[Any, ...]:
        made, arguments, *rest = table[types.CodeType](code)
        return made, tuple(code.co_filename if is_dynamic(one) else one for one in arguments), *rest

    def is_dynamic(argument: object) -> bool:
        return isinstance(argument, str) and argument == DYNAMIC

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        dispatch_table: ClassVar[Any] = ChainMap({types.CodeType: reduced}, table)

    return Pickler


class _BoundedFile:
    """A file for a pickle, which fails before it takes more than `MAX_PICKLED_BYTES`."""

    def __init__(self) -> None:
        self.n_bytes = 0
        self.parts: list[bytes] = []

    def write(self, data: Buffer) -> None:
        """Take some bytes."""
        self._add(memoryview(data).nbytes)
        self.parts.append(bytes(data))

    def look(self, buffer: Buffer) -> bool:
        """Look at an array before it is copied; return `True`, which has it written with everything else."""
        if memoryview(buffer).nbytes > MAX_PICKLED_BYTES:
            self._add(memoryview(buffer).nbytes)
        return True

    def _add(self, n_bytes: int) -> None:
        self.n_bytes += n_bytes
        if self.n_bytes > MAX_PICKLED_BYTES:
            raise OverflowError("The closure is too large")


def load(name: str, pickled: bytes = b"") -> Draws:
    """Load a packed function, in the child; exceptions of importing its module pass through.

    Raises:
        FigureError: The module has no such function.
    """
    if pickled:
        import cloudpickle

        unpickled: Draws = cloudpickle.loads(pickled)
        return unpickled
    module, _, path = name.partition(":")
    try:
        found: Draws = attrgetter(path)(importlib.import_module(module))
    except AttributeError as error:
        raise FigureError(f"Expected a function {path!r} in module {module!r}: {error}", figure=name) from error
    return found


def load_recorded(name: str) -> Draws:
    """Load the function that a file or a user names.

    Raises:
        FigureError: It is part of a training script or of Python itself, or cannot be imported.
    """
    module, colon, path = name.partition(":")
    hint = "name one that can be imported: --with MODULE:FUNCTION"
    if not (colon and path) or "<" in path:
        raise FigureError(f"Expected a function such as 'plots:draw', got {name!r}: {hint}", figure=name)
    if module == SCRIPT:
        raise FigureError(f"{path!r} is defined in the training script, which must not run again: {hint}", figure=name)
    if module.partition(".")[0] in sys.stdlib_module_names:
        raise FigureError(f"Expected a function that draws, got Python's own {name!r}", figure=name)
    try:
        return load(name)
    except ImportError as error:
        raise FigureError(f"Cannot import {module!r}: {error}; {hint}", figure=name) from error


def _source(function: Draws) -> str:
    with contextlib.suppress(Exception):  # wrappers are the user's own objects
        return plain(inspect.getsourcefile(inspect.unwrap(function)) or "")
    return ""


def _resolves(module: str, path: str, function: Draws) -> bool:
    """Return whether a name leads to this very function."""
    try:
        found = attrgetter(path)(sys.modules[module])
    except (AttributeError, KeyError):
        return False
    return found is function and isinstance(function, types.FunctionType | types.BuiltinFunctionType | type)


@lru_cache(maxsize=256)
def _importable(module: str) -> bool:
    """Return whether another process with the same path would import a module from the same file."""
    loaded = sys.modules.get(module)
    if module == SCRIPT or loaded is None or getattr(loaded, "__file__", None) is None:
        return False
    path = None
    spec = None
    parts = module.split(".")
    for i in range(len(parts)):
        try:
            spec = PathFinder.find_spec(".".join(parts[: i + 1]), path)
        except (ImportError, ValueError):
            return False
        if spec is None:
            return False
        path = spec.submodule_search_locations
    return spec is not None and spec.origin == loaded.__file__


@contextlib.contextmanager
def _by_value(cloudpickle: Any, function: Draws) -> Iterator[None]:
    """Pickle a function's own module by value, though it was imported here."""
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    if module is None or module.__name__ == SCRIPT or module.__name__ in cloudpickle.list_registry_pickle_by_value():
        yield
        return
    if _importable(module.__name__):
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)
