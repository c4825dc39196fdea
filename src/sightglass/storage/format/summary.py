"""The messages in record files: MindSpore's `Event` and `Summary`, TensorBoard's, and ours.

Three programs write files of the same framing whose payloads are all called `Event`, with field numbers that mean
different things. Which program it was stands in the version record, the first of a file; it is never guessed:
`dialect`. What the three have in common is read here, and by hand (`protobuf`), because values are large or frequent.

The schema is packaged as text. `message("Event")` is a class built from it at run time, in a descriptor pool of our
own, so that no generated code fights another package's version or names.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal

from sightglass.core.codec import Buffer
from sightglass.core.errors import WireError

from .protobuf import BYTES, FIXED32, FIXED64, VARINT, key, signed, varint, walk

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto, EnumDescriptorProto, FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool

PROTOS = ("anf_ir.proto", "summary.proto")
TOKEN = re.compile(r'"([^"]*)"|([\w.]+|[^\s\w])')
COMMENT = re.compile(r"//[^\n]*")
SCALAR_TYPES = re.compile(r"double|float|[us]?int(32|64)|s?fixed(32|64)|bool|string|bytes")
CARDINALITIES = ("required", "optional", "repeated")

VERSION = re.compile(r"(\w{1,40})\.Event:(\d{1,9})")
SIGHTGLASS_VERSION, MINDSPORE_VERSION, TENSORBOARD_VERSION = "Sightglass.Event:1", "MindSpore.Event:1", "brain.Event:2"

Dialect = Literal["sightglass", "mindspore", "tensorboard"]
Kind = Literal["scalar", "tensor", "histogram", "image", "text", "unknown"]

DIALECTS: dict[str, tuple[Dialect, int]] = {
    "Sightglass": ("sightglass", 1),
    "MindSpore": ("mindspore", 1),
    "brain": ("tensorboard", 2),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """A value in somebody else's file, read when it is asked for.

    Attributes:
        kind: What the file says it is; "unknown" is passed over.
        type: The type of the value as `core.values.type_name` writes it; of the unknown, what it is, such as "audio".
        dtype: The dtype it was logged with, as far as the file tells; "" for what is no array.
        stored_as: The dtype that the file stores instead, or "".
        read: Reads the value; raises WireError when its bytes are none.
    """

    tag: str
    step: int
    wall_time: float
    kind: Kind
    type: str
    dtype: str = ""
    stored_as: str = ""
    read: Callable[[], Any] = field(repr=False, compare=False)

    @property
    def value(self) -> Any:
        """Read the value.

        Raises:
            WireError: Its bytes are not those of such a value.
        """
        return self.read()


@dataclass(frozen=True, slots=True, kw_only=True)
class EventHead:
    """What all dialects have in common in an Event.

    Attributes:
        wall_time: Seconds since the Unix epoch, or `None` when it is missing.
        values: The bytes of each Summary.Value.
        others: The numbers of fields beyond these.
    """

    wall_time: float | None
    step: int
    version: str | None
    values: list[memoryview]
    others: list[int]


def dialect(version: str) -> Dialect:
    """Tell which program's messages a file holds, from the text of its version record.

    Raises:
        WireError: Nobody known writes this, or a newer version of them.

    >>> dialect("brain.Event:2")
    'tensorboard'
    """
    match = VERSION.fullmatch(version)
    if match is None or match[1] not in DIALECTS:
        known = ", ".join(repr(f"{name}.Event:{newest}") for name, (_, newest) in DIALECTS.items())
        raise WireError(f"Expected a file of version {known}, got {version!r:.100}")
    name, newest = DIALECTS[match[1]]
    if not 1 <= int(match[2]) <= newest:
        raise WireError(
            f"Expected a file of version {match[1]}.Event:{newest} at most, got {version!r}: update sightglass"
        )
    return name


def read_event(payload: memoryview) -> EventHead:
    """Read the fields of an Event that are the same in every dialect.

    Raises:
        WireError: These are not the bytes of an Event.
    """
    wall_time, step, version = None, 0, None
    values: list[memoryview] = []
    others: list[int] = []
    fields: Iterator[tuple[int, int, Any]] = walk(payload)
    for number, kind, value in fields:
        match number, kind:
            case 1, 1:
                wall_time = double(value)
            case 2, 0:
                step = signed(value)
            case 3, 2:
                version = text(value)
            case 5, 2:
                values += messages(value, 1)
            case _:
                others.append(number)
    return EventHead(wall_time=wall_time, step=step, version=version, values=values, others=others)


def encode_version(version: str, wall_time: float) -> list[Buffer]:
    """Return the payload of the first record of a file."""
    return [double_field(1, wall_time), *bytes_field(3, version.encode())]


def messages(buffer: memoryview, number: int) -> list[memoryview]:
    """Return the contents of a repeated field of messages or bytes."""
    fields: Iterator[tuple[int, int, Any]] = walk(buffer)
    return [value for place, kind, value in fields if place == number and kind == BYTES]


def double(eight: memoryview) -> float:
    """Return the float64 in these eight bytes."""
    return float(struct.unpack("<d", eight)[0])


def single(four: memoryview) -> float:
    """Return the float32 in these four bytes."""
    return float(struct.unpack("<f", four)[0])


def text(content: Buffer) -> str:
    """Return the text in these bytes.

    Raises:
        WireError: They are no UTF-8.
    """
    try:
        return str(content, "utf-8")
    except UnicodeDecodeError as error:
        raise WireError(f"Expected text as UTF-8, got {error.reason} at byte {error.start}") from None


def varint_field(number: int, n: int) -> bytes:
    """Write an integer, a bool or a member of an enumeration as a field."""
    return key(number, VARINT) + varint(n)


def double_field(number: int, value: float) -> bytes:
    """Write a float64 as a field."""
    return key(number, FIXED64) + struct.pack("<d", value)


def float_field(number: int, value: float) -> bytes:
    """Write a float32 as a field; what is too large becomes infinite."""
    try:
        return key(number, FIXED32) + struct.pack("<f", value)
    except OverflowError:
        return float_field(number, math.copysign(math.inf, value))


def bytes_field(number: int, *parts: Buffer) -> list[Buffer]:
    """Write bytes, a text or a message as a field, without copying them: the buffers are to be written in order."""
    return [key(number, BYTES) + varint(sum(map(len, parts))), *parts]


@cache
def message(name: str) -> type[Any]:
    """Return the class of a message of the packaged schema, such as "Event" or "Block.Head"."""
    from google.protobuf.message_factory import GetMessageClass

    found: type[Any] = GetMessageClass(_pool().FindMessageTypeByName(f"sightglass.summary.{name}"))
    return found


@cache
def _pool() -> DescriptorPool:
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    for name in PROTOS:
        schema = parse_schema(name, files("sightglass.storage.format").joinpath(name).read_text("utf-8"))
        pool.AddSerializedFile(schema.SerializeToString())
    return pool


def parse_schema(name: str, schema: str) -> FileDescriptorProto:
    """Parse the part of the proto2 language that our schema is written in: messages, enumerations, oneofs, `packed`."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    tokens = (quoted or word for quoted, word in TOKEN.findall(COMMENT.sub("", schema)))
    parsed = FileDescriptorProto(name=name)
    for word in tokens:
        match word:
            case "syntax":
                parsed.syntax = _last(tokens)
            case "package":
                parsed.package = _last(tokens)
            case "import":
                parsed.dependency.append(_last(tokens))
            case "message":
                _parse_message(tokens, parsed.message_type.add())
            case "enum":
                _parse_enum(tokens, parsed.enum_type.add())
            case _:
                raise ValueError(f"Expected a declaration in {name}, got {word!r}")
    return parsed


