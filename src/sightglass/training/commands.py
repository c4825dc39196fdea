"""Commands: what clients do to the run. Each waits here until the program applies it, once.

`CommandQueue` is plain state: commands go in, `due` takes out those whose event has come, `apply` applies one and adds
the result to `history`. `command_runner` decides when, and on which thread.

In a program of several processes all ranks apply the commands of rank 0 at the same event: see `agreement`. Where the
program supplies a broadcast (`agree`), rank 0 sends its commands at each event, and each rank applies what it receives.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import msgspec

from sightglass.core import codec
from sightglass.core.description import AlertsInfo, arguments_of
from sightglass.core.errors import CommandError, unknown
from sightglass.core.process.ranks import Agree
from sightglass.core.process.unpatched import threading
from sightglass.core.program_values.copier import sendable
from sightglass.core.program_values.guarded import FAILURES, message
from sightglass.core.values import n_bytes

from .controls import Action, Control, attribute_path
from .evaluation.compiled import Plans

MAX_PENDING: Final = 1_000  # more than any person sends; a client in a loop is refused before memory fills
MAX_HISTORY: Final = 10_000  # a few MB of numbers; a command per second for hours
MAX_HISTORY_BYTES: Final = 16 * 2**20  # of arguments and results, which may be arrays, or the state of a model
NOT_READ: Final = "The program has not looked at run.stopping so far; unless it does, it goes on"

Kind = Literal["set", "call", "pause", "resume", "stop", "alert"]
"""An alert waits for nothing: it enters the history at once."""

Place = Literal["event", "elsewhere", "apply", "await"]
"""Where commands are applied: at an event of the thread that called `init` or of another one, in `Run.apply`, or in
`Run.apply_async`."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One command of a client.

    Attributes:
        id: The run's number for it.
        client: The id of the client that sent it.
        kind: What to do.
        name: The control or action.
        value: The control's new value, or the action's arguments; see `core.description.arguments_of`.
        at: The event to wait for; `None` for the next one.
        hold: Whether a pause outlives the lease of its client.
        by: The client's name; empty for a command of the run itself.
    """

    id: int
    client: str
    kind: Kind
    name: str = ""
    value: Any = None
    at: str | None = None
    hold: bool = False
    by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """The result of a command, as an entry of a run's history.

    Attributes:
        command: The command.
        event: The event at which it was applied.
        index: The event's number.
        step: The event's step.
        wall_time: When it was applied, in seconds since the Unix epoch.
        old: A control's value before.
        result: A control's value after, or a copy of what an action returned; other objects as text.
        error: Why it failed; empty if it succeeded.
        note: What the client should know, such as that a scheduler overwrites the value.
    """

    command: Command
    event: str
    index: int
    step: float
    wall_time: float
    old: Any = None
    result: Any = None
    error: str = ""
    note: str = ""


class CommandQueue:
    """The controls and actions of a run, the commands that wait for an event, and the results of earlier ones.

    Attributes:
        controls: The controls, by name.
        actions: The actions, by name.
        sets_attributes: Whether clients may set numbers inside offered objects.
        pending: The commands that wait, in the order in which they arrived.
        history: The results, the oldest first.
        alerts: The alerts among them, and those that were dropped from it.
        stopping: Whether a client has asked the run to stop.
        stopped_by: The name of that client.
        paused_by: The command that pauses the run; `None` if it is not paused.
        on_applied: Called with each result, on the thread that applied the command.
    """

    def __init__(self) -> None:
        self.controls: dict[str, Control] = {}
        self.actions: dict[str, Action] = {}
        self.sets_attributes = False
        self.pending: list[Command] = []
        self.history: deque[CommandResult] = deque()
        self.alerts = AlertsInfo()
        self.stopping = False
        self.stopped_by = ""
        self._stopping_is_read = False
        self.paused_by: Command | None = None
        self.on_applied: Callable[[CommandResult], None] = lambda entry: None
        self._sizes: deque[int] = deque()
        self._n_bytes = 0
        self._lock = threading.RLock()  # an attribute that a control sets may announce an event, which sets another

    def check(self, command: Command) -> None:
        """Refuse a command that cannot succeed.

        Raises:
            CommandError: The name, the type or the bounds are wrong, or too many commands wait already.
        """
        if len(self.pending) >= MAX_PENDING:
            raise CommandError(f"Expected at most {MAX_PENDING} commands to wait for an event, got more")
        if command.kind == "set":
            if command.name in self.controls:
                self.controls[command.name].checked(command.value)
            elif not (self.sets_attributes and "." in command.name):
                raise CommandError(unknown("control", command.name, self.controls) + self._hint(command.name))
        elif command.kind == "call":
            if command.name not in self.actions:
                raise CommandError(unknown("action", command.name, self.actions))
            self.actions[command.name].check(*arguments_of(command.value))

    def _hint(self, name: str) -> str:
        if self.sets_attributes or "." not in name:
            return ""
        return " To let clients set attributes of offered objects: sg.init(…, controls='attributes')."

    def add(self, command: Command) -> None:
        """Let a command wait for its event. Errors as in `check`."""
        self.check(command)
        self.pending.append(command)

    def is_due(self, command: Command, event: str | None, place: Place = "event") -> bool:
        """Return whether a command can be applied at an event, in a place."""
        action = self.actions[command.name] if command.kind == "call" else None
        if command.at not in (None, event):
            return False
        if self.is_attribute(command):
            return place in ("event", "elsewhere")
        if action is not None and action.awaits:
            return place == "await"
        return place != "elsewhere" or self.anywhere(command)

    def anywhere(self, command: Command) -> bool:
        """Return whether an event of any thread applies a command. `stop` only sets a flag, so every thread may."""
        match command.kind:
            case "set":
                # The thread that offers an object is the one that uses it.
                return self.is_attribute(command) or self.controls[command.name].thread == "any"
            case "call":
                return self.actions[command.name].thread == "any"
            case _:
                return command.kind == "stop"

    def is_attribute(self, command: Command) -> bool:
        """Return whether a command sets an attribute of an offered object, which only its own event offers."""
        return command.kind == "set" and command.name not in self.controls

    def due(self, event: str | None, place: Place = "event") -> list[Command]:
        """Take out the commands to apply at this event, in their order; `None` for those that wait for any event."""
        due: list[Command] = []
        rest: list[Command] = []
        for command in self.pending:
            (due if self.is_due(command, event, place) else rest).append(command)
        if due:
            self.pending = rest
        return due

    def next_due(self, event: str) -> Command | None:
        """Take out the first command that `Run.apply_async` applies; `None` if there is none."""
        for i, command in enumerate(self.pending):
            if self.is_due(command, event, "await"):
                self.pending = [*self.pending[:i], *self.pending[i + 1 :]]
                return command
        return None

    def apply(
        self,
        command: Command,
        *,
        event: str,
        index: int,
        step: float,
        wall_time: float,
        observables: Mapping[str, Any] | None = None,
    ) -> CommandResult:
        """Apply a command, at an event with these observables. If it fails, the error is in the result."""
        entry = CommandResult(command=command, event=event, index=index, step=step, wall_time=wall_time)
        try:
            old, result = self._carry_out(command, observables or {})
            if inspect.iscoroutine(result):
                result.close()
                raise CommandError(f"call {command.name!r} returned a coroutine. Declare an `async def` function")
            entry = replace(entry, old=old, result=sendable(result).value, note=self._note(command))
        except FAILURES as failure:
            entry = replace(entry, error=_problem(command, failure))
        self.remember(entry)
        return entry

    def refuse(self, command: Command, why: str, *, event: str, index: int, step: float, wall_time: float) -> None:
        """Refuse a command that was taken out of those that wait."""
        entry = CommandResult(command=command, event=event, index=index, step=step, wall_time=wall_time, error=why)
        self.remember(entry)

    async def apply_async(self, command: Command, *, event: str, index: int, step: float, wall_time: float) -> None:
        """Apply a command, and await what its action returns. If it fails, the error is in the result."""
        entry = CommandResult(
            command=command, event=event, index=index, step=step, wall_time=wall_time,
            error=f"{command.kind} {command.name!r} was cancelled",
        )  # fmt: skip
        try:
            old, result = self._carry_out(command, {})
            if inspect.isawaitable(result):
                result = await result
            entry = replace(entry, old=old, result=sendable(result).value, error="")
        except FAILURES as failure:
            entry = replace(entry, error=_problem(command, failure))
        finally:
            self.remember(entry)

    def _carry_out(self, command: Command, observables: Mapping[str, Any]) -> tuple[Any, Any]:
        """Return a control's old and new value, or `None` and what an action returned."""
        match command.kind:
            case "set":
                with self._lock:  # two threads that set one control would both report the same old value
                    if self.is_attribute(command):
                        return attribute_path(command.name).set(observables, command.value)
                    return self.controls[command.name].set(command.value)
            case "call":
                args, keywords = arguments_of(command.value)
                return None, self.actions[command.name].function(*args, **keywords)
            case "pause":
                self.paused_by = command
            case "resume":
                self.paused_by = None
            case "stop":
                self.stopping, self.paused_by, self.stopped_by = True, None, command.by
        return None, None

    def _note(self, command: Command) -> str:
        """Return what the client should know about a command that was applied."""
        if command.kind == "stop" and not self._stopping_is_read:
            return NOT_READ
        control = self.controls.get(command.name) if command.kind == "set" else None
        return "" if control is None else control.note()

    def read_stopping(self) -> bool:
        """Return whether the program should stop, for the program itself: one that never asks never stops."""
        self._stopping_is_read = True
        return self.stopping

    def remember(self, entry: CommandResult) -> None:
        """Add an entry to the history, and drop the oldest if it is too long or holds too many bytes; report it."""
        size = n_bytes(entry.command.value) + n_bytes(entry.result)
        with self._lock:
            self.history.append(entry)
            self._sizes.append(size)
            self._n_bytes += size
            if entry.command.kind == "alert":
                self.alerts = AlertsInfo(
                    n=self.alerts.n + 1, title=entry.command.name, level=entry.note, wall_time=entry.wall_time
                )
            while len(self.history) > MAX_HISTORY or (self._n_bytes > MAX_HISTORY_BYTES and len(self.history) > 1):
                self.history.popleft()
                self._n_bytes -= self._sizes.popleft()
        self.on_applied(entry)

    def release(self, client: str, proposed: Sequence[Command] = ()) -> bool:
        """End the pause of a client that is gone, unless it holds; return whether one is in force, or `proposed`.

        A pause that still waits is dropped. One in force ends by a command, so that all processes of a program resume
        at the same event.
        """
        self.pending = [command for command in self.pending if not _is_pause_of(client, command)]
        if not any(_is_pause_of(client, one) for one in (self.paused_by, *proposed) if one is not None):
            return False
        self.pending.append(Command(id=0, client=client, kind="resume"))
        return True


