"""Ask PPO while its only call runs: the whole training, over two seeds, is one jitted function.

The training is written as in PureJaxRL: environments, rollouts, advantages and epochs of minibatches are scans within
one scan over updates. Nothing in it waits for anybody. You learn how `chunked` lets a client look into that one call,
lower the learning rate, which the program reads with `control`, and stop it when the pole stays up.

    python examples/jax_ppo.py
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor

# JAX 0.10 may compute wrong numbers on a CPU without this; it has to be set before JAX is imported.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_experimental_ynn_fusion_type=")

import jax
import jax.numpy as jnp
import numpy as np

import sightglass as sg
import sightglass.jax as sgx

N_UPDATES, N_ENVS, N_STEPS, N_EPOCHS, N_MINIBATCHES = 100_000, 8, 32, 2, 2
GAMMA, LAMBDA, CLIP, MAX_LENGTH = 0.99, 0.95, 0.2, 200
SIZES = (4, 32, 32, 3)  # the state of the cart; two hidden layers; two logits and a value


def move(state, action):
    """Return where cart and pole are a tick later (Barto, Sutton and Anderson 1983)."""
    x, speed, angle, turn = state
    thrust = (jnp.where(action == 1, 10.0, -10.0) + 0.05 * turn**2 * jnp.sin(angle)) / 1.1
    spin = (9.8 * jnp.sin(angle) - jnp.cos(angle) * thrust) / (0.5 * (4 / 3 - 0.1 * jnp.cos(angle) ** 2 / 1.1))
    gain = thrust - 0.05 * spin * jnp.cos(angle) / 1.1
    return jnp.stack([x + 0.02 * speed, speed + 0.02 * gain, angle + 0.02 * turn, turn + 0.02 * spin])


def policy(params, state):
    """Return the logits of the actions, and the value of a state."""
    for i, (w, b) in enumerate(params):
        state = state @ w + b
        state = jnp.tanh(state) if i < len(params) - 1 else state
    return state[..., :2], state[..., 2]


def step(params, carry, key):
    """Let one environment act once; begin again where the pole has fallen."""
    state, length = carry
    logits, value = policy(params, state)
    action = jax.random.categorical(key, logits)
    after, length = move(state, action), length + 1
    done = (abs(after[0]) > 2.4) | (abs(after[2]) > 0.21) | (length >= MAX_LENGTH)
    fresh = jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)
    moment = {
        "state": state,
        "action": action,
        "value": value,
        "logp": jax.nn.log_softmax(logits)[action],
        "done": done,
        "length": length,
    }
    return (jnp.where(done, fresh, after), jnp.where(done, 0, length)), moment


def advantages(moments, last_value):
    """Return generalised advantages; each step is rewarded with 1."""

    def back(carry, moment):
        gain, value = carry
        alive = 1 - moment["done"]
        gain = 1 + GAMMA * value * alive - moment["value"] + GAMMA * LAMBDA * alive * gain
        return (gain, moment["value"]), gain

    return jax.lax.scan(back, (jnp.zeros_like(last_value), last_value), moments, reverse=True)[1]


def loss_of(params, batch):
    """Return PPO's clipped loss."""
    logits, value = policy(params, batch["state"])
    every = jax.nn.log_softmax(logits)
    ratio = jnp.exp(jnp.take_along_axis(every, batch["action"][:, None], 1)[:, 0] - batch["logp"])
    gain = (batch["gain"] - batch["gain"].mean()) / (batch["gain"].std() + 1e-8)
    clipped = jnp.minimum(ratio * gain, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * gain).mean()
    entropy = -(jnp.exp(every) * every).sum(-1).mean()
    return 0.5 * ((value - batch["target"]) ** 2).mean() - clipped - 0.01 * entropy


def make_train(lr):
    """Return the whole training as one function of a key."""

    def update(carry, key):
        params, envs = carry
        act, shuffle = jax.random.split(key)

        def act_all(envs, key):
            return jax.vmap(step, (None, 0, 0))(params, envs, jax.random.split(key, N_ENVS))

        envs, moments = jax.lax.scan(act_all, envs, jax.random.split(act, N_STEPS))
        gains = advantages(moments, policy(params, envs[0])[1])
        data = {**moments, "gain": gains, "target": gains + moments["value"]}
        data = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), data)

        def minibatch(params, batch):
            loss, grads = jax.value_and_grad(loss_of)(params, batch)
            return jax.tree.map(lambda p, g: p - sgx.control(lr) * g, params, grads), loss

        def epoch(params, key):
            order = jax.random.permutation(key, N_ENVS * N_STEPS).reshape(N_MINIBATCHES, -1)
            return jax.lax.scan(minibatch, params, jax.tree.map(lambda a: a[order], data))

        params, losses = jax.lax.scan(epoch, params, jax.random.split(shuffle, N_EPOCHS))
        n_done = moments["done"].sum()
        length = (moments["length"] * moments["done"]).sum() / jnp.maximum(n_done, 1)
        metrics = {"loss": losses.mean(), "length": length, "n_episodes": n_done}
        sgx.log(metrics)  # the scan returns them, too, so a query of them waits for no compiler
        return (params, envs), metrics

    def train(key):
        key, *keys = jax.random.split(key, len(SIZES))
        sizes = zip(keys, SIZES[:-1], SIZES[1:], strict=True)
        params = [(jax.random.normal(k, (n, m)) / n**0.5, jnp.zeros(m)) for k, n, m in sizes]
        envs = (jnp.zeros((N_ENVS, 4)), jnp.zeros(N_ENVS, int))
        (params, _), metrics = jax.lax.scan(update, (params, envs), jax.random.split(key, N_UPDATES))
        return params, metrics

    return train


def watch(client, started):
    """Ask one second after the call began; then lower the learning rate, and stop when the pole stays up."""
    started.wait()
    threading.Event().wait(1.0)
    stream = client.stream("update.length")
    first = next(iter(stream))
    print(f"Answered in the call, at update {first.step}: episodes last {np.round(first.value)} steps.")
    print(f"The learning rate was {client.set('lr', 0.01).old}, now it is 0.01.")
    last = deque(maxlen=20)
    for record in stream:
        last.append(np.mean(record.value))
        if record.step > N_UPDATES / 2 or (len(last) == last.maxlen and np.mean(last) > 0.3 * MAX_LENGTH):
            break
    client.stop()
    return first, np.mean(last)


def main():
    started = threading.Event()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as threads:
        with sg.init("jax-ppo", dir=folder) as run:
            lr = run.control("lr", 0.05, min=0.0)
            train = sgx.chunked(
                jax.jit(jax.vmap(make_train(lr))), every=10, event="update", between=lambda state: started.set()
            )
            watching = threads.submit(watch, sg.connect(run), started)
            try:
                _, metrics = train(jax.random.split(jax.random.key(0), 2))
            finally:
                started.set()  # or the thread would wait for what failed
        first, mean = watching.result()
    done = np.asarray(metrics["length"])[:, : train.n_done]
    print(f"Stopped after {train.n_done} of {N_UPDATES} updates: then episodes last {mean:.0f} steps.")
    assert first.step < train.n_done, "the answer came in the call"
    np.testing.assert_array_equal(first.value, done[:, int(first.step)])
    assert mean > 1.5 * done[:, :5].mean(), "it learns"


if __name__ == "__main__":
    main()
