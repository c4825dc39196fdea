"""Where live runs are found: on this machine and by connection files; `hub_runs` has those of a hub.

`Target` is what a client connects to, and how to find it again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from sightglass.core.errors import TransportError, WireError
from sightglass.protocol import discovery
from sightglass.protocol.address import Address, Keys, read_connection
from sightglass.protocol.transport import Channel
from sightglass.protocol.zmq import ZmqChannel

if TYPE_CHECKING:
    from sightglass.training.run import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Reachable:
    """A live run, before it has answered.

    Attributes:
        target: Finds it again.
        route: The way to it.
        entry: Its entry in the registry or on the hub; `None` if it was found by a connection file.
        may_command: Whether it may accept commands; `False` where the hub refuses them.
        project: Its project on the hub, or empty.
        replaces: Returns whether it replaces a run that died, or may turn out to.
    """

    target: Target
    route: RunRoute
    entry: discovery.LiveRun | None
    may_command: bool = True
    project: str = ""
    replaces: Callable[[RunRoute], bool] = lambda route: False


class LiveRuns(Protocol):
    """A place where live runs are found, again and again."""

    def reachable(self) -> list[Reachable]:
        """Return the runs that live now, the newest first.

        Raises:
            TransportError: This process lacks descriptors or memory to look.
        """

    def close(self) -> None:
        """Look no more."""


class RunsHere:
    """The live runs of this user on this machine, and those of connection files in a folder."""

    def __init__(self, connections: str | os.PathLike[str] | None = None) -> None:
        self._connections = connections

    def reachable(self) -> list[Reachable]:
        """Read the registry and the files; the runs of files come last. See `LiveRuns`."""
        entries = discovery.entries()
        living = {entry.id for entry in entries}
        found = {entry.id: _registered(entry, living) for entry in entries}
        for path in () if self._connections is None else sorted(Path(self._connections).rglob("*.json")):
            with contextlib.suppress(WireError, OSError):  # other JSON files may be there too
                route = (file := ConnectionFile(path)).find()
                found.setdefault(route.id, Reachable(target=file, route=route, entry=None))
        return list(found.values())

    def close(self) -> None:
        """Do nothing."""


def _registered(entry: discovery.LiveRun, living: Collection[str]) -> Reachable:
    return Reachable(
        target=RegisteredRun(by_name=True), route=route_to(entry), entry=entry,
        replaces=lambda route: route.id not in living and replaces(entry, route),
    )  # fmt: skip


# What a client connects to, and how to find it again: a run of this machine or of this process, a connection file.


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRoute:
    """One way to one run.

    Attributes:
        run: The run's name.
        id: The run's id.
        beside: The ids of the runs of its name that lived when it began.
        rank: Its rank, in a program of several processes.
        owner: On a hub, the user whose run it is.
        address: Where a connection file says that the run listens; otherwise empty.
        connect: Opens a channel; raises `TransportError` if that is not possible.
        alive: Returns whether the run's process lives; `None` if that cannot be known, as on another machine.
        closed: Returns whether the run was closed, once its process does not live.
    """

    run: str
    id: str
    connect: Callable[[], Channel]
    beside: Collection[str] = ()
    rank: int = 0
    owner: str = ""
    address: str = ""
    alive: Callable[[], bool] | None = None
    closed: Callable[[], bool] = lambda: False


Found = RunRoute | Literal["ended", "died", "awaited"]
"""What `Target.find_again` returns."""


class Target(Protocol):
    """What a client connects to, again and again."""

    def find_again(self, route: RunRoute) -> Found:
        """Return the way to a run that was lost, or to the one that replaces it.

        Args:
            route: The way that led to it.

        Returns:
            The way, or what became of the run: "ended" if it was closed, "died", or "awaited" if its process died and
            another run may replace it.

        Raises:
            TransportError: This process lacks descriptors or memory to look.
        """


class RegisteredRun:
    """A run of this user on this machine."""

    def __init__(self, *, by_name: bool) -> None:
        """Prepare to look; only a run that was asked for `by_name` can be replaced."""
        self._by_name = by_name

    def find_again(self, route: RunRoute) -> Found:
        """Look into the registry. See `Target`.

        What replaces the run did not live beside it. No times are compared: the machine's clock may have been set.
        """
        if discovery.alive(route.id):
            return route
        if discovery.was_closed(route.id):
            return "ended"
        for entry in discovery.entries() if self._by_name else ():
            if replaces(entry, route):
                return route_to(entry)
        return "awaited" if self._by_name else "died"


class ConnectionFile:
    """A run with a connection file, which a run that replaces it may write again."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def find(self) -> RunRoute:
        """Read the file.

        Raises:
            OSError: It cannot be read.
            WireError: It is not a connection file.
        """
        name, id, address = read_connection(self._path)
        return RunRoute(run=name, id=id, address=address.endpoint, connect=lambda: ZmqChannel(address))

    def find_again(self, route: RunRoute) -> Found:
        """Read the file again; without it, the run may still be where it was. See `Target`."""
        if discovery.was_closed(route.id):  # it is on this machine
            return "ended"
        try:
            return self.find()
        except (OSError, WireError):
            return route


class OwnRun:
    """A run of this process."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def find(self) -> RunRoute:
        """Return the way to the run."""
        return RunRoute(run=self.run.name, id=self.run.id, connect=self._connect, alive=lambda: True)

    def find_again(self, route: RunRoute) -> Found:
        """Return the way to the run, unless it has ended. See `Target`."""
        return "ended" if self.run.ended else route

    def _connect(self) -> Channel:
        if self.run.memory is None:
            raise TransportError(f"Run {self.run.name!r} has no listener in this process")
        return self.run.memory.connect()


def replaces(entry: discovery.LiveRun, route: RunRoute) -> bool:
    """Return whether a run replaces one that died: of its name and rank, and neither lived beside the other."""
    same = (entry.name, entry.rank) == (route.run, route.rank)
    return same and entry.id not in route.beside and route.id not in entry.beside


def route_to(entry: discovery.LiveRun) -> RunRoute:
    """Return the way to a run in the registry."""
    address = address_of(entry)
    return RunRoute(
        run=entry.name, id=entry.id, beside=entry.beside, rank=entry.rank, connect=lambda: ZmqChannel(address),
        alive=lambda: discovery.alive(entry.id), closed=lambda: discovery.was_closed(entry.id),
    )  # fmt: skip


def address_of(entry: discovery.LiveRun) -> Address:
    """Return the address of a run in the registry."""
    if not entry.server_key:
        return Address(endpoint=entry.endpoint)
    keys = Keys(public=entry.client_public, secret=entry.client_secret)
    return Address(endpoint=entry.endpoint, server=entry.server_key, client=keys)
