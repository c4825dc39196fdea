"""Endpoints for pictures, sounds and texts."""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np

from sightglass.core import plotly_json
from sightglass.core.columns import Record
from sightglass.core.errors import DamagedError, UnknownNameError
from sightglass.core.values import Audio, Figure, Image, Images, Text, type_name
from sightglass.server.http_errors import Problem, bad_request
from sightglass.server.runs.run_table import Runs
from sightglass.storage.format import png, wav
from sightglass.storage.read.recording import Series
from sightglass.views.summaries import wave_of

from .schema import ApiRequest, Raw, Request, Route, series_of

MAX_TEXTS: Final = 1_000  # a reader pages through fewer
MAX_TEXT_BYTES: Final = 8 * 2**20  # of one reply; later texts come with the next one
MAX_TAG: Final = 4_096  # leaves room for escapes within `MAX_URL_BYTES`

KNOWN: Final = (
    "image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml", "application/pdf", "audio/wav",
    plotly_json.MEDIA_TYPE,
)  # fmt: skip
"""The media types that a browser may learn; any other data is sent as plain bytes."""

Tag = Annotated[str, msgspec.Meta(max_length=MAX_TAG)]


class MediaQuery(Request, frozen=True, kw_only=True):
    """A picture or sound: its step (by default the last), its number among several, and the format it must have.

    `to_play` asks for a sound that browsers play: its samples of 64 bits become float32.
    """

    tag: Tag
    step: float | None = None
    index: Annotated[int, msgspec.Meta(ge=0)] = 0
    format: Literal["png", "pdf", "svg", "wav"] | None = None
    to_play: bool = False


class AtStep(Request, frozen=True, kw_only=True):
    """A tag at a step, by default the last."""

    tag: Tag
    step: float | None = None


class PictureInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A picture's type, caption and size; the size is null for vector graphics and unknown formats.

    Of a figure of Plotly, the caption is its title with the types of its traces, and the size is what it asks for.
    """

    media_type: str
    caption: str
    width: int | None
    height: int | None


class PictureList(msgspec.Struct, frozen=True, kw_only=True):
    """The pictures of a step; `media` returns each by its number in the list."""

    step: float
    wall_time: float
    pictures: list[PictureInfo]


class SoundInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A sound: what it is in words, its length in seconds, and its largest sample as a part of full scale.

    `rate` is the number of samples in a second of each channel, `n_samples` the number of all of one channel. `peaks`
    has a list for each channel: the lowest and the highest sample at up to 400 places.
    """

    about: str
    seconds: float
    rate: int
    n_samples: int
    dtype: str
    peak: float
    peaks: list[list[list[float]]]


class SoundList(msgspec.Struct, frozen=True, kw_only=True):
    """The sounds of a step; `media` returns each as a WAV file by its number in the list."""

    step: float
    wall_time: float
    sounds: list[SoundInfo]


class TextsQuery(Request, frozen=True, kw_only=True):
    """Texts from a step on, or by default the last ones."""

    tag: Tag
    low: float | None = msgspec.field(default=None, name="from")
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_TEXTS)] = 100


class TextInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A text, its step and its wall time."""

    step: float
    wall_time: float
    text: str


class TextList(msgspec.Struct, frozen=True, kw_only=True):
    """Texts in the order of their steps."""

    texts: list[TextInfo]


async def get_media(call: ApiRequest, query: MediaQuery) -> Raw:
    """Return a picture or a sound: the recorded bytes of a figure, an image as PNG, a sound as WAV."""
    return await call.read(_media, call.runs, call.key, query)


def _media(runs: Runs, key: str, query: MediaQuery) -> Raw:
    if query.step is not None and not math.isfinite(query.step):
        raise bad_request(f"Expected a step, got {query.step}")
    with series_of(runs.find(key), query.tag) as (_, series):
        value = series[-1].value if query.step is None else series.at(query.step)
    data, media_type = _file(query, value)
    format = media_type.partition("/")[2].partition("+")[0]
    if query.format is not None and format != query.format:
        raise UnknownNameError("format", query.format, [format], where=f"of {query.tag!r}")
    return Raw(data=data, media_type=media_type if media_type in KNOWN else "application/octet-stream")


def _file(query: MediaQuery, value: object) -> tuple[bytes, str]:
    tag, index = query.tag, query.index
    pictures = value if isinstance(value, tuple | list) else [value]
    n = len(value.value) if isinstance(value, Images) else len(pictures)
    if index >= n:
        raise UnknownNameError("picture", index, range(n), where=f"of {tag!r}")
    if isinstance(value, Images):
        return png.encode_png(np.asarray(value.value)[index]), "image/png"
    match pictures[index]:
        case Figure(data=data, media_type=media_type):
            return bytes(data), media_type
        case Image(value=pixels):
            return png.encode_png(pixels), "image/png"
        case Audio() as sound:
            return wav.encode_wav(sound, to_play=query.to_play), wav.MEDIA_TYPE
    raise Problem(400, "QueryError", f"Expected a picture or a sound under {tag!r}, got {type_name(value)}")


async def list_pictures(call: ApiRequest, query: AtStep) -> PictureList:
    """List the pictures of a tag at a step, with their captions and sizes."""
    return await call.read(_pictures, call.runs, call.key, query)


def _pictures(runs: Runs, key: str, query: AtStep) -> PictureList:
    record = record_at(runs, key, query)
    return PictureList(step=record.step, wall_time=record.wall_time, pictures=_infos(query.tag, record.value))


async def list_sounds(call: ApiRequest, query: AtStep) -> SoundList:
    """List the sounds of a tag at a step, with the outlines of their waves."""
    return await call.read(_sounds, call.runs, call.key, query)


def _sounds(runs: Runs, key: str, query: AtStep) -> SoundList:
    record = record_at(runs, key, query)
    sounds = record.value if isinstance(record.value, tuple | list) else [record.value]
    if not all(isinstance(one, Audio) for one in sounds):
        raise Problem(400, "QueryError", f"Expected a sound under {query.tag!r}, got {type_name(record.value)}")
    return SoundList(step=record.step, wall_time=record.wall_time, sounds=[_sound(one) for one in sounds])


def _sound(sound: Audio) -> SoundInfo:
    wave = wave_of(sound)
    peaks = wave.peaks.astype(np.float64).round(4).tolist()
    return SoundInfo(
        about=str(wave), seconds=wave.seconds, rate=wave.rate, n_samples=wave.n_samples, dtype=wave.dtype,
        peak=wave.peak, peaks=peaks,
    )  # fmt: skip


def record_at(runs: Runs, key: str, query: AtStep) -> Record:
    """Return the record of a tag at a step, by default the last."""
    if query.step is not None and not math.isfinite(query.step):
        raise bad_request(f"Expected a step, got {query.step}")
    with series_of(runs.find(key), query.tag) as (_, series):
        return series[-1] if query.step is None else series[_place(series, query.step)]


def _place(series: Series, step: float) -> int:
    places = np.flatnonzero(series.steps == step)
    if not len(places):
        raise UnknownNameError("step", step, [], where=f"of {series.tag!r}")
    return int(places[-1])


def _infos(tag: str, value: object) -> list[PictureInfo]:
    if isinstance(value, Images):
        pixels = np.asarray(value.value)
        captions = value.captions or ("",) * len(pixels)
        return [_info(Image(one, caption)) for one, caption in zip(pixels, captions, strict=True)]
    pictures = value if isinstance(value, tuple | list) else [value]
    found = [one for one in pictures if isinstance(one, Image | Figure)]
    if len(found) < len(pictures):
        raise Problem(400, "QueryError", f"Expected a picture under {tag!r}, got {type_name(value)}")
    return [_info(one) for one in found]


def _info(picture: Image | Figure) -> PictureInfo:
    if isinstance(picture, Figure):
        if picture.media_type == plotly_json.MEDIA_TYPE:
            about = plotly_json.summary_of(picture.data)
            width, height = (about.width, about.height) if about else (None, None)
            caption = str(about or "not a figure of Plotly")
            return PictureInfo(media_type=picture.media_type, caption=caption, width=width, height=height)
        size = png.picture(picture.data)
        width, height = (size.width, size.height) if size else (None, None)
        return PictureInfo(media_type=picture.media_type, caption="", width=width, height=height)
    height, width = np.asarray(picture.value).shape[:2]
    return PictureInfo(media_type="image/png", caption=picture.caption, width=width, height=height)


async def list_texts(call: ApiRequest, query: TextsQuery) -> TextList:
    """Return texts: the last ones, or the first ones from a step on."""
    return await call.read(_texts, call.runs, call.key, query)


def _texts(runs: Runs, key: str, query: TextsQuery) -> TextList:
    with series_of(runs.find(key), query.tag) as (_, series):
        if series.type not in ("str", "Text", ""):
            raise Problem(400, "QueryError", f"Expected texts under {query.tag!r}, got {series.type}")
        found, n_bytes = [], 0
        for i in _chosen(series, query):
            try:
                record = series[int(i)]
            except DamagedError:
                continue  # the run's `problem` reports it
            text = text_of(record)
            n_bytes += len(text)
            if n_bytes > MAX_TEXT_BYTES:
                break
            found.append(TextInfo(step=record.step, wall_time=record.wall_time, text=text))
    return TextList(texts=found if query.low is not None else found[::-1])


def text_of(record: Record) -> str:
    """Return the text of a record."""
    return record.value.value if isinstance(record.value, Text) else str(record.value)


def _chosen(series: Series, query: TextsQuery) -> Any:
    """Return the numbers of the records to read; the last one first if no step is given."""
    if query.low is None:
        return range(len(series) - 1, max(-1, len(series) - 1 - query.limit), -1)
    return np.flatnonzero(series.steps >= query.low)[: query.limit]


ROUTES: Final = (
    Route(
        method="GET", path="/runs/{key}/media", handler=get_media, query=MediaQuery, response=KNOWN, cached=True,
    ),
    Route(
        method="GET", path="/runs/{key}/pictures", handler=list_pictures, query=AtStep, response=PictureList,
        cached=True,
    ),
    Route(
        method="GET", path="/runs/{key}/sounds", handler=list_sounds, query=AtStep, response=SoundList, cached=True,
    ),
    Route(method="GET", path="/runs/{key}/texts", handler=list_texts, query=TextsQuery, response=TextList, cached=True),
)  # fmt: skip
