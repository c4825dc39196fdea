"""An alert: something that a person should know of a run, and how it is worded for them."""

from __future__ import annotations

import datetime
import math
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from sightglass.core.process.clock import spoken
from sightglass.core.redact import visible

Level: TypeAlias = Literal["info", "warning", "error"]
LEVELS: Final[tuple[Level, ...]] = get_args(Level)

VARIABLE: Final = "SIGHTGLASS_ALERT_URL"
"""The environment's variable with the addresses of receivers, one a line."""

MAX_TITLE: Final = 200  # characters; the subject of a mail
MAX_TEXT: Final = 10_000
LAST_S: Final = 4e9  # the year 2096: a clock that is beyond that is set wrong
LATE_S: Final = 10.0  # less is the usual way of a message


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a person should know of a run.

    A program that is a receiver gets these fields, as one object of JSON.

    Attributes:
        id: Its id: an alert that comes twice has the same one.
        title: What it is about, in a line.
        text: The details.
        level: How urgent it is: "info", "warning" or "error".
        run: The run's name.
        run_id: Its id.
        host: Its machine.
        wall_time: When it was raised, in seconds since the Unix epoch.
        step: The step of the training, if that is known.
        rule: The name of the rule that raised it; empty if the run raised it.
    """

    id: str
    title: str
    text: str = ""
    level: Level = "warning"
    run: str = ""
    run_id: str = ""
    host: str = ""
    wall_time: float = 0.0
    step: float | None = None
    rule: str = ""

    @classmethod
    def of(
        cls, id: str, title: str, text: str, *, level: Level, run: str, wall_time: float, step: object = None,
        **others: str,
    ) -> Alert:  # fmt: skip
        """Make an alert of what programs say: cut, in one line where that is meant, and in characters that exist."""
        return cls(
            id=id, title=_line(title)[:MAX_TITLE], text=_characters(text)[:MAX_TEXT], level=level, run=_line(run),
            wall_time=wall_time if math.isfinite(wall_time) else 0.0, step=_number(step),
            **{name: _line(one) for name, one in others.items()},
        )  # fmt: skip

    @property
    def subject(self) -> str:
        """The run and the title, in one line."""
        return f"{self.run}: {self.title}" if self.run else self.title

    def body(self, now: float) -> str:
        """Return the details, for people; an alert that comes late says so.

        Args:
            now: The time, in seconds since the Unix epoch.
        """
        at = datetime.datetime.fromtimestamp(max(0.0, min(self.wall_time, LAST_S))).astimezone()
        late = f", {spoken(now - self.wall_time)} late" if now - self.wall_time > LATE_S else ""
        lines = [
            f"{self.level} at {at:%Y-%m-%d %H:%M:%S %z}{late}",
            f"run {self.run} ({self.run_id}) on {self.host}" if self.run else "",
            "" if self.step is None else f"step {self.step:,.15g}",
            f"rule {self.rule}" if self.rule else "",
            f"alert {self.id}",
        ]
        return visible("\n\n".join(filter(None, [self.text, "\n".join(filter(None, lines))])))


def _characters(text: str) -> str:
    """Return a text that UTF-8 can encode: names of files may hold other bytes."""
    return text.encode("utf-8", "backslashreplace").decode()


def _line(text: str) -> str:
    return visible(" ".join(_characters(text).split()))


def _number(step: object) -> float | None:
    """Return a step as JSON has it; `None` for what is not a finite number."""
    try:
        number = float(step)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
