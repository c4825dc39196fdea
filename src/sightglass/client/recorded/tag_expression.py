"""Expressions over the tags of a recorded run, such as `train/loss - val/loss`: queries whose events are steps.

A tag in the text stands for the series' value. Series are joined by their step (`core.joins`), so that each pair is of
one step, and the rest is the query language: the text becomes a query of the log, `log['train/loss'] -
log['val/loss']`, and its own pipeline evaluates it. Values that are computed number by number are computed for many
steps at once, by the same evaluator.
"""

from __future__ import annotations

import keyword
import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from sightglass.core.columns import Columns, Restart, Row, of_rows
from sightglass.core.errors import QuerySyntaxError, unknown
from sightglass.core.joins import SourceJoin
from sightglass.core.source import Source, client_of, made_by, restarts_of_runs, runs_of
from sightglass.core.values import is_real
from sightglass.query import expressions as e
from sightglass.query.evaluator import evaluator
from sightglass.query.interpreter import is_elementwise
from sightglass.query.parser import parse
from sightglass.query.query import Query
from sightglass.query.stages import Map
from sightglass.query.tracer import NAMED_CONSTANTS
from sightglass.storage.format.block import Key

from .plan import LOG, ReplayPlan
from .replay import Replay

STEP: Final = "step"
PIECE_ROWS: Final = 2**16  # evaluated at once: half a MiB for each value
_NAME: Final = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?:[./]\w+)*(?!\w|[./]\w|\s*[(=])")
_QUOTED: Final = r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\""""


@dataclass(frozen=True, slots=True, kw_only=True)
class TagExpression:
    """What a text means.

    Attributes:
        query: The query of the log.
        tags: The tags that it reads, in their order in the text.
    """

    query: Query
    tags: tuple[str, ...]

    @property
    def is_elementwise(self) -> bool:
        """Whether each value is computed from the numbers of one step alone, by functions that take arrays too."""
        return len(self.query.stages) == 1 and isinstance(stage := self.query.stages[0], Map) and _cuts(stage.fn)


def read(text: str, tags: Collection[str]) -> TagExpression | None:
    """Read an expression; `None` if no tag stands in it.

    Args:
        text: The expression: the syntax of queries, with tags as values, and `step`. Of several tags that begin at one
            place, the longest counts.
        tags: The tags that are known.

    Raises:
        QuerySyntaxError: It is not valid; the caret is under the place in this text.
        RefusedQueryError: It exceeds a limit.
    """
    found: dict[str, None] = {}
    parts, old, new = [], [0], [0]
    n, last = 0, 0
    for match in _pattern(tags).finditer(text):
        if (tag := match["tag"]) is None:
            continue
        if tag == STEP and STEP not in tags:
            written = f"{LOG}.{STEP}"
        else:
            found[tag], written = None, f"{LOG}[{tag!r}]"
        for part in (text[last : match.start()], written):
            parts.append(part)
            n += len(part)
            new.append(n)
        old += [match.start(), match.end()]
        last = match.end()
    if not found:
        return None
    check_names(text, tags)
    try:
        query = parse("".join([*parts, text[last:]]))
    except QuerySyntaxError as error:
        if error.text is None or error.column is None:
            raise
        place = bisect_right(new, error.column) - 1
        column = old[place] + (0 if place % 2 else error.column - new[place])  # odd ones are tags
        raise QuerySyntaxError(str(error).partition("\n")[0], text=text, column=min(column, len(text))) from None
    return TagExpression(query=query, tags=tuple(found))


def check_names(text: str, tags: Collection[str]) -> None:
    """Refuse an unknown name, which the parser would take for an event.

    Raises:
        QuerySyntaxError: There is such a name.
    """
    bare = _pattern(tags).sub(lambda match: "0" * len(match[0]), text)
    if "lambda" in bare:  # which has names of its own
        return
    for match in _NAME.finditer(bare):
        if match[0] not in NAMED_CONSTANTS and not keyword.iskeyword(match[0]):
            raise QuerySyntaxError(unknown("tag", match[0], list(tags)), text=text, column=match.start())


def _pattern(tags: Collection[str]) -> re.Pattern[str]:
    """Return what finds quoted texts, which it passes over, and tags and the step."""
    several = "|".join(re.escape(tag) for tag in sorted({STEP, *tags}, key=len, reverse=True))
    return re.compile(rf"{_QUOTED}|(?<![\w.])(?P<tag>{several})(?!\w|\s*\()")


def _cuts(fn: e.Lambda) -> bool:
    """Return whether a function of an event computes number by number."""
    (root,) = fn.params

    def cuts(tree: e.Expr) -> bool:
        match tree:
            case e.Const(value):
                return isinstance(value, int | float)
            case e.Item(e.Var(name), e.Const(str())) | e.Attr(e.Var(name), "step"):
                return name == root
            case e.Call(kwargs=kwargs) if kwargs:
                return False
            case e.Binary(op="@"):
                return False
        parts = tree.args if isinstance(tree, e.Call) else (getattr(tree, name, None) for name in _OPERANDS)
        return is_elementwise(tree) and all(cuts(part) for part in parts if isinstance(part, e.Expr))

    return cuts(fn.body)


_OPERANDS: Final = ("operand", "left", "right")


class Evaluated:
    """The values of an expression, as a source.

    Attributes:
        tag: The expression.
        run: The name of the run.
        restarts: Where the run, restarted, continues.
        run_id: The id of the run that made the first records.
        client: The run's files.
        n_errors: How many steps failed.
        last_error: The last failure, or empty.
    """

    def __init__(self, text: str, expression: TagExpression, sources: Sequence[Source]) -> None:
        """Begin without values.

        Args:
            text: The expression as it was written.
            expression: What it means.
            sources: The series of its tags.
        """
        self.tag, self.run = text, sources[0].run
        self.client = client_of(sources[0])
        self.run_id, *_ = made_by(sources[0])
        self.run_ids = tuple(runs_of(sources[0]))
        self.restarts: tuple[Restart, ...] = ()
        self.n_errors, self.last_error = 0, ""
        self._expression = expression
        self._sources = sources
        self._join = SourceJoin(sources)
        self._n = 0
        plan = ReplayPlan(query=expression.query, how="event", keys=_keys(expression.tags), held=True)
        self._replay = Replay(plan)
        self._at_once = None
        if expression.is_elementwise:
            (stage,) = expression.query.stages
            self._at_once = evaluator(stage.fn, event=LOG)  # type: ignore[union-attr]
        self._n_begun = 0  # how many restarts of the first series were noted
        self._ahead: list[tuple[int, str]] = []

    @property
    def ended(self) -> bool:
        """Whether no more values can come."""
        return all(source.ended for source in self._sources)

    @property
    def n_unpaired(self) -> int:
        """How many records of the first series have no partner at their step."""
        return self._join.n_unpaired

    def since(self, cursor: int, /) -> tuple[int, Columns]:
        """Return the new values; each is returned once.

        Raises:
            EvaluationError: Three steps in a row failed.
        """
        first = self._n
        columns = concatenated([part for joined in pieces_of(self._join) for part in self._evaluated(joined)], first)
        return self._n, columns

    def _evaluated(self, joined: Sequence[Columns]) -> Iterator[Columns]:
        known = restarts_of_runs(self._sources[0])
        begun, self._n_begun = known[self._n_begun :], len(known)
        if self._at_once is not None and all(_is_column(columns.values) for columns in joined):
            self._ahead += [(restart.index, restart.run_id) for restart in begun]
            yield from self._many(joined)
        elif rows := self._one_by_one(joined, begun):
            yield of_rows(rows)

    def _one_by_one(self, joined: Sequence[Columns], begun: Sequence[Restart]) -> list[Row]:
        self._replay.starts.add((restart.index, restart.run_id) for restart in begun)
        numbers = joined[0].numbers  # of all, so that what was joined is one event
        events = dict(zip(self._expression.tags, (replace(one, ordinals=numbers) for one in joined), strict=True))
        rows: list[Row] = []
        for item in self._replay.post(events):
            if run_id := self._replay.starts.begun_by(item.wall_time):
                self._restart(run_id)
            if item.passed:
                rows.append((0, item.step, item.wall_time, item.value, None, item.ordinal))
                self._n += 1
        return rows

    def _many(self, joined: Sequence[Columns]) -> Iterator[Columns]:
        """Evaluate many steps at once."""
        assert self._at_once is not None
        lead = joined[0]
        for start in range(0, len(lead), PIECE_ROWS):
            stop = min(len(lead), start + PIECE_ROWS)
            values: dict[str, Any] = {
                tag: np.asarray(one.values[start:stop], np.float64)
                for tag, one in zip(self._expression.tags, joined, strict=True)
            }
            values["step"] = np.asarray(lead.steps[start:stop], np.float64)
            found = np.broadcast_to(np.asarray(self._at_once(values), np.float64), (stop - start,))
            while self._ahead and self._ahead[0][0] <= lead.numbers[stop - 1]:
                index, run_id = self._ahead.pop(0)
                self._restart(run_id, int(np.searchsorted(lead.numbers[start:stop], index)))
            self._n += stop - start
            yield replace(lead.slice(start, stop), values=found)

    def _restart(self, run_id: str, after: int = 0) -> None:
        if self._n + after:
            self.restarts = (*self.restarts, Restart(index=self._n + after, run_id=run_id))


def pieces_of(join: SourceJoin) -> Iterator[list[Columns]]:
    """Yield the records that belong together and came by now."""
    n_empty = 0
    while n_empty < 2:  # one read may only have taken in what the next one pairs
        found = join.read()
        n_empty = 0 if len(found[0]) else n_empty + 1
        if not n_empty:
            yield found


def concatenated(parts: Sequence[Columns], index: int) -> Columns:
    """Return steps, wall times and values of several parts, numbered from an index."""
    values = [np.zeros(0), *(part.values for part in parts)]
    plain = all(isinstance(column, np.ndarray) for column in values)
    return Columns(
        index=index,
        steps=np.concatenate([np.zeros(0), *(part.steps for part in parts)]),
        wall_times=np.concatenate([np.zeros(0), *(part.wall_times for part in parts)]),
        values=np.concatenate(values) if plain else [value for column in values for value in column],
    )


def _is_column(values: object) -> bool:
    return isinstance(values, np.ndarray) and values.ndim == 1 and is_real(values.dtype)


def _keys(tags: Sequence[str]) -> Mapping[str, Key]:
    return {tag: Key(kind="logged", tag=tag) for tag in tags}
