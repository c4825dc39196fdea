"""A small GPT as nanoGPT trains it: tied weights, groups of AdamW, accumulated and clipped gradients, a schedule."""

from __future__ import annotations

import math
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import nn

import sightglass as sg
import sightglass.torch as sgt

from .guest import Guest, Round

N_TOKENS, LENGTH, WIDTH, N_HEADS, N_BLOCKS, N_BATCH, N_PARTS = 24, 16, 24, 2, 2, 6, 2
N_STEPS = 4  # between two evaluations


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (N_HEADS, -1)).transpose(1, 2) for part in self.attn(self.ln_1(x)).chunk(3, -1))
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(-2))
        return x + self.mlp(self.ln_2(x))


class NanoGPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(N_TOKENS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.h, self.ln_f = nn.ModuleList(Block() for _ in range(N_BLOCKS)), nn.LayerNorm(WIDTH)
        self.lm_head = nn.Linear(WIDTH, N_TOKENS, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        for block in self.h:
            x = block(x)
        logits = self.lm_head(self.ln_f(x))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def get_batch(text, generator):
    starts = torch.randint(len(text) - LENGTH - 1, (N_BATCH,), generator=generator)
    windows = torch.stack([text[start : start + LENGTH + 1] for start in starts])
    return windows[:, :-1], windows[:, 1:]


def get_lr(step):
    return 1e-2 * 0.5 * (1 + math.cos(math.pi * min(step, 40) / 40))


def train(run=None):
    torch.manual_seed(1337)
    data = torch.Generator().manual_seed(1)
    text = torch.cumsum(torch.randint(1, 4, (2000,), generator=data), 0) % N_TOKENS
    model = NanoGPT()
    decay = [p for p in model.parameters() if p.dim() >= 2]
    no_decay = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, betas=(0.9, 0.95))
    losses = []
    if run is not None:
        sgt.watch(model, run, optimizer=optimizer)
    seen = SimpleNamespace(model=model, optimizer=optimizer)
    yield Round(losses=losses, weights=[*model.parameters()], seen=seen)
    while run is None or not run.stopping:
        model.eval()
        with torch.no_grad():
            val_loss = model(*get_batch(text, data))[1].item()
        if run is not None:
            run.observe("eval", step=len(losses), val_loss=val_loss)
            run.log({"sample": sg.Text(f"{text[:8].tolist()} …")}, step=len(losses))
        model.train()
        for step in range(len(losses), len(losses) + N_STEPS):
            for group in optimizer.param_groups:
                group["lr"] = get_lr(step)
            optimizer.zero_grad(set_to_none=True)
            for _ in range(N_PARTS):
                tokens, targets = get_batch(text, data)
                logits, loss = model(tokens, targets)
                (loss / N_PARTS).backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
            if run is not None:
                offered = {"logits": logits.detach(), "targets": targets, "grad_norm": norm}
                run.observe("batch", step=step, loss=loss.detach(), lr=get_lr(step), **offered)
        seen = SimpleNamespace(model=model, optimizer=optimizer, step=step, val_loss=val_loss, norm=norm)
        seen.logits, seen.targets = logits.detach(), targets
        yield Round(losses=losses, weights=[*model.parameters()], seen=seen)


ALL = "on('batch').map(lambda b: b.grads.map(lambda name, g: (g * g).sum()).values().sum() ** 0.5)"


GUEST = Guest(
    train=train,
    control=("optimizer.0.weight_decay", 0.25, "batch.optimizer.weight_decay['0']"),
    questions={
        "batch.loss": lambda r: r.losses[-1],
        "batch.loss.mean(every=4)": lambda r: sum(r.losses[-4:]) / 4,
        "exp(batch.loss)": lambda r: math.exp(r.losses[-1]),
        "eval.val_loss": lambda r: r.seen.val_loss,
        "on('batch').join('eval').map(lambda b: b.eval.val_loss - b.loss)": lambda r: r.seen.val_loss - r.losses[-1],
        "batch.lr": lambda r: get_lr(r.seen.step),
        "batch.optimizer.lr": None,
        "batch.optimizer.groups": None,
        "batch.optimizer.groups[0].weight_decay": lambda r: 0.1,
        "log['sample']": None,
        # Gradients as the step used them: accumulated and clipped
        ALL: lambda r: min(1.0, r.seen.norm.item()),
        "(batch.grad_norm > 1).mean(every=8)": None,
        "batch.grad_norm.max(every=4)": None,
        "batch.grads.map(lambda name, g: abs(g).mean())": lambda r: {
            name: p.grad.abs().mean() for name, p in r.seen.model.named_parameters()
        },
        "batch.grads.filter(lambda name, g: name.startswith('h.0')).map(lambda name, g: g.norm())": None,
        "batch.grads['lm_head.weight'].norm(axis=1)": lambda r: r.seen.model.wte.weight.grad.norm(dim=1),
        "batch.grads['wpe.weight'].norm(axis=1)": lambda r: r.seen.model.wpe.weight.grad.norm(dim=1),
        # Tied weights are found by both names
        "(batch.params['lm_head.weight'] == batch.params['wte.weight']).all()": lambda r: True,
        "batch.params['lm_head.weight'][3, :5]": lambda r: r.seen.model.wte.weight.detach()[3, :5],
        "batch.optimizer.state['lm_head.weight'].exp_avg_sq.histogram(16)": None,
        "batch.optimizer.state['wte.weight'].exp_avg.norm()": lambda r: r.seen.optimizer.state[r.seen.model.wte.weight][
            "exp_avg"
        ].norm(),
        "batch.params['h.0.attn.weight'].reshape((3, -1)).norm(axis=1)": None,
        "batch.params['h.1.mlp.0.weight'].histogram(16)": None,
        "svdvals(batch.params['h.0.proj.weight'])": None,
        "on('batch').map(lambda b: b.updates.map(lambda name, u: u.norm() / b.params[name].norm()))": None,
        "batch.updates['lm_head.weight'].norm()": None,
        # Activations
        "batch.activations.map(lambda name, a: a.std())": None,
        "batch.activations['h.0'].norm(axis=-1).mean()": None,
        "on('batch').map(lambda b: (b.activations['h.1'] - b.inputs['h.1']).norm() / b.inputs['h.1'].norm())": None,
        "batch.activations['h.0.mlp.1'].quantile([0.1, 0.5, 0.9])": None,
        "(batch.activations['h.0.mlp.1'] < 0).mean()": None,
        "batch.activations['lm_head@0'].std()": None,
        "batch.activations['lm_head@1'].std()": lambda r: r.seen.logits.std(correction=0),
        "batch.activations[''][1]": lambda r: r.losses[-1],
        "batch.activation_grads['ln_f'].norm()": None,
        "batch.activation_grads.map(lambda name, g: g.norm())": None,
        "batch.eval_activations['lm_head'].std()": None,
        # What it predicts
        "(batch.logits.argmax(axis=-1) == batch.targets).mean()": lambda r: (
            (r.seen.logits.argmax(-1) == r.seen.targets).float().mean()
        ),
        "batch.logits[-1, -1].softmax().topk(3)": lambda r: r.seen.logits[-1, -1].softmax(-1).topk(3).values,
        "on('batch').map(lambda b: (b.logits.logsumexp(axis=-1) - b.logits.max(axis=-1)).mean(axis=0))": lambda r: (
            r.seen.logits.logsumexp(-1) - r.seen.logits.max(-1).values
        ).mean(0),
        "batch.targets.bincount(24).argmax()": lambda r: r.seen.targets.flatten().bincount(minlength=24).argmax(),
    },
)
