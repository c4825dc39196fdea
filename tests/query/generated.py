"""Queries grown from a seed, over all functions of the language, each with the NumPy that it stands for.

An `Author` knows the names of some observables and what they are: "arrays" (of numbers), "numbers", "mappings" (of
names to arrays), "lists" (of texts), "texts".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import numpy as np

from sightglass.core.values import Histogram

Env = Mapping[str, Any]
Compute = Callable[[Env], Any]

SMOOTH: Final = ("sqrt", "exp", "expm1", "log", "log2", "log10", "log1p", "tanh", "sin", "cos", "square", "abs")
STEPPED: Final = ("floor", "ceil", "sign")  # a rounding error below them may become a difference of 1
TESTS: Final = ("isnan", "isinf", "isfinite")
STATISTICS: Final = ("sum", "prod", "mean", "std", "var", "min", "max", "any", "all")
PLACES: Final = ("argmin", "argmax")
ARITHMETIC: Final = ("+", "-", "*", "/", "**")
STEPPED_ARITHMETIC: Final = ("//", "%")
COMPARISONS: Final = ("<", "<=", ">", ">=", "==", "!=")
LOGIC: Final = ("&", "|", "^")
CONSTANTS: Final = (0, 1, 2, -1, 3, 0.5, -2.5, 10)
TAME: Final = 1e4
SPREAD: Final = 1e-2
HUGE: Final = (1e300, 1e-310, 1e5, 0.37, 2**40)
WINDOWS: Final = ("every=1", "every=3", "per='epoch'", "when=lambda e: e.step % 4 == 3", "every='1 ms'", "")


class Unknown(Exception):
    """What the query gives is not told by NumPy."""


@dataclass(frozen=True)
class Grown:
    """An expression of `b`.

    Attributes:
        text: The expression.
        compute: The same in NumPy; raises if NumPy has no answer.
        exact: Whether every machine and every order of operations gives the same digits.
    """

    text: str
    compute: Compute
    exact: bool = True


class Author:
    """Writes queries.

    Attributes:
        used: The functions of the language that it has called.
    """

    def __init__(self, seed: int, size: int, known: Mapping[str, Sequence[str]], *, hostile: bool = False) -> None:
        self.random = Random(seed)
        self.size = size
        self.known = known
        self.hostile = hostile
        self.used: set[str] = set()

    def call(self, name: str) -> str:
        self.used.add(name)
        return name

    def one_of(self, makers: Sequence[Callable[[], Grown]]) -> Grown:
        return self.random.choice(makers)()

    def constant(self) -> float:
        return self.random.choice(CONSTANTS + HUGE if self.hostile else CONSTANTS)

    def name(self, what: str) -> Grown:
        name = self.random.choice(self.known[what])
        return Grown(f"b.{name}", lambda env: env[name])

    def expression(self) -> Grown:
        """Write an expression of any kind."""
        makers = [self.array, self.number, self.number, self.several]
        makers += [self.mapping] * bool(self.known.get("mappings")) + [self.text] * bool(self.known.get("texts"))
        return self.one_of(makers)

    # Arrays

    def array(self) -> Grown:
        """Write an array."""
        self.size -= 1
        if self.size < 0:
            return self.name("arrays")
        return self.one_of(
            [self.elementwise, self.elementwise, self.operation, self.operation, self.part, self.reshaped, self.chosen,
             self.reduced, self.ordered]
        )  # fmt: skip

    def elementwise(self) -> Grown:
        a = self.array()
        kind = self.random.randrange(5)
        if kind == 0:
            return Grown(f"(-{a.text})", lambda env: np.negative(a.compute(env)), a.exact)
        if kind == 1:
            name = self.call(self.random.choice(TESTS))
            return Grown(f"{name}({a.text})", lambda env: getattr(np, name)(a.compute(env)), a.exact)
        if kind == 2 and a.exact:
            name = self.call(self.random.choice((*STEPPED, "round")))
            return Grown(f"{name}({a.text})", lambda env: getattr(np, name)(a.compute(env)))
        name = self.call(self.random.choice(SMOOTH))
        return Grown(f"{name}({a.text})", lambda env: getattr(np, name)(a.compute(env)), False)

    def operation(self) -> Grown:
        a = self.array()
        b = self.array() if self.random.randrange(3) == 0 else self.plain()
        exact = a.exact and b.exact
        ops = ARITHMETIC + (STEPPED_ARITHMETIC + COMPARISONS + LOGIC if exact else ())
        op = self.random.choice(ops)
        text = f"({a.text} {op} {b.text})"

        def compute(env: Env) -> Any:
            return eval(f"x {op} y", {"x": a.compute(env), "y": b.compute(env)})

        if self.random.randrange(4):
            return Grown(text, compute, exact and op not in ("/", "**"))
        name = self.call(self.random.choice(("maximum", "minimum")))
        return Grown(
            f"{name}({a.text}, {b.text})", lambda env: getattr(np, name)(a.compute(env), b.compute(env)), exact
        )

    def plain(self) -> Grown:
        number = self.constant()
        return Grown(repr(number), lambda env: number)

    def part(self) -> Grown:
        a = self.array()
        index, place = self.random.choice((
            ("[1:]", np.s_[1:]), ("[::2]", np.s_[::2]), ("[-3:]", np.s_[-3:]), ("[..., None]", np.s_[..., None]),
            ("[None]", np.s_[None]), ("[:100]", np.s_[:100]), ("[...]", np.s_[...]), ("[[0, -1, 0]]", [0, -1, 0]),
        ))  # fmt: skip
        return Grown(f"{a.text}{index}", lambda env: array_of(a.compute(env))[place], a.exact)

    def reshaped(self) -> Grown:
        a = self.array()
        kind = self.random.randrange(7)
        if kind == 0:
            return Grown(f"{a.text}.T", lambda env: a.compute(env).T, a.exact)
        if kind == 1:
            name = self.random.choice(("real", "imag"))
            return Grown(f"{a.text}.{name}", lambda env: getattr(a.compute(env), name), a.exact)
        if kind == 2:
            shape = self.random.choice(("-1", "(-1, 1)", "(1, -1)", "2, -1"))
            self.call("reshape")
            sizes = eval(f"({shape},)" if shape == "-1" else shape)
            return Grown(f"{a.text}.reshape({shape})", lambda env: np.reshape(a.compute(env), sizes), a.exact)
        if kind == 3:
            self.call("diff")
            axis = self.random.choice((-1, 0))
            return Grown(f"{a.text}.diff(axis={axis})", lambda env: differences(a.compute(env), axis), a.exact)
        if kind == 6:
            self.call("pieces")
            return Grown(f"pieces({a.text})", lambda env: np.ravel(a.compute(env)), a.exact)
        name = self.call(("ravel", "cumsum")[kind - 4])
        if name == "cumsum" and self.random.random() < 0.5:
            return Grown(f"{a.text}.cumsum(axis=-1)", lambda env: np.cumsum(a.compute(env), axis=-1), a.exact)
        return Grown(f"{a.text}.{name}()", lambda env: getattr(np, name)(a.compute(env)), a.exact)

    def chosen(self) -> Grown:
        a, kind = self.array(), self.random.randrange(4)
        low = self.constant()
        if kind == 0:
            self.call("clip")
            return Grown(f"{a.text}.clip({low}, None)", lambda env: np.clip(a.compute(env), low, None), a.exact)
        condition = a if a.exact else self.name("arrays")
        if kind == 1:
            return Grown(
                f"{a.text}[{condition.text} > {low}]",
                lambda env: array_of(a.compute(env))[condition.compute(env) > low],
                a.exact,
            )
        if kind == 2:
            k = self.random.choice((1, 5, 1000, 100_000))
            self.call("sample")

            def compute(env: Env) -> Any:
                if len(found := a.compute(env)) > k:
                    raise Unknown
                return found

            return Grown(f"{a.text}.sample({k})", compute, a.exact)
        b = self.array()
        self.call("where")
        return Grown(
            f"where({condition.text} > {low}, {a.text}, {b.text})",
            lambda env: np.where(condition.compute(env) > low, a.compute(env), b.compute(env)),
            a.exact and b.exact,
        )

    def reduced(self) -> Grown:
        a = self.array()
        axis = self.random.choice((0, -1))
        name = self.call(self.random.choice(STATISTICS + (PLACES if a.exact else ())))
        return Grown(
            f"{a.text}.{name}(axis={axis})", lambda env: statistic(name, a.compute(env), axis),
            a.exact and name in ("min", "max", "any", "all", *PLACES),
        )  # fmt: skip

    def ordered(self) -> Grown:
        a = self.array()
        kind = self.random.randrange(12)
        if kind == 8:
            self.call("stack")
            return Grown(f"stack([{a.text}, {a.text}])", lambda env: np.stack([a.compute(env)] * 2), a.exact)
        if kind == 9 and a.exact:
            name = self.call(self.random.choice(("unique", "nonzero")))
            return Grown(f"{a.text}.{name}()[0]", lambda env: COUNTED[name](array_of(a.compute(env))))
        if kind == 10 and a.exact:
            self.call("searchsorted")
            return Grown(
                f"searchsorted({a.text}.ravel().sort(), [0, 1, 2.5])",
                lambda env: np.searchsorted(np.sort(np.ravel(real(a.compute(env)))), [0, 1, 2.5]),
            )
        if kind == 11 and a.exact:
            self.call("bincount")
            return Grown(f"({a.text} > 0).astype('int64').bincount(2)", lambda env: halves(a.compute(env)))
        if kind == 0:
            name = self.call(self.random.choice(("sort", "argsort") if a.exact else ("sort",)))
            return Grown(f"{a.text}.{name}()", lambda env: in_order(name, array_of(a.compute(env))), a.exact)
        if kind == 1:
            self.call("softmax")
            return Grown(f"{a.text}.softmax()", lambda env: softmax(array_of(a.compute(env))), False)
        if kind == 2:
            b = self.array()
            self.call("concat")
            return Grown(
                f"concat([{a.text}, {b.text}], None)",
                lambda env: np.concatenate([np.ravel(a.compute(env)), np.ravel(b.compute(env))]), a.exact and b.exact,
            )  # fmt: skip
        if kind == 3 and a.exact:
            self.call("isin")
            return Grown(f"isin({a.text}, [0, 1, 0.5])", lambda env: np.isin(a.compute(env), [0, 1, 0.5]))
        if kind == 4:
            dtype = self.random.choice(("float32", "float64"))
            self.call("astype")
            return Grown(f"{a.text}.astype('{dtype}')", lambda env: real(a.compute(env)).astype(dtype), a.exact)
        if kind == 5:
            self.call("matmul")
            return Grown(f"({a.text} @ {a.text}.T)", lambda env: a.compute(env) @ a.compute(env).T, False)
        k = self.random.choice((1, 3, 100, 100_000))
        self.call("topk")
        return Grown(f"{a.text}.topk({k})", lambda env: np.sort(np.ravel(a.compute(env)))[::-1][:k], a.exact)

    # Numbers

    def number(self) -> Grown:
        """Write a number."""
        self.size -= 1
        a = self.array()
        kind = self.random.randrange(14)
        if kind == 11:
            q = self.random.choice((0, 25, 90, 100))
            self.call("percentile")
            return Grown(f"{a.text}.percentile({q})", lambda env: quantile(a.compute(env), q / 100), False)
        if kind == 12:
            self.call("dot")
            return Grown(f"dot({a.text}.ravel(), {a.text}.ravel())", lambda env: squares(a.compute(env)), False)
        if kind == 13:
            self.used |= {"float", "svdvals"}
            return Grown(
                f"float(svdvals({a.text}.ravel()[:50].reshape(1, -1)))",
                lambda env: norm(filled(a.compute(env)).reshape(1, -1)), False,
            )  # fmt: skip
        if kind == 9:
            self.call("logsumexp")
            return Grown(f"{a.text}.logsumexp()", lambda env: logsumexp(a.compute(env)), False)
        if kind == 10:
            name, b = self.call(self.random.choice(tuple(PAIRED))), self.array()
            return Grown(f"{name}({a.text}, {b.text})", lambda env: paired(name, a.compute(env), b.compute(env)), False)
        if kind == 0 and self.known.get("numbers"):
            return self.name("numbers")
        if kind == 1:
            self.call("norm")
            return Grown(f"{a.text}.norm()", lambda env: norm(a.compute(env)), False)
        if kind == 2:
            q = self.random.choice((0, 0.25, 0.9, 1))
            self.call("quantile")
            return Grown(f"{a.text}.quantile({q})", lambda env: quantile(a.compute(env), q), False)
        if kind == 3:
            self.call("median")
            return Grown(f"{a.text}.median()", lambda env: quantile(a.compute(env), 0.5), False)
        if kind == 4:
            name = self.call(self.random.choice(("len", "size")))
            return Grown(
                f"{a.text}.{name}()", lambda env: len(a.compute(env)) if name == "len" else np.size(a.compute(env))
            )
        if kind == 5:
            name = self.call(self.random.choice(("first", "last")))
            return Grown(f"{a.text}.{name}()", lambda env: a.compute(env)[0 if name == "first" else -1], a.exact)
        if kind == 6:
            self.call("item")
            return Grown(f"{a.text}.ravel()[:1].item()", lambda env: np.ravel(a.compute(env))[:1].item(), a.exact)
        name = self.call(self.random.choice(STATISTICS + (PLACES if a.exact else ())))
        return Grown(f"{a.text}.{name}()", lambda env: statistic(name, a.compute(env), None), False)

    # Containers and texts

    def several(self) -> Grown:
        kind = self.random.randrange(5)
        if kind == 0:
            a, bins = self.array(), self.random.choice((1, 9, 64, 100_000))
            a = a if a.exact else self.name("arrays")
            self.call("histogram")
            return Grown(f"{a.text}.histogram({bins})", lambda env: histogram(a.compute(env), bins))
        if kind == 1:
            a = self.array()
            self.call("shape")
            return Grown(f"{a.text}.shape()", lambda env: np.shape(a.compute(env)))
        items = [
            self.one_of([self.array, self.number]) for _ in range(self.random.randint(1, 60 if self.hostile else 4))
        ]
        texts = [item.text for item in items]
        if kind == 2:
            text = "{" + ", ".join(f"'k{i}': {text}" for i, text in enumerate(texts)) + "}"
            return Grown(text, lambda env: {f"k{i}": item.compute(env) for i, item in enumerate(items)}, False)
        return Grown(f"[{', '.join(texts)}]", lambda env: [item.compute(env) for item in items], False)

    def mapping(self) -> Grown:
        m, kind = self.name("mappings"), self.random.randrange(6)
        if kind == 0:
            name = self.call(self.random.choice(("keys", "values", "items", "len", "leaves")))
            return Grown(f"{m.text}.{name}()", lambda env: of_mapping(name, m.compute(env)))
        if kind == 1:
            part = self.random.choice(("a", "w", "layer", ""))
            self.used |= {"filter", self.call(self.random.choice(("startswith", "endswith", "contains")))}
            name = self.random.choice(("startswith", "endswith", "contains"))
            test = str.__contains__ if name == "contains" else getattr(str, name)
            return Grown(
                f"{m.text}.filter(lambda n, v: n.{name}({part!r}))",
                lambda env: {key: value for key, value in m.compute(env).items() if test(key, part)},
            )
        inner = Author(self.random.randrange(2**32), self.size, {"arrays": ["v"]}, hostile=self.hostile)
        body = inner.one_of([inner.array, inner.number])
        self.used |= inner.used | {"map"}
        return Grown(
            f"{m.text}.map(lambda n, v: {body.text.replace('b.v', 'v')})",
            lambda env: {key: body.compute({"v": value}) for key, value in m.compute(env).items()},
            False,
        )

    def text(self) -> Grown:
        t, part = self.name("texts"), self.random.choice(("a", "none", ""))
        if self.known.get("lists") and self.random.randrange(2):
            listed = self.name("lists")
            self.call("contains")
            return Grown(f"{listed.text}.contains({part!r})", lambda env: part in listed.compute(env))
        name = self.call(self.random.choice(("startswith", "endswith", "contains")))
        test = str.__contains__ if name == "contains" else getattr(str, name)
        return Grown(f"{t.text}.{name}({part!r})", lambda env: test(t.compute(env), part))

    # Queries

    def query(self, event: str) -> str:
        """Write a query with stages and reducers; what it gives is not told."""
        a, choose = self.expression(), self.random.choice
        chain = f"on({event!r})"
        for _ in range(self.random.randrange(3)):
            condition = self.number()
            chain += f".where(lambda b: {condition.text} {choose(COMPARISONS)} {self.constant()})"
        chain += f".map(lambda b: {a.text})"
        for _ in range(self.random.randrange(3)):
            reducer = choose((
                "count(", "sum(", "mean(", "var(", "std(", "min(", "max(", "first(", "last(",
                "median(", "percentile(30, ", "quantile([0.1, 0.9], ",
                "histogram(1000, ", "top(3, ", "sample(2, ", "collect(5, ", "reduce(lambda a, x: a + x, 0.0, ",
            ))  # fmt: skip
            chain += f".{reducer}{choose(WINDOWS)})".replace(", )", ")")
        return chain


def array_of(x: Any) -> Any:
    """Return an array, which can be indexed; a number cannot."""
    if not np.ndim(x):
        raise TypeError("a number")
    return x


def histogram(x: Any, bins: int) -> Histogram:
    """Return a histogram, of real numbers only."""
    made = Histogram(np.atleast_1d(x), bins=bins)
    _ = made.counts
    return made


def statistic(name: str, x: Any, axis: int | None) -> Any:
    """Return a statistic; those of nothing are NaN."""
    if name in ("mean", "std", "var") and not np.size(x):
        return np.sum(x, axis=axis) * np.nan
    return getattr(np, name)(x, axis=axis)


def norm(x: Any) -> Any:
    """Return the root of the sum of squares."""
    wide = np.abs(x).astype(np.float64) if np.asarray(x).dtype.itemsize < 16 else np.abs(x)
    return np.sqrt(np.sum(wide**2))


def quantile(x: Any, q: float) -> Any:
    """Return a quantile; between an infinity and a number, NumPy's is NaN or the infinity: here it is the infinity."""
    flat = np.ravel(x).astype(np.float32) if np.asarray(x).dtype == np.float16 else np.ravel(x)
    for end in (np.quantile(flat, q, method=method) for method in ("lower", "higher")):
        if np.isinf(end):
            return end
    return np.quantile(flat, q)


