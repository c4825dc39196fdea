"""SIGTERM, SIGHUP and Ctrl-C: what was recorded is written, and the program's own handler decides what follows."""

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
ANOTHER = "\nsg.init('other', dir=sys.argv[1] + '/others')\n"
PUT_BACK = "signal.signal(signal.SIGTERM, ours); del received\n"
AFTER = "say('last', step); os._exit(7)"  # nothing is closed

PROGRAMS = {  # what happens before `init`, after it, and when the program's own handler was called
    "no handler": ("", "", ""),
    "a handler": (OWN, "", AFTER),
    "a handler that calls the one it found": ("", WRAPPED, AFTER),
    "a handler that calls the one it found, and a later run": ("", WRAPPED + ANOTHER, AFTER),
    "no handler, after such a one": ("", WRAPPED + ANOTHER + PUT_BACK, ""),  # as Lightning's `fit` leaves it
    "a handler, and a run that is closed": (OWN, "", "run.close(); say('last', step)"),
    "ignored": ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", "", ""),
    "a later handler that asks nobody": ("", "signal.signal(signal.SIGTERM, lambda *_: None)", ""),
}

# As that of `jax.distributed`, which saves checkpoints at every host at the same step.
OUTSIDE_PYTHON = """
import ctypes
HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_int)
handler = HANDLER(lambda number: os.write(1, b"heard it\\n"))
ctypes.CDLL(None).signal(signal.SIGTERM, handler)
run = sg.init("outside", dir=sys.argv[1])
say("ready")
threading.Event().wait()
"""

# In a long call of a library no handler of Python's runs.
FORKED = """
import ctypes
run = sg.init("forked", dir=sys.argv[1])
reader, writer = os.pipe()
pid = os.fork()
if not pid:
    os.write(writer, b"x")
    ctypes.PyDLL(None).sleep(600)  # it holds the interpreter, as a call that never returns would
    os._exit(0)
os.read(reader, 1)
until(lambda: open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] == "S")
os.kill(pid, signal.SIGTERM)
say("status", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
for _ in range(100):  # the signal may reach a child before the child's own code runs
    pid = os.fork()
    if not pid:
        signal.pause()
    os.kill(pid, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGTERM
assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
say("all")
run.close()
"""

# The signal comes within an event, while the training thread holds the run's lock.
WITHIN_AN_EVENT = """
import collections.abc
exec(sys.argv[2])
class Program(collections.abc.Mapping):
    def __getitem__(self, name):
        if step == 500:
            os.kill(os.getpid(), signal.SIGTERM)
            if "endless" in globals():
                threading.Event().wait()
        return step
    def __iter__(self):
        return iter(["end"])
    def __len__(self):
        return 1
program = Program()
queries = ["batch.loss", "batch.program.end"]
run = sg.init("within", budget=None, dir=sys.argv[1], record=queries, limits=sg.Limits(max_event_s=60))
exec(sys.argv[3])
say("directory", run.directory)
for step in range(1000):
    run.observe("batch", loss=float(step), program=program)
    run.log({"a": step})
    if globals().get("received"):
        exec(sys.argv[4])
        break
    if step >= 500:
        time.sleep(0.01)
"""


def kept(directory: Path) -> tuple[int, int]:
    with sg.open(directory) as run:
        assert list(run.series("a").steps) == list(range(run.series("a").n))
        return run.series("a").n, len(run.stream("batch.loss").wait())


@pytest.mark.slow
def test_sigterm_and_ctrl_c_lose_nothing_and_the_program_s_own_handler_decides_what_follows(start, train, tmp_path):
    children = {
        what: start(TRAINING, str(tmp_path / str(i)), *program) for i, (what, program) in enumerate(PROGRAMS.items())
    }
    outside, forked = start(OUTSIDE_PYTHON, str(tmp_path / "outside")), start(FORKED, str(tmp_path / "forked"))
    # All train before the first is ended: the interpreters that start take the processors for longer than its grace.
    trained = {what: child.hears("step") for what, child in children.items()}
    outside.hears("ready")
    for what, child in children.items():
        directory, step = Path(trained[what][0]), int(trained[what][1])
        child.send(signal.SIGTERM)
        if "no handler" in what:
            assert child.ends() == -signal.SIGTERM
            assert read(directory / "run.json").state == "terminated"
            logged, recorded = kept(directory)
            assert min(logged, recorded) >= step
            assert abs(logged - recorded) <= 1  # the signal may come between the two
            assert [(run.state, str(run.ending)) for run in sg.runs(directory.parent)] == [("terminated", "SIGTERM")]
        elif what == "a handler, and a run that is closed":
            last = int(child.hears("last")[0])
            assert child.ends() == 0
            assert read(directory / "run.json").state == "terminated"
            assert kept(directory) == (last, last)
            assert last >= step
        elif "asks nobody" in what or what == "ignored":
            while int(child.hears("step")[1]) < step + 300:
                pass
        else:
            last = int(child.hears("last")[0])
            assert child.ends() == 7
            assert all(last >= n >= step for n in kept(directory))
    outside.send(signal.SIGTERM)
    assert outside.hears("heard") == ["it"]
    assert forked.hears("status") == [str(-signal.SIGTERM)]  # it dies although its main thread hears nothing
    forked.hears("all")
    assert forked.ends() == 0

    child = train("paused")
    with sg.connect("paused") as run:
        stream = run.stream("batch.loss")
        assert run.pause().applied
        child.send(signal.SIGINT)
        assert child.ends() == -signal.SIGINT
        assert "KeyboardInterrupt" in child.complaints
        indexes = [record.index for record in stream]
        assert indexes == list(range(len(indexes)))


HUP = "signal.signal(signal.SIGHUP, signal.SIG_{})"  # whatever the tests themselves were started with


@pytest.mark.slow
def test_a_connection_that_is_lost_ends_a_run_in_order_unless_it_is_ignored(start, tmp_path):
    ended, ignoring = (start(TRAINING, str(tmp_path / how), HUP.format(how), "", "") for how in ("DFL", "IGN"))
    (directory, step), _ = ended.hears("step"), ignoring.hears("step")
    for child in (ended, ignoring):
        child.send(signal.SIGHUP)
    assert ended.ends() == -signal.SIGHUP
    assert read(Path(directory) / "run.json").state == "terminated"
    assert [str(run.ending) for run in sg.runs(Path(directory).parent)] == ["SIGHUP"]
    assert min(kept(Path(directory))) >= int(step)
    ignoring.goes_on()


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [*(what for what in PROGRAMS if what not in ("ignored", "a later handler that asks nobody")), "an endless event"],
)
def test_a_signal_within_an_event_loses_nothing(program, start, tmp_path):
    child = start(WITHIN_AN_EVENT, str(tmp_path), *PROGRAMS.get(program, ("endless = True", "", "")))
    directory = Path(child.hears("directory")[0])
    if program == "an endless event":
        assert child.ends() == -signal.SIGTERM
        assert min(kept(directory)) >= 500
        return
    if "no handler" in program:
        assert child.ends() == -signal.SIGTERM
    else:
        child.hears("last")
        assert child.ends() == (0 if "closed" in program else 7)
    logged, recorded = kept(directory)
    assert min(logged, recorded) >= 500
    if "no handler" in program or "closed" in program:
        assert read(directory / "run.json").state == "terminated"
        assert recorded > 500  # the event was finished first
