"""Values of every kind in a run: nothing raises, no worker dies, and what other clients and tags get is complete."""

from __future__ import annotations

import contextlib
import itertools
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from tests.nasty import KNOWN, Box, Duck, Mute, NoReason, Pair, Short, Store, boxes, cycle, nested, unfinished
from tests.profiles import examples

import sightglass as sg
from sightglass.core.errors import CommandError, SightglassError
from sightglass.training.run import wiring

QUERIES = (
    "batch.bad", "batch.bad.a", "batch.bad[0]", "batch.bad + 1", "len(batch.bad)", "keys(batch.bad)", "[batch.bad]",
    "on('batch').map(lambda b: b.bad).last(every=2)", "on('batch').map(lambda b: b.bad).sum(every=2)",
)  # fmt: skip

numbers = itertools.count()


@contextlib.contextmanager
def watched(config: Any = None) -> Iterator[tuple[sg.Run, Any]]:
    """Begin a run that a client watches."""
    with warnings.catch_warnings(), sg.init(f"job{next(numbers)}", config=config) as run, sg.connect(run) as client:
        warnings.simplefilter("ignore")  # what is lost is warned about
        yield run, client


def logged(run: sg.Run, tag: str) -> list[Any]:
    """Return what was recorded under a tag."""
    return [record.value for record in sg.open(run.directory).series(tag)]


def check_workers(run: sg.Run, client: Any) -> None:
    """Fail unless the run describes itself, and none of its loops has failed."""
    assert client.describe().name == run.name
    assert wiring(run).service.describe().failures == {}  # type: ignore[union-attr]
    assert "sightglass-io" in {thread.name for thread in threading.enumerate()}


class Faceless:
    """An object that does not say its class."""

    @property
    def __class__(self) -> type:
        raise RuntimeError("no class")


def test_a_snapshot_of_an_object_that_does_not_say_its_class():
    with watched() as (run, client):
        run.observe("once", snapshot=True, bad=Faceless(), ok=7)
        assert client.stream("once.ok").wait(1, timeout_s=60)[0].value == 7


class FacelessNumber(float):
    """A number that does not say its class."""

    __class__ = Faceless.__dict__["__class__"]


def test_a_run_is_described_though_a_step_does_not_say_its_class():
    with watched() as (run, client):
        run.observe("stepped", ok=5, step=FacelessNumber(3.0))
        assert client.describe().events["stepped"].observables["ok"].step == 3.0


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(boxes, boxes)
def test_values_cost_only_themselves(box: Box, another: Box) -> None:
    value, other = box.value, another.value
    with watched({"bad": value, "ok": 1}) as (run, client):
        assert client.describe().config["ok"] == 1
        good, _ = client.stream("batch.ok"), client.stream("stepped.ok")
        bad = [client.stream(query) for query in QUERIES]
        controlled = KeepsChanging()
        run.control("lr", bind=(controlled, "value"))
        controlled.value = value
        for step in range(5):
            run.observe("batch", bad=value if step % 2 else other, ok=step)
            log(run, {"good": step, "bad": value, "more": {"bad": [other]}})
        run.observe("once", snapshot=True, bad=value, other=other, ok=7)
        run.observe("stepped", ok=5, step=other)
        run.observe("stepped", snapshot=True, ok=5, step=value)
        assert [record.value for record in good.wait(5, timeout_s=30)] == [*range(5)]
        assert client.stream("once.ok").wait(1, timeout_s=30)[0].value == 7
        for query in ("once.bad", "once.other", "once.bad.a", "keys(once.other)"):
            with contextlib.suppress(TimeoutError, SightglassError):
                client.stream(query).wait(1, timeout_s=0.05)
        check_workers(run, client)
        assert good.statistics().n_lost == 0
        del bad
    assert logged(run, "good") == [*range(5)]


def log(run: sg.Run, data: dict[str, Any]) -> None:
    """Log data, without their mappings if a name in one is not a string: this is misuse, and raises."""
    try:
        run.log(data)
    except TypeError as error:
        assert "names of logged values" in str(error)  # noqa: PT017
        run.log({name: value for name, value in data.items() if not isinstance(value, dict)})


