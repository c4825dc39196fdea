"""The messages of the packaged `.proto` files as classes of the protobuf runtime, to compare our own reading with.

The classes live in a descriptor pool of their own: TensorBoard's and MindSpore's files of the same names do not clash.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

PROTOS = ("anf_ir.proto", "summary.proto")
TOKEN = re.compile(r'"([^"]*)"|([\w.]+|[^\s\w])')
COMMENT = re.compile(r"//[^\n]*")
SCALAR_TYPES = re.compile(r"double|float|[us]?int(32|64)|s?fixed(32|64)|bool|string|bytes")
CARDINALITIES = ("required", "optional", "repeated")


@cache
def message(name: str) -> type[Any]:
    """Return the class of a message of the packaged schema, such as "Event" or "Block.Head"."""
    found: type[Any] = GetMessageClass(_pool().FindMessageTypeByName(f"sightglass.summary.{name}"))
    return found


@cache
def _pool() -> DescriptorPool:
    pool = DescriptorPool()
    for name in PROTOS:
        schema = parse_schema(name, files("sightglass.storage.format").joinpath(name).read_text("utf-8"))
        pool.AddSerializedFile(schema.SerializeToString())
    return pool


def parse_schema(name: str, schema: str) -> FileDescriptorProto:
    """Parse the part of proto2 that our schema uses: messages, enumerations, oneofs, `packed`."""
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
