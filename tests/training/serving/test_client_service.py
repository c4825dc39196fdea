"""The service as a pure state machine: messages in, messages out, never a socket, and a clock that is moved by hand."""

from __future__ import annotations

import re
import threading

import numpy as np
import pytest
from tests.waiting import PATIENCE_S

from sightglass.core import codec
from sightglass.core.columns import of_rows
from sightglass.protocol import messages
from sightglass.training.controls import Action, BoundControl, Control
from sightglass.training.evaluation.cost import SEND_NS, USUAL_SEND_S
from sightglass.training.evaluation.events import MAX_MISSED
from sightglass.training.options import Limits
from sightglass.training.serving import client_subscriptions, describe
from sightglass.training.serving.client_subscriptions import MAX_STREAMS, consecutive
from sightglass.training.serving.clients import LEASE_S

pytestmark = pytest.mark.smoke

A, B, C = b"a", b"b", b"c"


def refused(answers):
    """Return the one refusal among messages."""
    (message,) = answers
    assert isinstance(message, messages.Refused), message
    return message.error, message.reason


# Meeting


def test_a_hello_is_welcomed(service_bench):
    welcome = messages.Welcome(version=messages.VERSION, run="job", id="abc", may_command=True, lease_s=LEASE_S)
    assert service_bench().say(A, messages.Hello(version=messages.VERSION, client="me")) == [welcome]


def test_another_version_is_refused(service_bench):
    reason = f"Expected protocol version {messages.VERSION}, got 99: use the same version of sightglass on both sides"
    d = service_bench()
    assert refused(d.say(A, messages.Hello(version=99, client="me"))) == ("RefusedError", reason)
    assert len(d.service.clients) == 0


@pytest.mark.parametrize(("opens", "pace_s", "expected_s"), [(False, 0.02, 0.5), (True, 0.02, 0.02), (False, 0.0, 0.0)])
def test_a_client_without_streams_sets_no_pace_unless_it_wants_all_at_once(service_bench, opens, pace_s, expected_s):
    d = service_bench()
    for peer, allowed_s in ((A, 0.5), (B, pace_s)):
        d.say(peer, messages.Hello(version=messages.VERSION, client="c", pace_s=allowed_s))
    d.say(A, messages.Open(request=1, query="batch.loss"))
    if opens:
        d.say(B, messages.Open(request=1, query="batch.loss"))
    assert d.service.clients.pace_s == expected_s


def test_a_client_changes_its_pace_with_a_ping(service_bench):
    d = service_bench()
    d.say(A, messages.Hello(version=messages.VERSION, client="c", pace_s=0.5))
    d.say(A, messages.Open(request=1, query="batch.loss"))
    for sent, expected_s in ((0.1, 0.1), (None, 0.1), (9.0, 1.0), (-1.0, 0.0), (float("nan"), 0.0)):
        assert d.say(A, messages.Ping(pace_s=sent)) == [messages.Ping()]
        assert d.service.clients.pace_s == expected_s


def test_a_client_that_did_not_say_hello_is_refused(service_bench):
    answer = service_bench().say(A, messages.Ping())
    assert refused(answer)[0] == "RefusedError"
    assert "hello first" in refused(answer)[1]


def test_clients_are_bounded(service_bench, monkeypatch):
    monkeypatch.setattr("sightglass.training.serving.client_service.MAX_CLIENTS", 2)
    d = service_bench()
    d.hello(A, B)
    answer = d.say(b"c", messages.Hello(version=messages.VERSION, client="c"))
    assert refused(answer) == ("RefusedError", "Expected at most 2 clients, got more")
    assert isinstance(d.say(A, messages.Hello(version=messages.VERSION, client="again"))[0], messages.Welcome)


def test_streams_of_a_client_are_bounded(service_bench):
    d = service_bench()
    d.hello(A)
    for i in range(MAX_STREAMS):
        d.open(A, f"on('batch').map(lambda e: e.loss + {i})")
    answer = d.say(A, messages.Open(request=1, query="batch.loss"))
    assert refused(answer)[0] == "RefusedError"
    assert f"{MAX_STREAMS} streams" in refused(answer)[1]


# Leases


def test_a_lease_that_ends_frees_its_streams_and_their_cost(service_bench, clock):
    calls = []
    d = service_bench(functions={"spy": lambda x: calls.append(x) or x})
    d.hello(A, B)
    d.open(A, "spy(batch.loss)")
    d.observe("batch", loss=1.0)
    clock.pass_(LEASE_S)
    d.say(B, messages.Ping())
    d.tick()
    assert set(d.service.clients.peers) == {A, B}
    clock.pass_(0.001)
    d.tick()
    assert set(d.service.clients.peers) == {B}
    assert d.sent[A][-1] == messages.Bye(reason="lease ended")
    d.observe("batch", loss=2.0)
    assert calls == [1.0]
    assert d.telemetry.subscriptions.active == {}
    assert "batch" in d.telemetry.subscriptions.idle