def _problem(command: Command, failure: BaseException) -> str:
    if isinstance(failure, CommandError):
        return str(failure)
    return f"{command.kind} {command.name!r} failed: {message(failure)}"


def _is_pause_of(client: str, command: Command) -> bool:
    return command.kind == "pause" and command.client == client and not command.hold


def agreed(commands: list[Command], plans: Mapping[str, Any], agree: Agree) -> tuple[list[Command], Plans]:
    """Return the commands and plans of rank 0, by the program's own broadcast."""
    received = agree(msgspec.msgpack.encode(([pack(command) for command in commands], plans)))
    packed, plans_of_all = msgspec.msgpack.decode(received, type=tuple[list[Packed], Plans])
    return [unpack(*one) for one in packed], plans_of_all


Packed = tuple[Command, bytes, list[bytes]]


def pack(command: Command) -> Packed:
    """Separate the value from a command, and encode it.

    Raises:
        UnsendableError: The value cannot be serialised.
    """
    blob, buffers = codec.encode(command.value)
    return msgspec.structs.replace(command, value=None), blob, [bytes(buffer) for buffer in buffers]


def unpack(command: Command, blob: bytes, buffers: list[bytes]) -> Command:
    """Put the value back into a command."""
    return msgspec.structs.replace(command, value=codec.decode(blob, buffers))


