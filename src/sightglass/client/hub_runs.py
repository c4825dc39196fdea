"""Runs on a hub: which ones live there, and the way to one of them."""

from __future__ import annotations

import os
from collections.abc import Callable

from sightglass.protocol import discovery
from sightglass.protocol.hub_address import CLIENTS, HubAddress, hub_address
from sightglass.protocol.transport import Channel

from .target import Found, RunRoute

FIND_S = 2.0  # runs answer within milliseconds; a machine that is busy takes longer


class RunOnHub:
    """A run on a hub, which may be lost for a while with the hub."""

    def __init__(self, address: HubAddress, owner: str, entry: discovery.LiveRun) -> None:
        self.entry = entry
        self._address, self._owner = address, owner

    def find(self) -> RunRoute:
        """Return the way to the run."""
        return RunRoute(run=self.entry.name, id=self.entry.id, rank=self.entry.rank, connect=self._connect)

    def find_again(self, route: RunRoute) -> Found:
        """Return the same way: a run that is not heard of may be without its hub. See `Target`."""
        return "ended" if discovery.was_closed(route.id) else route

    def _connect(self) -> Channel:
        from sightglass.protocol.nats_channel import NatsChannel

        return NatsChannel(self._address, owner=self._owner, id=self.entry.id)


def on_hub(
    hub: str | os.PathLike[str], *, until: Callable[[discovery.LiveRun], bool] | None = None, timeout_s: float = FIND_S
) -> list[RunOnHub]:
    """Return the live runs on a hub, the newest first.

    Args:
        hub: A URL or a hub file, see `protocol.hub_address`.
        until: Whether a run is one that is looked for.
        timeout_s: How long to wait for runs to answer. If some have, a moment without another answer is enough.

    Raises:
        TransportError: The hub cannot be reached.
        MissingExtraError: nats-py is not installed.
    """
    from sightglass.protocol.hub_presence import HubDirectory

    address = hub_address(hub, roles=CLIENTS)
    directory = HubDirectory(address)
    try:
        found = directory.wait(timeout_s, until=None if until is None else lambda run: until(run.entry))
    finally:
        directory.close()
    return [RunOnHub(address, run.owner, run.entry) for run in found]
