"""Where clients reach a run: in memory, over a Unix socket and TCP, on a hub, with its entries in the registries."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from sightglass.core.errors import SightglassError, TransportError, warn
from sightglass.core.process.ranks import RankPlace
from sightglass.core.process.threads import shortage
from sightglass.protocol import discovery
from sightglass.protocol.address import write_connection
from sightglass.protocol.transport import MEMORY, Both, Listener, MemoryListener
from sightglass.protocol.zmq import N_DESCRIPTORS, ZmqListener
from sightglass.storage.run_directory import RunDirectory

if TYPE_CHECKING:
    from sightglass.hub.presence import HubAnnouncement


class Endpoints:
    """The listeners of a run. What cannot be opened is reported as a warning, and the run continues without it.

    Attributes:
        memory: The listener for clients in the same process.
        listener: The listener for all clients.
        reachable: Whether other processes can connect.
        connection_file: The address and keys of a controller, if the run listens on TCP.
        viewer_file: The same for viewers.
        hub: Announces the run on a hub; `None` without one.
    """

    def __init__(
        self,
        name: str,
        id: str,
        *,
        files: RunDirectory,
        listen: str | None,
        hub: str | os.PathLike[str] | None,
        start_writer: Callable[[], bool],
        place: RankPlace,
    ) -> None:
        """Open the sockets; the warnings point to the caller of `init`.

        Args:
            name: The run's name.
            id: The run's id.
            files: The run directory.
            listen: A TCP endpoint to open besides the Unix socket, or `None`.
            hub: The hub to meet clients on as well, see `hub_address`, or `None`.
            start_writer: Starts the thread that writes records, and returns whether it runs. It is called where no
                socket can be opened: if threads lack, the first one that can be had writes records.
            place: Which rank of which program it is.
        """
        self.connection_file: Path | None = None
        self.viewer_file: Path | None = None
        self._name = name
        self._id = id
        self._files = files
        self._place = place
        self._registered: Path | None = None
        attempts = [(True, listen, "")]
        if listen is not None:
            attempts += [(True, None, "from this machine only"), (False, listen, "over TCP only")]
        outer: ZmqListener | None = None
        reach, problem = "by no other process", ""
        for local, endpoint, how in attempts:
            try:
                outer, reach = self._listen(endpoint, local=local), how
                break
            except (OSError, SightglassError) as error:
                problem = problem or shortage(n_descriptors=N_DESCRIPTORS) or str(error)
        if outer is None and not start_writer():
            problem += ". Its records are written by flush() and close() only"
        if problem:
            message = f"Run {name!r} continues, but can be reached {reach}: {problem}"
            warn(message)
        if outer is not None:
            self._write_connections(outer)
        self.reachable = outer is not None
        self.memory = MemoryListener(notify=None if outer is None else outer.wake)
        self.listener: Listener = self.memory if outer is None else Both(outer, self.memory, MEMORY)
        self.hub: HubAnnouncement | None = None
        if hub is not None:
            self._join(hub)

    def withdraw(self) -> None:
        """Become unreachable, because no thread can be started that serves clients."""
        self.memory.refusal = f"Run {self._name!r} serves no clients: no thread can be started"
        if self.reachable:  # another process took the thread since they were probed
            message = f"Run {self._name!r} continues, but can be reached by no other process: no thread can be started"
            warn(message)
        if self.hub is not None:
            self.listener.close()  # nothing else will
        self.reachable = False
        if self._registered is not None:  # it is not closed, so no note of that may stay
            (self._registered / f"{self._id}.json").unlink(missing_ok=True)
        self.close()
        self.connection_file = self.viewer_file = None

    def close(self) -> None:
        """Remove the entry in the registry and the connection files; the io thread closes the listeners."""
        if self._registered is not None:
            discovery.unregister(self._id, self._registered)
            self._registered = None
        if self.hub is not None:
            self.hub.close()
        for file in (self.connection_file, self.viewer_file):
            if file is not None:
                file.unlink(missing_ok=True)

    def _listen(self, endpoint: str | None, *, local: bool) -> ZmqListener:
        if not local:
            return ZmqListener(listen=endpoint)
        with contextlib.ExitStack() as undo:
            path = discovery.folder()
            discovery.hold(self._id, path)
            undo.callback(discovery.unregister, self._id, path)
            listener = ZmqListener(path=path / f"{self._id}.sock", listen=endpoint)
            undo.callback(listener.close)
            self._register(listener, path)
            undo.pop_all()
        return listener

    def _register(self, listener: ZmqListener, path: Path) -> None:
        address = listener.address
        assert address is not None
        keys = address.client
        entry = msgspec.structs.replace(
            self._entry(),
            endpoint=address.endpoint,
            server_key=address.server,
            client_public=keys.public if keys else "",
            client_secret=keys.secret if keys else "",
            beside=_namesakes(self._name),
        )
        discovery.register(entry, path)
        self._registered = path

    def _join(self, hub: str | os.PathLike[str]) -> None:
        """Meet clients on a hub as well, whenever it can be reached."""
        try:
            from sightglass.hub.address import RUN, hub_address
            from sightglass.hub.nats import PEER, NatsListener
            from sightglass.hub.presence import HubAnnouncement

            address = hub_address(hub, roles=RUN)
            listener = NatsListener(address, self._id, notify=self.listener.wake)
            self.hub = HubAnnouncement(address, self._entry())
        except SightglassError as error:
            warn(f"Run {self._name!r} continues without a hub: {error}")
            return
        self.listener = Both(self.listener, listener, PEER)

    def _entry(self) -> discovery.LiveRun:
        """Return the run's entry in a registry, without an address."""
        return discovery.LiveRun(
            name=self._name,
            id=self._id,
            pid=os.getpid(),
            host=socket.gethostname(),
            started=time.time(),
            endpoint="",
            directory=str(self._files.path),
            group=self._place.group,
            rank=self._place.rank,
            n_ranks=self._place.size,
            job=self._place.job,
            declared=self._place.declared,
        )

    def _write_connections(self, listener: ZmqListener) -> None:
        if listener.controller is None or listener.viewer is None:
            return
        try:
            folder = self._files.open()
            controller, viewer = folder / "connection.json", folder / "connection-viewer.json"
            write_connection(controller, listener.controller, run=self._name, id=self._id)
            write_connection(viewer, listener.viewer, run=self._name, id=self._id)
        except OSError as error:
            message = f"Cannot write the connection files of run {self._name!r}: {error}"
            warn(message)
            return
        self.connection_file, self.viewer_file = controller, viewer


def _namesakes(name: str) -> tuple[str, ...]:
    """Return the ids of the live runs of a name; none if the registry cannot be read now."""
    try:
        return tuple(other.id for other in discovery.entries() if other.name == name)
    except TransportError:
        return ()
