"""The runs of this process: `init` begins one, and the end of the process closes those that are left.

A forked child gets none of them: they are its parent's. How signals end the process stands at the end.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shlex
import signal
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Literal

from sightglass.alerts.alert import VARIABLE
from sightglass.core.description import Ending
from sightglass.core.errors import AlertError, StorageError, warn
from sightglass.core.process import current_run
from sightglass.core.process.files import runs_folder
from sightglass.core.process.ranks import is_first_rank
from sightglass.core.process.threads import Background
from sightglass.core.process.unpatched import threading
from sightglass.core.program_values.guarded import FAILURES, LostValue, class_name, message, rebuild, text
from sightglass.core.redact import visible
from sightglass.query.query import Query
from sightglass.storage.run_directory import choose

from .options import OFF, Facts, Files, Limits, Ranks
from .recorder import MirrorTarget, checked
from .run import Run, uncaught
from .wiring import RunSettings, Wiring

if TYPE_CHECKING:
    from sightglass.alerts.receivers import Receiver
    from sightglass.figures.figure_files import RunSink

    from .evaluation.lock import TurnLock

Mode = Literal["live", "disabled"]
MODES: Final = ("live", "disabled")
EVENT_OF_TEST_S: Final = 60.0
MANY: Final = 3  # live runs of one name: two may be compared

_live: weakref.WeakSet[Run] = weakref.WeakSet()
_cells: weakref.WeakKeyDictionary[Run, NotebookCell] = weakref.WeakKeyDictionary()
_newest: list[weakref.ref[Run]] = []
_begun: list[Callable[[Run], object]] = []
_folder_of_test: list[Path] = []
_said: list[str] = []


def current() -> Run | None:
    """Return the newest run that is live in this process, or `None`."""
    while _newest:
        run = _newest[-1]()
        if run is not None and not run._wiring.closed:
            return run
        _newest.pop()
    return None


def when_begun(function: Callable[[Run], object]) -> None:
    """Call a function with the next run that begins."""
    _begun.append(function)


@contextmanager
def under_test(folder: Path, begun: Callable[[Run], object]) -> Iterator[None]:
    """Begin runs in a folder, without a hub, and without limits of time, whatever the program says.

    For `sightglass.testing`.

    Args:
        folder: The folder.
        begun: Called with the first run that begins.
    """
    _folder_of_test.append(folder)
    when_begun(begun)
    try:
        yield
    finally:
        _folder_of_test.pop()
        if begun in _begun:
            _begun.remove(begun)


def init(
    name: str,
    *,
    dir: str | os.PathLike[str] | None = None,
    config: Mapping[str, Any] | None = None,
    record: Sequence[Query | str] = (),
    listen: str | None = None,
    hub: str | os.PathLike[str] | None = None,
    budget: float | None = 0.05,
    limits: Limits | None = None,
    ranks: Ranks | None = None,
    files: Files | None = None,
    facts: Facts | None = None,
    controls: Literal["attributes"] | None = None,
    jax_attach: Literal["global"] | None = None,
    mirror: MirrorTarget | Sequence[MirrorTarget] = (),
    mode: Mode | None = None,
) -> Run:
    """Begin a run. A network problem never stops the training: it is reported as a warning.

    Where stderr is a terminal, the first run of a program says there, in one line, how to look at it.

    Args:
        name: The run's name for people; several live runs may share it.
        dir: The folder of run directories; this run's is `{dir}/{name}-{date}-{time}`. By default that of the
            environment's `SIGHTGLASS_RUNS`, else "runs".
        config: The run's configuration, shown to clients.
        record: Queries whose records are written to the run directory from the start, such as "batch.loss".
        listen: A TCP endpoint to open, encrypted, such as "tcp://0.0.0.0:0". Two connection files with its keys are
            written to the run directory.
        hub: A hub to meet clients on as well: a URL such as "nats://login:4222", or a hub file; by default the
            environment's `SIGHTGLASS_HUB`. The run connects to it in the background whenever it can be reached.
        budget: The share of the run's time that queries may take before they are thinned; `None` for no limit.
        limits: Limits that are rarely changed, see `Limits`.
        ranks: For a distributed program: which rank this is, and how they agree on commands, see `Ranks`.
        files: Where to write, if not to a new directory under `dir`, see `Files`.
        facts: What to tell about the program, see `Facts`: by default its command, versions and git commit.
        controls: "attributes" lets controllers set numbers inside the objects that events offer, such as
            `batch.optimizer.lr`, besides the controls that the program declares.
        jax_attach: "global" lets clients query the logs of every jitted JAX function, as the event "jax", without
            `sightglass.jax.live` around it. The first query recompiles all jitted functions; the client must confirm.
        mirror: Where logged values and recorded queries go besides the run directory: "tensorboard" for event files in
            its folder `tensorboard`; "mindspore" for summary files in its folder `mindspore`; "wandb" for the W&B run
            that is active at the first record, else one of its own; or a sink with the methods `write`,
            `flush` and `close`; or several. Only rank 0 passes them on.
        mode: "disabled" makes every call a no-op; by default the environment's `SIGHTGLASS_MODE`, else "live".

    Returns:
        The run. Close it with `Run.close` or a `with` block; otherwise it closes when the program exits.

    Raises:
        TypeError: `name`, `hub`, `config`, `record`, `limits`, `ranks`, `files`, `facts`, `mirror` has the wrong type.
        ValueError: `mode`, `budget`, `listen`, `controls`, `jax_attach` or `mirror` has an invalid value.
        QueryError: A query in `record` is invalid.
        MissingExtraError: `mirror` is "wandb", and `wandb` is not installed.

    >>> with init("example", mode="disabled") as run:
    ...     run.observe("batch", loss=0.5)
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"Expected the run's name as text, got {name!r}")
    if _folder_of_test:
        dir, hub, budget, facts = _folder_of_test[-1], None, None, facts or OFF
        limits = replace(limits or Limits(), max_event_s=EVENT_OF_TEST_S)
    mode = mode or os.environ.get("SIGHTGLASS_MODE") or "live"  # type: ignore[assignment]
    if mode not in MODES:
        raise ValueError(f"Expected mode 'live' or 'disabled', got {mode!r}")
    if budget is not None and not 0 < budget <= 1:
        raise ValueError(f"Expected a budget above 0 and up to 1, or None, got {budget!r}")
    if listen is not None and not listen.startswith("tcp://"):
        raise ValueError(f"Expected an endpoint such as 'tcp://0.0.0.0:0', got {listen!r}")
    if hub is not None and not isinstance(hub, str | os.PathLike):
        raise TypeError(f"Expected the URL of a hub or a hub file, got {class_name(hub)} {text(hub, 100)}")
    if jax_attach not in (None, "global"):
        raise ValueError(f"Expected jax_attach='global' or None, got {jax_attach!r}")
    if controls not in (None, "attributes"):
        raise ValueError(f"Expected controls='attributes' or None, got {controls!r:.100}")
    if isinstance(record, str):
        raise TypeError(f"Expected a list of queries to record, got text: record=[{record!r}]")
    for option, kind in ((limits, Limits), (ranks, Ranks), (files, Files), (facts, Facts)):
        if option is not None and not isinstance(option, kind):
            raise TypeError(f"Expected sg.{kind.__name__}(…) or None, got {class_name(option)} {text(option, 100)}")
    hub = hub or os.environ.get("SIGHTGLASS_HUB") or None
    files = files or Files()
    mirrors = checked(mirror) if mode != "disabled" else ()
    if mode != "disabled" and files.compat is not None and files.compat not in mirrors:
        mirrors += (files.compat,)
    folder = runs_folder() if dir is None else Path(dir)
    settings = RunSettings(
        name=name, directory=choose(folder, name) if files.into is None else Path(files.into),
        shared=files.into is not None, repeats=files.repeats, private=files.private,
        config=_config(config), record=record, listen=listen,
        hub=hub, budget=budget, limits=limits, ranks=ranks or Ranks(), jax_attach=jax_attach,
        sets_attributes=controls == "attributes", mirror=mirrors, at_mirror=_close_first_at_exit,
        receivers=() if _folder_of_test or mode == "disabled" else _receivers(),
        facts=OFF if os.environ.get("SIGHTGLASS_FACTS") == "off" else facts or Facts(),
        disabled=mode == "disabled",
    )  # fmt: skip
    cell = None if settings.disabled else _running_cell(name, str(folder))
    if cell is not None:
        _end_earlier(cell)
    run = Run(Wiring(settings))
    if not run.disabled:
        _live.add(run)
        if cell is not None:
            _cells[run] = cell
        elif settings.ranks == Ranks():
            _warn_of_many(name)
        _termination.install()
        _newest.append(weakref.ref(run))
        waiting, _begun[:] = _begun[:], []
        for begun in waiting:
            begun(run)
        _say_how_to_look(name, "" if dir is None and files.into is None else str(files.into or folder))
    return run


