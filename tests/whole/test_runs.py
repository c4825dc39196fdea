"""What may happen to a run: it ends in every way there is, is killed, stands still, is forked, and is asked by many."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import sightglass as sg
from sightglass.client import reconnect
from sightglass.storage.run_file import read

from .conftest import wait_until

N = 2_000
COUNTING = f"""
run = sg.init(sys.argv[1], budget=None, dir=sys.argv[2])
run.log({{"a": 1}})
say("ready", run.id)
until(lambda: run._telemetry.subscriptions.active)
for step in range({N}):
    run.observe("batch", step=step, loss=float(step))
assert not [name for name in sys.modules if name.split(".")[0] == "nats" or "hub" in name]  # without a hub
say("over")
"""

ENDS = {
    "close": ("run.close()", 0, "ended"),
    "exception": ("raise RuntimeError('on purpose')", 1, "failed"),
    "exit": ("sys.exit(7)", 7, "ended"),
    "interrupt": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", -signal.SIGINT, "terminated"),
    "nothing": ("", 0, "ended"),
    "prompt": ("sys.last_value = ValueError(); sys.ps1 = '>>> '", 0, "ended"),  # an error of an earlier line
}


@pytest.mark.slow
def test_each_end_of_a_program_is_clean_and_told_as_what_it_was(start, tmp_path):
    children = {way: start(COUNTING + code, way, str(tmp_path / way)) for way, (code, _, _) in ENDS.items()}
    for way, (_, status, state) in ENDS.items():
        child = children[way]
        (run_id,) = child.hears("ready")
        with sg.connect(way) as run:
            stream = run.stream("batch.loss")
            child.hears("over")
            assert child.ends() == status
            assert [record.value for record in stream] == [float(step) for step in range(N)]
            assert stream.statistics().n_lost == 0
            wait_until(lambda run=run: run.ended, "the goodbye, which follows the ends of the streams")
        assert run_id not in [info.id for info in sg.runs()]
        assert Path(os.environ["SIGHTGLASS_RUNTIME_DIR"], f"{run_id}.closed").exists()
        (directory,) = (tmp_path / way).iterdir()
        assert read(directory / "run.json").state == state, way
        assert ("on purpose" in child.complaints) == (way == "exception")
    left = Path(os.environ["SIGHTGLASS_RUNTIME_DIR"]).iterdir()
    assert {path.suffix for path in left} == {".closed"}


RECORDING = """
run = sg.init("job", budget=None, dir=sys.argv[1], record=["batch.loss"])
worker = os.fork()
if not worker:
    time.sleep(600)
    os._exit(0)
say("ready", run.directory, worker)
step = 0
while True:
    run.observe("batch", step=step, loss=1 / (step + 1))
    step += 1
    if step % 500 == 0:
        say("step", step)
    time.sleep(0.0005)
"""


@pytest.mark.slow
def test_a_killed_run_is_lost_cleaned_away_and_opens_up_to_its_last_second(start, tmp_path, monkeypatch):
    """A worker that it forked lives on, and does not keep it alive."""
    monkeypatch.setattr(reconnect, "RESTART_S", 0.5)
    child = start(RECORDING, str(tmp_path))
    directory, worker = child.hears("ready")
    child.hears("step")
    with sg.connect("job") as run, sg.open(directory, follow=True) as growing:
        live, past = run.stream("batch.loss"), run.stream("batch.loss", since="start")
        live.wait(1_000, timeout_s=60)
        growing.stream("batch.loss").wait(1_000, timeout_s=60)
        child.send(signal.SIGKILL)
        for stream in (live, past):
            with pytest.raises(sg.RunLostError, match="died: "):
                list(stream)
        with pytest.raises(sg.RunLostError, match="died: "):
            run.describe()
        assert run.ended
        steps = past.to_arrays().steps.tolist()
        assert steps == list(range(len(steps)))
    os.kill(int(worker), 0)
    assert sg.runs() == []
    assert not list(Path(os.environ["SIGHTGLASS_RUNTIME_DIR"]).iterdir())
    with pytest.raises(sg.RunNotFoundError, match="Unknown run 'job'"):
        sg.connect("job")
    assert [info.state for info in sg.runs(tmp_path)] == ["died"]
    with sg.open(directory) as old:
        steps = old.stream("batch.loss").to_arrays().steps.tolist()
        assert steps == list(range(len(steps)))
        assert len(steps) >= 1_000  # of the last second, some may be missing
        assert old.check().intact


ENDING = """
run = sg.init(sys.argv[1], budget=None)
x = np.zeros(10_000)
say("ready")
until(lambda: run._telemetry.subscriptions.active)
until(lambda: os.path.exists(sys.argv[2]), pause=lambda: run.observe("batch", x=x) or time.sleep(0.001))
for _ in range(3_000):
    run.observe("batch", x=x)
