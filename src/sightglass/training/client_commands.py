"""The commands of clients: checked at once, applied by the training thread, and answered with the result."""

from __future__ import annotations

import itertools
import sys
from collections import deque
from typing import Final, get_args

from sightglass.core import codec
from sightglass.core.errors import CommandError, unknown
from sightglass.protocol import messages

from . import describe
from .clients import MAX_CLIENTS, Client, Clients, Outbox
from .commands import Command, CommandResult, CommandRunner, Kind
from .recording import RecordedSubscriptions

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
        refusal: str,
    ) -> None:
        """Start without commands; a `refusal` is the reason why this process takes none."""
        self._runner = runner
        self._clients = clients
        self._outbox = outbox
        self._recorded = recorded
        self._run = run
        self._refusal = refusal
        self._numbers = itertools.count(1)
        self._requests: dict[int, tuple[bytes, int]] = {}
        self._seen: dict[bytes, dict[int, None]] = {}  # the numbers of each client's newest commands
        self._results: deque[CommandResult] = deque()
        runner.on_result = self._results.append  # the only door by which the training thread reaches the agent

    @property
    def allowed(self) -> bool:
        """Whether this process takes commands."""
        return not self._refusal

    def submit(self, peer: bytes, client: Client, message: messages.RunCommand) -> None:
        """Let a command wait for its event, or refuse it; ignore one that arrives again."""
        request, kind = message.request, message.kind
        if not self._is_new(peer, request):
            return
        if self._refusal or not client.may_command:
            reason = self._refusal or f"Expected a controller's key to {kind}; a viewer's key is read-only"
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
            by=client.name,
        )  # fmt: skip
        self._requests[command.id] = (peer, request)
        try:
            self._runner.add(command)
        except CommandError as error:
            del self._requests[command.id]
            self._outbox.refuse(peer, request, error)
            return
        event = f" {message.at!r}" if message.at else ""
        note = f"Waiting for the next event{event} of the thread that began run {self._run!r}"
        self._outbox.send(peer, messages.Waiting(request=request, note=note))

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
