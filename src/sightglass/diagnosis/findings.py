"""What looks wrong: a table of checks, each a pure judgement over `Evidence`, with the figures that it rests on.

Rule 1: no finding without figures.
Rule 2: a healthy training has no findings. Limits are wide enough for curves that are noisy, slow or converged.
Rule 3: of one kind there is one finding, about the first case; `also` has the queries of the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Final, Literal, TypeAlias

import msgspec
import numpy as np

from sightglass.core.process.clock import spoken
from sightglass.storage.read.run_totals import Odd

from .evidence import Curve, Evidence, Numbers, Role

Level: TypeAlias = Literal["error", "warning"]
Figure: TypeAlias = float | str

N_TREND: Final = 40  # points that show a trend: 20 parts of two
N_PARTS: Final = 20
N_PLATEAU: Final = 100
LEARNED_GAIN: Final = 0.3  # of what the loss began with; who loses most of that diverges
PLATEAU_GAIN: Final = 0.1  # of it; who gains less, and does not go on, has a plateau
STILL: Final = 0.02  # of it: a smaller change over half a training counts as standing still
CONVERGED: Final = 0.05  # of it: gradients are small there
EXPLODED: Final = 100.0  # times as large as before
SPIKE: Final = 1e4  # the same for a single one: those of clipped gradients are smaller
VANISHED: Final = 1e-4  # times as large as at first
UNEVEN: Final = 1e-5  # times as large as in another layer
NOTHING: Final = 1e-7  # a norm that changes no parameter of float32
MAX_DEAD: Final = 0.5
MAX_WAITING: Final = 0.3
SLOWER: Final = 1.5  # times as long as at first
SLOWER_S: Final = 5.0  # that it cost so far
GROWN: Final = 0.2  # of the memory
GROWN_GB: Final = 0.2
FULL_PERCENT: Final = 95.0
IDLE_PERCENT: Final = 20.0
N_SAMPLES: Final = 12  # of the machine: two minutes
MAX_ALSO: Final = 10


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that looks wrong in a run.

    Attributes:
        kind: Which check found it, such as "nan": the same word in each run.
        level: "error" where the training is lost or over, else "warning".
        text: What it is, in a sentence with its figures.
        figures: The figures by name.
        query: The query that shows it, for `stream`, `ask` and the page; empty if it is about no series.
        step: Where it is, if that is known.
        wall_time: When, in seconds since the Unix epoch.
        detail: More of it, such as the stack of a run that is quiet; the innermost call comes last.
        also: The queries of further series of which the same is true, at most ten.
    """

    kind: str
    level: Level
    text: str
    figures: Mapping[str, Figure]
    query: str = ""
    step: float | None = None
    wall_time: float | None = None
    detail: str = ""
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What a check found; the fields are those of `Finding`."""

    text: str
    figures: Mapping[str, Figure]
    query: str = ""
    step: float | None = None
    wall_time: float | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One row of the table.

    Attributes:
        kind: Its name.
        level: That of its findings.
        looks_for: What it looks for, as the documentation says it.
        judge: Yields what it finds.
        of: The series that it needs; without any, it says nothing about a run.
    """

    kind: str
    level: Level
    looks_for: str
    judge: Callable[[Evidence], Iterator[Case]]
    of: Role | None = None


