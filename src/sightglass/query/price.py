"""The price of an expression: what its evaluation would cost, from the shapes of the values it reads.

The expression is walked as the evaluator would, with an `ArraySpec` in place of each array that it would compute.
Nothing is computed on arrays, copied, or waited for; plain numbers are computed, since indices and sizes depend on
them. Where the walk cannot know, it assumes the most: a condition selects all items.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sightglass.core.errors import SightglassError
from sightglass.core.program_values.guarded import FAILURES, MAX_DEPTH, length
from sightglass.core.values import Histogram, array_kind, on_device

from . import expressions as e
from .access import attribute, item, of_plain, of_unary, opened, selected_shape
from .arrays import (
    FLOATS,
    ArraySpec,
    Unknown,
    UnknownText,
    is_strided,
    name_and_width,
    plain_arguments,
    result_shape,
)
from .costs import (
    BASE_NS,
    ITEM_NS,
    LARGE_NS,
    ON_DEVICE,
    OTHER_BASE_NS,
    STRIDED,
    CostModel,
    OperationCost,
    learned_as,
    picks,
)
from .functions import FUNCTIONS, Operation
from .functions.containers import costs_one_item, each
from .functions.elementwise import OPERATORS, PICKED
from .interpreter import Interpreter, can_cut, is_fused
from .limits import MAX_ITEMS, PLAIN
from .trials import Trial, places, result_dtype, trial_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What a query costs for one event.

    Attributes:
        seconds: The time of one thread.
        n_bytes: The most bytes that are alive at a time, besides the observables.
        python_s: The part of `seconds` that holds the interpreter's lock.
        largest: The operation that costs most, as text; empty if all are small.
        largest_bytes: The bytes of the largest observable that it reads.
        n_items: The items of that observable.
        known: Whether the price of every part is known.
        sized: Whether the bytes of every part are known: not where a function of the run is called, for example.
        more: Whether it is higher than that.
        late: Whether there was no time to know more of it.
        untried: Trials of its large operations that were never measured here.
    """

    seconds: float
    n_bytes: int
    python_s: float
    largest: str = ""
    largest_bytes: int = 0
    n_items: int = 0
    known: bool = True
    sized: bool = True
    more: bool = False
    late: bool = False
    untried: tuple[Trial, ...] = ()


def price_of(
    tree: e.Lambda,
    values: Iterable[object],
    model: CostModel,
    *,
    measured: Mapping[int, float] | None = None,
    samples: int = 0,
    enough: tuple[float, float] = (math.inf, math.inf),
    is_late: Callable[[], bool] = bool,
) -> Price:
    """Return what a lambda costs on these values.

    Args:
        tree: The lambda.
        values: Its arguments; the first one may be the observables of an event.
        model: The costs of operations on this machine.
        measured: By `id` of parts of the tree that are evaluated in blocks, the nanoseconds that an item took.
        samples: If positive, the price with arrays of more items replaced by samples of this many.
        enough: Stop when the price is as high, in seconds or bytes: it is then at least that.
        is_late: Returns whether there is no time to go on; asked every `LATE` steps.
    """
    walk = _Pricing(model, measured or {}, samples, enough[0] * 1e9, enough[1], is_late)
    known, more, late = True, False, False
    try:
        walk.part(tree.body, dict(zip(tree.params, values, strict=True)))
    except SightglassError:
        pass  # the evaluation raises it too, once it has come as far
    except EnoughError:
        more, walk.sized = True, False
        if walk.n_steps > MAX_STEPS:
            walk.ns = max(walk.ns, walk.enough_ns)
        late = walk.ns < walk.enough_ns and walk.peak <= walk.enough_bytes
    except FAILURES:
        known = walk.sized = False
    return Price(
        seconds=walk.ns / 1e9,
        n_bytes=int(walk.peak),
        python_s=walk.python_ns / 1e9,
        largest=walk.largest,
        largest_bytes=walk.largest_bytes,
        n_items=walk.n_items,
        known=known,
        sized=walk.sized,
        more=more,
        late=late,
        untried=tuple(walk.untried),
    )


