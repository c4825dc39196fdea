"""Functions that the run lends: who may call them, and what they may take. Time is given."""

from __future__ import annotations

import asyncio
import re
from collections import UserDict
from typing import Any

import pytest

import sightglass as sg
from sightglass.core.errors import DeadlockError, QuerySyntaxError, RefusedFunctionError
from sightglass.protocol import messages
from sightglass.query.parser import parse
from sightglass.training.controls import LentFunction, check_functions


class Ticking:
    """Two clocks, and a function that moves them."""

    def __init__(self) -> None:
        self.cpu_s = self.wall_s = 0.0

    def lend(self, *, cpu_s: float, wall_s: float, fails: bool = False, **options: Any) -> LentFunction:
        def work(x: float, scale: float = 2.0) -> float:
            """Work on x.

            More of it.
            """
            self.cpu_s += cpu_s
            self.wall_s += wall_s
            if fails:
                raise ValueError("no")
            return x * scale

        return LentFunction("work", work, cpu_s=lambda: self.cpu_s, wall_s=lambda: self.wall_s, **options)


@pytest.fixture
def clocks() -> Ticking:
    return Ticking()


def test_a_call_that_takes_too_long_is_the_last_unless_it_is_the_first(clocks: Ticking) -> None:
    work = clocks.lend(cpu_s=0.03, wall_s=0.04)
    assert work(1.0) == 2.0
    with pytest.raises(RefusedFunctionError, match=r"'work'.*30 ms.*20 ms"):
        work(1.0)
    with pytest.raises(RefusedFunctionError, match="30 ms"):
        work(1.0)
    assert (work.n_calls, work.n_refused) == (2, 1)


@pytest.mark.parametrize(("cpu_s", "wall_s"), [(0.019, 0.019), (0.001, 5.0), (5.0, 0.001)])
def test_preemption_and_other_threads_do_not_count(clocks: Ticking, cpu_s: float, wall_s: float) -> None:
    work = clocks.lend(cpu_s=cpu_s, wall_s=wall_s)
    assert [work(1.0), work(2.0, scale=3.0)] == [2.0, 6.0]
    assert not work.refused


def test_one_that_fails_late_is_refused_too(clocks: Ticking) -> None:
    work = clocks.lend(cpu_s=1.0, wall_s=1.0, fails=True)
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            work(1.0)
    with pytest.raises(RefusedFunctionError, match=r"1e\+03 ms"):
        work(1.0)


def test_traces_are_not_timed(clocks: Ticking) -> None:
    work = clocks.lend(cpu_s=1.0, wall_s=1.0, in_event=lambda: False)
    assert work(1.0) == 2.0
    assert work.doc == "Work on x."


def test_the_functions_of_a_query_are_found_wherever_they_are() -> None:
    query = parse("on('b').where(lambda b: f(b.x) > 0).map(lambda b: [abs(g(b.x)), b.y.map(lambda v: h(v))])")
    assert query.functions == ["f", "g", "h"]
    assert parse("on('b').map(lambda b: b.x).top(3, key=lambda v: f(v), when=lambda b: g(b.x))").functions == ["f", "g"]
    assert parse("b.x.mean(every=3)").functions == []


def test_viewers_call_what_is_declared_for_them(clocks: Ticking) -> None:
    functions = {"work": clocks.lend(cpu_s=0, wall_s=0), "shown": clocks.lend(cpu_s=0, wall_s=0, viewers=True)}
    for may_command, query in ((True, "work(b.x)"), (False, "shown(b.x)"), (False, "b.x")):
        check_functions(parse(query), functions, may_command=may_command)
    with pytest.raises(RefusedFunctionError, match=re.escape("run.function('work', …, viewers=True)")):
        check_functions(parse("shown(work(b.x))"), functions, may_command=False)


def test_a_viewers_query_is_refused_when_it_is_opened(service_bench: Any, clocks: Ticking) -> None:
    d = service_bench(functions={"work": clocks.lend(cpu_s=0, wall_s=0)})
    d.hello(b"viewer", may_command=False)
    (refused,) = d.say(b"viewer", messages.Open(request=3, query="work(b.x)"), may_command=False)
    assert isinstance(refused, messages.Refused)
    assert refused.error == "RefusedFunctionError"
    d.hello(b"controller")
    assert d.open(b"controller", "work(b.x)")


def test_streams_that_call_a_refused_function_end_with_the_reason(service_bench: Any, clocks: Ticking) -> None:
    d = service_bench(functions={"work": clocks.lend(cpu_s=1.0, wall_s=1.0), "fine": abs})
    d.hello(b"c")
    work, other, fine = (d.open(b"c", query) for query in ("work(b.x)", "[work(b.x), 1]", "fine(b.x)"))
    for x in range(2):
        d.observe("b", x=x)
    assert d.values(b"c", fine) == [0, 1]
    ended = {message.stream: message for message in d.sent[b"c"] if isinstance(message, messages.Ended)}
    assert ended.keys() == {work, other}
    assert all("1e+03 ms" in message.reason for message in ended.values())
    (refused,) = d.say(b"c", messages.Open(request=9, query="work(b.x) + 1"))
    assert "is refused" in refused.reason
    lent = d.ask(b"c", "describe")["lent"]
    assert lent["work"]["n_calls"] == 2
    assert lent["work"]["n_refused"] >= 2
    assert "took 1e+03 ms" in lent["work"]["refused"]


