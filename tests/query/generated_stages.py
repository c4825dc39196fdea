"""Chains of stages grown from a seed, each with its answer in plain Python over the list of what happened.

Nothing of the package's evaluator is used. `Grown.answer` gives what all records say, in order, of a client who joins
before the event of a number: value, step and time, number of events, whether complete and closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final, NamedTuple

import numpy as np


class Event(NamedTuple):
    """A batch, an epoch, or the "end" of a group; `number` counts those of its name, `at` is its time in seconds."""

    what: str
    number: int
    step: int
    x: float
    at: float

    @property
    def w(self) -> Any:
        """An array that a batch has besides."""
        return np.array([self.x, -self.x, 2 * self.x + self.number])


Place = tuple[float, float]
"""Step and time."""
NOWHERE: Final = (np.nan, np.nan)


@dataclass
class Slot:
    """An item on its way: a value, or its place where a condition held it back or it was missed."""

    number: int
    place: Place
    value: Any = None
    passed: bool = True
    key: Any = None
    n_events: int = 1
    complete: bool = True
    closed: bool = True

    @property
    def shown(self) -> tuple[Any, ...]:
        """What its record says."""
        return self.value, self.place, self.n_events, self.complete, self.closed


@dataclass
class Mark:
    """A moment between items: "epoch", "end", "finish", the "time" of an event before it, or "after" an event.

    Attributes:
        place: Where the last group is from that it passed; `NOWHERE` at first.
        at: The time of the event.
    """

    what: str
    place: Place = NOWHERE
    event: Event | None = None
    at: float = 0.0


Token = Slot | Mark
Step = Callable[[Iterator[Token]], Iterator[Token]]


def values_of(slots: list[Slot]) -> list[Any]:
    return [slot.value for slot in slots]


REDUCED: Final[dict[str, Callable[[list[Slot]], Any]]] = {
    "count()": len,
    "sum()": lambda slots: sum(values_of(slots)),
    "mean()": lambda slots: sum(values_of(slots)) / len(slots),
    "var()": lambda slots: np.var(values_of(slots), axis=0),
    "min()": lambda slots: np.min(values_of(slots), axis=0),
    "max()": lambda slots: np.max(values_of(slots), axis=0),
    "first()": lambda slots: slots[0].value,
    "last()": lambda slots: slots[-1].value,
    "median()": lambda slots: float(np.median(values_of(slots))),
    "percentile(30)": lambda slots: float(np.quantile(values_of(slots), 0.3)),
    "quantile(0.3)": lambda slots: float(np.quantile(values_of(slots), 0.3)),
    "collect(3)": lambda slots: values_of(slots)[:3],
    "top(2)": lambda slots: sorted(values_of(slots), reverse=True)[:2],
    "distinct(3)": lambda slots: list(dict.fromkeys(values_of(slots)))[:3],
    "argmax()": lambda slots: extreme(max(slots, key=lambda slot: slot.value)),
    "argmin()": lambda slots: extreme(min(slots, key=lambda slot: slot.value)),
    "rate()": lambda slots: per_second([slot.place[1] for slot in slots]),
}
OF_NUMBERS: Final = tuple(REDUCED)[:9]
"""Those that give a number."""
OF_ARRAYS: Final = tuple(REDUCED)[:8]
"""Those that take arrays element by element."""


def extreme(slot: Slot) -> dict[str, float]:
    """Return what `argmax` and `argmin` give."""
    return {"step": slot.place[0], "value": slot.value}


def per_second(times: list[float]) -> float:
    """Return what `rate` gives."""
    return (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else np.nan


@dataclass
class Groups:
    """A reducer with a window.

    Attributes:
        n: The events of a window; 0 for other windows.
        seconds: The time of a window; 0 for other windows.
        mark: What closes it, or "after" for a condition, `closes`.
        by: Whether values are grouped by their keys.
    """

    name: str
    n: int = 0
    seconds: float = 0.0
    mark: str = ""
    closes: Callable[[Event], bool] = lambda event: False
    by: bool = False

    def __call__(self, tokens: Iterator[Token]) -> Iterator[Token]:
        held: list[Slot] = []
        place, number, touched, begun, complete, period = NOWHERE, 0, False, False, False, None
        for token in tokens:
            if isinstance(token, Slot):
                if not begun:
                    begun, number = True, token.number // self.n if self.n else 0
                    complete = token.number % self.n == 0 if self.n else token.number == 0
                complete = complete and token.complete
                if token.passed:
                    held.append(token)
                    place = token.place
                else:
                    touched = True
                    place = place if held or np.isnan(token.place[0]) else token.place
                if self.n and (token.number + 1) % self.n == 0:
                    yield self.result(token.number // self.n, place, held, complete, token.closed)
                    number, held, touched, complete = token.number // self.n + 1, [], False, True
                continue
            at_end = token.what == "finish"
            ends = token.what == self.mark and (token.event is None or self.closes(token.event))
            if token.what == "time" and self.seconds:
                ends, period = period is not None and token.at // self.seconds > period, token.at // self.seconds
            if ends or (at_end and (held or touched)):
                place = token.place if np.isnan(place[0]) else place
                closed = not at_end or self.mark == "finish"
                yield self.result(number, place, held, complete and closed, closed)
                number, held, touched, begun, complete = number + 1, [], False, True, True
            yield token if np.isnan(place[0]) else replace(token, place=place)

    def result(self, number: int, place: Place, slots: list[Slot], complete: bool, closed: bool) -> Slot:
        """Return a group."""
        n_events = sum(slot.n_events for slot in slots)
        result = Slot(number, place, None, False, None, n_events, complete, closed)
        if slots or (self.name == "count()" and not np.isnan(place[0])):
            reduce, result.passed = REDUCED[self.name], True
            if self.by:
                keys = dict.fromkeys(slot.key for slot in slots)
                result.value = {str(key): reduce([slot for slot in slots if slot.key == key]) for key in keys}
            else:
                result.value = reduce(slots)
        return result


def each(compute: Callable[[list[Slot]], Any], *, n_needed: int = 1) -> Step:
    """Return a stage that gives a value for each one, computed from all until then."""

    def run(tokens: Iterator[Token]) -> Iterator[Token]:
        seen: list[Slot] = []
        complete: bool | None = None
        for token in tokens:
            if isinstance(token, Slot):
                complete = (token.number == 0 if complete is None else complete) and token.complete
                if token.passed:
                    seen.append(token)
                    passed = len(seen) >= n_needed
                    token = replace(token, value=compute(seen) if passed else None, passed=passed, complete=complete)
                    complete = complete or n_needed > 1
                else:
                    token = Slot(token.number, token.place, passed=False, complete=token.complete, closed=token.closed)
            yield token

    return run


def sliding_window(name: str, *, n: int = 0, seconds: float = 0.0) -> Step:
    """Return a reducer over the last values."""

    def run(tokens: Iterator[Token]) -> Iterator[Token]:
        seen: list[Slot] = []
        gap: tuple[int, float] | None = None
        for token in tokens:
            if isinstance(token, Slot):
                at = token.place[1]
                gap = (token.number - 1, at) if gap is None else (gap[0], at if np.isnan(gap[1]) else gap[1])
                gap = gap if token.complete else (token.number, at)
                if token.passed:
                    seen.append(token)
                    inside = seen[-n:] if n else [slot for slot in seen if slot.place[1] > at - seconds]
                    full = len(inside) == n and inside[0].number > gap[0] if n else gap[1] <= at - seconds
                    n_events = sum(slot.n_events for slot in inside)
                    token = replace(token, value=REDUCED[name](inside), n_events=n_events, complete=full)
                else:
                    token = Slot(token.number, token.place, passed=False, complete=token.complete, closed=token.closed)
            yield token

    return run


def average(alpha: float) -> Callable[[list[Slot]], Any]:
    """Return the exponential moving average of some values."""

    def compute(slots: list[Slot]) -> Any:
        found = slots[0].value
        for slot in slots[1:]:
            found = found + alpha * (slot.value - found)
        return found

    return compute


Pair = tuple[Event, Event]
"""A batch, and the epoch before it; without a join, the batch itself."""

MAPS: Final[tuple[tuple[str, Callable[[Pair], Any]], ...]] = (
    ("b.x", lambda pair: pair[0].x),
    ("b.x * 2 - 1", lambda pair: pair[0].x * 2 - 1),
    ("b.x + b.step", lambda pair: pair[0].x + pair[0].step),
    ("maximum(b.x, 0.5)", lambda pair: max(pair[0].x, 0.5)),
    ("abs(b.x).sqrt().round(2)", lambda pair: float(np.round(np.sqrt(abs(pair[0].x)), 2))),
    ("b.event.index + b.x", lambda pair: pair[0].number + pair[0].x),
    ("b.w.max() - b.w[0]", lambda pair: pair[0].w.max() - pair[0].x),
)
ARRAYS: Final[tuple[tuple[str, Callable[[Pair], Any]], ...]] = (
    ("b.w", lambda pair: pair[0].w),
    ("b.w * 2 + b.x", lambda pair: pair[0].w * 2 + pair[0].x),
)
JOINED: Final[tuple[tuple[str, Callable[[Pair], Any]], ...]] = (
    ("b.epoch.acc", lambda pair: pair[1].x),
    ("b.x * b.epoch.acc", lambda pair: pair[0].x * pair[1].x),
    ("b.x - b.epoch.step + b.epoch.event.index", lambda pair: pair[0].x),
    ("b.w.sum() + b.epoch.acc - b.step", lambda pair: pair[0].w.sum() + pair[1].x - pair[0].step),
    ("b.event.wall_time - b.epoch.event.wall_time", lambda pair: pair[0].at - pair[1].at),
)
JOINED_ARRAYS: Final[tuple[tuple[str, Callable[[Pair], Any]], ...]] = (
    ("b.w * b.epoch.acc", lambda pair: pair[0].w * pair[1].x),
)


@dataclass
class Grown:
    """A query with its answer.

    Attributes:
        text: The query.
        joins: Whether it joins the epochs.
        kinds: The kinds of stages that it has.
    """

    text: str
    joins: bool
    steps: list[Step]
    value: Callable[[Pair], Any]
    condition: Callable[[Pair], bool]
    key: Callable[[Pair], Any]
    kinds: list[str] = field(default_factory=list)

    def answer(self, events: Sequence[Event], first: int) -> list[tuple[Any, ...]]:
        """Return what the records say of who joins before `events[first]`."""
        tokens: Iterator[Token] = self.tokens(events, first)
        for step in self.steps:
            tokens = step(tokens)
        return [token.shown for token in tokens if isinstance(token, Slot) and token.passed]

    def tokens(self, events: Sequence[Event], first: int) -> Iterator[Token]:
        """Yield what the first stage gets."""
        lost = any(event.what == "epoch" for event in events[:first])
        known = any(event.what == "batch" for event in events[:first])
        epoch: Event | None = None
        for event in events[first:]:
            if event.what != "batch":
                epoch = event if event.what == "epoch" else epoch
                if known or event.what == "epoch":  # the run does not know what to end before the first batch
                    yield Mark(event.what)
                continue
            known = True
            yield Mark("time", at=event.at)
            place = (float(event.step), event.at)
            if self.joins and epoch is None:
                yield Slot(event.number, NOWHERE if lost else place, passed=False, complete=not lost)
                continue
            pair = (event, epoch or event)
            passed = self.condition(pair)
            yield Slot(event.number, place, self.value(pair) if passed else None, passed, self.key(pair))
            yield Mark("after", event=event)
        yield Mark("finish")


def grow(seed: int) -> Grown:
    """Write a query."""
    random = Random(seed)
    joins, arrays = not random.randrange(3), not random.randrange(5)
    maps = (JOINED_ARRAYS if arrays else JOINED) if joins else ARRAYS if arrays else MAPS
    low, of_epoch = random.choice((-9, -0.5, 0.5, 2)), joins and not random.randrange(2)
    text, value = random.choice(maps)
    chain = f".map(lambda b: {text})"
    if random.randrange(2):
        chain = f".where(lambda b: {'b.epoch.acc' if of_epoch else 'b.x'} > {low}){chain}"
    else:
        low = -99
    steps: list[Step] = []
    kinds: list[str] = ["join"] * joins + ["arrays"] * arrays
    by = False
    for place_ in range(random.choice((0, 1, 1, 2, 2, 3))):
        name = random.choice(OF_ARRAYS if arrays else OF_NUMBERS if random.randrange(3) else tuple(REDUCED))
        kind = random.choice(("group", "group", "rolling", "ema", "diff" if arrays else "scan", "diff"))
        kinds.append(kind)
        if kind == "group":
            by = place_ == 0 and not random.randrange(4)
            written, made = windowed(random, name, by=by, joins=joins)
            chain += written
            steps.append(made)
            kinds += ["time"] * bool(made.seconds)
        else:
            written, step = sliding(random, kind, name)
            chain += written
            steps.append(step)
        if by or (kind in ("group", "rolling") and name not in OF_NUMBERS):
            break
        arrays = arrays and not (kind in ("group", "rolling") and name == "count()")
    begin = "on('batch').join('epoch')" if joins else "on('batch')"
    return Grown(
        begin + chain, joins, steps, value,
        lambda pair: pair[of_epoch].x > low, lambda pair: (pair[1] if joins else pair[0]).step % 3, kinds,
    )  # fmt: skip


def windowed(random: Random, name: str, *, by: bool, joins: bool) -> tuple[str, Groups]:
    """Write a reducer with a window."""
    n, low, seconds = random.choice((1, 2, 3, 7)), random.choice((0, 1, 2.5)), random.choice((2, 5, 30))
    written, made = random.choice((
        (f"every={n}", Groups(name, n=n, by=by)),
        (f"every='{seconds} s'", Groups(name, seconds=seconds, by=by)),
        ("per='epoch'", Groups(name, mark="epoch", by=by)),
        ("per='run'", Groups(name, mark="finish", by=by)),
        ("", Groups(name, mark="end", by=by)),
        (f"when=lambda b: b.x > {low}", Groups(name, mark="after", closes=lambda event: event.x > low, by=by)),
    ))  # fmt: skip
    key = f"by=lambda b: b.{'epoch.' * joins}step % 3" if by else ""
    args = [part for part in (name[name.index("(") + 1 : -1], key, written) if part]
    return f".{name[: name.index('(')]}({', '.join(args)})", made


def sliding(random: Random, kind: str, name: str) -> tuple[str, Step]:
    """Write a stage that gives a value for each one."""
    n, seconds, alpha = random.choice((1, 2, 5, 300)), random.choice((2, 5, 30)), random.choice((0.1, 0.5, 1.0))
    match kind:
        case "rolling" if random.randrange(2):
            return f".rolling('{seconds} s').{name}", sliding_window(name, seconds=seconds)
        case "rolling":
            return f".rolling({n}).{name}", sliding_window(name, n=n)
        case "scan":
            return ".scan(lambda total, x: total + x, 0.0)", each(lambda slots: sum(values_of(slots)))
        case "ema":
            return f".ema({alpha})", each(average(alpha))
    return ".diff()", each(lambda slots: slots[-1].value - slots[-2].value, n_needed=2)