@pytest.mark.parametrize(
    "message", [messages.Ping(), messages.Ask(request=1, what="statistics"), messages.Close(stream=99)]
)
def test_any_message_renews_the_lease(service_bench, clock, message):
    d = service_bench()
    d.hello(A)
    clock.pass_(LEASE_S - 1)
    d.say(A, message)
    clock.pass_(LEASE_S - 1)
    d.tick()
    assert A in d.service.clients


def test_a_goodbye_frees_at_once(service_bench):
    d = service_bench()
    d.hello(A)
    d.open(A, "batch.loss")
    d.say(A, messages.Bye())
    assert (d.service.clients.peers, d.telemetry.subscriptions.active) == ([], {})


def test_all_clients_get_the_end_of_the_run(service_bench):
    d = service_bench()
    d.hello(A, B)
    stream = d.open(A, "batch.loss")
    d._take(d.service.end("the run has ended"))
    ended, bye = d.sent[A][-2:]
    assert (ended.stream, ended.error, bye) == (stream, "", messages.Bye(reason="the run has ended"))
    assert codec.decode(ended.counts)["query"] == "on('batch').map(lambda batch: batch.loss)"
    assert d.sent[B] == [messages.Bye(reason="the run has ended")]


# Streams


def test_equal_queries_are_evaluated_once(service_bench):
    calls = []
    d = service_bench(functions={"spy": lambda x: calls.append(x) or x})
    d.hello(A, B)
    texts = (
        "on('batch').map(lambda b: spy(b.loss))",
        "spy(batch.loss)",
        "on('batch').map(lambda other: spy(other.loss))",
    )
    streams = {d.open(peer, text) for peer, text in zip((A, B, B), texts, strict=True)}
    for i in range(3):
        d.observe("batch", loss=float(i))
    (stream,) = streams
    assert calls == [0.0, 1.0, 2.0]
    assert d.values(A, stream) == d.values(B, stream) == [0.0, 1.0, 2.0]
    d.say(A, messages.Close(stream=stream))
    d.observe("batch", loss=3.0)
    assert (d.values(A, stream), d.values(B, stream)) == ([0.0, 1.0, 2.0], [0.0, 1.0, 2.0, 3.0])
    d.say(B, messages.Close(stream=stream))
    d.observe("batch", loss=4.0)
    assert len(calls) == 4


def test_a_late_equal_query_gets_the_records_of_before_first(service_bench):
    d = service_bench()
    d.hello(A, B)
    stream = d.open(A, "batch.loss")
    for i in range(1_500):
        d.observe("batch", loss=float(i))
    assert len(d.values(A, stream)) == 1_500
    d.observe("batch", loss=1_500.0)
    assert d.open(B, "batch.loss") == stream
    d.observe("batch", loss=1_501.0)
    assert d.values(B, stream) == [float(i) for i in range(1_502)]
    assert d.values(A, stream) == [float(i) for i in range(1_502)]


def test_a_controller_is_told_once_how_to_keep_what_comes(service_bench):
    d = service_bench()
    d.hello(A, B)
    d.observe("batch", loss=0.0)

    def late(client, query):
        (opened,) = d.say(client, messages.Open(request=3, query=query))
        return opened.late

    assert late(A, "batch.loss") == ", when you asked; run.record('batch.loss') keeps what comes"
    assert late(A, "batch.loss.mean(every=2)") == late(A, "batch.loss + 1") == ", when you asked"
    assert late(B, "batch.loss + 2") == ", when you asked; run.record('batch.loss + 2') keeps what comes"


def test_those_for_whom_a_client_reads_a_stream_share_as_clients_do(service_bench):
    d = service_bench()
    d.hello(A, B)
    d.observe("batch", loss=0.0)
    shared, own = d.open(A, "batch.loss"), d.open(B, "batch.loss * 2")
    [user], [other] = ({holder[0] for holder in subscription(d, one).holders} for one in (shared, own))
    d.say(A, messages.Readers(stream=shared, names=("one", "two")))
    d.say(A, messages.Readers(stream=own, names=("somebody else's",)))
    assert subscription(d, shared).holders == ((user, A + b"/one"), (user, A + b"/two"))
    assert subscription(d, own).holders == ((other, B),)
    d.say(A, messages.Readers(stream=shared, names=tuple(map(str, range(1_000)))))
    assert len(subscription(d, shared).holders) == client_subscriptions.MAX_READERS
    d.say(A, messages.Readers(stream=shared))
    assert subscription(d, shared).holders == ((user, A),)
    d.say(A, messages.Readers(stream=shared, names=("one",)))
    d.say(A, messages.Close(stream=shared))
    assert d.open(A, "batch.loss") != shared or subscription(d, shared).holders == ((user, A),)


def subscription(d, number):
    return d.service._telemetry.subscriptions.active[number]