# When a notebook's cell runs again, the runs of its earlier execution end. They would otherwise stay live, with their
# threads and descriptors, until the kernel has none left.


@dataclass(frozen=True, slots=True, kw_only=True)
class NotebookCell:
    """The execution of a notebook's cell that begins a run.

    Attributes:
        id: The cell's id; empty if the notebook does not tell it.
        execution: The id of the execution.
        begins: The name and the folder of the run.
    """

    id: str
    execution: str
    begins: tuple[str, str]

    def repeats(self, earlier: NotebookCell) -> bool:
        """Return whether this cell has been executed before, as far as can be known."""
        if self.execution == earlier.execution:
            return False
        return self.id == earlier.id if self.id and earlier.id else self.begins == earlier.begins


def _running_cell(name: str, folder: str) -> NotebookCell | None:
    """Return the execution of a cell that begins a run; `None` outside of notebooks."""
    if "IPython" not in sys.modules:
        return None
    from sightglass.views.surfaces.notebook.model import shell

    kernel: Any = getattr(shell(), "kernel", None)
    try:
        request = kernel.get_parent("shell")
        id = str(request.get("metadata", {}).get("cellId") or "")
        return NotebookCell(id=id, execution=str(request["header"]["msg_id"]), begins=(name, folder))
    except (AttributeError, KeyError, TypeError):  # IPython in a terminal, or a kernel of another kind
        return None


