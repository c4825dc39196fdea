"""Values: the types that `run.log` takes besides numbers, strings and arrays, and functions of any value.

The types are `Tensor`, `Histogram`, `Image`, `Images`, `Figure` and `Text`, and `audio.Audio`; records hold them, too.
`array_kind` names the library of an array without importing it.

`Audio` is a sound.
"""

from __future__ import annotations

import base64
import json
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal, Protocol

import numpy as np
import numpy.typing as npt

from .program_values.array_data import check_data, is_masked
from .program_values.guarded import (
    FAILURES,
    Holder,
    LostValue,
    OwnValue,
    built_in,
    class_name,
    clean,
    length,
    parts,
    rebuild,
)
from .program_values.own_pieces import own_piece

PLAIN = frozenset((float, int, bool, str, type(None)))
EIGHT_BYTES = frozenset((float, int, bool, type(None)))
EIGHT_BYTES_OR_TEXT = EIGHT_BYTES | {str}
ON_HOST = PLAIN | {np.ndarray, np.float64, np.float32}
BUILT_IN = frozenset((dict, list, tuple))
CONTAINERS = (dict, list, tuple, Mapping)
SCALARS = (bool, int, float, str, bytes, complex, type(None), np.generic)

Value = Any
"""A value from the user: a number, a string, an array of any library, a container of these, or any other object."""

ArrayKind = Literal["numpy", "torch", "jax", "other"]

OBJECT_BYTES = 64  # of any other object; its own `__sizeof__` is not asked


@dataclass(frozen=True, slots=True)
class Tensor(Holder):
    """An array of any shape and dtype, to log as a whole."""

    value: Any


@dataclass(frozen=True, slots=True)
class Text(OwnValue):
    """A text to log and show as text."""

    value: str


@dataclass(frozen=True, slots=True)
class Image(Holder):
    """One picture.

    Attributes:
        value: Shape (height, width) or (height, width, channels), with 1, 3 or 4 channels; uint8 from 0 to 255, or
            floats from 0 to 1.
        caption: The text under the picture.
    """

    value: Any
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Images(Holder):
    """Several pictures of one size.

    Attributes:
        value: Shape (count, height, width) or (count, height, width, channels), scaled as in `Image`.
        captions: One caption for each picture, or an empty tuple.
    """

    value: Any
    captions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Figure(OwnValue):
    """A figure, as the bytes of a file: a picture, or Plotly's JSON.

    Attributes:
        data: The bytes of the file.
        media_type: The media type of the file, such as "image/png" or "application/vnd.plotly.v1+json".
    """

    data: bytes
    media_type: str = "image/png"

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        """Show it in a notebook, which draws Plotly's JSON itself."""
        told = {"text/plain": f"Figure({self.media_type}, {len(self.data):,} bytes)"}
        if self.media_type.endswith("+json"):
            return told | {self.media_type: json.loads(self.data)}
        encoded = self.data.decode() if self.media_type.endswith("+xml") else base64.b64encode(self.data).decode()
        return told | {self.media_type: encoded}


