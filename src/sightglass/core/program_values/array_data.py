"""Whether the data of a program's array can be read, and as which class.

`check_data` is asked before anything touches the data of an array: queries, snapshots, `log`, `record`. Reading memory
that was freed ends the process, and some layouts answer with pages of a library's own words.

It finds what was freed: a tensor's storage, as FSDP does between the uses of a parameter; JAX buffers that were donated
or deleted; memory maps and shared memory that were closed, or whose file was cut. It also finds tensors without data
(meta, fake) and those that are not dense (sparse, quantized, nested). It cannot see memory that another thread frees
meanwhile, or that a tensor borrows from another library.

`plain_array` returns an array as its library's own class, so that methods of the program's subclasses are not called.

`as_data` reads what other libraries and the standard library call data.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import math
import mmap
import operator
import pathlib
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

import numpy as np

from sightglass.core.errors import UnreadableError
from sightglass.core.program_values.own_pieces import is_traced, own_piece

from .guarded import FAILURES, OwnMapping, class_name, instance_dict, is_container, message, text

Array = Any
"""An array of any library."""

STAND_INS: Final = (
    "BatchedTensor",
    "TensorWrapper",
)  # what PyTorch calls the tensors inside vmap, and inside grad and jvp
MAX_OWNERS: Final = 8  # of a NumPy array's memory: views refer to the array that owns it, so chains are short


def check_data(array: Array, kind: str) -> None:
    """Refuse an array whose data cannot be read.

    Args:
        array: The array.
        kind: Its library, as `values.array_kind` names it.

    Raises:
        UnreadableError: Its memory was freed, it has no data, or it is not dense.
    """
    if kind == "numpy":
        if array.base is not None:
            _check_owner(array)
    elif kind == "torch":
        _check_tensor(array)
    elif kind == "jax" and not is_traced(array) and array.is_deleted():
        shape = ", ".join(map(str, array.shape))
        raise _freed(f"a JAX array {array.dtype}[{shape}]", "it was donated to a compiled function, or deleted")


def plain_array(array: Array, kind: str) -> Array:
    """Return an array as its library's own class, without running code of a subclass. Errors as in `check_data`.

    Of an array over several processes, it is this process's piece. Tensor subclasses with a `__torch_dispatch__` other
    than DTensor have no data of their own, and stay as they are.
    """
    if kind == "jax":
        check_data(array, kind)
        return own_piece(array, kind)
    array = own_piece(array, kind)
    cls: type = type(array)
    if kind == "numpy" and cls is not np.ndarray:
        array = np.ndarray.view(array, np.ndarray)
    elif kind == "torch" and _overrides(cls):
        torch = sys.modules["torch"]
        with torch._C.DisableTorchFunctionSubclass():
            array = torch.Tensor.as_subclass(torch.Tensor.detach(array), torch.Tensor)
    check_data(array, kind)
    return resolved(array) if kind == "torch" else array


def resolved(tensor: Array) -> Array:
    """Return a tensor that NumPy can read: a copy of a conjugate or negative view, whose items are stored otherwise."""
    return tensor.resolve_conj().resolve_neg() if tensor.is_conj() or tensor.is_neg() else tensor


# NumPy


def _check_owner(array: Array) -> None:
    """Refuse an array over a memory map that was closed, or whose file is shorter now."""
    owner = array.base
    for _ in range(MAX_OWNERS):
        if isinstance(owner, mmap.mmap):
            what = f"an array of dtype {array.dtype} over a memory map"
            if owner.closed:
                raise _freed(what, "the map, or the shared memory, was closed")
            if owner.size() < len(owner):
                raise _freed(what, "its file was cut")
            return
        if issubclass(type(owner), np.ndarray):
            owner = np.ndarray.base.__get__(owner)
        else:
            return


# PyTorch


def _check_tensor(tensor: Array) -> None:
    try:
        if tensor.is_quantized:
            raise _not_dense("a quantized one", "x.dequantize()")
        if tensor.is_nested:
            raise _not_dense("a nested one", "its parts")
        n_bytes = tensor.untyped_storage().nbytes()
        if n_bytes != tensor.nbytes and n_bytes < _n_bytes_needed(tensor):
            raise _freed(f"a tensor {_dtype_and_shape(tensor)}", "its storage was freed, as FSDP does between uses")
        if tensor.is_meta:
            raise UnreadableError(f"Expected a tensor with data, got {_dtype_and_shape(tensor)} on the device 'meta'")
    except UnreadableError:
        raise
    except FAILURES as error:  # it has no storage
        raise _without_storage(tensor, error) from None
    cls: type = type(tensor)
    if not _is_usual(cls):
        _check_wrapper(tensor)


def _n_bytes_needed(tensor: Array) -> int:
    """Return how large the storage of a tensor has to be."""
    if not tensor.numel():
        return 0
    last: int = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int((tensor.storage_offset() + last + 1) * tensor.itemsize)


def _check_wrapper(tensor: Array) -> None:
    """Refuse a tensor of another class that has no data, or wraps tensors without."""
    if tensor.untyped_storage().device.type == "meta":
        raise UnreadableError(f"Expected a tensor with data, got {_dtype_and_shape(tensor)} of {class_name(tensor)}")
    for inner in instance_dict(tensor).values():
        if issubclass(type(inner), sys.modules["torch"].Tensor) and inner is not tensor:
            _check_tensor(inner)


def _without_storage(tensor: Array, error: BaseException) -> UnreadableError:
    """Return the error for a tensor that has no storage."""
    layout = str(tensor.layout).removeprefix("torch.")
    if "sparse" in layout:
        return _not_dense(f"a sparse one ({layout})", "x.to_dense()")
    if layout != "strided":
        return _not_dense(f"one of layout {layout}", "x.to_dense()")
    reason = message(error).partition("\n")[0]
    if any(name in reason for name in STAND_INS):
        return UnreadableError(
            f"Expected a tensor with data, got {_dtype_and_shape(tensor)} inside a transformation of torch.func, "
            "such as vmap or grad. Offer what the transformed function returns"
        )
    return UnreadableError(f"Expected a tensor with data, got {_dtype_and_shape(tensor)} without: {reason}")


def _dtype_and_shape(tensor: Array) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}[{', '.join(map(str, tensor.shape))}]"


@lru_cache(maxsize=1024)
def _is_usual(cls: type) -> bool:
    return cls.__module__ in ("torch", "torch.nn.parameter")


@lru_cache(maxsize=1024)
def _overrides(cls: type) -> bool:
    """Return whether a class is the program's own, over tensors with data of their own."""
    dispatch: Any = getattr(cls, "__torch_dispatch__", None)
    return cls.__module__.partition(".")[0] != "torch" and "disabled" in getattr(dispatch, "__name__", "")


