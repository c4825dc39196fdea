"""A hub of three servers, runs on three machines: a server and runs are killed, and a machine is cut off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.hub_cluster import Cluster, Machines, Trial
from tests.hub_server import needs_server
from tests.machines import ALLOWED, NOT_ALLOWED

pytestmark = [needs_server, pytest.mark.slow]
pytest.importorskip("nats")

N_RUNS = 6  # `python -m bench hub_cluster` has 64


@pytest.fixture
def machines() -> Iterator[Machines]:
    if not ALLOWED:
        pytest.skip(NOT_ALLOWED)
    machines = Machines()
    yield machines
    machines.close()


@pytest.fixture
def cluster(machines: Machines, tmp_path: Path) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path, machines.addresses[0])
    yield cluster
    cluster.close()


def test_a_cluster_whose_servers_runs_and_machines_fail(
    cluster: Cluster, machines: Machines, start: Any, tmp_path: Path
) -> None:
    report = Trial(cluster, machines, start, tmp_path, N_RUNS).go()
    assert not report.wrong, report
    assert report.n_records