def filled(x: Any) -> Any:
    """Return the first items of an array that has some."""
    if not np.size(x):
        raise TypeError("no item")
    return tame(np.ravel(x)[:50])


def real(x: Any) -> Any:
    """Return an array of real numbers."""
    if np.asarray(x).dtype.kind == "c":
        raise TypeError("complex numbers")
    return np.asarray(x)


COUNTED: Final[Mapping[str, Callable[[Any], Any]]] = {
    "unique": np.unique,
    "nonzero": lambda x: np.nonzero(x)[0],
}


def halves(x: Any) -> Any:
    """Return how many numbers are above zero, behind how many are not."""
    return np.bincount(np.ravel(x > 0).astype(np.int64), minlength=2)


def squares(x: Any) -> Any:
    """Return the sum of squares, without a conjugate, in the array's own digits."""
    return np.dot(np.ravel(x), np.ravel(x))


def in_order(name: str, x: Any) -> Any:
    """Return the items along the last axis in order, or their places."""
    return np.sort(x) if name == "sort" else np.argsort(x, kind="stable")


def differences(x: Any, axis: int) -> Any:
    """Return the differences along the first or the last axis."""
    return x[1:] - x[:-1] if axis == 0 else x[..., 1:] - x[..., :-1]


def tame(x: Any) -> Any:
    """Return an array of numbers whose squares any precision holds."""
    if not np.all(np.abs(x) < TAME):
        raise Unknown
    return x