def _last(tokens: Iterator[str]) -> str:
    """Return the last token before the semicolon."""
    return list(iter(lambda: next(tokens), ";"))[-1]


def _parse_message(tokens: Iterator[str], parsed: DescriptorProto) -> None:
    parsed.name, _ = next(tokens), next(tokens)
    in_oneof = False
    for word in tokens:
        match word:
            case "}" if in_oneof:
                in_oneof = False
            case "}":
                return
            case "message":
                _parse_message(tokens, parsed.nested_type.add())
            case "enum":
                _parse_enum(tokens, parsed.enum_type.add())
            case "oneof":
                parsed.oneof_decl.add(name=next(tokens))
                in_oneof = next(tokens) == "{"
            case _:
                _parse_field(word, tokens, parsed, in_oneof)


def _parse_field(word: str, tokens: Iterator[str], parsed: DescriptorProto, in_oneof: bool) -> None:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    words = [word, *iter(lambda: next(tokens), ";")]
    label = words.pop(0) if word in CARDINALITIES else "optional"
    kind, name, _, number, *options = words
    added = parsed.field.add(name=name, number=int(number))
    added.label = FieldDescriptorProto.Label.Value(f"LABEL_{label.upper()}")
    if SCALAR_TYPES.fullmatch(kind):
        added.type = FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")
    else:
        added.type_name = kind
    if options:
        added.options.packed = options == ["[", "packed", "=", "true", "]"]
    if in_oneof:
        added.oneof_index = len(parsed.oneof_decl) - 1


def _parse_enum(tokens: Iterator[str], parsed: EnumDescriptorProto) -> None:
    parsed.name, _ = next(tokens), next(tokens)
    while (name := next(tokens)) != "}":
        parsed.value.add(name=name, number=int(_last(tokens)))