def test_a_run_lends_functions() -> None:
    with sg.init("lends", budget=None, limits=sg.Limits(max_event_s=100.0)) as run:
        run.function("double", lambda x, by=2: x * by, viewers=True)
        run.function("plain", abs)
        client = sg.connect(run)
        stream = client.stream("double(batch.x, by=3) + plain(batch.x)")
        run.observe("batch", x=-1.0)
        assert stream.wait(1, timeout_s=20)[0].value == -2.0
        described = client.describe()
        assert described.lent["double"].viewers
        assert not described.lent["plain"].viewers
        assert "function double  (viewers may call it)" in str(described)
        with pytest.raises(QuerySyntaxError, match="double"):
            client.stream("double(batch.x, 1, 2)")


# Waits that could never end


CALLS: dict[str, Any] = {
    "describe": lambda run, client, stream: client.describe(),
    "stream": lambda run, client, stream: client.stream("batch.x"),
    "set": lambda run, client, stream: client.set("lr", 2.0),
    "call": lambda run, client, stream: client.call("other"),
    "pause": lambda run, client, stream: client.pause(),
    "stop": lambda run, client, stream: client.stop(),
    "record": lambda run, client, stream: client.record("batch.x"),
    "unrecord": lambda run, client, stream: client.unrecord("batch.x"),
    "history": lambda run, client, stream: client.history,
    "statistics": lambda run, client, stream: stream.statistics(),
    "publish": lambda run, client, stream: client.publish("mine", stream),
    "wait": lambda run, client, stream: stream.wait(100),
    "iterate": lambda run, client, stream: list(stream),
    "iterate a stage": lambda run, client, stream: list(stream.map(lambda x: x)),
    "iterate a zip": lambda run, client, stream: list(stream.zip(stream)),
    "iterate with async": lambda run, client, stream: asyncio.run(all_of(stream)),
    "connect": lambda run, client, stream: sg.connect(run),
    "connect by id": lambda run, client, stream: sg.connect(run.id),
}
COMMANDS = ("set", "call", "pause", "stop")
WAITS = ("wait", "iterate", "iterate a stage", "iterate a zip", "iterate with async")


async def all_of(stream: Any) -> list[Any]:
    return [record async for record in stream]


def outcomes(run: Any, client: Any, stream: Any) -> dict[str, Any]:
    """Return the error of each call, or `None`."""
    found: dict[str, Any] = {}
    for name, call in CALLS.items():
        try:
            call(run, client, stream)
            found[name] = None
        except Exception as error:  # noqa: BLE001
            found[name] = error
    return found


@pytest.mark.parametrize("by_socket", [False, True])
def test_a_lent_function_does_not_wait_for_its_own_run(by_socket: bool) -> None:
    found: dict[str, Any] = {}
    with sg.init("waits", budget=None, limits=sg.Limits(max_event_s=100.0)) as run:
        client = sg.connect(run.id if by_socket else run)
        run.control("lr", 1.0)
        run.action("other", lambda: None)
        stream = client.stream("batch.x")
        run.function("lent", lambda x: found.update(outcomes(run, client, stream)) or x)
        answers = client.stream("lent(batch.x)")
        run.observe("batch", x=1.0)
        assert answers.wait(1, timeout_s=20)[0].value == 1.0
        assert {name for name, error in found.items() if not isinstance(error, DeadlockError)} == set()
        assert "a function" in str(found["describe"])
        assert client.describe().name == "waits"  # nothing was sent, and nothing is left
        assert run.history == []


def test_a_mapping_of_the_program_does_not_wait_either() -> None:
    found: list[Any] = []

    class Asking(UserDict):
        def __getitem__(self, key: str) -> Any:
            try:
                client.describe()
            except DeadlockError as error:
                found.append(error)
            return 1.0

    with sg.init("store", budget=None) as run:
        client = sg.connect(run)
        stream = client.stream("batch.m.a")
        run.observe("batch", m=Asking(a=1))
        assert stream.wait(1, timeout_s=20)[0].value == 1.0
        assert found


@pytest.mark.parametrize("by_socket", [False, True])
def test_an_action_asks_but_does_not_wait_for_its_own_thread(by_socket: bool) -> None:
    found: dict[str, Any] = {}
    with sg.init("acts", budget=None) as run:
        client = sg.connect(run.id if by_socket else run)
        run.control("lr", 1.0)
        run.action("other", lambda: None)
        stream = client.stream("batch.x")
        run.action("ask", lambda: found.update(outcomes(run, client, stream)))
        wiring_client = sg.connect(run)
        assert not wiring_client.call("ask").applied  # it waits for the event
        run.observe("batch", x=1.0)
        assert {name for name, error in found.items() if isinstance(error, DeadlockError)} == {*COMMANDS, *WAITS}
        assert found["describe"] is None
        assert found["stream"] is None
        assert "an action" in str(found["set"])
        run.observe("batch", x=2.0)
        assert [entry.name for entry in run.history] == ["ask"]
