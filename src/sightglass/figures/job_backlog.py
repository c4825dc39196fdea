"""The jobs that are not drawn yet: which are sent to the renderer, which are held back, and which are dropped.

It knows no thread and no clock; the caller holds a lock.

1. At most `n_jobs` jobs wait behind the one being drawn, with at most `n_bytes` of arguments. Beyond that, the
   `on_full` of a request decides: with "spill", it waits outside of memory, with "drop_new" it has to go, "drop_oldest"
   drops the job that was held back longest, "replace" those of the same name, whose place it takes, so that every name
   gets its turn. With "replace", one more job for each name may wait.
2. A job that was sent cannot be dropped, but is drawn even if this process is killed. So jobs are sent while there is
   room, except with "drop_oldest", where at most `WINDOW` are; "replace" leaves half of the bytes to newer figures.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from .render_job import RenderJob, RenderRequest
from .snapshot import Snapshot

WINDOW: Final = 2  # one being drawn and one ready, so the renderer never idles
MAX_NAMES: Final = 256  # with "replace", a bound for programs that give each figure a name of its own


class JobBacklog:
    """The open jobs of a render queue.

    Attributes:
        jobs: Those in memory, by id.
        outside: Those with "spill" whose arguments are on a device or in a file, by id, in order.
        held: Those that the renderer does not have yet, in order.
        n_dropped: How many were dropped to make room.
    """

    def __init__(self, *, n_jobs: int, n_bytes: int) -> None:
        """Start empty, with room for this many waiting jobs and bytes."""
        self.jobs: OrderedDict[int, RenderJob] = OrderedDict()
        self.outside: OrderedDict[int, RenderJob] = OrderedDict()
        self.held: list[RenderJob] = []
        self.n_dropped = 0
        self._n_jobs = n_jobs
        self._n_bytes = n_bytes

    @property
    def open(self) -> list[RenderJob]:
        """All jobs that are not finished."""
        return [*self.jobs.values(), *self.outside.values()]

    def place(self, request: RenderRequest, n_bytes: int) -> int | None:
        """Make room for a request as its `on_full` says; return its place in `held`, or `None` without room."""
        place = len(self.held)
        if self.fits(n_bytes):
            return place
        n_more = 0
        if request.on_full == "replace":
            n_more = MAX_NAMES
            same = [i for i, job in enumerate(self.held) if job.droppable and job.message.name == request.name]
            for i in reversed(same):
                self._drop(i)
            place = same[0] if same else place
        while request.droppable and not self.fits(n_bytes, n_more):
            oldest = next((i for i, job in enumerate(self.held) if job.droppable), None)
            if oldest is None:
                break
            place -= oldest < place
            self._drop(oldest)
        return place if self.fits(n_bytes, n_more) else None

    def add(self, job: RenderJob) -> None:
        """Take a job; it is held once its arguments are on the host, see `hold`."""
        self.jobs[job.message.id] = job

    def hold(self, job: RenderJob, place: int) -> None:
        """Hold a job back, until `next_to_send` returns it."""
        self.held.insert(place, job)

    def next_to_send(self) -> RenderJob | None:
        """Return the next job that the renderer should have, if there is one; it is sent from then on."""
        if not self.held:
            return None
        job, sent = self.held[0], [job for job in self.jobs.values() if job.sent]
        if len(sent) >= (WINDOW if job.request.on_full == "drop_oldest" else self._n_jobs + 1):
            return None
        if job.request.on_full == "replace" and sent and self._bytes_of(sent) + job.n_bytes > self._n_bytes // 2:
            return None
        job.sent = True
        return self.held.pop(0)

    def remove(self, job: RenderJob) -> None:
        """Forget a job, and free its memory."""
        self.jobs.pop(job.message.id, None)
        self.outside.pop(job.message.id, None)
        if isinstance(job.snapshot, Snapshot):
            job.snapshot.release()

    def clear(self) -> None:
        """Forget all jobs, in a forked child, where their memory is not this process's to free."""
        self.jobs.clear()
        self.outside.clear()
        self.held.clear()

    def fits(self, n_bytes: int, n_more: int = 0) -> bool:
        """Return whether there is room in memory for one more job of this size; `n_more`: beyond the usual number."""
        within = self._bytes_of(list(self.jobs.values())) + n_bytes <= self._n_bytes
        return within and len(self.jobs) <= self._n_jobs + n_more

    @staticmethod
    def _bytes_of(jobs: list[RenderJob]) -> int:
        return sum(job.n_bytes for job in jobs)

    def _drop(self, place: int) -> None:
        self.remove(self.held.pop(place))
        self.n_dropped += 1
