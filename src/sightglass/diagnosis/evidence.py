"""What is judged: a run's description, its commands, and curves of the numbers that it recorded, read once.

Rule 1: of each series, however long, there are at most `N_BINS` points, so that judgements cost the same for all runs.
Rule 2: a name says what numbers are about, as people use names: see `role_of`. The others are only looked through for
NaN and infinity.
Rule 3: what could not be read is said in `Evidence.unread`, never passed over.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from sightglass.core.description import Description, HistoryEntry
from sightglass.core.errors import SightglassError
from sightglass.core.process.stacks import Stacks
from sightglass.storage.format.block import Key
from sightglass.storage.format.series_names import kind_of, query_of
from sightglass.storage.read import run_totals
from sightglass.storage.read.recording import Recording
from sightglass.storage.read.run_totals import Odd
from sightglass.storage.read.series import Series
from sightglass.storage.run_file import is_of_machine

N_BINS: Final = 512
MAX_CURVES: Final = 300  # of one role: 300 norms of gradients are read in a second
MAX_ROWS: Final = 2**24  # of all that are judged, read in about a second

Role: TypeAlias = Literal["loss", "gradients", "dead units", "data", "machine", "progress"]
Numbers: TypeAlias = npt.NDArray[np.float64]

_LOSS: Final = re.compile(r"((train(ing)?|val(id(ation)?)?|eval(uation)?|test)[_-]?)?(loss|nll|perplexity|ppl)")
_GRADIENTS: Final = re.compile(r"grad.*norm|norm.*grad")
_DEAD: Final = re.compile(r"dead")
_DATA: Final = re.compile(r"(data|load|loader|loading|batch_wait|input)_?(time|wait|s|ms|seconds)(_s|_ms)?")


def role_of(key: Key) -> Role | None:
    """Return what a series of numbers is about, by its name; `None` if that is not known."""
    if is_of_machine(key):
        return "machine"
    tag = key.tag.lower()
    last = re.split(r"[./:]", tag)[-1]
    if _LOSS.fullmatch(last):
        return "loss"
    if _GRADIENTS.search(tag):
        return "gradients"
    if _DEAD.search(tag):
        return "dead units"
    return "data" if _DATA.fullmatch(last) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The numbers of a series in at most `N_BINS` bins of equally many records, without NaN and infinity.

    Attributes:
        tag: Its tag.
        query: The query that asks for it.
        n: How many records it has.
        steps: The last step of each bin.
        times: The time of its last record, in seconds since the Unix epoch.
        means: The mean of each bin.
        highest: The highest number of each bin.
    """

    tag: str
    query: str
    n: int
    steps: Numbers
    times: Numbers
    means: Numbers
    highest: Numbers

    def parts(self, n: int) -> Numbers:
        """Return the medians of `n` equal parts; shape (n,)."""
        return np.array([np.median(part) for part in np.array_split(self.means, n)])

    @property
    def noise(self) -> float:
        """How far bins lie from their neighbours: a standard deviation, which a trend does not count for."""
        return float(np.median(np.abs(np.diff(self.means)))) / 0.954 if len(self.means) > 1 else 0.0

    @property
    def intervals_s(self) -> Numbers:
        """The seconds between two records, for each bin but the first."""
        return np.diff(self.times) * (len(self.times) / self.n)