# The errors


def _freed(what: str, why: str) -> UnreadableError:
    return UnreadableError(f"Expected an array with data, got {what} whose memory is gone: {why}")


def _not_dense(what: str, instead: str) -> UnreadableError:
    return UnreadableError(f"Expected a dense tensor, got {what}. Offer {instead}")


# Values of the standard library and of data frames, read as numbers, texts, arrays and containers of these.
#
# `as_data` knows the classes of rarer modules, and of pandas, Polars, Arrow and PyTorch, if the program has imported
# them; nothing is imported here for them.
#
# Rule 1: What is missing in a column of numbers, and what a mask hides, is NaN; integers then become float64.
# Rule 2: A table is a mapping of its columns, which are read when they are asked for; a column of texts is a list.
# Rule 3: Times are seconds: since 1970 in UTC, or of a span. A naive `datetime` is local time, a naive column UTC, as
# for pandas and NumPy.
# Rule 4: An `Enum` is its name, unless it is a number or a text itself; a path, a UUID, an address, a time zone, a time
# of day and a dtype are their texts, a pattern the text that it was made of; a `Decimal` and a `Fraction` are floats.

NOT_DATA: Final = object()
KEY_NAMES: Final = ("name", "key", "idx")
"""How the keys of JAX's pytrees call what they hold."""

# How many items may be converted in an event: the dearest of each kind takes some 15 ms, see `bench harm`.
MAX_CONVERTED: Final = 1_500_000  # numbers and times in arrays, which NumPy copies
MAX_IN_COLUMN: Final = 300_000  # numbers and times in a column with gaps or zones, which its library copies
MAX_LISTED: Final = 20_000  # texts, which become objects of Python
MAX_MADE: Final = 4_000  # lists, structs, decimals, periods, intervals …, which a library makes one by one
# The names of dtypes of these libraries: numbers and fixed numbers of them, times, texts.
PLAIN: Final = re.compile(r"(array\()?(bool|u?int\d+|float\d*|double|halffloat|null)", re.IGNORECASE)
TIMES: Final = re.compile(r"timestamp|datetime|duration|date", re.IGNORECASE)
TEXTS: Final = re.compile(
    r"(large_)?str(ing)?(_view)?\b|utf8|(large_|fixed_size_)?binary|categor|enum|object|sparse", re.IGNORECASE
)
ITEM_BYTES: Final = 8
MAX_EXACT: Final = 2.0**53  # the largest integers that float64 tells from their neighbours