def _end_earlier(cell: NotebookCell) -> None:
    """End the runs that an earlier execution of a cell began."""
    for run in list(_live):
        if not run._wiring.closed and run in _cells and cell.repeats(_cells[run]):
            try:
                run.close()
            except StorageError as error:
                warn(str(error))
            print(f"Ended run {run.name!r} ({run.id}), which an earlier execution of this cell began.")  # noqa: T201  in the output of the cell


def _warn_of_many(name: str) -> None:
    """Warn if a program keeps beginning runs of one name and ends none."""
    n = sum(run.name == name and not run._wiring.closed for run in list(_live))
    if n >= MANY:
        warn(f"{n} runs named {name!r} are live in this process. Each has threads and descriptors until it ends: use "
             "`with sightglass.init(…)`, or call `run.close()`")  # fmt: skip


def _say_how_to_look(name: str, folder: str) -> None:
    """Say once, to a person at a terminal, how to look at the run; logs, notebooks and pipes stay clean."""
    if _said or _folder_of_test or not is_first_rank() or not getattr(sys.stderr, "isatty", bool)():
        return
    _said.append(name)
    look = shlex.join(["sightglass", "ui", *filter(None, [folder])])
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"sightglass: the run {visible(name)!r} is live. To look at it: {look}\n")


