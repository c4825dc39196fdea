"""Values as bytes and back."""

from __future__ import annotations

import enum
import math
import tracemalloc
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.profiles import examples

from sightglass.core import codec
from sightglass.core.codec import INLINE_BYTES, MAX_DEPTH, decode, encode
from sightglass.core.errors import UnsendableError, WireError
from sightglass.core.program_values.guarded import named_tuple
from sightglass.core.table import Table
from sightglass.core.values import Audio, Figure, Histogram, Image, Images, Tensor, Text

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", ">i4", ">f8", "S3", "U2"]
DTYPES += ["M8[ns]", "m8[s]"]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
scalars = (
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.integers(-(2**2000), 2**2000) | st.floats()
    | st.complex_numbers() | texts | st.binary(max_size=20)
)  # fmt: skip


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    """Arrays of every dtype and of any shape, empty ones and views among them."""
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    n_items = math.prod(shape)
    if dtype.kind == "U":
        array = np.array(draw(st.lists(st.text("aλ🜨", max_size=2), min_size=n_items, max_size=n_items)), dtype)
    else:
        raw = draw(st.binary(min_size=n_items * dtype.itemsize, max_size=n_items * dtype.itemsize))
        array = np.frombuffer(raw, np.uint8) % 2 == 1 if dtype.kind == "b" else np.frombuffer(raw or b"", dtype)
    array = array.reshape(shape)
    change = draw(st.sampled_from(["none", "transpose", "reverse", "every other"]))
    if change == "transpose":
        return array.T
    return (
        array[::-1]
        if change == "reverse" and shape
        else array[..., ::2]
        if change == "every other" and shape
        else array
    )


kinds = (
    st.builds(Tensor, arrays())
    | st.builds(Text, texts)
    | st.builds(Image, arrays(), texts)
    | st.builds(Images, arrays(), st.lists(texts, max_size=2).map(tuple))
    | st.builds(Figure, st.binary(max_size=20), texts)
    | st.lists(texts, max_size=3).map(lambda names: Table({"name": names, "n": np.arange(len(names))}))
    | st.builds(Audio, st.integers(0, 5).map(lambda n: np.full((n, 2), 0.5, np.float32)), st.integers(1, 96_000))
    | st.builds(Histogram, st.lists(st.floats(), max_size=9), bins=st.integers(1, 5))
)
values = st.recursive(
    scalars | arrays() | kinds,
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(texts, inner, max_size=3)
    ),
    max_leaves=6,
)  # fmt: skip


