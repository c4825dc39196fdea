"""Which clients read a published stream, which a run sends once for all of them, instead of a copy each.

On a hub, copies for a hundred clients would cost the run a hundred times the work and the bandwidth. A client enters
once nothing waits for it any more: what it takes then follows what it was sent. So one that reads slowly keeps its
copies, whose number the transport limits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from sightglass.protocol.transport import Publisher

MIN_READERS: Final = 2  # below, a copy costs less than to publish


class Publications:
    """The published streams of a run.

    Attributes:
        publisher: What publishes; without it, each client is sent copies.
        names: The streams that are published, by the names that stand for them among those of peers.
    """

    def __init__(self) -> None:
        """Begin without a publisher."""
        self.publisher: Publisher | None = None
        self.names: dict[bytes, int] = {}
        self._readers: dict[int, set[bytes]] = {}
        self._wanted: set[tuple[bytes, int]] = set()

    def recipients(self, stream: int, peers: Collection[bytes]) -> Collection[bytes]:
        """Return the recipients of records for these peers: some get copies, and one name stands for the others."""
        publisher = self.publisher
        if publisher is None or (len(peers) < MIN_READERS and stream not in self._readers):
            return peers
        readers = self._readers.get(stream, set())
        everybody = set(peers)
        for peer in readers - everybody:
            self.dismiss(peer, stream)
        others = everybody - readers
        reachable = [peer for peer in others if publisher.reaches(peer)]
        if len(readers) + len(reachable) >= MIN_READERS:
            self._wanted.update((peer, stream) for peer in reachable)
        return others | {_name(stream)} if readers else others

    def admit(self, is_free: Callable[[bytes], bool]) -> None:
        """Let peers enter that listen and for which nothing waits."""
        for peer, stream in list(self._wanted):
            if self.publisher is not None and is_free(peer) and self.publisher.enter(peer, stream):
                self._wanted.discard((peer, stream))
                self._readers.setdefault(stream, set()).add(peer)
                self.names[_name(stream)] = stream

    def dismiss(self, peer: bytes, stream: int) -> None:
        """Send a peer copies of a stream again."""
        self._wanted.discard((peer, stream))
        readers = self._readers.get(stream, set())
        if self.publisher is None or peer not in readers:
            return
        self.publisher.dismiss(peer, stream)
        readers.discard(peer)
        if not readers:
            del self._readers[stream]
            del self.names[_name(stream)]

    def forget(self, peer: bytes) -> None:
        """Forget a peer that has left."""
        self._wanted = {wanted for wanted in self._wanted if wanted[0] != peer}
        for stream in [stream for stream, readers in self._readers.items() if peer in readers]:
            self.dismiss(peer, stream)


def _name(stream: int) -> bytes:
    return b"stream-%d" % stream