def test_an_unknown_event_is_noted_and_waited_for(service_bench):
    d = service_bench()
    d.hello(A)
    d.observe("batch", loss=0.0)
    (opened,) = d.say(A, messages.Open(request=3, query="bacth.loss"))
    note = "Unknown event 'bacth' so far. Did you mean 'batch'? Known: batch. Waiting for the first."
    assert opened == messages.Opened(request=3, stream=opened.stream, tag="bacth.loss", note=note, index=0)
    d.observe("bacth", loss=1.0)
    assert d.values(A, opened.stream) == [1.0]


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("batch.", "QuerySyntaxError"),
        ("on('batch').map(lambda b: __import__('os'))", "QuerySyntaxError"),
        ("on('batch').map(lambda b: b.__class__)", "RefusedQueryError"),
        ("on('batch').map(lambda b: nothing(b.loss))", "QuerySyntaxError"),
        ("on('batch').map(lambda b: b.loss).mean(every=0)", "QueryError"),
        ("(" * 10_000, "QuerySyntaxError"),
        ("\0", "QuerySyntaxError"),
        ("", "QuerySyntaxError"),
    ],
)
def test_what_is_no_query_is_refused(service_bench, query, error):
    d = service_bench()
    d.hello(A)
    kind, reason = refused(d.say(A, messages.Open(request=1, query=query)))
    assert kind in (error, "QuerySyntaxError", "RefusedQueryError", "QueryError")
    assert reason
    assert A in d.service.clients


def test_a_query_that_fails_three_times_ends_with_the_reason(service_bench):
    d = service_bench()
    d.hello(A, B)
    stream = d.open(A, "batch.los")
    d.open(B, "batch.los")
    for step in range(5):
        d.observe("batch", step=step, loss=1.0)
    d.flush()
    for peer in (A, B):
        ended = d.sent[peer][-1]
        assert (ended.stream, ended.error) == (stream, "EvaluationError")
        assert re.search("'los' at event 'batch'.*'loss'.*step 2", ended.reason)
        assert codec.decode(ended.counts)["n_errors"] == 3
        assert d.service.clients[peer].streams == set()
    assert d.telemetry.subscriptions.active == {}
    assert d.open(A, "batch.los") != stream


def test_values_that_cannot_travel_end_the_stream_with_a_reason(service_bench):
    d = service_bench()
    d.hello(A)
    stream, other = d.open(A, "batch.thing"), d.open(A, "batch.loss")
    d.observe("batch", thing=object(), loss=1.0)
    d.flush()
    ended = next(message for message in d.sent[A] if isinstance(message, messages.Ended))
    assert (ended.stream, ended.error) == (stream, "UnsendableError")
    assert re.match("batch.thing: an object .*at event 'batch', step 0", ended.reason)
    assert d.values(A, other) == [1.0]


@pytest.mark.parametrize(
    "value",
    [{str(i): np.zeros(600) for i in range(700)}, {str(i): np.zeros(500) for i in range(500)}, "x" * 2_000_000],
    ids=["many buffers", "large header", "long texts"],
)
def test_blocks_keep_within_the_limits_of_a_message(service_bench, value):
    d = service_bench()
    d.hello(A)
    stream = d.open(A, "batch.x")
    for _ in range(10):
        d.observe("batch", x=value)
    assert len(d.values(A, stream)) == 10


def test_a_value_too_large_for_any_message_ends_the_stream(service_bench):
    d = service_bench()
    d.hello(A)
    d.say(A, messages.Open(request=1, query="batch.x", confirm=True))  # so many parts exceed the limit of an event
    d.observe("batch", x={str(i): np.zeros(600) for i in range(5_000)})
    d.flush()
    assert "4096 frames, got 5001" in d.sent[A][-1].reason


def test_a_stream_is_charged_for_encoding_and_for_the_bytes_of_each_client(service_bench, clock, monkeypatch):
    encode = messages.encode_blocks

    def encode_slowly(stream, columns):
        clock.work(0.03)
        return encode(stream, columns)

    monkeypatch.setattr(messages, "encode_blocks", encode_slowly)
    d = service_bench()
    d.hello(A, B)
    text, loss = d.open(A, "batch.text"), d.open(A, "batch.loss", 2)
    d.open(B, "batch.text")
    d.observe("batch", text="a" * 10**7, loss=0.5)
    d.flush()
    costs = [d.telemetry.subscriptions.active[stream].cost for stream in (text, loss)]
    expected_s = 0.03 - USUAL_SEND_S
    assert costs[0].sent_s == pytest.approx(expected_s + 2 * 10**7 * SEND_NS / 1e9, rel=1e-3)
    assert costs[1].sent_s == pytest.approx(expected_s, rel=1e-3)
    assert costs[0].charge_sent() == costs[0].spent_s == costs[0].sent_s
    assert costs[0].charge_sent() == 0.0


def test_a_late_query_sees_the_snapshot(service_bench):
    d = service_bench()
    d.hello(A, B)
    x = np.arange(3.0)
    d.observe("init", x=x, snapshot=True)
    x[:] = 9
    for peer in (A, B):
        assert d.values(peer, d.open(peer, "on('init').map(lambda e: e.x.sum())")) == [3.0]


# The client's flag B


SUM = "on('batch').map(lambda e: e.loss).sum()"


