"""The commands of clients: checked at once, applied by the training thread, and answered with the result."""

from __future__ import annotations

import itertools
import math
import sys
from collections import deque
from collections.abc import Callable
from typing import Any, Final, get_args

from msgspec.structs import replace

from sightglass.alerts.alert import LEVELS, Alert
from sightglass.core import codec
from sightglass.core.errors import CommandError, unknown
from sightglass.core.process.clock import Clock
from sightglass.protocol import messages
from sightglass.training.command_runner import CommandRunner
from sightglass.training.commands import Command, CommandResult, Kind
from sightglass.training.serving import describe
from sightglass.training.serving.client_subscriptions import RecordedSubscriptions
from sightglass.training.serving.clients import MAX_CLIENTS, Client, Clients, Outbox

MAX_BY: Final = 200  # as long as a client's own name may be
REMEMBERED: Final = 64  # a transport repeats what it has just sent; the threads of a client overtake each other by less


class ClientCommands:
    """Passes commands from clients to the run, and results back."""

    def __init__(
        self,
        runner: CommandRunner,
        *,
        clients: Clients,
        outbox: Outbox,
        recorded: RecordedSubscriptions,
        run: str,
        refusal: Callable[[], str],
        clock: Clock,
    ) -> None:
        """Start without commands; `refusal` returns why this process takes none."""
        self._runner = runner
        self._clients = clients
        self._outbox = outbox
        self._recorded = recorded
        self._run = run
        self._refusal = refusal
        self._clock = clock
        self._waiting: dict[int, tuple[Command, float]] = {}  # those whose clients wait, and since when
        self._numbers = itertools.count(1)
        self._requests: dict[int, tuple[bytes, int]] = {}
        self._seen: dict[bytes, dict[int, None]] = {}  # the numbers of each client's newest commands
        self._results: deque[CommandResult] = deque()
        runner.on_result = self._results.append  # the only door by which the training thread reaches the `io` thread

    @property
    def allowed(self) -> bool:
        """Whether this process takes commands."""
        return not self._refusal()

    def submit(self, peer: bytes, client: Client, message: messages.RunCommand) -> None:
        """Let a command wait for its event, or refuse it; ignore one that arrives again."""
        request, kind = message.request, message.kind
        if not self._is_new(peer, request):
            return
        refusal = self._refusal()
        if refusal or not client.may_command:
            reason = refusal or f"Expected a controller's key to {kind}; a viewer's key is read-only"
            self._outbox.refuse(peer, request, "RefusedError", reason)
            return
        known = next((known for known in get_args(Kind) if known == kind), None)
        if known is None:
            self._outbox.refuse(peer, request, "RefusedError", unknown("command", kind, get_args(Kind)))
            return
        command = Command(
            # The history holds these texts of 10,000 commands; those of one client share them.
            id=next(self._numbers), client=sys.intern(client_id(peer)), kind=known, name=sys.intern(message.name),
            value=codec.decode(message.value) if message.value else None, at=message.at, hold=message.hold,
            by=sys.intern(f"{message.by[:MAX_BY]} ({client.name})") if message.by else client.name,
        )  # fmt: skip
        self._requests[command.id] = (peer, request)
        if command.kind == "alert":
            self._enter(command)
            return
        try:
            self._runner.add(command)
        except CommandError as error:
            del self._requests[command.id]
            self._outbox.refuse(peer, request, error)
            return
        self._waiting[command.id] = (command, self._clock.monotonic())
        if not self._tell(command):
            self._outbox.send(peer, messages.Waiting(request=request, note=self._waits_for(command)))

    def _enter(self, alert: Command) -> None:
        """Enter an alert of a client into the history; it is delivered by the client, not by the run."""
        told: Any = alert.value if isinstance(alert.value, dict) else {}
        level = told.get("level")
        one = Alert.of(
            "", alert.name, str(told.get("text", "")), run="", wall_time=self._clock.wall(), step=told.get("step"),
            level=level if isinstance(level, str) and level in LEVELS else "warning",
        )  # fmt: skip
        event, index = self._runner.subscriptions.latest()
        self._runner.queue.remember(
            CommandResult(
                command=replace(alert, name=one.title, value=one.text), event=event, index=index,
                step=math.nan if one.step is None else one.step, wall_time=one.wall_time, note=one.level,
            )
        )  # fmt: skip

    def tick(self) -> None:
        """Tell the clients whose commands will hardly be applied, each once."""
        for command, _ in list(self._waiting.values()):
            self._tell(command)

    def _tell(self, command: Command) -> bool:
        """Tell a client why its command will hardly be applied; return whether that is so."""
        peer, request = self._requests[command.id]
        reason = self._runner.stuck(command, self._waiting[command.id][1])
        if reason or peer not in self._clients:
            note = f"{reason}. {self._waits_for(command)}"
            self._outbox.send(peer, messages.Waiting(request=request, note=note, stuck=True))
            del self._waiting[command.id]
        return bool(reason)

    def _waits_for(self, command: Command) -> str:
        return f"{self._runner.waits_for(command)} {self._run!r}"

    def _is_new(self, peer: bytes, request: int) -> bool:
        """Return whether a command did not arrive before. A number is never used twice, also if a lease ends."""
        seen = self._seen.pop(peer, {})
        self._seen[peer] = seen  # last, so that the peers that were silent for longest are forgotten first
        if len(self._seen) > MAX_CLIENTS:
            del self._seen[next(iter(self._seen))]
        if request in seen:
            return False
        seen[request] = None
        if len(seen) > REMEMBERED:
            del seen[next(iter(seen))]
        return True

    def release(self, peer: bytes) -> None:
        """End the pause of a client that is gone."""
        self._runner.release(client_id(peer))

    def flush(self) -> None:
        """Record the results since the last call, and send them to the clients."""
        while self._results:
            result = self._results.popleft()
            entry = describe.result(result)
            self._recorded.command(entry)
            self._waiting.pop(result.command.id, None)
            peer, request = self._requests.pop(result.command.id, (b"", 0))
            if peer not in self._clients:
                continue
            if result.error:
                self._outbox.refuse(peer, request, "CommandError", result.error)
            else:
                self._outbox.reply(peer, request, entry)


def client_id(peer: bytes) -> str:
    """Return the id of a client, as commands carry it."""
    return peer.hex()
