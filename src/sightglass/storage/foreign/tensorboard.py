"""The event format of TensorBoard's files: decode its events, and encode events that TensorBoard understands.

From TensorBoard 2.21: a value is either of an old kind (`simple_value`, `histo`, `image`, `audio`) or a tensor, and the
plugin named in its metadata says what the tensor means. TensorBoard uses the metadata of a tag's first value and
ignores later ones, which may have none; so does `decode_event`, given the same `plugins` each time. A tensor without
dimensions is a number, whatever the plugin. Sources: tensorboard/compat/proto, data_compat.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from sightglass.core.codec import MAX_DIMS, Buffer
from sightglass.core.errors import WireError
from sightglass.core.values import Audio, Figure, Histogram, Text
from sightglass.storage.format import png, summary, wav
from sightglass.storage.format.protobuf import BYTES, FIXED32, FIXED64, VARINT, signed, walk
from sightglass.storage.format.summary import double, messages, read_event, single, text

from .event_encoding import Encoded, encode_values
from .event_format import MAX_COUNT, LoggedValue, fields_once, figure, from_buckets
from .tensorboard_charts import (
    AUDIO,
    CONTENT,
    CUSTOM_SCALARS,
    DTYPES,
    HISTO,
    IMAGE,
    METADATA,
    PR_CURVES,
    ROWS,
    SHAPE,
    SIMPLE_VALUE,
    STRING,
    STRINGS,
    TENSOR,
    ChartLayout,
    curve_of,
    encode_value,
    layout_of,
)

EVENT_FILE: Final = re.compile(r"tfevents\.(\d+)")
SESSION: Final = 7
PASSED_OVER: Final = {
    4: "graph", 6: "log message", SESSION: "session log", 8: "run metadata", 9: "graph", 10: "", 1001: "block",
}  # fmt: skip
VALUES: Final = (SIMPLE_VALUE, 3, IMAGE, HISTO, AUDIO, TENSOR)
UNREAD: Final = {3: "old histogram"}
UNREAD_PLUGINS: Final = {
    "graph_keras_model": "graph",
    "graph_run_metadata": "run metadata",
}
HPARAMS, SCALARS = "_hparams_/", "scalars"
MAX_REPEATED: Final = 2**24  # numbers that one stored number may stand for: a bound on what a few bytes can ask for

JOINS_STEPS: Final = True
RAW_FIELDS: Final = (4, 5, 6, 9, 12)
"""The content of a TensorProto, and its packed float, double and complex numbers."""

HALVES: Final = 13
ALONE: Final = {5: FIXED32, 9: FIXED32, 6: FIXED64, 12: FIXED64} | dict.fromkeys((7, 10, 11, 13, 16, 17), VARINT)

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorView:
    """A TensorProto of TensorFlow whose numbers are not decoded yet.

    Attributes:
        dtype: The name of its dtype; "" if that is unknown or not numeric.
        data_type: The number of its dtype.
        place: The field that holds its numbers.
        strings: The items of a tensor of strings.
    """

    shape: tuple[int, ...]
    dtype: str
    data_type: int
    place: int
    data: Buffer
    strings: list[memoryview]

    def array(self) -> Array:
        """Return the array, read-only; a single number is broadcast to the shape.

        Raises:
            WireError: The shape needs another count of numbers.
        """
        if self.place == HALVES:
            numbers = summary.from_raw(summary.unpack(self.data, "<u2").tobytes(), self.dtype)
        elif self.place != CONTENT and ALONE[self.place] == VARINT:
            numbers = summary.unpack(self.data, self.dtype)
        else:
            numbers = summary.from_raw(self.data, self.dtype)
        repeats = len(numbers) == 1 and 1 < math.prod(self.shape) <= MAX_REPEATED
        if repeats and min(self.shape) >= 0 and len(self.shape) <= MAX_DIMS:
            return np.broadcast_to(numbers[0], self.shape)
        return summary.shaped(numbers, self.shape)

    def number(self) -> Any:
        """Return the number of a tensor without dimensions, as Python's bool, int, float or complex.

        Raises:
            WireError: It is missing.
        """
        return self.array().item()


def file_name(*, started: float, hostname: str, pid: int) -> str:
    """Return a file name that TensorBoard recognises."""
    return f"events.out.tfevents.{int(started)}.{hostname}.{pid}.0"


def parse_name(name: str) -> int | None:
    """Return when an event file was started, in seconds since the Unix epoch; `None` for other files.

    >>> parse_name("events.out.tfevents.1700000000.host.1.0")
    1700000000
    """
    found = EVENT_FILE.search(name)
    return None if found is None or name.endswith(".profile-empty") else int(found[1])


def decode_event(
    payload: memoryview, plugins: dict[str, str] | None = None, *, lost: bool = False
) -> list[LoggedValue]:
    """List the values of an event; see `EventFormat.decode_event`."""
    event = read_event(payload)
    plugins = {} if plugins is None else plugins
    step, wall_time = event.step, event.wall_time or 0.0
    values = [decode_value(value, plugins, step=step, wall_time=wall_time, lost=lost) for value in event.values]
    if SESSION in event.others and _starts(payload):
        return [*values, LoggedValue(tag="", step=step, wall_time=wall_time, kind="start", type="")]
    others = filter(None, (PASSED_OVER.get(number, f"field {number}") for number in event.others))
    return values + [LoggedValue(tag="", step=step, wall_time=wall_time, kind="unknown", type=what) for what in others]


def _starts(payload: memoryview) -> bool:
    """Return whether an event begins a session: `SessionLog.status` of event.proto is START, 1."""
    logs = messages(payload, SESSION)
    return any((number, kind, status) == (1, VARINT, 1) for log in logs for number, kind, status in walk(log))


def decode_value(
    buffer: memoryview, plugins: dict[str, str], *, step: int = 0, wall_time: float = 0.0, lost: bool = False
) -> LoggedValue:
    """Return one value of an event; see `EventFormat.decode_value`."""
    tag, plugin, place, content, metadata = "", "", 0, memoryview(b""), memoryview(b"")
    fields: Iterator[tuple[int, int, Any]] = walk(buffer)
    for number, kind, value in fields:
        if number == 1 and kind == BYTES:
            tag = text(value)
        elif number == METADATA and kind == BYTES:
            plugin, metadata = _plugin(value), value
        elif number in VALUES and kind == (FIXED32 if number == SIMPLE_VALUE else BYTES):
            place, content = number, value
    logged = partial(LoggedValue, tag=tag, step=step, wall_time=wall_time)
    if place in (0, TENSOR) and (plugin == "hparams" or tag.startswith(HPARAMS)):
        return logged(kind="told", type="", read=partial(read_hparams, metadata))
    match place:
        case 2:
            return logged(kind="scalar", type="float", stored_as="float32", read=partial(single, content))
        case 4:
            return logged(kind="image", type="Figure", read=partial(_decode_image, content))
        case 5:
            return logged(kind="histogram", type="Histogram", read=partial(_decode_histogram, content))
        case 6:
            media_type = b"".join(messages(content, 5)).decode("utf-8", "replace")
            if media_type in wav.MEDIA_TYPES:
                return logged(kind="audio", type="Audio", read=partial(_decode_audio, content))
            return logged(kind="unknown", type=media_type)
        case 8:
            known = plugins.setdefault(tag, LOST if lost else "")
            if known in ("", LOST) and plugin not in ("", SCALARS):
                known = plugins[tag] = plugin
            return _decode_tensor(_read_tensor(content), logged, known)
    return logged(kind="unknown", type=UNREAD.get(place) or plugin or "nothing")


def find_scalar(event: memoryview, begin: int, end: int) -> tuple[str, int] | None:
    """Find the float32 of a plain scalar; see `EventFormat.find_scalar`."""
    fields = fields_once(event, begin, end) or {}
    _, metadata, n_metadata = fields.pop(METADATA, (BYTES, begin, 0))
    match fields:
        case {1: (2, tag, n), 2: (5, place, _), **others} if not others:
            return text(event[tag : tag + n]), place
        case {1: (2, tag, n), 8: (2, tensor, n_tensor), **others} if not others:
            name, found = text(event[tag : tag + n]), _find_number(event, tensor, tensor + n_tensor)
            plain = _plugin(event[metadata : metadata + n_metadata]) in ("", SCALARS) and not name.startswith(HPARAMS)
            return (name, found) if found is not None and plain else None
    return None


def _find_number(event: memoryview, begin: int, end: int) -> int | None:
    """Return the offset of the float32 of a tensor without dimensions."""
    fields = fields_once(event, begin, end) or {}
    kind, _, n = fields.pop(SHAPE, (BYTES, 0, 0))
    if kind == BYTES and n == 0:
        match fields:
            case {1: (0, 1, _), 5: (5, place, _), **others} if not others:
                return place
            case {1: (0, 1, _), 5: (2, place, 4), **others} | {1: (0, 1, _), 4: (2, place, 4), **others} if not others:
                return place
    return None


def _plugin(metadata: memoryview) -> str:
    for data in messages(metadata, 1):
        for name in messages(data, 1):
            return text(name)
    return ""


def _decode_tensor(tensor: TensorView, logged: partial[LoggedValue], plugin: str) -> LoggedValue:
    if plugin == LOST and tensor.data_type == STRING:
        plugin = plugin_of_strings(tensor.strings)
    elif plugin == LOST and tensor.dtype:
        try:
            plugin = plugin_of_array(tensor.array())
        except WireError as error:
            return logged(kind="lost", type="", read=partial(_refuse, error))
    if plugin == "mesh":
        return logged(kind="unknown", type="mesh")
    if tensor.data_type == STRING:
        match plugin:
            case "text" | "":
                return logged(kind="text", type="Text", read=partial(_text, tensor))
            case "images":
                n = max(0, len(tensor.strings) - 2)
                return logged(
                    kind="image", type="Figure" if n == 1 else f"tuple of {n}", read=partial(_figures, tensor)
                )
            case "audio":
                n = len(_sounds_in(tensor))
                return logged(kind="audio", type="Audio" if n == 1 else f"tuple of {n}", read=partial(_sounds, tensor))
            case _ if plugin == CUSTOM_SCALARS:
                read = partial(_charts, tensor)
                return logged(kind="layout", type="custom scalar layout", read=read)
        return logged(kind="unknown", type=UNREAD_PLUGINS.get(plugin, plugin))
    if not tensor.dtype:
        return logged(kind="unknown", type=f"tensor of type {tensor.data_type}")
    if not tensor.shape:
        type_ = next(name for name in ("float", "complex", "bool", "int") if name in tensor.dtype)
        return logged(kind="scalar", type=type_, dtype=tensor.dtype, read=tensor.number)
    if plugin == "histograms":
        return logged(kind="histogram", type="Histogram", read=partial(_histogram_of_rows, tensor))
    if plugin == PR_CURVES:
        return logged(kind="table", type="Table", read=lambda: curve_of(tensor.array()))
    type_ = f"{tensor.dtype}[{', '.join(map(str, tensor.shape))}]"
    return logged(kind="tensor", type=type_, dtype=tensor.dtype, read=tensor.array)


def _refuse(error: WireError) -> None:
    raise error


def _read_tensor(buffer: memoryview) -> TensorView:
    """Read a TensorProto without decoding its numbers.

    Raises:
        WireError: The bytes are not a TensorProto.
    """
    data_type = 0
    shape: list[int] = []
    found: dict[int, Buffer] = {}
    strings: list[memoryview] = []
    fields: Iterator[tuple[int, int, Any]] = walk(buffer)
    for number, kind, value in fields:
        if number == 1 and kind == VARINT:
            data_type = value
        elif number == SHAPE and kind == BYTES:
            shape += map(_size, messages(value, 2))
        elif number == CONTENT and kind == BYTES:
            found[CONTENT] = value
        elif number == STRINGS and kind == BYTES:
            strings.append(value)
        elif number in ALONE and kind in (BYTES, ALONE[number]):
            summary.gather(found, number, value)
    dtype, place = DTYPES.get(data_type, ("", CONTENT))
    place = CONTENT if len(found.get(CONTENT, b"")) else place
    return TensorView(
        shape=tuple(shape), dtype=dtype, data_type=data_type, place=place, data=found.get(place, b""), strings=strings
    )


def _size(dimension: memoryview) -> int:
    size = 0
    fields: Iterator[tuple[int, int, Any]] = walk(dimension)
    for number, kind, value in fields:
        if number == 1 and kind == VARINT:
            size = signed(value)
    return size


def _text(tensor: TensorView) -> Text:
    return Text("\n".join(map(text, tensor.strings)))


def _figures(tensor: TensorView) -> Figure | tuple[Figure, ...]:
    """Return the images of a tensor that holds width, height and the image files."""
    figures = tuple(map(figure, tensor.strings[2:]))
    return figures[0] if len(figures) == 1 else figures


def _charts(tensor: TensorView) -> list[ChartLayout]:
    return [chart for data in tensor.strings for chart in layout_of(data)]


def _decode_image(buffer: memoryview) -> Figure:
    return figure(next(iter(messages(buffer, 4)), memoryview(b"")))


def _decode_audio(buffer: memoryview) -> Audio:
    return wav.decode_wav(next(iter(messages(buffer, 4)), memoryview(b"")))


def _sounds_in(tensor: TensorView) -> list[memoryview]:
    """Return the files of a tensor of sounds, which has a column of labels, too, where TensorBoard wrote it."""
    return tensor.strings[::2] if tensor.shape[1:] == (2,) else tensor.strings


def _sounds(tensor: TensorView) -> Audio | tuple[Audio, ...]:
    sounds = tuple(map(wav.decode_wav, _sounds_in(tensor)))
    return sounds[0] if len(sounds) == 1 else sounds


def _histogram_of_rows(tensor: TensorView) -> Histogram:
    rows = tensor.array()
    if rows.ndim != 2 or rows.shape[1] != 3 or rows.dtype.kind not in "iuf":
        raise WireError(f"Expected a histogram as rows of left, right and count, got shape {rows.shape}")
    return from_buckets(rows[:, 0], rows[:, 1], rows[:, 2])


def _decode_histogram(buffer: memoryview) -> Histogram:
    """Decode a HistogramProto as TensorBoard does: without the empty buckets at the ends, between its min and max.

    Its outermost limits may be the largest floats. PyTorch writes the min, max and number of all values, and buckets of
    the finite ones: of values that are not finite, min and max are not, and the number is larger than the counts.
    """
    ends = {1: 0.0, 2: 0.0, 3: 0.0}  # min, max and number
    found: dict[int, Buffer] = {}
    fields: Iterator[tuple[int, int, Any]] = walk(buffer)
    for number, kind, value in fields:
        if number in ends and kind == FIXED64:
            ends[number] = double(value)
        elif number in (6, 7) and kind in (BYTES, FIXED64):
            summary.gather(found, number, value)
    limits, counts = (summary.from_raw(found.get(number, b""), "float64") for number in (6, 7))
    if len(limits) != len(counts):
        raise WireError(f"Expected as many buckets as limits, got {len(counts)} and {len(limits)}")
    low, high, n_values = ends.values()
    filled, others = np.flatnonzero(counts), _not_finite(low, high, n_values - counts.sum())
    if not len(filled):
        return from_buckets((), (), (), **others)
    first, last = int(filled[0]), int(filled[-1])
    inner = limits[first:last]
    lefts = np.append(min(low, limits[first]) if math.isfinite(low) else limits[max(0, first - 1)], inner)
    rights = np.append(inner, high if math.isfinite(high) else limits[last])
    with np.errstate(invalid="ignore"):
        rights = np.maximum(lefts, rights)
    return from_buckets(lefts, rights, counts[first : last + 1], **others)


def _not_finite(low: float, high: float, n: float) -> dict[str, Any]:
    """Return of which kind `n` values are that no bucket counts; NaN where the min and max do not tell."""
    if (math.isfinite(low) and math.isfinite(high)) or not 0 < n <= MAX_COUNT:
        return {}
    kinds = {(True, False): "n_posinf", (False, True): "n_neginf"}
    return {kinds.get((high == math.inf, low == -math.inf), "n_nan"): round(n)}


def encode_event(values: Mapping[str, Any], *, step: float, wall_time: float) -> Encoded:
    """Encode an Event that TensorBoard understands; see `event_encoding.encode_values`.

    Numbers become float32. The format has no counts for the values of a histogram that are not finite.
    """
    return encode_values(values, encode_value, step=step, wall_time=wall_time)


# TensorBoard's hyper-parameters: what its plugin writes, in the metadata of tags that begin with `_hparams_/`.
#
# An experiment says which tags are its metrics; a session says with which hyper-parameters it began, and how it ended.
# Sources: tensorboard/plugins/hparams/plugin_data.proto and api.proto (`HParamsPluginData`, `SessionStartInfo`, whose
# values are `google.protobuf.Value`, `SessionEndInfo`, `Experiment`).

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


# What a tensor of TensorBoard is where a damaged record may have been the one that said so.
#
# Only the first value of a tag has to name the plugin, which says what the tag's tensors mean. Where that record is
# lost, a histogram looks like an array of three columns. What is certain from the content is recovered; what could be
# either is refused. Sources, of TensorBoard 2.21: `plugins/histogram/summary_v2.py`, `plugins/pr_curve/summary.py`.

LOST: Final = "lost"
"""Stands for the plugin of a tag whose first value may be lost."""


def plugin_of_strings(strings: Sequence[memoryview]) -> str:
    """Return the plugin of a tensor of strings: sizes and pictures are images, WAV files sounds, others texts."""
    if len(strings) > 2 and all(bytes(size).isdigit() for size in strings[:2]) and png.picture(strings[2]):
        return "images"
    return "audio" if strings and bytes(strings[0][:4]) == b"RIFF" else "text"


def plugin_of_array(rows: npt.NDArray[Any]) -> str:
    """Return the plugin of an array, "" if it is certainly no more than an array.

    Raises:
        WireError: It could be an array as well as what a plugin shows.
    """
    for name, (possible, certain) in {"histograms": _as_histogram(rows), PR_CURVES: _as_curve(rows)}.items():
        if certain:
            return name
        if possible:
            raise WireError(
                f"an array of shape {rows.shape}, or a value of the plugin {name!r}: "
                "an earlier record that says which may be damaged"
            )
    return ""


def _as_histogram(rows: npt.NDArray[Any]) -> tuple[bool, bool]:
    """Return whether rows of left, right and count can be a histogram, and whether they are."""
    if rows.ndim != 2 or rows.shape[1] != 3 or rows.dtype.kind != "f":
        return False, False
    left, right, count = rows.T
    try:
        from_buckets(left, right, count)
    except WireError:
        return False, False
    whole = bool((count == np.rint(count)).all())
    return whole, whole and len(rows) > 1 and bool((right[:-1] == left[1:]).all()) and bool(count.any())


def _as_curve(rows: npt.NDArray[Any]) -> tuple[bool, bool]:
    """Return whether rows can be those of a precision-recall curve, and whether they are."""
    if rows.ndim != 2 or len(rows) != len(ROWS) or rows.dtype.kind != "f":
        return False, False
    possible = bool((rows >= 0).all() and (rows[4:] <= 1).all())
    found, wrong, right, missed = rows[:4]
    constant = all(np.ptp(total) <= 1e-5 * total.max() for total in (found + missed, wrong + right) if total.size)
    falling = bool((np.diff(found) <= 0).all() and (np.diff(wrong) <= 0).all())
    return possible, possible and constant and falling and rows.shape[1] > 1 and bool(found.any() or wrong.any())
