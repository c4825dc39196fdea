"""A program that gevent has patched, before the import of sightglass, after it, or after the first run began."""

from __future__ import annotations

import pytest

import sightglass as sg
from sightglass.core.unpatched import is_patched, subprocess, threading

PATCHED = """
PATCH = sys.argv[1]
def patch():
    from gevent import monkey
    monkey.patch_all()
if PATCH == "before a run":
    patch()
first = sg.init("first", dir=sys.argv[2])
first.observe("batch", loss=0.0)
if PATCH == "beside a run":
    patch()
import gevent
first.observe("batch", loss=1.0)
first.close()
run = sg.init("patched", dir=sys.argv[2], budget=None, hub="nats://127.0.0.1:1", listen="tcp://127.0.0.1:0")
lr = run.control("lr", 0.1)

def picture(x):
    from matplotlib.figure import Figure
    return Figure(figsize=(1, 1))

def train(number):
    step = 0
    while not run.stopping:
        run.observe("batch", number=number, loss=float(step), lr=lr.value)
        run.log({f"a{number}": step}, step=step)
        step += 1
        gevent.sleep(0.001)  # another greenlet goes on
    return step

for step in range(3):
    run.figure("picture", picture, np.zeros(3), step=step)
try:
    from sightglass.server.app import make_server
    make_server([sys.argv[2]])
except sg.TransportError as error:
    say("page", error)
say("ready", run.directory)
trainings = [gevent.spawn(train, number) for number in range(3)]
gevent.joinall(trainings)
run.close()
say("steps", *(one.value for one in trainings))
"""
BEFORE_IMPORT = "from gevent import monkey\nmonkey.patch_all()\n"


@pytest.mark.slow
@pytest.mark.parametrize("patch", ["before the import", "before a run", "beside a run"])
def test_a_program_that_gevent_has_patched(start, tmp_path, patch):
    child = start(PATCHED, patch, str(tmp_path), first=BEFORE_IMPORT if patch == "before the import" else "")
    child.hears("page")
    directory = child.hears("ready")[0]
    with sg.connect("patched") as run:
        loss = run.stream("batch.loss")
        assert len(loss.wait(100, timeout_s=60)) >= 100
        assert run.set("lr", 0.5).applied
        rate = run.stream("batch.lr")
        assert rate.wait(1, timeout_s=60)[0].value == 0.5
        assert run.stop().applied
    steps = list(map(int, child.hears("steps")))
    assert child.ends() == 0
    assert "ProgramFacts is given up" not in child.complaints
    assert "gevent has patched" in child.complaints  # the hub
    with sg.open(directory) as old:
        assert [len(old.series(f"a{number}")) for number in range(3)] == steps
        assert len(old.series("picture")) == 3


def test_without_gevent_threads_are_the_program_s():
    import subprocess as program_subprocess
    import threading as program

    assert not is_patched()
    assert issubclass(threading.Thread, program.Thread)
    assert issubclass(subprocess.Popen, program_subprocess.Popen)
    assert threading.current_thread() is program.current_thread()
    assert threading.main_thread() is program.main_thread()
    thread = threading.Thread(target=lambda: seen.append(threading.current_thread()), daemon=True)
    seen = []
    thread.start()
    thread.join()
    assert seen == [thread]