NumpyArray = np.ndarray[Any, Any]
Value = Any
Read = Callable[[Any], Any]


def as_data(value: object) -> Any:
    """Return a value as numbers, texts, arrays or a container of these; `NOT_DATA` if its class is not known here.

    Raises:
        UnreadableError: It has more items than can be converted within an event.
        Exception: What the program's code raises.
    """
    cls: type = type(value)
    read = _reader(cls)
    if read is not None:
        return read(value)
    return NOT_DATA if is_container(value) else _children(value)


def is_masked(cls: type) -> bool:
    """Return whether a class is one of NumPy's masked arrays."""
    # NumPy imports the module at its first use, which may be happening in another thread.
    masked = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)
    return masked is not None and issubclass(cls, masked)


@lru_cache(maxsize=1024)
def _reader(cls: type) -> Read | None:
    for base, read in STANDARD:
        if issubclass(cls, base):
            return read
    if is_masked(cls):
        return _unmasked
    if issubclass(cls, np.ndarray):
        return lambda array: _listed(array) if array.dtype.kind == "O" else NOT_DATA
    for module, names, how in BY_MODULE:
        for name in names:
            known = getattr(sys.modules.get(module), name, None)
            if known is not None and issubclass(cls, known):
                return getattr(known, how) if isinstance(how, str) else how
    return None


def _children(value: object) -> Any:
    """Return the children of a class that the program has registered as a pytree of JAX, by their keys."""
    registry = getattr(sys.modules.get("jax.tree_util"), "default_registry", None)
    flatten = getattr(registry, "flatten_one_level_with_keys", None)
    found = None if flatten is None else flatten(value)
    if found is None:
        return NOT_DATA
    keys, children = zip(*found[0], strict=True) if found[0] else ((), ())
    names = [next((getattr(key, name) for name in KEY_NAMES if hasattr(key, name)), i) for i, key in enumerate(keys)]
    return list(children) if names == list(range(len(names))) else dict(zip(map(str, names), children, strict=True))


# The standard library


def _of_time(value: datetime.datetime) -> float:
    return math.nan if _is_missing(value) else datetime.datetime.timestamp(value)


def _of_date(value: datetime.date) -> float:
    return datetime.datetime(value.year, value.month, value.day).timestamp()


def _of_span(value: datetime.timedelta) -> float:
    return math.nan if _is_missing(value) else datetime.timedelta.total_seconds(value)


def _is_missing(value: object) -> bool:
    return type(value).__name__ == "NaTType"  # of pandas, which is a `datetime`


def _of_enum(value: enum.Enum) -> Any:
    stored = instance_dict(value)
    return stored.get("_name_") or text(stored.get("_value_"))  # a combination of flags may have no name


def _of_set(value: set[Any] | frozenset[Any]) -> list[Any]:
    base: Any = set if issubclass(type(value), set) else frozenset
    _check(base.__len__(value), MAX_LISTED, "list(x)")
    items = list(base.__iter__(value))
    types = {*map(type, items)}
    # Texts come in another order in each process.
    return sorted(items) if types <= {int, float, bool} or types == {str} else items


def _of_range(value: range) -> NumpyArray:
    _check(len(value), MAX_CONVERTED, "np.arange(…)")
    return np.arange(value.start, value.stop, value.step)


def _of_deque(value: deque[Any]) -> list[Any]:
    _check(deque.__len__(value), MAX_LISTED, "a part of it")
    return list(deque.__iter__(value))


def _of_view(value: Value) -> list[Any]:
    _check(len(value), MAX_LISTED, "list(x)")
    return list(value)


def _of_bytes(value: bytearray | memoryview) -> bytes:
    _check(memoryview(value).nbytes, ITEM_BYTES * MAX_CONVERTED, "a part of it")
    return bytes(value)


def _of_array(value: Value) -> NumpyArray:
    items = memoryview(value)
    _check(len(items), MAX_CONVERTED, "a part of it")
    return np.array(items)  # a copy: an array that is exported cannot grow


