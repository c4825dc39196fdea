"""The recurrent classifier of Equinox's examples: which way does a spiral turn?"""

from __future__ import annotations

from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

import sightglass.jax as sgx

from .guest import Guest, Round

N_DATA, N_BATCH, LENGTH, HIDDEN = 64, 16, 8, 8


class RNN(eqx.Module):
    cell: eqx.nn.GRUCell
    linear: eqx.nn.Linear
    bias: jax.Array
    hidden_size: int = eqx.field(static=True)

    def __init__(self, in_size, out_size, hidden_size, *, key):
        ckey, lkey = jax.random.split(key)
        self.cell = eqx.nn.GRUCell(in_size, hidden_size, key=ckey)
        self.linear = eqx.nn.Linear(hidden_size, out_size, use_bias=False, key=lkey)
        self.bias, self.hidden_size = jnp.zeros(out_size), hidden_size

    def __call__(self, xs):
        def recur(carry, x):
            hidden = self.cell(x, carry)
            sgx.log({"hidden": hidden, "saturated": jnp.mean(abs(hidden) > 0.9)})
            return hidden, None

        out, _ = jax.lax.scan(recur, jnp.zeros(self.hidden_size), xs)
        return jax.nn.sigmoid(self.linear(out) + self.bias)


def spirals(rng):
    """Return points along spirals, half of them mirrored, and which."""
    angles = np.linspace(0, 3, LENGTH) + rng.uniform(0, 2 * np.pi, (N_DATA, 1))
    labels = np.arange(N_DATA) % 2
    radius = np.linspace(0.2, 1, LENGTH)
    x = np.stack([radius * np.cos(angles), radius * np.sin(angles) * (2 * labels[:, None] - 1)], -1)
    return x.astype(np.float32), labels.astype(np.float32)[:, None]


optim = optax.adam(3e-2)


@eqx.filter_value_and_grad(has_aux=True)
def compute_loss(model, x, y):
    pred = jax.vmap(model, axis_name="example")(x)
    return -jnp.mean(y * jnp.log(pred) + (1 - y) * jnp.log(1 - pred)), pred


@eqx.filter_jit
def make_step(model, x, y, opt_state, lr):
    (loss, pred), grads = compute_loss(model, x, y)
    updates, opt_state = optim.update(grads, opt_state)
    updates = jax.tree.map(lambda u: u * lr, updates)
    sgx.log({"loss": loss, "accuracy": jnp.mean((pred > 0.5) == y), "pred": pred, "y": y, "lr": lr})
    sgx.log({"grads": eqx.filter(grads, eqx.is_array), "updates": updates, "params": eqx.filter(model, eqx.is_array)})
    sgx.log({"adam": opt_state[0].nu, "grad_norm": lambda: optax.tree.norm(grads)})
    return loss, pred, eqx.apply_updates(model, updates), opt_state


def train(run=None):
    xs, ys = spirals(np.random.default_rng(5678))
    model = RNN(in_size=2, out_size=1, hidden_size=HIDDEN, key=jax.random.key(0))
    opt_state = optim.init(eqx.filter(model, eqx.is_array))
    step_fn, lr = make_step, None
    if run is not None:
        step_fn, lr = sgx.live(make_step, run=run), run.control("lr", 1.0, min=0.0)
    losses = []
    yield Round(losses=losses, weights=jax.tree.leaves(eqx.filter(model, eqx.is_array)))
    while run is None or not run.stopping:
        rows = np.arange(N_BATCH) + N_BATCH * (len(losses) % (N_DATA // N_BATCH))
        before, now = model, jnp.float32(1.0 if lr is None else lr.value)
        loss, pred, model, opt_state = step_fn(model, xs[rows], ys[rows], opt_state, now)
        losses.append(loss.item())
        seen = SimpleNamespace(before=before, pred=pred, x=xs[rows], y=ys[rows], opt_state=opt_state)
        yield Round(losses=losses, weights=jax.tree.leaves(eqx.filter(model, eqx.is_array)), seen=seen)


def gradients(r):
    return compute_loss(r.seen.before, r.seen.x, r.seen.y)[1]


GUEST = Guest(
    train=train,
    control=("lr", 0.5, "batch.lr"),
    questions={
        "batch.loss": lambda r: r.losses[-1],
        "batch.loss.mean(every=4)": None,
        "batch.loss.rolling(3).mean()": lambda r: np.mean(r.losses[-3:]),
        "batch.loss.quantile(0.9, every=4)": None,
        "batch.loss.rate(every=4)": None,
        "batch.accuracy": lambda r: ((r.seen.pred > 0.5) == r.seen.y).mean(),
        "batch.pred[-1]": lambda r: r.seen.pred[-1],
        "(batch.pred[:, 0] > 0.5).sum()": lambda r: (r.seen.pred > 0.5).sum(),
        "where(batch.y == 1, batch.pred, 0).sum() / batch.y.sum()": lambda r: r.seen.pred[r.seen.y == 1].mean(),
        "batch.lr": lambda r: 1.0,
        # Modules are trees: attributes are paths
        "batch.grad_norm": lambda r: optax.tree.norm(gradients(r)),
        "batch.grads.cell.weight_hh.norm()": lambda r: jnp.linalg.norm(gradients(r).cell.weight_hh),
        "batch.grads.cell.weight_ih.reshape((3, -1)).norm(axis=1)": None,
        "batch.grads.linear.weight": lambda r: gradients(r).linear.weight,
        "batch.grads.bias": lambda r: gradients(r).bias,
        "batch.grads.cell.weight_hh.histogram(16)": None,
        "abs(batch.grads.cell.bias).topk(3)": lambda r: jax.lax.top_k(abs(gradients(r).cell.bias), 3)[0],
        "isnan(batch.grads.cell.weight_hh).any()": lambda r: False,
        "batch.params.linear.weight[0, 2:5]": lambda r: r.seen.before.linear.weight[0, 2:5],
        "svdvals(batch.params.cell.weight_hh)": None,
        "batch.params": None,
        "batch.grads.cell.map(lambda name, g: g.norm())": None,
        "batch.grads.leaves().map(lambda name, g: g.norm())['cell.weight_hh']": lambda r: jnp.linalg.norm(
            gradients(r).cell.weight_hh
        ),
        "on('batch').map(lambda b: b.updates.cell.weight_hh.norm() / b.params.cell.weight_hh.norm())": None,
        "batch.updates.linear.weight": None,
        # A difference of weights has the rounding of the weights, their sum has not.
        "batch.params.linear.weight + batch.updates.linear.weight": lambda r: r.weights[-2],
        "batch.adam.cell.weight_hh.mean()": lambda r: r.seen.opt_state[0].nu.cell.weight_hh.mean(),
        # Each step of the recurrence
        "batch_recur.hidden.std()": None,
        "batch_recur.hidden[0]": None,
        "batch_recur.saturated.max(every=8)": None,
        "abs(batch_recur.hidden).mean(axis=0)": None,
        "on('batch_recur').map(lambda b: abs(b.hidden).max()).max()": None,  # a group is a call
    },
)
