"""Commands: what clients do to the run. Each waits here until the training thread applies it, once, at an event.

`CommandQueue` is plain state: commands go in, `due` returns those whose event has come, `apply` applies one and adds
the result to `history`. `CommandRunner` decides when: at the next event of the thread that made the run, outside the
lock, so that a slow action does not block the agent.

In a program of several processes all ranks apply the same commands at the same event, by a broadcast that the program
supplies (`agree`): rank 0 sends its commands, and each rank applies what it receives.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from sightglass.core import codec
from sightglass.core.clock import Clock
from sightglass.core.copies import sendable
from sightglass.core.current_run import acting
from sightglass.core.errors import CommandError, UnsendableError, unknown
from sightglass.core.guarded import FAILURES, message
from sightglass.core.ranks import Agree
from sightglass.core.values import n_bytes

from .compiled import CompiledSteps, Plans
from .controls import Action, Control
from .lock import TurnLock
from .steps import host_step
from .subscriptions import Subscriptions

MAX_PENDING: Final = 1_000  # more than any person sends; a client in a loop is refused before memory fills
MAX_HISTORY: Final = 10_000  # a few MB of numbers; a command per second for hours
MAX_HISTORY_BYTES: Final = 16 * 2**20  # of arguments and results, which may be arrays, or the state of a model
PAUSE_POLL_S: Final = 1.0  # a paused run is woken by commands; the poll only bounds the delay if a wake-up is missed

Kind = Literal["set", "call", "pause", "resume", "stop"]


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One command of a client.

    Attributes:
        id: The run's number for it.
        client: The id of the client that sent it.
        kind: What to do.
        name: The control or action.
        value: The control's new value, or the action's arguments as a list.
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
    """

    command: Command
    event: str
    index: int
    step: float
    wall_time: float
    old: Any = None
    result: Any = None
    error: str = ""


class CommandQueue:
    """The controls and actions of a run, the commands that wait for an event, and the results of earlier ones."""

    def __init__(self) -> None:
        self.controls: dict[str, Control] = {}
        self.actions: dict[str, Action] = {}
        self.pending: list[Command] = []
        self.history: deque[CommandResult] = deque()
        self.stopping = False
        self.paused_by: Command | None = None
        self._sizes: deque[int] = deque()
        self._n_bytes = 0

    def check(self, command: Command) -> None:
        """Refuse a command that cannot succeed.

        Raises:
            CommandError: The name, the type or the bounds are wrong, or too many commands wait already.
        """
        if len(self.pending) >= MAX_PENDING:
            raise CommandError(f"Expected at most {MAX_PENDING} commands to wait for an event, got more")
        if command.kind == "set":
            if command.name not in self.controls:
                raise CommandError(unknown("control", command.name, self.controls))
            self.controls[command.name].checked(command.value)
        elif command.kind == "call" and command.name not in self.actions:
            raise CommandError(unknown("action", command.name, self.actions))

    def add(self, command: Command) -> None:
        """Let a command wait for its event. Errors as in `check`."""
        self.check(command)
        self.pending.append(command)

    def due(self, event: str | None) -> list[Command]:
        """Take out the commands to apply at this event, in their order; `None` for those that wait for any event."""
        due = [command for command in self.pending if command.at in (None, event)]
        if due:
            self.pending = [command for command in self.pending if command.at not in (None, event)]
        return due

    def apply(self, command: Command, *, event: str, index: int, step: float, wall_time: float) -> CommandResult:
        """Apply a command, on the training thread. If it fails, the error is in the result."""
        old = result = None
        error = ""
        try:
            match command.kind:
                case "set":
                    old, result = self.controls[command.name].set(command.value)
                case "call":
                    # A copy: the io thread sends it, while the program may change what it returned.
                    result = sendable(self.actions[command.name].function(*(command.value or ()))).value
                case "pause":
                    self.paused_by = command
                case "resume":
                    self.paused_by = None
                case "stop":
                    self.stopping, self.paused_by = True, None
        except CommandError as failure:
            error = str(failure)
        except FAILURES as failure:
            error = f"{command.kind} {command.name!r} failed: {message(failure)}"
        entry = CommandResult(
            command=command, event=event, index=index, step=step, wall_time=wall_time, old=old, result=result,
            error=error,
        )  # fmt: skip
        self._remember(entry)
        return entry

    def _remember(self, entry: CommandResult) -> None:
        """Add an entry to the history, and drop the oldest if it is too long or holds too many bytes."""
        size = n_bytes(entry.command.value) + n_bytes(entry.result)
        self.history.append(entry)
        self._sizes.append(size)
        self._n_bytes += size
        while len(self.history) > MAX_HISTORY or (self._n_bytes > MAX_HISTORY_BYTES and len(self.history) > 1):
            self.history.popleft()
            self._n_bytes -= self._sizes.popleft()

    def release(self, client: str) -> bool:
        """End the pause of a client that is gone, unless it holds; return whether one is in force.

        A pause that still waits is dropped. One in force ends by a command, so that all processes of a program resume
        at the same event.
        """
        self.pending = [command for command in self.pending if not _is_pause_of(client, command)]
        if self.paused_by is None or not _is_pause_of(client, self.paused_by):
            return False
        self.pending.append(Command(id=0, client=client, kind="resume"))
        return True


