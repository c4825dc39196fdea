"""A program that gevent has patched, before the import of sightglass, after it, or after the first run began."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

import sightglass as sg
from sightglass.core.process.unpatched import is_patched, subprocess, threading

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

# Any part of what gevent can patch, at any moment: all rows are there.
PARTS = ("socket", "select", "time", "subprocess", "os", "queue", "signal", "thread", "sys", "ssl", "dns")
VARIANT = """
import json
moment, patched, directory = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
def patch(now):
    if now == moment:
        from gevent import monkey
        monkey.patch_all(**patched)
patch("before init")
run = sg.init("variant", dir=directory, listen=sys.argv[4] or None, record=["batch.x"], budget=None)
patch("after init")
for step in range(50):
    run.observe("batch", step=step, x=float(step))
    run.log({"a": step}, step=step)
    if step == 25:
        patch("in the middle")
    if "gevent" in sys.modules:
        sys.modules["gevent"].sleep(0.001)
run.flush()
run.close()
with sg.open(run.directory) as old:
    say("rows", len(old.series("a")), len(old.stream("batch.x").wait()))
"""


def begin(number: int) -> tuple[str, list[str]]:
    """Return what comes before the imports of a program, and its moment, what is patched, and its address."""
    chance = random.Random(number)
    moment = ("before init", "after init", "in the middle", "before the import")[number % 4]
    patched = {part: chance.random() < 0.8 for part in PARTS}
    first = f"from gevent import monkey\nmonkey.patch_all(**{patched!r})\n" if moment == "before the import" else ""
    return first, [moment, json.dumps(patched), chance.choice(["", "tcp://127.0.0.1:0"])]


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


@pytest.mark.slow
def test_whatever_gevent_patches_and_whenever_all_rows_are_there(start: Any, tmp_path: Any) -> None:
    """More variants are in `bench classes`."""
    children = {}
    for number in range(8):
        first, (moment, patched, listen) = begin(number)
        children[number] = start(VARIANT, moment, patched, str(tmp_path / str(number)), listen, first=first)
    for number, child in children.items():
        assert child.hears("rows") == ["50", "50"], begin(number)
        assert child.ends() == 0
        assert "is given up" not in child.complaints, begin(number)  # gevent warns of patches that come late


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
