"""What may happen to a run: it is killed, stopped, forked, doubled, and it ends in every way there is."""

from __future__ import annotations

import os
import signal
import time
import warnings
from pathlib import Path

import pytest

import sightglass as sg

COUNTING = """
run = sg.init("job", budget=None)
say("ready", run.id)
until(lambda: run._telemetry.subscriptions.active)
for step in range(5_000):
    run.observe("batch", step=step, loss=float(step))
"""

ENDS = {
    "close": ("run.close()", 0),
    "exception": ("raise RuntimeError('on purpose')", 1),
    "sys.exit": ("sys.exit(7)", 7),
    "SIGINT": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", -signal.SIGINT),
    "no close": ("", 0),
    "with": ("run.__enter__(); run.__exit__(None, None, None)", 0),
    "exit inside observe": ("run.function('leave', sys.exit); run.observe('batch', loss=1.0); sys.exit(3)", 3),
}


@pytest.mark.parametrize("way", ENDS)
def test_every_end_is_prompt_and_clean(start, until, way):
    code, status = ENDS[way]
    child = start(COUNTING + f"say('over', time.monotonic())\n{code}\n")
    run_id = child.hears("ready")[0]
    with sg.connect("job") as run:
        stream = run.stream("batch.loss")
        over_s = float(child.hears("over")[0])
        assert child.ends() == status
        assert time.monotonic() - over_s < 30  # nothing that it might wait for takes so long
        values = [record.value for record in stream]
        assert values[:5_000] == [float(step) for step in range(5_000)]
        assert stream.statistics().n_lost == 0
        until(lambda: run.ended)  # the goodbye follows the ends of the streams
    assert run_id not in [info.id for info in sg.runs()]
    assert [path.name for path in Path(os.environ["SIGHTGLASS_RUNTIME_DIR"]).iterdir()] == [f"{run_id}.closed"]
    assert ("on purpose" in child.complaints) == (way == "exception")


def test_close_twice(start):
    child = start("run = sg.init('job'); run.close(); run.close(); run.observe('batch'); say('done', repr(run))")
    assert child.hears("done")[-1] == "ended>"
    assert child.ends() == 0


def test_a_killed_run_is_lost_soon_and_cleaned_away(train):
    child = train()
    with sg.connect("job", on_lost="raise") as run:
        stream = run.stream("batch.loss")
        stream.wait(10, timeout_s=60)
        child.send(signal.SIGKILL)
        with pytest.raises(sg.RunLostError, match="died"):
            for _ in stream:
                pass
        with pytest.raises(sg.RunLostError, match="died"):
            run.describe()
    assert sg.runs() == []
    assert not list(Path(os.environ["SIGHTGLASS_RUNTIME_DIR"]).iterdir())
    with pytest.raises(sg.RunNotFoundError, match="'job'"):
        sg.connect("job")


def test_a_run_whose_goodbye_is_lost_has_ended(start):
    child = start(COUNTING + "run._wiring.agent.end = lambda reason: []\nrun.close()\nsay('over')")
    child.hears("ready")
    with sg.connect("job") as run:
        stream = run.stream("batch.loss")
        assert len(list(stream)) >= 5_000
        assert (stream.error, run.ended) == (None, True)
        with pytest.raises(sg.RunLostError, match=r"'job' has ended$"):
            run.describe()
    child.hears("over")


