"""What the event formats of other programs share: the interface of a format, and histograms given as buckets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal, Protocol

import numpy as np
import numpy.typing as npt

from sightglass.core.errors import WireError
from sightglass.core.values import Figure, Histogram
from sightglass.storage.format import png
from sightglass.storage.format.protobuf import spans

from .event_encoding import Encoded

Kind = Literal[
    "scalar", "tensor", "histogram", "image", "audio", "table", "text", "layout", "told", "start", "lost", "unknown"
]  # fmt: skip

LARGEST: Final = float(np.finfo(np.float64).max)
MAX_COUNT: Final = 2.0**62  # the sum of all counts still fits int64
SLACK: Final = 1e-6  # writers compute edges in float32, so adjacent buckets may miss each other by its rounding
OVERLAP: Final = 2.0**-8  # or in the dtype of the values: this is the rounding of bfloat16, and float16's is less


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedValue:
    """A value of an event, decoded on demand.

    Attributes:
        kind: What the file says it is. A "layout" is of charts, "told" is about the run, a "start" says that its
            program starts again at this step: no values. "unknown" cannot be shown; of a "lost" one, the record that
            says what it is may be damaged: `read` raises.
        type: The type of the value as `core.values.type_name` writes it; for "unknown", what it is, such as
            "graph", or "" if nothing of it is missing.
        dtype: The dtype it was logged with, where the file says so; "" for anything but arrays.
        stored_as: The dtype that the file stores instead, or "".
        read: Decodes the value; raises WireError if its bytes are malformed.
    """

    tag: str
    step: int
    wall_time: float
    kind: Kind
    type: str
    dtype: str = ""
    stored_as: str = ""
    read: Callable[[], Any] = field(default=lambda: None, repr=False, compare=False)

    @property
    def value(self) -> Any:
        """Decode the value.

        Raises:
            WireError: Its bytes are malformed.
        """
        return self.read()


class EventFormat(Protocol):
    """The events of one program; `mindspore` and `tensorboard` are such modules."""

    @property
    def JOINS_STEPS(self) -> bool:
        """Whether consecutive events of one step are one log event."""

    @property
    def RAW_FIELDS(self) -> tuple[int, ...]:
        """The fields of TensorProto that hold numbers as they lie in memory."""

    def decode_event(
        self, payload: memoryview, plugins: dict[str, str] | None = None, *, lost: bool = False
    ) -> list[LoggedValue]:
        """List the values of an event, in its order, then those fields that are not values, as "unknown".

        Args:
            payload: The bytes of the Event.
            plugins: The plugin of each tag as its first value named it; updated. Only TensorBoard has plugins.
            lost: Whether an earlier record is damaged, which may have been the first value of any tag.

        Raises:
            WireError: The bytes are not an Event.
        """

    def decode_value(
        self, buffer: memoryview, plugins: dict[str, str], *, step: int = 0, wall_time: float = 0.0, lost: bool = False
    ) -> LoggedValue:
        """Return one value of an event from the bytes of its Summary.Value.

        Raises:
            WireError: The bytes are malformed.
        """

    def find_scalar(self, event: memoryview, begin: int, end: int) -> tuple[str, int] | None:
        """Return the tag of the Summary.Value at `event[begin:end]` and the offset of its float32.

        Returns `None` for anything but one scalar in its plainest form.
        """

    def encode_event(self, values: Mapping[str, Any], *, step: float, wall_time: float) -> Encoded:
        """Encode an event of values by tag; see `event_encoding.encode_values`."""


def fields_once(event: memoryview, begin: int, end: int) -> dict[int, tuple[int, int, int]] | None:
    """Return (wire type, offset, length) of each field of a message in an event; `None` if a field repeats."""
    fields: dict[int, tuple[int, int, int]] = {}
    for number, kind, place, length in spans(event, begin, end):
        if number in fields:
            return None
        fields[number] = kind, place, length
    return fields


def figure(data: memoryview) -> Figure:
    """Return the image file in these bytes."""
    picture = png.picture(data)
    return Figure(bytes(data), picture.media_type if picture else "application/octet-stream")


def from_buckets(
    lefts: npt.ArrayLike,
    rights: npt.ArrayLike,
    counts: npt.ArrayLike,
    *,
    n_nan: int = 0,
    n_posinf: int = 0,
    n_neginf: int = 0,
    stored: tuple[float, float, float] | None = None,
) -> Histogram:
    """Make a histogram from buckets without losing a count.

    A bucket without a width adds its count to the next one; a hole between buckets becomes an empty bin. Where two
    overlap by a rounding, the second one begins where it says. One edge that is not finite is the same as the other
    one; what a bucket without a finite edge counts is not finite, either. `stored` is the histogram's attribute.

    Raises:
        WireError: Buckets overlap, or counts are negative or too large.
    """
    with np.errstate(invalid="ignore"):
        left, right, count = (np.asarray(column, np.float64) for column in (lefts, rights, counts))
    left, right = np.where(np.isfinite(left), left, right), np.where(np.isfinite(right), right, left)
    if not (known := np.isfinite(left)).all() and np.isfinite(count).all():
        n_nan += int(count[~known].clip(0, MAX_COUNT).sum())
        left, right, count = left[known], right[known], count[known]
    if not (left <= right).all():
        raise WireError("Expected buckets whose left edge is not beyond the right one")
    if not (np.isfinite(count).all() and (count >= 0).all()) or count.sum() > MAX_COUNT:
        raise WireError("Expected counts from 0 to 2**62 in the buckets of a histogram")
    if min(n_nan, n_posinf, n_neginf) < 0:
        raise WireError("Expected counts of 0 or more for the values of a histogram that are not finite")
    make = partial(Histogram.from_counts, n_nan=n_nan, n_posinf=n_posinf, n_neginf=n_neginf, stored=stored)
    if not len(left):
        return make([0], [0.0, 1.0])
    order = np.lexsort((right, left))
    left, right, count = left[order], right[order], np.rint(count[order])
    with np.errstate(over="ignore"):
        gap, size = left[1:] - right[:-1], np.abs(left[1:]) + (right - left)[1:]
    if (gap < -OVERLAP * size).any():
        raise WireError("Expected buckets that do not overlap")
    holes = np.flatnonzero(gap > SLACK * size) + 1
    edges = np.insert(np.append(left, right.max()), holes, right[holes - 1])
    count = np.insert(count, holes, 0)
    return make(*_merged(count.astype(np.int64), edges))


def _merged(counts: npt.NDArray[np.int64], edges: npt.NDArray[np.float64]) -> tuple[Any, Any]:
    """Add the counts of bins without a width to the next bin that has one, or to the last."""
    wide = edges[1:] > edges[:-1]
    if not wide.any():
        padding = max(0.5, 2 * float(np.spacing(abs(edges[0]))))
        return [counts.sum()], np.array([edges[0] - padding, edges[0] + padding]).clip(-LARGEST, LARGEST)
    into = np.minimum(np.cumsum(wide) - wide, wide.sum() - 1)
    merged = np.zeros(wide.sum(), np.int64)
    np.add.at(merged, into, counts)
    return merged, np.append(edges[:-1][wide], edges[-1])
