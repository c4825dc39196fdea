"""Programs that stand still: they say so, and where."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.waiting import wait_until

import sightglass as sg

pytestmark = pytest.mark.slow

STUCK = """
def waits_for_a_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

run = sg.init("job", dir=sys.argv[1], record=["batch.n"], budget=None)
for n in range(20):
    run.observe("batch", n=n)
say("ready", run.directory)
waits_for_a_lock()
"""


def command(*words):
    done = subprocess.run([sys.executable, "-m", "sightglass", *words], capture_output=True, text=True, check=False)
    return done.stdout


def test_a_program_that_waits_for_a_lock_shows_its_stacks(start, tmp_path):
    child = start(STUCK, str(tmp_path))
    child.hears("ready")
    with sg.connect("job") as run:
        stacks = wait_until(lambda: (found := run.stacks()).summary() == "in waits_for_a_lock" and found)
        assert stacks.threads[0].main
        wait_until(lambda: run.describe().state == "quiet", lambda: run.describe().events["batch"])
    assert "in waits_for_a_lock" in command("stack", "job")
    assert "error  quiet: It is quiet for" in command("diagnose", "job")
    assert "quiet" in command("runs")
