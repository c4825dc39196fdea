"""What a run may say that no run should: names of errors that are not one, and leases without a length."""

from __future__ import annotations

import math

import pytest

from sightglass.client.connection import MIN_PING_S, Connection
from sightglass.core import errors
from sightglass.core.errors import SightglassError
from sightglass.core.process.threads import Worker
from sightglass.protocol import messages
from sightglass.protocol.transport import MemoryListener

pytestmark = pytest.mark.smoke


class Unwoken(Worker):
    def wake(self) -> None:
        pass


class Link:
    """A connection, and the run's end of it."""

    def __init__(self) -> None:
        self.listener = MemoryListener()
        self.connection = Connection(self.listener.connect(), run="job", client="c", worker=Unwoken)
        self.pending = self.connection.start_query("describe")
        self.connection.round(0.0)
        self.peer = self.listener.receive()[0].peer

    def tell(self, message: messages.Message) -> float | None:
        self.listener.send(self.peer, messages.encode(message))
        return self.connection.round(1.0)


@pytest.mark.parametrize("name", [*vars(errors), "NewerError", "", "\0"])
def test_every_name_of_an_error_makes_an_exception(name):
    link = Link()
    link.tell(messages.Refused(request=1, error=name, reason="because of this"))
    with pytest.raises(SightglassError, match="because of this"):
        link.pending.result()
    assert link.connection.n_failures == 0


@pytest.mark.parametrize("lease_s", [0.0, -1.0, -math.inf, math.nan, 1e-300])
def test_a_lease_without_a_length_does_not_keep_the_client_busy(lease_s):
    link = Link()
    rest_s = link.tell(messages.Welcome(version=1, run="job", id="abc", may_command=True, lease_s=lease_s))
    assert rest_s is not None
    assert rest_s >= MIN_PING_S
