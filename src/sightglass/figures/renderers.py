"""The renderers of a queue: a child process, a second one while the first takes long, a thread for what no child loads.

A figure that takes longer than `HUNG_S` while others wait may hang. The others are then taken from its child and drawn
in another one, so that they lose nothing; the first child goes on, for at most `limit_s`, and ends. There are never
more than two: what hangs in the second one is waited for.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Literal

from .child_process import HUNG_S, ChildRenderer
from .in_process import InlineRenderer, ThreadRenderer
from .render_job import Finished, Renderer, RenderJob
from .snapshot import Arena

RendererKind = Literal["process", "thread", "inline"]


class Renderers:
    """Has each job drawn where it can be; the caller holds a lock.

    Attributes:
        main: The renderer that gets new jobs.
    """

    def __init__(self, kind: RendererKind, finished: Finished, *, arena: Arena, limit_s: float) -> None:
        """Start no process and no thread yet.

        Args:
            kind: Where figures are drawn.
            finished: Called once for each job, with its results.
            arena: Holds large arrays.
            limit_s: How long one job may take.
        """
        self._finished = finished
        self._limit_s = limit_s
        self._new_child: Callable[[], ChildRenderer] | None = None
        self._n_ended = 0
        self._slow: ChildRenderer | None = None
        self._thread: ThreadRenderer | None = None
        self._warned = False
        hung: set[tuple[str, str]] = set()
        self.main: Renderer
        if kind == "process":
            self._new_child = lambda: ChildRenderer(finished, arena=arena, limit_s=limit_s, hung=hung)
            self.main = self._new_child()
        else:
            self.main = (ThreadRenderer if kind == "thread" else InlineRenderer)(finished, limit_s=limit_s)

    @property
    def n_started(self) -> int:
        """How many children were started."""
        return self._n_ended + sum(one.n_started for one in self._open() if isinstance(one, ChildRenderer))

    @property
    def in_own_thread(self) -> bool:
        """Whether this is called by a function that is drawn in a thread, which must not wait for itself."""
        return any(isinstance(one, ThreadRenderer) and one.is_current for one in self._open())

    def put(self, job: RenderJob) -> None:
        """Give a job to the renderer, or to a thread of this process if it cannot be drawn there."""
        if job.lack or not self.main.put(job):
            if self._thread is None:
                self._thread = ThreadRenderer(self._finished, limit_s=self._limit_s)
            self._thread.put(job)
        if isinstance(self.main, ChildRenderer) and self.main.lack:
            self.warn(f"no process can be started for figures: {self.main.lack}")

    def end_overdue(self) -> None:
        """End what takes longer than it may, and let others overtake what takes long; never draws."""
        for renderer in self._open():
            renderer.end_overdue()
        self._overtake()

    def check(self) -> None:
        """Check that drawing makes progress; for a thread that waits for it."""
        for renderer in self._open():
            renderer.check()
        self._overtake()

    def close(self, left_s: Callable[[], float]) -> bool:
        """Draw what is left, end, and return whether that was in time."""
        late = [renderer for renderer in self._open() if not renderer.close(left_s())]
        return not late

    def abandon(self) -> None:
        """Release everything, in a forked child."""
        for renderer in self._open():
            renderer.abandon()

    def warn(self, why: object) -> None:
        """Warn once that figures are drawn in this process."""
        if not self._warned:
            self._warned = True
            with contextlib.suppress(Warning):
                warnings.warn(f"Drawing in a thread of this process, because {why}", RuntimeWarning, stacklevel=6)

    def _open(self) -> list[Renderer]:
        return [one for one in (self.main, self._slow, self._thread) if one is not None]

    def _overtake(self) -> None:
        """Take the jobs from a child that takes long for one, and have them drawn in another."""
        if self._slow is not None and not self._slow.n_open:
            self._slow.close(0.0)
            self._n_ended += self._slow.n_started
            self._slow = None
        if self._slow is not None or self._new_child is None or not isinstance(self.main, ChildRenderer):
            return
        if jobs := self.main.take_back(HUNG_S):
            self._slow, self.main = self.main, self._new_child()
            for job in jobs:
                self.put(job)
