"""One rank of a program whose parameters FSDP spreads; offers the norms of a twin that is whole, too."""

from __future__ import annotations

import copy
import os
import sys

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard

import sightglass as sg
import sightglass.torch as sgt


def main(port: str) -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(7, 5), nn.Linear(5, 1))  # the last bias has one item: a rank has none of it
    twin = copy.deepcopy(model)
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    both = [(one, torch.optim.SGD(one.parameters(), lr=0.1)) for one in (model, twin)]
    run = sg.init("fsdp", budget=None, ranks=sg.Ranks(group="fsdp", rank=rank, size=size))
    sgt.watch(model, run, optimizer=both[0][1])
    print("ready", flush=True)
    for line in sys.stdin:
        for _ in range(int(line)):
            x, y = torch.randn(4, 7), torch.randn(4, 1)  # the same on all ranks
            before = [p.detach().clone() for p in twin.parameters()]
            for one, optimizer in both:
                optimizer.zero_grad()
                (one(x) - y).square().mean().backward()
                nn.utils.clip_grad_norm_(one.parameters(), 0.1)
                optimizer.step()
            updates = [p.detach() - old for p, old in zip(twin.parameters(), before, strict=True)]
            whole = {"params": twin.parameters(), "grads": (p.grad for p in twin.parameters()), "updates": updates}
            norms = {kind: [float(x.norm()) for x in several] for kind, several in whole.items()}
            run.observe("batch", w=dict(model.named_parameters())["0.weight"], norms=norms)
    run.close()


if __name__ == "__main__":
    main(sys.argv[1])
