"""Recorded runs asked on Dask: the same answers, also when workers die, and from an address in the environment."""

from __future__ import annotations

import os
import signal

import pytest

import sightglass as sg

distributed = pytest.importorskip("distributed")  # CI installs it: see .ci/run

N_RUNS = 12
N_EVENTS = 400
LOSS = "on('batch').map(lambda b: b.loss)"


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / "recorded"
    for number in range(N_RUNS):
        with sg.init(f"r{number:02}", dir=folder, config={"lr": number}, record=["batch.loss"]) as run:
            for i in range(N_EVENTS):
                run.observe("batch", loss=number + i / N_EVENTS)
    return sg.open(folder)


@pytest.fixture
def client(tmp_path):
    place = str(tmp_path / "dask")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=place
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_dask_gives_the_answers_of_one_process_also_when_a_worker_dies(runs, client, monkeypatch):
    count, total = runs.reduce(f"{LOSS}.count()"), runs.reduce(f"{LOSS}.sum()")
    assert count == N_RUNS * N_EVENTS
    with client.get_executor() as executor:
        assert runs.reduce(f"{LOSS}.mean()", executor=executor) == runs.reduce(f"{LOSS}.mean()")
        table = runs.table(best="batch.loss.max(per='run')", executor=executor)
        assert list(table) == list(runs.table(best="batch.loss.max(per='run')"))
        assert runs.map(lambda run: run.config["lr"], executor=executor)[next(iter(runs))] == N_RUNS - 1
    with monkeypatch.context() as patch:
        patch.setenv("SIGHTGLASS_EXECUTOR", client.scheduler.address)
        pids = set(runs.map(lambda run: os.getpid()).values())
        assert pids <= set(client.run(os.getpid).values())
        assert runs.reduce(f"{LOSS}.count()") == count

    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)  # the scheduler notices it amid the work
    with client.get_executor() as executor:
        assert [runs.reduce(f"{LOSS}.count()", executor=executor) for _ in range(3)] == [count] * 3
        assert runs.reduce(f"{LOSS}.sum()", executor=executor) == pytest.approx(total)