@dataclass(frozen=True, slots=True, kw_only=True)
class OddNumber:
    """The first NaN, or the first infinity, of a run."""

    tag: str
    query: str
    step: float
    wall_time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that judgements look at.

    Attributes:
        description: What the run says about itself.
        history: The commands that it applied.
        stacks: Where its threads are, if it is quiet and says so.
        curves: By what they are about. The one of "progress" has the most records of all but the machine's.
        odd: The first "nan" and the first "infinity".
        n_series: How many series of numbers were looked through.
        n_damaged: How many places in its files are damaged.
        unread: What could not be read, and why.
    """

    description: Description
    history: Sequence[HistoryEntry] = ()
    stacks: Stacks | None = None
    curves: Mapping[Role, Sequence[Curve]] = field(default_factory=dict)
    odd: Mapping[Odd, OddNumber] = field(default_factory=dict)
    n_series: int = 0
    n_damaged: int = 0
    unread: Sequence[str] = ()

    def machine(self, pattern: str) -> list[Curve]:
        """Return the curves of what the machine does whose names match."""
        return [curve for curve in self.curves.get("machine", ()) if re.fullmatch(pattern, curve.tag)]


def evidence_of(
    description: Description,
    history: Sequence[HistoryEntry],
    *,
    recording: Recording | None,
    stacks: Stacks | None = None,
) -> Evidence:
    """Read what is judged.

    Args:
        description: What the run says about itself, or its files do.
        history: Its commands.
        recording: Its files; `None` if they cannot be read here, or it has none.
        stacks: Where its threads are.
    """
    if recording is None:
        unread = ["its numbers: this machine has no files of it"]
        return Evidence(description=description, history=history, stacks=stacks, unread=unread)
    unread = []
    with recording.lock:
        recording.refresh()
        every = map(recording.series, recording.keys())
        series = [one for one in every if kind_of(one.type) == "scalar"]
        curves = _curves(series, unread)
        odd = _odd(recording, unread)
        return Evidence(
            description=description, history=history, stacks=stacks, curves=curves, odd=odd, n_series=len(series),
            n_damaged=len(recording.damages), unread=unread,
        )  # fmt: skip


def _curves(series: Sequence[Series], unread: list[str]) -> dict[Role, list[Curve]]:
    chosen: dict[Role, list[Series]] = {}
    for one in series:
        role = role_of(one.key)
        if role is not None:
            chosen.setdefault(role, []).append(one)
    steps = [one for one in series if not is_of_machine(one.key)]
    chosen["progress"] = [max(steps, key=len)] if steps else []
    curves: dict[Role, list[Curve]] = {}
    n_rows, left = 0, set[str]()
    for role, several in chosen.items():
        if len(several) > MAX_CURVES:
            unread.append(f"{len(several) - MAX_CURVES:,} of {len(several):,} series of {role}: they are too many")
        for one in several[:MAX_CURVES]:
            n_rows += len(one)
            if n_rows > MAX_ROWS:
                left.add(one.tag)
            elif (curve := _curve(one)) is not None:
                curves.setdefault(role, []).append(curve)
    if left:
        unread.append(f"trends of {len(left):,} series, such as {min(left)}: all have more than {MAX_ROWS:,} records")
    return curves


def _curve(series: Series) -> Curve | None:
    """Return the curve of a series; `None` without any finite number."""
    n = len(series)
    width = -(-n // N_BINS)
    bins: list[Numbers] = []
    for start in range(0, n, 64 * width):  # an eighth of a long series at a time
        columns = series.columns(start, start + 64 * width)
        values = np.asarray(columns.values, np.float64)
        for low in range(0, len(values), width):
            part = values[low : low + width]
            part = part[np.isfinite(part)]
            last = min(low + width, len(values)) - 1
            if len(part):
                bins.append(
                    np.array([columns.steps[last], columns.wall_times[last], part.mean(), part.max()], np.float64)
                )
    if not bins:
        return None
    steps, times, means, highest = np.stack(bins, 1)
    key = series.key
    return Curve(tag=key.tag, query=query_of(key), n=n, steps=steps, times=times, means=means, highest=highest)


def _odd(recording: Recording, unread: list[str]) -> dict[Odd, OddNumber]:
    """Return the first NaN and the first infinity, as far as the totals of the run can be made."""
    try:
        totals = run_totals.of(recording)
        found: dict[Odd, Any] = {} if totals is None else run_totals.first_odd(recording, totals)
    except (SightglassError, OSError) as error:
        totals, found = None, {}
        unread.append(f"NaN and infinity: {error}")
    else:
        if totals is None:
            unread.append("NaN and infinity: there are no totals of this run, which is damaged, or too large to add up")
    return {
        what: OddNumber(tag=key.tag, query=query_of(key), step=step, wall_time=wall_time)
        for what, (key, step, wall_time) in found.items()
    }
