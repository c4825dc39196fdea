"""Questions that people ask a training, with a query for each: `docs/questions.md` is made from the answers of a run.

The run trains no network: its numbers come from whole numbers by a few operations, so that they are the same anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from tests.meta.function_examples import text_of

import sightglass as sg

N_EPOCHS: Final = 2
N_BATCHES: Final = 10
NAN_STEP: Final = 17

CLOCK: Final = re.compile(r"\.rate\(|wall_time")  # what the clock answers is not told

QUESTIONS: Final[dict[str, dict[str, str]]] = {
    "The loss": {
        "What is the loss now?": "batch.loss",
        "What is the mean loss of each epoch?": 'batch.loss.mean(per="epoch")',
        "What is the loss without its noise?": "batch.loss.ema(0.1)",
        "What is the mean of the last ten batches, at each batch?": "batch.loss.rolling(10).mean()",
        "When was the loss lowest?": 'batch.loss.argmin(per="run")',
        "Which step was the worst of each epoch?": 'batch.loss.argmax(per="epoch")',
        "How noisy is the loss within an epoch?": 'batch.loss.std(per="epoch")',
        "What do nine of ten batches stay below?": 'batch.loss.quantile(0.9, per="epoch")',
        "How much does it change from batch to batch?": 'on("batch").map(lambda b: b.loss).diff()',
        "How large was the largest jump up?": 'on("batch").map(lambda b: b.loss).diff().max(per="run")',
        "How are the losses distributed?": 'batch.loss.histogram(bins=4, per="run")',
        "How many batches were above 0.5?": 'on("batch").where(lambda b: b.loss > 0.5).count(per="epoch")',
    },
    "Time": {
        "What is the 99th percentile of the step time, per epoch?": 'batch.ms.quantile(0.99, per="epoch")',
        "Which step was the slowest?": 'batch.ms.argmax(per="run")',
        "How many batches come per second?": 'batch.loss.rate(every="10 s")',
        "How long is it from batch to batch, by the clock?": 'on("batch").map(lambda b: b.event.wall_time).diff()',
        "How many examples are trained per second?":
            'on("batch").map(lambda b: len(b.y) / b.ms * 1000).mean(per="epoch")',
        "Which part of a step waits for data?": 'on("batch").map(lambda b: b.wait_ms / b.ms).mean(per="epoch")',
    },
    "Gradients": {
        "Which layer has the largest gradient?": "batch.grads.map(lambda name, g: norm(g))",
        "How large are the gradients of each layer, per epoch?":
            'batch.grads.map(lambda name, g: abs(g).mean()).mean(per="epoch")',
        "What is the norm of all gradients together?":
            'on("batch").map(lambda b: norm(stack(b.grads.map(lambda name, g: norm(g)).values())))',
        "Did a NaN come, where first?":
            'on("batch").where(lambda b: isnan(b.grads.head).any()).map(lambda b: b.step).first(per="run")',
        "In which layers was it?":
            'on("batch").where(lambda b: isnan(b.grads.head).any())'
            ".map(lambda b: b.grads.map(lambda name, g: isnan(g).sum()))",
        "How often would a norm of 1 be clipped?":
            'on("batch").where(lambda b: norm(b.grads.dense) > 1).count(per="epoch")',
        "Do gradients vanish?": "(abs(batch.grads.dense) < 1e-6).mean()",
        "Which entries are the largest?": "abs(batch.grads.dense).topk(3)",
        "How large is the step, compared with the weights?":
            'on("batch").map(lambda b: b.lr * norm(b.grads.dense) / norm(b.params.dense))',
        "Do gradients point along the weights?": "cosine(batch.grads.dense, batch.params.dense)",
        "How are they distributed now?": "batch.grads.dense.histogram(bins=4)",
    },
    "Weights": {
        "How large are the weights of each layer?": "batch.params.map(lambda name, p: norm(p))",
        "How many parameters has each layer?": "batch.params.map(lambda name, p: p.size)",
        "Is a layer close to singular?": "svdvals(batch.params.dense)",
        "How many weights are exactly zero?": "(batch.params.dense == 0).sum()",
        "Which weight is the largest?": "abs(batch.params.dense).max()",
    },
    "Activations": {
        "Is any activation dead?": 'on("batch").map(lambda b: b.acts.dense.max(axis=0)).max(per="epoch")',
        "Which part of a layer is silent?": "(batch.acts.dense == 0).mean()",
        "Which part is saturated?": "(abs(batch.acts.head) > 0.99).mean()",
        "What is the mean of each unit?": "batch.acts.dense.mean(axis=0)",
        "Do two units say the same?": "corr(batch.acts.dense[:, 0], batch.acts.dense[:, 1])",
    },
    "Examples and classes": {
        "Which are the ten hardest examples?":
            'on("batch").map(lambda b: (b.losses.max(), b.ids[b.losses.argmax()]))'
            '.top(10, key=lambda pair: pair[0], per="run")',
        "What is the loss of one class?":
            'on("batch").map(lambda b: where(b.y == 1, b.losses, 0).sum() / (b.y == 1).sum()).mean(per="epoch")',
        "What is the loss per source of the data?": 'batch.loss.mean(per="epoch", by=lambda b: b.source)',
        "Which sources came?": 'batch.source.distinct(per="run")',
        "How many examples of each class came?":
            'on("batch").map(lambda b: b.y.bincount(3)).sum(per="epoch")',
        "Which part of a batch was right?": '(batch.pred == batch.y).mean()',
        "Which examples were wrong?": 'where(batch.pred != batch.y, batch.ids, -1)',
        "How sure is the network?": "batch.logits.softmax().max(axis=1)",
        "Are the inputs scaled?": 'on("batch").map(lambda b: (b.x.min(), b.x.mean(), b.x.max()))',
    },
    "Epochs and the schedule": {
        "What is the accuracy of each epoch?": "epoch.accuracy",
        "Which epoch was the best?": 'epoch.accuracy.argmax(per="run")',
        "Does it overfit?": 'on("epoch").map(lambda e: e.val_loss - e.train_loss)',
        "Which class is recognised worst?": "epoch.recall.argmin()",
        "Which classes are taken for each other?": "epoch.confusion",
        "How far is each batch above the mean loss of the epoch before?": (
            'on("batch").join("epoch").map(lambda b: b.loss - b.epoch.train_loss)'
        ),
        "Which learning rates were used?": 'batch.lr.distinct(per="run")',
    },
}  # fmt: skip
"""Questions by section; each with its query."""


def train(run: sg.Run) -> None:
    """Announce what a training would."""
    for epoch in range(N_EPOCHS):
        for batch in range(N_BATCHES):
            step = epoch * N_BATCHES + batch
            run.observe("batch", **_batch(step))
        confusion = np.array([[8, 1, 1], [0, 9, 1], [2, 1 - epoch, 7 + epoch]])
        run.observe(
            "epoch", step=epoch, accuracy=0.75 + epoch / 8, train_loss=0.5 - epoch / 4, val_loss=0.5 - epoch / 8,
            recall=confusion.diagonal() / 10, confusion=confusion,
        )  # fmt: skip


def _batch(step: int) -> dict[str, Any]:
    some = np.arange(step, step + 12) * 7 % 11 / 8  # numbers that look mixed
    dense, head = some.reshape(4, 3) - 0.5, some[:6].reshape(3, 2) / 4
    acts = np.maximum(dense, 0) * np.array([1, 1, 0])
    y, pred = np.array([0, 1, 2, 1]), np.array([0, 1, 2 - step % 2, 1])
    broken = np.where(np.arange(6).reshape(3, 2) == 2, np.nan, head) if step == NAN_STEP else head
    return {
        "step": step, "loss": 2 / (step + 2) + step % 3 / 16, "lr": 0.1 if step < N_BATCHES else 0.01,
        "ms": 20 + step * 5 % 7, "wait_ms": step % 4, "source": ("books", "web")[step % 2],
        "grads": {"dense": dense, "head": broken}, "params": {"dense": dense.T + 0.25, "head": head},
        "acts": {"dense": acts, "head": some[:4] * 0.9}, "x": some - 0.5, "y": y, "pred": pred,
        "ids": np.arange(4) + 4 * step, "losses": some[:4], "logits": some[:6].reshape(2, 3),
    }  # fmt: skip


def answer(query: str) -> str:
    """Ask a run a query from its beginning to its end, and return the last answer, or those of both epochs, as text."""
    with sg.init("questions", budget=None) as run:
        client = sg.connect(run)
        stream = client.stream(query)
        train(run)
    values = [text_of(record.value) for record in stream]
    assert values, f"No answer to {query}"
    return ", ".join(values if len(values) <= N_EPOCHS else values[-1:])


def page() -> Iterator[str]:
    """Write the page."""
    n = sum(map(len, QUESTIONS.values()))
    yield from (
        f"# {n} questions to a training",
        "",
        "Made from `tests/meta/questions.py` by `python tests/meta/test_docs.py`: a run answers each query.",
        "",
        "Ask them with `sightglass watch RUN 'QUERY'`, on the page, or with `client.stream('QUERY')`. The run has",
        'two epochs of ten batches. "batch" has `loss`, `lr`, `ms`, `wait_ms`, `source`; mappings `grads`, `params`,',
        '`acts` by layer; and by example `x`, `y`, `pred`, `ids`, `losses`, `logits`. "epoch" has `accuracy`,',
        "`train_loss`, `val_loss`, `recall`, `confusion`. The answer is the last one, or those of both epochs.",
        "[queries.md](queries.md) explains the language, [functions.md](functions.md) lists what it can compute.",
    )
    for title, questions in QUESTIONS.items():
        yield from ("", f"## {title}", "", "| question | query | answer |", "| --- | --- | --- |")
        for question, query in questions.items():
            told = "" if CLOCK.search(query) else f"`{answer(query)}`"
            yield f"| {question} | `{query}` | {told} |"
    yield ""