class Histogram:
    """Counts of values in bins; NaN and infinities are counted separately.

    The bins are computed from the samples when they are first read.

    Attributes:
        counts: Shape (n_bins,), int64; the last bin includes its right edge.
        edges: Shape (n_bins + 1,), float64, increasing.
        n_nan: The number of samples that are NaN.
        n_posinf: The number of samples that are +Inf.
        n_neginf: The number of samples that are -Inf.
        stored: The smallest and the largest finite sample and the sum of all, as its file states them;
            `None` where there is no such file.
    """

    __slots__ = ("_binned", "_bins", "_samples", "stored")

    def __init__(self, samples: npt.ArrayLike, *, bins: int = 64) -> None:
        self._samples: Any = samples
        self._bins = bins
        self._binned: tuple[Any, Any, int, int, int] | None = None
        self.stored: tuple[float, float, float] | None = None

    @classmethod
    def from_counts(
        cls,
        counts: npt.ArrayLike,
        edges: npt.ArrayLike,
        *,
        n_nan: int = 0,
        n_posinf: int = 0,
        n_neginf: int = 0,
        stored: tuple[float, float, float] | None = None,
    ) -> Histogram:
        """Make a histogram from counts and edges.

        Raises:
            ValueError: `edges` does not have exactly one item more than `counts`.
        """
        histogram = cls(())
        counts_, edges_ = np.asarray(counts, np.int64), np.asarray(edges, np.float64)
        if counts_.ndim != 1 or edges_.shape != (len(counts_) + 1,):
            raise ValueError(f"Expected n counts and n + 1 edges, got shapes {counts_.shape} and {edges_.shape}")
        histogram._binned = (counts_, edges_, int(n_nan), int(n_posinf), int(n_neginf))
        histogram.stored = stored
        return histogram

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """The number of finite samples in each bin."""
        return self._bin()[0]  # type: ignore[no-any-return]

    @property
    def edges(self) -> npt.NDArray[np.float64]:
        """The edges of the bins."""
        return self._bin()[1]  # type: ignore[no-any-return]

    @property
    def n_nan(self) -> int:
        """The number of samples that are NaN."""
        return self._bin()[2]

    @property
    def n_posinf(self) -> int:
        """The number of samples that are +Inf."""
        return self._bin()[3]

    @property
    def n_neginf(self) -> int:
        """The number of samples that are -Inf."""
        return self._bin()[4]

    @property
    def total(self) -> int:
        """The number of finite samples."""
        return int(self.counts.sum())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        mine, theirs = self._bin(), other._bin()
        same = np.array_equal(mine[0], theirs[0]) and np.array_equal(mine[1], theirs[1])
        return same and (*mine[2:], self.stored) == (*theirs[2:], other.stored)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        counts, edges, *_ = self._bin()
        return f"Histogram({len(counts)} bins, {self.total} values from {edges[0]:.4g} to {edges[-1]:.4g})"

    def _bin(self) -> tuple[Any, Any, int, int, int]:
        if self._binned is None:
            samples = np.asarray(to_host(self._samples)).ravel()
            if not is_real(samples.dtype):
                raise TypeError(f"Expected real numbers for a histogram, got dtype {samples.dtype}")
            self._binned = binned(samples, self._bins)
            self._samples = None
        return self._binned


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceHistogram(OwnValue):
    """A histogram on a device; `to_host` reads it as a `Histogram`.

    Attributes:
        below: Shape (n_bins + 1,): the number of finite values below each edge.
        edges: Shape (n_bins + 1,).
        n_finite: The number of finite values; NaN and infinities are counted separately.
    """

    below: Any
    edges: Any
    n_finite: Any
    n_nan: Any
    n_posinf: Any
    n_neginf: Any

    def read(self) -> Histogram:
        """Wait for the device and return the histogram; the last bin includes its right edge."""
        below = np.asarray(to_host(self.below)).astype(np.int64)
        below[-1] = int(to_host(self.n_finite))
        outside: dict[str, Any] = {
            name: int(to_host(getattr(self, name))) for name in ("n_nan", "n_posinf", "n_neginf")
        }
        return Histogram.from_counts(np.diff(below), to_host(self.edges), **outside)


class Mark(Protocol):
    """A point in a device's queue of work, such as a CUDA event."""

    def synchronize(self) -> None:
        """Wait until the device has reached it."""


class PendingCopy:
    """A tensor being copied to the host, see `core.device_copy`; `to_host` waits for it."""

    __slots__ = ("_host", "_mark")

    def __init__(self, host: Value, mark: Mark) -> None:
        self._host = host
        self._mark = mark

    def read(self) -> Any:
        """Wait for the copy, and return the tensor as a NumPy array or a Python number."""
        self._mark.synchronize()
        return to_host(self._host)


def array_kind(value: object) -> ArrayKind | None:
    """Return the library of an array, without importing any; `None` if the value is not an array.

    A masked array has no library here: `array_data` reads it, so that what is masked is not taken for data.
    """
    kind: type = type(value)
    return kind_of(kind)


@lru_cache(maxsize=1024)
def kind_of(kind: type) -> ArrayKind | None:
    """Return the library of a class of arrays, as `array_kind`."""
    if issubclass(kind, np.ndarray):
        return None if is_masked(kind) else "numpy"
    if issubclass(kind, np.generic):
        return None
    roots = {str(base.__module__).partition(".")[0] for base in kind.__mro__}
    if "torch" in roots and hasattr(kind, "detach"):
        return "torch"
    if roots & {"jax", "jaxlib"} and hasattr(kind, "dtype") and hasattr(kind, "shape"):
        return "jax"
    return "other" if hasattr(kind, "__array_namespace__") else None


def is_extended(dtype: np.dtype[Any]) -> bool:
    """Return whether a NumPy dtype is one of `ml_dtypes`, such as bfloat16."""
    return bool(dtype.isbuiltin == 2)  # registered by another package


def is_real(dtype: np.dtype[Any]) -> bool:
    """Return whether a NumPy dtype is of real numbers or bools."""
    return dtype.kind in "biuf" or is_extended(dtype)


