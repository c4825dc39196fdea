"""Whatever a step is made of: its results are those of the plain one, and what clients get is what was logged."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import examples

os.environ.setdefault("XLA_FLAGS", "--xla_cpu_experimental_ynn_fusion_type=")
jax = pytest.importorskip("jax")
pytestmark = pytest.mark.slow

import jax.numpy as jnp  # noqa: E402
from tests.waiting import wait_until  # noqa: E402

import sightglass as sg  # noqa: E402
from sightglass.jax import live  # noqa: E402
from sightglass.jax.ondemand.variant import find_events  # noqa: E402
from sightglass.query.evaluation import Evaluation  # noqa: E402
from sightglass.query.parser import parse  # noqa: E402
from sightglass.training.run import wiring  # noqa: E402

from . import test_jax_programs as made  # noqa: E402
from .test_jax_programs import ALL, LEAF, Add, Cond, Log, Node, Scan, Seq, Switch, Vmap, While  # noqa: E402

WINDOWS = ("sum(every=2)", "max(every=3)", "mean()")


@pytest.fixture(scope="module")
def run() -> Iterator[Any]:
    """Give all examples one run: each has a step of an event of its own."""
    with tempfile.TemporaryDirectory() as folder, sg.init("laws", dir=folder, budget=None) as run:
        yield run


names = count()


def n_records(run: Any, stream: Any) -> int:
    """Wait until all that was evaluated so far is here, and return how many records that is."""
    run.flush()
    answers = wiring(run).telemetry.subscriptions.active.values()
    n = next((answer.rows.n_made for answer in answers if answer.query.key == stream.query), 0)
    wait_until(lambda: stream.ended or len(stream.records()) >= n)
    return n


def happened(node: Node, x: Any, key: str) -> np.ndarray:
    """Return all that a plain run logs under a key, one after the other."""
    values = [np.ravel(seen.value[seen.lanes]) for seen in made.expected(node, x)[1] if seen.key == key]
    return np.concatenate(values) if values else np.zeros(0)


def check(run: Any, node: Node, x: Any) -> None:
    event = f"e{next(names)}"
    plain = jax.jit(node.run)
    step = live(plain, run, event)
    offered = [f"{one.event}.{key}" for one in find_events(plain, event, (x,), {}).values() for key in one.logs]
    with sg.connect(run) as client:
        wanted, other = plain(x), plain(2 * x)
        np.testing.assert_array_equal(step(x), wanted)
        client.describe()  # waits until the events of loops are known: a variant without them could answer `each`
        streams = {text.split(".")[1]: client.stream(text) for text in offered if "\0" not in text}
        each = client.stream(f"on('{event}').count(every=1)")
        wait_until(lambda: (jax.block_until_ready(step(x)), each.latest)[1])
        run.flush()
        cursors = {key: n_records(run, stream) for key, stream in streams.items()}
        np.testing.assert_allclose(step(x), wanted, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(step(2 * x), other, rtol=1e-5, atol=1e-6)
        run.flush()
        for key, stream in streams.items():
            n_records(run, stream)
            assert stream.statistics().n_errors == 0
            values = [np.ravel(np.asarray(r.value)) for r in stream.since(cursors[key])[1].records(tag="", run="")]
            got = np.concatenate(values) if values else np.zeros(0)
            both = np.concatenate([happened(node, x, key), happened(node, 2 * x, key)])
            np.testing.assert_allclose(got, both, rtol=1e-4, atol=1e-5, err_msg=key)


@given(made.programs(), st.sampled_from([(0.3, -0.1), (-0.7, 0.2), (0.5, 0.4)]))
@settings(max_examples=int(os.environ.get("SIGHTGLASS_JAX_EXAMPLES", "6")), deadline=None)
def test_clients_get_all_logs(run: Any, node: Node, x: tuple[float, float]) -> None:
    check(run, made.distinct(node, count()), jnp.asarray(x))


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_each_kind(run: Any, kind: type[Node]) -> None:
    node: Node = kind((LEAF,) * {Cond: 2, Switch: 3}.get(kind, 1), 3)
    check(run, made.distinct(Seq((Log(n=1), node, Add(n=0), Log(n=2))), count()), jnp.asarray([0.3, -0.1]))


@pytest.mark.parametrize("outer", [Scan, While], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("kind", [Cond, Vmap, While, Scan], ids=lambda kind: kind.__name__)
def test_each_kind_in_a_loop_that_is_the_event(run: Any, kind: type[Node], outer: type[Node]) -> None:
    inner = kind((LEAF,) * (2 if kind is Cond else 1), 3)
    check(run, made.distinct(outer((Seq((inner, Log(n=1))),), 3), count()), jnp.asarray([0.3, -0.1]))


@given(st.lists(st.integers(0, 6), min_size=1, max_size=4), st.sampled_from(WINDOWS), st.integers(1, 5))
@settings(max_examples=examples(6), deadline=None)
def test_reducing_in_the_program_equals_reducing_on_the_host(run: Any, lengths: list[int], window: str, n: int) -> None:
    """Of calls of all lengths: a loop's windows are those of the run."""
    own = f"e{next(names)}"
    event = f"{own}_loop"

    @jax.jit
    def f(n: Any) -> Any:
        return jax.lax.fori_loop(0, n, lambda i, c: Log(n=0).run(jnp.stack([c, i * c]))[0] + i, jnp.float32(1))

    query = f"on('{event}').map(lambda e: e.k0.sum()).{window}"
    step = live(f, run, own)
    step(n)
    with sg.connect(run) as client:
        stream, each = client.stream(query), client.stream(f"{event}.k0")
        wait_until(lambda: (jax.block_until_ready(step(n)), each.latest)[1])
        ends = []
        for length in lengths:
            jax.block_until_ready(step(length))
            ends.append(n_records(run, each))
        n_records(run, stream)
        evaluation, wanted, start = Evaluation(parse(query)), [], 0
        records = each.records()
        assert [int(r.value.shape[0]) for r in records] == [2] * len(records)
        for end in (*range(n, ends[0] - lengths[0] + 1, n), *ends):
            for number, r in enumerate(records[start:end], start):
                head = evaluation.per_event({"k0": np.asarray(r.value)})
                wanted += evaluation.across_events(head, ordinal=number, step=r.step, wall_time=r.wall_time)
            wanted += evaluation.end_group()
            start = end
        got = [(float(r.value), r.n_events, r.complete) for r in stream.records()]
        assert [g[1:] for g in got] == [(w.n_events, w.complete) for w in wanted]
        np.testing.assert_allclose([g[0] for g in got], [float(w.value) for w in wanted], rtol=1e-5)
