"""An example of each function and reducer, asked of a run: `docs/functions.md` shows the queries with their results."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

import sightglass as sg

# What the example run announces: four events "batch", which differ in their loss and label.
LOSSES: Final = (0.5, 0.25, 0.75, 0.25)
LABELS: Final = ("cat", "dog", "cat", "dog")
SAME: Final[dict[str, Any]] = {
    "x": np.array([3.0, 1.0, 2.0]),
    "w": np.array([[1.0, 2.0], [3.0, 4.0]]),
    "y": np.array([0, 2, 1, 2]),
    "odd": np.array([1.0, np.nan, np.inf]),
    "grads": {"dense": np.array([3.0, 4.0]), "out": np.array([0.0, 1.0])},
    "name": "dense/kernel",
}

FUNCTION_EXAMPLES: Final = {
    "len": "len(batch.x)",
    "keys": "batch.grads.keys()",
    "values": "batch.grads.values()",
    "items": "batch.grads.items()",
    "leaves": "batch.grads.leaves().map(lambda name, g: norm(g))",
    "first": "batch.x.first()",
    "last": "batch.x.last()",
    "sample": "batch.y.sample(2)",
    "contains": "batch.name.contains('kernel')",
    "startswith": "batch.name.startswith('dense')",
    "endswith": "batch.name.endswith('bias')",
    "map": "batch.grads.map(lambda name, g: norm(g))",
    "filter": "batch.grads.filter(lambda name, g: norm(g) > 2)",
    "abs": "abs(batch.x - 2)",
    "sign": "sign(batch.x - 2)",
    "square": "square(batch.x)",
    "sqrt": "sqrt(batch.w)",
    "exp": "exp(batch.loss)",
    "expm1": "expm1(batch.loss)",
    "log": "log(batch.x)",
    "log2": "log2(batch.w)",
    "log10": "log10(batch.x * 100)",
    "log1p": "log1p(batch.loss)",
    "tanh": "tanh(batch.x)",
    "sin": "sin(batch.x)",
    "cos": "cos(batch.x)",
    "floor": "floor(batch.x / 2)",
    "ceil": "ceil(batch.x / 2)",
    "isnan": "isnan(batch.odd)",
    "isinf": "isinf(batch.odd)",
    "isfinite": "isfinite(batch.odd).all()",
    "round": "round(batch.x / 7, 2)",
    "clip": "batch.x.clip(1.5, None)",
    "where": "where(batch.x > 1.5, batch.x, 0)",
    "maximum": "maximum(batch.x, 2)",
    "minimum": "minimum(batch.x, 2)",
    "astype": "batch.x.astype('int32')",
    "isin": "isin(batch.y, [0, 1])",
    "float": "float(batch.x[:1])",
    "shape": "batch.w.shape",
    "size": "batch.w.size",
    "ravel": "batch.w.ravel()",
    "pieces": "pieces(batch.w)",
    "reshape": "batch.y.reshape((2, 2))",
    "item": "batch.x[:1].item()",
    "diff": "batch.x.diff()",
    "cumsum": "batch.x.cumsum()",
    "stack": "stack([batch.x, batch.x])",
    "concat": "concat([batch.x, batch.y])",
    "sort": "batch.x.sort(descending=True)",
    "argsort": "batch.x.argsort()",
    "topk": "batch.x.topk(2)",
    "searchsorted": "searchsorted(batch.x.sort(), 2.5)",
    "nonzero": "batch.y.nonzero()",
    "unique": "batch.y.unique()",
    "histogram": "batch.x.histogram(bins=2)",
    "bincount": "batch.y.bincount(4)",
    "matmul": "batch.w @ batch.w",
    "dot": "batch.x.dot(batch.x)",
    "svdvals": "svdvals(batch.w)",
    "cosine": "cosine(batch.grads.dense, batch.grads.out)",
    "cov": "cov(batch.x, batch.x ** 2)",
    "corr": "corr(batch.x, batch.x ** 2)",
    "sum": "batch.w.sum(axis=0)",
    "prod": "batch.w.prod()",
    "mean": "batch.w.mean(axis=1)",
    "std": "batch.x.std()",
    "var": "batch.x.var()",
    "min": "batch.x.min()",
    "max": "batch.w.max(axis=0)",
    "argmin": "batch.x.argmin()",
    "argmax": "batch.w.argmax(axis=1)",
    "any": "(batch.x > 2).any()",
    "all": "(batch.x > 2).all()",
    "norm": "norm(batch.grads.dense)",
    "quantile": "batch.x.quantile([0.5, 0.9])",
    "median": "batch.x.median()",
    "percentile": "batch.x.percentile(90)",
    "logsumexp": "batch.x.logsumexp()",
    "softmax": "batch.x.softmax()",
}
"""A query for each function, answered at the first event."""

REDUCER_EXAMPLES: Final = {
    "count": "batch.loss.count(every=4)",
    "sum": "batch.loss.sum(every=4)",
    "mean": "batch.loss.mean(every=4, by=lambda b: b.label)",
    "var": "batch.loss.var(every=4)",
    "std": "batch.loss.std(every=4)",
    "min": "batch.loss.min(every=4)",
    "max": "batch.loss.max(every=4)",
    "first": "batch.loss.first(every=4)",
    "last": "batch.loss.last(every=4)",
    "median": "batch.loss.median(every=4)",
    "quantile": "batch.loss.quantile(0.9, every=4)",
    "percentile": "batch.loss.percentile([10, 90], every=4)",
    "histogram": "batch.loss.histogram(bins=2, every=4)",
    "top": "on('batch').map(lambda b: (b.loss, b.label)).top(1, key=lambda pair: pair[0], every=4)",
    "sample": "batch.loss.sample(2, every=4)",
    "collect": "batch.label.collect(every=4)",
    "reduce": "batch.loss.reduce(lambda a, x: a + x * x, 0.0, every=4)",
    "argmax": "batch.loss.argmax(every=4)",
    "argmin": "batch.loss.argmin(every=4)",
    "distinct": "batch.label.distinct(every=4)",
    "rate": "batch.loss.rate(every=4)",
}
"""A query for each reducer, over the four events."""

STAGE_EXAMPLES: Final = {
    "scan": "batch.loss.scan(lambda a, x: a + x, 0.0)",
    "ema": "batch.loss.ema(0.5)",
    "diff": "on('batch').map(lambda b: b.loss).diff()",
    "rolling": "batch.loss.rolling(2).mean()",
}
"""A query for each stage that depends on values before; its records, one after another."""


def answers() -> dict[str, str]:
    """Ask a run the queries, one after another, and return the results as text."""
    texts: dict[str, str] = {}
    with sg.init("examples", budget=None) as run, sg.connect(run) as client:
        for query in (*FUNCTION_EXAMPLES.values(), *REDUCER_EXAMPLES.values(), *STAGE_EXAMPLES.values()):
            n = 1 if query not in STAGE_EXAMPLES.values() else len(LOSSES) - query.endswith(".diff()")
            with client.stream(query) as stream:
                for step, (loss, label) in enumerate(zip(LOSSES, LABELS, strict=True)):
                    run.observe("batch", step=step, loss=loss, label=label, **SAME)
                texts[query] = ", ".join(text_of(record.value) for record in stream.wait(n, timeout_s=60)[:n])
    return texts


def example_of(query: str, results: dict[str, str]) -> str:
    """Return the cell of the page for a query; a rate is not told, because the clock decides it."""
    return f"`{query}`" if ".rate(" in query else f"`{query}` → `{results[query]}`"


def text_of(value: object) -> str:
    """Write a result as Python does, floats with four digits."""
    if isinstance(value, np.ndarray | np.generic):
        return text_of(value.tolist())
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return f"[{', '.join(map(text_of, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(text_of, value))}{',' * (len(value) == 1)})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {text_of(item)}' for key, item in value.items())}}}"
    if hasattr(value, "counts"):
        return f"counts {text_of(value.counts)}, edges {text_of(value.edges)}"
    return repr(value)
