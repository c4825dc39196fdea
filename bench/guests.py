"""Programs as the public examples have them: is every question of their users answered, and do they train the same?

The programs and their questions are those of `tests/guests`. Each trains three times: asked everything by a client of
the same process (of another one: hogwild), with a run that nobody asks, and without Sightglass. Losses and parameters
of all three are compared, bit by bit.

What a run costs while nobody asks is a round of the program, x one without: both trainings take turns in one process,
ABBA, and the ratio is that of their medians, with an interval from resampled groups. Steps of hogwild's processes are
timed in trainings that take turns. What the programs `log` is written meanwhile, and part of it: their steps take less
than a millisecond to some milliseconds. PyTorch works on one thread.
"""

from __future__ import annotations

import importlib
import os
import tempfile
import time
from collections.abc import Iterator

import numpy as np
import torch
from tests.guests import hogwild
from tests.guests.guest import Guest, Round, after, begun
from tests.waiting import wait_until

import sightglass as sg
from bench.row import Row
from sightglass import testing

NAMES = ("mnist", "gpt", "rnn", "ppo", "learners", "boosting")
LEAST_ROUNDS = 4
TURN_S = 0.05  # of several rounds, so that the clock and the other threads do not show
N_GROUPS = 20  # of four turns each
N_RESAMPLED = 400
N_PAIRS, N_STEPS = 5, 200  # of hogwild


def measure() -> Iterator[Row]:
    """Yield the rows."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SIGHTGLASS_RUNS"] = folder
        torch.set_num_threads(1)
        for name in NAMES:
            yield from of_guest(name, importlib.import_module(f"tests.guests.{name}").GUEST)
        yield from of_hogwild()


def of_guest(name: str, guest: Guest) -> Iterator[Row]:
    """Yield the rows of a program."""
    last, n_rounds, n_answered = asked(guest)
    with sg.init("idle") as run:
        idle = after(n_rounds, begun(guest, run))
    yield from of_answers(name, len(guest.questions), n_answered, last, idle, after(n_rounds, begun(guest, None)))
    yield ratio("  a round, nobody asking, x without a run", turns(guest))


def of_answers(name: str, n_asked: int, n_answered: int, last: Round, *others: Round) -> Iterator[Row]:
    """Yield what was asked and answered, and how many trainings differ from the one that was asked."""
    yield Row(f"{name}: questions", n_asked, "")
    yield Row("  that are not answered", n_asked - n_answered, "", 0)
    yield Row("  trainings that are not bit-equal", sum(last.bits() != other.bits() for other in others), "", 0)


def asked(guest: Guest) -> tuple[Round, int, int]:
    """Train while everything is asked; return the last round, how many there were, and how many questions have it."""
    rounds: list[Round] = []
    with testing.ask() as asked, sg.init("asked") as run:
        training = begun(guest, run)
        streams = {question: asked.run.stream(question) for question in guest.questions}
        during = [stream for question, stream in streams.items() if "per='run'" not in question]
        wait_until(
            lambda: len(rounds) >= LEAST_ROUNDS and all(stream.latest or stream.error for stream in during),
            pause=lambda: rounds.append(next(training)),
        )
        run.close()
        n_answered = sum(stream.error is None and bool(list(stream)) for stream in streams.values())
    return rounds[-1], len(rounds), n_answered


def turns(guest: Guest) -> np.ndarray:
    """Return the seconds of turns with a run that nobody asks, and without: shape (groups, 2)."""
    with sg.init("idle") as run:
        trainings = begun(guest, run), begun(guest, None)
        began_s = time.perf_counter()
        after(LEAST_ROUNDS, trainings[0]), after(LEAST_ROUNDS, trainings[1])
        n_rounds = max(1, round(TURN_S * 2 * LEAST_ROUNDS / (time.perf_counter() - began_s)))
        times_s = np.zeros((N_GROUPS, 2))
        for group in times_s:
            for i in (0, 1, 1, 0):
                began_s = time.perf_counter()
                after(n_rounds, trainings[i])
                group[i] += time.perf_counter() - began_s
    return times_s


def ratio(what: str, times_s: np.ndarray) -> Row:
    """Return the ratio of the medians of two columns, with an interval from resampled rows."""
    n = len(times_s)
    drawn = np.median(times_s[np.random.default_rng(0).integers(0, n, (N_RESAMPLED, n))], axis=1)
    low, high = np.quantile(drawn[:, 0] / drawn[:, 1], (0.025, 0.975))
    idle_s, plain_s = np.median(times_s, axis=0)
    return Row(what, idle_s / plain_s, "", 1.05, (low, high), by_distance=True)


def of_hogwild() -> Iterator[Row]:
    """Yield the rows of the processes that train one model."""
    with hogwild.begun(with_run=True) as job, hogwild.joined() as fleet:
        streams = [fleet.stream(question) for question in hogwild.QUESTIONS]
        wait_until(lambda: all(stream.error or hogwild.is_answered(stream) for stream in streams))
        n_answered = sum(stream.error is None for stream in streams)
        fleet["hogwild-0"].stop()
        last = job.result()
    n_steps = len(last.losses) // hogwild.N_WORKERS
    others = [timed(n_steps, with_run)[0] for with_run in (True, False)]
    yield from of_answers("hogwild", len(hogwild.QUESTIONS), n_answered, last, *others)
    pairs = [[timed(N_STEPS, with_run)[1] for with_run in (True, False)] for _ in range(N_PAIRS)]
    yield ratio("  a step, nobody asking, x without a run", np.array(pairs))


def timed(n_steps: int, with_run: bool) -> tuple[Round, float]:
    """Train hogwild's model; return its end, and the seconds of a step."""
    with hogwild.begun(n_steps, with_run=with_run) as job:
        return job.result(), job.step_s
