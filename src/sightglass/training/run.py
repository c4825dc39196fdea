"""`init`: where emit, agent and transports are wired together. The only place that does.

A run works without a network: what cannot be opened is warned of once, and the training goes on. In a forked child the
run is dead: every call is a no-op, and the parent's sockets are not touched.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import socket
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from sightglass.core import current_run
from sightglass.core.clock import SystemClock
from sightglass.core.errors import SightglassError, StorageError
from sightglass.core.ranks import Agree, rank_and_size, refusal
from sightglass.protocol import discovery
from sightglass.protocol.transport import Both, MemoryListener
from sightglass.protocol.zmq import ZmqListener, write_connection
from sightglass.query.parser import as_query
from sightglass.query.query import Query
from sightglass.storage.run_directory import RunDirectory, choose
from sightglass.storage.run_file import RunFile, State

from . import describe
from .agent import Agent
from .commands import CommandResult
from .controls import Action, BoundControl, Control, declaring_line
from .events import Emitter
from .io_thread import IoThread
from .options import Files, Limits, Ranks
from .recorder import Recorder

if TYPE_CHECKING:
    from sightglass.figures.plotter import Plotter
    from sightglass.figures.sinks import RunSink

Mode = Literal["live", "disabled"]
MODES: Final = ("live", "disabled")
CLOSE_S: Final = 10.0

_live: weakref.WeakSet[Run] = weakref.WeakSet()
_newest: list[weakref.ref[Run]] = []
_begun: list[Callable[[Run], object]] = []


class Run:
    """One long-running process being watched. Made by `sightglass.init`.

    Attributes:
        name: Its name.
        id: Its id, 12 hexadecimal digits.
        config: What it was configured with.
        connection_file: Where the address and keys of a controller are, if `listen` was given.
        viewer_file: The same for those who may only look.
        reachable: Whether other processes can connect.
        thread: The thread that `init` was called on; acts are applied there.
    """

    def __init__(
        self,
        name: str,
        *,
        directory: Path,
        shared: bool,
        record: Sequence[Query | str],
        config: Mapping[str, Any],
        listen: str | None,
        budget: float | None,
        limits: Limits,
        agree: Agree | None,
        jax_attach: str | None,
        disabled: bool,
    ) -> None:
        self.name = name
        self.id = secrets.token_hex(6)
        self.config = dict(config)
        self.connection_file: Path | None = None
        self.viewer_file: Path | None = None
        self.reachable = False
        self.thread = threading.get_ident()
        self.disabled = disabled
        self._jax_attach = jax_attach
        self._refuse_variants = ""
        self._rank, n_ranks = rank_and_size()
        self._files = RunDirectory(directory, shared=shared, about=self._about, moved=self._moved)
        self._clock = SystemClock()
        self._functions: dict[str, Callable[..., Any]] = {}
        self._emitter = Emitter(clock=self._clock, budget=budget, agree=agree, leads=self._rank == 0)
        self._idle = self._emitter.demand.idle
        self._io: IoThread | None = None
        self._state: State = "ended"
        self._started = time.time()
        self._recorder: Recorder | None = None
        self._registered: Path | None = None
        self._closed = False
        self._figure_sink: RunSink | None = None
        self._plotter: Plotter | None = None
        self._figure_steps: dict[str, int] = {}
        self.memory: MemoryListener | None = None
        if disabled:
            self._emitter.close()
            return
        refuse_acts = refusal("Acts", self._rank, n_ranks, agree)
        self._refuse_variants = refusal("Queries of compiled steps", self._rank, n_ranks, agree)
        about = {"started": self._started, "config": _plain(config), "directory": str(directory)}
        self._recorder = self._emitter.recorder = Recorder(self._files.open, rank=self._rank, clock=self._clock)
        self._agent = Agent(self._emitter, run=name, id=self.id, clock=self._clock, functions=self._functions,
                            about=about, refuse_acts=refuse_acts, recorder=self._recorder, limits=limits)  # fmt: skip
        for query in record:
            self._agent.keep(as_query(query))
        self._open(listen)
        _live.add(self)
        _newest.append(weakref.ref(self))
        waiting, _begun[:] = _begun[:], []
        for begun in waiting:
            begun(self)

    # Events

    def observe(self, event: str, /, **observables: Any) -> None:
        """Announce an event, and offer values by reference: nothing is computed unless somebody asks.

        Args:
            event: The event's name, such as "batch".
            **observables: Any values, under any names except two: `step` is the step of the records, a number; with
                `snapshot=True` a copy of the observables is kept, for queries that come later.

        Raises:
            TypeError: The event's name is no text.
            ValueError: The event comes from elsewhere already, such as "log".
        """
        count = self._idle.get(event)
        if count is not None and "snapshot" not in observables:
            count()
        else:
            self._emitter.observe(event, observables)

    def log(self, data: Mapping[str, Any], *, step: float | None = None, **steps: float) -> None:
        """Give values away, whether or not somebody asks: they are kept, and are the event "log", by their names.

        Args:
            data: Names to values: numbers, texts, arrays, `Tensor`, `Histogram`, `Image`, `Images`, `Figure`, `Text`,
                Matplotlib's figures, which are drawn here; nested mappings become names with slashes.
            step: The primary step; by default a counter.
            **steps: Further step tracks by name.

        Raises:
            TypeError: The data are no mapping, or a name is no text.
        """
        if not self._emitter.closed:
            if "matplotlib.figure" in sys.modules:
                from sightglass.views.pictures import encode_figures

                data = encode_figures(data)
            self._emitter.log(data, step, steps)

    def figure(self, name: str, fn: Callable[..., Any], /, *arrays: Any, step: float | None = None) -> None:
        """Let a function draw a figure in another process, and log it; what goes wrong is warned of.

        Args:
            name: What the figure is called.
            fn: Called with the arrays, elsewhere; returns a Matplotlib figure, or several by their names.
            *arrays: What it is drawn from; they are copied.
            step: The step; by default a counter of this name's figures.

        Raises:
            TypeError: The name is no text, `fn` no function, or the step no number.
        """
        if not isinstance(name, str) or not name:
            raise TypeError(f"Expected the name of a figure as text, got {name!r}")
        if self._emitter.closed:
            return
        if step is None:
            step = self._figure_steps.get(name, 0)
            self._figure_steps[name] = int(step) + 1
        if self._plotter is None:
            from sightglass.figures.plotter import Plotter

            self._plotter = Plotter.of_run(self._figures())
        self._plotter.plot(fn, *arrays, step=step, name=name)

    def end_group(self, event: str) -> None:
        """Close the groups of an event here: reducers without a named window give their records."""
        if not self._emitter.closed:
            self._emitter.end_group(event)

    # What clients may change and call

    def control(
        self,
        name: str,
        value: Any = None,
        *,
        min: float | None = None,
        max: float | None = None,
        choices: Any = None,
        bind: tuple[Any, str] | None = None,
    ) -> Control:
        """Declare a value that clients may change; read `control.value` where it is used.

        Args:
            name: What clients call it.
            value: Its value now: a bool, int, float or str; left out with `bind`.
            min: The smallest value allowed.
            max: The largest value allowed.
            choices: The values allowed.
            bind: An (object, attribute) to control instead of a value of its own, or a (mapping, key).

        Raises:
            TypeError: The value has another type.
            CommandError: The value is out of its own bounds.
            ValueError: The name is taken.
        """
        self._free(name, self._emitter.ledger.controls, "control")
        where = declaring_line()
        if bind is not None:
            control: Control = BoundControl(name, bind, min=min, max=max, choices=choices, where=where)
        else:
            control = Control(name, value, min=min, max=max, choices=choices, where=where)
        with self._emitter.lock:
            self._emitter.ledger.controls[name] = control
        return control

    def action(self, name: str, function: Callable[..., Any]) -> None:
        """Let clients call a function by name; it runs on this thread, at the next event.

        Raises:
            TypeError: It is no function.
            ValueError: The name is taken.
        """
        self._free(name, self._emitter.ledger.actions, "action")
        action = Action(name, function, where=declaring_line())
        with self._emitter.lock:
            self._emitter.ledger.actions[name] = action

    def function(self, name: str, function: Callable[..., Any]) -> None:
        """Let queries call a function of values by name: `sg.fn.name(b.x)`, in text `name(batch.x)`.

        Raises:
            TypeError: It is no function.
            ValueError: The name is taken, or no name.
        """
        from sightglass.query.functions import FUNCTIONS

        if not callable(function):
            raise TypeError(f"Expected a function as {name!r}, got {type(function).__name__}")
        if not name.isidentifier() or name.startswith("_") or name == "on":
            raise ValueError(f"Expected a plain name for a function, got {name!r}")
        self._free(name, {**self._functions, **FUNCTIONS}, "function")
        with self._emitter.lock:
            self._functions[name] = function

    @property
    def directory(self) -> Path:
        """Where its files go; made when the first is written, and final then."""
        return self._files.path

    @property
    def ended(self) -> bool:
        """Whether nothing is taken in any more."""
        return self._emitter.closed

    @property
    def stopping(self) -> bool:
        """Whether a client has asked the run to stop."""
        return self._emitter.ledger.stopping

    @property
    def history(self) -> list[CommandResult]:
        """The acts that were applied so far, the oldest first."""
        return list(self._emitter.ledger.history)

    # The end

    def flush(self, timeout_s: float = 5.0) -> None:
        """Wait until what rests on devices is settled, and what is to be kept is written.

        Raises:
            StorageError: Something could not be written.
        """
        self._emitter.flush(timeout_s)
        if self._io is not None and not self._closed:
            self._io.settle(timeout_s)
        if self._recorder is not None:
            self._recorder.flush(timeout_s)

    def close(self) -> None:
        """End the run: open groups are emitted, clients are told, files are closed. Calling it again does nothing.

        Raises:
            StorageError: Something that was to be kept could not be written.
        """
        if self._closed or self.disabled:
            return
        if self._figure_sink is not None:
            self._figure_sink.drain()
        if self._plotter is not None:
            self._plotter.close()
        self._emitter.close()
        if self._io is not None:
            self._io.close("the run has ended")
        try:
            if self._recorder is not None:
                self._recorder.close(CLOSE_S)
        finally:
            self._leave()

    def _leave(self) -> None:
        """Say that the run has ended, when all that it kept is written: whoever follows its files waits for that."""
        try:
            self._files.end(self._about_the_end)
        except OSError as error:
            warnings.warn(f"Cannot note the end of run {self.name!r}: {error}", RuntimeWarning, stacklevel=3)
        if self._registered is not None:
            discovery.unregister(self.id, self._registered)
        for file in (self.connection_file, self.viewer_file):
            if file is not None:
                file.unlink(missing_ok=True)
        self._closed = True  # what an interrupt cut short before is done again at the exit
        _live.discard(self)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is not None:
            self._state = "failed"
        try:
            self.close()
        except StorageError as error:
            if kind is None:
                raise
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)

    def __repr__(self) -> str:
        state = "disabled" if self.disabled else "ended" if self._emitter.closed else "live"
        return f"<Run {self.name!r} ({self.id}), {state}>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        from sightglass.views.surfaces.notebook import bundle_of_run

        # A card is a client, and clients stand above runs: the facade knows them all.
        return bundle_of_run(self, connect=lambda: import_module("sightglass").connect(self))

    # Wiring

    def _figures(self) -> RunSink:
        """Return what figures are given to that belong to this run."""
        if self._figure_sink is None:
            from sightglass.figures.sinks import RunSink

            self._figure_sink = RunSink(self.log, ended=lambda: self.ended, folder=self._files.open, name=self.name)
        return self._figure_sink

    def _open(self, listen: str | None) -> None:
        """Open what can be opened, and say what cannot."""
        ways = [(True, listen, "")]
        if listen is not None:
            ways += [(True, None, "from this machine only"), (False, listen, "over TCP only")]
        outer: ZmqListener | None = None
        reach, problem = "by no other process", ""
        for here, endpoint, how in ways:
            try:
                outer, reach = self._listen(endpoint, here=here), how
                break
            except (OSError, SightglassError) as error:
                problem = problem or str(error)
        if problem:
            message = f"Run {self.name!r} goes on, but can be reached {reach}: {problem}"
            warnings.warn(message, RuntimeWarning, stacklevel=4)
        self._write_connections(outer)
        both = Both(outer) if outer is not None else None
        self.memory = both.memory if both is not None else MemoryListener()
        self.reachable = outer is not None
        self._io = IoThread(both or self.memory, self._agent, clock=self._clock)
        self._emitter.wake = self._io.wake

    def _listen(self, listen: str | None, *, here: bool) -> ZmqListener:
        if not here:
            return ZmqListener(listen=listen)
        with contextlib.ExitStack() as undo:
            path = discovery.folder()
            discovery.hold(self.id, path)
            undo.callback(discovery.unregister, self.id, path)
            listener = ZmqListener(path=path / f"{self.id}.sock", listen=listen)
            undo.callback(listener.close)
            self._register(listener, path)
            undo.pop_all()
        return listener

    def _register(self, listener: ZmqListener, path: Path) -> None:
        address = listener.address
        assert address is not None
        keys = address.client
        discovery.register(
            discovery.LiveRun(
                name=self.name,
                id=self.id,
                pid=os.getpid(),
                host=socket.gethostname(),
                started=time.time(),
                endpoint=address.endpoint,
                directory=str(self.directory),
                server_key=address.server,
                client_public=keys.public if keys else "",
                client_secret=keys.secret if keys else "",
            ),
            path,
        )
        self._registered = path

    def _write_connections(self, listener: ZmqListener | None) -> None:
        if listener is None or listener.controller is None or listener.viewer is None:
            return
        try:
            self._files.open()
            controller, viewer = self.directory / "connection.json", self.directory / "connection-viewer.json"
            write_connection(controller, listener.controller, run=self.name, id=self.id)
            write_connection(viewer, listener.viewer, run=self.name, id=self.id)
        except OSError as error:
            message = f"Cannot write the connection files of run {self.name!r}: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=5)
            return
        self.connection_file, self.viewer_file = controller, viewer

    def _moved(self, path: Path) -> None:
        """Tell clients where the files are, after all."""
        self._agent.about["directory"] = str(path)

    def _about(self, **at_the_end: Any) -> RunFile:
        """Return what `run.json` says."""
        return RunFile(
            name=self.name, id=self.id, config=_plain(self.config), started=self._started, host=socket.gethostname(),
            pid=os.getpid(), rank=self._rank, **at_the_end,
        )  # fmt: skip

    def _about_the_end(self) -> RunFile:
        with self._emitter.lock:
            told = describe.run(self._agent, self._emitter, self._functions, self._clock)
        events = {name: event["n_events"] for name, event in told["events"].items()}
        return self._about(ended=self._clock.wall(), state=self._state, events=events, described=told)

    @staticmethod
    def _free(name: str, taken: Mapping[str, Any], what: str) -> None:
        if not isinstance(name, str) or not name:
            raise TypeError(f"Expected the name of a {what} as text, got {name!r}")
        if name in taken:
            where = getattr(taken[name], "where", "")
            raise ValueError(f"Expected a new name for a {what}, {name!r} is taken{f' in {where}' if where else ''}")

    def _abandon(self) -> None:
        """Become a no-op in a forked child, without touching the parent's locks, threads and sockets."""
        self.disabled = True
        self.memory = None
        if self._recorder is not None:
            self._recorder.abandon()
        self._emitter.abandon()
        self._idle = self._emitter.demand.idle


@dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """What packages need of a run that bring events of their own.

    Attributes:
        emitter: Where events come in.
        clock: What it reads the time from.
        functions: What queries may call besides the library's own, by name.
        refuse_variants: Why compiled steps cannot be asked in this process; empty if they can.
        jax_attach: Whether clients may ask for what any jitted function logs: "global" or `None`.
    """

    emitter: Emitter
    clock: SystemClock
    functions: Mapping[str, Callable[..., Any]]
    refuse_variants: str
    jax_attach: str | None


def wiring(run: Run) -> Wiring:
    """Return a run's parts."""
    return Wiring(
        emitter=run._emitter,
        clock=run._clock,
        functions=run._functions,
        refuse_variants=run._refuse_variants,
        jax_attach=run._jax_attach,
    )


def current() -> Run | None:
    """Return the newest run that is live in this process, or `None`."""
    while _newest:
        run = _newest[-1]()
        if run is not None and run in _live:
            return run
        _newest.pop()
    return None


def _current_figures() -> RunSink | None:
    """Return what figures are given to that belong to the newest run."""
    run = current()
    return None if run is None else run._figures()


def when_begun(function: Callable[[Run], object]) -> None:
    """Call a function with the next run that begins."""
    _begun.append(function)


def init(
    name: str,
    *,
    dir: str | os.PathLike[str] = "runs",
    config: Mapping[str, Any] | None = None,
    record: Sequence[Query | str] = (),
    listen: str | None = None,
    budget: float | None = 0.05,
    limits: Limits | None = None,
    ranks: Ranks | None = None,
    files: Files | None = None,
    jax_attach: Literal["global"] | None = None,
    mode: Mode | None = None,
) -> Run:
    """Begin a run. A network problem never stops the training: it is reported as a warning.

    Args:
        name: The run's name for people; several live runs may share it.
        dir: The folder of run directories; this run's is `{dir}/{name}-{date}-{time}`.
        config: The run's configuration, shown to clients.
        record: Queries whose records are written to the run directory from the start, such as "batch.loss".
        listen: A TCP endpoint to open, encrypted, such as "tcp://0.0.0.0:0". Two connection files with its keys are
            written to the run directory.
        budget: The share of the run's time that queries may take before they are thinned; `None` for no limit.
        limits: Limits that are rarely changed, see `Limits`.
        ranks: For a distributed program: how its processes agree on commands, see `Ranks`.
        files: Where to write, if not to a new directory under `dir`, see `Files`.
        jax_attach: "global" lets clients query the logs of every jitted JAX function, as the event "jax", without
            `sightglass.jax.live` around it. The first query recompiles all jitted functions; the client must confirm.
        mode: "disabled" makes every call a no-op; by default the environment's `SIGHTGLASS_MODE`, else "live".

    Returns:
        The run. Close it with `Run.close` or a `with` block; otherwise it closes when the program exits.

    Raises:
        TypeError: `name`, `record`, `limits`, `ranks` or `files` has the wrong type.
        ValueError: `mode`, `budget`, `listen` or `jax_attach` has an invalid value.
        QueryError: A query in `record` is invalid.

    >>> with init("example", mode="disabled") as run:
    ...     run.observe("batch", loss=0.5)
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"Expected the run's name as text, got {name!r}")
    mode = mode or os.environ.get("SIGHTGLASS_MODE") or "live"  # type: ignore[assignment]
    if mode not in MODES:
        raise ValueError(f"Expected mode 'live' or 'disabled', got {mode!r}")
    if budget is not None and not 0 < budget <= 1:
        raise ValueError(f"Expected a budget above 0 and up to 1, or None, got {budget!r}")
    if listen is not None and not listen.startswith("tcp://"):
        raise ValueError(f"Expected an endpoint such as 'tcp://0.0.0.0:0', got {listen!r}")
    if jax_attach not in (None, "global"):
        raise ValueError(f"Expected jax_attach='global' or None, got {jax_attach!r}")
    if isinstance(record, str):
        raise TypeError(f"Expected a list of queries to record, got text: record=[{record!r}]")
    for option, kind in ((limits, Limits), (ranks, Ranks), (files, Files)):
        if option is not None and not isinstance(option, kind):
            raise TypeError(f"Expected sg.{kind.__name__}(…) or None, got {type(option).__name__} {option!r:.100}")
    directory = choose(Path(dir), name) if files is None else Path(files.into)
    return Run(name, directory=directory, shared=files is not None, record=record, config=config or {}, listen=listen,
               budget=budget, limits=limits or Limits(), agree=None if ranks is None else ranks.agree,
               jax_attach=jax_attach, disabled=mode == "disabled")  # fmt: skip


def _plain(config: Mapping[str, Any]) -> dict[str, Any]:
    """Make a config that travels: what is no number, text or container of these is shown by its repr."""
    from sightglass.core.codec import encode

    plain = {}
    for key, value in config.items():
        try:
            encode(value)
            plain[str(key)] = value
        except SightglassError:
            plain[str(key)] = repr(value)
    return plain


def _close_all() -> None:
    for run in list(_live):
        try:
            run.close()
        except StorageError as error:
            warnings.warn(str(error), RuntimeWarning, stacklevel=1)


def _abandon_all() -> None:
    for run in list(_live):
        run._abandon()
    _live.clear()


current_run.announce(_current_figures)
atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