exec(sys.argv[3])
"""

WATCHING = """
from sightglass.client import reconnect
reconnect.RESTART_S = 0.5
clients = [sg.connect(name) for name in ("closed", "killed")]
streams = [client.stream("batch.x") for client in clients]
for stream in streams:
    stream.wait(10, timeout_s=60)
say("watching")
for client, stream in zip(clients, streams):
    until(lambda: stream.ended)
    say("ended", repr(stream.error), client._session.ended)
"""


@pytest.mark.slow
def test_a_client_that_stood_still_while_its_runs_ended_is_told_how(start, runtime):
    """The runs have more to say than their queues hold, so that a goodbye reaches nobody."""
    ends = {"closed": "run.close()", "killed": "os.kill(os.getpid(), 9)"}
    runs = [start(ENDING, name, str(runtime / "go"), end) for name, end in ends.items()]
    for run in runs:
        run.hears("ready")
    client = start(WATCHING)
    client.hears("watching")
    client.send(signal.SIGSTOP)
    (runtime / "go").touch()
    for run in runs:
        run.ends()
    client.send(signal.SIGCONT)
    assert "of 'batch.x', records from number" in " ".join(client.hears("ended"))
    assert "died" in " ".join(client.hears("ended"))


@pytest.mark.slow
def test_a_run_that_stands_still_is_silent_holds_up_nobody_and_goes_on(train):
    stuck, other = train("job-stuck"), train("job-other")
    with sg.connect("job-stuck") as run, sg.fleet("job-*") as fleet:
        fleet.wait(2, timeout_s=60)
        stream = run.stream("batch.loss")
        stream.wait(10, timeout_s=60)
        stuck.send(signal.SIGSTOP)
        found = next(info for info in sg.runs(timeout_s=0.3) if info.name == "job-stuck")
        assert (found.state, found.pid) == ("silent", stuck.pid)
        with pytest.raises(sg.RunLostError, match="does not answer"):
            sg.connect("job-stuck", timeout_s=0.3)
        stuck.send(signal.SIGCONT)
        stuck.goes_on()
        n = stream.statistics().n_records
        stream.wait(n + 100, timeout_s=60)
        assert stream.statistics().n_lost == 0

        stuck.send(signal.SIGSTOP)
        report = fleet.set("lr", 0.25, timeout_s=8.0)
        assert report.applied.keys() == {"job-other"}
        # Its connection may be given up before the command is.
        assert any(said in str(report.failed["job-stuck"]) for said in ("does not answer", "has been silent"))
        with sg.fleet("job-*") as late:
            wait_until(lambda: list(late) == ["job-other"], late)
            assert late.silent == ["job-stuck"]
            both = late.stream("batch.loss")
            assert {record.run for record in both.wait(5, timeout_s=60)} == {"job-other"}
            table = late.table(loss="batch.loss", timeout_s=60)
            states = dict(zip(table.column("run"), table.column("state"), strict=True))
            assert states == {"job-stuck": "silent", "job-other": "running"}
            assert dict(zip(table.column("run"), table.column("loss"), strict=True))["job-other"] is not None
            assert late.set("lr", 0.5).applied.keys() == {"job-other"}
            stuck.send(signal.SIGCONT)
            wait_until(lambda: set(late) == {"job-stuck", "job-other"}, late)
            wait_until(lambda: {record.run for record in both.records()} == {"job-stuck", "job-other"}, late)
    other.goes_on()


FORKED = """
from sightglass.protocol import discovery
run = sg.init("job", budget=None)
say("ready", run.id)
until(lambda: run._telemetry.subscriptions.active)
for _ in range(3):
    pid = os.fork()
    if not pid:
        for step in range(1_000):
            run.observe("batch", step=step, loss=-1.0)
        run.log({"loss": -1.0}); run.end_group("batch"); run.flush(); run.close()
        assert discovery.alive(run.id) and [entry.id for entry in discovery.entries()] == [run.id]
        with sg.init("child") as own:
            own.observe("batch", loss=3.0)
            assert sorted(entry.name for entry in discovery.entries())[-1] == "job"
        sys.exit(5)  # runs the functions that were registered for the exit
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
step = 0
while not run.stopping:
    run.observe("batch", step=step, loss=1.0)
    step += 1
    time.sleep(0.001)