class KeepsChanging:
    """The owner of a bound control."""

    value: Any = 0.1


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow])
@given(boxes)
def test_a_control_refuses_values_or_takes_them(box: Box) -> None:
    value = box.value
    run = sg.init("job", mode="disabled")
    for options in ({"value": value}, {"value": 0.5, "min": value}, {"value": "a", "choices": ["a", value]}):
        with contextlib.suppress(TypeError, CommandError):
            run.control(f"c{next(numbers)}", **options)


# One test for each way that was found


def test_a_config_shows_what_can_be_read_and_warns_once() -> None:
    config = {
        "lr": 0.1,
        "x": Mute(),
        "y": [1, Mute()],
        "plan": unfinished(),
        "deep": nested(2_000),
        "store": Store("b"),
    }
    with pytest.warns(RuntimeWarning) as caught:
        run = sg.init("job", config=config)
    (warning,) = caught
    assert str(warning.message) == "Cannot show config['x'], nor 4 other values: RuntimeError: no repr"
    assert warning.filename == __file__
    with run, sg.connect(run) as client:
        shown = client.describe().config
        run.log({"a": 1})
    assert (shown["x"], shown["y"]) == ("unreadable: RuntimeError: no repr", [1, shown["x"]])
    assert shown["plan"] == {"a": 1, "b": "unreadable: AttributeError: 'Plan' object has no attribute 'b'"}
    assert shown["store"] == {"a": 1.0, "b": "unreadable: OSError: closed file", "c": 1.0}
    assert sg.open(run.directory).config["x"] == shown["x"]
    assert run.config["x"] is config["x"]


@pytest.mark.parametrize("config", [Store("all"), Store("", keys=lambda: map(str, itertools.count()))])
def test_a_config_that_cannot_be_read_at_all(config: Any) -> None:
    with pytest.warns(RuntimeWarning, match="config"):
        run = sg.init("job", config=config)
    with run, sg.connect(run) as client:
        assert client.describe().config["config"].startswith("unreadable: ")


def test_a_config_must_be_a_mapping() -> None:
    with pytest.raises(TypeError, match="config, got int"):
        sg.init("job", config=5)  # type: ignore[arg-type]


def test_a_config_is_copied() -> None:
    weights, layers = np.zeros(2), [1]
    with watched({"weights": weights, "layers": layers}) as (_, client):
        weights[:] = 7
        layers.append(layers)  # type: ignore[arg-type]
        shown = client.describe().config
        assert (shown["weights"].tolist(), shown["layers"]) == ([0, 0], [1])


@pytest.mark.parametrize(
    "value", [Duck(), nested(500, dict), cycle(list), Store("b")], ids=["duck", "deep", "cycle", "store"]
)
def test_a_query_of_an_unreadable_value_ends_with_a_reason(value: Any) -> None:
    with watched() as (run, client):
        bad, good = client.stream("batch.bad"), client.stream("batch.ok")
        for step in range(5):
            run.observe("batch", bad=value, ok=step)
        assert [record.value for record in good.wait(5, timeout_s=30)] == [*range(5)]
        with pytest.raises(SightglassError, match=r"read|levels of nesting|contains itself|closed file"):
            bad.wait(1, timeout_s=30)
        check_workers(run, client)


def test_a_container_with_another_constructor_is_a_value() -> None:
    with watched() as (run, client):
        stream = client.stream("batch.pair")
        run.observe("batch", pair=Pair(1, 2))
        assert stream.wait(1, timeout_s=30)[0].value == (1, 2)


def test_an_item_of_a_list_that_contains_itself_is_read() -> None:
    with watched() as (run, client):
        stream = client.stream("batch.x[0]")
        run.observe("batch", x=cycle(list))
        assert stream.wait(1, timeout_s=30)[0].value == 1


