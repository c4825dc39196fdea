"""Where live runs are found: on this machine and by connection files; `hub_runs` has those of a hub."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sightglass.core.errors import WireError
from sightglass.protocol import discovery

from .target import ConnectionFile, RegisteredRun, RunRoute, Target, replaces, route_to


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
