"""Split a query into parts that are computed before its event, when their tensors exist, and the rest.

Theory of operation:

1. A tensor of a *timed* observable, such as a gradient, exists only for a moment before the event: then it is zeroed,
   overwritten in place, or freed. What a query computes from that tensor is computed at that moment.
2. A *part* is the largest expression that reads only one such tensor and observables that can be read at any time:
   either of a named tensor, `b.grads["fc.weight"].norm()`, or of each tensor, `b.grads.map(lambda name, g: …)`. A
   mapping that the query uses as a whole is copied tensor by tensor.
3. In the query that is evaluated at the event, a name replaces each part: the observable, "#", and the part's
   expression. So equal parts of several queries are computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NamedTuple

import torch

from sightglass.query import expressions as e
from sightglass.query.blocks import MIN_ITEMS
from sightglass.query.evaluator import evaluator
from sightglass.query.expressions import canonical
from sightglass.query.functions import FUNCTIONS
from sightglass.query.functions.statistics import histogram_of_tensor, histograms_of_tensors
from sightglass.query.limits import MAX_BINS
from sightglass.query.meter import Meter
from sightglass.query.pipeline import makes_new
from sightglass.query.query import Query
from sightglass.query.stages import Map, Reduce, Stage, When, Where

VALUE: Final = "the tensor"  # not identifiers, so they differ from every name in a query
NAME: Final = "its name"
IN_PLACE: Final = "#"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecomputedPart:
    """An expression of a query that is computed before the event.

    Attributes:
        key: The name of the observable that replaces it.
        kind: The observable that it reads, such as "grads".
        name: The name of the tensor that it reads; `None` for each tensor.
        tree: Its expression, a lambda of the event, the tensor's name and the tensor.
        copies: Whether the result may be a view of the tensor, which is then copied.
    """

    key: str
    kind: str
    name: str | None
    tree: e.Lambda
    copies: bool

    def compiled(self, functions: Mapping[str, Callable[..., Any]], event: str, meter: Meter) -> Callable[..., Any]:
        """Return the expression as a function of the observables, the tensor's name and the tensor."""
        return evaluator(self.tree, functions=functions, event=event, meter=meter, begins=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """The observables of a watched module.

    Attributes:
        timed: Those whose tensors exist only for a moment.
        settled: Those that can be read at any time.
        under: The observable that contains them all; empty if they are observables of the event itself.
    """

    timed: frozenset[str]
    settled: frozenset[str]
    under: str = ""

    def reads(self, query: Query) -> bool:
        """Return whether a query reads any of them."""
        return query.reads_all or bool({*query.names} & ({self.under} if self.under else self.timed | self.settled))


def split(query: Query, offers: Offers) -> tuple[Query, tuple[PrecomputedPart, ...]]:
    """Take the parts out of a query; returns the query with names in their places, and the parts."""
    parts: dict[str, PrecomputedPart] = {}

    def cut(fn: e.Lambda) -> e.Lambda:
        return e.Lambda(fn.params, _Cutter(fn.params[0], offers, parts).cut(fn.body))

    stages: list[Stage] = []
    sees_event = True
    for stage in query.stages:
        match stage:
            case Map(e.Lambda() as fn) if sees_event:
                stage, sees_event = Map(cut(fn)), False
            case Where(e.Lambda() as fn) if sees_event:
                stage = Where(cut(fn))
            case Reduce(window=window, by=by):
                window = When(cut(window.condition)) if isinstance(window, When) else window
                stage, sees_event = replace(stage, window=window, by=by and cut(by)), False
        stages.append(stage)
    return replace(query, stages=tuple(stages)), tuple(parts.values())


def gives_new(query: Query, rest: Query) -> bool:
    """Return whether the last map of a query always computes a new value, after parts are taken out of it."""
    maps = [i for i, stage in enumerate(_head(query)) if isinstance(stage, Map)]
    return bool(maps) and (_is_part(rest.stages[maps[-1]]) or makes_new(query.stages[maps[-1]].fn.body))  # type: ignore[union-attr]


def is_answer(rest: Query) -> bool:
    """Return whether a part is all that a query, after parts are taken out of it, computes of an event."""
    maps = [stage for stage in _head(rest) if not isinstance(stage, Where)]
    return len(maps) == 1 and _is_part(_head(rest)[-1])


def _head(query: Query) -> tuple[Stage, ...]:
    """Return the stages before the first reducer."""
    n = next((i for i, stage in enumerate(query.stages) if isinstance(stage, Reduce)), len(query.stages))
    return query.stages[:n]


def _is_part(stage: Stage) -> bool:
    match stage:
        case Map(e.Lambda(body=e.Attr(e.Var(), name))):
            return IN_PLACE in name
    return False


class _Cutter:
    """Takes the parts out of one function of an event, the largest first."""

    def __init__(self, root: str, offers: Offers, parts: dict[str, PrecomputedPart]) -> None:
        self.root = root
        self.offers = offers
        self.parts = parts

    def cut(self, tree: e.Expr) -> e.Expr:
        part = self._each(tree) or self._one(tree) or self._whole(tree)
        if part is None:
            return _rebuilt(tree, self.cut)
        self.parts[part.key] = part
        return e.Attr(e.Var(self.root), part.key)

    def _each(self, tree: e.Expr) -> PrecomputedPart | None:
        """Take `b.kind.map(lambda name, value: …)`."""
        match tree:
            case e.Call(name="map", args=(of, e.Lambda(params=params, body=body)), kwargs=()):
                kind = self._timed(of)
                if kind and self._is_settled(body, frozenset(params)):
                    named = params if len(params) == 2 else (NAME, *params)
                    return self._part(kind, None, e.Lambda((self.root, *named), body), copies=not makes_new(body))
        return None

    def _one(self, tree: e.Expr) -> PrecomputedPart | None:
        """Take an expression that reads `b.kind["name"]` and nothing else that is timed."""
        if isinstance(tree, e.Lambda | e.Slice):
            return None  # not a value
        found: set[tuple[str, str]] = set()

        def named(node: e.Expr) -> e.Expr:
            tensor = self._tensor(node)
            if tensor is None:
                return _rebuilt(node, named)
            found.add(tensor)
            return e.Var(shown(*tensor))

        body = named(tree)
        if len(found) != 1:
            return None
        ((kind, name),) = found
        value = shown(kind, name)
        if not self._is_settled(body, frozenset((value,))):
            return None
        return self._part(kind, name, e.Lambda((self.root, NAME, value), body), copies=not makes_new(body))

    def _whole(self, tree: e.Expr) -> PrecomputedPart | None:
        """Take `b.kind` itself: each of its tensors is copied."""
        kind = self._timed(tree)
        return kind and self._part(kind, None, e.Lambda((self.root, NAME, VALUE), e.Var(VALUE)), copies=True)

    def _part(self, kind: str, name: str | None, tree: e.Lambda, *, copies: bool) -> PrecomputedPart:
        under = f"{self.offers.under}." if self.offers.under else ""
        key = f"{under}{kind}{IN_PLACE}{name or ''}{IN_PLACE}{canonical(tree)}"
        return PrecomputedPart(key=key, kind=kind, name=name, tree=tree, copies=copies)

    def _observable(self, tree: e.Expr) -> str | None:
        """Return the name of an observable of the module, if the tree is one."""
        match tree:
            case e.Attr(target, name) | e.Item(target, e.Const(value=str(name))):
                if self.offers.under:
                    match target:
                        case e.Attr(e.Var(root), under) | e.Item(e.Var(root), e.Const(value=str(under))):
                            return name if root == self.root and under == self.offers.under else None
                elif isinstance(target, e.Var) and target.name == self.root:
                    return name
        return None

    def _timed(self, tree: e.Expr) -> Any:
        name = self._observable(tree)
        return name if name in self.offers.timed else None

    def _tensor(self, tree: e.Expr) -> tuple[str, str] | None:
        """Return the kind and the name of a tensor, if the tree is one."""
        match tree:
            case e.Attr(target, name) | e.Item(target, e.Const(value=str(name))):
                kind = self._timed(target)
                return (kind, name) if kind else None
        return None

    def _is_settled(self, tree: e.Expr, bound: frozenset[str]) -> bool:
        """Return whether all that an expression reads of the event can be read at any time."""
        if self._observable(tree) in self.offers.settled:
            return True
        match tree:
            case e.Var(name):
                return name in bound
            case e.Lambda(params, body):
                return self._is_settled(body, bound | {*params})
        return all(self._is_settled(child, bound) for child in tree.children())


def shown(kind: str, name: str) -> str:
    """Return a tensor as a query writes it, which is not an identifier: errors name it."""
    return f'{kind}["{name}"]'


def _rebuilt(tree: e.Expr, change: Callable[[e.Expr], e.Expr]) -> e.Expr:
    """Return a node with all its children changed."""

    def changed(value: object) -> Any:
        if isinstance(value, e.Expr):
            return change(value)
        if isinstance(value, tuple):
            return tuple(map(changed, value))
        return value

    values = {field.name: getattr(tree, field.name) for field in fields(tree)}  # type: ignore[arg-type]
    return type(tree)(**{name: changed(value) for name, value in values.items()})


# Statistics of tensors without the evaluator: most queries about a module ask for one number for each tensor.
#
# The evaluator prices and checks each operation, which takes longer than the statistic of a small tensor. So statistics
# that take half a millisecond together are computed between two looks at the clock. The results are those of the
# evaluator.

READ: Final = 2**21  # items that are read in half a millisecond, and the same for those that are counted
COUNTED: Final = 2**19
DTYPES: Final = (torch.float32, torch.float64)
NUMBERS: Final[dict[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "norm": torch.linalg.vector_norm, "sum": torch.sum, "min": torch.min, "max": torch.max, "mean": torch.mean,
}  # fmt: skip
# Not public, but what `torch.nn.utils.clip_grad_norm_` calls: one call for tensors of any devices and dtypes. A version
# of PyTorch without it computes norms one by one.
OF_MANY: Final = {"norm": getattr(torch, "_foreach_norm", None)}
SKIP_ZEROS: Final = ("norm", "sum")


class Statistic(NamedTuple):
    """A statistic of small tensors.

    Attributes:
        of: Computes it of one tensor, on its device.
        largest: Of a tensor of more items, the evaluator computes it in blocks.
        most: How many items may be read between two looks at the clock.
        skips_zeros: Whether it is the same without the items that are zero.
        of_many: Computes it of several tensors in one call, if PyTorch can.
    """

    of: Callable[[torch.Tensor], Any]
    largest: int
    most: int
    skips_zeros: bool = False
    of_many: Callable[[Sequence[torch.Tensor]], Sequence[Any]] | None = None

    def n_taken(self, values: Sequence[Any], start: int = 0) -> int:
        """Return how many values from `start` on it takes at once: dense tensors of numbers, small, and not empty."""
        n_items = 0
        for i in range(start, len(values)):
            x = values[i]
            if type(x) is not torch.Tensor or x.dtype not in DTYPES or x.layout is not torch.strided:
                return i - start
            n = x.numel()
            n_items += n
            if not 0 < n <= self.largest or n_items > self.most:
                return i - start
        return len(values) - start

    def of_each(self, values: Sequence[torch.Tensor]) -> Sequence[Any]:
        """Return the statistic of each tensor, on its device."""
        return self.of_many(values) if self.of_many and len(values) > 1 else [self.of(x) for x in values]

    def numbers(self, values: Sequence[torch.Tensor]) -> Sequence[Any]:
        """Return the statistics, as Python's numbers where they are on the host; the training waits for no device."""
        if self.of is torch.mean:  # whose code takes twice as long where it is not in the processor's cache
            return [torch.sum(x).item() / x.numel() if x.is_cpu else torch.mean(x) for x in values]
        found = self.of_each(values)
        return [one.item() if isinstance(one, torch.Tensor) and one.is_cpu else one for one in found]


def statistic(tree: e.Lambda) -> Statistic | None:
    """Return a part's expression as a statistic of its last argument, the tensor; `None` if it is another one."""
    *others, tensor = tree.params

    def is_tensor(part: e.Expr) -> bool:
        return isinstance(part, e.Var) and part.name == tensor not in others

    match tree.body:
        case e.Call(name="histogram", args=(of, *rest), kwargs=()) if is_tensor(of):
            if all(isinstance(part, e.Const) for part in rest):
                histogram, bins = FUNCTIONS["histogram"].call, [part.value for part in rest]  # type: ignore[attr-defined]
                n_bins = bins[0] if len(bins) == 1 and type(bins[0]) is int and 0 < bins[0] <= MAX_BINS else 0

                def counted(x: torch.Tensor) -> Any:
                    return histogram_of_tensor(x, n_bins) if n_bins and x.is_cpu else histogram(x, *bins)

                def counted_together(values: Sequence[torch.Tensor]) -> Any:
                    together = n_bins and all(x.is_cpu for x in values)
                    return histograms_of_tensors(values, n_bins) if together else [*map(counted, values)]

                return Statistic(counted, COUNTED, COUNTED, of_many=counted_together)
        case e.Call(name=name, args=(of,), kwargs=()) if is_tensor(of) and name in NUMBERS:
            largest = MIN_ITEMS - 1 if name == "norm" else READ
            return Statistic(NUMBERS[name], largest, READ, skips_zeros=name in SKIP_ZEROS, of_many=OF_MANY.get(name))
        case e.Call(name=name, args=(e.Call(name="abs", args=(of,), kwargs=()),), kwargs=()) if name in NUMBERS:
            if is_tensor(of):
                return Statistic(lambda x: NUMBERS[name](x.abs()), MIN_ITEMS - 1, READ, skips_zeros=name in SKIP_ZEROS)
    return None