def test_a_snapshot_keeps_what_it_can_and_counts_the_rest() -> None:
    observables = {"pair": Pair(1, 2), "plan": unfinished(), "mute": Mute(), "store": Store("all"), "short": Short([1])}
    with sg.init("job") as run, sg.connect(run) as client:
        with pytest.warns(RuntimeWarning) as caught:
            run.observe("once", snapshot=True, ok=1, **observables)
        run.observe("once", snapshot=True, ok=1, **observables)
        assert [str(warning.message) for warning in caught] == [
            "Cannot keep once.plan['b'] in the snapshot: AttributeError: 'Plan' object has no attribute 'b'",
            "Cannot keep once.mute in the snapshot: RuntimeError: no repr",
            "Cannot keep once.store in the snapshot: OSError: closed file",
        ]
        assert {warning.filename for warning in caught} == {__file__}
        found = {
            query: client.stream(f"once.{query}").wait(1, timeout_s=30)[0].value
            for query in ("ok", "pair", "short", "plan.a")
        }
        assert found == {"ok": 1, "pair": (1, 2), "short": [1], "plan.a": 1}
        with pytest.raises(SightglassError, match=r"'mute'.*RuntimeError: no repr"):
            client.stream("once.mute").wait(1, timeout_s=30)
        assert client.describe().events["once"].n_lost == 6
        assert "event 'once', 2 so far, with a snapshot without 6 values that could not be copied" in str(
            client.describe()
        )
    kept = sg.open(run.directory)
    assert [record.value for record in kept.stream("once.plan.a")] == [1, 1]
    assert [record.value for record in kept.stream("once.mute")] == ["unreadable: RuntimeError: no repr"] * 2


def test_a_snapshot_of_an_array_that_cannot_be_read_is_recorded_without_it() -> None:
    with watched() as (run, _):
        run.observe("once", snapshot=True, ok=1, duck=Duck())
    (record,) = sg.open(run.directory).stream("once.ok")
    assert record.value == 1


def test_values_that_cannot_be_logged_are_dropped_named_and_counted() -> None:
    def log_and_flush(run: sg.Run) -> None:
        run.log({"a": 1, "short": Short([1]), "store": {"b": Store("b")}, "own": cycle(dict), "deep": nested(2_000)})
        run.log(Store("all"))
        run.log({"a": 2, "units": KNOWN["units"](), "text": sg.Text(unread), "tensor": sg.Tensor(unread)})
        run.flush()

    unread: Any = Mute()
    with sg.init("job") as run:
        with pytest.warns(RuntimeWarning) as caught:
            log_and_flush(run)
        told = {str(warning.message).partition(" cannot")[0].removeprefix("Values of ") for warning in caught}
        assert told == {"'store/b/b'", "'own/me'", "'deep'", "'log'", "'text'", "'tensor'"}
        assert wiring(run).recorder.statistics().n_dropped == 6  # type: ignore[union-attr]
    recorded = sg.open(run.directory)
    assert recorded.tags() == ["a", "own/ok", "short", "store/b/a", "store/b/c", "units"]
    assert logged(run, "a") == [1, 2]


@pytest.mark.parametrize("data", [5, [1], None, "text"])
def test_misuse_of_log_raises_at_the_call(data: Any) -> None:
    with watched() as (run, _):
        with pytest.raises(TypeError, match="mapping"):
            run.log(data)
        with pytest.raises(TypeError, match="got int 1"):
            run.log({"a": {1: 2}})  # type: ignore[dict-item]


@pytest.mark.parametrize("value", [Mute(), Store("all"), cycle(dict), Duck(), "\ud800"])
def test_an_action_may_return_anything(value: Any) -> None:
    with watched() as (run, client):
        run.action("act", lambda: value)
        client.call("act")  # it waits for the next event
        run.observe("batch", ok=1)
        run.flush()
        assert client.history[0].error == ""
        assert not isinstance(run.history[0].result, type(value)) or type(value) in (dict, str)
        check_workers(run, client)


def test_an_action_may_raise_anything() -> None:
    def act() -> None:
        raise NoReason

    with watched() as (run, client):
        run.action("act", act)
        client.call("act")
        run.observe("batch", ok=1)
        run.flush()
        assert client.history[0].error == "call 'act' failed: NoReason"
        check_workers(run, client)


def test_names_that_utf8_cannot_encode_do_not_end_a_description() -> None:
    with watched() as (run, client):
        run.observe("batch", **{"\ud800": 1, "ok": {"\ud800": 2}})
        run.log({"a": 1, "\ud800": 2})
        assert "ok" in client.describe().events["batch"].observables
        check_workers(run, client)
    assert logged(run, "a") == [1]


def test_where_warnings_are_errors_nothing_raises() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with sg.init("job", config={"x": Mute()}) as run:
            run.observe("once", snapshot=True, x=Mute())
            run.log({"x": Mute(), "a": 1})
    assert sg.open(run.directory).tags() == ["a"]
