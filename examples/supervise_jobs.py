"""Supervise many training jobs on several hosts, and stop the poor ones early.

A grid of 18 networks is trained on handwritten digits, six processes at a time. The jobs only observe their epochs. A
monitor of thirty lines finds the jobs, queries the accuracy of each, and stops those that are worse than the others
were at the same epoch. If it is allowed to, the example runs a third of the jobs on "another host", a network
namespace that only TCP reaches, with the keys in each job's connection file.

You learn how to find runs on this and other machines (`sg.runs`), how to read many streams as one (`union`), and how to
stop runs by what they report (`run.stop`).

    python examples/supervise_jobs.py
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import sightglass as sg
from sightglass.demo import digits, network

N_EPOCHS, BATCH, N_AT_ONCE = 25, 10, 6
GRID = list(itertools.product((0.0001, 0.001, 0.01, 0.03, 0.1, 1.0), (32,), ("relu", "tanh", "sigmoid")))
PATIENCE, MARGIN = 5, 0.05


# A job: an ordinary training, plus two lines for the run.


def train(lr, width, activation, directory, listen):
    """Train one network; the two lines with `run` are all that the monitor needs."""
    images, labels, test_images, test_labels = digits.load()
    params = network.init([images.shape[1], width, digits.N_CLASSES], seed=0, activation=activation)
    velocity = network.zeros_like(params)
    rng = np.random.default_rng(0)
    name, queries = job_name(lr, width, activation), ["epoch.accuracy"]
    with sg.init(name, dir=directory, config={"lr": lr}, listen=listen, record=queries) as run:
        for epoch in range(N_EPOCHS):
            for rows in rng.permutation(len(images)).reshape(-1, BATCH):
                _, grads, _ = network.loss_and_grads(params, images[rows], labels[rows], activation=activation)
                params, velocity = network.update(params, grads, velocity, lr=lr)
            accuracy = network.accuracy(params, test_images, test_labels, activation=activation)
            run.observe("epoch", step=epoch, accuracy=accuracy)
            if run.stopping:
                break


def job_name(lr, width, activation):
    return f"{activation}-{width}-{lr:g}"


# The monitor.


def find(names, shared):
    """Wait until all of these jobs have started, on this host or another, and connect to those that still run."""
    runs, waiting = {}, set(names)
    while waiting:
        for info in sg.runs(connections=shared):
            if info.name in waiting and info.state == "running":
                file = Path(info.directory) / "connection.json"
                with contextlib.suppress(sg.RunNotFoundError, sg.RunLostError):  # it has just ended
                    runs[info.name] = sg.connect(file if file.exists() else info.id)
        waiting -= {*runs, *(info.name for info in sg.runs(shared) if info.state == "ended")}
        time.sleep(0.05)
    return runs


def supervise(runs, curves, stopped):
    """Stop each job that lies well below the median of all jobs so far at the same epoch."""
    streams = []
    for run in runs.values():
        with contextlib.suppress(sg.RunLostError):  # it has ended meanwhile
            streams.append(run.stream("epoch.accuracy"))
    for record in streams[0].union(*streams[1:]) if streams else ():
        curves.setdefault(record.run, {})[record.step] = record.value
        peers = [curve[record.step] for curve in curves.values() if record.step in curve]
        poor = record.value < np.median(peers) - MARGIN
        if poor and record.step >= PATIENCE and len(peers) >= N_AT_ONCE // 2 and record.run not in stopped:
            with contextlib.suppress(sg.RunLostError):  # it may just have ended
                stopped[record.run] = int(runs[record.run].stop().step)
    for run in runs.values():
        run.close()


def look_up(shared, curves):
    """Add the epochs before the monitor connected, from the jobs' files."""
    with sg.open(shared) as recorded:
        for job in recorded.values():
            for record in job.stream("epoch.accuracy"):
                curves.setdefault(job.name, {})[record.step] = record.value


# The cluster: this host, and another one if we are allowed to make it.