WATCHING = """
client = sg.connect("job", on_lost="raise")
stream = client.stream("batch.x")
stream.wait(10)
say("watching")
until(lambda: stream.ended, 60)
say("ended", repr(stream.error), client._session.ended)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "told"), [("run.close()", "None Run 'job' has ended"), ("os.kill(os.getpid(), 9)", "died")]
)
def test_a_client_that_was_stopped_while_the_run_ended_is_told_how(start, end, told):
    """The run has more to say than its queues hold, so that its goodbye reaches nobody."""
    run = start(
        "run = sg.init('job', budget=None); x = np.zeros(10_000); say('ready')\n"
        "until(lambda: run._telemetry.subscriptions.active)\n"
        "while not os.path.exists(sys.argv[1]): run.observe('batch', x=x); time.sleep(0.001)\n"
        f"for _ in range(3_000): run.observe('batch', x=x)\n{end}",
        os.environ["SIGHTGLASS_RUNTIME_DIR"] + "/go",
    )
    run.hears("ready")
    client = start(WATCHING)
    client.hears("watching")
    client.send(signal.SIGSTOP)
    Path(os.environ["SIGHTGLASS_RUNTIME_DIR"], "go").touch()
    run.ends()
    time.sleep(5)  # longer than the run waits for anybody, and than libzmq keeps anything
    client.send(signal.SIGCONT)
    assert told in " ".join(client.hears("ended"))


def test_a_suspended_run_is_silent_and_continues_when_resumed(train):
    child = train()
    with sg.connect("job") as run:
        stream = run.stream("batch.loss")
        stream.wait(10, timeout_s=60)
        child.send(signal.SIGSTOP)
        [info] = sg.runs(timeout_s=0.3)
        assert (info.name, info.state, info.pid) == ("job", "silent", child.pid)
        with pytest.raises(sg.RunLostError, match="does not answer"):
            sg.connect("job", timeout_s=0.3)
        child.send(signal.SIGCONT)
        child.goes_on()
        n = len(stream.wait(timeout_s=60))
        stream.wait(n + 100, timeout_s=60)
        assert [info.state for info in sg.runs(timeout_s=30)] == ["running"]
        assert stream.statistics().n_lost == 0


@pytest.mark.slow
def test_a_run_that_held_the_interpreter_for_long_keeps_its_clients(start):
    child = start(
        """
        import sightglass.training.clients as clients, ctypes
        clients.LEASE_S = 1.5
        run = sg.init("job")
        say("ready")
        until(lambda: run._telemetry.subscriptions.active)
        run.observe("batch", loss=1.0)
        ctypes.PyDLL(None).sleep(4)  # a call that never lets the interpreter go
        until(lambda: run.stopping or run.observe("batch", loss=2.0))
        """.replace("\n        ", "\n")
    )
    child.hears("ready")
    import sightglass.client.connection as connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "PING_S", 0.4)
        with sg.connect("job") as run:
            stream = run.stream("batch.loss")
            records = stream.wait(50, timeout_s=60)
            assert {record.value for record in records} == {1.0, 2.0}
            run.stop()
    assert child.ends() == 0


FORKED = """
from sightglass.protocol import discovery
run = sg.init("job", budget=None)
say("ready", run.id)
until(lambda: run._telemetry.subscriptions.active)
children = []
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
    children.append(pid)
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
import multiprocessing as mp, warnings
warnings.simplefilter("ignore", DeprecationWarning)
sys.path.insert(0, sys.argv[2])
import loader
if __name__ == "__main__":
    run = loader.run = sg.init("job", budget=None)
    say("ready")
    until(lambda: run._telemetry.subscriptions.active)
    context = mp.get_context(sys.argv[1])
    with context.Pool(2) as pool:
        for step, batch in enumerate(pool.imap(loader.load, range(200))):
            run.observe("batch", step=step, loss=float(batch))
    say("done")
"""


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_data_loaders(start, method, tmp_path):
    (tmp_path / "loader.py").write_text(
        "run = None\n"
        "def load(i):\n"
        "    if run is not None:\n"
        "        run.observe('batch', step=i, loss=-1.0)\n"
        "    return i\n"
    )
    child = start(LOADERS, method, str(tmp_path))
    child.hears("ready")
    with sg.connect("job") as run:
        stream = run.stream("batch.loss")
        assert [record.value for record in stream] == [float(i) for i in range(200)]
    child.hears("done")
    assert child.ends() == 0


def test_a_worker_that_outlives_its_killed_parent_does_not_keep_the_run_alive(start):
    child = start(
        """
        run = sg.init("job")
        worker = os.fork()
        if not worker:
            time.sleep(60)
            os._exit(0)
        say("ready", worker)
        while True:
            run.observe("batch", loss=1.0)
            time.sleep(0.001)
        """.replace("\n        ", "\n")
    )
    worker = int(child.hears("ready")[0])
    with sg.connect("job", on_lost="raise") as run:
        stream = run.stream("batch.loss")
        stream.wait(5, timeout_s=60)
        child.send(signal.SIGKILL)
        with pytest.raises(sg.RunLostError):
            for _ in stream:
                pass
    os.kill(worker, 0)
    assert sg.runs() == []


def test_two_runs_of_one_name(train):
    older = train("job")
    newer = train("job")
    with pytest.warns(UserWarning, match="2 live runs.*'job'"):
        run = sg.connect("job")
    with run:
        assert run.describe().pid == newer.pid
    infos = sg.runs()
    assert [info.pid for info in infos] == [newer.pid, older.pid]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for info in infos:
            with sg.connect(info.id) as run:
                assert run.describe().pid == info.pid
                run.stop()
    assert older.ends() == newer.ends() == 0


def test_several_runs_in_one_process(start):
    child = start(
        """
        runs = [sg.init(f"job{i}", budget=None) for i in range(3)]
        say("ready")
        while not all(run.stopping for run in runs):
            for i, run in enumerate(runs):
                run.observe("batch", value=i)
            time.sleep(0.001)
        """.replace("\n        ", "\n")
    )
    child.hears("ready")
    for i in range(3):
        with sg.connect(f"job{i}") as run:
            assert {record.value for record in run.stream("batch.value").wait(20, timeout_s=60)} == {i}
            run.stop()
    assert child.ends() == 0
