"""PyTorch's histograms of values that are not all finite: TensorBoard's counts, and how many values they leave out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sightglass as sg

tensorboard = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
pytestmark = pytest.mark.filterwarnings("ignore")  # NumPy's own, of the sums that PyTorch makes

NAN, INF = np.nan, np.inf
RNG = np.random.default_rng(0)
FINITE = {
    "normal": RNG.normal(size=1000), "uniform": RNG.uniform(3, 4, 100), "constant": np.full(20, 0.5), "one": np.ones(1),
    "negative": -RNG.exponential(size=50), "tiny": 1e-30 * RNG.normal(size=50), "huge": 1e18 * RNG.normal(size=50),
    "integers": np.arange(40.0), "two": np.array([0.0, 1.0]), "wide": 10.0 ** RNG.uniform(-9, 9, 200),
}  # fmt: skip
OTHERS = {
    (): (0, 0, 0), (NAN,): (1, 0, 0), (INF,): (0, 1, 0), (-INF,): (0, 0, 1), (NAN, NAN, NAN): (3, 0, 0),
    (INF, INF): (0, 2, 0), (-INF, -INF, -INF): (0, 0, 3), (INF, -INF): (2, 0, 0),  # the file does not say which
}  # fmt: skip


def test_the_finite_values_are_shown_and_the_others_counted(tmp_path: Path, record_property: Any) -> None:
    writers = pytest.importorskip("torch.utils.tensorboard")
    with writers.SummaryWriter(str(tmp_path)) as writer:
        for name, values in FINITE.items():
            for step, others in enumerate(OTHERS):
                writer.add_histogram(name, np.append(values, others), step)
    events = tensorboard.EventAccumulator(str(tmp_path), size_guidance={"histograms": 0})
    events.Reload()
    with sg.open(tmp_path) as run:
        assert run.check().intact
        for name in FINITE:
            theirs = [sum(event.histogram_value.bucket) for event in events.Histograms(name)]
            found = [run.series(name)[i].value for i in range(len(OTHERS))]
            assert [int(one.counts.sum()) for one in found] == theirs
            assert [(one.n_nan, one.n_posinf, one.n_neginf) for one in found] == list(OTHERS.values())
    record_property("tried", len(FINITE) * len(OTHERS))
