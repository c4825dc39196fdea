"""Rules of alerts, as a file has them.

states = ["crashed", "stuck", "silent", "failed"]   # of all runs; these are the default

[[rule]]
name = "the loss explodes"
when = "batch.loss > 10"      # a condition, see `query.condition`
runs = "sweep-*"              # names of runs; by default all
for = "5 min"                 # how long it must hold; by default not at all
wait = "10 min"               # at least so long between two alerts of a run
level = "error"               # "info", "warning" or "error"
then = "stop"                 # or "pause", or "lr=0.001": where the run allows it, see `Limits.alerts_may`
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

import msgspec

from sightglass.alerts.alert import Level
from sightglass.core.description import parse_value
from sightglass.core.errors import AlertError, QueryError, unknown
from sightglass.core.process.clock import duration
from sightglass.query.condition import as_condition
from sightglass.query.parser import as_query
from sightglass.query.query import Query
from sightglass.query.stages import Where

State: TypeAlias = Literal["crashed", "stuck", "silent", "failed"]
STATES: Final[tuple[State, ...]] = get_args(State)
MAX_RULES: Final = 100


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"for_": "for"}):
    """One rule as it is written; see the top of this module."""

    name: str
    when: str
    runs: str = "*"
    for_: str = ""
    wait: str = "10 min"
    level: Level = "warning"
    then: str = ""


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    states: tuple[State, ...] = STATES
    rule: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRule:
    """A rule that was checked.

    Attributes:
        name: Its name.
        key: What is the same only for a rule of the same text.
        level: The level of its alerts.
        for_s: How many seconds the condition must hold.
        wait_s: How many seconds there are at least between two alerts of a run.
        momentary: Whether it tells what happened, and not what holds until it holds no more.
        runs: A pattern of the names of runs.
        query: The condition; `None` of a state.
        when: Its text.
        then: The command: its kind, its name and its value; `None` for none.
    """

    name: str
    key: str
    level: Level = "error"
    for_s: float = 0.0
    wait_s: float = 0.0
    momentary: bool = False
    runs: str = "*"
    query: Query | None = None
    when: str = ""
    then: tuple[str, str, object] | None = None


def read_rules(path: Path) -> list[CheckedRule]:
    """Read a file of rules; those of states come first.

    Raises:
        AlertError: The file cannot be read, or a rule is not valid.
    """
    try:
        file = msgspec.toml.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise AlertError(f"Cannot read the rules in {str(path)!r}: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise AlertError(f"The rules in {str(path)!r} are not valid: {error}") from None
    if len(file.rule) > MAX_RULES:
        raise AlertError(f"Expected at most {MAX_RULES} rules, got {len(file.rule)}")
    names = [rule.name for rule in file.rule]
    if twice := {name for name in names if names.count(name) > 1 or name in STATES}:
        raise AlertError(f"Expected a name of its own for each rule, got {sorted(twice)} twice")
    states = [CheckedRule(name=state, key=state) for state in dict.fromkeys(file.states)]
    return [*states, *map(_checked, file.rule)]


def _checked(rule: Rule) -> CheckedRule:
    try:
        plain = as_query(rule.when)
        momentary = bool(plain.stages) and isinstance(plain.stages[-1], Where)
        if momentary and rule.for_:
            raise ValueError("What ends in `where` holds for a moment: leave `for` out")
        return CheckedRule(
            name=rule.name, key=hashlib.blake2b(msgspec.json.encode(rule), digest_size=4).hexdigest(),
            level=rule.level, for_s=duration(rule.for_) if rule.for_ else 0.0,
            wait_s=duration(rule.wait) if rule.wait not in ("", "0") else 0.0, runs=rule.runs,
            momentary=momentary,
            query=as_condition(plain), when=rule.when, then=_command(rule.then),
        )  # fmt: skip
    except (QueryError, ValueError) as error:
        raise AlertError(f"Rule {rule.name!r}: {error}") from None


def _command(text: str) -> tuple[str, str, object] | None:
    """Read what follows an alert."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if equals and name:
        return "set", name, parse_value(value)
    if text not in ("", "stop", "pause"):
        raise ValueError(f"{unknown('command', text, ('stop', 'pause'))}; or NAME=VALUE sets a control")
    return (text, "", None) if text else None


def is_meant(rule: CheckedRule, run: str) -> bool:
    """Return whether a rule is for a run of this name."""
    return fnmatchcase(run, rule.runs)