def _receivers() -> tuple[Receiver, ...]:
    """Return where the environment sends alerts; warn if that cannot be."""
    if not os.environ.get(VARIABLE):
        return ()
    from sightglass.alerts.receivers import receivers_here  # most runs have none

    try:
        return receivers_here(lambda error: warn(f"A receiver gets no alerts: {error}"))
    except AlertError as error:
        warn(f"No alerts are delivered: {error}")
        return ()


def _config(config: object) -> dict[str, Any]:
    """Return a copy of a config; what cannot be read in it is a `LostValue`.

    Raises:
        TypeError: It is not a mapping.
    """
    try:
        read = rebuild(config, lambda value: value)
    except FAILURES as error:
        return {"config": LostValue(message(error))}
    try:
        return dict(read or {})
    except (TypeError, ValueError):
        raise TypeError(f"Expected a mapping as config, got {class_name(config)}") from None


def _current_figures() -> RunSink | None:
    run = current()
    return None if run is None else run._figures.sink


def _close_all() -> None:
    """Close every run, whatever the others do; what went wrong with them is told afterwards, together."""
    ending = uncaught()

    def close(run: Run) -> None:
        if ending is not None:
            run._ends_by(type(ending), ending)
        run.close()

    failures = _of_all(close)
    lost = [failure for failure in failures if isinstance(failure, StorageError)]
    try:
        if lost:
            warn("\n".join(map(str, lost)))
    finally:
        if len(lost) < len(failures):
            raise BaseExceptionGroup("Runs could not be closed", failures)


def _of_all(act: Callable[[Run], object]) -> list[BaseException]:
    """Do something with every live run; return the failures, of which none keeps it from the other runs."""
    failures: list[BaseException] = []
    for run in list(_live):
        try:
            act(run)
        except BaseException as failure:  # noqa: BLE001  an interrupt costs no run its records, either
            failures.append(failure)
    return failures


def _close_first_at_exit() -> None:
    """Close the runs at exit before what is loaded by now ends: exit handlers run last to first."""
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def _terminate(run: Run, number: int, dies: bool, in_event: bool) -> None:
    """Write what is recorded, because a signal is to end the process; close the run if it dies next.

    Not what waits for the run's lock, if the interrupted code is `in_event`: it holds that until the handler ends.
    """
    run._wiring.ends("terminated", Ending(signal=signal.Signals(number).name))
    if run._wiring.recorder is not None:  # first what waits for no lock that the interrupted code may hold
        run._wiring.recorder.flush(GRACE_S)
    if dies:
        run._wiring.close()
    elif not in_event:
        run._wiring.flush(GRACE_S)


def _terminate_all(number: int, dies: bool, in_event: bool) -> None:
    failures = _of_all(lambda run: None if run._wiring.closed else _terminate(run, number, dies, in_event))
    if failures:
        raise BaseExceptionGroup("Runs could not be ended", failures)


def _abandon_all() -> None:
    failures = _of_all(lambda run: run._abandon())
    _live.clear()
    _termination.release()
    if failures:  # Python prints what a handler of `fork` raises
        raise BaseExceptionGroup("Runs could not be left to the parent", failures)


# How signals end a program. On SIGTERM, with which Slurm, Kubernetes and `docker stop` end it, and on SIGHUP its
# records are written first.
#
# Python runs a handler on the main thread, between two steps of the interpreter: in a long call of a library the
# program lives on until that returns, or until it is killed.