def same(a: Any, b: Any) -> bool:
    """Tell whether two values are equal in type, dtype, shape and bits."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray | np.generic):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, Tensor | Text | Image | Images | Figure | Audio | Table):
        return all(same(getattr(a, name), getattr(b, name)) for name in type(a).__slots__)
    if isinstance(a, float):
        return math.copysign(1, a) == math.copysign(1, b) and (a == b or (math.isnan(a) and math.isnan(b)))
    return same((a.real, a.imag), (b.real, b.imag)) if isinstance(a, complex) else bool(a == b)


@settings(max_examples=examples(150))
@given(values)
@example([-(2**63), 2**63 - 1, True])
@example([-(2**63) - 1])
@example([2**63, 1])
@example({"λ": 1.0, "a": None})
@example({"a": "b", "c": "λ"})
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    assert same(decode(*encode(value)), value)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [0, 1, INLINE_BYTES])
def test_arrays_small_and_large(dtype: str, n: int) -> None:
    array = np.zeros((n, 2), dtype)
    blob, buffers = encode(array)
    assert len(buffers) == (array.nbytes > INLINE_BYTES)
    assert same(decode(blob, buffers), array)


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"])
def test_dtypes_that_numpy_lacks(name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.arange(6).reshape(2, 3).astype(getattr(ml_dtypes, name))
    assert same(decode(*encode(array)), array)
    assert same(decode(*encode(array[1, 1])), array[1, 1])


def test_bfloat16_is_read_as_float32_where_its_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array([[1.5, -0.0, math.inf], [math.nan, 3.0, 1e-30]], ml_dtypes.bfloat16)
    message = encode(array)
    monkeypatch.setattr(codec, "find_spec", lambda name: None)
    read = decode(*message)
    assert read.dtype == np.float32
    np.testing.assert_array_equal(read, array.astype(np.float32))
    assert not read.flags.writeable
    assert decode(*encode(np.zeros((0, 2), ml_dtypes.bfloat16))).shape == (0, 2)


def test_large_arrays_are_not_copied() -> None:
    array = np.arange(10_000.0)
    blob, (buffer,) = encode(array)
    assert len(blob) < 100
    assert np.shares_memory(np.frombuffer(buffer), array)
    read = decode(blob, [buffer])
    assert np.shares_memory(read, array)
    with pytest.raises(ValueError, match="read-only"):
        read[0] = 1.0


class Colour(enum.IntEnum):
    RED = 3


class Mode(str, enum.Enum):  # noqa: UP042  the kind that older programs have
    TRAIN = "train"


Point = namedtuple("Point", "x y")


@dataclass
class Config:
    lr: float
    layers: tuple[int, ...]


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (Colour.RED, 3),
        (Mode.TRAIN, "train"),
        (np.str_("a"), "a"),
        (np.bytes_(b"a"), b"a"),
        (Point(1, 2.0), named_tuple(("x", "y"), (1, 2.0))),
        ([Point([1], Point(2, "a"))], [named_tuple(("x", "y"), ([1], named_tuple(("x", "y"), (2, "a"))))]),
        (np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")]), {"a": np.array([1], np.int32), "b": np.array([2.5])}),
        (np.array([(1, 2.5)], [("a", "i4"), ("b", "f8")])[0], {"a": np.int32(1), "b": np.float64(2.5)}),
        (Config(0.1, (1, 2)), {"lr": 0.1, "layers": (1, 2)}),
        (OrderedDict(a=1), {"a": 1}),
        (MappingProxyType({"a": [1]}), {"a": [1]}),
        ({1: "a", 2.5: "b", False: "c"}, {1: "a", "2.5": "b", "False": "c"}),
        (np.ma.masked_array([1.0, 2.0], [False, False]), np.array([1.0, 2.0])),
    ],
)
def test_values_of_similar_types_are_encoded(value: Any, read: Any) -> None:
    assert same(decode(*encode(value)), read)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "got object at $"),
        ({"a": [1, {2, 3}]}, "got set at $.a[1]"),
        ({"a": print}, "got builtin_function_or_method at $.a"),
        ({(1,): 2}, "got tuple at $"),
        (np.array([object()]), "dtype object at $"),
        (np.zeros(2, "V8"), "got dtype |V8 at $"),
        (["\ud800"], "not allowed at $[0]"),
        (2**9000, "1024 bytes, got 1126 at $"),
        (nested(MAX_DEPTH + 2), f"at ${'[0]' * (MAX_DEPTH + 1)}"),
    ],
)
def test_errors_say_where_a_value_cannot_be_encoded(value: Any, message: str) -> None:
    with pytest.raises(UnsendableError) as caught:
        encode(value)
    assert str(caught.value).endswith(message)


def test_a_value_that_contains_itself_cannot_be_encoded() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(UnsendableError, match=f"{MAX_DEPTH} levels"):
        encode(value)


@settings(max_examples=examples(300))
@given(st.binary(max_size=60), st.lists(st.binary(max_size=9), max_size=2))
@example(b"\xdd\xff\xff\xff\xff", [])
@example(b"\xdf\xff\xff\xff\xff", [])
@example(b"\xc6\xff\xff\xff\xff", [])
@example(b"\x91" * 5000, [])
@example(b"\xc7\x02\x03" * 1000, [])
def test_random_bytes_are_a_value_or_a_wire_error(blob: bytes, buffers: list[bytes]) -> None:
    assert peak_bytes(blob, buffers) < 2**20


@settings(max_examples=examples(300))
@given(values, st.data())
def test_damaged_bytes_are_a_value_or_a_wire_error(value: Any, data: st.DataObject) -> None:
    blob, buffers = encode(value)
    damaged = bytearray(blob)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    assert peak_bytes(bytes(damaged), buffers) < 2**20
    assert peak_bytes(bytes(damaged[:cut]), buffers[:-1]) < 2**20


def peak_bytes(blob: bytes, buffers: list[Any]) -> int:
    tracemalloc.start()
    try:
        decode(blob, buffers)
    except WireError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


def packed(code: int, *content: Any) -> bytes:
    return codec._msgpack.encode(codec._ext(code, list(content)))


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (packed(1, "<f8", [2**40, 2**20], b""), "9223372036854775808 bytes"),
        (packed(1, "<f8", [-1], b""), "32 sizes, got [-1]"),
        (packed(1, "<f8", [1] * 33, b"\0" * 8), "32 sizes, got [1, 1, "),
        (packed(1, "<f8", [1.0], b"\0" * 8), "32 sizes, got [1.0]"),
        (packed(1, "<f8", [1], 0), "0 buffers, got 0"),
        (packed(1, "|O8", [1], b"\0" * 8), "'|O8'"),
        (packed(1, "|V8", [1], b"\0" * 8), "'|V8'"),
        (packed(1, "f8,f8", [1], b"\0" * 16), "'f8,f8'"),
        (packed(1, "<U1", [1], b"\xff" * 4), "not characters"),
        (packed(9, 1), "got 9 with 1 items"),
        (packed(6, "Path", []), "Table, got 'Path' with 0 fields"),
        (packed(5, b"\0" * 2000), "got 5 with 1 items"),
    ],
)
def test_damaged_arrays_are_refused_with_the_reason(blob: bytes, message: str) -> None:
    with pytest.raises(WireError) as caught:
        decode(blob)
    assert message in str(caught.value)


def test_torch_travels_as_numpy() -> None:
    torch = pytest.importorskip("torch")
    assert same(decode(*encode({"w": torch.ones(2, 3)})), {"w": np.ones((2, 3), np.float32)})
    assert same(decode(*encode(torch.tensor([1.5], dtype=torch.bfloat16))), np.array([1.5], np.float32))
    assert same(decode(*encode(torch.tensor(3))), 3)


def test_jax_travels_as_numpy() -> None:
    jax = pytest.importorskip("jax")
    assert same(decode(*encode([jax.numpy.ones(2)])), [np.ones(2, np.float32)])