def judge(evidence: Evidence) -> list[Finding]:
    """Return what looks wrong, in order."""
    found = []
    for check in CHECKS:
        cases = list(check.judge(evidence))
        if cases:
            also = tuple(case.query for case in cases[1:] if case.query)[:MAX_ALSO]
            found.append(Finding(kind=check.kind, level=check.level, also=also, **asdict(cases[0])))
    return in_order(found)


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings in their order: errors first, then as in the table."""
    kinds = [check.kind for check in CHECKS]
    return sorted(findings, key=lambda one: (one.level != "error", kinds.index(one.kind)))


def not_judged(evidence: Evidence) -> list[str]:
    """Return the kinds of findings of which nothing can be said: no series that they need is recorded."""
    return [check.kind for check in CHECKS if check.of is not None and not evidence.curves.get(check.of)]


# How the run is.


def _ended(evidence: Evidence) -> Iterator[Case]:
    about, ending = evidence.description, evidence.description.ending
    if about.state in ("failed", "died", "terminated"):
        frames = [f'  File "{frame.file}", line {frame.line}, in {frame.function}' for frame in ending.frames]
        why = "" if str(ending) else ": its process is gone, and did not say why"
        ran_s = about.wall_time - about.started
        yield Case(
            text=f"It {about.sentence}{why}", figures={"ran_s": ran_s}, wall_time=about.wall_time or None,
            detail="\n".join([*frames, ending.error]) if frames else "",
        )  # fmt: skip


def _quiet(evidence: Evidence) -> Iterator[Case]:
    about, stacks = evidence.description, evidence.stacks
    if about.state == "quiet":
        ages = [event.age_s for event in about.events.values() if event.age_s is not None]
        where = f"; it is {stacks.summary()}" if stacks is not None else ""
        main = stacks and msgspec.structs.replace(stacks, threads=[one for one in stacks.threads if one.main])
        yield Case(
            text=f"It is {about.sentence}{where}", figures={"age_s": min(ages, default=0.0)},
            detail=str(main or ""),
        )  # fmt: skip


def _refused(evidence: Evidence) -> Iterator[Case]:
    failed = [entry for entry in evidence.history if entry.error]
    if failed:
        last, n = failed[-1], sum(entry.kind != "alert" for entry in evidence.history)
        yield Case(
            text=f"{len(failed)} of {n} commands failed, the last one, {last.kind} {last.name}: {last.error}",
            figures={"failed": len(failed), "commands": n}, step=float(last.step), wall_time=last.wall_time or None,
        )  # fmt: skip


def _lost(evidence: Evidence) -> Iterator[Case]:
    for where, text in evidence.description.failures.items():
        yield Case(text=f"Failed in {where}: {text}", figures={"where": where})
    if evidence.n_damaged:
        text = f"Its files are damaged in {evidence.n_damaged} places: `sightglass check` says where"
        yield Case(text=text, figures={"places": evidence.n_damaged})
    for stream in evidence.description.streams:
        if stream.recorded and stream.n_dropped:
            text = f"{stream.n_dropped:,} records of {stream.query} came too fast to be recorded"
            yield Case(text=text, figures={"dropped": stream.n_dropped}, query=stream.query)


def _query_fails(evidence: Evidence) -> Iterator[Case]:
    for stream in evidence.description.streams:
        if stream.last_error:
            figures = {"failed": stream.n_errors + stream.n_failures, "events": stream.n_events}
            yield Case(text=f"{stream.query}: {stream.last_error}", figures=figures, query=stream.query)


# What it recorded.


def _odd(what: Odd, name: str) -> Callable[[Evidence], Iterator[Case]]:
    def judged(evidence: Evidence) -> Iterator[Case]:
        odd = evidence.odd.get(what)
        if odd is not None:
            yield Case(
                text=f"The first {name} is in {odd.tag}, at step {_step(odd.step)}", figures={"step": odd.step},
                query=odd.query, step=odd.step, wall_time=odd.wall_time,
            )  # fmt: skip

    return judged


def _divergence(evidence: Evidence) -> Iterator[Case]:
    for curve in _long(evidence, "loss"):
        parts, first = curve.parts(N_PARTS), _first(curve)
        at, last = int(np.argmin(curve.means)), float(parts[-1])
        gain, rise = parts[0] - parts.min(), parts[-2:] - parts.min()
        doubled = last > first + max(abs(first), 6 * curve.noise)
        unlearned = gain > LEARNED_GAIN * abs(parts[0]) and rise[1] > 0.8 * gain and rise[0] > 0.5 * gain
        if rise[1] > 6 * curve.noise and (doubled or unlearned):
            best = float(curve.means[at])
            yield _case(
                curve, {"first": first, "best": best, "last": last}, at,
                text=f"{curve.tag} rose from {best:.4g} at step {_step(curve.steps[at])} to {last:.4g};"
                f" it began at {first:.4g}",
            )  # fmt: skip


def _plateau(evidence: Evidence) -> Iterator[Case]:
    for curve in _long(evidence, "loss"):
        parts, first = curve.parts(N_PARTS), _first(curve)
        before, last = float(parts[5:10].mean()), float(parts[15:].mean())
        gains = first - float(parts.min()) >= PLATEAU_GAIN * abs(first)
        if curve.n < N_PLATEAU or first == 0 or gains or abs(last - before) > max(STILL * abs(first), curve.noise):
            continue
        yield _case(
            curve, {"first": first, "last": last, "n": curve.n},
            text=f"{curve.tag} has not fallen: it began at {first:.4g} and is {last:.4g} after {curve.n:,} records",
        )  # fmt: skip


def _exploding(evidence: Evidence) -> Iterator[Case]:
    for curve in _long(evidence, "gradients"):
        parts, at = curve.parts(N_PARTS), int(np.argmax(curve.highest))
        early, last, most = float(np.median(parts[: N_PARTS // 2])), float(parts[-1]), float(curve.highest[at])
        # At first all are large: what counts is a spike after others.
        before = float(np.median(curve.means[:at])) if at >= len(curve.means) // N_PARTS else most
        if (early > 0 and last > EXPLODED * early) or (before > 0 and most > SPIKE * before):
            usual = min(early, before)
            yield _case(
                curve, {"before": usual, "highest": most, "last": last}, at,
                text=f"{curve.tag} is {most:.4g} at step {_step(curve.steps[at])}; before, it was {usual:.4g}",
            )  # fmt: skip


def _vanishing(evidence: Evidence) -> Iterator[Case]:
    losses, curves = _long(evidence, "loss"), _long(evidence, "gradients")
    if any(abs(loss.parts(N_PARTS)[-1]) < CONVERGED * abs(_first(loss)) for loss in losses):
        return
    firsts, lasts = ([float(curve.parts(N_PARTS)[at]) for curve in curves] for at in (0, -1))
    for curve, first, last in zip(curves, firsts, lasts, strict=True):
        if first > 0 and (last < NOTHING or (losses and last < VANISHED * first)):
            text = f"{curve.tag} went from {first:.4g} to {last:.4g}, and the loss did not go with it"
            yield _case(curve, {"first": first, "last": last}, text=text)
    layers = [i for i, last in enumerate(lasts) if last > 0]
    least, most = (by(layers, key=lasts.__getitem__, default=0) for by in (min, max))
    if layers and lasts[least] < UNEVEN * lasts[most]:
        text = f"{curves[least].tag} is {lasts[least]:.4g}, and {curves[most].tag} is {lasts[most]:.4g}"
        yield _case(curves[least], {"least": lasts[least], "most": lasts[most]}, text=text)


def _dead(evidence: Evidence) -> Iterator[Case]:
    for curve in evidence.curves.get("dead units", ()):
        unit = 0.01 if "percent" in curve.tag else 1.0
        last, most = float(curve.means[-(len(curve.means) // N_PARTS + 1) :].mean()) * unit, curve.highest.max() * unit
        if last > MAX_DEAD and most <= 1:  # a count does not say of how many
            yield _case(curve, {"share": last}, text=f"{last:.0%} of the units are dead ({curve.tag})")


def _slower(evidence: Evidence) -> Iterator[Case]:
    for curve in _long(evidence, "progress"):
        parts = np.array([np.median(part) for part in np.array_split(curve.intervals_s, 10)])
        first, last = float(np.median(parts[1:4])), float(np.median(parts[-3:]))
        cost_s = (last - first) * 0.3 * curve.n
        if first > 0 and last > SLOWER * first and cost_s > SLOWER_S and _trend(parts[1:]) > 0.7:
            yield _case(
                curve, {"first_s": first, "last_s": last},
                text=f"Steps take longer and longer: {spoken(last)} each, at first {spoken(first)} (by {curve.tag})",
            )  # fmt: skip


def _waiting(evidence: Evidence) -> Iterator[Case]:
    for curve in _long(evidence, "data"):
        late = slice(len(curve.intervals_s) // 2, None)
        unit = 1e-3 if curve.tag.lower().endswith("ms") else 1.0
        data_s, step_s = float(np.median(curve.means[late])) * unit, float(np.median(curve.intervals_s[late]))
        if MAX_WAITING * step_s < data_s <= 1.5 * step_s:  # more is another unit
            yield _case(
                curve, {"data_s": data_s, "step_s": step_s},
                text=f"It waits for data for {spoken(data_s)} of the {spoken(step_s)} of a step ({curve.tag})",
            )  # fmt: skip


# What its machine does.


def _memory_grows(evidence: Evidence) -> Iterator[Case]:
    for curve in evidence.machine(r"system\.process_memory_gb"):
        start = len(curve.means) // 3  # caches fill at first
        used, hours = curve.means[start:], (curve.times[start:] - curve.times[start]) / 3600
        if len(used) < N_SAMPLES or hours[-1] <= 0:
            continue
        rate, first, last = float(np.polyfit(hours, used, 1)[0]), float(used[0]), float(used[-1])
        grown = rate * float(hours[-1])
        if grown > max(GROWN_GB, GROWN * first) and _correlation(hours, used) > 0.95:
            yield _case(
                curve, {"gb_an_hour": rate, "first_gb": first, "last_gb": last},
                text=f"The process takes {last:.3g} GB of memory, {rate:.3g} GB more each hour",
            )  # fmt: skip


def _full(what: str, name: str) -> Callable[[Evidence], Iterator[Case]]:
    def judged(evidence: Evidence) -> Iterator[Case]:
        for curve in evidence.machine(rf"system\.{what}_percent"):
            last = float(curve.means[-1])
            if last >= FULL_PERCENT:
                yield _case(curve, {"percent": last}, text=f"{name} is {last:.0f} % full")

    return judged


def _idle(evidence: Evidence) -> Iterator[Case]:
    for curve in evidence.machine(r"system\.gpu\d+_percent"):
        late = curve.means[len(curve.means) // 2 :]
        used = float(late.mean())
        if len(late) >= N_SAMPLES // 2 and used < IDLE_PERCENT:
            gpu = re.sub(r"\D", "", curve.tag)
            yield _case(curve, {"percent": used}, text=f"GPU {gpu} is used {used:.0f} % of the time")


CHECKS: Final = (
    Check(kind="ended", level="error", judge=_ended, looks_for="an exception, a signal, a process that is gone"),
    Check(kind="quiet", level="error", judge=_quiet, looks_for="no event for ten times as long as usual"),
    Check(kind="nan", level="error", judge=_odd("nan", "NaN"), looks_for="the first NaN in recorded numbers"),
    Check(
        kind="infinity", level="warning", judge=_odd("infinity", "infinity"),
        looks_for="the first infinity in recorded numbers",
    ),
    Check(
        kind="divergence", level="error", judge=_divergence, of="loss",
        looks_for="a loss that is twice what it began with, or has lost what it had gained",
    ),
    Check(
        kind="plateau", level="warning", judge=_plateau, of="loss",
        looks_for="a loss that has not fallen by a tenth, and stands still",
    ),
    Check(
        kind="exploding", level="error", judge=_exploding, of="gradients",
        looks_for="norms of gradients that are 100 times as large as before",
    ),
    Check(
        kind="vanishing", level="warning", judge=_vanishing, of="gradients",
        looks_for="norms of gradients that go to nothing although the loss does not, or in one layer alone",
    ),
    Check(
        kind="dead units", level="warning", judge=_dead, of="dead units",
        looks_for="a share of dead units above a half, where you log it",
    ),
    Check(
        kind="slower", level="warning", judge=_slower, of="progress",
        looks_for="steps that take 1.5 times as long as at first, and more and more",
    ),
    Check(
        kind="waiting for data", level="warning", judge=_waiting, of="data",
        looks_for="a time for data above 30 % of a step, where you log it",
    ),
    Check(
        kind="memory grows", level="warning", judge=_memory_grows, of="machine",
        looks_for="a process that takes more and more memory",
    ),
    Check(
        kind="memory full", level="warning", judge=_full("memory", "The memory of the machine"), of="machine",
        looks_for="95 % of the machine's memory in use",
    ),
    Check(
        kind="disk full", level="warning", judge=_full("disk", "The disk"), of="machine",
        looks_for="95 % of the disk in use",
    ),
    Check(
        kind="gpu idle", level="warning", judge=_idle, of="machine",
        looks_for="a GPU that is used less than 20 % of the time",
    ),
    Check(kind="commands refused", level="warning", judge=_refused, looks_for="commands that failed"),
    Check(kind="records lost", level="warning", judge=_lost, looks_for="what was not recorded, and damaged files"),
    Check(kind="query fails", level="warning", judge=_query_fails, looks_for="queries that cannot be computed"),
)  # fmt: skip
"""All checks, in the order of their weight."""


def _case(curve: Curve, figures: Mapping[str, Figure], at: int = -1, *, text: str) -> Case:
    """Return a case that a curve shows, at one of its points."""
    step, wall_time = float(curve.steps[at]), float(curve.times[at])
    return Case(text=text, figures=figures, query=curve.query, step=step, wall_time=wall_time)


def _long(evidence: Evidence, role: Role) -> list[Curve]:
    """Return the curves that have enough points for a trend."""
    return [curve for curve in evidence.curves.get(role, ()) if len(curve.means) >= N_TREND]


def _first(curve: Curve) -> float:
    """Return what a loss began with: it may fall within the first part, and its first value is noisy."""
    return float(max(curve.means[0] - 3 * curve.noise, curve.parts(N_PARTS)[0]))


def _trend(values: Numbers) -> float:
    """Return the rank correlation of values with their places."""
    return _correlation(np.arange(len(values)).astype(np.float64), np.argsort(np.argsort(values)).astype(np.float64))


def _correlation(one: Numbers, other: Numbers) -> float:
    return float(np.corrcoef(one, other)[0, 1]) if one.std() and other.std() else 0.0


def _step(step: float) -> str:
    return f"{step:,.15g}"
