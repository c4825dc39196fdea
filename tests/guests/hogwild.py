"""The hogwild of PyTorch's examples: processes train one model in shared memory, each with its own data and optimizer.

In the example they race. Here they take turns, so that two trainings can be compared bit by bit.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from tests.waiting import PATIENCE_S, wait_until
from torch import multiprocessing as mp

import sightglass as sg
import sightglass.torch as sgt

from .guest import Round
from .mnist import ConvNet, digits

N_WORKERS, N_BATCH = 2, 16
FOR_EVER = 2**31 - 1

# Asked of all workers at once, by another process than theirs.
QUESTIONS = (
    "batch.loss",
    "batch.loss.mean(every=4)",
    "batch.loss.quantile(0.9, every=4)",
    "batch.loss.rolling(3).mean()",
    "batch.loss.mean(by=lambda b: b.worker, every=4)",
    "batch.accuracy.max(every=4)",
    "batch.predicted[-1]",
    "batch.grads.map(lambda name, g: g.norm())",
    "on('batch').map(lambda b: b.updates.map(lambda name, u: u.norm() / b.params[name].norm()))",
    "batch.grads['fc1.weight'].histogram(16)",
    "batch.params['fc2.weight'][0, :4]",
    "batch.params.map(lambda name, p: p.norm())",
    "batch.activations.map(lambda name, a: a.mean())",
    "batch.activations['conv1'].quantile([0.1, 0.9])",
    "batch.activation_grads['fc2'].norm()",
    "batch.optimizer.lr",
    "batch.optimizer.state['fc2.bias'].momentum_buffer.norm()",
    "initial.norms",
    # By how much the other worker has changed the parameters since the worker's last step
    "on('batch').map(lambda b: b.params['fc2.bias'] - b.updates['fc2.bias']).diff()",
)


def work(rank, model, turns, end, results, with_run):
    """Train in one of the processes."""
    torch.set_num_threads(1)
    torch.manual_seed(1 + rank)
    rng = np.random.default_rng(1 + rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    run = sg.init(f"hogwild-{rank}") if with_run else None
    if run is not None:
        sgt.watch(model, run, optimizer=optimizer)
    losses, times_s = [], []
    for step in itertools.count():
        turns[rank].acquire()
        times_s.append(time.perf_counter())
        if step < end.value:
            x, y = digits(N_BATCH, rng)
            optimizer.zero_grad()
            output = model(x)
            loss = F.nll_loss(output, y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            predicted = output.argmax(dim=1)
            accuracy = (predicted == y).float().mean()
            if run is not None:
                offered = {"accuracy": accuracy, "predicted": predicted, "worker": rank}
                run.observe("batch", step=step, loss=loss.detach(), lr=optimizer.param_groups[0]["lr"], **offered)
                if rank == 0 and run.stopping:
                    end.value = step + 1  # the other workers end at this step, too
        turns[(rank + 1) % N_WORKERS].release()
        if step >= end.value:
            break
    results.put((rank, losses, float(np.median(np.diff(times_s))) if len(times_s) > 1 else 0.0))
    if run is not None:
        run.close()


class Job:
    """A training that goes on in other processes.

    Attributes:
        step_s: How long a step of all workers took, the median in seconds; known behind `result`.
    """

    def __init__(self, n_steps: int, with_run: bool) -> None:
        context = mp.get_context("spawn")
        torch.manual_seed(1)
        self.model = ConvNet()
        self.model.share_memory()
        self._results, self.step_s = context.Queue(), 0.0
        turns = [context.Semaphore(int(rank == 0)) for rank in range(N_WORKERS)]
        # It is kept: semaphores end with the last reference of the process that made them.
        self._shared = shared = (self.model, turns, context.Value("i", n_steps), self._results, with_run)
        self.processes = [context.Process(target=work, args=(rank, *shared), daemon=True) for rank in range(N_WORKERS)]
        for process in self.processes:
            process.start()

    def result(self) -> Round:
        """Wait for the end; return the losses of all workers, one after another at each step, and the parameters."""
        told = sorted(self._results.get(timeout=PATIENCE_S) for _ in self.processes)
        self.step_s = told[0][2]
        losses = [loss for losses in zip(*(losses for _, losses, _ in told), strict=True) for loss in losses]
        return Round(losses=losses, weights=[*self.model.parameters()])


@contextmanager
def begun(n_steps: int = FOR_EVER, *, with_run: bool) -> Iterator[Job]:
    """Begin a training, which ends by itself or by a client's stop, and in any case with the block."""
    job = Job(n_steps, with_run)
    try:
        yield job
        for process in job.processes:
            process.join()
            assert process.exitcode == 0
    finally:
        for process in job.processes:
            process.kill()
            process.join()


def joined() -> sg.Fleet:
    """Return all workers, once they run."""
    fleet = sg.fleet("hogwild-*")
    wait_until(lambda: len(fleet) == N_WORKERS, fleet)
    return fleet


def is_answered(stream: sg.Stream) -> bool:
    """Return whether each worker has answered."""
    return sum(member.latest is not None for member in stream.members) == N_WORKERS
