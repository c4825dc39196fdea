"""Programs that stand still: they say so, and where; and what writes that down hurts no program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.waiting import wait_until

import sightglass as sg

pytestmark = pytest.mark.slow

STUCK = """
import ctypes
from sightglass.core.process import stacks as watchdog
watchdog.STUCK_S, watchdog.RENEW_S = 2.0, 0.5

def waits_for_a_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

def waits_in_c():
    ctypes.PyDLL(None).sleep(600)  # which holds the interpreter's lock

run = sg.init("job", dir=sys.argv[1], record=["batch.n"], budget=None)
for n in range(20):
    run.observe("batch", n=n)
until(lambda: watchdog._timer.is_set)
say("ready", run.directory)
globals()[sys.argv[2]]()
"""


def command(*words):
    done = subprocess.run([sys.executable, "-m", "sightglass", *words], capture_output=True, text=True, check=False)
    return done.stdout


def test_a_program_that_waits_for_a_lock_shows_its_stacks(start, tmp_path):
    child = start(STUCK, str(tmp_path), "waits_for_a_lock")
    child.hears("ready")
    with sg.connect("job") as run:
        stacks = wait_until(lambda: (found := run.stacks()).summary() == "in waits_for_a_lock" and found)
        assert stacks.threads[0].main
        wait_until(lambda: run.describe().state == "quiet", lambda: run.describe().events["batch"])
    assert "in waits_for_a_lock" in command("stack", "job")
    assert "quiet" in command("runs")


def test_of_one_that_holds_the_interpreters_lock_they_are_in_its_directory(start, tmp_path):
    child = start(STUCK, str(tmp_path), "waits_in_c")
    (directory,) = child.hears("ready")
    wait_until(lambda: "in waits_in_c" in (Path(directory) / "stacks.txt").read_text())
    assert "in waits_in_c" in command("stack", "job")


FORKING = """
from sightglass.core.process import stacks as watchdog
run = sg.init("job", dir=sys.argv[1], record=["batch.n"], budget=None)
run.observe("batch", n=1)
stacks = os.path.join(run.directory, "stacks.txt")
until(lambda: watchdog._timer.is_set)
for _ in range(3):  # with the timer set, a child would wait for its thread, which it lacks
    if os.fork() == 0:
        sys.exit(3)
    say("child", os.wait()[1] >> 8)
run.close()
say("left", os.path.exists(stacks))
"""


def test_a_child_that_is_forked_meanwhile_ends(start, tmp_path):
    child = start(FORKING, str(tmp_path))
    assert [child.hears("child") for _ in range(3)] == [["3"]] * 3
    assert child.hears("left") == ["False"]  # there was nothing to write
    assert child.ends() == 0


PROGRAMS_OWN = """
import faulthandler
from sightglass.core.process import stacks as watchdog
watchdog.STUCK_S, watchdog.RENEW_S = 1.0, 0.1
original = faulthandler.dump_traceback_later
run = sg.init("job", dir=sys.argv[1], record=["batch.n"], budget=None)
run.observe("batch", n=1)
until(lambda: watchdog._timer.is_set)
until(lambda: faulthandler.dump_traceback_later is not original)
with open(sys.argv[2], "w") as own:
    faulthandler.dump_traceback_later(0.5, file=own)
    until(lambda: "Timeout" in open(sys.argv[2]).read(), pause=lambda: run.observe("batch", n=1))
    say("put back", faulthandler.dump_traceback_later is original)
run.close()
say("left", os.path.exists(os.path.join(run.directory, "stacks.txt")))
"""


def test_a_program_that_wants_the_timer_has_it(start, tmp_path):
    child = start(PROGRAMS_OWN, str(tmp_path / "runs"), str(tmp_path / "own.txt"))
    assert child.hears("put")[1:] == ["True"]
    assert child.hears("left") == ["False"]
    assert child.ends() == 0