def test_end_group_of_the_only_subscriber(service_bench):
    d = service_bench()
    d.hello(A, B)
    stream = d.open(A, SUM)
    d.observe("batch", loss=1.0)
    (reply,) = d.say(A, messages.EndGroup(request=9, stream=stream))
    assert (reply.request, codec.decode(reply.value)) == (9, stream)
    d.observe("batch", loss=2.0)
    assert d.values(A, stream) == [1.0]
    other = d.open(B, SUM)
    assert other != stream
    d.observe("batch", loss=4.0)
    d.telemetry.events.end_group("batch")
    assert (d.values(A, stream), d.values(B, other)) == ([1.0, 6.0], [4.0])


def test_end_group_parts_a_shared_stream(service_bench):
    d = service_bench()
    d.hello(A, B)
    stream = d.open(A, SUM)
    d.open(B, SUM)
    d.observe("batch", loss=1.0)
    moved, reply = d.say(A, messages.EndGroup(request=9, stream=stream))
    assert moved == messages.Moved(stream=stream, to=codec.decode(reply.value))
    d.observe("batch", loss=2.0)
    d.telemetry.events.end_group("batch")
    assert (d.values(A, moved.to), d.values(B, stream), d.values(A, stream)) == ([1.0, 2.0], [3.0], [])
    assert [message.index for message in d.sent[A] if hasattr(message, "values")] == [0]


@pytest.mark.parametrize(
    ("query", "error", "reason"),
    [
        ("batch.loss", "QueryError", "Expected a reducer without a named window to close, got "),
        ("on('batch').map(lambda e: e.loss).mean(every=5)", "QueryError", "Expected a reducer without a named window"),
    ],
)
def test_end_group_without_such_a_group_is_refused(service_bench, query, error, reason):
    d = service_bench()
    d.hello(A, B)
    stream = d.open(A, query)
    refusal = refused(d.say(A, messages.EndGroup(request=9, stream=stream)))
    assert (refusal[0], refusal[1][: len(reason)]) == (error, reason)
    refusal = refused(d.say(B, messages.EndGroup(request=9, stream=stream)))
    assert refusal[0] == "RefusedError"
    assert refusal[1].endswith(f"got {stream}")


# Commands


def test_a_command_waits_and_is_acknowledged(service_bench):
    d = service_bench()
    d.hello(A)
    d.telemetry.commands.queue.controls["lr"] = Control("lr", 0.1)
    (waiting,) = d.command(A, "set", "lr", 0.5)
    assert re.search("next event of .*'job'", waiting.note)
    (waiting,) = d.command(A, "set", "lr", 0.25, at="epoch")
    assert re.search("next event 'epoch' of .*'job'", waiting.note)
    d.observe("batch", step=4)
    d.flush()
    reply = codec.decode(d.sent[A][-1].value)
    assert (reply["event"], reply["step"], reply["old"], reply["result"]) == ("batch", 4, 0.1, 0.5)
    history = d.ask(A, "history")
    assert [(entry["kind"], entry["name"], entry["value"]) for entry in history] == [("set", "lr", 0.5)]


def test_a_client_learns_where_its_stream_begins(service_bench):
    d = service_bench(limits=Limits(max_backlog_records=8))
    d.hello(A, B)
    opened = d.say(A, messages.Open(request=1, query="batch.loss"))[0]
    assert opened.index == 0
    for i in range(50):
        d.observe("batch", loss=float(i))
    assert d.say(B, messages.Open(request=1, query="batch.loss"))[0].index == 0  # nothing was sent so far
    d.flush()
    d.observe("batch", loss=50.0)
    opened, backlog = d.say(A, messages.Open(request=2, query="batch.loss"))
    assert (opened.index, backlog.index, backlog.n <= 8) == (0, 0, True)
    assert (len(backlog.indexes), backlog.indexes[-1]) == (backlog.n, 49)


def test_the_backlogs_of_all_streams_are_bounded_together(service_bench, monkeypatch):
    limit, row = 2**20, np.ones(20_000)
    monkeypatch.setattr(client_subscriptions, "MAX_BACKLOGS_BYTES", limit)
    d = service_bench()
    d.hello(A, B)
    for i in range(20):
        d.open(A, f"batch.x * {i}")
    d.open(A, "batch.loss")
    for i in range(100):
        d.observe("batch", loss=float(i), x=row)
        d.flush()
        held = sum(one.records.n_bytes for one in d.service._subscriptions._backlogs.values())
        assert held <= limit
    assert held > limit / 4
    _, *backlog = d.say(B, messages.Open(request=1, query="batch.loss"))
    assert [value for block in backlog for value in block.values] == list(range(100))
    _, *backlog = d.say(B, messages.Open(request=2, query="batch.x * 3"))
    assert sum(block.n for block in backlog) < 10


def test_a_command_that_arrives_again_is_ignored(service_bench):
    d = service_bench()
    d.hello(A)
    applied: list[int] = []
    d.telemetry.commands.queue.actions["note"] = Action("note", applied.append)
    first, second = (
        messages.RunCommand(request=number, kind="call", name="note", value=codec.encode([number])[0])
        for number in (8, 9)
    )
    assert [len(d.say(A, message)) for message in (first, first, second, first)] == [1, 0, 1, 0]
    d.observe("batch")
    d.hello(A)  # after a lease, say
    assert d.say(A, second) == []
    d.observe("batch")
    assert applied == [8, 9]


