"""TensorBoard's hyper-parameters: what its plugin writes, in the metadata of tags that begin with `_hparams_/`.

An experiment says which tags are its metrics; a session says with which hyper-parameters it began, and how it ended.
Sources: tensorboard/plugins/hparams/plugin_data.proto and api.proto (`HParamsPluginData`, `SessionStartInfo`, whose
values are `google.protobuf.Value`, `SessionEndInfo`, `Experiment`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sightglass.core.errors import WireError
from sightglass.storage.format.protobuf import FIXED64, VARINT, walk
from sightglass.storage.format.summary import double, messages, text

PLUGIN: Final = b"hparams"
EXPERIMENT, SESSION_START, SESSION_END = 2, 3, 4
METRIC_INFOS: Final = 5
STATES: Final = {1: "ended", 2: "failed"}


def read_hparams(metadata: memoryview) -> dict[str, Any]:
    """Return what the SummaryMetadata of a value say about the run; empty if they cannot be read.

    Returns:
        Fields of `run_file.RunFile`: `config`, `started`, `ended` and `state`; and `metrics`, a list of tags.
    """
    told: dict[str, Any] = {}
    try:
        for plugin in messages(metadata, 1):
            if PLUGIN in map(bytes, messages(plugin, 1)):
                for content in messages(plugin, 2):
                    told |= _experiment(content) | _session_start(content) | _session_end(content)
    except WireError:
        return {}
    return told


def add(told: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add what is told later: names of the configuration and metrics are added to those before."""
    config, metrics = told.get("config", {}), told.get("metrics", [])
    told |= more
    if more.get("config"):
        told["config"] = config | more["config"]
    if more.get("metrics"):
        told["metrics"] = list(dict.fromkeys([*metrics, *more["metrics"]]))


def together(several: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what several files say of their run, the earliest first."""
    told: dict[str, Any] = {}
    for one in several:
        add(told, one if "started" not in told else {name: value for name, value in one.items() if name != "started"})
    return told


def entries(message: memoryview, number: int) -> Iterator[tuple[str, memoryview]]:
    """Yield the entries of a map whose values are messages."""
    for entry in messages(message, number):
        for value in messages(entry, 2):
            yield "".join(text(name) for name in messages(entry, 1)), value


def _experiment(content: memoryview) -> dict[str, Any]:
    names = [
        name
        for experiment in messages(content, EXPERIMENT)
        for info in messages(experiment, METRIC_INFOS)
        for name in messages(info, 1)
    ]
    tags = [text(tag) for name in names for tag in messages(name, 2)]
    return {"metrics": tags} if tags else {}


def _session_start(content: memoryview) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for start in messages(content, SESSION_START):
        told["config"] = {name: _value(item) for name, item in entries(start, 1)}
        began = [time for number, time in _doubles(start) if number == 5 and time > 0]
        told |= {"started": began[-1]} if began else {}
    return told


def _session_end(content: memoryview) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for end in messages(content, SESSION_END):
        state = next(
            (STATES[n] for number, kind, n in walk(end) if (number, kind) == (1, VARINT) and n in STATES), None
        )
        times = [time for number, time in _doubles(end) if number == 2 and time > 0]
        if state is not None and times:
            told |= {"state": state, "ended": times[-1]}
    return told


def _doubles(message: memoryview) -> Iterator[tuple[int, float]]:
    for number, kind, value in walk(message):
        if kind == FIXED64:
            yield number, double(value)  # type: ignore[arg-type]


def _value(message: memoryview) -> Any:
    """Read a `google.protobuf.Value`."""
    for number, kind, value in walk(message):
        match number, kind:
            case 2, 1:
                real = double(value)  # type: ignore[arg-type]
                return int(real) if real.is_integer() and abs(real) < 2**53 else real
            case 3, 2:
                return text(value)  # type: ignore[arg-type]
            case 4, 0:
                return bool(value)
    return None
