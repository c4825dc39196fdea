"""A training that its scheduler may preempt: it saves, ends, is queued again, and goes on in the same run.

    python examples/preempted.py FOLDER     the training; as a job of Slurm: sbatch --signal=USR1@60 --requeue …
    python examples/preempted.py            plays the scheduler: it preempts the training twice

Between two steps the training looks whether it was told to make room, by SIGUSR1 a minute ahead or by SIGTERM. Then it
saves a checkpoint and ends; closing the run writes its last records. Begun again with `into=` the same directory, it
goes on behind its checkpoint, and the series have each step once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import sightglass as sg

N_STEPS = 600
QUEUE_AGAIN = 75  # EX_TEMPFAIL: what tells a scheduler that the job is not done


def train(folder: Path) -> None:
    """Train from the checkpoint on, until the end or until the scheduler wants the machine."""
    told: list[int] = []
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, lambda number, frame: told.append(number))
    checkpoint = folder / "checkpoint.json"
    state = json.loads(checkpoint.read_text()) if checkpoint.exists() else {"step": 0, "weight": 2.0}
    with sg.init("preempted", files=sg.Files(into=folder / "run"), config={"lr": 0.01}) as run:
        while state["step"] < N_STEPS and not told:
            state["weight"] *= 0.99  # instead of your training
            run.log({"loss": state["weight"] ** 2}, step=state["step"])
            state["step"] += 1
            time.sleep(0.005)
        aside = checkpoint.with_suffix(".new")
        aside.write_text(json.dumps(state))
        aside.replace(checkpoint)  # a kill leaves the old checkpoint, or the new one
    if told:
        # With Slurm, instead: os.system(f"scontrol requeue {os.environ['SLURM_JOB_ID']}")
        sys.exit(QUEUE_AGAIN)


def schedule(folder: Path) -> None:
    """Start the training again and again, and preempt it twice."""
    ends = []
    for number in (signal.SIGUSR1, signal.SIGTERM, None):
        job = subprocess.Popen([sys.executable, __file__, str(folder)])
        begun = steps(folder)
        while number is not None and steps(folder) < begun + 50:
            time.sleep(0.05)
        if number is not None:
            os.kill(job.pid, number)
        ends.append(job.wait())
        print(f"job {len(ends)} ended with {ends[-1]} after step {steps(folder) - 1}")
    assert ends == [QUEUE_AGAIN, QUEUE_AGAIN, 0]
    with sg.open(folder / "run") as run:
        assert [int(step) for step in run.series("loss").steps] == list(range(N_STEPS))


def steps(folder: Path) -> int:
    """Return how many steps are recorded."""
    if not [*folder.glob("run/*.sgr")]:
        return 0
    with sg.open(folder / "run") as run:
        return run.series("loss").n if "loss" in run.tags() else 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as place:
            schedule(Path(place))
