"""The lanes of a `vmap` inside a program: generated nestings against plain Python, and episodes of environments."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import sightglass as sg
from sightglass.core.errors import LogError
from sightglass.jax import log, loggers, spool, tap

from .queried_run import QueriedRun

KINDS = ("scan", "vmap", "cond", "while")
SHORT = [nest for n in (1, 2) for nest in itertools.product(KINDS, repeat=n)]
LONG = [nest for n in (3, 4) for nest in itertools.product(KINDS, repeat=n) if "vmap" in nest]
NESTS = [*SHORT, *random.Random(5).sample(LONG, 16)]
START = 4
N_SCANNED, N_LANES, CAPACITY = 2, 3, 64


def nested(nest, event="log"):
    """Return a program that logs an integer inside these loops, lanes and conditions, outermost first."""

    def inside(x, nest):
        match nest:
            case []:
                log({"x": x}, step=x + 100, event=event)
            case ["scan", *rest]:
                jax.lax.scan(lambda _, i: (inside(x + 5 * i, rest), None), None, jnp.arange(N_SCANNED))
            case ["vmap", *rest]:
                jax.vmap(lambda lane: inside(3 * x + lane, rest))(jnp.arange(N_LANES))
            case ["cond", *rest]:
                jax.lax.cond(x % 2 == 0, lambda: inside(x + 1, rest), lambda: None)
            case ["while", *rest]:
                jax.lax.while_loop(lambda k: k < x % 3, lambda k: (inside(x + 7 * k, rest), k + 1)[1], 0)

    return lambda x: inside(x, list(nest))


def reference(nest, x=START):
    """Return `(times, lanes, x)` of each event of such a program, in the order of its loops, then of its lanes."""
    match nest:
        case []:
            return [((), (), x)]
        case ["scan", *rest]:
            found = [(i, reference(rest, x + 5 * i)) for i in range(N_SCANNED)]
        case ["vmap", *rest]:
            found = [(lane, reference(rest, 3 * x + lane)) for lane in range(N_LANES)]
            return sorted((t, (lane, *lanes), x) for lane, events in found for t, lanes, x in events)
        case ["cond", *rest]:
            return reference(rest, x + 1) if x % 2 == 0 else []
        case ["while", *rest]:
            found = [(k, reference(rest, x + 7 * k)) for k in range(x % 3)]
    return sorted(((i, *t), lanes, x) for i, events in found for t, lanes, x in events)


def names(nest):
    n = nest.count("vmap")
    return [f"lane{n - i}" if n - i > 1 else "lane" for i in range(n)]


def events_of(logs, nest):
    """Return `(lanes, x)` of each event, and check that its step is that of its lane."""
    found = []
    for event in logs.events():
        assert event.value.dtype == np.int32
        assert event.steps["step"] == event.value + 100
        found.append((tuple(int(event.steps[name]) for name in names(nest)), int(event.value)))
    return found


def by_lane(events):
    found = defaultdict(list)
    for lanes, x in events:
        found[lanes].append(x)
    return found


@pytest.mark.parametrize("nest", NESTS, ids="-".join)
def test_each_lane_has_the_events_that_happened_in_it_and_the_mean_is_theirs(nest):
    f, seen, seen_means = nested(nest), [], []

    @jax.jit
    def run(x):
        tap(f, seen.append, lanes="each")(x)
        tap(f, seen_means.append, lanes="mean")(x)
        return [spool(f, capacity=CAPACITY, lanes=lanes)(x)[1] for lanes in ("each", "mean")]

    each, mean = run(START)
    jax.effects_barrier()
    events, at = reference(list(nest)), defaultdict(list)
    wanted = [(lanes, x) for _, lanes, x in events]
    got = events_of(each, nest)
    if "while" in nest:  # a ring buffer holds the events of each lane, whatever happened in the others meanwhile
        assert by_lane(got) == by_lane(wanted)
    else:
        assert got == wanted
    assert [event for logs in seen for event in events_of(logs, nest)] == wanted
    for times, _, x in events:
        at[times].append(x)
    found = [(event.value, event.steps["step"]) for event in mean.events()]
    np.testing.assert_allclose(found, [(np.mean(xs), max(xs) + 100) for xs in at.values()] or np.zeros((0,)), rtol=1e-6)
    np.testing.assert_allclose([logs["x"][0] for logs in seen_means], [np.mean(xs) for xs in at.values()], rtol=1e-6)


MASKED = [
    nest
    for nest in NESTS
    if {"scan", "while"} & set(nest) and "vmap" in nest and {"cond", "while"} & set(nest[nest.index("vmap") :])
]


@pytest.mark.parametrize("nest", MASKED[:12], ids="-".join)
def test_a_named_event_under_a_condition_happens_once_for_each_lane(nest):
    queried = QueriedRun()
    try:
        step = queried.live(jax.jit(lambda x: (nested(nest, "inner")(x), log({"call": x}), x)[-1]), START)
        stream = queried.query(lambda: step(START), "inner.x")
        queried.new_records(stream)
        jax.block_until_ready(step(START))
        wanted = [(x, x + 100, dict(zip(names(nest), lanes, strict=True))) for _, lanes, x in reference(list(nest))]
        assert [(r.value, r.step, r.steps) for r in queried.new_records(stream)] == wanted
    finally:
        queried.close()


# Episodes

N_ENVS, N_STEPS = 3, 20


def play(clock, i, **options):
    def ended():
        log({"return": clock * 1.5, "length": clock}, step=i, axis="env", **options)

    jax.lax.cond((clock + i) % 5 == 0, ended, lambda: None)
    log({"reward": clock})
    return clock + 1


def train(seed, **options):
    envs = jax.vmap(lambda clock, i: play(clock, i, **options), in_axes=(0, None))
    return jax.lax.scan(lambda clocks, i: (envs(clocks, i), None), jnp.arange(N_ENVS) + seed, jnp.arange(N_STEPS))[0]


def episodes(seed):
    """Return `(step, length, env)` of each episode."""
    clocks = {(i, env): env + seed + i for i in range(N_STEPS) for env in range(N_ENVS)}
    return [(i, clock, env) for (i, env), clock in clocks.items() if (clock + i) % 5 == 0]


@pytest.mark.parametrize("way", ["tap", "spool"])
def test_the_returns_of_episodes_are_a_curve_in_every_logger(tmp_path, way):
    with (
        sg.init("rl", dir=tmp_path / "runs") as run,
        loggers.MultiLogger(
            loggers.SaveLogger(tmp_path / "saved"), loggers.TensorBoardLogger(tmp_path / "board"), loggers.RunLogger()
        ) as logger,
    ):
        states = logger.init(seeds=["first", "second"])
        jax.jit(jax.vmap(lambda state, seed: getattr(logger, way)(train, state)(seed)))(states, jnp.arange(2))
    with sg.open(run.directory) as recorded:
        for number, seed in enumerate(("first", "second")):
            saved, board = (sg.open(tmp_path / name)[seed] for name in ("saved", "board"))
            for prefix, kept in (("", saved), (f"{seed}/", recorded)):
                found = [(r.step, r.value, r.steps) for r in kept.series(f"{prefix}return")]
                assert found == [(i, clock * 1.5, {"env": env}) for i, clock, env in episodes(number)]
                lengths = [r.value for r in kept.series(f"{prefix}length")]
                assert lengths == [clock for _, clock, _ in episodes(number)]
                assert {type(length) for length in lengths} == {np.int32}
                assert [r.value.shape for r in kept.series(f"{prefix}reward")] == [(N_ENVS,)] * N_STEPS
            scalars = [(r.step, r.value) for r in board.series("return")]
            assert scalars == [(i, clock * 1.5) for i, clock, _ in episodes(number)]


def test_the_returns_of_episodes_are_a_curve_in_a_live_query():
    queried = QueriedRun()
    try:
        step = queried.live(jax.jit(lambda seed: train(seed, event="episode")), 0)
        curve, by_env = queried.query(
            lambda: step(0), "episode['return']", "on('episode').map(lambda b: b.length).mean(by=lambda b: b.env)"
        )
        queried.new_records(curve), queried.new_records(by_env)
        jax.block_until_ready(step(1))
        found = [(r.step, r.value, r.steps) for r in queried.new_records(curve)]
        assert found == [(i, clock * 1.5, {"env": env}) for i, clock, env in episodes(1)]
        (means,) = queried.values(by_env)
        assert means == {
            str(env): np.mean([clock for _, clock, at in episodes(1) if at == env]) for env in range(N_ENVS)
        }
    finally:
        queried.close()


@jax.jit
def ending(x):
    """Log an event without a step: lane 0 ends in rounds 0 and 3, lane 1 in round 2."""

    def play(lane, i):
        data = {"z": i, "a": lane + 0.5}
        jax.lax.cond((lane + i) % 3 == 0, lambda: log(data, event="end", axis="env") and None, lambda: None)

    def body(x, i):
        jax.vmap(play, in_axes=(0, None))(jnp.arange(2), i)
        return x + 1, None

    return jax.lax.scan(body, x, jnp.arange(4))[0]


@pytest.mark.parametrize("beside", [(), ("end.a",), ("end",)], ids=["alone", "beside a value", "beside all"])
def test_ends_that_are_only_counted_are_those_that_happened(queried, beside):
    step = queried.live(ending, 0)
    asked = ("on('end').count()", "on('end').count(by=lambda b: b.env)", "end.env")
    streams = queried.query(lambda: step(0), *asked, *beside)
    jax.block_until_ready(step(0))
    assert [queried.values(stream) for stream in streams[:3]] == [[3], [{"0": 2, "1": 1}], [0, 1, 0]]


def test_an_event_of_lanes_that_is_asked_whole_has_each_value_under_its_name(queried):
    step = queried.live(ending, 0)
    whole = queried.query(lambda: step(0), "end")
    jax.block_until_ready(step(0))
    ends = [{"env": 0, "z": 0, "a": 0.5}, {"env": 1, "z": 2, "a": 1.5}, {"env": 0, "z": 3, "a": 0.5}]
    assert queried.values(whole) == ends


def test_an_event_in_a_branch_that_is_only_counted_happens_where_the_branch_is_taken(queried):
    def body(x, i):
        jax.lax.cond(i % 5 == 0, lambda: log({"x": x}, event="rare") and None, lambda: None)
        return x + 1, None

    step = queried.live(jax.jit(lambda x: jax.lax.scan(body, x, jnp.arange(20))[0]), 0)
    count, windows = queried.query(lambda: step(0), "on('rare').count()", "on('rare').count(every=10)")
    jax.block_until_ready(step(1))
    assert (queried.values(count), queried.values(windows)) == ([4], [2, 2])


# Options


def test_reducing_each_lane_gives_an_event_for_each():
    _, logs = spool(train, reduce="sum", argnames="length", lanes="each")(0)
    assert [(event.steps["env"], event.value) for event in logs.events()] == [
        (env, sum(clock for _, clock, at in episodes(0) if at == env)) for env in range(N_ENVS)
    ]


def test_stacked_lanes_are_arrays_with_a_mask():
    _, logs = spool(train)(0)
    assert logs["return"].shape == logs.valid["return"].shape == (N_STEPS, N_ENVS)


def test_a_condition_that_all_lanes_share_keeps_them_together():
    def f(x):
        jax.lax.cond(x > 0, lambda: jax.vmap(lambda y: (log({"y": y}), y)[1])(jnp.arange(3)), lambda: jnp.arange(3))
        jax.vmap(lambda y: jax.lax.cond(y > 0, lambda: (log({"z": y}), y)[1], lambda: y))(jnp.arange(3))

    _, logs = spool(f, lanes=None)(1)
    assert (logs["y"].shape, logs["z"].shape, logs.lane["z"].tolist()) == ((1, 3), (3,), [0, 1, 2])


@pytest.mark.parametrize(
    ("axis", "wanted"), [((), {"lane", "robot"}), ("env", {"env", "robot"}), (("a", "b"), {"a", "b"})]
)
def test_axes_have_the_names_of_the_log_or_of_the_vmap(axis, wanted):
    def f(x):
        log({"x": x}, axis=axis)

    _, logs = spool(jax.vmap(jax.vmap(f), axis_name="robot"), lanes="each")(jnp.zeros((2, 3)))
    assert set(logs.steps) == wanted


def test_an_axis_that_is_named_like_a_step_has_another_name():
    _, logs = spool(jax.vmap(lambda x: log({"x": x}, axis="env", env=x)), lanes="each")(jnp.arange(2) + 7)
    assert (logs.env["x"].tolist(), logs.env_lane["x"].tolist()) == ([7, 8], [0, 1])


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: spool(train, lanes="all"), "'mean', 'each' or 'stack' as lanes=, got 'all'"),
        (spool(lambda: log({"x": 1}, axis=3)), "axis= in log\\(\\), got 3"),
        (spool(lambda: log({"x": 1}, axis="a b")), "got 'a b'"),
        (lambda: loggers.ConsoleLogger().init(seeds=[1, 1]), "names as seeds="),
        (lambda: loggers.ConsoleLogger().init(seeds="abc"), "names as seeds="),
    ],
)
def test_misuse_is_told_at_the_call(call, said):
    with pytest.raises(LogError, match=said):
        call()


def test_values_without_a_mean_are_refused():
    def f(key):
        log({"key": key})

    with pytest.raises(LogError, match="'key'"):
        spool(jax.vmap(f), lanes="mean")(jax.random.split(jax.random.key(0)))


def test_seeds_have_their_own_names(tmp_path):
    with loggers.SaveLogger(tmp_path / "saved") as logger:
        keys = jax.random.split(jax.random.key(3), 4)
        job = jax.vmap(lambda state, key: logger.spool(lambda k: log({"x": jax.random.uniform(k)}), state)(key))
        jax.jit(job)(logger.init(seeds=range(4)), keys)
    found = sg.open(tmp_path / "saved")
    assert {seed: found[seed].series("x")[0].value for seed in found} == {
        str(i): jax.random.uniform(key) for i, key in enumerate(keys)
    }
