"""Run tasks on an executor: in this process, in processes of this machine, on Dask, or on any other.

An executor is anything with the interface of `concurrent.futures.Executor`. Tasks and results must be picklable.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from sightglass.core.errors import MissingExtraError, WorkerLostError
from sightglass.core.threads import process_pool

Task = TypeVar("Task")
Result = TypeVar("Result")

SCHEDULER: Final = "SIGHTGLASS_EXECUTOR"

Chosen = Executor | str | None
"""`None` for this process, or for the scheduler that SIGHTGLASS_EXECUTOR names; "processes"; the address of a Dask
scheduler, such as "tcp://10.0.0.1:8786"; or an executor."""


def in_order(function: Callable[[Task], Result], tasks: Sequence[Task], executor: Chosen = None) -> list[Result]:
    """Return a function's result for each task.

    An exception of a task, or Ctrl-C, is raised; what has not begun is cancelled then. On a terminal, a bar shows how
    many are done.

    Raises:
        MissingExtraError: The address of a scheduler is given, and Dask is not installed.
        WorkerLostError: A process of the executor ended without an answer.
    """
    with _opened(executor if executor is not None else os.environ.get(SCHEDULER)) as chosen, _progress(tasks) as done:
        if chosen is None:
            return [done(function(task)) for task in tasks]
        futures: list[Future[Result]] = []
        try:
            for task in tasks:
                futures.append(chosen.submit(function, task))
                futures[-1].add_done_callback(done)
            return [future.result() for future in futures]
        except BrokenExecutor as error:
            raise WorkerLostError(_why_lost(executor)) from error
        finally:
            for future in futures:
                future.cancel()


def _why_lost(executor: Chosen) -> str:
    advice = "A script needs `if __name__ == '__main__':` around its work." if executor == "processes" else ""
    return (
        "A worker process ended before it answered; the system may have killed it for lack of memory. Ask fewer runs "
        f"at a time, leave executor= out, or use Dask, which repeats lost work. {advice}".strip()
    )


@contextmanager
def _progress(tasks: Sequence[Task]) -> Iterator[Callable[[Any], Any]]:
    """Return a function that counts a task as done, and returns what it is given."""
    if len(tasks) < 2 or not sys.stderr.isatty():
        yield lambda result: result
        return
    from sightglass.views.surfaces.terminal.progress import TaskProgress  # slow to import, and seldom needed

    with TaskProgress("Reading runs", len(tasks)) as progress:

        def done(result: Any) -> Any:
            progress.advance()
            return result

        yield done


@contextmanager
def _opened(executor: Chosen) -> Iterator[Executor | None]:
    """Return an executor; one that is made here is closed again."""
    if not isinstance(executor, str):
        yield executor
    elif executor == "processes":
        pool = process_pool()
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)
    else:
        with _dask_client(executor) as client:
            yield client.get_executor()


def _dask_client(address: str) -> Any:
    try:
        import distributed
    except ImportError:
        raise MissingExtraError("distributed", extra="dask", purpose=f"Asking runs on {address}") from None
    client: Any = distributed.Client
    return client(address, set_as_default=False)