def _is_pause_of(client: str, command: Command) -> bool:
    return command.kind == "pause" and command.client == client and not command.hold


class CommandRunner:
    """Applies the commands of a run at its events, on the thread that made the run.

    Attributes:
        queue: The commands that wait, and the controls and actions that they are about.
        on_result: Called with each result, under the lock.
        run: The id of the run.
    """

    def __init__(
        self,
        *,
        lock: TurnLock,
        subscriptions: Subscriptions,
        steps: CompiledSteps,
        clock: Clock,
        wake: Callable[[], None],
        agree: Agree | None = None,
        leads: bool = True,
    ) -> None:
        """Start without commands.

        Args:
            lock: The lock of the run.
            subscriptions: The events of the run.
            steps: The compiled steps, whose plans all ranks agree on with the commands.
            clock: The time.
            wake: Called when there is a result.
            agree: The broadcast of a program of several processes.
            leads: Whether this is rank 0, whose commands all ranks apply.
        """
        self.queue = CommandQueue()
        self.on_result: Callable[[CommandResult], None] = lambda result: None
        self._lock = lock
        self._changed = threading.Condition(lock.mutex)
        self._subscriptions = subscriptions
        self._steps = steps
        self._clock = clock
        self._wake = wake
        self._agree = agree
        self._leads = leads
        self._thread = threading.get_ident()
        self.run = ""
        self._closed = False
        if agree is not None:
            subscriptions.alert(True)

    @property
    def agrees(self) -> bool:
        """Whether several processes apply commands together."""
        return self._agree is not None

    def add(self, command: Command) -> None:
        """Let a command wait for its event.

        Raises:
            CommandError: It cannot succeed.
        """
        if self._agree is not None:
            try:
                pack(command)
            except UnsendableError as error:
                raise CommandError(str(error)) from None
        with self._lock.turn():
            self.queue.add(self._reachable(command))
            self._alert()

    def release(self, client: str) -> None:
        """End the pause of a client that is gone; its other commands stay in force."""
        with self._lock.turn():
            if self.queue.release(client):
                self._alert()

    def apply_if_due(self, event: str, index: int, step: object) -> None:
        """Apply the commands that wait for this event, and hold the thread here while the run is paused."""
        if threading.get_ident() == self._thread and (self._agree or self.queue.pending or self.queue.paused_by):
            self._apply_and_pause(event, index, step)

    def close(self) -> None:
        """Resume a paused run, which has ended; the caller holds the lock."""
        self._closed = True
        self._changed.notify_all()

    def _alert(self) -> None:
        self._subscriptions.alert(True)
        self._changed.notify_all()

    def _reachable(self, command: Command) -> Command:
        """Return a command that waits for an event of the training thread.

        A command for an event within a compiled step waits for the call of the step.

        Raises:
            CommandError: The event never happens on that thread.
        """
        source = self._subscriptions.sources.get(command.at) if command.at else None
        if source is not None and source.origin == "attached":
            raise CommandError(
                f"Expected an event of the training thread, got at={command.at!r}, which is logged in JAX"
            )
        owner = next((s.name for s in self._subscriptions.sources.values() if source in s.nested), command.at)
        return msgspec.structs.replace(command, at=owner)

    def _apply_and_pause(self, event: str, index: int, step: object) -> None:
        self._apply_due(event, index, step)
        while self.queue.paused_by is not None and not self._closed:
            with self._changed:
                if not any(command.at in (None, event) for command in self.queue.pending):
                    self._changed.wait(PAUSE_POLL_S)
            self._apply_due(event, index, step)
        with self._lock.mutex:
            self._subscriptions.alert(bool(self.queue.pending) or self._agree is not None or self._closed)

    def _apply_due(self, event: str, index: int, step: object) -> None:
        with self._lock.mutex:
            due = self.queue.due(event) if self._leads or self._agree is None else []
        if self._agree is not None:
            due, plans = agreed(due, self._steps.propose() if self._leads else {}, self._agree)
            self._steps.adopt(plans)
        for command in due:
            number = _step_number(step, index)
            with acting(self.run):
                result = self.queue.apply(command, event=event, index=index, step=number, wall_time=self._clock.wall())
            with self._lock.mutex:
                self.on_result(result)
            self._wake()


def _step_number(step: object, index: int) -> float:
    """Return a step as a number on the host, or the event's number where it is not a number."""
    try:
        return host_step(step)
    except FAILURES:
        return index


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
