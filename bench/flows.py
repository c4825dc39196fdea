"""Through how many files a value passes: on its way from the program to a client, to the disk, and back as a command.

Counted are the files of the package whose functions run, on all threads, for one value in a run that is in use. For the
text of a query, `visits` counts how often the road goes on in another file, and `returns` how many of these visits are
to a file that it has left before.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

from tests.waiting import wait_until

import sightglass as sg

PACKAGE = str(Path(sg.__file__).parent)
N_WARM = 50  # events, after which everything that happens once has happened
N_TRACED = 20  # values: a flow goes on on other threads when its value has arrived, and the next one waits for that


class Trace:
    """Notes which files are entered, in which order, as long as it is on."""

    def __init__(self) -> None:
        self.entered: list[tuple[int, str]] = []
        self._on = False
        threading.setprofile(self._note)  # for threads that begin later
        sys.setprofile(self._note)

    def of(self, flow: Callable[[], object]) -> list[tuple[int, str]]:
        """Return the threads and files that a flow enters."""
        self.entered, self._on = [], True
        try:
            flow()
        finally:
            self._on = False
        return self.entered

    def close(self) -> None:
        """Trace no more."""
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if self._on and event == "call" and frame.f_code.co_name != "<module>":
            name = frame.f_code.co_filename
            if name.startswith(PACKAGE):
                self.entered.append((threading.get_ident(), name))


def measure() -> Iterator[tuple[str, float, str, float | None]]:
    trace = Trace()
    try:
        with TemporaryDirectory() as folder:
            yield from _flows(trace, folder)
    finally:
        trace.close()


def _flows(trace: Trace, folder: str) -> Iterator[tuple[str, float, str, float | None]]:
    with sg.init("flows", dir=folder, budget=None, facts=sg.Facts(system=False, console=False)) as run:
        lr = run.control("lr", 0.1, min=0.0, max=1.0)
        with sg.connect(run.id) as client:
            stream = client.stream("batch.loss")

            def observe() -> None:
                n = len(stream.records())
                run.observe("batch", step=n, loss=1.0)
                wait_until(lambda: len(stream.records()) > n)

            def log() -> None:
                run.log({"x": 1.0}, step=next(steps))
                run.flush()

            def control() -> None:
                pending = client._start_command("set", "lr", 0.2)
                wait_until(lambda: run._telemetry.commands.queue.pending)
                observe()
                pending[1].wait(10.0)

            steps = iter(range(10**6))
            run.observe("batch", step=0, loss=1.0)
            for flow in (observe, log, control):
                for _ in range(N_WARM if flow is not control else 2):
                    flow()
            entered = trace.of(lambda: [observe() for _ in range(N_TRACED)])
            yield "observe -> client: files, both sides", _n_files(entered), "", None
            ours = [(thread, name) for thread, name in entered if "/client/" not in name]
            yield "  of the run's side", _n_files(ours), "", 16
            yield "log -> disk: files", _n_files(trace.of(lambda: [log() for _ in range(N_TRACED)])), "", None
            yield "control -> training: files, both sides", _n_files(trace.of(control)), "", 20
            assert lr.value == 0.2
            client.stream("on('batch').map(lambda e: e.loss * 1).mean(every=10)").close()
            text = "on('batch').map(lambda e: e.loss * 2).mean(every=10)"
            here = threading.get_ident()
            road = [name for thread, name in trace.of(lambda: client.stream(text)) if thread == here]
            visits = [name for i, name in enumerate(road) if i == 0 or road[i - 1] != name]
            yield "a query's text -> request: files", len({*visits}), "", 7
            yield "  visits", len(visits), "", None
            yield "  returns", len(visits) - len({*visits}), "", 2


def _n_files(entered: list[tuple[int, str]]) -> int:
    return len({name for _, name in entered})