def test_commands_of_the_threads_of_a_client_may_overtake_each_other(service_bench):
    d = service_bench()
    d.hello(A)
    applied: list[int] = []
    d.telemetry.commands.queue.actions["note"] = Action("note", applied.append)
    for number in (9, 8, 9, 7, 8):
        d.say(A, messages.RunCommand(request=number, kind="call", name="note", value=codec.encode([number])[0]))
    d.observe("batch")
    assert applied == [9, 8, 7]


def test_viewers_may_not_command(service_bench):
    d = service_bench()
    d.hello(A, may_command=False)
    reason = "Expected a controller's key to stop; a viewer's key is read-only"
    assert refused(d.command(A, "stop", may_command=False)) == ("RefusedError", reason)


def test_viewers_may_not_confirm_a_price(service_bench):
    d = service_bench()
    d.observe("batch", loss=1.0)
    d.telemetry.subscriptions.sources["batch"].price = "It stops the run."
    d.hello(A, may_command=False)
    d.hello(B)
    ask, confirm = (messages.Open(request=1, query="batch.loss", confirm=on) for on in (False, True))
    text = "It stops the run. Only a controller's key can confirm it to go on"
    assert refused(d.say(A, ask, may_command=False)) == ("UnconfirmedError", text)
    kind, reason = refused(d.say(A, confirm, may_command=False))
    assert kind == "RefusedError"
    assert "controller's key" in reason
    kind, reason = refused(d.say(B, ask))
    assert kind == "UnconfirmedError"
    assert re.match(r"It stops the run\. .*confirm=True", reason)
    assert isinstance(d.say(B, confirm)[0], messages.Opened)
    assert isinstance(d.say(A, ask, may_command=False)[0], messages.Opened)  # it is open already, and costs no more


def test_commands_are_refused_with_the_reason_of_the_process(service_bench):
    d = service_bench(refuse_commands=lambda: "Commands are refused here")
    d.hello(A)
    assert refused(d.command(A, "stop")) == ("RefusedError", "Commands are refused here")


@pytest.mark.parametrize(
    ("kind", "name", "error", "reason"),
    [
        ("fly", "", "RefusedError", "Unknown command 'fly'."),
        ("set", "lrr", "CommandError", "Unknown control 'lrr'."),
        ("call", "save", "CommandError", "Unknown action 'save'."),
        ("set", "lr", "CommandError", "Control 'lr': expected float, got NoneType None"),
    ],
)
def test_commands_that_cannot_succeed_are_refused(service_bench, kind, name, error, reason):
    d = service_bench()
    d.hello(A)
    d.telemetry.commands.queue.controls["lr"] = Control("lr", 0.1)
    refusal = refused(d.command(A, kind, name))
    assert (refusal[0], refusal[1][: len(reason)]) == (error, reason)


@pytest.mark.parametrize("value", [10**400, [1, 2], {"a": 1}, np.arange(5), "x" * 100_000])
def test_values_of_any_kind_are_refused_by_a_control(service_bench, value):
    d = service_bench()
    d.hello(A)
    d.telemetry.commands.queue.controls["lr"] = Control("lr", 0.1)
    assert refused(d.command(A, "set", "lr", value))[0] == "CommandError"


def test_results_that_cannot_be_sent_are_replaced_by_text(service_bench):
    d = service_bench()
    d.hello(A)
    d.telemetry.commands.queue.actions["make"] = Action("make", lambda: {1, 2})
    d.command(A, "call", "make", [])
    d.observe("batch")
    d.flush()
    assert codec.decode(d.sent[A][-1].value)["result"] == "{1, 2}"
    assert d.ask(A, "history")[0]["result"] == "{1, 2}"


def test_a_client_that_left_gets_no_result(service_bench):
    d = service_bench()
    d.hello(A)
    d.telemetry.commands.queue.controls["lr"] = Control("lr", 0.1)
    d.command(A, "set", "lr", 0.5)
    d.say(A, messages.Bye())
    n = len(d.sent[A])
    d.observe("batch")
    d.flush()
    assert len(d.sent[A]) == n
    assert d.telemetry.commands.queue.controls["lr"].value == 0.5


def test_a_lease_that_ends_lifts_the_pause_of_its_client(service_bench, clock):
    d = service_bench()
    d.hello(A)
    d.command(A, "pause", at="never")
    assert len(d.telemetry.commands.queue.pending) == 1
    clock.pass_(LEASE_S + 1)
    d.tick()
    assert d.telemetry.commands.queue.pending == []


# Publishing


def block(number, value, n=1, index=0):
    rows = [(i, i, 5.0, value, None, i) for i in range(index, index + n)]
    frames = messages.encode_block(number, of_rows(rows))
    message, buffers = messages.decode_from_client(frames)
    return message, buffers