def on_device(value: object) -> bool:
    """Return whether reading a value, or one inside a mapping or a sequence, may wait for a device."""
    if type(value) in ON_HOST:
        return False
    if built_in(value) not in CONTAINERS:
        return _waits(value)
    waiting: list[Any] = [value]
    seen: dict[int, object] = {}
    while waiting:
        container = waiting.pop()
        seen[id(container)] = container  # a list may contain itself, or another one many times
        cls = type(container)
        if cls in BUILT_IN and ON_HOST.issuperset(map(type, container.values() if cls is dict else container)):
            continue
        found = parts(container)
        for _, item in found.pairs if found is not None else ():
            if type(item) in ON_HOST:
                continue
            if built_in(item) not in CONTAINERS:
                if _waits(item):
                    return True
            elif id(item) not in seen:
                waiting.append(item)
    return False


def _waits(value: Value) -> bool:
    if isinstance(value, DeviceHistogram | PendingCopy):
        return True
    kind = array_kind(value)
    return kind in ("jax", "other") or (kind == "torch" and value.device.type != "cpu")


def to_host(value: Value) -> Any:
    """Return a value as Python and NumPy values on the host; waits for the device.

    Arrays without dimensions become scalars. PyTorch's bfloat16 and float8, which NumPy lacks, become float32 without
    loss. Of an array over several processes, it is this process's piece.

    Raises:
        UnreadableError: The data of an array cannot be read.
    """
    cls = type(value)
    if cls in PLAIN or (cls is tuple and PLAIN.issuperset(map(type, value))):
        return value
    if cls is list and PLAIN.issuperset(map(type, value)):
        return value.copy()
    if cls is dict and PLAIN.issuperset(map(type, value.values())):
        return value.copy()
    if isinstance(value, DeviceHistogram | PendingCopy):
        return value.read()
    kind = array_kind(value)
    if kind is not None:
        check_data(value, kind)
        value = own_piece(value, kind)
    match kind:
        case "numpy":
            return value if value.ndim else value[()]
        case "torch":
            tensor = value.detach().cpu()
            if str(tensor.dtype).startswith(("torch.bfloat16", "torch.float8")):
                tensor = tensor.float()
            return tensor.numpy() if tensor.ndim else tensor.item()
        case "jax" | "other":
            array = np.asarray(value)
            if array.dtype.hasobject:
                raise TypeError(f"Expected an array that NumPy can read, got {class_name(value)}")
            return array if array.ndim else array[()]
    return rebuild(value, to_host)


def n_bytes(value: Value) -> int:
    """Estimate the number of bytes of a value in a message."""
    cls: type = type(value)
    if cls in EIGHT_BYTES:
        return 8
    if cls is str:
        return len(value)
    if cls in (list, tuple):
        types = {*map(type, value)}
        if EIGHT_BYTES.issuperset(types):
            return 8 * len(value)
        if EIGHT_BYTES_OR_TEXT.issuperset(types):
            return sum([len(item) if type(item) is str else 8 for item in value])
    elif cls is dict and EIGHT_BYTES.issuperset(map(type, value.values())) and {*map(type, value)} == {str}:
        return 8 * len(value) + sum(map(len, value))
    if issubclass(cls, int | float | np.generic):
        return 8
    if issubclass(cls, str | bytes):
        return length(value) or 0
    if array_kind(value):
        try:
            return array_bytes(value)
        except FAILURES:  # the shape of an unknown library's array
            return OBJECT_BYTES
    if built_in(value) in CONTAINERS:
        found = parts(value)
        assert found is not None
        return sum(n_bytes(item) + (0 if type(key) is int else n_bytes(key)) for key, item in found.pairs)
    if isinstance(value, Histogram):
        return 16 * (len(value.counts) + 1) if value._binned is not None else n_bytes(value._samples)
    if isinstance(value, Holder | Text):
        return n_bytes(value.value)
    return len(value.data) if isinstance(value, Figure) else OBJECT_BYTES


def array_bytes(array: Value) -> int:
    """Return the number of bytes of an array of any library, from its shape and dtype alone."""
    if isinstance(array, np.ndarray):
        return array.nbytes
    return math.prod(map(int, array.shape)) * itemsize(array.dtype)


def itemsize(dtype: object) -> int:
    """Return the number of bytes of one item of a dtype of any library."""
    return int(getattr(dtype, "itemsize", None) or 8)


def type_name(value: Value) -> str:
    """Return the name of a value's type, with dtype and shape for arrays.

    >>> type_name(np.zeros((3, 4), np.float32)), type_name(1.5), type_name({"a": 1, "b": 2})
    ('float32[3, 4]', 'float', 'mapping of 2')
    """
    try:
        if array_kind(value):
            dtype = clean(str(value.dtype)).removeprefix("torch.")
            return f"{dtype}[{', '.join(str(n) for n in value.shape)}]"
        counted = issubclass(type(value), Mapping | Sequence) and not issubclass(type(value), str | bytes)
        n = length(value) if counted else None
        name = "mapping" if issubclass(type(value), Mapping) else class_name(value)
    except FAILURES:
        return class_name(value)
    return class_name(value) if n is None else f"{name} of {n}"


