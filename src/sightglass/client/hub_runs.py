"""Runs on a hub: which ones live there, and the way to one of them."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from sightglass.hub.address import CLIENTS, HubAddress, hub_address
from sightglass.protocol import discovery
from sightglass.protocol.transport import Channel

from .live_runs import Found, Reachable, RunRoute

if TYPE_CHECKING:
    from sightglass.hub.nats import NatsChannel
    from sightglass.hub.presence import HubRun

FIND_S: Final = 2.0  # runs answer within milliseconds; a machine that is busy takes longer
# A run that is too busy to answer at once says by itself that it lives: once more than `BEAT_EVERY_S`, and a rest for a
# busy machine.
ALL_S: Final = 4.0
# What a run says takes a moment to arrive, on a busy machine seconds: one that begins this long before the last word of
# another arrives may have begun after it.
ON_ITS_WAY_S: Final = 3.0
# A run that says nothing, while its hub answers, has died, or its machine is cut off: a switch restarts in minutes.
GONE_AFTER_S: Final = 300.0


class RunsOnHub:
    """The live runs on a hub, as they come and go."""

    def __init__(self, hub: str | os.PathLike[str], *, by_name: bool = True) -> None:
        """Ask which runs live.

        Args:
            hub: A URL or a hub file, see `protocol.hub_address`.
            by_name: Whether a run that begins under the name of one that died replaces it.

        Raises:
            TransportError: The hub cannot be reached.
            RefusedError: The hub refused this user.
            MissingExtraError: nats-py is not installed.
        """
        from sightglass.hub.presence import HubDirectory

        self._address = hub_address(hub, roles=CLIENTS)
        self._by_name = by_name
        self._directory = HubDirectory(self._address)

    @property
    def problem(self) -> str:
        """Why the hub cannot be reached now; empty while it can. Until it is back, the runs are those of before."""
        return self._directory.problem

    def wait(
        self, *, until: Callable[[discovery.LiveRun], bool] | None = None, timeout_s: float = FIND_S
    ) -> list[Reachable]:
        """Wait for the replies of the runs, and return them; if some have replied, a moment without another is enough.

        Args:
            until: Whether a run is one that is looked for.
            timeout_s: How long to wait at the most.
        """
        self._directory.wait(timeout_s, until=None if until is None else lambda run: until(run.entry))
        return self.reachable()

    def wait_for_all(self) -> list[Reachable]:
        """Wait for so long that each run which lives has said so, however late it answers, and return them."""
        self._directory.wait(ALL_S, until=lambda run: False)
        return self.reachable()

    def reachable(self) -> list[Reachable]:
        """Return the runs that were heard of lately. See `LiveRuns`."""
        runs = self._directory.runs()
        heard_s = {run.entry.id: run.heard_s for run in runs}
        return [self._reachable(run, heard_s) for run in runs]

    def close(self) -> None:
        """Listen no more."""
        self._directory.close()

    def _reachable(self, run: HubRun, heard_s: dict[str, float]) -> Reachable:
        target = RunOnHub(self._address, run, by_name=self._by_name)
        return Reachable(
            target=target, route=target.find(), entry=run.entry, may_command=self._address.may_command,
            project=self._address.project,
            replaces=lambda route: replaces(run, route, heard_s.get(route.id, -math.inf)),
        )  # fmt: skip


class RunOnHub:
    """A run on a hub, which may be lost for a while with the hub.

    Attributes:
        by_name: Whether a run that begins under its name, after it died, replaces it.
    """

    def __init__(self, address: HubAddress, run: HubRun, *, by_name: bool = True) -> None:
        self.by_name = by_name
        self._address, self._run = address, run
        self._heard_s = run.heard_s
        self._silent_s = math.inf  # since when the hub answers, and the run does not
        self._channel: NatsChannel | None = None

    def find(self) -> RunRoute:
        """Return the way to the run."""
        return self._route_to(self._run)

    def find_again(self, route: RunRoute) -> Found:
        """Return the way to the run, or to the one that replaces it. See `Target`.

        A run that is not heard of may be without its hub, so it is tried again. If only the connection to the hub was
        lost, it is tried before any other is looked for: after an outage, a thousand clients would ask all runs.
        """
        from sightglass.hub.presence import HubDirectory

        if discovery.was_closed(route.id):  # it is on this machine
            return "ended"
        if self._channel is None or (self._channel.over and not self._channel.left):
            return route
        heard_s = max(self._heard_s, self._channel.heard_s)

        def is_meant(run: HubRun) -> bool:
            return run.entry.id == route.id or (self.by_name and replaces(run, route, heard_s))

        with contextlib.closing(HubDirectory(self._address)) as directory:
            found = [run for run in directory.wait(FIND_S, until=is_meant) if is_meant(run)]
        if any(run.entry.id == route.id for run in found):
            self._silent_s = math.inf
            return self._route_to(self._run)
        if found:
            return self._route_to(found[0])
        self._silent_s = min(self._silent_s, time.monotonic())
        return "died" if time.monotonic() - self._silent_s >= GONE_AFTER_S else route

    def _route_to(self, run: HubRun) -> RunRoute:
        entry = run.entry
        return RunRoute(
            run=entry.name, id=entry.id, rank=entry.rank, owner=run.owner, connect=lambda: self._connect(run)
        )

    def _connect(self, run: HubRun) -> Channel:
        from sightglass.hub.nats import NatsChannel

        channel = NatsChannel(self._address, owner=run.owner, id=run.entry.id)
        if self._channel is not None:
            self._heard_s = max(self._heard_s, self._channel.heard_s)
        self._channel = channel
        return channel


def replaces(run: HubRun, route: RunRoute, heard_s: float) -> bool:
    """Return whether a run replaces one that was last heard of at a time: of its user, name and rank, and begun since.

    The times are this machine's; the clocks of the runs' machines are not compared.
    """
    same = (run.owner, run.entry.name, run.entry.rank) == (route.owner, route.run, route.rank)
    return same and run.entry.id != route.id and run.began_s + ON_ITS_WAY_S > heard_s