def test_what_is_published_is_an_event_of_the_run(service_bench):
    d = service_bench()
    d.hello(A, B)
    (reply,) = d.say(A, messages.Publish(request=4, event="best"))
    assert codec.decode(reply.value) == 1
    stream = d.open(B, "on('best').map(lambda e: (e.value, e.source, e.step, e.wall_time))")
    assert d.say(A, *block(1, 2.5, n=2)) == []
    assert d.values(B, stream) == [(2.5, "a", 0, 5.0), (2.5, "a", 1, 5.0)]


def test_published_records_that_arrive_again_are_left_out(service_bench):
    d = service_bench()
    d.hello(A, B)
    stream = d.open(B, "on('best').map(lambda e: e.step)")
    for message in (messages.Publish(request=4, event="best"), messages.Publish(request=4, event="best")):
        d.say(A, message)
        for n in (2, 2, 3):
            assert d.say(A, *block(1, 2.5, n=n)) == []
    assert d.values(B, stream) == [0, 1, 2]


def test_published_records_that_are_missing_are_a_gap_in_the_streams_of_their_event(service_bench):
    d = service_bench()
    d.hello(A, B)
    plain = d.open(B, "best.value")
    windows = d.open(B, "best.value.count(every=4)")
    (reply,) = d.say(A, messages.Publish(request=4, event="best"))
    number = codec.decode(reply.value)
    d.say(A, *block(number, 2.5, n=3))  # records 0, 1, 2
    d.service.leave(A)  # the connection is lost, with records 3 to 6 on their way
    d.hello(C)
    (reply,) = d.say(C, messages.Publish(request=9, event="best", stream=number))
    assert codec.decode(reply.value) == number
    d.say(C, *block(number, 2.5, n=2, index=7))
    d.say(C, *block(number, 2.5, n=4, index=5))  # one that comes late, or twice
    assert [index for found in d.blocks(B, plain) for index in found.indexes] == [0, 1, 2, 7, 8]
    (counted,) = (found.columns.records(tag="", run="") for found in d.blocks(B, windows))
    assert [(record.value, record.complete) for record in counted] == [(3, False), (1, False)]


def test_a_publication_that_the_run_does_not_know_begins_with_its_first_record(service_bench):
    d = service_bench()
    d.hello(A, B)
    stream = d.open(B, "best.value")
    for number, event in ((99, "best"), (1, "other")):  # forgotten, or another one
        (reply,) = d.say(A, messages.Publish(request=4, event=event, stream=number))
        assert codec.decode(reply.value) != number
    d.say(A, *block(1, 2.5, index=2**40))
    d.say(A, *block(1, 2.5, index=2**41))  # the run does not count for hours
    assert [block.index for block in d.blocks(B, stream)] == [0, 1 + MAX_MISSED]


def test_an_event_of_the_run_cannot_be_published(service_bench):
    d = service_bench()
    d.hello(A)
    d.observe("batch", loss=1.0)
    refusal = refused(d.say(A, messages.Publish(request=4, event="batch")))
    assert refusal[0] == "RefusedError"
    assert refusal[1].startswith("Event 'batch' comes from observe ")


def test_the_runs_own_event_displaces_a_published_one(service_bench):
    d = service_bench()
    d.hello(A, B)
    stream = d.open(B, "batch.loss")
    for event in ("batch", "log"):
        (reply,) = d.say(A, messages.Publish(request=4, event=event))
    d.observe("batch", loss=1.0)
    d.telemetry.events.log({"a": 1}, None, {})
    d.observe("batch", loss=2.0)
    refusal = refused(d.say(A, *block(codec.decode(reply.value), 2.5)))
    assert refusal[0] == "RefusedError"
    assert refusal[1].startswith("Event 'log' comes from log ")
    assert A in d.service.clients
    assert d.values(B, stream) == [1.0, 2.0]


def test_records_of_nothing_published_are_refused(service_bench):
    d = service_bench()
    d.hello(A)
    assert refused(d.say(A, *block(4, 2.5)))[1].endswith("number 4")
    assert d.say(A, messages.Ping()) == []


# What needs no event


def test_describe(service_bench):
    def save():
        """Save it now."""

    d = service_bench(functions={"norm2": save})
    d.hello(A)
    d.observe("batch", loss=1.5, grads={"dense": np.zeros((2, 3), np.float32)})
    d.observe("init", snapshot=True, note="hello")
    d.telemetry.commands.queue.controls["lr"] = Control(
        "lr", 0.1, min=0.0, max=1.0, choices=[0.1, 0.2], where="train.py:3"
    )
    d.telemetry.commands.queue.actions["save"] = Action("save", save, where="train.py:4")
    stream = d.open(A, "batch.loss")
    d.observe("batch", loss=2.5)
    description = d.ask(A, "describe")
    assert (description["name"], description["id"], description["state"], description["n_clients"]) == (
        "job",
        "abc",
        "running",
        1,
    )
    assert description["events"]["batch"]["n_events"] == 2
    loss = description["events"]["batch"]["observables"]["loss"]
    assert loss == {"type": "float", "example": "1.5", "fields": {}, "step": 0}
    assert description["events"]["batch"]["observables"]["grads"]["fields"] == {"dense": "float32[2, 3]"}
    assert description["events"]["init"]["snapshot"] is True
    bounds = {"min": 0.0, "max": 1.0, "choices": (0.1, 0.2)}
    assert description["controls"]["lr"] == {"type": "float", "value": 0.1, **bounds, "where": "train.py:3"}
    save = {"doc": "Save it now.", "where": "train.py:4", "signature": "()", "parameters": []}
    assert description["actions"] == {"save": save}
    assert description["functions"] == {"norm2": "Save it now."}
    (entry,) = description["streams"]
    assert (entry["stream"], entry["query"], entry["clients"], entry["n_records"]) == (
        stream, "on('batch').map(lambda batch: batch.loss)", ["a"], 1,
    )  # fmt: skip
    d.observe("batch", loss=3.5)
    assert d.ask(A, "describe")["events"]["batch"]["observables"]["loss"]["example"] == "3.5"
    d.telemetry.commands.queue.stopping = True
    assert d.ask(A, "describe")["state"] == "stopping"
    assert d.ask(A, "statistics")[0]["n_events"] == 2


