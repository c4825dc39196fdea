"""A connection to a NATS server, as nats-py makes it: with TLS, messages in order, and no reconnection of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from sightglass.core.errors import MissingExtraError
from sightglass.core.program_values.guarded import message as message_of

from .address import HubAddress, login

if TYPE_CHECKING:
    import logging
    import ssl

    from nats.aio.client import Client as NatsClient
    from nats.aio.subscription import Subscription

CONNECT_S: Final = 5.0  # a server on the same network answers within milliseconds
PING_S: Final = 5  # two pings without an answer, and the connection counts as lost: after 15 s at the latest
N_PINGS: Final = 2
LINGER_S: Final = 1.0  # for the last messages of a process that leaves
_spread: Final = random.Random()  # of our own: the program's random numbers stay as they are without a hub
REFUSED: Final = "Authorization Violation"
FAULTS: Final = {
    "no servers available": "no hub answers at {url}",
    "TimeoutError": "what listens at {url} does not answer as a hub does within " + f"{CONNECT_S:.0f} s",
    "expecting INFO": "what listens at {url} is not a hub",
    "certificate has expired": "the certificate of the hub at {url} has expired by this machine's clock",
    "certificate is not yet valid": "the certificate of the hub at {url} is not yet valid by this machine's clock",
    "CERTIFICATE_VERIFY_FAILED": "what listens at {url} has another certificate than the hub file names",
    "SSL": "what listens at {url} does not speak TLS as a hub does",
    REFUSED: "the hub at {url} refuses user {user!r}: it does not know them, or they were revoked",
    "maximum": "the hub at {url} is full: it takes no more connections",
    "Connection": "the hub at {url} ended the connection at once, as one does that is full",
}
"""What an error of nats-py or of the server means, by a part of its text."""


def check_installed() -> None:
    """Load nats-py, so that it is missed at once, and not on the thread of the hub.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        import nats.aio.client  # noqa: F401
    except ImportError:
        raise MissingExtraError("nats-py", extra="hub", purpose="A hub") from None


async def connect(address: HubAddress, *, noticed: Callable[[Exception], Awaitable[None]]) -> NatsClient:
    """Connect; of the servers of a cluster to any, in turn, until one answers.

    Args:
        address: The server, or servers.
        noticed: Called with what it refuses, and with what nats-py drops.

    Raises:
        Exception: Whatever the last server answers, see `why`.
    """
    urls = address.url.split(",")
    _spread.shuffle(urls)  # so that each server has its share
    for url in urls[:-1]:
        with contextlib.suppress(Exception):
            return await _connect(url, address, noticed, CONNECT_S / len(urls))
    return await _connect(urls[-1], address, noticed, CONNECT_S / len(urls))


async def _connect(
    url: str, address: HubAddress, noticed: Callable[[Exception], Awaitable[None]], timeout_s: float
) -> NatsClient:
    client = _in_order()
    try:
        async with asyncio.timeout(2 * timeout_s):
            await client.connect(
                servers=[url],
                dont_randomize=True,  # it would draw from the program's own random numbers
                name=f"sightglass {os.getpid()}",
                user=login(address.project, address.user) if address.key else None,
                password=address.key or None,
                tls=tls(address.certificate) if address.certificate else None,
                tls_handshake_first=bool(address.certificate),  # nothing is said before it is encrypted
                allow_reconnect=False,  # what it would send again may arrive twice, or with gaps
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=timeout_s,
                ping_interval=PING_S,
                max_outstanding_pings=N_PINGS,
                error_cb=noticed,
                flush_timeout=CONNECT_S,  # without it, nats-py may wait for ever once the connection is lost
            )
    except BaseException:
        await close(client)
        raise
    return client


async def close(client: NatsClient) -> None:
    """Disconnect; whatever is lost by that was lost before."""
    try:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(LINGER_S):
                await client.close()
    finally:
        # nats-py leaves its socket open where closing fails or is cancelled, and returns at once where another task of
        # its own is closing already, such as after a refusal. The loop may end before that task comes to the socket.
        writer = getattr(getattr(client, "_transport", None), "_io_writer", None)
        if writer is not None:
            writer.transport.abort()


def tls(certificate: str) -> ssl.SSLContext:
    """Return what accepts this certificate alone, under whatever name or tunnel the hub is reached."""
    import logging
    import ssl

    logging.getLogger("asyncio").addFilter(_is_news)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_verify_locations(cadata=certificate)
    return context


def _is_news(record: logging.LogRecord) -> bool:
    """Return whether to log: not that asyncio keeps no half of a connection that nats-py has upgraded to TLS."""
    return "eof_received" not in str(record.msg)


def why(error: Exception, address: HubAddress) -> str:
    """Return what a failed attempt to connect means."""
    text = message_of(error)
    for sign, meaning in FAULTS.items():
        if sign in text:
            return meaning.format(url=address.url, user=address.user)
    return f"{text} ({address.url})"


def _in_order() -> NatsClient:
    """Return a client that passes messages on in the order in which they come, each as subject, data and headers.

    nats-py's own has a queue and a task for each subscription, and so changes the order between subjects. Its headers
    are a mapping, in which the last one of a name hides the others.
    """
    from nats.aio.client import Client as NatsClient

    class InOrder(NatsClient):  # type: ignore[misc]  # nats-py is not typed here
        async def subscribe(self, subject: str, **options: Any) -> Subscription:
            subscription = await super().subscribe(subject, **options)
            if subscription._wait_for_msgs_task is not None:  # it would wait for the queue, to which nothing comes
                subscription._wait_for_msgs_task.cancel()
            return subscription

        async def _process_msg(self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
            subscription = self._subs.get(sid)
            if subscription is None:
                return
            try:
                await subscription._cb(subject.decode(), data, headers)
            except Exception as error:  # noqa: BLE001  a message costs at most itself
                await self._error_cb(error)

    return InOrder()