STANDARD: Final[tuple[tuple[type, Read], ...]] = (
    (datetime.datetime, _of_time),
    (datetime.date, _of_date),
    (datetime.timedelta, _of_span),
    (datetime.time, datetime.time.__str__),
    (datetime.timezone, datetime.timezone.__str__),
    (decimal.Decimal, decimal.Decimal.__float__),
    (enum.Enum, _of_enum),
    (pathlib.PurePath, pathlib.PurePath.__str__),
    (set, _of_set),
    (frozenset, _of_set),
    (range, _of_range),
    (deque, _of_deque),
    (type({}.keys()), _of_view),
    (type({}.values()), _of_view),
    (type({}.items()), _of_view),
    (bytearray, _of_bytes),
    (memoryview, _of_bytes),
    (np.dtype, np.dtype.__str__),
)  # fmt: skip


# Masks and columns

UNITS_S: Final = {"W": 604_800.0, "D": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 1.0, "us": 1.0, "ns": 1.0,
                  "ps": 1.0, "fs": 1.0, "as": 1.0}  # fmt: skip
PER_S: Final = {"ms": 1e3, "us": 1e6, "ns": 1e9, "ps": 1e12, "fs": 1e15, "as": 1e18}


def _unmasked(array: Value) -> NumpyArray:
    """Return a masked array with NaN for what is masked; without such items, its data."""
    data = np.ndarray.view(array, np.ndarray)
    mask = np.ma.getmaskarray(array)
    _check(data.size, MAX_CONVERTED, "x.filled(…)")
    if not mask.any():
        return data
    if data.dtype.kind not in "biufc":
        raise UnreadableError(f"Expected a mask over numbers, got one over {data.dtype}. Offer x.filled(…)")
    found = _widened(data) if data.dtype.kind in "biu" else data.copy()
    found[mask] = np.nan
    return found


def _widened(integers: NumpyArray) -> NumpyArray:
    """Return integers as float64, in which something is missing.

    Raises:
        UnreadableError: One would be rounded.
    """
    found = integers.astype(np.float64)
    if integers.dtype.itemsize == 8 and integers.size and np.abs(found).max() >= MAX_EXACT:
        raise _rounded()
    return found


def _rounded() -> UnreadableError:
    return UnreadableError(
        "Expected integers below 2**53 where others are missing, got larger ones. Fill in what is missing"
    )


def _column(array: NumpyArray) -> Any:
    """Return a column as an array of numbers, or as a list."""
    if array.dtype.kind in "mM":
        return seconds_of(array)
    return array if array.dtype.kind in "biufc" else _listed(array)


def seconds_of(times: NumpyArray) -> NumpyArray:
    """Return NumPy's times as seconds since 1970 in UTC, and its time spans as seconds; NaN for `NaT`.

    Raises:
        UnreadableError: There are too many, or a span is in months or years, or has no unit.
    """
    _check(times.size, MAX_CONVERTED, "fewer rows")
    unit, count = np.datetime_data(times.dtype)
    if times.dtype.kind == "M" and unit in "YM":
        times, unit, count = times.astype("M8[D]"), "D", 1
    if unit not in UNITS_S:
        raise UnreadableError(f"Expected time spans in weeks or shorter units, got {times.dtype}")
    seconds = times.astype(times.dtype.newbyteorder("=")).view(np.int64) * (count * UNITS_S[unit])
    if unit in PER_S:
        seconds = seconds / PER_S[unit]
    return np.where(np.isnat(times), np.nan, seconds)


def _listed(array: NumpyArray) -> Any:
    """Return an array of objects as a list, and as an array if all of them are numbers, or missing."""
    _check(array.size, MAX_LISTED, "fewer rows, or an array of numbers")
    items = array.tolist()
    types = {*map(type, array.flat)}
    if not types & {bool, int, float} or not types <= {bool, int, float, type(None)}:
        return items
    if type(None) not in types:
        found = np.asarray(items)
        return found if found.dtype.kind in "biuf" else items  # integers may exceed 64 bits
    if any(type(item) is int and abs(item) >= MAX_EXACT for item in array.flat):
        raise _rounded()
    return array.astype(np.float64)


