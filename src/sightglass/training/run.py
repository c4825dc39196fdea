"""A run, as the training program uses it; how an exception ends it stands at the end."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sightglass.core.columns import Record
from sightglass.core.description import Ending, HistoryEntry, StackFrame
from sightglass.core.errors import SightglassError, StorageError, say_elsewhere, warn, warn_user
from sightglass.core.process import current_run
from sightglass.core.process.files import n_bytes_of, sha256_of
from sightglass.core.process.unpatched import threading
from sightglass.core.program_values.guarded import message, text
from sightglass.core.redact import redact_text
from sightglass.query.condition import as_condition, holds, said
from sightglass.query.query import Query
from sightglass.storage.run_file import State

from .controls import Action, ApplyThread, BoundControl, Control, Number, Scalar, declaring_line
from .run_figures import RunFigures
from .serving import describe
from .serving.alerts import check_alert
from .wiring import RunSettings, Wiring

if TYPE_CHECKING:
    from sightglass.alerts.alert import Level
    from sightglass.figures.render_job import OnFull


FIGURES_OF: Final = ("matplotlib.figure", "PIL.Image", "plotly.basedatatypes")
"""The modules whose figures and images `log` takes; nobody has one of them who has not imported its module."""

ELSEWHERE: Final = {
    "finish": "close()", "end": "close()", "end_run": "close()", "stop": "close()", "should_stop": "stopping",
    "log_metric": "log({name: value}, step=…)", "log_metrics": "log({name: value}, step=…)",
    "add_scalar": "log({name: value}, step=…)", "event": "observe(…)", "emit": "observe(…)", "path": "directory",
    "dir": "directory", "commands": "history", "poll": "apply()",
    "stream": "sightglass.connect(run).stream(…)", "describe": "sightglass.connect(run).describe()",
    "watch": "sightglass.torch.watch(model, run)",
}  # fmt: skip
"""What people call things elsewhere, by the names here."""


class NamesElsewhere:
    """Has the attributes `ELSEWHERE`."""


say_elsewhere(NamesElsewhere, "A run", ELSEWHERE)


class Run(NamesElsewhere, current_run.Handle):
    """A running program that clients can watch. Made by `sightglass.init`.

    Attributes:
        name: Its name.
        id: Its id, 12 hexadecimal digits.
        config: Its configuration.
        connection_file: The file with the address and keys of a controller, if `listen` was set.
        viewer_file: The same for viewers.
        reachable: Whether other processes can connect.
        thread: The thread that called `init`; commands are applied there, if not declared otherwise.
        disabled: Whether every call is a no-op.
        memory: The listener for clients in this process; `None` if the run is disabled.
    """

    def __init__(self, wiring: Wiring) -> None:
        self.name = wiring.settings.name
        self.id = wiring.id
        self.config = wiring.settings.config
        self.disabled = wiring.settings.disabled
        self.thread = threading.get_ident()
        endpoints = wiring.endpoints
        self.connection_file = None if endpoints is None else endpoints.connection_file
        self.viewer_file = None if endpoints is None else endpoints.viewer_file
        self.memory = None if endpoints is None else endpoints.memory
        self.reachable = endpoints is not None and endpoints.reachable
        self._wiring = wiring
        self._telemetry = wiring.telemetry
        self._events = wiring.telemetry.events
        self._idle = wiring.telemetry.subscriptions.idle
        self._figures = RunFigures(self.name, log=self.log, ended=lambda: self.ended, folder=wiring.files.open)

    # Events

    def observe(self, event: str, /, **observables: object) -> None:
        """Announce an event, and offer values by reference. Nothing is computed or copied unless a query reads it.

        Args:
            event: The event's name, such as "batch".
            **observables: Any values, under any names except two: `step` is the step of the records, a number; with
                `snapshot=True` a copy of the observables is kept, for queries that come later.

        Raises:
            TypeError: `event` is not a string.
            ValueError: The name is empty, or another source already produces events of this name, such as `log`.
        """
        try:
            count = self._idle.get(event)
        except TypeError:  # not hashable, such as a dict: this refuses it
            self._events.take(event, observables)
            return
        if count is not None and "snapshot" not in observables:
            count()
        else:
            self._events.observe(event, observables)

    def log(self, data: Mapping[str, Any], *rest: object, step: float | None = None, **steps: float) -> None:
        """Record values. They are written to the run directory, and can be queried as the event `log`.

        Args:
            data: Names to values: numbers, texts, arrays, `Tensor`, `Histogram`, `Image`, `Images`, `Audio`, `Table`,
                `Figure`, `Text`, Pillow's images, Plotly's figures, Matplotlib's figures, which are drawn here; nested
                mappings become names with slashes.
            *rest: Nothing: for those who write `log("loss", 3.0)`, which raises and says what to write.
            step: The primary step; by default a counter.
            **steps: Further step tracks by name.

        Raises:
            TypeError: `data` is not a mapping, a name in it is not a string, or a step is not a number.
        """
        kind: type = type(data)
        if rest or kind in (str, int, float):
            raise _misused_log(data, *rest)
        if self.ended:
            self._wiring.warn_of_late_values()
        else:
            if any(map(sys.modules.__contains__, FIGURES_OF)):
                from sightglass.views.frames import encode_figures

                data = encode_figures(data)
            self._events.log(data, step, steps)

    def figure(
        self,
        name: str,
        fn: Callable[..., Any],
        /,
        *arrays: object,
        step: float | None = None,
        on_full: OnFull = "replace",
    ) -> None:
        """Draw a figure in a separate process and log it; never wait for others. Failures are reported as warnings.

        Args:
            name: The figure's name.
            fn: Called with the arrays in the other process; returns what `Plotter` takes: a figure of Matplotlib or
                Plotly, a picture, frames, or several of them by name.
            *arrays: The data; they are copied.
            step: The step; by default a counter of this name's figures.
            on_full: What to do when too many wait: "replace" the waiting one of the same name, "drop_oldest",
                "drop_new", or "spill" them to a file, to draw all. What is dropped is counted and warned of.

        Raises:
            TypeError: `name` is not a string, `fn` is not callable, or `step` is not a number.
            ValueError: UTF-8 cannot encode `name`, or `step` is beyond 64 bits.
            UnknownNameError: `on_full` is unknown.
        """
        if not isinstance(name, str) or not name:
            raise TypeError(f"Expected the name of a figure as text, got {name!r}")
        if not self.ended:
            self._figures.plot(name, fn, *arrays, step=step, on_full=on_full)

    def file(self, path: str | os.PathLike[str], *, step: float | None = None, hash: bool = False) -> None:
        """Record that the run wrote or read a file, such as a checkpoint or a data set: where it is, not its bytes.

        `file/path`, `file/n_bytes` and `file/sha256` are logged, and `sightglass which FILE` finds the run.

        Args:
            path: The file, or a folder, of which all files count.
            step: The step; by default a counter.
            hash: Whether to record its SHA-256, by which it is found in other places, too. It is read now, here.

        Raises:
            OSError: It cannot be read.
        """
        if not self.disabled:
            at = Path(os.path.abspath(path))
            found = {"path": str(at), "n_bytes": n_bytes_of(at), "sha256": sha256_of(at) if hash else ""}
            self.log({"file": found}, step=step)

    def end_group(self, event: str) -> None:
        """Close the groups of an event here: reducers without a named window emit their records."""
        if not self.ended:
            self._events.end_group(event)

    # What clients may change and call

    def control(
        self,
        name: str,
        value: Scalar | None = None,
        *,
        min: Number | None = None,
        max: Number | None = None,
        choices: Iterable[Scalar] | None = None,
        bind: tuple[object, str] | None = None,
        thread: ApplyThread = "init",
    ) -> Control:
        """Declare a value that clients may change. Read `control.value` where you use it.

        A control that is declared again replaces the one of its name.

        Args:
            name: The name that clients use.
            value: The initial value: a bool, int, float or str. Omit it with `bind`.
            min: The smallest value allowed.
            max: The largest value allowed.
            choices: The values allowed.
            bind: An (object, attribute) or a (mapping, key) to control, instead of a separate value.
            thread: Whose next event sets it: that of the thread that called `init`, or of "any" thread.

        Raises:
            TypeError: The value has another type.
            CommandError: The value is out of its bounds.
            ValueError: `thread` is unknown.
        """
        controls, where = self._telemetry.commands.queue.controls, declaring_line()
        _check_name(name, controls, "control", where)
        if bind is not None:
            control: Control = BoundControl(name, bind, min=min, max=max, choices=choices, thread=thread, where=where)
        else:
            control = Control(name, value, min=min, max=max, choices=choices, thread=thread, where=where)
        with self._telemetry.lock.mutex:
            controls[name] = control
        return control

    def action(self, name: str, function: Callable[..., Any], *, thread: ApplyThread = "init") -> None:
        """Let clients call a function by name, in place of an action that had it.

        Args:
            name: The name that clients use.
            function: The function. An `async def` function is called by `apply_async` only.
            thread: At whose next event it is called, and where: of the thread that called `init`, or of "any" thread.

        Raises:
            TypeError: `function` is not callable.
            ValueError: `thread` is unknown.
        """
        actions, where = self._telemetry.commands.queue.actions, declaring_line()
        _check_name(name, actions, "action", where)
        action = Action(name, function, thread=thread, where=where)
        with self._telemetry.lock.mutex:
            actions[name] = action

    def function(self, name: str, function: Callable[..., Any], *, viewers: bool = False) -> None:
        """Let queries call a function by name: `sg.fn.name(b.x)`, in text `name(batch.x)`.

        A call cannot be interrupted. A function that takes longer than `Limits.max_event_s` for a call other than its
        first is refused from then on.

        Args:
            name: The name that queries call.
            function: The function. It gets values, on the training thread.
            viewers: Whether clients with a viewer's key may call it, too.

        Raises:
            TypeError: `function` is not callable.
            ValueError: The name is one of the library's own functions, or is not an identifier.
        """
        from sightglass.query.functions import FUNCTIONS

        if not callable(function):
            raise TypeError(f"Expected a function as {name!r}, got {type(function).__name__}")
        if not name.isidentifier() or name.startswith("_") or name == "on":
            raise ValueError(f"Expected a plain name for a function, got {name!r}")
        _check_name(name, {}, "function", "")
        if name in FUNCTIONS:
            raise ValueError(f"Expected a name for a function that is not one of sightglass's own, got {name!r}")
        with self._telemetry.lock.mutex:
            self._wiring.lend(name, function, viewers=viewers)

    def apply(self, *, step: float | None = None) -> None:
        """Apply the commands of clients that wait, here and on this thread; hold it while the run is paused.

        For programs whose events come from other threads, or seldom. In the history these commands have the event
        "apply".

        Args:
            step: The step at which they take effect; by default the number of calls that applied commands.

        Raises:
            RuntimeError: This is not the thread that called `init`, and several ranks agree on commands.
        """
        if not self.ended:
            self._telemetry.commands.apply(step)

    async def apply_async(self, *, step: float | None = None) -> None:
        """Apply the commands of clients as `apply` does, in this event loop, and await actions that are `async def`.

        While the run is paused, this task waits here, and the others continue.

        Raises:
            RuntimeError: Several ranks agree on commands.
        """
        import asyncio  # slow to import, and loaded already where this runs

        if not self.ended:
            await self._telemetry.commands.apply_async(step, sleep=asyncio.sleep)

    # Telling people

    def alert(
        self,
        title: str,
        text: str = "",
        *,
        level: Level = "warning",
        wait_s: float = 0.0,
        step: float | None = None,
    ) -> None:
        """Tell people something: it enters the run's history, and goes where `SIGHTGLASS_ALERT_URL` says. Never waits.

        With that variable in the environment, the run itself tells of its failure, of the first NaN in what is logged
        or streamed, and of a full disk.

        Args:
            title: What it is about, in a line.
            text: The details.
            level: How urgent it is: "info", "warning" or "error".
            wait_s: How many seconds there are at least between two alerts of this title; those in between are left out.
            step: The step of the training.

        Raises:
            TypeError: `title` or `text` is not a text, or `step` is not a number.
            ValueError: `level` is unknown, or `wait_s` is negative.
        """
        if not self.ended:
            check_alert(title, text, level, wait_s, step)
            assert self._wiring.alerts is not None
            self._wiring.alerts.raise_one(title, text, level, wait_s, step)

    def alert_when(
        self,
        query: Query | str,
        title: str = "",
        *,
        level: Level = "warning",
        wait_s: float = 60.0,
    ) -> None:
        """Raise an alert whenever a condition holds, such as `"batch.loss > 10"`.

        It is evaluated as those of clients are: within the run's budget, which may leave out events.

        Args:
            query: A condition. Of a query that ends in `where`, every record raises one.
            title: The title; by default the condition.
            level: See `alert`.
            wait_s: See `alert`.

        Raises:
            QueryError: The query is invalid.
            ValueError: `level` is unknown, or `wait_s` is negative.
        """
        if self.ended:
            return
        name = title or str(query)
        check_alert(name, "", level, wait_s, None)
        stream = current_run.connect(self).stream(as_condition(query))

        def tell(record: Record) -> None:
            if holds(record):
                self.alert(name, said(query, record.value[1]), level=level, wait_s=wait_s, step=record.step)

        assert self._wiring.alerts is not None
        self._wiring.alerts.streams.append(stream.subscribe(tell))

    @property
    def directory(self) -> Path:
        """The run directory. It is made, and its name final, when the first file is written."""
        return self._wiring.files.path

    @property
    def ended(self) -> bool:
        """Whether the run has ended; events are then ignored."""
        return self._events.closed

    @property
    def stopping(self) -> bool:
        """Whether a client has asked the run to stop."""
        return self._telemetry.commands.queue.read_stopping()

    @property
    def history(self) -> list[HistoryEntry]:
        """The commands that were applied so far, the oldest first, as clients have them."""
        return [describe.result(entry) for entry in list(self._telemetry.commands.queue.history)]

    # The end

    def flush(self, timeout_s: float = 5.0) -> None:
        """Wait until values on devices are evaluated and records are written.

        Raises:
            StorageError: A record could not be written.
        """
        self._wiring.flush(timeout_s)

    def close(self) -> None:
        """End the run: emit what is open in windows, tell the clients, close the files. A second call does nothing.

        Raises:
            StorageError: A record could not be written.
        """
        if not self._wiring.closed:
            try:
                self._figures.close()
            finally:
                self._wiring.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None = None, *rest: object) -> None:
        if kind is not None:
            self._ends_by(kind, error)
        try:
            self.close()
        except StorageError as lost:
            if kind is None:
                raise
            warn(str(lost))

    def _ends_by(self, kind: type[BaseException], error: BaseException | None) -> None:
        """Note that an exception ends the run, or the program."""
        if self._wiring.state == "ended" and (state := end_state(kind, error)) != "ended":
            self._wiring.ends(state, ending_by(kind, error))

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in ELSEWHERE]

    def __repr__(self) -> str:
        state = "disabled" if self.disabled else "ended" if self.ended else "live"
        return f"<Run {self.name!r} ({self.id}), {state}>"

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        from sightglass.views.surfaces.notebook import bundle_of_run

        return bundle_of_run(self, connect=lambda: current_run.connect(self))

    def _elsewhere(self) -> tuple[Any, ...]:
        return MuteRun, self.name, self.id, self._wiring.shown, self.directory

    def _abandon(self) -> None:
        """Become a no-op in a forked child."""
        self.disabled = True
        self.memory = None
        self._wiring.abandon()
        self._idle = self._telemetry.subscriptions.idle


class MuteRun(Run):
    """What a run becomes in another process, in an object that is sent there: it knows the run, and does nothing."""

    def __init__(self, name: str, id: str, config: Mapping[str, Any], directory: Path) -> None:
        wiring = Wiring(RunSettings(name=name, directory=directory, config=config, disabled=True))
        wiring.id = id
        super().__init__(wiring)

    def observe(self, event: str, /, **observables: object) -> None:
        """Warn once in this process, and do nothing."""
        _warn_of_mute(self.name)
        super().observe(event, **observables)

    def log(self, data: Mapping[str, Any], *rest: object, step: float | None = None, **steps: float) -> None:
        """Warn once in this process, and do nothing."""
        _warn_of_mute(self.name)
        super().log(data, *rest, step=step, **steps)


_warned: list[str] = []


def _warn_of_mute(name: str) -> None:
    if not _warned:
        _warned.append(name)
        warn(
            f"Run {name!r} lives in another process: what this one observes and logs is not recorded. Return it to that"
            " process, or begin a run here with sightglass.init"
        )


def _misused_log(data: object, *rest: object) -> TypeError:
    if issubclass(type(data), Mapping):
        return TypeError(f"Expected step=… as a keyword of log, got {text(rest[0], 100)} behind the data")
    given = ", ".join(text(each, 100) for each in (data, *rest))
    return TypeError(f"Expected a mapping of names to values, such as log({{'loss': 0.5}}), got log({given})")


def _check_name(name: str, known: Mapping[str, Any], what: str, where: str) -> None:
    """Check a name, and warn if it was declared at another line; in a notebook, where cells run again, it may be.

    Raises:
        TypeError: It is not a text, or empty.
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f"Expected the name of a {what} as text, got {name!r}")
    before = known[name].where if name in known else where
    if before != where and all(os.path.exists(line.rpartition(":")[0]) for line in (before, where)):
        warn_user(f"The {what} {name!r} replaces the one that {before} declares")


