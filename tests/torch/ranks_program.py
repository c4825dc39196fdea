"""One rank of a program that trains by DistributedDataParallel; prints what it saw as JSON."""

from __future__ import annotations

import json
import os
import sys
import threading

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import sightglass as sg
import sightglass.torch as sgt


def main(port: str) -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=size)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    run = sg.init(f"ddp{rank}", budget=None, ranks=sg.Ranks(agree=sgt.agree()))
    sgt.watch(model, run, optimizer=opt)
    with sg.connect(run) as client:
        stream = client.stream("(batch.rank, batch.grads['0.bias'].norm(), batch.activations['0'].mean())")
        acting = threading.Thread(target=lambda: (client.set("optimizer.lr", 0.5), client.stop()), daemon=True)
        torch.manual_seed(100 + rank)
        rates, wanted, n = [], [], 0
        while not run.stopping and n < 20_000:
            opt.zero_grad()
            model(torch.randn(5, 4)).square().mean().backward()
            wanted.append(float(model.module[0].bias.grad.norm()))
            opt.step()
            run.observe("batch", step=n)
            rates.append(opt.param_groups[0]["lr"])
            n += 1
            if n == 5 and rank == 0:
                acting.start()
        run.flush()
        run.close()
        records = [(record.step, *record.value) for record in stream]
    right = all(abs(wanted[int(step)] - norm) < 1e-6 for step, _, norm, _ in records)
    seen = {
        "ranks": sorted({r for _, r, _, _ in records}),
        "n": n,
        "first": rates[0],
        "last": rates[-1],
        "at": rates.index(0.5),
        "right": right and len(records) > 0,
        "norm": records[-1][2],
        "mean": records[-1][3],
        "hooks": sum(len(module._forward_hooks) for module in model.modules()),
    }
    print(json.dumps(seen), flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
