"""The W&B sink: records in, rows of a Weights & Biases run out.

Rule 1: the run object is held; the module's own `wandb.log` would write into whatever run is current by then.
Rule 2: rows are logged without `step=`, since W&B silently drops a row whose step is lower than the newest. Steps are
columns of the row instead, and `define_metric` makes "step" the x axis of every tag. So late records are kept, too.
Rule 3: a run that others log into as well (`alone=False`) never has its step advanced by this sink: rows join the row
that is open (`commit=False`). Those that would overwrite something in it wait until the others have gone on, or until
the sink is closed. Their steps are columns named `sightglass/step` and so on, which nobody else writes.
Rule 4: everything happens on a thread of its own (`outbox`). W&B's own files are written late: a killed process loses
the history of an offline run. W&B is no store; a run directory is.
"""

from __future__ import annotations

import atexit
import io
import math
import warnings
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from sightglass.core.errors import MissingExtraError, StorageError, UnsendableError
from sightglass.core.record import Record
from sightglass.core.values import Figure, Histogram, Image, Images, Tensor, Text, is_real, n_bytes, to_host
from sightglass.storage.format.png import encode_png

from .align import Moment, moments
from .delivery_queue import DeliveryQueue, DeliveryStatistics

STEP: Final = "step"
SHARED: Final = "sightglass/"
MAX_BINS: Final = 512
TIMEOUT_S: Final = 60.0

_shared: Final[weakref.WeakKeyDictionary[Any, WandB]] = weakref.WeakKeyDictionary()


class WandB:
    """Writes records into a W&B run.

    Numbers, texts, histograms and images become what W&B has for them; arrays become histograms of their elements,
    mappings names with slashes. What W&B has nothing for is left out, counted, and told.

    Args:
        run: The run; by default the active one.
        alone: Whether nobody else logs into it: then every moment is a row of its own, at once.

    Raises:
        MissingExtraError: `wandb` is not installed.
        StorageError: No run is given, and none is active.
    """

    def __init__(self, run: Any = None, *, alone: bool = False) -> None:
        wandb = load()
        run = wandb.run if run is None else run
        if run is None:
            raise StorageError("No W&B run is active: call wandb.init() first, or give one: WandB(run)")
        self.run = run
        self._alone = alone
        self._finishes = False
        self._pushing = False
        self._prefix = "" if alone else SHARED
        self._tags: set[str] = set()
        self._held: deque[dict[str, Any]] = deque()
        self._open_row: dict[str, Any] = {}
        self._open_step = -1
        self._outbox: DeliveryQueue[Sequence[Record]] = DeliveryQueue(
            "W&B", self._deliver, settle=self._settle, end=self._end
        )
        atexit.register(self._at_exit)  # W&B ends its runs at exit, too: what comes later runs earlier

    @classmethod
    def begin(cls, **options: Any) -> WandB:
        """Begin a run of its own next to all others, and finish it at the end; this may wait for the network.

        Args:
            **options: As for `wandb.init`.

        Raises:
            MissingExtraError: `wandb` is not installed.
        """
        sink = cls(load().init(**{"reinit": "create_new", **options}), alone=True)
        sink._finishes = True
        return sink

    @classmethod
    def shared(cls, run: Any) -> WandB:
        """Return the one sink of a run that others log into as well: several would overwrite each other's steps."""
        sink = _shared.get(run)
        if sink is None or sink._outbox.closed:
            sink = _shared[run] = cls(run)
        return sink

    def push(self, timeout_s: float = TIMEOUT_S) -> None:
        """Flush, and let nothing wait for others any more: what is held becomes rows. Errors as in `flush`."""
        self._pushing = True
        self.flush(timeout_s)

    def write(self, records: Sequence[Record]) -> None:
        """Let records be written; never waits.

        Args:
            records: Those that follow upon each other and have the same steps become one row. Their values must not be
                changed any more.
        """
        self._outbox.put(records, sum(n_bytes(record.value) for record in records))

    def flush(self, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until all records are handed to W&B, but for those that wait for others (see rule 3).

        Raises:
            StorageError: They are not in time, or some could not be.
        """
        self._outbox.flush(timeout_s)

    def close(self, timeout_s: float = TIMEOUT_S) -> None:
        """Hand everything to W&B, and finish the run if this sink has begun it. Errors as in `flush`."""
        atexit.unregister(self._at_exit)
        self._outbox.close(timeout_s)

    def statistics(self) -> DeliveryStatistics:
        """Return how many calls of `write` were delivered, and what was lost."""
        return self._outbox.statistics()

    # On the outbox's thread

    def _deliver(self, records: Sequence[Record]) -> None:
        problems: list[str] = []
        for moment in moments(records):
            self._held.append(self._row(moment, problems))
        self._advance()
        if problems:
            raise UnsendableError("; ".join(problems))

    def _row(self, moment: Moment, problems: list[str]) -> dict[str, Any]:
        steps = {self._prefix + name: number(at) for name, at in {STEP: moment.step, **moment.steps}.items()}
        values: dict[str, Any] = {}
        for tag, value in leaves(moment.values):
            try:
                values[tag] = encode(value)
            except (UnsendableError, MissingExtraError, ValueError, OverflowError) as error:
                problems.append(f"{tag!r}: {error}")
        for name in {**steps, **values}:
            if name in self._tags or "*" in name:  # W&B takes a star for a pattern
                continue
            axis = {"hidden": True} if name in steps else {"step_metric": self._prefix + STEP}
            self.run.define_metric(name, **axis)
            self._tags.add(name)
        return {**steps, **values}

    def _advance(self) -> None:
        """Log the rows that can be logged."""
        while self._held and (self._alone or self._fits(self._held[0])):
            row = self._held.popleft()
            self.run.log(row, commit=self._alone)
            if not self._alone:
                self._open_row |= row
                self._open_step = self.run.step  # asked behind the row: it is in this one, or in an earlier one

    def _fits(self, row: Mapping[str, Any]) -> bool:
        """Tell whether a row overwrites nothing that this sink has put into the one that is open."""
        if all(name not in self._open_row or _same(row[name], self._open_row[name]) for name in row):
            return True
        if self.run.step == self._open_step:
            return False
        self._open_row = {}
        return True

    def _settle(self) -> None:
        self._advance()
        if self._pushing:
            self._pushing = False
            self._let_go()

    def _let_go(self) -> None:
        """Close the row that is open, as often as something waits for that; W&B closes the last one at its end."""
        while self._held:
            self.run.log({}, commit=True)
            self._open_row = {}
            self._advance()

    def _end(self) -> None:
        try:
            self._advance()
            self._let_go()
        finally:
            if self._finishes:
                self.run.finish()

    def _at_exit(self) -> None:
        try:
            self.close()
        except StorageError as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=1)


def load() -> Any:
    """Load the package.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        import wandb
    except ImportError:
        raise MissingExtraError("wandb", extra="wandb", purpose="Logging to Weights & Biases") from None
    return wandb


def _same(one: Any, other: Any) -> bool:
    return isinstance(one, int | float | str) and isinstance(other, int | float | str) and one == other


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Go through the values of nested mappings by names with slashes."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}/")
        else:
            yield f"{prefix}{name}", value