# The walk over an expression that finds its price, operation by operation, with shapes in place of arrays.

Scope = Mapping[str, Any]

MAX_STEPS: Final = 1_200  # more than the largest expression has nodes; of 6 us each: a third of an event
LATE: Final = 32  # steps: 0.2 ms
N_SIGNATURES: Final = 200  # items whose shapes are read, 5 us each
N_DISTINCT: Final = 8  # items that are priced on their own
N_NESTED: Final = 4  # the same in a lambda within a lambda
MIN_NEW_BYTES: Final = 2**20  # smaller memory is used again
STACK_NS: Final = 300.0  # to make an item of a list one of an array
LISTED_NS: Final = 2_000.0  # to make an item of a result, and to count its bytes
READ_NS: Final = 2_000.0  # to check that an array can be read
COPY: Final = OperationCost(ns=0.5, result="flat")
COMPARED: Final = OperationCost(ns=10.0, result="each")  # texts
COPIED_NS: Final = 0.1  # to copy a character
ITEM_COPIED_NS: Final = 2.0  # to copy one of every n-th character, or an item of a list
WIDEST: Final = 4  # bytes of a character
POINTER: Final = 8  # bytes of an item of a list, without what it refers to
SLOTS: Final = 120  # bytes of an item of a list or a dict, with a small Python object
TEXTS: Final = (str, bytes, type(None), UnknownText)


def n_characters(value: object) -> float:
    """Return how many characters a text has, or the texts of a list: the first ones stand for all."""
    if isinstance(value, str | UnknownText):
        return value.n if isinstance(value, UnknownText) else str.__len__(value)
    some = [text for _, text in each(value, N_SIGNATURES)]
    n_known = sum(str.__len__(one) for one in some if isinstance(one, str))
    return (length(value) or 0) * n_known / max(1, len(some))


def _width(value: Any) -> int:
    """Return the bytes of a character of a text."""
    return value.width if isinstance(value, UnknownText) else 1 if str.isascii(value) else WIDEST


def _has_unknown_end(part: object) -> bool:
    ends = (part.start, part.stop, part.step) if isinstance(part, slice) else ()
    return any(isinstance(end, ArraySpec | Unknown) for end in ends)


class EnoughError(Exception):
    """The price of an expression is high enough, or takes too long to know."""


