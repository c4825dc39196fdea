"""A client whose run sends whatever it likes."""

from __future__ import annotations

from sightglass.client.connection import MIN_PING_S, Connection
from sightglass.client.resumable_stream import RecordBuffer, ResumableStream
from sightglass.core.process.threads import Worker
from sightglass.protocol.transport import MemoryListener

from .inputs import split
from .service import BUFFER
from .wire import header


class Unwoken(Worker):
    """A worker without a thread: the target runs the rounds."""

    def wake(self) -> None:
        """Do nothing."""

    def close(self, timeout_s: float) -> bool:
        """Do nothing."""
        return True


def client(data: bytes) -> None:
    """Take in the messages of a run, and read the stream that it answers with; each begins with a byte of flags."""
    listener = MemoryListener()
    connection = Connection(listener.connect(), run="job", client="me", worker=Unwoken)
    buffer = RecordBuffer(tag="batch.loss", run="job", max_records=8)
    opened = connection.open_stream(ResumableStream("batch.loss", buffer))
    described = connection.start_query("describe")
    connection.round(0.0)
    peer = listener.receive()[0].peer
    parts = split(data)
    cursor = n_messages = 0
    while parts and not connection.ended:
        part = parts.pop(0)
        frames = [header(part[1:])]
        while part[:1] and part[0] & BUFFER and parts and len(frames) < 4:
            frames.append(parts.pop(0))
        listener.send(peer, frames)
        n_messages += 1
        rest_s = connection.round(float(n_messages))
        assert rest_s is None or rest_s >= MIN_PING_S
        cursor, columns = buffer.since(cursor)
        assert all(isinstance(record.complete, bool) for record in columns.records(tag="", run=""))
        buffer.records()
    connection.close()
    connection.round(1e3)
    assert connection.n_failures == 0, connection._failures.last
    assert connection.ended
    assert opened.wait(0)
    assert described.wait(0)