class Moody:
    """An object whose attribute cannot always be read."""

    def __init__(self):
        self.n = 0

    @property
    def value(self):
        if self.n:
            raise RuntimeError("not now")
        return 0.5

    @value.setter
    def value(self, value):
        pass


def test_describe_survives_bound_controls_of_any_kind(service_bench):
    d = service_bench()
    d.hello(A)
    moody, group = Moody(), {"lr": 0.1}
    d.telemetry.commands.queue.controls["moody"] = BoundControl("moody", (moody, "value"))
    d.telemetry.commands.queue.controls["lr"] = BoundControl("lr", (group, "lr"))
    moody.n, group["lr"] = 1, object
    controls = d.ask(A, "describe")["controls"]
    assert (controls["moody"]["value"], controls["lr"]["value"]) == (None, "<class 'object'>")


def test_an_unknown_question_is_refused(service_bench):
    d = service_bench()
    d.hello(A)
    reason = "Unknown question 'stats'. Did you mean 'statistics'? Known: describe, history, statistics."
    assert refused(d.say(A, messages.Ask(request=1, what="stats"))) == ("RefusedError", reason)


def test_the_commands_of_a_client_share_their_texts_in_the_history(service_bench):
    d = service_bench()
    d.hello(A)
    d.telemetry.commands.queue.actions["double"] = Action("double", lambda n: 2 * n)
    for n in range(2):
        d.command(A, "call", "double", [n])
        d.observe("batch")
    one, other = (entry.command for entry in d.telemetry.commands.queue.history)
    assert one.name is other.name
    assert one.client is other.client


def test_only_the_last_commands_of_a_history_are_described_if_no_more_are_asked_for(service_bench, monkeypatch):
    d = service_bench()
    d.hello(A)
    d.telemetry.commands.queue.actions["double"] = Action("double", lambda n: 2 * n)
    for n in range(20):
        d.command(A, "call", "double", [n])
        d.observe("batch")
    described = []
    monkeypatch.setattr(describe, "result", lambda entry: described.append(entry) or entry.command.value)
    for last, n_told in [(3, 3), (20, 20), (100, 20), (0, 20)]:
        described.clear()
        reply = d.say(A, messages.Ask(request=7, what="history", last=last))[-1]
        assert codec.decode(reply.value) == [[n] for n in range(20 - n_told, 20)]
        assert len(described) == n_told


@pytest.mark.parametrize(
    ("indexes", "parts"),
    [([], []), ([0, 1, 2], [[0, 1, 2]]), ([0, 2, 3, 7], [[0], [2, 3], [7]])],
)
def test_rows_are_split_where_one_is_missing(indexes, parts):
    assert [[row[0] for row in part] for part in consecutive([(i, 0, 0.0, 0, None) for i in indexes])] == parts


def test_a_viewers_key_may_not_publish(service_bench):
    d = service_bench()
    d.hello(A, may_command=False)
    d.say(A, messages.Publish(request=7, event="best"))
    reason = "Expected a controller's key to publish 'best'; a viewer's key is read-only"
    assert d.sent[A][-1] == messages.Refused(request=7, error="RefusedError", reason=reason)
    assert "best" not in d.telemetry.subscriptions.sources


def test_a_name_that_is_only_logged_is_named_where_it_is(service_bench):
    d = service_bench()
    d.hello(A)
    d.observe("epoch", n=1)
    d.telemetry.events.log({"accuracy": 0.5}, None, {})
    d.say(A, messages.Open(request=2, query="epoch.accuracy"))
    (opened,) = (m for m in d.sent[A] if isinstance(m, messages.Opened))
    assert re.search("'accuracy' at event 'epoch' .*: event, n, step. .*log.accuracy", opened.note)


