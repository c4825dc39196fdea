"""Many runs, many clients, and a host that is busy."""

from __future__ import annotations

import time

import pytest

import sightglass as sg

RUNS = """
runs = [sg.init(f"job{sys.argv[1]}-{i}", budget=None) for i in range(16)]
say("ready")
while True:
    for run in runs:
        run.observe("batch", loss=1.0)
    time.sleep(0.05)
"""


@pytest.mark.slow
def test_64_runs_are_listed(start):
    for i in range(4):
        start(RUNS, str(i)).hears("ready")
    infos = sg.runs(timeout_s=60)
    assert len({info.id for info in infos}) == 64
    assert {info.name for info in infos} == {f"job{i}-{k}" for i in range(4) for k in range(16)}
    assert {info.state for info in infos} == {"running"}


@pytest.mark.slow
def test_silent_runs_do_not_hold_up_the_list(start):
    import signal

    children = [start(RUNS, str(i)) for i in range(2)]
    for child in children:
        child.hears("ready")
    children[0].send(signal.SIGSTOP)
    began_s = time.monotonic()
    infos = sg.runs(timeout_s=15)
    took_s = time.monotonic() - began_s
    assert sorted(info.state for info in infos) == ["running"] * 16 + ["silent"] * 16
    assert took_s < 120, took_s  # one after another, 16 silent runs would take 240 s


CLIENTS = """
from concurrent.futures import ThreadPoolExecutor
runs = [sg.connect("job") for _ in range(10)]
streams = [run.stream("batch.loss") for run in runs]
say("asked")
def read(stream):
    values = [record.value for record in stream.wait(5_000, timeout_s=150)]
    return len(values), sum(values), stream.statistics().n_lost
with ThreadPoolExecutor(10) as pool:
    for got in pool.map(read, streams):
        say("got", *got)
    say("ended", sum(pool.map(lambda stream: len(list(stream)), streams)))
"""


@pytest.mark.slow
def test_50_clients_get_every_record(start):
    child = start(
        """
        run = sg.init("job", budget=None)
        say("ready")
        until(lambda: any(len(peers) == 50 for peers in list(run._wiring.agent._subscriptions._peers.values())), 150)
        for step in range(5_000):
            run.observe("batch", step=step, loss=float(step))
            time.sleep(0.0005)
        until(lambda: run.stopping or run.observe("other") or time.sleep(0.01), 150)
        """.replace("\n        ", "\n")
    )
    child.hears("ready")
    clients = [start(CLIENTS) for _ in range(5)]
    for client in clients:
        client.hears("asked", 150)
    expected = ["5000", str(float(sum(range(5_000)))), "0"]
    for client in clients:
        assert [client.hears("got", 150) for _ in range(10)] == [expected] * 10
    with sg.connect("job") as run:
        run.stop()
    for client in clients:
        assert client.hears("ended") == ["50000"]
        assert client.ends() == 0
    assert child.ends() == 0


def test_a_host_busy_in_python_loses_nothing(start):
    child = start(
        """
        run = sg.init("job", budget=None)
        say("ready")
        until(lambda: run._telemetry.subscriptions.active)
        began_s = time.monotonic()
        for step in range(3_000):
            while time.monotonic() - began_s < step / 1_000:
                pass
            run.observe("batch", step=step, loss=float(step))
        say("took", time.monotonic() - began_s)
        """.replace("\n        ", "\n")
    )
    child.hears("ready")
    with sg.connect("job") as run:
        stream = run.stream("batch.loss")
        child.hears("took")
        assert [record.value for record in stream] == [float(step) for step in range(3_000)]
        assert stream.statistics().n_lost == 0
    assert child.ends() == 0


def test_a_client_that_is_slow_gets_every_record_too(start):
    child = start(
        """
        run = sg.init("job", budget=None)
        say("ready")
        until(lambda: run._telemetry.subscriptions.active)
        for step in range(20_000):
            run.observe("batch", step=step, loss=float(step))
        """.replace("\n        ", "\n")
    )
    child.hears("ready")
    with sg.connect("job") as run:
        stream = run.stream("batch.loss")
        got = []
        for record in stream:
            got.append(record.value)
            if len(got) % 1_000 == 0:
                time.sleep(0.02)
        assert got == [float(step) for step in range(20_000)]
    assert child.ends() == 0


def test_named_clients_of_one_process_share_no_fate(train):
    child = train()
    first, second = sg.connect("job"), sg.connect("job")
    streams = first.stream("batch.loss"), second.stream("batch.loss")
    for stream in streams:
        stream.wait(10, timeout_s=30)
    first.close()
    assert streams[0].ended
    n = streams[1].statistics().n_records
    streams[1].wait(n + 50, timeout_s=30)
    second.close()
    child.goes_on()
