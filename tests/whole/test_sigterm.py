"""SIGTERM: what was recorded is written, the run is marked, and the program's own handler decides what follows."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

import sightglass as sg
from sightglass.storage.run_file import read

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a process cannot be sent SIGTERM there")

TRAINING = """
exec(sys.argv[2])
run = sg.init("job", budget=None, dir=sys.argv[1], record=["batch.loss"])
exec(sys.argv[3])
step = 0
while not (ended := globals().get("received")):
    run.observe("batch", step=step, loss=float(step))
    run.log({"a": step}, step=step)
    step += 1
    if step % 100 == 0:
        say("step", run.directory, step)
    time.sleep(0.0005)
exec(sys.argv[4])
"""
OWN = """
received = []
def handler(number, frame):
    received.append(number)
signal.signal(signal.SIGTERM, handler)
"""
WRAPPED = """
ours = signal.getsignal(signal.SIGTERM)
received = []
def handler(number, frame):
    ours(number, frame)
    received.append(number)
signal.signal(signal.SIGTERM, handler)
"""
AFTER = "say('last', step); os._exit(7)"  # nothing is closed


def terminated(start, tmp_path: Path, *, before: str = "", after: str = "", end: str = "") -> tuple[object, Path, int]:
    """Start a training, and send it SIGTERM."""
    child = start(TRAINING, str(tmp_path), before, after, end)
    directory, step = child.hears("step")
    child.send(signal.SIGTERM)
    return child, Path(directory), int(step)


def kept(directory: Path) -> tuple[int, int]:
    with sg.open(directory) as run:
        assert list(run.series("a").steps) == list(range(run.series("a").n))
        return run.series("a").n, len(run.stream("batch.loss").wait())


def test_a_program_without_a_handler_dies_by_the_signal_and_loses_nothing(start, tmp_path):
    child, directory, step = terminated(start, tmp_path)
    assert child.ends() == -signal.SIGTERM
    assert read(directory / "run.json").state == "terminated"
    logged, recorded = kept(directory)
    assert min(logged, recorded) >= step
    assert abs(logged - recorded) <= 1  # the signal may come between the two
    assert [run.state for run in sg.runs(tmp_path)] == ["terminated"]


@pytest.mark.parametrize(("before", "after"), [(OWN, ""), ("", WRAPPED)])
def test_the_program_s_own_handler_decides_what_follows(start, tmp_path, before, after):
    """Installed before `init` or after it, when it calls the one that it found."""
    child, directory, step = terminated(start, tmp_path, before=before, after=after, end=AFTER)
    last = int(child.hears("last")[0])
    assert child.ends() == 7
    logged, recorded = kept(directory)
    assert last >= logged >= step
    assert last >= recorded >= step


def test_a_program_that_then_closes_its_run_has_everything(start, tmp_path):
    child, directory, step = terminated(start, tmp_path, before=OWN, end="run.close(); say('last', step)")
    last = int(child.hears("last")[0])
    assert child.ends() == 0
    assert read(directory / "run.json").state == "terminated"
    assert kept(directory) == (last, last)
    assert last >= step


@pytest.mark.parametrize("handler", ["signal.SIG_IGN", "lambda *_: None"])
def test_a_handler_that_comes_later_and_asks_nobody_stays(start, tmp_path, handler):
    """Nor is a signal that is ignored handled."""
    before, after = ("", f"signal.signal(signal.SIGTERM, {handler})")
    if "IGN" in handler:
        before, after = after, ""
    child, _, step = terminated(start, tmp_path, before=before, after=after)
    while int(child.hears("step")[1]) < step + 300:
        pass
    child.finish()


def test_a_forked_child_dies_at_once_although_its_main_thread_hears_nothing(start, tmp_path):
    """In a long call of a library no handler of Python's runs."""
    child = start(
        """
import ctypes
run = sg.init("job", dir=sys.argv[1])
pid = os.fork()
if not pid:
    say("asleep")
    ctypes.PyDLL(None).sleep(60)  # it holds the interpreter, as a call that never returns would
    os._exit(0)
until(lambda: True)
time.sleep(0.2)
os.kill(pid, signal.SIGTERM)
say("status", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
run.close()
""",
        str(tmp_path),
    )
    assert child.hears("status", timeout_s=30) == [str(-signal.SIGTERM)]
    assert child.ends() == 0


def test_a_handler_of_a_library_outside_python_stays(start, tmp_path):
    """As that of `jax.distributed`, which saves checkpoints at every host at the same step."""
    child = start(
        """
import ctypes
HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)
handler = HANDLER(lambda number: os.write(1, b"heard it\\n"))
ctypes.CDLL(None).signal(signal.SIGTERM, handler)
run = sg.init("job", dir=sys.argv[1])
say("ready")
while True:
    time.sleep(0.01)
""",
        str(tmp_path),
    )
    child.hears("ready")
    child.send(signal.SIGTERM)
    assert child.hears("heard") == ["it"]
    child.finish()
