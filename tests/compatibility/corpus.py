"""What each version of Sightglass leaves behind for later ones: record files, small files and messages.

`python -m tests.compatibility.make` writes those of this version into `stored/VERSION`, once for each release.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import sightglass as sg
from sightglass.core import codec
from sightglass.core.columns import Columns
from sightglass.protocol import messages
from sightglass.protocol.address import Address, Keys, read_connection, write_connection
from sightglass.protocol.discovery import LiveRun

STORED = Path(__file__).parent / "stored"
RUNS = ("run", "compacted")
QUERIES = ("batch.loss", "batch.pair", "batch.loss.mean(every=10)", "batch.loss.quantile(0.5)", "init.weights.mean()")
N_WIDE = 120
KEY = "0123456789abcdefghijklmnopqrstuvwxyzABCD"  # 40 characters, as Z85 has for 32 bytes

KINDS: dict[str, Any] = {
    "none": None,
    "bool": True,
    "int": -(2**62),
    "bigint": 2**200,
    "float": 0.1,
    "nan": float("nan"),
    "inf": float("-inf"),
    "complex": 1.5 - 2j,
    "text": "ümläut \u202e \n",
    "bytes": b"\x00\xff",
    "list": [1, 2.5, "three", [4]],
    "tuple": (1, "two", (3.0,)),
    "Tensor": sg.Tensor(np.arange(24, dtype=np.float32).reshape(2, 3, 4)),
    "Text": sg.Text("# heading"),
    "Image": sg.Image(np.arange(48, dtype=np.uint8).reshape(4, 4, 3), caption="small"),
    "Images": sg.Images(np.linspace(0, 1, 32).reshape(2, 4, 4), captions=("a", "b")),
    "Figure": sg.Figure(b"<svg/>", media_type="image/svg+xml"),
    "Histogram": sg.Histogram.from_counts([1, 0, 5], [0.0, 0.5, 1.0, 2.0], n_nan=1, n_posinf=2, n_neginf=3),
    "large": np.arange(3_000, dtype=np.int16),
    **{f"array/{dtype}": np.array([[0, 1], [2, 3]]).astype(dtype) for dtype in (
        "bool", "int8", "uint16", "int32", "int64", "uint64", "float16", "float32", "float64", "complex64", "<U3")},
    "scalar/float32": np.float32(0.1),
    "scalar/int16": np.int16(7),
    "empty": np.zeros((0, 3)),
}  # fmt: skip

COLUMNS = {
    "numbers": Columns(index=3, steps=np.arange(4), wall_times=np.arange(4) / 8, values=np.arange(4.0)),
    "everything": Columns(
        index=3, steps=np.array([0.5, 1.5]), wall_times=np.array([1.0, 2.0]), values=["a", (1, np.zeros(600))],
        n_events=np.array([1, 5]), flags=np.array([3, 1], np.uint8), tracks=[{"epoch": 1.0}, {}],
        indexes=np.array([3, 7]), bits=2, areas=np.array([0.5, np.nan]),
    ),
}  # fmt: skip
FROM_CLIENT: list[messages.Message] = [
    messages.Hello(version=messages.VERSION, client="me", pace_s=0.5),
    messages.Ping(),
    messages.Bye(reason="enough"),
    messages.Readers(stream=3, names=("tab 1", "tab 2")),
    messages.Ask(request=1, what="history", last=5),
    messages.Open(request=2, query="batch.loss", confirm=True, stream=3, since=4),
    messages.Close(stream=3),
    messages.EndGroup(request=4, stream=3),
    messages.RunCommand(request=5, kind="set", name="lr", value=codec.encode(0.5)[0], at="epoch", hold=True),
    messages.RecordQuery(request=7, query="batch.loss", record=False, confirm=True),
    messages.Publish(request=6, event="best", stream=9),
]
FROM_RUN: list[messages.Message] = [
    messages.Welcome(version=messages.VERSION, run="job", id="0" * 12, may_command=True, lease_s=12.0),
    messages.Reply(request=1, value=codec.encode({"a": [1]})[0]),
    messages.Refused(request=1, error="QueryError", reason="no"),
    messages.Opened(request=1, stream=2, tag="batch.loss", note="so", index=5),
    messages.Moved(stream=1, to=2),
    messages.Waiting(request=1, note="so"),
    messages.Ended(stream=1, error="RunLostError", reason="gone", counts=codec.encode({"n": 1})[0]),
    messages.Ping(),
    messages.Bye(reason="over"),
]


def told(value: Any) -> Any:
    """Return a value as JSON, exactly and with its type, independently of the formats under test."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, np.ndarray | np.generic):
        data = np.ascontiguousarray(value).tobytes()
        return {"dtype": value.dtype.str, "shape": list(value.shape), "data": base64.b64encode(data).decode()}
    if isinstance(value, int):
        return {"int": str(value)}
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, complex):
        return {"complex": [value.real.hex(), value.imag.hex()]}
    if isinstance(value, bytes | bytearray | memoryview):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, list):
        return [told(item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [told(item) for item in value]}
    if isinstance(value, Mapping):
        return {"mapping": {str(key): told(item) for key, item in value.items()}}
    if isinstance(value, sg.Histogram):
        return {
            "Histogram": [told(getattr(value, name)) for name in ("counts", "edges", "n_nan", "n_posinf", "n_neginf")]
        }
    return {type(value).__name__: [told(getattr(value, name)) for name in _fields(value)]}


def _fields(value: Any) -> Sequence[str]:
    return value.__struct_fields__ if isinstance(value, msgspec.Struct) else type(value).__slots__


def record(folder: Path) -> None:
    """Record runs: every kind of value, a restart that hides records, wide calls, and a file that is compacted."""
    into = sg.Files(into=folder / "run")
    config = {"lr": 0.1, "layers": [64, 10], "name": "ü"}
    queries = [*QUERIES[:3]]
    with sg.init("stored", config=config, record=queries, files=into, budget=None) as run, sg.connect(run) as client:
        run.control("lr", 0.1, min=0.0, max=1.0)
        run.observe("init", snapshot=True, weights=np.arange(6, dtype=np.float32).reshape(2, 3), name="first")
        for step in range(40):
            run.observe("batch", step=step, loss=1 / (step + 1), pair=(step, float(step)))
            run.log(
                {"loss": 1 / (step + 1), "n": step, "changing": step if step < 20 else f"text {step}"},
                step=step,
                epoch=step // 20,
            )
            if step % 20 == 19:
                run.end_group("batch")
                run.flush()
        client.set("lr", 0.5)
        for name, value in KINDS.items():
            run.log({f"kinds/{name}": value}, step=40)
        for step in (40.5, 41.5):
            run.log({f"wide/{i:03}": i * step for i in range(N_WIDE)}, step=step)
    with sg.init("stored", files=into) as again:
        for step in range(30, 50):
            again.log({"loss": -1.0 * step, "n": -step}, step=step, epoch=2)
    with sg.init("stored", files=sg.Files(into=folder / "compacted")) as run:
        for step in range(300):  # more small blocks than compaction needs
            run.log({"loss": step * 0.25}, step=step)
            run.flush()


def read(folder: Path) -> dict[str, Any]:
    """Return everything that a directory holds, as JSON."""
    with sg.open(folder) as run:
        series = {tag: run.series(tag) for tag in run.tags()}
        return {
            "name": run.name,
            "config": told(run.config),
            "history": [told([one.kind, one.name, one.value, one.old]) for one in run.history],
            "events": told(run.describe().events),
            "series": {
                tag: {
                    "type": one.type,
                    "steps": told(one.steps),
                    "values": [[told(record.value), told(record.steps), record.index] for record in one],
                }
                for tag, one in series.items()
            },
            "streams": {
                query: [told([record.value, record.step, record.index]) for record in run.stream(query)]
                for query in (QUERIES if folder.name == "run" else ["loss"])
            },
            "damages": len(run.check().damages),
        }


def wire() -> list[dict[str, Any]]:
    """Return each message as its bytes, and what it says."""
    blocks = [
        (sender, messages.encode_block(2, columns)) for columns in COLUMNS.values() for sender in ("client", "run")
    ]
    frames = [
        *(("client", messages.encode(message)) for message in FROM_CLIENT),
        *(("run", messages.encode(message)) for message in FROM_RUN),
        *blocks,
    ]
    return [
        {"from": sender, "frames": [base64.b64encode(frame).decode() for frame in some], **decoded(sender, some)}
        for sender, some in frames
    ]


def decoded(sender: str, frames: list[Any]) -> dict[str, Any]:
    """Return what a message says, as JSON."""
    decode = messages.decode_from_client if sender == "client" else messages.decode_from_run
    message, buffers = decode(frames)
    found: dict[str, Any] = {"type": type(message).__name__, "fields": told(msgspec.structs.asdict(message))["mapping"]}
    if isinstance(message, messages.Block):
        columns = messages.decode_block(message, buffers)
        found["columns"] = {name: told(getattr(columns, name)) for name in COLUMN_NAMES}
    return found


COLUMN_NAMES = ("index", "steps", "wall_times", "values", "n_events", "flags", "tracks", "indexes", "bits", "areas")
LIVE = LiveRun(
    name="job", id="0" * 12, pid=7, host="here", started=1.5, endpoint="ipc:///tmp/x.sock", directory="/runs/job",
    server_key=KEY, client_public=KEY, client_secret=KEY, beside=("1" * 12,),
)  # fmt: skip
ADDRESS = Address(endpoint="tcp://127.0.0.1:5", server=KEY, client=Keys(public=KEY, secret=KEY))


def write_small(folder: Path) -> None:
    """Write a connection file, and an entry of a live run."""
    write_connection(folder / "connection.json", ADDRESS, run="job", id="0" * 12)
    (folder / "live.json").write_bytes(msgspec.json.encode(LIVE))


def read_small(folder: Path) -> tuple[Any, LiveRun]:
    """Read them."""
    live = msgspec.json.decode((folder / "live.json").read_bytes(), type=LiveRun)
    return read_connection(folder / "connection.json"), live
