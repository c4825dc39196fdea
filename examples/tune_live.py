"""An Optuna study whose trials are pruned by live streams: the trainings know nothing of Optuna.

Each trial is a training in a process of its own, which only observes its epochs. The objective follows the stream of
its losses, reports each to Optuna, and stops the run when Optuna gives up on it.

    pip install optuna
    python examples/tune_live.py
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys

import numpy as np

import sightglass as sg
from sightglass.demo import digits, network

N_EPOCHS, N_TRIALS, N_AT_ONCE = 15, 6, 2


# A trial's process: an ordinary training, plus two lines for the run.


def train(lr, width):
    """Train a network."""
    images, labels, test_images, test_labels = digits.load()
    params = network.init([images.shape[1], width, digits.N_CLASSES], seed=0)
    velocity, rng = network.zeros_like(params), np.random.default_rng(0)
    with sg.init("trial", config={"lr": lr, "width": width}) as run:
        print(run.id, flush=True)
        sys.stdin.readline()  # the first epoch waits until somebody follows
        for epoch in range(N_EPOCHS):
            for rows in rng.permutation(len(images)).reshape(-1, 50):
                _, grads, _ = network.loss_and_grads(params, images[rows], labels[rows])
                params, velocity = network.update(params, grads, velocity, lr=lr)
            run.observe("epoch", step=epoch, loss=network.evaluate(params, test_images, test_labels)[0])
            if run.stopping:
                break


# The study.


def objective(trial):
    """Train with the parameters of a trial; return the last loss."""
    lr = trial.suggest_float("lr", 1e-6, 0.1, log=True)
    width = trial.suggest_int("width", 8, 32)
    with process(lr, width) as child, sg.connect(child.stdout.readline().strip()) as run:
        losses = run.stream("epoch.loss")
        child.stdin.write("\n")
        child.stdin.flush()
        for record in losses:
            trial.report(record.value, int(record.step))
            if trial.should_prune():
                with contextlib.suppress(sg.RunLostError):  # it may just have ended
                    run.stop()
                raise optuna.TrialPruned
        return record.value


@contextlib.contextmanager
def process(lr, width):
    """Start a training; end it with the block."""
    command = [sys.executable, __file__, str(lr), str(width)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        except optuna.TrialPruned:
            assert child.wait() == 0, "a training that is stopped ends well"
            raise
        finally:
            child.kill()


def main():
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(pruner=optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=2))
    for lr in (0.01, 0.03, 0.1):  # what often works
        study.enqueue_trial({"lr": lr, "width": 16})
    study.optimize(objective, n_trials=N_TRIALS - 1, n_jobs=N_AT_ONCE)
    study.enqueue_trial({"lr": 1e-6, "width": 8})  # to see one that learns nothing
    study.optimize(objective, n_trials=1)
    for trial in study.trials:
        lr, width, n = trial.params["lr"], trial.params["width"], len(trial.intermediate_values)
        print(f"lr {lr:8.2g}, width {width:2}: {trial.state.name.lower():8} after {n:2} of {N_EPOCHS} epochs")
    print(f"the best loss is {study.best_value:.3f}, with {study.best_params}")
    assert study.trials[-1].state is optuna.trial.TrialState.PRUNED
    assert len(study.trials[-1].intermediate_values) < N_EPOCHS, "which saved the other epochs"
    assert study.best_value < 0.5
    assert len(study.best_trial.intermediate_values) == N_EPOCHS


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(float(sys.argv[1]), int(sys.argv[2]))
    else:
        import optuna

        main()