def _of_pandas(column: Value) -> Any:
    dtype = column.dtype
    if isinstance(dtype, np.dtype):
        return _column(column.to_numpy())
    if dtype.kind == "M":  # with a time zone
        _check(len(column), MAX_IN_COLUMN, "fewer rows")
        return _column(np.asarray(column, dtype="datetime64[ns]"))
    plain = getattr(dtype, "numpy_dtype", None)
    if plain is None or plain.kind not in "biuf":
        _check_column(column, str(getattr(dtype, "pyarrow_dtype", dtype)), column.array.nbytes)
        return _column(column.to_numpy(dtype=object, na_value=None))
    _check(len(column), MAX_IN_COLUMN, "fewer rows")
    if not column.isna().any():
        return column.to_numpy(dtype=plain)
    if plain.kind in "iu":
        _widened(column.dropna().to_numpy(dtype=plain))
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def _of_polars(column: Value) -> Any:
    n_missing, kind = column.null_count(), str(column.dtype)
    if n_missing or column.n_chunks() > 1 or not PLAIN.match(kind):
        _check_column(column, kind, column.estimated_size())
    if n_missing and column.dtype.is_integer():
        _widened(column.drop_nulls().to_numpy())
    return _column(column.to_numpy())


def _of_arrow(column: Value) -> Any:
    several = hasattr(column, "num_chunks")
    kind = str(column.type).removeprefix("dictionary<values=")
    if column.null_count or (several and column.num_chunks != 1) or not PLAIN.match(kind):
        _check_column(column, kind, column.nbytes)
    found = column.to_numpy() if several else column.to_numpy(zero_copy_only=False)
    if column.null_count and str(column.type).startswith(("int", "uint")):
        _widened(np.asarray(column.drop_null()))
    return _column(found)


def _check_column(column: Value, kind: str, n_bytes: int) -> None:
    """Refuse a column that takes too long to convert, by the name of its dtype, before anything is converted."""
    is_copied = bool(PLAIN.match(kind) or TIMES.match(kind))
    n_most = MAX_IN_COLUMN if is_copied else MAX_LISTED if TEXTS.match(kind) else MAX_MADE
    _check(len(column), n_most, "fewer rows" if is_copied else "fewer rows, or columns of numbers")
    if n_bytes > ITEM_BYTES * MAX_CONVERTED and not is_copied:
        raise UnreadableError(
            f"Expected a column of at most {ITEM_BYTES * MAX_CONVERTED / 1e6:.0f} MB to convert in an event, got "
            f"{n_bytes / 1e6:,.0f} MB of {kind}. Offer fewer rows, or columns of numbers"
        )


class TableColumns(OwnMapping):
    """The columns of a table by name, read when they are asked for."""

    __slots__ = ("_column", "_names")

    def __init__(self, names: list[Any], column: Callable[[int], Any]) -> None:
        """Refer to a table.

        Args:
            names: The names of the columns.
            column: Returns a column by its place.
        """
        self._names = {name if type(name) is str else str(name): i for i, name in enumerate(names)}
        self._column = column
        if len(self._names) < len(names):
            raise UnreadableError("Expected a table whose columns have different names, got one with a name twice")

    def __getitem__(self, name: str) -> Any:
        return as_data(self.raw(name))

    def raw(self, name: str) -> Any:
        """Return a column as the table has it."""
        return self._column(self._names[name])

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


BY_MODULE: Final[tuple[tuple[str, tuple[str, ...], Read | str], ...]] = (
    ("pandas", ("Series", "Index"), _of_pandas),
    ("pandas", ("DataFrame",), lambda frame: TableColumns(list(frame.columns), lambda i: frame.iloc[:, i])),
    ("polars", ("Series",), _of_polars),
    ("polars", ("DataFrame",), lambda frame: TableColumns(frame.columns, frame.to_series)),
    ("pyarrow", ("Array", "ChunkedArray"), _of_arrow),
    ("pyarrow", ("Table", "RecordBatch"), lambda table: TableColumns(table.column_names, table.column)),
    ("uuid", ("UUID",), "__str__"),
    ("zoneinfo", ("ZoneInfo",), "__str__"),
    ("ipaddress", ("IPv4Interface", "IPv6Interface"), "__str__"),
    ("ipaddress", ("IPv4Address", "IPv6Address", "IPv4Network", "IPv6Network"), "__str__"),
    ("fractions", ("Fraction",), "__float__"),
    ("re", ("Pattern",), operator.attrgetter("pattern")),
    ("array", ("array",), _of_array),
    ("collections", ("UserList", "UserString"), lambda value: instance_dict(value)["data"]),
    ("torch", ("device", "dtype"), "__str__"),
)
"""Module, classes, and what reads them: a function, or a method of the class, not of a program's subclass."""


def _check(n: int, n_most: int, instead: str) -> None:
    if n > n_most:
        raise UnreadableError(f"Expected at most {n_most:,} items to convert in an event, got {n:,}. Offer {instead}")
