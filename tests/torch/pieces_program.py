"""One rank of a program whose parameters FSDP spreads; says the norm of them all, and observes until it is stopped."""

from __future__ import annotations

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
    whole = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    run = sg.init("fsdp", budget=None, ranks=sg.Ranks(group="fsdp", rank=rank, size=size))
    sgt.watch(model, run)
    print("norms", *(float(parameter.norm()) for parameter in whole.values()), flush=True)
    for line in sys.stdin:
        for _ in range(int(line)):
            run.observe("batch", w=dict(model.named_parameters())["0.weight"])
    run.close()


if __name__ == "__main__":
    main(sys.argv[1])
