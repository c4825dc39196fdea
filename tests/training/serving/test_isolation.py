"""An internal error costs the request, stream or client that it came from, and nobody else anything."""

from __future__ import annotations

import pytest

from sightglass.protocol import messages
from sightglass.protocol.transport import MemoryListener
from sightglass.query.parser import parse
from sightglass.storage.read.recording import Recording
from sightglass.training.evaluation.telemetry import Telemetry
from sightglass.training.recorder import Recorder
from sightglass.training.serving import client_service, client_subscriptions
from sightglass.training.serving.client_service import ClientService
from sightglass.training.serving.io_loop import IoLoop

A, B = b"a", b"b"

pytestmark = [pytest.mark.smoke, pytest.mark.filterwarnings("ignore:Run 'job'", "ignore:sightglass-io")]


def fail(*_, **__):
    raise ZeroDivisionError("a bug")


def seen_by_another(bench, peer=B, query="batch.loss"):
    """Check that another client is still served."""
    stream = bench.open(peer, query, request=9)
    bench.observe("batch", loss=0.5)
    assert bench.values(peer, stream)[-1] == 0.5


def test_a_request_that_fails_is_refused_and_its_client_stays(service_bench, monkeypatch):
    d = service_bench()
    d.hello(A, B)
    stream = d.open(A, "batch.loss")
    with monkeypatch.context() as patch:
        patch.setattr(client_subscriptions, "Evaluation", fail)
        (refused,) = d.say(A, messages.Open(request=3, query="batch.x"))
    reason = "An internal error of the run: ZeroDivisionError: a bug"
    assert refused == messages.Refused(request=3, error="RefusedError", reason=reason)
    seen_by_another(d)
    assert d.values(A, stream) == [0.5]
    (described,) = d.ask(A, "describe")["failures"].items()
    assert described == ("Run 'job'", "1; the last: A request of 'a' failed: ZeroDivisionError: a bug")
    assert {info["n_failures"] for info in d.ask(B, "statistics")} == {1}


def test_a_message_that_fails_and_wants_no_answer_costs_its_client(service_bench, monkeypatch):
    d = service_bench()
    d.hello(A, B)
    d.open(A, "batch.loss")
    with monkeypatch.context() as patch:
        patch.setattr(client_subscriptions.ClientSubscriptions, "close", fail)
        answers = d.say(A, messages.Close(stream=1))
        assert [type(answer) for answer in answers] == [messages.Refused]
    assert A not in d.service.clients
    seen_by_another(d)


def test_a_stream_that_cannot_be_sent_ends_alone(service_bench, monkeypatch):
    d = service_bench()
    d.hello(A, B)
    bad, good = d.open(A, "batch.x", 1), d.open(A, "batch.loss", 2)
    encode = messages.encode_blocks
    monkeypatch.setattr(messages, "encode_blocks", lambda n, rows: fail() if n == bad else encode(n, rows))
    d.observe("batch", x=1.0, loss=2.0)
    assert d.values(A, good) == [2.0]
    (ended,) = [message for message in d.sent[A] if isinstance(message, messages.Ended)]
    assert (ended.stream, ended.error, ended.reason) == (bad, "ZeroDivisionError", "a bug")
    seen_by_another(d)
    assert d.service.failures.n == 1


def test_a_question_that_fails_is_refused(service_bench, monkeypatch):
    d = service_bench()
    d.hello(A, B)
    with monkeypatch.context() as patch:
        patch.setattr(client_service.describe, "run", fail)
        (refused,) = d.say(A, messages.Ask(request=4, what="describe"))
    assert (refused.request, refused.reason) == (4, "ZeroDivisionError: a bug")
    assert d.ask(A, "describe")["name"] == "job"


def test_a_loop_that_starts_over_drops_its_clients_and_still_records(clock, tmp_path, monkeypatch):
    telemetry, listener = Telemetry(clock=clock, budget=None), MemoryListener()
    recorder = Recorder(lambda: tmp_path, rank=0, clock=clock)
    service = ClientService(telemetry, run="job", id="abc", clock=clock, functions={}, recorder=recorder)
    loop = IoLoop(listener, service, clock=clock, worker=lambda *_, **__: Still())

    def client():
        channel = listener.connect()
        channel.send(messages.encode(messages.Hello(version=messages.VERSION, client="c")))
        channel.send(messages.encode(messages.Open(request=1, query="batch.loss")))
        loop.round(clock.now_s)
        return channel

    def heard(channel):
        return [messages.decode_from_run(frames)[0] for frames in channel.receive()]

    recorded = service.record(parse("batch.loss"))
    first = client()
    assert [type(message) for message in heard(first)] == [messages.Welcome, messages.Opened]
    telemetry.events.observe("batch", {"loss": "1" * 10**6})
    loop.round(clock.now_s)
    assert [type(message) for message in heard(first)] == [messages.Block]
    assert recorded.cost.sent_s == 0.0, "a client that reads a recorded query does not end the recording"
    telemetry.events.observe("batch", {"loss": 1.0})
    loop.reset()
    assert heard(first) == [messages.Bye(reason=messages.RESTARTED)]
    assert len(service.clients) == 0
    second = client()
    telemetry.events.observe("batch", {"loss": 2.0})
    loop.round(clock.now_s)
    kinds = [type(message) for message in heard(second)]
    assert kinds[:2] == [messages.Welcome, messages.Opened]
    assert messages.Block in kinds
    telemetry.close()
    recorder.close(30.0)
    with Recording(tmp_path) as recording:
        (key,) = recording.keys()
        assert recording.series(key).columns().values == ["1" * 10**6, 1.0, 2.0]


class Still:
    """A worker that does nothing by itself."""

    supervised = None

    def wake(self):
        pass

    def close(self, timeout_s):
        pass