def number(value: Any) -> int | float:
    """Return Python's own number for a real one of any library.

    Raises:
        UnsendableError: It is none.
    """
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, int):
        return value
    try:
        return float(value)
    except (TypeError, ValueError):
        raise UnsendableError(f"Expected a real number, got {type(value).__name__}") from None


def encode(value: Any) -> Any:
    """Return what W&B has for a value.

    Raises:
        UnsendableError: It has nothing.
        ValueError: It is no such image.
    """
    value = to_host(value)
    match value:
        case str():
            return value
        case Text():
            return value.value
        case Tensor():
            return encode(value.value)
        case Histogram():
            return _histogram(value)
        case Image():
            return _image(encode_png(value.value), value.caption)
        case Images():
            captions = value.captions or ("",) * len(value.value)
            return [_image(encode_png(one), told) for one, told in zip(value.value, captions, strict=True)]
        case Figure():
            return _image(value.data, "")
        case list() | tuple():
            return [encode(item) for item in value]
        case np.ndarray() if value.ndim and is_real(value.dtype):
            return _histogram(Histogram(value))
        case np.ndarray():
            raise UnsendableError(f"W&B has nothing for an array of {value.dtype}")
        case None:
            return None
    return number(value)


def _histogram(value: Histogram) -> Any:
    counts, edges = value.counts, value.edges
    together = math.ceil(len(counts) / MAX_BINS)  # W&B takes no more bins
    if together > 1:
        starts = np.arange(0, len(counts), together)
        counts, edges = np.add.reduceat(counts, starts), np.append(edges[starts], edges[-1])
    return load().Histogram(np_histogram=(counts.tolist(), edges.tolist()))


def _image(data: bytes, caption: str) -> Any:
    try:
        from PIL import Image as pillow
    except ImportError:
        raise MissingExtraError("pillow", extra="wandb", purpose="Logging images to Weights & Biases") from None
    with pillow.open(io.BytesIO(data)) as image:
        return load().Image(image, caption=caption or None)
