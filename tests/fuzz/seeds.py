"""Inputs to begin with, made by the real encoders, and the dictionary of the query language."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args
from unittest import mock

import msgspec
import numpy as np

from sightglass.core import codec
from sightglass.core.columns import Columns, of_rows
from sightglass.core.values import Figure, Histogram, Image, Images, Tensor, Text
from sightglass.protocol import messages
from sightglass.query.functions import FUNCTIONS
from sightglass.query.reduce.table import REDUCERS
from sightglass.query.stages import STAGES, WINDOWS
from sightglass.storage.foreign import mindspore, tensorboard
from sightglass.storage.format import index as index_file
from sightglass.storage.format.block import Key, Kind, encode
from sightglass.storage.format.png import encode_png
from sightglass.storage.read.segment_reader import SegmentReader

from .inputs import SEPARATOR, join, placed
from .query import observables
from .records import NAME, payloads, record_file
from .service import BUFFER, GROUP, LATER, VIEWER

FIXTURES = Path(__file__).parents[1] / "storage" / "fixtures"

QUERIES = [
    "batch.loss", "batch", "abs(batch.grads['dense'].kernel).mean()", "batch.loss.mean(every=100)",
    "on('batch').join('epoch').map(lambda b: b.loss - b.epoch.loss).mean(every=2)",
    "batch.x[..., 1:, ::-2].sum(axis=0)", "batch.x[[0, 1]]", "batch.k.topk(2)", "batch.mean(per='epoch')",
    "on('batch').where(lambda b: b.loss > 0.5).map(lambda b: (b.loss, b.n)).last(every='1 min')",
    "on('batch').map(lambda b: {'a': b.x, 'b': [1, -2.5, None, True]}).count(every=3)",
    "batch.grads.map(lambda name, value: norm(value))", "batch.grads.filter(lambda n, v: n.startswith('d')).keys()",
    "on('batch').map(lambda b: b.loss).reduce(lambda a, v: a + v, 0.0)", "on('batch').map(lambda b: b.n).top(3)",
    "on('batch').map(lambda b: b.loss).quantile([0.1, 0.9], every=2)", "batch.x.histogram(bins=8)",
    "on('batch').map(lambda b: b.x).histogram(16).max()", "batch.loss.max(when=lambda b: b.n > 2)",
    "on('batch').map(lambda b: b.x.ravel()).sample(2, every='10 ms').std(per='epoch')", "where(batch.x > 2, nan, -inf)",
    "-(batch.loss ** 2) % 3 // 4 ^ 1", "~(batch.x > 1) & (batch.x != 2) | (batch.x <= -0.0)", "batch.h", "batch.c",
    "batch.x @ batch.x.reshape(3, 2)", "batch.text.contains('or')", "f(batch.loss)", "batch.names[0]", "not batch",
    "batch.x.astype('float16').clip(0, 3).round(1).item()", "a if b else c", "[x for x in batch]", "batch.loss\n.mean(",
]  # fmt: skip
FROM_CLIENT: list[messages.Message] = [
    messages.Hello(version=1, client="me"), messages.Ping(), messages.Bye(reason="enough"),
    *(messages.Ask(request=1, what=what) for what in ("describe", "statistics", "history")),
    *(messages.Open(request=2, query=query) for query in QUERIES[:20]),
    messages.Open(request=2, query="batch.loss.mean(every=2)", states=(1, 8)),
    messages.Close(stream=1), messages.Readers(stream=1, names=("a", "b")),
    messages.EndGroup(request=4, stream=2), messages.Publish(request=6, event="best"),
    *(messages.RunCommand(request=5, kind=kind, at="epoch", hold=True) for kind in ("pause", "resume", "stop")),
    messages.RunCommand(request=5, kind="set", name="lr", value=codec.encode(0.5)[0]),
    messages.RunCommand(request=5, kind="call", name="f", value=codec.encode([1, "a"])[0], at="batch"),
    messages.RecordQuery(request=7, query="batch.loss", record=True), messages.RecordQuery(request=7, query="batch"),
]  # fmt: skip
FROM_AGENT: list[messages.Message] = [
    messages.Welcome(version=1, run="job", id="abc", may_command=True, lease_s=12.0),
    messages.Reply(request=1, value=codec.encode({"a": [1.5, None]})[0]),
    messages.Refused(request=1, error="QueryError", reason="no"),
    messages.Opened(request=1, stream=2, tag="batch.loss", note="so"), messages.Moved(stream=1, to=2),
    messages.Waiting(request=1, note="so"), messages.Ended(stream=1, counts=codec.encode({"n": 1})[0]),
]  # fmt: skip
VALUES: list[Any] = [
    None, True, -7, 1.5, "text", b"bytes", [1, [2.5, "a"]], (1, ("b",)), {"a": {"b": None}}, 2**70, -(2**64), 1 + 2j,
    np.float32(1.5), np.arange(6).reshape(2, 3), np.zeros((0, 2)), np.array(["abc", ""]), np.array([b"ab"]),
    np.array([1, 2], "datetime64[s]"), np.arange(600.0), Histogram(np.arange(10.0)), Tensor(np.eye(2)), Text("t"),
    Image(np.zeros((2, 2, 3), np.uint8), "words"), Images(np.zeros((1, 2, 2, 1)), ("c",)), Figure(b"x", "image/png"),
    [np.arange(3), {"t": (np.bool_(True), np.uint8(3))}], np.array([True, False]), np.array([1 + 2j]),
]  # fmt: skip
ERRORS = ["RefusedError", "QueryError", "UnknownNameError", "FigureErrors", "DamagedError", "KeyError", "annotations"]
SLICES = ["", "[0]", "[..., ::2]", "[0, :, 2:5]", "-1, 1:2", "[::-1, ..., -3]", "[ 1 : , None]", "1.5", "[0:99:3]"]
GIF = b"GIF89a\x03\0\x02\0\0\0\0"
JPEG = b"\xff\xd8\xff\xe0\0\x04\0\0\xff\xff\xc0\0\x11\x08\0\x02\0\x03\x03"


def seeds() -> Mapping[str, list[bytes]]:
    """Return small inputs of every kind, for each target."""
    logged = {name: _payloads(module) for name, module in (("mindspore", mindspore), ("tensorboard", tensorboard))}
    return {
        "wire": _messages(),
        "service": _conversations(),
        "client": _answers(),
        "codec": [join(blob, *map(bytes, buffers)) for blob, buffers in map(codec.encode, VALUES)],
        "segment": [record_file(), record_file()[:300]],
        "blocks": [*payloads(), join(*payloads())],
        "index": [_index()],
        "recording": _recordings(logged["tensorboard"]),
        "foreign": [path.read_bytes()[:2048] for path in sorted(FIXTURES.glob("*.out.events"))],
        "events": [b"\0" + join(*logged["mindspore"]), b"\xff" + join(*logged["tensorboard"])],
        "event": [*logged["mindspore"], *logged["tensorboard"]],
        "picture": [encode_png(np.zeros((2, 3, n), np.uint8))[:60] for n in (1, 3, 4)] + [GIF, JPEG],
        "runfile": [json.dumps(run).encode() for run in _runs()],
        "query": [query.encode() for query in (*QUERIES, *_calls())],
        "slice": [text.encode() for text in SLICES],
        "page": [json.dumps(message).encode() for message in _page()],
    }


def _json(message: messages.Message) -> bytes:
    return msgspec.json.encode(message)


def _block(values: list[Any]) -> list[bytes]:
    """Return the frames of a block, as a client publishes it under the number 6."""
    extra = None if len(values) % 2 else (3, 1, {"epoch": 1.5})
    rows = [(i, i if i % 2 else 0.5, float(i), value, extra, i) for i, value in enumerate(values)]
    return [bytes(frame) for frame in messages.encode_block(6, of_rows(rows))]


def _blocks() -> list[list[bytes]]:
    mixed = [1.5, "a", None, {"b": [1]}]
    return [_block([1.5, 2.5]), _block([1, 2, 3]), _block(mixed), _block([np.arange(600.0)]), _block([True])]


def _messages() -> list[bytes]:
    whole = [*FROM_CLIENT, *FROM_AGENT]
    return [
        *map(_json, whole),
        *(bytes(messages.encode(message)[0]) for message in whole),
        *(join(*b) for b in _blocks()),
    ]


def _part(flags: int, *frames: bytes) -> bytes:
    """Return one message of a conversation."""
    first = bytes([flags | (BUFFER if len(frames) > 1 else 0)]) + frames[0]
    return join(first, *frames[1:])


def _conversations() -> list[bytes]:
    every = list(map(_json, FROM_CLIENT))
    opened = [_json(messages.Open(request=i, query=query)) for i, query in enumerate(QUERIES)]
    pause = _json(messages.RunCommand(request=1, kind="pause"))
    publish = _json(messages.Publish(request=6, event="best"))
    best = _json(messages.Open(request=7, query="best.value.mean(every=2)"))
    return [
        *(_part(i % 4 | (VIEWER if i % 3 == 0 else 0), one) for i, one in enumerate(every)),
        *(join(*(_part(i % 4, one) for i, one in enumerate(opened[n : n + 8]))) for n in range(0, len(opened), 8)),
        join(*(_part(0, _set(name, value)) for name in ("lr", "n", "on", "how") for value in (0.5, "b", False))),
        join(*(_part(GROUP, one) for one in opened[5:12]), _part(0, _json(messages.EndGroup(request=1, stream=2)))),
        join(_part(0, pause), _part(1, every[0]), *(_part(LATER, every[1]) for _ in range(4)), _part(0, every[3])),
        join(
            _part(0, publish),
            _part(1, best),
            *(_part(0, *block) for block in _blocks() if len(block) == 1),
            _part(0, every[2]),
        ),
        join(_part(2, opened[0]), _part(2, _json(messages.Close(stream=1))), _part(2 | GROUP, every[3])),
    ]


def _answers() -> list[bytes]:
    """Return what runs say to a client that opens a stream and asks for a description."""
    opened, moved = messages.Opened(request=1, stream=6, tag="batch.loss"), messages.Moved(stream=6, to=7)
    described = messages.Reply(request=2, value=codec.encode({"name": "job", "events": {}})[0])
    ended = messages.Ended(stream=6, error="EvaluationError", reason="no", counts=codec.encode({"n_rows": 1})[0])
    begun = [_part(0, _json(message)) for message in (FROM_AGENT[0], described, opened)]
    blocks = [_part(0, *block) for block in _blocks() if len(block) == 1]
    no_lease = messages.Welcome(version=1, run="job", id="abc", may_command=True, lease_s=-1.0)
    errors = [messages.Refused(request=i % 3, error=name, reason="no") for i, name in enumerate(ERRORS)]
    return [
        *(join(*begun, *blocks[i:], _part(0, _json(last))) for i, last in enumerate((moved, ended, messages.Bye()))),
        *(_part(0, _json(message)) for message in (*FROM_AGENT, *errors, no_lease)),
    ]


def _set(name: str, value: Any) -> bytes:
    return _json(messages.RunCommand(request=5, kind="set", name=name, value=codec.encode(value)[0]))


def _recordings(foreign: list[bytes]) -> list[bytes]:
    """Return the payloads of run directories, each after the number of its file."""
    ours = payloads()
    several = [_series("logged"), _series("groups")]
    return [
        *(join(b"\0" + one, b"\1" + one, b"\2" + one) for one in ours),
        *(join(*(bytes([i % 3]) + one for i, one in enumerate(some))) for some in several),
        *(b"\3" + one for one in foreign),
    ]


def _series(kind: Kind) -> list[bytes]:
    """Return three blocks of one series."""
    rows = [np.arange(n, n + 2) for n in (0, 2, 4)]
    columns = [Columns(index=int(n[0]), steps=n, wall_times=n + 0.5, values=n * 1.5, ordinals=n) for n in rows]
    return [b"".join(map(bytes, encode(Key(kind=kind, tag="loss"), each, segment=3))) for each in columns]


def _index() -> bytes:
    """Return the index that a reader leaves beside a record file."""
    with placed(NAME, record_file()) as path, mock.patch.object(index_file, "MIN_FRAMES", 1):
        SegmentReader(path).close()
        left = index_file.path_of(path)
        data = left.read_bytes()
        left.unlink()
    return data


def _payloads(module: Any) -> list[bytes]:
    """Return an event with each kind of value that a dialect has."""
    values = {
        "loss": 1.5, "kernel": np.arange(6, dtype=np.float32).reshape(2, 3), "h": Histogram(np.arange(10.0)),
        "text": Text("words"), "figure": Figure(encode_png(np.zeros((2, 2, 3), np.uint8)), "image/png"),
    }  # fmt: skip
    return [
        b"".join(map(bytes, module.encode_event({tag: value}, step=3, wall_time=1.5)[0]))
        for tag, value in values.items()
        if not (module is mindspore and tag == "text")
    ]


def _runs() -> list[dict[str, Any]]:
    run = {"version": 1, "name": "n", "id": "0" * 12, "config": {"a": [1, {"b": None}]}, "started": 1.5, "rank": 0,
           "host": "h", "pid": 1, "ended": None, "state": "running", "events": {"b": 3}, "described": {}}  # fmt: skip
    return [run, {**run, "state": "ended", "ended": 2.5, "version": 2}, {}, {**run, "config": {"a": "b"}, "pid": "x"}]


def _calls() -> list[str]:
    """Return a query for each function and each reducer."""
    names = list(observables(0))
    functions = [f"batch.{names[i % len(names)]}.{name}()" for i, name in enumerate(FUNCTIONS)]
    return [*functions, *(f"batch.loss.{name}(every=2)" for name in REDUCERS), *(f"batch.{name}" for name in names)]


def _page() -> list[dict[str, Any]]:
    return [
        {"type": "hello", "token": "t"},
        {"type": "runs"},
        {"type": "close", "id": "a"},
        {"type": "ack", "id": 1, "n": 2},
        {"type": "open", "id": "a", "run": "r", "query": "batch.loss", "confirm": True, "points": 10},
    ]


# Dictionaries


def dictionaries() -> Mapping[str, str]:
    """Return the dictionaries, by the names of their files, in libFuzzer's format."""
    signs = [*"()[]{}.,:'\"=~@&|^%", "**", "//", "<=", "!=", "...", "lambda b: ", "lambda a, b: ", "on('batch')", "fn."]
    known = [*FUNCTIONS, *STAGES, *(f"{name}=" for name in (*WINDOWS, "axis")), "nan", "inf", "None", "True"]
    others = ["'5 min'", "'10 ms'", "'epoch'", "9223372036854775808", "1e308", *(f"batch.{n}" for n in observables(0))]
    text = [word.encode() for word in (*signs, *known, *others, *_tags())]
    binary = [
        SEPARATOR, b"SGINDEX2", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"MindSpore.Event:1",
        b"brain.Event:2", b"<f8", b"|b1", b"<U3", b"bfloat16", *(struct.pack("<q", n) for n in (-1, 2**31, 2**62)),
        *(bytes([0xC7, 0, code]) for code in range(1, 8)), *map(str.encode, _tags()),
    ]  # fmt: skip
    return {"query.dict": _dictionary(text), "binary.dict": _dictionary(binary)}


def _dictionary(words: Iterable[bytes]) -> str:
    return "".join(f'"{_quoted(word)}"\n' for word in dict.fromkeys(words))


def _quoted(word: bytes) -> str:
    plain = [32 <= byte < 127 and byte not in b'"\\' for byte in word]
    return "".join(chr(byte) if is_plain else f"\\x{byte:02x}" for byte, is_plain in zip(word, plain, strict=True))


def _tags() -> list[str]:
    union = {*get_args(messages.FromClient), *get_args(messages.FromRun)}
    return sorted(str(kind.__struct_config__.tag) for kind in union)
