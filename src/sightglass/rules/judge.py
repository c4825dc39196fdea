"""When a rule tells of a run: a state machine without clocks, files and runs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from .rules import CheckedRule


@dataclass(slots=True)
class RuleInRun:
    """A rule in one run.

    A condition tells once, after it has held for long enough, and again after it has not held in between. What is
    momentary tells each time. In both cases, not earlier than `wait_s` after the last alert.

    Attributes:
        rule: The rule.
        n_evaluated: How often the condition was evaluated.
        last: The last value that it was about.
        since_s: Since when it holds, on the watcher's clock; `None` while it does not.
        is_told: Whether it was told that it holds.
        told_s: When it was last told.
        n_told: How often it was told.
        since_wall_time: What happened until then was seen by an earlier watcher, in seconds since the Unix epoch.
    """

    rule: CheckedRule
    n_evaluated: int = 0
    last: Any = None
    since_s: float | None = None
    is_told: bool = False
    told_s: float = -math.inf
    n_told: int = 0
    since_wall_time: float = -math.inf

    def saw(self, holds: bool, about: Any, now_s: float) -> bool:
        """Take in an evaluation; return whether it has just become time to tell."""
        self.n_evaluated += 1
        self.last = about
        if holds:
            self.since_s = now_s if self.since_s is None else self.since_s
        else:
            self.since_s, self.is_told = None, False
        return self.is_due(now_s)

    def is_due(self, now_s: float) -> bool:
        """Return whether it is time to tell; then it counts as told."""
        if self.since_s is None or self.is_told:
            return False
        if now_s - self.since_s < self.rule.for_s or now_s - self.told_s < self.rule.wait_s:
            if self.rule.momentary:
                self.since_s = None  # it is over already, and was not told
            return False
        self.told_s, self.n_told = now_s, self.n_told + 1
        self.is_told = not self.rule.momentary
        if self.rule.momentary:
            self.since_s = None
        return True