@contextlib.contextmanager
def other_host():
    """Make a network namespace with a link to ours; return its name and address, or `None` if that is not allowed."""
    if not hasattr(os, "getuid") or os.getuid() != 0 or shutil.which("ip") is None:
        yield None
        return
    name = f"sg{os.urandom(5).hex()}"
    if not succeed(f"ip netns add {name}", f"ip link add {name}a type veth peer name {name}b netns {name}"):
        succeed(f"ip netns delete {name}")
        yield None
        return
    try:
        first = 4 * (socket.if_nametoindex(f"{name}a") % 2**14)  # links have numbers of their own: a subnet for each
        here, there = (f"10.217.{first >> 8}.{first % 256 + i}" for i in (1, 2))
        done = succeed(
            f"ip address add {here}/30 dev {name}a", f"ip link set {name}a up",
            f"ip -n {name} address add {there}/30 dev {name}b", f"ip -n {name} link set {name}b up",
        )  # fmt: skip
        yield (name, there) if done else None
    finally:
        succeed(f"ip netns delete {name}")


def succeed(*commands):
    """Run commands until one of them fails; return whether none did."""
    return all(subprocess.run(one.split(), capture_output=True, check=False).returncode == 0 for one in commands)


def start(job, *, host, shared):
    """Start a job, here or on the other host, which shares our files but not our runtime directory."""
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, __file__, *map(str, job), str(shared)]
    if host is not None:
        name, address = host
        command = ["ip", "netns", "exec", name, *command, f"tcp://{address}:0"]
        environment["SIGHTGLASS_RUNTIME_DIR"] = str(shared / "other")
    return subprocess.Popen(command, env=environment)


def show(curves, stopped, remote):
    """Print the result of each job."""
    print(f"{'job':20}{'host':>8}{'accuracy':>10}{'epochs':>8}")
    for name, curve in sorted(curves.items(), key=lambda item: -item[1][max(item[1])]):
        epochs = max(curve) + 1
        fate = f"stopped, {N_EPOCHS - epochs} epochs saved" if name in stopped else ""
        print(f"{name:20}{'other' if name in remote else 'here':>8}{curve[max(curve)]:10.3f}{epochs:8}  {fate}")


def main():
    jobs = random.Random(0).sample(GRID, len(GRID))
    curves, stopped, remote, processes = {}, {}, set(), []
    with tempfile.TemporaryDirectory(prefix="sg") as folder, other_host() as host:
        shared = Path(folder)
        where = "a third of them on another host" if host else "all here: no second host can be made"
        print(f"{len(jobs)} jobs, {where}.")
        try:
            for wave in (jobs[i : i + N_AT_ONCE] for i in range(0, len(jobs), N_AT_ONCE)):
                for i, job in enumerate(wave):
                    elsewhere = host if i % 3 == 2 else None
                    remote |= {job_name(*job)} if elsewhere else set()
                    processes.append(start(job, host=elsewhere, shared=shared))
                supervise(find({job_name(*job) for job in wave}, shared), curves, stopped)
            statuses = [process.wait() for process in processes]
            look_up(shared, curves)
        finally:
            for process in processes:
                process.kill()

    show(curves, stopped, remote)
    n_run = sum(max(curve) + 1 for curve in curves.values())
    saved = 1 - n_run / (N_EPOCHS * len(jobs))
    print(f"{len(stopped)} of {len(jobs)} jobs were stopped early, which saved {saved:.0%} of the work.")

    survivors = set(curves) - set(stopped)
    assert statuses == [0] * len(jobs), "every job ends well, stopped or not"
    assert len(curves) == len(jobs), "every job was watched"
    assert max(curves[name][N_EPOCHS - 1] for name in survivors) > 0.95, "a good job survived and learned"
    assert all(max(curves[name]) == epoch for name, epoch in stopped.items()), "at the epoch that the run said"
    assert host is None or len(remote) == len(jobs) // 3, "a third ran elsewhere"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        lr, width, activation, directory, *listen = sys.argv[1:]
        with np.errstate(all="ignore"):  # some of these learning rates are far too large: that is the point
            train(float(lr), int(width), activation, directory, listen[0] if listen else None)
    else:
        main()
