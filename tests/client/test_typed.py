"""What people type is answered by a run: each text of `tests.query.test_typed`, and each that an error suggests."""

from __future__ import annotations

import numpy as np
import pytest
from tests.query.test_typed import ANSWERED, SUGGESTED
from tests.waiting import wait_until

N = 12


def values(k: int) -> dict[str, object]:
    return {
        "loss": 1 / (1 + k), "acc": k / N, "x": float(k), "y": 2.0 * k, "n": k, "label": "ab"[k % 2],
        "flag": k % 3 == 0, "grads": {"a": np.ones(3), "b": np.zeros(2)}, "return": float(k),
    }  # fmt: skip


def test_all_of_it_runs(begin, ask):
    """Each text, and each suggestion, is answered without an error; those that give a number as NumPy does."""
    run = begin("typed", budget=None)
    for k in range(N):
        run.observe("batch", step=k, **values(k))
    run.observe("epoch", accuracy=1.0)
    run.log({"val/loss": 1.0, "val/acc": 2.0})
    client = ask(run.id)
    texts = [*ANSWERED, *(right for *_, right in SUGGESTED if right is not None)]
    streams = {text: client.stream(text) for text in texts}
    for i in range(100 // N + 1):
        for k in range(N):
            run.observe("batch", step=k + N * i, **values(k))
        run.observe("epoch", accuracy=1.0)
        run.log({"val/loss": 1.0, "val/acc": 2.0})
    run.close()
    wait_until(lambda: all(stream.ended for stream in streams.values()))
    assert {text: stream.error for text, stream in streams.items() if stream.error} == {}
    silent = [text for text, stream in streams.items() if not stream.records()]
    assert silent == []
    loss, acc = (np.array([values(k)[name] for k in range(4)]) for name in ("loss", "acc"))
    first = {text: streams[text].records()[0].value for text in ANSWERED}
    assert first["batch.loss.mean(every=4) * 2"] == pytest.approx(loss.mean() * 2)
    assert first["batch.loss.mean(every=4) - batch.acc.mean(every=4)"] == pytest.approx(loss.mean() - acc.mean())
    assert first["log10(batch.loss.mean(every=4))"] == pytest.approx(np.log10(loss.mean()))
    assert first["(batch.loss.mean(every=4) * 2).max(every=2)"] == pytest.approx(loss.mean() * 2)
