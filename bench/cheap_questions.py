"""Cheap questions, generated, of a run that announces an event every 100 ms: are they answered, exactly, at once?

Cheap is what takes less than 20 ms and 64 MiB by hand, measured here with NumPy and Python on the same data. The rule:
the answer comes by the third event after the question at the latest. Nothing was asked before: what an operation costs
on this machine is found out meanwhile.

`HARM=Cheap QUESTIONS=20 python -m bench harm` asks fewer.
"""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pandas as pd

import sightglass as sg

N_QUESTIONS: Final = int(os.environ.get("QUESTIONS", "200"))
EVERY_S: Final = 0.1
MAX_S: Final = 0.020
MAX_BYTES: Final = 64 * 2**20
LATE_S: Final = 3.0  # ten times the three events
BY_THE: Final = 3
DTYPES: Final = ("f8", "f4", "f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "?", "c8")
LARGE: Final = {"f8", "f4", "u1"}  # of 64 MB; the others of 16
SIZES: Final = (10**3, 10**4, 10**5, 10**6, 4 * 10**6, 16 * 10**6, 64 * 10**6)
N_TEXT: Final = 4 * 10**6
N_NAMES: Final = 10_000

ByHand = Callable[[dict[str, Any]], Any]


def observables() -> dict[str, Any]:
    """Return what the run offers, the same in each process."""
    rng = np.random.default_rng(0)
    made: dict[str, Any] = {}
    for dtype in DTYPES:
        n = (64 if dtype in LARGE else 16) * 10**6 // np.dtype(dtype).itemsize
        numbers = np.resize(rng.normal(size=2**18) * 40, n)
        made[f"x_{np.dtype(dtype).name}"] = (
            numbers > 0 if dtype == "?" else np.abs(numbers).astype(dtype) if dtype[0] == "u" else numbers.astype(dtype)
        )
    return {
        **made,
        "text": "abcd" * (N_TEXT // 4), "texts": [f"word {i} of a text" for i in range(N_NAMES)],
        "names": {f"layer{i}/weight": float(i) for i in range(N_NAMES)}, "numbers": list(range(N_NAMES)),
        "layers": {f"l{i}": rng.normal(size=5_000) for i in range(200)},
        "frame": pd.DataFrame({"a": rng.normal(size=10**6), "i": np.arange(10**6, dtype=np.int32), "s": ["x",
        "yy"] * (5 * 10**5)}),
    }  # fmt: skip


def question(chance: random.Random) -> tuple[str, ByHand]:
    """Return a question, and its answer by hand."""
    if chance.random() < 0.25:
        return _of_objects(chance)
    dtype = np.dtype(chance.choice(DTYPES))
    n = chance.choice(SIZES) // dtype.itemsize
    name, k = f"x_{dtype.name}", chance.randrange(1, 30)
    x = f"b.{name}[:{n}]" if chance.random() < 0.8 else f"b.{name}[{k}::{k + 1}]"
    cut: ByHand = (lambda b: b[name][:n]) if x.endswith(f"[:{n}]") else (lambda b: b[name][k :: k + 1])
    wide = np.float32 if dtype.kind == "f" and dtype.itemsize == 2 else None

    def of(compute: Callable[[Any], Any]) -> ByHand:
        return lambda b: compute(cut(b))

    forms: list[tuple[str, Callable[[Any], Any], str]] = [  # of which kinds of dtypes
        (f"{x}.sum()", np.sum, "fiu"), (f"{x}.mean()", lambda v: v.mean(dtype=wide), "fiuc"),
        (f"{x}.max()", np.max, "fiu?"), (f"{x}.min()", np.min, "fiu"), (f"{x}.std()", lambda v: v.std(dtype=wide),
        "fiu"),
        (f"{x}.norm()", lambda v: np.sqrt(np.sum(np.abs(v.astype(wide or v.dtype)) ** 2)), "fc"),
        (f"{x}.any()", np.any, "?"),
        (f"({x} > {k}).sum()", lambda v: np.sum(v > k), "fiu"), (f"{x}[{x} > {k}].len()", lambda v: len(v[v > k]),
        "fiu"),
        (f"{x}[{x} > {k}].max()", lambda v: np.max(v[v > k]), "fiu"), (f"abs({x}).max()", lambda v: np.max(np.abs(v)),
        "fc"),
        (f"{x}.clip(0, {k}).max()", lambda v: np.max(np.clip(v, 0, k)), "fiu"),
        (f"where({x} > {k}, {x}, 0).sum()", lambda v: np.sum(np.where(v > k, v, 0)), "fi"),
        (f"nonzero({x})[0].len()", lambda v: len(np.nonzero(v)[0]), "fiu?"), (f"{x}.argmax()", np.argmax, "fiu"),
        (f"{x}.median()", lambda v: np.median(v.astype(wide or v.dtype)), "fiu"),
        (f"{x}.quantile(0.9)", lambda v: np.quantile(v.astype(wide or v.dtype), 0.9), "fi"),
        (f"{x}.topk(5)", lambda v: np.sort(v)[-5:][::-1], "fiu"), (f"{x}.sort()[{k}]", lambda v: np.sort(v)[k], "fiu"),
        (f"{x}.cumsum()[-1]", lambda v: np.cumsum(v)[-1], "iu"), (f"{x}.unique()[0].len()", lambda v: len(np.unique(v)),
        "iu"),
        (f"{x}.histogram(bins=50).counts.sum()", len, "fiu"),
        (f"bincount(abs({x}), 200)[{k}]", lambda v: int(np.sum(np.abs(v) == k)), "i"),
        (f"{x}.astype('float32').max()", lambda v: np.max(v.astype(np.float32)), "fiu"),
        (f"isnan({x}).any()", lambda v: np.any(np.isnan(v)), "f"),
        (f"{x}.round(1).max()", lambda v: np.max(np.round(v, 1)), "f"),
        (f"exp(-abs({x})).max()", lambda v: np.max(np.exp(-np.abs(v))), "f"),
        (f"isin({x}, [1, {k}]).sum()", lambda v: np.sum(np.isin(v, [1, k])), "iu"),
        (f"({x} * {x}).max()", lambda v: np.max(v * v), "f"), (f"{x}.len()", len, "fiuc?"),
    ]  # fmt: skip
    kind = "?" if dtype.kind == "b" else dtype.kind
    text, compute, _ = chance.choice([form for form in forms if kind in form[2]])
    return text, of(compute)


def _of_objects(chance: random.Random) -> tuple[str, ByHand]:
    n, k = 10 ** chance.randrange(1, 7), chance.randrange(1, 30)
    forms: list[tuple[str, ByHand]] = [
        ("len(b.text)", lambda b: len(b["text"])), (f"b.text.startswith('{'abcd' * k}')", lambda b: True),
        (f"b.text.contains('{'dabc' * k}e')", lambda b: False), ("b.text.endswith('bcd')", lambda b: True),
        (f"b.texts.contains('word {k} of a text')", lambda b: f"word {k} of a text" in b["texts"]),
        ("b.texts.len()", lambda b: N_NAMES), (f"b.texts[{k}]", lambda b: b["texts"][k]),
        ("b.names.keys().len()", lambda b: N_NAMES), ("b.names.values().len()", lambda b: N_NAMES),
        (f"b.names['layer{k}/weight']", lambda b: float(k)), (f"sum(b.numbers) + {k}", lambda b: sum(b["numbers"]) + k),
        (f"max(b.numbers) - {k}", lambda b: N_NAMES - 1 - k),
        (f"b.layers['l{k}'].mean()", lambda b: b["layers"][f"l{k}"].mean()),
        (f"b.layers.map(lambda v: v[:{k}].max())", lambda b: {key: v[:k].max() for key, v in b["layers"].items()}),
        ("b.layers.map(lambda v: v.mean())", lambda b: {key: v.mean() for key, v in b["layers"].items()}),
        (f"b.frame.a[:{n}].sum()", lambda b: b["frame"].a.to_numpy()[:n].sum()),
        ("b.frame.i.max()", lambda b: 10**6 - 1),
        (f"b.frame.a[b.frame.a > {k / 10}].mean()", lambda b: b["frame"].a[b["frame"].a > k / 10].mean()),
        ("b.frame.s.len()", lambda b: 10**6),
    ]  # fmt: skip
    return chance.choice(forms)


def cheap_ones(n: int, offered: dict[str, Any], chance: random.Random) -> Iterator[tuple[str, Any, float]]:
    """Yield questions that are cheap by hand, with their answers and what these took in seconds."""
    seen: set[str] = set()
    while len(seen) < n:
        text, by_hand = question(chance)
        if text in seen:
            continue
        tracemalloc.start()
        with np.errstate(all="ignore"):
            wanted = by_hand(offered)
        _, n_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        took_s = []
        for _ in range(3):
            began_s = time.thread_time()
            with np.errstate(all="ignore"):
                by_hand(offered)
            took_s.append(time.thread_time() - began_s)
        if max(took_s) < MAX_S and n_bytes < MAX_BYTES:
            seen.add(text)
            yield text, wanted, sorted(took_s)[1]


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    """Yield how many questions are answered, exactly and in time; the others by name."""
    with tempfile.TemporaryDirectory(prefix="sgh") as folder:
        child = subprocess.Popen([sys.executable, "-m", "bench.cheap_questions", folder], stdout=subprocess.PIPE)
        try:
            assert child.stdout is not None
            child.stdout.readline()
            yield from _asked(observables())
        finally:
            child.kill()
            child.wait()


def _asked(offered: dict[str, Any]) -> Iterator[tuple[str, float, str, float | None]]:
    late: list[tuple[str, str, float]] = []
    events: list[float] = []
    n = 0
    with sg.connect("cheap", timeout_s=120.0) as run:
        beside = run.stream("b.step")
        beside.wait(1, timeout_s=60.0)
        for text, wanted, took_s in cheap_ones(N_QUESTIONS, offered, random.Random(1)):
            n += 1
            with run.stream(f"on('b').map(lambda b: {text})") as stream:
                latest = beside.latest
                assert latest is not None
                why = ""
                try:
                    record = stream.wait(1, timeout_s=LATE_S)[0]
                    events.append(record.step - latest.step)
                    why = "late" if events[-1] > BY_THE else "" if _same(record.value, wanted) else "wrong"
                except (sg.SightglassError, TimeoutError) as error:
                    why = (
                        f"refused: {error}" if stream.error or stream.statistics().n_errors else f"silent: {error}"[:30]
                    )
            if why:
                late.append((text, why, took_s))
    yield f"Cheap questions that are not answered by the third event, of {n}", len(late), "", 0
    for text, why, took_s in late:
        yield f"  {text[:44]} [{why}]", took_s * 1e3, "ms", None
    for i in range(1, BY_THE + 1):
        yield f"  answered on event {i}", sum(math.ceil(at) == i for at in events), "", None
    yield "  load meanwhile", os.getloadavg()[0], "", None


def _same(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        return value.keys() == wanted.keys() and all(_same(value[key], wanted[key]) for key in wanted)
    if isinstance(wanted, str | bool):
        return bool(value == wanted)
    single = getattr(wanted, "dtype", np.dtype("f8")).itemsize < 8
    return bool(np.allclose(value, wanted, rtol=1e-3 if single else 1e-9, equal_nan=True))


def main(folder: str) -> None:
    """Announce events until killed."""
    offered = observables()
    with sg.init("cheap", dir=folder) as run:
        print("ready", flush=True)
        step = 0
        while True:
            run.observe("b", step=step, **offered)
            time.sleep(EVERY_S)
            step += 1


if __name__ == "__main__":
    main(sys.argv[1])
