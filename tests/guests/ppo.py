"""PPO as PureJaxRL trains it, on the cart and pole of `examples/jax_ppo.py`: rollouts, episodes and minibatches log."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

import sightglass.jax as sgx

from .guest import Guest, Round

N_ENVS, N_STEPS, N_MINIBATCHES, SIZES = 3, 16, 2, (4, 8, 3)
_spec = importlib.util.spec_from_file_location("jax_ppo", Path(__file__).parents[2] / "examples" / "jax_ppo.py")
example = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(example)


def act(params, carry, key):
    """Let one environment act once, and log what happens there."""
    after, moment = example.step(params, carry, key)
    sgx.log({"action": moment["action"], "angle": carry[0][2], "value": moment["value"]}, event="env", axis="env")
    ended = {"return": moment["length"], "angle": carry[0][2]}
    jax.lax.cond(moment["done"], lambda: sgx.log(ended, event="episode", axis="env") and None, lambda: None)
    return after, moment


@jax.jit
def update(params, envs, key, lr):
    def rollout(envs, key):
        return jax.vmap(functools.partial(act, params), axis_name="env")(envs, jax.random.split(key, N_ENVS))

    def minibatch(params, batch):
        loss, grads = jax.value_and_grad(example.loss_of)(params, batch)
        sgx.log({"loss": loss, "grad_norm": jnp.sqrt(sum(jnp.sum(g**2) for g in jax.tree.leaves(grads)))})
        return jax.tree.map(lambda p, g: p - lr * g, params, grads), (loss, grads)

    key, shuffle = jax.random.split(key)
    envs, moments = jax.lax.scan(rollout, envs, jax.random.split(key, N_STEPS))
    gains = example.advantages(moments, example.policy(params, envs[0])[1])
    data = {**moments, "gain": gains, "target": gains + moments["value"]}
    data = jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), data)
    order = jax.random.permutation(shuffle, N_ENVS * N_STEPS).reshape(N_MINIBATCHES, -1)
    trained, (losses, grads) = jax.lax.scan(minibatch, params, jax.tree.map(lambda a: a[order], data))
    every = jax.nn.log_softmax(example.policy(trained, data["state"])[0])
    ratio = jnp.exp(jnp.take_along_axis(every, data["action"][:, None], 1)[:, 0] - data["logp"])
    sgx.log({
        "loss": losses.mean(), "lr": lr, "gains": gains, "values": moments["value"], "actions": moments["action"],
        "entropy": -(jnp.exp(every) * every).sum(-1).mean(), "ratio": ratio, "n_done": moments["done"].sum(),
        "explained": 1 - jnp.var(gains) / jnp.var(data["target"]), "grads": grads, "params": trained,
    })  # fmt: skip
    return trained, envs, moments, losses.mean()


def train(run=None):
    keys = jax.random.split(jax.random.key(0), len(SIZES))
    sizes = zip(keys[1:], SIZES[:-1], SIZES[1:], strict=True)
    params = [(jax.random.normal(key, (n, m)) / n**0.5, jnp.zeros(m)) for key, n, m in sizes]
    envs, losses, ended = (jnp.zeros((N_ENVS, 4)), jnp.zeros(N_ENVS, int)), [], None
    step, lr = update, None
    if run is not None:
        step, lr = sgx.live(update, run=run, event="update"), run.control("lr", 0.05, min=0.0)
    yield Round(losses=losses, weights=jax.tree.leaves(params))
    while run is None or not run.stopping:
        key = jax.random.fold_in(keys[0], len(losses))
        params, envs, moments, loss = step(params, envs, key, jnp.float32(0.05 if lr is None else lr.value))
        losses.append(loss.item())
        moments = SimpleNamespace(**jax.device_get(moments))
        ended = moments if moments.done.any() else ended
        seen = SimpleNamespace(now=moments, ended=ended, params=params)
        yield Round(losses=losses, weights=jax.tree.leaves(params), seen=seen)


def returns(r):
    """Return how long the episodes lasted that ended in the last update with any, as they ended."""
    return r.seen.ended.length[r.seen.ended.done]


GUEST = Guest(
    train=train,
    control=("lr", 0.25, "update.lr"),
    losses="update.loss",
    questions={
        "update.loss": lambda r: r.losses[-1],
        "update.loss.mean(every=4)": None,
        "update.loss.ema(0.1)": None,
        "update.loss.rate(every=4)": None,
        "update.entropy": None,
        "update.explained": None,
        "update.n_done": lambda r: r.seen.now.done.sum(),
        "(abs(update.ratio - 1) > 0.2).mean()": None,
        "on('update').map(lambda u: (u.ratio - 1 - log(u.ratio)).mean())": None,
        "update.gains.histogram(16)": None,
        "update.gains.std()": None,
        "update.values.quantile([0.1, 0.5, 0.9])": lambda r: tuple(np.quantile(r.seen.now.value, [0.1, 0.5, 0.9])),
        "update.actions.ravel().bincount(2)": lambda r: np.bincount(r.seen.now.action.ravel(), minlength=2),
        "update.actions[-1]": lambda r: r.seen.now.action[-1],
        "update.actions.mean(axis=0)": lambda r: r.seen.now.action.mean(axis=0),
        "update.params[0][0].norm()": lambda r: np.linalg.norm(r.seen.params[0][0]),
        "update.params.map(lambda i, layer: layer[0].norm())": lambda r: [np.linalg.norm(w) for w, _ in r.seen.params],
        "update.params[1][1]": lambda r: r.seen.params[1][1],
        "update.grads[0][0][-1].norm()": None,
        "update.grads.map(lambda i, layer: abs(layer[0]).max())": None,
        "isnan(update.grads[1][0]).any()": lambda r: False,
        "update.lr": lambda r: 0.05,
        # Each minibatch
        "update_minibatch.loss": None,
        "update_minibatch.loss.mean(every=2)": lambda r: r.losses[-1],
        "update_minibatch.grad_norm.max(every=2)": None,
        # Each step of the environments
        "env.action": lambda r: r.seen.now.action[-1],
        "env.action.mean(axis=0)": lambda r: r.seen.now.action[-1].mean(),
        "on('env').map(lambda e: abs(e.angle).max()).max()": None,  # a group is a call
        "env.value.quantile(0.9, every=16)": None,
        # Each episode, in whichever environment it ends
        "episode.return": lambda r: returns(r)[-1],
        "on('episode').map(lambda e: e['return']).mean()": lambda r: returns(r).mean(),
        "on('episode').map(lambda e: e['return']).collect()": lambda r: list(returns(r)),
        "on('episode').map(lambda e: e['return']).max(by=lambda e: e.env)": lambda r: {
            str(i): r.seen.ended.length[done, i].max() for i, done in enumerate(r.seen.ended.done.T) if done.any()
        },
        "on('episode').count()": lambda r: r.seen.now.done.sum(),
        "episode.return.histogram(8, every=10)": None,
        "on('episode').count(by=lambda e: e.env)": lambda r: {
            str(i): n for i, n in enumerate(r.seen.now.done.sum(axis=0)) if n
        },
        "episode.env": lambda r: np.nonzero(r.seen.ended.done)[1][-1],
        "episode": lambda r: {
            "env": np.nonzero(r.seen.ended.done)[1][-1],
            "return": returns(r)[-1],
            "angle": r.seen.ended.state[..., 2][r.seen.ended.done][-1],
        },
        "episode.return.rolling(5).mean()": None,
    },
)