def wiring(run: Run) -> Wiring:
    """Return the parts of a run, for packages that add events of their own."""
    return run._wiring


def end_state(kind: type[BaseException], error: BaseException | None) -> State:
    """Return how a run ended that an exception ended: Ctrl-C is somebody's decision, `sys.exit()` the program's."""
    if issubclass(kind, KeyboardInterrupt):
        return "terminated"
    if issubclass(kind, GeneratorExit) or (isinstance(error, SystemExit) and not error.code):
        return "ended"
    return "failed"


MAX_FRAMES: Final = 20
MAX_MESSAGE: Final = 1_000  # characters


def ending_by(kind: type[BaseException], error: BaseException | None) -> Ending:
    """Return what an exception says about the end of a run: its type, its message without secrets, its last frames."""
    said = kind.__name__ if error is None else message(error)
    if isinstance(error, SightglassError):
        said = f"{kind.__name__}: {said}"
    frames = []
    for frame, line in traceback.walk_tb(None if error is None else error.__traceback__):
        frames.append(StackFrame(file=frame.f_code.co_filename, line=line, function=frame.f_code.co_qualname))
    return Ending(error=redact_text(said)[:MAX_MESSAGE], frames=(*frames[-MAX_FRAMES:],))


def uncaught() -> BaseException | None:
    """Return the exception that ends this program, which Python has printed; `None` where an earlier one may be meant.

    At a prompt and in a notebook, it is that of the last line that failed, hours ago perhaps.
    """
    if hasattr(sys, "ps1") or sys.flags.interactive or "IPython" in sys.modules:
        return None
    error = getattr(sys, "last_value", None)
    return error if isinstance(error, BaseException) else None
