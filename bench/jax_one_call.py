"""How soon a client is answered that asks into the only call of a training: the PPO of `examples/jax_ppo.py`."""

from __future__ import annotations

import os
import runpy
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_experimental_ynn_fusion_type=")

import jax
import numpy as np

import sightglass as sg
import sightglass.jax as sgx

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "jax_ppo.py"
N_CHUNKS = 30
"""After how many chunks the client asks, and then stops the training."""


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    with tempfile.TemporaryDirectory() as folder, sg.init("bench-ppo", dir=folder) as run, sg.connect(run) as client:
        make_train = runpy.run_path(str(EXAMPLE))["make_train"]
        ends: list[float] = []

        def ask() -> tuple[float, float]:
            try:
                _wait(lambda: len(ends) > N_CHUNKS)
                began = time.perf_counter()
                stream: Any = client.stream("update.length")
                next(iter(stream))
                answered = time.perf_counter()
                _wait(lambda: ends[-N_CHUNKS] > answered)
                return began, answered
            finally:
                client.stop()

        train: Any = jax.jit(jax.vmap(make_train(run.control("lr", 0.05, min=0.0))))
        steps = sgx.chunked(train, every=10, event="update", between=lambda state: ends.append(time.perf_counter()))
        with ThreadPoolExecutor() as threads:
            asking = threads.submit(ask)
            called = time.perf_counter()
            steps(jax.random.split(jax.random.key(0), 2))
            began, answered = asking.result()
    chunks, at = np.diff(ends), np.array(ends[1:])
    yield "PPO in one call: from asking to the first answer", answered - began, "s", 2
    yield "  from the call to its first chunk, compiled alone", ends[0] - called, "s", None
    yield (
        "  a chunk that is asked, / alone",
        np.median(chunks[at > answered]) / np.median(chunks[at < began]),
        "x",
        None,
    )


def _wait(condition: Any) -> None:
    while not condition():
        time.sleep(0.001)