def test_a_query_that_waits_or_means_something_else_says_so_at_once(service_bench):
    d = service_bench()
    d.hello(A)
    d.observe("batch", loss=1.0, x=np.ones(3))
    notes = {}
    for request, text in enumerate(
        (
            "loss",
            "batch.los",
            "on('batch').count()",
            "batch.loss.mean()",
            "batch.x.mean()",
            "batch.loss.mean(per='epcoh')",
            "batch.loss.mean(every=2)",
        ),
        2,
    ):
        d.say(A, messages.Open(request=request, query=text))
        (opened,) = (m for m in d.sent[A] if isinstance(m, messages.Opened) and m.request == request)
        notes[text] = opened.note
    assert notes == {
        "loss": "Unknown event 'loss' so far. Did you mean 'batch.loss'? Known: batch. Waiting for the first.",
        "batch.los": "Unknown observable 'los' at event 'batch' so far. Did you mean 'loss'? "
        "Known: event, loss, step, x.",
        "on('batch').count()": "Groups close at end_group('batch'), which the run has not called so far; "
        "or name a window.",
        "batch.loss.mean()": "batch.loss is a number, and mean of it a function of that number alone. "
        "For many events write batch.loss.mean(every=100).",
        "batch.x.mean()": "",
        "batch.loss.mean(per='epcoh')": "Unknown event 'epcoh' so far. Known: batch. Groups close when it happens.",
        "batch.loss.mean(every=2)": "",
    }


# Stuck


def seen(d):
    """Return the description; leases end while time passes."""
    d.hello(A)
    return d.ask(A, "describe")


def pass_time(d, seconds, *, every_s=1.0, **n_events):
    """Let time pass with so many events each time."""
    for _ in range(int(seconds / every_s)):
        for event, n in n_events.items():
            for _ in range(n):
                d.observe(event, loss=1.0)
        d.clock.pass_(every_s)
        d.tick()


def test_a_run_is_quiet_when_nothing_happens_for_ten_times_as_long_as_usual(service_bench):
    d = service_bench()
    d.observe("epoch", loss=1.0)  # once: how often it happens is not known
    pass_time(d, 20, batch=5)
    assert seen(d)["state"] == "running"
    for second in range(1, 15):
        pass_time(d, 1)
        event = seen(d)["events"]["batch"]
        assert (event["age_s"], event["interval_s"]) == (second, 0.2)
        assert (seen(d)["state"] == "quiet") == (second > 10)
    pass_time(d, 1, batch=1)
    assert seen(d)["state"] == "running"


def test_so_is_one_that_stops_after_its_first_events(service_bench):
    d = service_bench()
    pass_time(d, 1, batch=20)
    pass_time(d, 15)
    assert seen(d)["state"] == "quiet"


def test_a_slow_event_keeps_a_run_from_being_quiet_for_longer(service_bench):
    d = service_bench()
    for _ in range(4):
        pass_time(d, 60, every_s=60.0, epoch=1, batch=60)
    for minute in range(1, 13):  # an evaluation
        pass_time(d, 60, every_s=60.0)
        assert seen(d)["events"]["batch"]["age_s"] == 60.0 * minute
        assert (seen(d)["state"] == "quiet") == (minute > 10)


def test_a_pause_is_not_quiet_and_one_long_gap_is_no_usual_one(service_bench):
    d = service_bench()
    pass_time(d, 20, batch=5)
    d.telemetry.commands.queue.paused_by = A
    pass_time(d, 3_600, every_s=60.0)
    assert seen(d)["state"] == "paused"
    d.telemetry.commands.queue.paused_by = None
    pass_time(d, 1)
    assert seen(d)["state"] == "running"
    pass_time(d, 600)
    pass_time(d, 5, batch=5)
    assert seen(d)["events"]["batch"]["interval_s"] == 0.2


def test_an_event_tells_what_the_thread_works_and_the_longest_gap(service_bench):
    d = service_bench()
    for _ in range(10):
        for _ in range(5):
            d.observe("batch", loss=1.0)
        d.clock.work(0.25)
        d.clock.pass_(0.75)  # it waits
        d.tick()
    event = seen(d)["events"]["batch"]
    assert event["busy_s"] == pytest.approx(0.05)
    assert event["interval_s"] == pytest.approx(0.2)
    pass_time(d, 7)
    pass_time(d, 1, batch=1)
    event = seen(d)["events"]["batch"]
    assert event["longest_s"] == pytest.approx(8.0)
    assert event["interval_s"] == pytest.approx(0.2)


def test_stacks_are_for_controllers_and_need_no_lock(service_bench):
    d = service_bench()
    d.hello(A)
    d.hello(B, may_command=False)
    done = threading.Event()
    with d.telemetry.lock.turn():  # a thread that is stuck within an event
        other = threading.Thread(target=lambda: (done.__setattr__("threads", d.ask(A, "stacks")), done.set()))
        other.start()
        assert done.wait(PATIENCE_S)
        other.join()
    main = next(one for one in done.threads if one["main"])
    assert main["frames"][-1]["function"].endswith("wait")
    assert any(frame["function"] == "test_stacks_are_for_controllers_and_need_no_lock" for frame in main["frames"])
    assert not any(one["thread"].startswith("sightglass-") for one in done.threads)
    assert refused(d.say(B, messages.Ask(request=7, what="stacks"), may_command=False))[0] == "RefusedError"
