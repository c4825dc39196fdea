"""What a hub keeps: the streams of runs that are gone, for clients that come late or come back."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.hub_server import PATIENCE_S, TRAINING, Service, needs_server, wait_until

import sightglass as sg
from sightglass.core.errors import QueryError, RunLostError, RunNotFoundError

pytestmark = needs_server
pytest.importorskip("nats")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path / "hub")
    yield service
    if service.process.poll() is None:
        service.end()


@pytest.fixture
def training(service: Service, start: Any, tmp_path: Path) -> Any:
    """A run in another process, out of reach on this machine."""
    child = start(
        TRAINING, "far", SIGHTGLASS_HUB=str(service.file("run")), SIGHTGLASS_RUNTIME_DIR=str(tmp_path / "there")
    )
    child.hears("ready")
    return child


def watched(service: Service, n: int, *, role: str = "viewer") -> list[int]:
    """Watch the run for some records, and return their values."""
    with sg.connect("far", hub=service.file(role), wait_s=PATIENCE_S) as run:
        return [int(one.value) for one in run.stream("batch.n").wait(n, timeout_s=PATIENCE_S)]


def kept_state(service: Service, name: str = "far") -> str:
    return next((run.state for run in sg.runs(hub=service.file("viewer")) if run.name == name and not run.live), "")


def test_a_late_client_gets_what_is_kept_of_a_run_that_has_ended(service: Service, training: Any) -> None:
    with sg.connect("far", hub=service.file("controller"), wait_s=PATIENCE_S) as run:
        stream = run.stream("batch.n")
        stream.wait(50, timeout_s=PATIENCE_S)
        run.stop()
        seen = [int(record.value) for record in stream]
    made = int(training.hears("made")[0])
    wait_until(lambda: kept_state(service) == "ended", "it is told to have ended")
    with sg.connect("far", hub=service.file("viewer")) as gone:
        stream = gone.stream("batch.n")
        assert [int(record.value) for record in stream] == list(range(seen[0], made)) == seen
        assert (stream.n_lost, stream.statistics().n_records) == (0, len(seen))
        description = gone.describe()
        assert (description.state, description.name) == ("ended", "far")
        assert [(one.query, one.n_records) for one in description.streams] == [("on('batch').map(lambda e: e.n)", len(seen))]
        with pytest.raises(QueryError, match=r"^Run 'far' has ended at .* Its hub keeps on\('batch'\).*, and not on\("):
            gone.stream("batch.x")
        with pytest.raises(RunLostError, match=r"^Run 'far' has ended at .* Its hub keeps on\('batch'\)"):
            gone.stop()


def test_a_killed_run_leaves_what_had_reached_the_hub(service: Service, training: Any) -> None:
    seen = watched(service, 200)
    training.send(signal.SIGKILL)
    wait_until(lambda: kept_state(service) == "gone", "it is gone")
    with sg.connect("far", hub=service.file("viewer")) as gone:
        stream = gone.stream("batch.n")
        values = [int(record.value) for record in stream.wait(len(seen), timeout_s=PATIENCE_S)]
        assert values[: len(seen)] == seen
        print(stream.note, gone.describe())
