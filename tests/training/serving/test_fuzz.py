"""Whatever a client sends, nothing is raised, it is refused once, its sender ignored from then on, others go on."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.profiles import examples

from sightglass.core import codec
from sightglass.protocol import messages
from sightglass.training.controls import Action, Control

relaxed = settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

numbers = st.integers(-(2**63), 2**64 - 1)
plain = st.recursive(
    st.none() | st.booleans() | numbers | st.floats() | st.text(max_size=20) | st.binary(max_size=40),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5) | numbers, inner, max_size=4),
    max_leaves=12,
)
encoded = st.builds(msgspec.msgpack.encode, plain) | st.binary(max_size=60)
small = st.integers(-2, 12)
text = st.text(max_size=30) | st.sampled_from(["batch.loss", "best", "log", "on('batch').map(lambda b: b.loss).sum()"])
column = st.binary(max_size=40) | st.builds(lambda v: codec.encode(v)[0], st.lists(st.integers(0, 9), max_size=3))

any_message = st.one_of(
    st.builds(messages.Hello, version=small, client=text),
    st.builds(messages.Ping),
    st.builds(messages.Ask, request=numbers, what=text | st.sampled_from(["describe", "statistics", "history"])),
    st.builds(messages.Open, request=small, query=text),
    st.builds(messages.Close, stream=small),
    st.builds(messages.EndGroup, request=small, stream=small),
    st.builds(
        messages.RunCommand,
        request=small,
        kind=st.sampled_from(["set", "call", "stop", "resume"]) | text,
        name=st.sampled_from(["lr", "f", "x"]) | text,
        value=encoded | st.just(b""),
        at=st.none() | text,
        hold=st.booleans(),
    ),
    st.builds(messages.Publish, request=small, event=text),
    st.builds(
        messages.Block,
        stream=small,
        index=small,
        n=st.integers(-1, 3),
        steps=column,
        wall_times=column,
        values=encoded | column,
        n_events=column,
        flags=column,
        tracks=encoded,
    ),
)


@st.composite
def mutated(draw):
    """Return a valid message with some of its bytes changed, cut off or doubled."""
    raw = bytearray(messages.encode(draw(any_message))[0])
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(raw) - 1))
        raw[place] = draw(st.integers(0, 255))
    cut = draw(st.integers(0, len(raw)))
    return [bytes(raw[:cut] if draw(st.booleans()) else raw)]


frames = st.one_of(
    st.lists(st.binary(max_size=80), max_size=4),
    st.builds(lambda value: [msgspec.msgpack.encode(value)], plain),
    st.builds(
        lambda tag, rest: [msgspec.msgpack.encode([tag, *rest])],
        st.sampled_from(["hello", "ask", "open", "do", "block", "publish", "end_group"]),
        st.lists(plain, max_size=10),
    ),
    mutated(),
    st.builds(
        lambda message, extra: [*messages.encode(message), *extra],
        any_message,
        st.lists(st.binary(max_size=20), max_size=3),
    ),
)


@relaxed
@given(st.lists(frames, max_size=12))
def test_nothing_a_client_sends_raises_or_hurts_another(service_bench, sequence):
    d = service_bench(functions={"f": lambda x: x})
    d.telemetry.commands.queue.controls["lr"] = Control("lr", 0.1)
    d.telemetry.commands.queue.actions["f"] = Action("f", lambda *values: values)
    d.hello(b"good", b"bad")
    stream = d.open(b"good", "batch.loss")
    for i, one in enumerate(sequence):
        d.frames(b"bad", one)
        d.flush()
        d.tick()
        if not d.telemetry.commands.queue.paused_by:
            d.observe("batch", loss=float(i))
    d.say(b"bad", messages.Bye())
    n = len(sequence)
    assert d.values(b"good", stream) == [float(i) for i in range(n)]
    assert d.ask(b"good", "describe")["name"] == "job"
    assert isinstance(d.ask(b"good", "history"), list)


@relaxed
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=3))
def test_nonsense_is_refused_at_most_once(service_bench, nonsense):
    d = service_bench()
    d.hello(b"good", b"bad")
    first = d.frames(b"bad", nonsense)
    assert len(first) <= 1
    if first and first[0].__class__ is messages.Refused and first[0].error == "WireError":
        assert d.frames(b"bad", nonsense) == []
        assert d.say(b"bad", messages.Ping()) == []
        assert b"bad" not in d.service.clients
    assert d.say(b"good", messages.Ping()) == [messages.Ping()]


def at_length(**columns):
    whole = {"steps": b"l" + bytes(8), "wall_times": bytes(8), "values": codec.encode([1])[0]}
    return messages.Block(stream=1, index=0, n=1, **{**whole, **columns})


BAD = {
    "no frame": [],
    "too many frames": [b"\x91\xa4ping"] * (messages.MAX_FRAMES + 1),
    "a large header": [bytes(messages.MAX_HEADER_BYTES + 1)],
    "a large message": [b"\x91\xa4ping", bytes(messages.MAX_CLIENT_MESSAGE_BYTES)],
    "an unknown type": [msgspec.msgpack.encode(["shout", 1])],
    "a message of a run": messages.encode(messages.Reply(request=1, value=b"")),
    "a wrong type": [msgspec.msgpack.encode(["ask", "one", "describe"])],
    "deep nesting": [b"\x91" * 100_000],
    "values that are a mapping": messages.encode(at_length(values=codec.encode({"a": 1})[0])),
    "values without a length": messages.encode(at_length(values=codec.encode(np.zeros(()))[0])),
    "values that are a text": messages.encode(at_length(values=codec.encode("a")[0])),
    "tracks that are not mappings": messages.encode(at_length(tracks=codec.encode([1])[0])),
    "tracks that are a mapping": messages.encode(at_length(tracks=codec.encode({"a": 1})[0])),
    "half a step": messages.encode(at_length(steps=b"l123")),
    "no step": messages.encode(at_length(steps=b"")),
    "an array that is not there": messages.encode(at_length(values=codec.encode([np.zeros(1_000)])[0])),
}


@pytest.mark.parametrize("kind", BAD)
def test_malformed_messages_are_refused_once_and_their_sender_ignored(service_bench, kind):
    d = service_bench()
    d.hello(b"good", b"bad")
    d.say(b"bad", messages.Publish(request=1, event="best"))
    (answer,) = d.frames(b"bad", BAD[kind])
    assert (answer.error, answer.request) == ("WireError", 0)
    assert answer.reason.startswith("Expected ")
    assert d.frames(b"bad", BAD[kind]) == []
    assert d.say(b"bad", messages.Hello(version=messages.VERSION, client="again")) == []
    assert d.say(b"good", messages.Ping()) == [messages.Ping()]