@dataclass
class _Pricing(Interpreter[Any, Scope]):
    """One walk over an expression, in which a part becomes the spec of its value: what it has cost so far."""

    model: CostModel
    measured: Mapping[int, float]
    samples: int
    enough_ns: float
    enough_bytes: float
    is_late: Callable[[], bool]
    ns: float = 0.0
    python_ns: float = 0.0
    live: float = 0.0
    peak: float = 0.0
    largest: str = ""
    largest_ns: float = LARGE_NS
    largest_bytes: int = 0
    n_items: int = 0
    sized: bool = True
    in_blocks: bool = False
    chain_ns: float = 0.0
    depth: int = 0
    n_steps: int = 0
    untried: list[Trial] = field(default_factory=list)

    def charge(self, ns: float, name: str = "", *, python: bool = False) -> None:
        """Add the nanoseconds of an operation."""
        if python:
            ns *= self.model.factors["python"]
            self.python_ns += ns
        self.ns += ns
        if ns > self.largest_ns and name:
            self.largest_ns, self.largest = ns, name
        if self.ns > self.enough_ns:
            raise EnoughError

    def touch(self, n_bytes: float) -> None:
        """Charge new memory, whose pages the system clears at their first use."""
        if n_bytes >= MIN_NEW_BYTES:
            self.charge(self.model.new_ns * n_bytes, "new memory")

    def hold(self, n_bytes: float) -> None:
        """Count bytes that stay alive."""
        self.live += n_bytes
        self.peak = max(self.peak, self.live)
        if self.peak > self.enough_bytes:
            raise EnoughError

    def part(self, tree: e.Expr, scope: Scope) -> Any:
        """Return the value of an expression, an array as its spec."""
        self.n_steps += 1
        if self.n_steps > MAX_STEPS or (not self.n_steps % LATE and self.is_late()):
            raise EnoughError
        return super().part(tree, scope)

    def whole(self, tree: e.Expr, scope: Scope) -> Any:
        outside, chain_ns, self.in_blocks = self.in_blocks, self.chain_ns, False
        found = super().whole(tree, scope)
        self.in_blocks, self.chain_ns = outside, chain_ns
        return found

    def chain(self, tree: e.Expr, scope: Scope) -> Any:
        assert isinstance(tree, e.Unary | e.Binary | e.Call)
        outside, self.in_blocks = self.in_blocks, True
        if not outside:
            self.chain_ns = 0.0
        operands = [self.part(part, scope) for part in tree.children()]
        self.in_blocks = outside or is_fused(tree)
        ns = self.ns
        found = self.operate(tree, operands)
        self.chain_ns += self.ns - ns
        self.in_blocks = outside
        if not outside and id(tree) in self.measured:
            n = max((spec.size for spec in (*operands, found) if isinstance(spec, ArraySpec)), default=0)
            self.charge(self.measured[id(tree)] * n - self.chain_ns)
        return found

    def constant(self, value: object) -> Any:
        return value

    def variable(self, name: str, scope: Scope) -> Any:
        return self.read(scope[name])

    def slice_of(self, ends: Sequence[Any]) -> Any:
        return slice(*ends)

    def several(self, parts: Sequence[Any], trees: Sequence[e.Expr], make: Callable[[Sequence[Any]], Any]) -> Any:
        return make(parts)

    def function(self, tree: e.Lambda, scope: Scope) -> Any:
        def apply(name: object, value: object) -> Any:
            bound = (name, value) if len(tree.params) == 2 else (value,)
            return self.part(tree.body, {**scope, **dict(zip(tree.params, bound, strict=True))})

        return apply

    def read(self, value: Any) -> Any:
        """Return a value of the program, an array as its spec."""
        kind = array_kind(value)
        if kind is None:
            return value
        self.charge(READ_NS, python=True)
        device = kind != "jax" and on_device(value)
        shape = tuple(map(int, value.shape))
        name, width = name_and_width(value.dtype)
        spec = ArraySpec(
            shape=shape, dtype=value.dtype, kind=kind, name=name, itemsize=width, device=device,
            strided=is_strided(value, kind), reverse=kind == "numpy" and not value.flags.c_contiguous,
        )  # fmt: skip
        self.largest_bytes, self.n_items = max(self.largest_bytes, spec.n_bytes), max(self.n_items, spec.size)
        if 0 < self.samples < spec.size:
            self.charge(80.0 * self.samples)
            spec = spec.like(self.samples, owned=self.samples * spec.itemsize)
            self.hold(spec.owned)
        return spec

    def attribute(self, value: Any, name: str) -> Any:
        if isinstance(value, ArraySpec):
            match name:
                case "shape":
                    return value.shape
                case "size":
                    return value.size
                case "ndim":
                    return len(value.shape)
                case "dtype":
                    return value.name
            return value.like(*(value.shape[::-1] if name == "T" else value.shape), owned=value.owned, strided=True)
        if isinstance(value, Unknown | Histogram):
            return Unknown()
        return self.read(attribute(value, name))

    def item(self, value: Any, index: Any, tree: e.Item | None = None) -> Any:
        if isinstance(index, slice) and isinstance(value, UnknownText | str | list | tuple):
            return self.sliced(value, index)
        if isinstance(value, Unknown) or isinstance(index, Unknown):
            self.sized = False
            return Unknown()
        if not isinstance(value, ArraySpec):
            return Unknown() if isinstance(index, ArraySpec) else self.read(item(value, index))
        parts = index if isinstance(index, tuple) else (index,)
        if any(isinstance(part, Unknown) for part in parts):
            return Unknown()
        parts = tuple(slice(None) if _has_unknown_end(part) else part for part in parts)
        if picks(parts):
            return self.picked(value, [part if (spec := self.stacked(part)) is None else spec for part in parts])
        whole = any(part is ... for part in parts)
        view = value.placeholder()[tuple(parts if whole else (*parts, ...))]  # never an item, which has no memory
        if value.kind == "jax" and view.shape != value.shape:
            return self.copied(value.like(*view.shape, owned=view.size * value.itemsize), value)
        return value.like(
            *view.shape, owned=value.owned, strided=value.strided or is_strided(view, "numpy"), reverse=value.reverse
        )

    def sliced(self, value: UnknownText | str | list[Any] | tuple[Any, ...], index: slice) -> Any:
        """Return a part of a text or a list: a copy, which is not made where it is large."""
        if _has_unknown_end(index):
            index = slice(None)
        is_text = isinstance(value, UnknownText | str)
        n = int(n_characters(value)) if is_text else length(value) or 0
        try:
            n = len(range(*index.indices(n)))
        except (TypeError, ValueError):
            return Unknown()  # the evaluation says what is wrong with the slice
        self.charge(n * (COPIED_NS if is_text and index.step in (None, 1) else ITEM_COPIED_NS), python=True)
        n_bytes = n * (_width(value) if is_text else POINTER)
        self.touch(n_bytes)
        self.peak = max(self.peak, self.live + n_bytes)
        if n <= MAX_ITEMS and not isinstance(value, UnknownText):
            return item(value, index)
        return UnknownText(n, _width(value)) if is_text else Unknown()

    def picked(self, value: ArraySpec, parts: Sequence[Any]) -> ArraySpec:
        """Return the spec of items that are picked by places, or by a condition, which selects all."""
        arrays = [part for part in parts if isinstance(part, ArraySpec)]
        shape = selected_shape(value.shape, parts)
        n = math.prod(shape)
        tried = [value.like(n), places(arrays[0], n)] if arrays and value.kind == "numpy" else ()
        made: ArraySpec = self.result(PICKED, OPERATORS[PICKED, 2].cost, [value.like(n)], tried=tried)
        return made.like(*shape, owned=made.owned)

    def copied(self, made: ArraySpec, of: ArraySpec) -> ArraySpec:
        """Charge a copy of a part of an array, where others only refer to it."""
        self.result(PICKED, COPY, [made.like(*made.shape, owned=of.owned, strided=of.strided)])
        return made

    def operate(self, tree: e.Unary | e.Binary | e.Call, values: list[Any]) -> Any:
        """Return the result of an operator or function that works item by item, or of a statistic of one."""
        if isinstance(tree, e.Call):
            n_args = len(tree.args)
            kwargs = dict(zip((key for key, _ in tree.kwargs), values[n_args:], strict=True))
            return self.result(tree.name, FUNCTIONS[tree.name].cost, values[:n_args], kwargs)
        if all(type(value) in PLAIN for value in values):
            self.charge(BASE_NS[None], python=True)
            return of_plain(tree.op, *values) if len(values) == 2 else of_unary(tree.op, values[0])
        if any(isinstance(value, TEXTS) for value in values):
            if arrays := [value for value in values if isinstance(value, ArraySpec)]:
                return self.result(tree.op, COMPARED, arrays)
            if n := max((length(value) or 0 for value in values if isinstance(value, list | tuple)), default=0):
                self.charge(2 * ITEM_NS * n, python=True)
                return FLOATS.like(n)
            n_compared = sum(n_characters(value) for value in values if isinstance(value, str | UnknownText))
            self.charge(BASE_NS[None] + n_compared, python=True)
            return Unknown()
        return self.result(tree.op, OPERATORS[tree.op, len(values)].cost, values)

    def call(self, tree: e.Call, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        known = FUNCTIONS.get(tree.name)
        if known is None:
            self.charge(BASE_NS[None], python=True)
            self.sized = False
            return Unknown()
        if known.lambdas:
            return self.each(tree, opened(args[0]), args[1])
        x, *others = args
        if known.containers and not isinstance(x, ArraySpec):
            return self.contained(known, x, others, kwargs)
        if known.of_spec is not None and (spec := self.stacked(x)) is not None:
            self.charge(BASE_NS[None], python=True)
            made = known.of_spec(spec, *others, **kwargs)
            is_copy = isinstance(made, ArraySpec) and made.owned > spec.owned
            return self.copied(made, spec) if is_copy else made
        return self.result(tree.name, known.cost, args, kwargs)

    def contained(self, known: Operation, x: Any, others: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return the result of a function that reads a mapping, a list or a text; of many items it is not known."""
        n, cost = (length(x) or 0) if isinstance(x, list | tuple | Mapping) else 0, known.cost
        if cost.shaped is not None:
            ns = cost.shaped([FLOATS.like(n), *others], **kwargs)[1]
        else:
            ns = cost.ns * n if cost.text_ns or isinstance(x, Mapping) else 0.0
        self.charge(BASE_NS[None] + ns, python=True)
        if cost.text_ns and isinstance(x, str | UnknownText | list | tuple):
            self.charge(cost.text_ns * n_characters(x), python=True)
        if cost.text_ns or any(isinstance(arg, ArraySpec | Unknown) for arg in (x, *others, *kwargs.values())):
            return Unknown()
        if ns:
            self.hold(SLOTS * min(n, MAX_ITEMS))
        return Unknown() if ns and n > N_SIGNATURES else self.read(known.call(x, *others, **kwargs))

    def each(self, tree: e.Call, x: Any, apply: Callable[[Any, Any], Any]) -> Any:
        """Return the items of `map`, or of `filter`, each by its lambda.

        Alike arrays are priced once. Of other items, and beyond `N_SIGNATURES`, the first ones stand for all: the
        evaluation is stopped if the others take longer. Items that the lambda cannot compute are left out.
        """
        if isinstance(x, Unknown | ArraySpec):
            self.sized = False
            return Unknown()
        names: list[Any] = []
        results: list[Any] = []
        alike: dict[Any, tuple[Any, float, float, float]] = {}
        began, n_priced = (self.ns, self.python_ns, self.live), 0
        n_most = 1 if self.n_steps > MAX_STEPS / 2 else N_NESTED if self.depth else N_SIGNATURES
        self.depth += 1
        n_items, is_full = length(x) or 0, False
        odd: list[Exception] = []
        for name, value in each(x, n_most):
            names.append(name)
            if is_full:
                continue
            self.n_steps += 1
            read = self.read(value)
            is_array = isinstance(read, ArraySpec)
            key: Any = (read.shape, read.name, read.strided) if is_array else n_priced
            if key not in alike:
                is_full = len(alike) >= N_DISTINCT or (n_priced > 0 and self.n_steps > MAX_STEPS / 2)
                if is_full:
                    continue
                before = self.ns, self.python_ns, self.live
                try:
                    result = apply(name, read)
                except Exception as error:
                    if not (costs_one_item(error) and isinstance(x, Mapping)):
                        raise
                    odd.append(error)
                    names.pop()
                    n_items -= 1
                    continue
                alike[key] = result, self.ns - before[0], self.python_ns - before[1], self.live - before[2]
            else:
                result, ns, python_ns, n_bytes = alike[key]
                self.ns += ns
                self.python_ns += python_ns
                self.hold(n_bytes)
            n_priced += 1
            results.append(result)
        self.depth -= 1
        if odd and not n_priced and not is_full:
            raise odd[0]
        if n_priced:
            more = (n_items - n_priced) / n_priced
            self.ns += more * (self.ns - began[0])
            self.python_ns += more * (self.python_ns - began[1])
            self.hold(more * (self.live - began[2]))
            results += results[-1:] * (n_items - n_priced)
        self.charge(n_items * BASE_NS[None] * e.n_nodes(tree.args[1]), python=True)
        self.hold(SLOTS * n_items)
        if tree.name == "filter":
            return x
        if not isinstance(x, Mapping):
            return results
        return dict(zip(names, results, strict=True)) if n_items == len(names) else Unknown()

    def result(
        self,
        name: str,
        cost: OperationCost,
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None = None,
        *,
        tried: Sequence[Any] | None = None,
    ) -> Any:
        """Charge an operation on arrays, and return the spec of its result.

        Args:
            name: Its name.
            cost: What is known of it.
            args: Its arguments.
            kwargs: Its named arguments.
            tried: The operands of its trial; by default its arguments.
        """
        operands = [spec if (spec := self.stacked(arg)) is not None else arg for arg in args]
        arrays = [one for one in operands if isinstance(one, ArraySpec)]
        if not arrays:
            self.sized = self.sized and not any(isinstance(arg, Unknown) for arg in args)
            self.charge(BASE_NS["numpy"], python=True)
            return Unknown()
        first = max(arrays, key=lambda spec: spec.size)
        others, named = plain_arguments(args, kwargs or {})
        table_ns = None
        if cost.shaped is not None:
            shape, table_ns = cost.shaped(operands, **named)
        else:
            shape = result_shape(cost, arrays, first, named.get("axis", others[0] if others else None))
        n = max(first.size, math.prod(shape))
        ns = self.model.ns(learned_as(name, cost, shape), cost, first.dtype, first.name, n, table_ns=table_ns)
        ns *= STRIDED if first.strided else 1.0
        if cost.more_ns is not None:
            ns += cost.more_ns(first.size, *others, **named)
        if ns > LARGE_NS and not self.model.knows((learned_as(name, cost, shape), first.name)):
            given, specs = (args, operands) if tried is None else (tried, tried)
            trial = trial_of(name, cost, given, specs, kwargs or {}, shape)
            self.untried += [] if trial is None else [trial]
        said = f"{name} of {n:,} items of {first.name}" if ns > self.largest_ns else ""
        self.charge(ns * (ON_DEVICE if first.device else 1.0), said)
        self.charge(BASE_NS.get(first.kind, OTHER_BASE_NS), python=True)
        dtype = result_dtype(name, operands, kwargs or {}) if cost.result == "each" else None
        width = max(spec.width for spec in arrays) if dtype is None else dtype.itemsize
        owned = math.prod(shape) * width + cost.more_bytes(first.shape, *others, **named)
        copies = first.size * (cost.copies * width + 8 * (cost.places and first.kind == "torch"))
        if self.in_blocks and can_cut(arrays):
            owned, copies = 0, 0.0
        self.touch(copies + owned)
        self.peak = max(self.peak, self.live + copies + owned)
        self.live -= sum(
            spec.owned for spec in arrays if spec.kind != "jax"
        )  # JAX computes later, and keeps them so long
        self.hold(owned)
        if cost.result == "plain" and cost.shaped is None:
            return Unknown()
        found = first.like(*shape, owned=owned)
        return found if dtype is None else replace(found, dtype=dtype, name=str(dtype), itemsize=dtype.itemsize)

    def stacked(self, value: Any, depth: int = 0) -> ArraySpec | None:
        """Return the array that a function makes of an argument; `None` if it is plain, or refused by the function."""
        if isinstance(value, ArraySpec):
            return value
        n = length(value) if issubclass(type(value), list | tuple) else None
        if not n or n > MAX_ITEMS or depth > MAX_DEPTH:
            return None
        value = list(list.__iter__(value) if issubclass(type(value), list) else tuple.__iter__(value))
        if PLAIN.issuperset(map(type, value)):
            self.charge(STACK_NS * len(value), python=True)
            return FLOATS.like(len(value))
        self.charge(ITEM_NS * n, python=True)  # a list may contain itself: its price ends the walk
        inner = (self.stacked(self.read(item), depth + 1) for item in value if type(item) not in PLAIN)
        specs = [spec for spec in inner if spec is not None]
        if not specs:
            return None
        first, n_bytes = specs[0], sum(spec.n_bytes for spec in specs)
        n_items, alike = sum(spec.size for spec in specs), all(spec.shape == first.shape for spec in specs)
        self.charge(BASE_NS.get(first.kind, OTHER_BASE_NS) * len(value), python=True)
        self.touch(n_bytes)
        self.hold(n_bytes)
        shape = (len(value), *first.shape) if alike else (n_items,)
        return first.like(*shape, owned=n_bytes + sum(spec.owned for spec in specs))