# Sound, as a value.

INTEGERS: Final = ("uint8", "int16", "int32")
MAX_CHANNELS: Final = 64  # more than a room of loudspeakers; (2, 44100) is two channels the wrong way round
MAX_RATE: Final = 2**24  # a WAV file has 32 bits for the bytes of a second


@dataclass(frozen=True, slots=True)
class Audio(Holder):
    """A sound.

    Attributes:
        value: Its samples, shape (n,) or (n, channels): floats from -1 to 1, or int16. Sounds read from files may be
            int32, or uint8, whose silence is 128.
        rate: The number of samples in a second of each channel.

    Raises:
        TypeError: The rate is not an integer, or the samples have another dtype.
        ValueError: The rate or the shape is not that of a sound.
    """

    value: Any
    rate: int

    def __post_init__(self) -> None:
        rate = operator.index(self.rate)
        if not 1 <= rate <= MAX_RATE:
            raise ValueError(f"Expected a rate from 1 to {MAX_RATE:,} samples in a second, got {rate:,}")
        object.__setattr__(self, "rate", rate)
        if array_kind(self.value) is not None:
            _check(self.value)
        elif not isinstance(self.value, LostValue | PendingCopy):
            raise TypeError(f"Expected the samples of a sound as an array, got {type_name(self.value)}")


def _check(samples: Value) -> None:
    dtype = str(samples.dtype).removeprefix("torch.")
    if not (dtype.startswith(("float", "bfloat")) or dtype in INTEGERS):
        raise TypeError(f"Expected the samples of a sound as floats from -1 to 1 or int16, got {type_name(samples)}")
    shape = tuple(samples.shape)
    if len(shape) not in (1, 2) or not 1 <= (*shape, 1)[1] <= MAX_CHANNELS:
        raise ValueError(
            f"Expected the samples of a sound in shape (n,) or (n, channels), at most {MAX_CHANNELS} channels, "
            f"got {type_name(samples)}"
        )


# Samples counted in equal bins.

BLOCK = 2**18  # 2 MB as float64, so that temporary arrays stay in the cache
LARGEST = float(np.finfo(np.float64).max)


def binned(samples: npt.NDArray[Any], n_bins: int) -> tuple[Any, Any, int, int, int]:
    """Count samples as `np.histogram` does, but in blocks, so that a large array is never copied whole.

    Args:
        samples: Real numbers, of shape (n,).
        n_bins: The number of bins.

    Returns:
        The counts, the edges, and how many samples are NaN, +Inf and -Inf.
    """
    low, high, outside = math.inf, -math.inf, np.zeros(3, np.int64)
    for values in _blocks(samples):
        finite = values[np.isfinite(values)]
        if len(finite) < len(values):
            outside += (np.isnan(values).sum(), np.isposinf(values).sum(), np.isneginf(values).sum())
        if len(finite):
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    # Beyond this the width of the range overflows; scaling by a power of two changes no digit.
    scale = 0.25 if max(abs(low), abs(high)) > 2.0**1020 and low <= high else 1.0
    edges = _edges(low * scale, high * scale, n_bins)
    counts = np.zeros(n_bins, np.int64)
    for values in _blocks(samples):
        counts += np.histogram(values[np.isfinite(values)] * scale, n_bins, (edges[0], edges[-1]))[0]
    return counts, edges / scale, *map(int, outside)  # type: ignore[return-value]


def _blocks(samples: npt.NDArray[Any]) -> Iterator[npt.NDArray[np.float64]]:
    return (samples[i : i + BLOCK].astype(np.float64) for i in range(0, len(samples), BLOCK))


def _edges(low: float, high: float, n_bins: int) -> npt.NDArray[np.float64]:
    """Return the edges of equal bins; from 0 to 1 without values, in a range of 1 around a single value."""
    if low > high:
        low, high = 0.0, 1.0
    if low == high:
        low, high = low - 0.5, high + 0.5
    narrowest = 4 * n_bins * float(np.spacing(max(abs(low), abs(high))))
    if high - low < narrowest:  # so narrow that neighbouring edges would be the same float
        low, high = low - narrowest, high + narrowest
        beyond = max(high - LARGEST / 4, 0.0) + min(low + LARGEST / 4, 0.0)
        low, high = low - beyond, high - beyond
    return np.linspace(low, high, n_bins + 1)
