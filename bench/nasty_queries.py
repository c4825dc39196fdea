"""Queries that try to hurt a run, and cheap ones that must be answered. `b` has the observables of `harmed_run`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

Case = str | list[str]
"""An expression of `b`, a whole query, or several of these at once."""


def several(text: str, n: int) -> str:
    """Return a list of n expressions; `#` is replaced by the number of each."""
    return f"[{', '.join(text.replace('#', str(i)) for i in range(n))}]"


def total(text: str, n: int) -> str:
    """Return a sum of n expressions; `#` is replaced by the number of each."""
    return " + ".join(text.replace("#", str(i)) for i in range(n))


def nested(text: str, n: int, start: str = "b.x") -> str:
    """Return an expression n deep; `@` is replaced by what it is applied to."""
    for _ in range(n):
        start = text.replace("@", start)
    return start


def query(case: str) -> str:
    """Return an expression or a query as the text of a query."""
    return case if case.startswith("on(") else f"on('batch').map(lambda b: {case})"


TWOS: Final = ", ".join(["2"] * 21)

LAYOUTS: Final = {
    "rows of four": "b.x.reshape(-1, 4)",
    "x, backwards": "b.x[::-1]",
    "columns of x": "b.x.reshape(1000, -1).T",
    "a third of half precision": "b.half[::3]",
    "rows that a mask picks": "b.x.reshape(-1, 8)[b.mask[:b.x.size // 8]]",
}
WORK: Final = {
    "sin": "sin(@).max()", "a power": "(abs(@) ** 0.37).max()", "sort": "@.sort()[0].sum()",
    "sort by columns": "@.sort(axis=0)[0].sum()",
    "argsort": "@.argsort()[0].sum()", "median": "@.median()", "medians": "@.median(axis=-1).max()",
    "quantiles": "@.quantile([0.1, 0.9], axis=0)[0].max()", "std": "@.std(axis=-1).max()", "norm": "@.norm()",
    "cumsum": "@.cumsum()[-1]", "diff": "@.diff(axis=0).max()", "histogram": "@.histogram(1000).n_nan",
    "topk": "@.topk(1000)[0]",
    "unique": "@.unique().values.size", "nonzero": "nonzero(@ > 0)[0].size", "softmax": "softmax(@, axis=0).max()",
    "logsumexp": "logsumexp(@)", "argmax": "@.argmax(axis=0).max()", "isin": "isin(@, b.k).any()",
}  # fmt: skip

NASTY: Final[dict[str, Case]] = {
    # Chains of element-wise operations
    "60 x sin(x * 1e300)": several("sin(b.x * 1e300 + #).sum()", 60),
    "sin, 45 deep": f"{nested('sin(@)', 45)}.sum()",
    "x*1+(x*1+(…)), 20 deep": f"({nested('b.x * 1 + (@)', 20)}).sum()",
    "60 x x ** 0.37": several("(b.x ** 0.37 + #).sum()", 60),
    "x ** x ** x, 20 deep": f"({nested('abs(b.x) ** (@)', 20)}).sum()",
    "exp(log(tanh(x))), 40 deep": f"{nested('exp(log(tanh(@)))', 18)}.sum()",
    "x % 0.1 // 0.01, 30 deep": f"({nested('(@) % 0.1 // 0.01', 20)}).sum()",
    "round(x, 3), 40 deep": f"{nested('round(@, 3)', 40)}.sum()",
    "where(x > 0, sin, cos), 14 deep": f"{nested('where(b.x > 0, sin(@), cos(b.x))', 14)}.sum()",
    "maximum and minimum, 40 deep": f"{nested('maximum(minimum(@, 0.9), -b.x)', 25)}.sum()",
    "denormal numbers * 1.0000001, 50 deep": f"({nested('(@) * 1.0000001', 50, 'b.denormal')}).sum()",
    "40 x sqrt, exp, log1p of denormals": several("(sqrt(b.denormal) + exp(b.denormal) + log1p(b.denormal)).sum()", 40),
    "100 x the largest of NaN": several("(b.nan + #).max()", 100),
    "log of negative numbers, 60 x": several("isnan(log(-abs(b.x) - #)).sum()", 60),
    "integers // 3 % 5 ** 2, 30 deep": f"({nested('(@) // 3 % 5 ** 2 + b.k', 20, 'b.k')}).sum()",
    "masks & | ~, 60 deep": f"({nested('~(@) & b.mask | b.mask', 19, 'b.mask')}).any()",
    "60 comparisons": several("(b.x == b.x * #).any()", 60),
    "60 x var over an axis": several("(b.x.reshape(1000, -1) + #).var(axis=0).sum()", 60),
    # What cannot be done in blocks
    "45 quantiles": total("b.x.quantile(0.#1)", 45),
    "one quantile": "b.x.quantile(0.5)",
    "900 quantiles of x": f"b.x.quantile([{', '.join(str(i / 900) for i in range(900))}])",
    "100 x median": several("median(b.x)", 100),
    "one topk": "b.x.topk(1)",
    "80 x topk(x + i, 1)": several("topk(b.x + #, 1)", 80),
    "40 x topk of 100,000": total("b.x.topk(100000 + #).sum()", 40),
    "8 x topk of 1,000,000": several("b.x.topk(99999#)", 8),
    "4 histograms of a million bins": several("histogram(b.x, bins=1000000)", 4),
    "60 histograms of a million bins, of ten values": several("b.x[#:][:10].histogram(1000000).n_nan", 60),
    "99 histograms of a million bins, of nine values": "b.layers.map(lambda v: v[:9].histogram(1000000).n_nan)",
    "60 histograms": several("histogram(b.x + #)", 60),
    "cumsum and diff, 20 deep": f"{nested('diff(cumsum(@))', 20)}.sum()",
    "60 x the last of cumsum": several("cumsum(b.x + #)[-1]", 60),
    "40 x argmax of cumsum": several("argmax(cumsum(b.x * #))", 40),
    "sample of a million, 20 x": several("(b.x + #).sample(1000000).sum()", 20),
    "10,000 samples of x": "b.arrays.map(lambda n, v: b.x.sample(9)[0])",
    # Shapes and indices
    "x[None] - x[:, None]": "(b.x[None] - b.x[:, None]).sum()",
    "outer differences of 60 MB, 30 x": several("(b.x[:2800] - b.x[#:, None][:2800]).sum()", 30),
    "outer products of 60 MB, 10 deep": f"({nested('(@) * b.x[:2800, None]', 10, 'b.x[:2800]')}).sum()",
    "40 x x[x > 0]": several("b.x[b.x > 0.0#].sum()", 40),
    "40 x x[random places]": several("b.x[b.places].sum() + #", 40),
    "40 x a transposed copy": several("(b.x.reshape(1000, -1).T.ravel() + #)[0]", 40),
    "21 axes of 2, transposed, 4 x": several(
        f"b.x[:2097152].reshape({TWOS}).T.ravel().reshape({TWOS}).sum(axis=0).max() + #", 4
    ),
    "60 x sums over rows of one": several("(b.x.reshape(-1, 1) * #).sum(axis=1).max()", 60),
    "x[i:][::7] strided, 60 x": several("sin(b.x[#:][::7]).sum()", 60),
    "a list of 60 times x, its mean": f"[{', '.join(['b.x'] * 60)}].mean(axis=0).sum()",
    "60 results of 1 MB": several("b.x[:125000] * #", 60),
    "60 results of x": several("b.x * #", 60),
    "the whole event": "on('batch')",
    # Mappings, sequences, texts
    "99 names in 99 names in 99 names": "b.few.map(lambda u: b.few.map(lambda v: b.few.map(lambda w: u + v + w)))",
    "10,000 names in 10,000 names": "b.many.map(lambda v: b.many.map(lambda w: v + w))",
    "10,000 x sin(x)": "b.arrays.map(lambda n, v: sin(b.x).sum())",
    "10,000 small arrays: norm, std, median": "b.arrays.map(lambda n, v: (v.norm(), v.std(), v.median()))",
    "10,000 small arrays: histogram": "b.arrays.map(lambda n, v: v.histogram(99).n_nan)",
    "99 layers times 99 layers": "b.layers.map(lambda v: b.layers.map(lambda w: (v * w).sum()))",
    "99 layers: 10,000 bins, topk, std": "b.layers.map(lambda v: (v.histogram(10000), v.topk(9), v.std()))",
    "30 maps over 10,000 small arrays": several("b.arrays.map(lambda v: 1).len() + #", 30),
    "10,000 small arrays": "b.arrays",
    "10,000 pairs": "b.many.items()",
    "10,000 mappings of one": "b.many.map(lambda n, v: {'a': v})",
    "99 x keys, items and values of 10,000": "b.few.map(lambda v: b.many.keys().len() + b.many.items().len())",
    "filter of filters of 10,000 words": "b.words.filter(lambda v: b.words.filter(lambda w: w > v).len() > 0)",
    "10,000 x contains in 10,000": "b.words.map(lambda v: b.words.contains('none'))",
    "100 x contains in a text of 20 MB": several("b.text.contains('aaaaaaaab#')", 100),
    "100 comparisons of texts of 20 MB": several("b.text <= b.text", 100),
    "100 sums of 10,000 numbers": several("b.many.values().sum() + #", 100),
    "a list that holds itself, by item": "b.own[0]",
    "250,000 leaves, by item": "b.leaves['a'][0]",
    "250,000 leaves, mapped": "b.leaves.map(lambda n, v: v.map(lambda w: w * 2))",
    # Half precision, complex numbers
    "60 x sin of half precision": several("(sin(b.half) + #).sum()", 60),
    "40 x norm, quantile of half precision": several("b.half.norm() + b.half.quantile(0.#1)", 40),
    "complex powers, 20 deep": f"abs({nested('(@) ** 0.5 + b.complex', 20, 'b.complex')}).sum()",
    "40 x exp of complex numbers": several("abs(exp(b.complex * #)).max()", 40),
    # Stages, reducers and windows
    "where(median(x) > -9), 30 stages": f"on('batch'){'.where(lambda b: median(b.x) > -9)' * 30}.map(lambda b: b.one)",
    "map(sin), 30 stages": f"on('batch').map(lambda b: b.x){'.map(lambda v: sin(v))' * 29}.map(lambda v: v.sum())",
    "when=sin(x * 1e300), 9 reducers": "on('batch').map(lambda b: b.one)"
    + "".join(f".mean(when=lambda b: sin(b.x * 1e300 + {i}).sum() > 0)" for i in range(9)),
    "collect x": "on('batch').map(lambda b: b.x).collect(limit=1000, per='epoch')",
    "top(1000) of x, by its median": "on('batch').map(lambda b: b.x).top(1000, key=lambda v: median(v), per='epoch')",
    "sample(1000) of 1 MB": "on('batch').map(lambda b: b.x[:125000]).sample(1000, per='epoch')",
    "std of x over events": "on('batch').map(lambda b: b.x).std(per='epoch')",
    "quantiles of x over events": "on('batch').map(lambda b: b.x).quantile([0.1, 0.5, 0.9], per='epoch')",
    "histograms of 10,000 numbers over events": "on('batch').map(lambda b: b.many).histogram(64, per='epoch')",
    "histogram of a million bins over events": "on('batch').map(lambda b: b.x).histogram(1000000, every=1)",
    "reduce with topk": "on('batch').map(lambda b: b.x).reduce(lambda a, v: a + topk(v, 1)[0], 0.0, every=2)",
    "reduce with sin, on x": "on('batch').map(lambda b: b.x[:1000000])"
    ".reduce(lambda a, v: a + sin(v * 1e300).sum() + sin(v * 1e301).sum() + sin(v * 1e302).sum(), 0.0, every=2)",
    "after a reducer: 60 x sin(x * 1e300)": "on('batch').map(lambda b: b.x).last(every=1)"
    f".map(lambda v: {several('sin(v * 1e300 + #).sum()', 60)})",
    "after a reducer: where(median(x) > -9)": "on('batch').map(lambda b: b.x).last(every=1)"
    + ".where(lambda v: median(v) > -9)" * 20
    + ".count(every=1)",
    "after a reducer: 20 x median of 100,000": "on('batch').map(lambda b: b.x[:100000]).last(every=1)"
    + ".where(lambda v: v.median() > -9)" * 20,
    "after collect: 1 MB from each of 5": "on('batch').map(lambda b: b.x[:125000]).collect(5, every=2)"
    ".map(lambda v: v.map(lambda w: w.topk(125000)))",
    # Sorting, counting, linear algebra
    "sort of x": "b.x.sort()[0]",
    "60 x sort of 100,000": several("(b.x[#:][:100000]).sort()[0]", 60),
    "argsort of argsort of x": "b.x.argsort().argsort()[0]",
    "values and counts of x": "b.x.unique().counts.max()",
    "60 x values of 50,000": several("(b.k[#:][:50000]).unique().values.size", 60),
    "nonzero places of x": "b.mask.nonzero()[0].size",
    "counts up to a million": "bincount(b.places % 1000000)",
    "x searched in x": "searchsorted(b.x[:1000000].sort(), b.x).sum()",
    "x among x": "isin(b.x, b.x).sum()",
    "products of 2,000 x 2,000": "(b.x[:4000000].reshape(2000, 2000) @ b.x[:4000000].reshape(2000, 2000)).sum()",
    "products of 300 x 300, 50 deep": nested(
        "matmul(@, b.x[:90000].reshape(300, 300))", 50, "b.x[:90000].reshape(300, 300)"
    )
    + ".sum()",
    "singular values of 2,000 x 2,000": "svdvals(b.x[:4000000].reshape(2000, 2000))[0]",
    "60 x singular values of 100 x 100": several("svdvals(b.x[#:][:10000].reshape(100, 100))[0]", 60),
    "covariance of 2,000 rows": "cov(b.x[:4000000].reshape(2000, 2000)).sum()",
    "correlation of 2,000 rows": "corr(b.x[:4000000].reshape(2000, 2000)).sum()",
    "softmax and logsumexp, 40 x": several("softmax(b.x + #).max() + logsumexp(b.x)", 40),
    "80 x, stacked and joined": f"concat([{', '.join(['stack([b.x, b.x])'] * 40)}]).max()",
    "as integers and back, 60 x": several("b.x.astype('int64').astype('float32').sum()", 60),
    # Sliding windows, running values, groups by value, several events
    "x, sliding": "on('batch').map(lambda b: b.x).rolling(1000).mean()",
    "x collected, sliding": "on('batch').map(lambda b: b.x).rolling(100000).collect()",
    "medians of 1 MB, sliding": "on('batch').map(lambda b: b.x[:125000]).rolling('1 h').quantile(0.5)",
    "10,000 numbers, sliding over 100,000": "on('batch').map(lambda b: b.many).rolling(100000).std()",
    "running sum with sin, on x": "on('batch').map(lambda b: b.x).scan(lambda a, v: a + sin(v * 1e300).sum(), 0.0)",
    "running lists": "on('batch').map(lambda b: b.words).scan(lambda a, v: a + v, [])",
    "ema and diff of x": "on('batch').map(lambda b: b.x).ema(0.1).diff().map(lambda v: norm(v))",
    "keys of 20 MB": "on('batch').map(lambda b: b.one).mean(by=lambda b: b.text, per='epoch')",
    "keys of x": "on('batch').map(lambda b: b.x).mean(by=lambda b: b.x[0], per='epoch')",
    "keys by median": "on('batch').map(lambda b: b.one).count(by=lambda b: [median(b.x), b.step], per='epoch')",
    "quantiles of x by key": "on('batch').map(lambda b: b.x).quantile([0.1, 0.9], by=lambda b: b.step, per='epoch')",
    "distinct texts of 20 MB": "on('batch').map(lambda b: b.text).distinct()",
    "x beside a snapshot's": "on('batch').join('shot').map(lambda b: (b.x - b.shot.x).norm())",
    "60 x sin(x) beside itself": "on('batch').join('shot').map(lambda b: "
    + several("sin(b.shot.x * 1e300 + b.x * #).sum()", 60)
    + ")",
    # A snapshot, which is evaluated when the query is opened
    "of a snapshot: 60 x sin(x * 1e300)": f"on('shot').map(lambda b: {several('sin(b.x * 1e300 + #).sum()', 60)})",
    "of a snapshot: 40 x topk of 100,000": f"on('shot').map(lambda b: {total('b.x.topk(100000 + #).sum()', 40)})",
    # Many streams of one client
    "200 streams: sin(x + i)": [f"sin(b.x + {i}).sum()" for i in range(200)],
    "200 streams: x[i:]": [f"b.x[{i}:]" for i in range(200)],
    "200 streams: a hundredth of x": [f"b.x[{i}:][:40000].std()" for i in range(200)],
    "100 streams: topk, quantile": [f"topk(b.x, {i + 1}).sum() + b.x.quantile(0.{i}1)" for i in range(100)],
    # Reducers of medians, and arithmetic behind reducers
    "medians of x over events": "on('batch').map(lambda b: b.x).median(per='epoch')",
    "ten percentiles of 1 MB over events": "on('batch').map(lambda b: b.x[:125000])"
    ".percentile([10, 20, 30, 40, 50, 60, 70, 80, 90, 99], per='epoch')",
    "medians of 10,000 numbers, sliding": "on('batch').map(lambda b: b.many).rolling(1000).median()",
    "behind a reducer: sines of x": "on('batch').map(lambda b: b.x).mean(every=1)"
    f".map(lambda v: {nested('sin(@)', 40, 'v')}.sum())",
    "by 10,000 keys": "on('batch').map(lambda b: b.x).mean(by=lambda b: b.many.keys(), per='epoch')",
    # Texts and mappings
    "the text, twice": "b.text + b.text",
    "the text, backwards": "b.text[::-1]",
    "99 x a part of the text": several("b.text[#:].contains('b')", 99),
    "10,000 words, joined pairwise": "b.words.map(lambda v: b.words.map(lambda w: v + w).len())",
    "10,000 words, sorted by filter": "b.words.filter(lambda v: b.many.filter(lambda n, w: n < v).len() > 5)",
    "values of 99 layers, joined": "concat(b.layers.values()).sort()[0]",
    "99 layers, stacked and sorted": "stack(b.layers.values()).sort(axis=0)[0, 0]",
    "99 layers, correlated": "corr(stack(b.layers.values())).sum()",
    "30 x the keys in 10,000 words": several("b.many.keys().filter(lambda n: b.words.contains(n)).len() + #", 30),
    # Conditions
    "one of two, 15 deep": f"({nested('(@) if b.one > # else b.x.median()', 15)})".replace("#", "9"),
    "where by 9 medians": "on('batch')" + ".where(lambda b: b.x.median() > -9)" * 9 + ".count(per='epoch')",
    "samples of samples": f"{nested('@.sample(3000000)', 9)}.sum()",
    "rows picked by a mask, 20 x": several("b.x.reshape(1000, -1)[b.mask[:1000]].max() + #", 20),
    "rows picked by places, 20 x": several("b.x.reshape(1000, -1)[b.places % 1000].max() + #", 20),
    "planes of planes": "b.x.reshape(100, 100, -1)[:, b.k % 100, :].sum()",
    **{f"40 x {name} of {of}": several(work.replace("@", f"({array} + #)"), 40)
       for name, work in WORK.items() for of, array in LAYOUTS.items()},
}  # fmt: skip

Reference = Callable[[dict[str, Any]], Any]

CHEAP: Final[dict[str, Reference]] = {
    "b.one * 2 + b.step": lambda b: b["one"] * 2 + b["step"],
    "b.x[0]": lambda b: b["x"][0],
    "b.x.shape": lambda b: b["x"].shape,
    "b.x[:1000].mean()": lambda b: b["x"][:1000].mean(),
    "b.x[:10000].std()": lambda b: b["x"][:10_000].std(),
    "sin(b.x[:10000]).sum()": lambda b: np.sin(b["x"][:10_000]).sum(),
    "b.x[:20000].quantile(0.9)": lambda b: np.quantile(b["x"][:20_000], 0.9),
    "b.x[:20000].topk(5)": lambda b: np.sort(b["x"][:20_000])[:-6:-1],
    "b.x[:20000].histogram(9).counts": lambda b: np.histogram(b["x"][:20_000], 9)[0],
    "b.x[::5000].max()": lambda b: b["x"][::5000].max(),
    "b.x[:60].reshape(3, 20).sum(axis=0)": lambda b: b["x"][:60].reshape(3, 20).sum(0),
    "where(b.x[:900] > 0, b.x[:900], 0).sum()": lambda b: b["x"][:900].clip(0).sum(),
    "b.layers.map(lambda n, v: v[:99].mean())": lambda b: {n: v[:99].mean() for n, v in b["layers"].items()},
    "b.x[:1000].cumsum()[-1] + b.x[:1000].diff().min()": lambda b: b["x"][:1000].sum() + np.diff(b["x"][:1000]).min(),
    "(b.x[:64][None] - b.x[:64][:, None]).norm()": lambda b: np.linalg.norm(b["x"][:64][None] - b["x"][:64][:, None]),
    "b.words.contains('w7')": lambda b: "w7" in b["words"],
    "b.half[:1000].norm()": lambda b: np.linalg.norm(b["half"][:1000].astype(np.float32)),
    "abs(b.complex[:1000]).max()": lambda b: np.abs(b["complex"][:1000]).max(),
    "b.x[:200000].sum() - b.x[:200000].min()": lambda b: b["x"][:200_000].sum() - b["x"][:200_000].min(),
    "(b.x[:100000] * 2 + 1).norm()": lambda b: np.linalg.norm(b["x"][:100_000] * 2 + 1),
    "b.x[:50000].median()": lambda b: np.median(b["x"][:50_000]),
    "b.x[:4000000].sum()": lambda b: b["x"][:4_000_000].sum(),
    "b.own[0]": lambda b: 1,
    "b.leaves['a'][0]": lambda b: 0,
}
"""Each takes a few milliseconds at most, and so must be answered at every event, with NumPy's value."""
