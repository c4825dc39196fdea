"""Completions of a language model that is trained by rewards: what the reward functions saw and returned.

TRL passes them to reward functions, and to nothing else that is public; so these are wrapped.
"""

from __future__ import annotations

import functools
import inspect
import json
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from sightglass.core.errors import warn
from sightglass.core.program_values.guarded import FAILURES, message
from sightglass.core.table import Table
from sightglass.core.values import array_kind, to_host

MAX_ROWS: Final = 100  # of a table: a person reads no more, and texts are long


@dataclass(slots=True, kw_only=True)
class RewardedBatch:
    """What the reward functions got and returned at one time.

    Attributes:
        prompts: The prompts, a text each.
        completions: As many completions.
        rewards: By the name of each function as many numbers, NaN for what it did not judge.
        given: The program's own list of completions, by which the functions' calls are known to belong together.
    """

    prompts: list[str]
    completions: list[str]
    rewards: dict[str, list[float]] = field(default_factory=dict)
    given: object = None


class KeptCompletions:
    """Keeps what reward functions see and return, until it is taken."""

    def __init__(self) -> None:
        self._names: Counter[str] = Counter()
        self._warned = False
        self._new: list[RewardedBatch] = []
        self._rows: deque[tuple[str, str, dict[str, float]]] = deque(maxlen=MAX_ROWS)

    def kept(self, function: Any) -> Any:
        """Return a reward function that does the same, and keeps what it sees and returns; a model stays as it is."""
        if isinstance(function, str) or hasattr(function, "forward") or not callable(function):
            return function
        name = str(getattr(function, "__name__", type(function).__name__))
        self._names[name] += 1
        name += f"_{self._names[name]}" if self._names[name] > 1 else ""
        if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__):

            @functools.wraps(function)
            async def keep_async(*arguments: Any, **named: Any) -> Any:
                rewards = await function(*arguments, **named)
                self._keep(name, rewards, *arguments, **named)
                return rewards

            keep_async.__name__ = name
            return keep_async

        @functools.wraps(function)
        def keep(*arguments: Any, **named: Any) -> Any:
            rewards = function(*arguments, **named)
            self._keep(name, rewards, *arguments, **named)
            return rewards

        keep.__name__ = name  # by which TRL logs it, also if it is an object that has none
        return keep

    def take(self) -> dict[str, Any]:
        """Return what is new, as the observables of an event; empty if nothing is."""
        batches, self._new = self._new, []
        for batch in batches:
            for i, pair in enumerate(zip(batch.prompts, batch.completions, strict=True)):
                self._rows.append((*pair, {name: found[i] for name, found in batch.rewards.items()}))
        if not batches:
            return {}
        names = dict.fromkeys(name for batch in batches for name in batch.rewards)
        return {
            "prompts": [text for batch in batches for text in batch.prompts],
            "completions": [text for batch in batches for text in batch.completions],
            "rewards": {
                name: np.array(
                    [reward for one in batches for reward in one.rewards.get(name, [np.nan] * len(one.completions))]
                )
                for name in names
            },
        }

    def table(self) -> Table | None:
        """Return the newest completions since the last call, with a row for each; `None` without any."""
        self.take()
        rows, self._rows = self._rows, deque(maxlen=MAX_ROWS)
        if not rows:
            return None
        names = dict.fromkeys(name for _, _, rewards in rows for name in rewards)
        columns: dict[str, Any] = {"prompt": [row[0] for row in rows], "completion": [row[1] for row in rows]}
        return Table(columns | {name: np.array([row[2].get(name, np.nan) for row in rows]) for name in names})

    def _keep(self, name: str, rewards: Any, *arguments: Any, **named: Any) -> None:
        """Keep what a function got and returned; what cannot be read costs the training nothing."""
        try:
            prompts, completions, *_ = (*arguments, *(named.get(key, ()) for key in ("prompts", "completions")))
            self._add(name, rewards, prompts, completions)
        except FAILURES as error:
            if not self._warned:
                self._warned = True
                warn(f"Cannot keep what reward function {name!r} saw and returned: {message(error)}")

    def _add(self, name: str, rewards: Any, prompts: Any, completions: Any) -> None:
        numbers = np.asarray(to_host(rewards) if array_kind(rewards) is not None else _filled(rewards), np.float64)
        if not self._new or self._new[-1].given is not completions or name in self._new[-1].rewards:
            texts = [_text(one) for one in completions]
            asked = [_text(one) for one in prompts]
            if len(asked) != len(texts):
                raise ValueError(f"it got {len(asked)} prompts for {len(texts)} completions")
            self._new.append(RewardedBatch(prompts=asked, completions=texts, given=completions))
        if len(numbers) != len(self._new[-1].completions):
            raise ValueError(f"it returned {len(numbers)} rewards for {len(self._new[-1].completions)} completions")
        self._new[-1].rewards[name] = numbers.tolist()


def _filled(rewards: Any) -> list[float]:
    """Return rewards with NaN for `None`, which TRL's functions return for what they do not judge."""
    return [np.nan if reward is None else float(reward) for reward in rewards]


def _text(one: Any) -> str:
    """Return a prompt or a completion as text: that of a conversation has a line for each message."""
    if isinstance(one, str):
        return one
    if isinstance(one, Mapping):
        one = [one]
    if not all(isinstance(said, Mapping) and "content" in said for said in one):
        return json.dumps(one, ensure_ascii=False, default=str)
    if len(one) == 1:
        return _content(one[0])
    return "\n".join(f"{said.get('role', '')}: {_content(said)}" for said in one)


def _content(said: Mapping[str, Any]) -> str:
    content = said["content"]
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False, default=str)