# In a program of several ranks: what all of them apply at one event. `agreement` brings it about, on its own thread.

OPEN_S: Final = 0.02  # between two looks while a decision is open: at an event that has come, the training waits for it
HOLD_S: Final = 3.0  # how long the training may wait at the event for a decision
GIVE_UP_S: Final = 10.0  # how long the store may be silent after that: from then on the rank is on its own


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """What all ranks apply at one event.

    Attributes:
        event: The event's name.
        index: Its number: the first event with this number or a higher one.
        commands: The commands, packed.
        plans: What compiled steps answer from then on.
    """

    event: str
    index: int
    commands: list[Packed] = []
    plans: Plans = {}

    def is_due(self, event: str, index: int) -> bool:
        """Return whether it is to be applied at an event."""
        return self.event == event and self.index <= index


class AgreedCommands:
    """What this rank applies together with the others, and the event at which it waits for their decision.

    All of it changes under the run's lock.

    Attributes:
        open: The proposal that is not decided; `None` if there is none.
        confirmed: Whether this rank has promised not to pass its event before the decision.
        proposed: The commands that this rank has proposed.
        agreed: What was decided and is not applied yet.
        n_waits: How many times the training thread has waited `OPEN_S` for the decision.
        problem: Why ranks can no longer agree; empty if they can.
        lack: Why they cannot yet; empty if they can, or if that is not known yet.
        wake: Has commands that wait proposed at once.
        lose: Called with the reason when the decision does not come.
        leave: Ends the agreement, and returns the commands that this rank has not reached.
    """

    def __init__(self, changed: threading.Condition) -> None:
        """Begin without proposals; `changed` is the condition of the run's lock, notified when something changes."""
        self.open: Proposal | None = None
        self.confirmed = False
        self.proposed: list[Command] = []
        self.agreed: list[Proposal] = []
        self.n_waits = 0
        self.problem = self.lack = ""
        self.wake: Callable[[], None] = lambda: None
        self.lose: Callable[[str], None] = lambda why: None
        self.leave: Callable[[], list[Command]] = list
        self._changed = changed

    @property
    def busy(self) -> bool:
        """Whether the training thread has to look at each of its events."""
        return self.open is not None or bool(self.agreed)

    def commands(self) -> list[Command]:
        """Return the commands that are proposed, or agreed on and not applied."""
        return [*self.proposed, *(packed[0] for one in self.agreed for packed in one.commands)]

    def has_due(self, event: str, index: int) -> bool:
        """Return whether something is to be applied at an event."""
        return any(one.is_due(event, index) for one in self.agreed)

    def reach(self, event: str, index: int) -> tuple[list[Command], list[Plans]]:
        """Return what is to be applied at an event; waits there for the decision on what this rank has confirmed."""
        with self._changed:
            while self.must_wait(event, index):
                self._changed.wait(OPEN_S)
            due = [one for one in self.agreed if one.is_due(event, index)]
            self.agreed = [one for one in self.agreed if one not in due]
        return [unpack(*packed) for one in due for packed in one.commands], [one.plans for one in due if one.plans]

    def must_wait(self, event: str, index: int) -> bool:
        """Return whether the decision on this event is open; who asks waits for `OPEN_S`, and asks again."""
        if self.open is None or not (self.confirmed and self.open.is_due(event, index)):
            self.n_waits = 0
            return False
        self.n_waits += 1  # counted, not timed: in a process that is stopped for a minute no store has been silent
        if self.n_waits * OPEN_S > HOLD_S + GIVE_UP_S:
            self.lose("the launcher's store did not answer")
            return False
        return True
