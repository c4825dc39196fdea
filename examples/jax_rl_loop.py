"""Look into loops of unknown length: a pole is balanced by trial and error, and at first no policy can do it.

A cart pushes to the left or right to keep a pole upright; an episode, a `lax.while_loop`, ends when it falls. Each call
of one compiled function tries four random policies. You learn how `spool` reduces the logs of such a loop, so that the
environment need not count; how a client sees three events at three depths of one program, `generation`, `episode` and
`env`, each as it happens; and how it finds out why every episode is short, and sets the control that cures it.

    python examples/jax_rl_loop.py
"""

from __future__ import annotations

import os
import tempfile
from concurrent.futures import ThreadPoolExecutor

# JAX 0.10 may compute wrong numbers on a CPU without this; it has to be set before JAX is imported.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_experimental_ynn_fusion_type=")

import jax
import jax.numpy as jnp
import numpy as np

import sightglass as sg
import sightglass.jax as sgx

N_POLICIES, MAX_STEPS, TICK_S = 4, 300, 0.02
MAX_ANGLE, MAX_X = 0.21, 2.4  # radians and metres, either side
START = jnp.array([0.0, 0.0, 0.05, 0.0])


def move(state, force):
    """Return where cart and pole are a tick later (Barto, Sutton and Anderson 1983); the force is in newtons."""
    x, speed, angle, turn = state
    thrust = (force + 0.05 * turn**2 * jnp.sin(angle)) / 1.1
    spin = (9.8 * jnp.sin(angle) - jnp.cos(angle) * thrust) / (0.5 * (4 / 3 - 0.1 * jnp.cos(angle) ** 2 / 1.1))
    gain = thrust - 0.05 * spin * jnp.cos(angle) / 1.1
    return jnp.stack([x + TICK_S * speed, speed + TICK_S * gain, angle + TICK_S * turn, turn + TICK_S * spin])


def episode(policy, push):
    """Balance until the pole falls, the cart leaves its track, or the time is over."""

    def goes_on(carry):
        (x, _, angle, _), n = carry
        return (abs(x) < MAX_X) & (abs(angle) < MAX_ANGLE) & (n < MAX_STEPS)

    def step(carry):
        state, n = carry
        state = move(state, jnp.where(state @ policy > 0, push, -push))
        sgx.log({"x": state[0], "angle": state[2], "reward": 1 - abs(state[2]) / MAX_ANGLE}, event="env")
        return state, n + 1

    return jax.lax.while_loop(goes_on, step, (START, 0))[0]


def generation(best, i, push):
    """Try policies near the best so far, and return the best of all with its return, and how long each lasted."""
    tried = sgx.spool(episode, ["reward", "x"], reduce={"reward": "sum", "x": "count"}, keep_logs=True)

    def attempt(best, key):
        policy = best[0] + jax.random.normal(key, best[0].shape)
        _, logs = tried(policy, push)
        score, length = logs["reward"][0], logs["x"][0]
        sgx.log({"return": score, "length": length}, event="episode")
        return jax.tree.map(lambda new, old: jnp.where(score > best[1], new, old), (policy, score), best), length

    best, lengths = jax.lax.scan(attempt, best, jax.random.split(jax.random.key(i), N_POLICIES))
    sgx.log({"best": best[1]})
    return best, lengths


def train(run, watching):
    """Search until a client stops the run; return the best policy, and the lengths of the episodes by generation."""
    push = run.control("push", 0.1, min=0.0, max=20.0)  # newtons; too low to balance the pole
    step = sgx.live(jax.jit(generation), event="generation")
    best, lengths = (jnp.zeros(4), jnp.float32(0)), []
    while not (run.stopping or watching.done()):
        best, last = step(best, len(lengths), push.value)
        lengths.append(np.asarray(last))
        run.flush()  # stands for a slower environment: records that are not read in time are dropped
    return best[0], lengths


def watch(client, streams):
    """See that episodes are short, find out why, set the control, and stop the run when the pole stays up."""
    short = next(iter(streams["lengths"])).value
    reach = next(iter(streams["reach"])).value
    print(f"Episodes last {max(short)} steps at most, and the cart goes no further than {reach:.3f} m: a weak motor?")
    print(f"push was {client.set('push', 10.0).old} N, now it is 10 N.")
    for record in streams["best"]:
        if record.value > 0.95 * MAX_STEPS:
            break
    client.stop()
    return short, reach


def main():
    questions = {
        "steps": sg.on("env").count(every=25),
        "reach": sg.on("env").map(lambda e: abs(e.x)).max(every=25),
        "lengths": sg.on("episode").map(lambda e: e.length).collect(),  # a group is a call
        "best": "generation.best",
    }
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as threads:
        with sg.init("jax-rl-loop", dir=folder, budget=None) as run:  # no budget: every event is evaluated
            client = sg.connect(run)
            streams = {name: client.stream(query) for name, query in questions.items()}
            watching = threads.submit(watch, client, streams)
            policy, lengths = train(run, watching)
        short, reach = watching.result()
    sg.plot(streams["best"], title="best return so far", height=8)

    seen = [record.value for record in streams["lengths"]]
    n_steps = sum(record.value for record in streams["steps"])
    print(f"{len(seen)} generations were observed: {np.sum(seen)} steps of episodes, {n_steps} events.")
    assert max(short) < MAX_STEPS / 2, "no policy could balance the pole"
    assert reach < 0.5, "because the motor was too weak"
    np.testing.assert_array_equal(seen, lengths[-len(seen) :], "the client saw what the program returned")
    assert n_steps == np.sum(seen), "and every step of every episode"

    _, logs = jax.jit(sgx.spool(episode, capacity=MAX_STEPS))(policy, 10.0)
    happened = logs.to_numpy()
    print(happened)
    assert len(happened["angle"]) > 0.95 * MAX_STEPS, "the best policy keeps the pole up"
    assert abs(happened["angle"]).max() < MAX_ANGLE


if __name__ == "__main__":
    main()
