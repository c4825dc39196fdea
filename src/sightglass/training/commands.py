"""Acts: what clients do to the run. They wait here until the training applies them, once, at an event of its own.

`CommandQueue` is plain state: acts go in, `due` hands out those whose event has come, `carry_out` applies one, and what
became of it goes into `history`. In a program of several processes all of them apply the same acts at the same event,
by a broadcast that the program supplies (`agree`): rank 0 hands its acts out, and each rank applies what comes back.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from sightglass.core import codec
from sightglass.core.errors import CommandError, unknown
from sightglass.core.ranks import Agree

from .controls import Action, Control

MAX_PENDING: Final = 1_000
MAX_HISTORY: Final = 10_000

Kind = Literal["set", "call", "pause", "resume", "stop"]


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One act of a client.

    Attributes:
        id: The client's own number for it.
        client: Who does it.
        by: What the client calls itself; empty for what the run does by itself.
        kind: What is done.
        name: The control or action.
        value: The control's new value, or the action's arguments as a list.
        at: The event to wait for; `None` for the next one.
        hold: Whether a pause outlives its owner.
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
    """What became of an act; the entries of a run's history.

    Attributes:
        act: The act.
        event: The event at which it was applied.
        index: The event's number.
        step: The event's step.
        wall_time: When, in seconds since the Unix epoch.
        old: A control's value before.
        result: A control's value after, or what an action returned.
        error: Why it failed; empty if it did not.
    """

    act: Command
    event: str
    index: int
    step: float
    wall_time: float
    old: Any = None
    result: Any = None
    error: str = ""


class CommandQueue:
    """The controls and actions of a run, the acts that wait for an event, and what became of the others."""

    def __init__(self) -> None:
        self.controls: dict[str, Control] = {}
        self.actions: dict[str, Action] = {}
        self.pending: list[Command] = []
        self.history: deque[CommandResult] = deque(maxlen=MAX_HISTORY)
        self.stopping = False
        self.paused_by: Command | None = None

    def check(self, act: Command) -> None:
        """Refuse an act that cannot succeed, before it waits for anything.

        Raises:
            CommandError: The name, the type or the bounds are wrong, or too many acts wait already.
        """
        if len(self.pending) >= MAX_PENDING:
            raise CommandError(f"Expected at most {MAX_PENDING} acts to wait for an event, got more")
        if act.kind == "set":
            if act.name not in self.controls:
                raise CommandError(unknown("control", act.name, self.controls))
            self.controls[act.name].checked(act.value)
        elif act.kind == "call" and act.name not in self.actions:
            raise CommandError(unknown("action", act.name, self.actions))

    def add(self, act: Command) -> None:
        """Let an act wait for its event. Errors as in `check`."""
        self.check(act)
        self.pending.append(act)

    def due(self, event: str | None) -> list[Command]:
        """Take out the acts to be applied at this event, in their order; `None` for those that wait for any event."""
        due = [act for act in self.pending if act.at in (None, event)]
        if due:
            self.pending = [act for act in self.pending if act.at not in (None, event)]
        return due

    def carry_out(self, act: Command, *, event: str, index: int, step: float, wall_time: float) -> CommandResult:
        """Apply an act, on the training thread; never raises because of it."""
        old = result = None
        error = ""
        try:
            match act.kind:
                case "set":
                    old, result = self.controls[act.name].set(act.value)
                case "call":
                    result = self.actions[act.name].function(*(act.value or ()))
                case "pause":
                    self.paused_by = act
                case "resume":
                    self.paused_by = None
                case "stop":
                    self.stopping, self.paused_by = True, None
        except CommandError as failure:
            error = str(failure)
        except (Exception, SystemExit) as failure:  # noqa: BLE001  an act must never hurt the run
            error = f"{act.kind} {act.name!r} failed: {type(failure).__name__}: {failure}"
        done = CommandResult(
            act=act, event=event, index=index, step=step, wall_time=wall_time, old=old, result=result, error=error
        )
        self.history.append(done)
        return done

    def release(self, client: str) -> bool:
        """Let the pause of a client that is gone end, unless it holds; tells whether there is one to end.

        A pause that still waits is forgotten. One in force ends by an act like any other, so that all processes of a
        program go on from the same event.
        """
        self.pending = [act for act in self.pending if not _is_pause_of(client, act)]
        if self.paused_by is None or not _is_pause_of(client, self.paused_by):
            return False
        self.pending.append(Command(id=0, client=client, kind="resume"))
        return True


def _is_pause_of(client: str, act: Command) -> bool:
    return act.kind == "pause" and act.client == client and not act.hold


class VariantPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is compiled into a step on all ranks.

    Attributes:
        signature: The number of the signature it is for.
        use: The queries, as text, that the step answers from the next call on.
        prepare: Those to be compiled meanwhile.
    """

    signature: int = 0
    use: tuple[str, ...] = ()
    prepare: tuple[str, ...] = ()


Plans = dict[str, VariantPlan]
"""Plans by the event of their step."""


def agreed(acts: list[Command], plans: Plans, agree: Agree) -> tuple[list[Command], Plans]:
    """Return what all ranks do from this event on: what rank 0 says, by the program's own broadcast."""
    told = agree(msgspec.msgpack.encode(([pack(act) for act in acts], plans)))
    packed, plans = msgspec.msgpack.decode(told, type=tuple[list[Packed], Plans])
    return [unpack(*one) for one in packed], plans


Packed = tuple[Command, bytes, list[bytes]]


def pack(act: Command) -> Packed:
    """Take the value of an act out of it, as bytes.

    Raises:
        UnsendableError: It has a type that cannot travel.
    """
    blob, buffers = codec.encode(act.value)
    return msgspec.structs.replace(act, value=None), blob, [bytes(buffer) for buffer in buffers]


def unpack(act: Command, blob: bytes, buffers: list[bytes]) -> Command:
    """Put the value back."""
    return msgspec.structs.replace(act, value=codec.decode(blob, buffers))