"""


def test_forked_children_leave_the_run_alone(start):
    child = start(FORKED)
    child.hears("ready")
    with sg.connect("job") as run:
        stream = run.stream("batch.loss")
        records = stream.wait(300, timeout_s=60)
        assert {record.value for record in records} == {1.0}
        assert [record.index for record in records[:300]] == list(range(300))
        assert [info.state for info in sg.runs(timeout_s=30)] == ["running"]
        assert run.stop().applied
    assert child.ends() == 0


LOADERS = """
import multiprocessing as mp
warnings.simplefilter("ignore", DeprecationWarning)
sys.path.insert(0, sys.argv[2])
import loader
if __name__ == "__main__":
    run = loader.run = sg.init(sys.argv[1], budget=None)
    say("ready")
    until(lambda: run._telemetry.subscriptions.active)
    context = mp.get_context(sys.argv[1])
    with context.Pool(2) as pool:
        for step, batch in enumerate(pool.imap(loader.load, range(200))):
            run.observe("batch", step=step, loss=float(batch))
    say("done")
"""

LOADER = """
run = None
def load(i):
    if run is not None:
        run.observe('batch', step=i, loss=-1.0)
    return i
"""


@pytest.mark.slow
def test_data_loaders_that_are_forked_or_spawned(start, tmp_path):
    (tmp_path / "loader.py").write_text(LOADER)
    children = {method: start(LOADERS, method, str(tmp_path)) for method in ("fork", "forkserver", "spawn")}
    for method, child in children.items():
        child.hears("ready")
        with sg.connect(method) as run:
            stream = run.stream("batch.loss")
            assert [record.value for record in stream] == [float(i) for i in range(200)]
        child.hears("done")
        assert child.ends() == 0


RUNS = """
runs = [sg.init(f"job{sys.argv[1]}-{i}", budget=None) for i in range(16)]
say("ready")
while True:
    for run in runs:
        run.observe("batch", loss=1.0)
    time.sleep(0.05)
"""

BUSY = """
run = sg.init("job", budget=None)
say("ready")
until(lambda: any(len(peers) == 50 for peers in list(run._wiring.service._subscriptions._peers.values())))
for step in range(5_000):
    run.observe("batch", step=step, loss=float(step))
until(lambda: run.stopping, pause=lambda: run.observe("other") or time.sleep(0.01))
"""

CLIENTS = """
from concurrent.futures import ThreadPoolExecutor
runs = [sg.connect("job", timeout_s=60) for _ in range(10)]
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
def test_64_runs_are_listed_and_50_clients_get_every_record_of_a_busy_one(start):
    processes = [start(RUNS, str(i)) for i in range(4)]
    for process in processes:
        process.hears("ready")
    infos = sg.runs(timeout_s=60)
    assert {info.name for info in infos} == {f"job{i}-{k}" for i in range(4) for k in range(16)}
    assert len({info.id for info in infos}) == 64
    assert {info.state for info in infos} == {"running"}
    for process in processes:
        process.finish()

    child = start(BUSY)
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
