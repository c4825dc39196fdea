"""Clients ask for what any jitted function logs, where the run was begun so."""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.waiting import wait_until

import sightglass as sg
import sightglass.jax as sgx
from sightglass.jax.program.primitive import wanted

ATTACH = sys.modules["sightglass.jax.ondemand.attach"]


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.setattr(ATTACH, "PAUSE_S", 0.0)
    with sg.init("attached", dir=tmp_path, budget=None, jax_attach="global") as run:
        yield run
    assert wanted.value is None


@pytest.fixture
def client(run):
    with sg.connect(run) as client:
        yield client


class Counted:
    """A jitted function that was never wrapped, and how often it was traced."""

    def __init__(self, function):
        self.n_traces = 0

        def traced(*args):
            self.n_traces += 1
            return function(*args)

        self.jitted = jax.jit(traced)

    def __call__(self, *args):
        return jax.block_until_ready(self.jitted(*args))


def listening(run):
    """Wait until the switch has moved."""
    wait_until(lambda: wanted.value is not None)


def losses(x):
    sgx.log({"loss": (x**2).sum(), "x": x}, step=x[0])
    return x * 2


def test_the_price_must_be_confirmed(client):
    for ask in (client.stream, client.record):
        with pytest.raises(sg.UnconfirmedError, match="confirm=True"):
            ask("jax.loss")
    assert "every jitted function" in client.describe().events["jax"].note
    assert wanted.value is None


def test_a_running_step_is_queried_and_left_unchanged(run, client):
    step = Counted(losses)
    x = jnp.arange(3.0)
    step(x)
    stream = client.stream("jax.loss", confirm=True)
    norm = client.stream(sg.on("jax").map(lambda e: abs(e.x).max()), confirm=True)
    wait_until(lambda: wanted.value is not None and len(wanted.value.listener._queries) == 2)
    np.testing.assert_array_equal(step(x), x * 2)
    step(x + 1)
    run.flush()
    assert stream.wait(2, timeout_s=90)
    assert norm.wait(2, timeout_s=90)
    assert [(r.index, r.step, r.value) for r in stream.records()] == [(0, 0.0, 5.0), (1, 1.0, 14.0)]
    assert [float(r.value) for r in norm.records()] == [2.0, 3.0]
    assert step.n_traces == 2
    assert set(client.describe().events["jax"].observables) == {"loss", "x"}
    stream.close()
    norm.close()
    wait_until(lambda: wanted.value is None)
    step(x)
    assert step.n_traces == 2  # the program without logs is there still


def test_logs_in_loops_branches_and_lanes(run, client):
    def program(xs):
        def body(total, x):
            sgx.log({"total": total + x})
            return total + x, None

        jax.lax.scan(body, 0.0, xs)
        return jax.vmap(lambda x: jax.lax.cond(x > 1, lambda: (sgx.log({"big": x}), x)[1], lambda: -x))(xs)

    step = Counted(program)
    total = client.stream("jax.total", confirm=True)
    big = client.stream("jax.big", confirm=True)
    mean = client.stream(sg.on("jax").map(lambda e: e.total).mean(every=5), confirm=True)
    wait_until(lambda: wanted.value is not None and len(wanted.value.listener._queries) == 3)
    step(jnp.arange(4.0))
    run.flush()
    assert total.wait(4, timeout_s=90)
    assert big.wait(1, timeout_s=90)
    assert mean.wait(1, timeout_s=90)
    assert sorted(float(r.value) for r in total.records()) == [0.0, 1.0, 3.0, 6.0]
    assert big.latest.value.tolist() == [2.0, 3.0]
    record = mean.latest
    assert (record.n_events, record.value, record.complete) == (4, 2.5, True)


def test_thunks_are_traced_only_for_queried_values(client):
    called = []

    def thunk():
        called.append(1)
        return jnp.float32(1)

    step = Counted(lambda x: (sgx.log({"cheap": x, "dear": thunk}), x)[1])
    cheap = client.stream("jax.cheap", confirm=True)
    listening(client)
    step(jnp.float32(2))
    assert cheap.wait(1, timeout_s=90)
    assert called == []
    dear = client.stream("jax.dear", confirm=True)
    wait_until(lambda: len(wanted.value.listener._queries) == 2)
    step(jnp.float32(2))
    assert dear.wait(1, timeout_s=90)
    assert called == [1]


def test_a_query_without_a_window_of_its_own_is_refused(run, client):
    stream = client.stream(sg.on("jax").map(lambda e: e.loss).mean(), confirm=True)
    with pytest.raises(sg.QueryError, match=r"'jax'.*mean\(every=100\)"):
        next(iter(stream))


@pytest.mark.parametrize("expression", ["e.event.wall_time", "e.loss + e.event['index']"])
def test_the_number_and_time_of_a_log_are_not_known(client, expression):
    stream = client.stream(f"on('jax').map(lambda e: {expression})", confirm=True)
    with pytest.raises(sg.QueryError, match="'jax'"):
        next(iter(stream))


def test_a_log_may_have_an_event_of_its_own(run, client):
    step = Counted(lambda x: (sgx.log({"event": {"kind": x}}), x)[1])
    stream = client.stream("on('jax').map(lambda e: e.event.kind)", confirm=True)
    listening(run)
    step(jnp.float32(2))
    assert stream.wait(1, timeout_s=90)[0].value == 2.0


def test_a_query_that_fails_ends_only_its_own_stream(run, client):
    step = Counted(losses)
    wrong = client.stream(sg.on("jax").map(lambda e: e.x.wrong), confirm=True)
    right = client.stream("jax.loss", confirm=True)
    wait_until(lambda: wanted.value is not None and len(wanted.value.listener._queries) == 2)
    step(jnp.arange(3.0))
    run.flush()
    assert right.wait(1, timeout_s=90)
    with pytest.raises(sg.QueryError, match="wrong"):
        next(iter(wrong))


def test_changes_are_gathered(run, monkeypatch):
    with sg.connect(run) as client:
        first = client.stream("jax.a", confirm=True)
        listening(run)
        monkeypatch.setattr(ATTACH, "PAUSE_S", 1e6)
        listener = wanted.value.listener
        client.stream("jax.b", confirm=True)
        first.close()
        client.describe()
        assert wanted.value.listener is listener


def test_a_run_that_was_not_begun_so_has_no_such_event(tmp_path):
    with sg.init("plain", dir=tmp_path) as run, sg.connect(run) as client:
        assert "jax" not in client.describe().events


def test_only_global_is_a_way_to_attach(tmp_path):
    with pytest.raises(ValueError, match=r"jax_attach='global'.*'local'"):
        sg.init("wrong", dir=tmp_path, jax_attach="local")