KILLED_S: Final = 10.0  # `docker stop` kills then, Kubernetes after 30 s
GRACE_S: Final = KILLED_S / 2  # the program's own handler needs the rest
LAST_S: Final = KILLED_S - 1.0  # where the process dies next
EVENT_S: Final = 4.0  # an event in which a signal comes may still take so long
SIGNALS: Final = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Termination:
    """What this process does on the signals that end programs, before the handlers that were there.

    By default these end it. SIGHUP comes when a connection by ssh is lost; `nohup` ignores it.
    """

    def __init__(self, end: Callable[[int, bool, bool], None], held: Callable[[], Sequence[TurnLock]]) -> None:
        """Change nothing yet.

        Args:
            end: Called with the signal on a thread of its own, since the main one may hold any lock; its second
                argument is whether the process dies next, its third whether the main thread is within an event.
            held: Returns the locks of runs that the calling thread holds.
        """
        self.end = end
        self.held = held
        self._mask = threading.local()

    def install(self) -> None:
        """Handle the signals from now on; not from another thread, nor what is ignored or handled outside Python."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in SIGNALS:
            found = signal.getsignal(number)
            if isinstance(found, Handler) or found in (signal.SIG_IGN, None):
                continue
            if found is signal.SIG_DFL and _is_caught(number):
                continue
            signal.signal(number, Handler(self, found))

    def before_fork(self) -> None:
        """Hold the signals back: Python forgets one that reaches a child before the child's own code runs."""
        if handled := _handled():
            self._mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, handled)

    def after_fork(self) -> None:
        """Let the signals through again; does nothing if they were not held back."""
        if "before" in vars(self._mask):
            signal.pthread_sigmask(signal.SIG_SETMASK, vars(self._mask).pop("before"))

    def release(self) -> None:
        """Restore the handlers that were there: a forked child has no runs, and dies at once, whatever it waits for."""
        for number, handler in _handled().items():
            signal.signal(number, handler.before)
        self.after_fork()


class Handler:
    """One handler in the place of the one that was there.

    A library such as Lightning puts its own handler over this one, which calls this one, and puts this one back when it
    is done. A run that begins in between puts another handler over the library's. So each knows what it replaced.

    Within an event the main thread holds the run's lock, for as long as a handler runs. So the signal is sent again
    when the event is over, unless another handler calls this one: what follows is decided there, at once.
    """

    def __init__(self, termination: Termination, before: Any) -> None:
        """Take what happens first, and what was there."""
        self._termination = termination
        self._later: Background | None = None
        self._overdue = False
        self._arrived = threading.Event()
        self.before = before

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """End the runs in order; then do what would have been done without them."""
        first = signal.getsignal(number) is self
        dies = first and self.before is signal.SIG_DFL
        held = self._termination.held()
        overdue, self._overdue = self._overdue, False
        try:
            if held and first and not overdue and hasattr(signal, "pthread_kill"):  # Windows lacks it
                if self._later is None:
                    self._later = Background("terminate-later", lambda: self._send_again(number, held))
                return
            self._arrived.set()
            ending = Background("terminate", lambda: self._termination.end(number, dies, bool(held)))
            ending.join((LAST_S if dies else GRACE_S) - (EVENT_S if overdue else 0.0))
        except RuntimeError as error:  # the system starts no more threads
            warn(f"The last records may be lost: {error}")
        if dies:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif callable(self.before):
            self.before(number, frame)

    def _send_again(self, number: int, held: Sequence[TurnLock]) -> None:
        """Send the signal again when the event is over, or takes too long; hold the locks until it has arrived."""
        with contextlib.ExitStack() as turns:
            self._overdue = not all(turns.enter_context(lock.turn(EVENT_S)) for lock in held)
            self._later = None
            self._arrived.clear()
            signal.pthread_kill(threading.main_thread().ident or 0, number)
            self._arrived.wait(GRACE_S)


def _handled() -> dict[int, Handler]:
    found = {number: signal.getsignal(number) for number in SIGNALS}
    return {number: handler for number, handler in found.items() if isinstance(handler, Handler)}


def _is_caught(number: int) -> bool:
    """Return whether a library outside Python handles a signal, as that of `jax.distributed` does; on Linux."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (number - 1) & 1)


_termination = Termination(_terminate_all, lambda: [lock for run in list(_live) if (lock := run._telemetry.lock).held])
current_run.announce(_current_figures)
_close_first_at_exit()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_termination.before_fork, after_in_parent=_termination.after_fork, after_in_child=_abandon_all
    )
