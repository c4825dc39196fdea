"""A renderer in simulated time: figures take as long as a test says, and waiting for them moves the clock."""

from __future__ import annotations

import threading

from sightglass.figures import Plotter, render_queue
from sightglass.figures.drawing import Drawer
from sightglass.figures.local_renderer import draw
from sightglass.figures.messages import DrawFinished, Failure


class SimulatedClock:
    """Moves when it is told to."""

    def __init__(self):
        self.now_s = 0.0

    def monotonic(self):
        return self.now_s

    wall = monotonic


class SimulatedJob:
    """A job in the hands of the renderer."""

    def __init__(self, job, seconds):
        self.job = job
        self.seconds = seconds
        self.hangs = getattr(job.function, "__name__", "") == "hang" or "hangs" in str(job.function.__code__.co_consts)


class SimulatedRenderer:
    """Draws in this process, by the real `Drawer`, when the clock says that a figure is finished."""

    def __init__(self, finished, *, limit_s, **options):
        self.finished = finished
        self.limit_s = limit_s
        self.clock = SimulatedClock()
        self.jobs = []
        self.seconds = 0.01
        self.n_started = 1
        self.lack = ""
        self.since_s = 0.0
        self._drawer = Drawer()

    def put(self, job):
        if not self.jobs:
            self.since_s = self.clock.now_s
        self.jobs.append(SimulatedJob(job, self.seconds))
        return True

    def end_overdue(self):
        while self.jobs:
            first, waited_s = self.jobs[0], self.clock.now_s - self.since_s
            if first.hangs and waited_s > self.limit_s:
                self._end(self.jobs.pop(0).job)
            elif not first.hangs and waited_s >= first.seconds:
                self.finish(1)
            else:
                return

    check = end_overdue

    def finish(self, n):
        """Finish that many figures at once."""
        for _ in range(min(n, len(self.jobs))):
            job = self.jobs.pop(0).job
            self.since_s = self.clock.now_s
            result, pictures = draw(job, self._drawer)
            self.finished(job, result, pictures)

    def _end(self, job):
        self.since_s = self.clock.now_s
        failure = Failure(figure=job.message.name, kind="", message="Not drawn: took too long")
        self.finished(job, DrawFinished(id=job.message.id, failures=[failure]), {})

    def close(self, timeout_s):
        return True

    def abandon(self):
        pass


class SimulatedCondition:
    """A condition whose waits move the clock, and let the renderer work."""

    def __init__(self, renderer):
        self._lock = threading.RLock()
        self._renderer = renderer

    def __enter__(self):
        return self._lock.__enter__()

    def __exit__(self, *error):
        return self._lock.__exit__(*error)

    def wait(self, timeout_s):
        self._renderer.clock.now_s += timeout_s
        self._renderer.end_overdue()

    def notify_all(self):
        pass


def simulate(monkeypatch, kind="inline", **options):
    """Return a plotter and its simulated renderer."""
    name = {"inline": "LocalRenderer", "process": "ChildRenderer"}[kind]
    monkeypatch.setattr(render_queue, name, SimulatedRenderer)
    plotter = Plotter(**{"renderer": kind, "sinks": [], "dpi": 20, **options})
    queue = plotter._queue
    (renderer,) = queue._start()
    queue._clock = renderer.clock
    queue._changed = SimulatedCondition(renderer)
    return plotter, renderer