def wide(x: Any) -> Any:
    """Return real numbers with the digits of float64."""
    return tame(real(x).astype(np.float64))


def softmax(x: Any) -> Any:
    """Return the exponentials along the last axis, divided by their sum, with the digits of the argument."""
    x = real(x)
    powers = np.exp(wide(x) - wide(x).max(axis=-1, keepdims=True))
    return (powers / powers.sum(axis=-1, keepdims=True)).astype(x.dtype if x.dtype.kind == "f" else np.float64)


def logsumexp(x: Any) -> Any:
    """Return the logarithm of the sum of exponentials."""
    return np.logaddexp.reduce(np.ravel(wide(x)).astype(np.float32 if x.dtype.itemsize < 8 else np.float64))


def paired(name: str, x: Any, y: Any) -> Any:
    """Return how two arrays vary together, with the digits of the coarser one."""
    a, b = np.ravel(wide(x)), np.ravel(wide(y))
    if len(a) != len(b) or len(a) < 2:
        raise Unknown
    if min(np.std(a) / (1 + np.max(np.abs(a))), np.std(b) / (1 + np.max(np.abs(b)))) < SPREAD:
        raise Unknown  # a difference of nearly equal numbers is rounding
    narrow = np.float32 if min(np.asarray(one).dtype.itemsize for one in (x, y)) < 8 else np.float64
    return narrow(PAIRED[name](a, b))


PAIRED: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "cosine": lambda a, b: a @ b / np.sqrt((a @ a) * (b @ b)),
    "cov": lambda a, b: np.cov(a, b)[0, 1],
    "corr": lambda a, b: np.corrcoef(a, b)[0, 1],
}


def of_mapping(name: str, mapping: Mapping[str, Any]) -> Any:
    """Return the length, a list of the keys, values or items, or the arrays of a mapping."""
    if name == "leaves":
        return {key: value for key, value in mapping.items() if hasattr(value, "shape")}
    return len(mapping) if name == "len" else list(getattr(mapping, name)())
