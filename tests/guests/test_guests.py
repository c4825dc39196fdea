"""Programs as the public examples have them: asked everything, they train the same, and every question is answered."""

from __future__ import annotations

import importlib
import importlib.util
import threading

import numpy as np
import pytest
from tests.waiting import wait_until

import sightglass as sg
from sightglass import testing

from .guest import after, begun

NEEDED = {
    "mnist": "torch",
    "gpt": "torch",
    "rnn": "equinox",
    "ppo": "jax",
    "learners": "sklearn",
    "boosting": "lightgbm",
}
PRESENT = [name for name, library in NEEDED.items() if importlib.util.find_spec(library)]
LEAST_ROUNDS = 2


@pytest.fixture(params=PRESENT)
def guest(request):
    return importlib.import_module(f"tests.guests.{request.param}").GUEST


@pytest.fixture(autouse=True)
def no_thread_left():
    """Check that the threads of runs and clients end with them."""
    before = {*threading.enumerate()}
    yield
    wait_until(lambda: {*threading.enumerate()} <= before, threading.enumerate)


def same(got, wanted):
    """Check an answer against what was computed by hand, both with mappings and sequences of numbers in them."""
    match wanted:
        case dict():
            assert got.keys() == wanted.keys()
            for name, value in wanted.items():
                same(got[name], value)
        case tuple() | list():
            assert len(got) == len(wanted)
            for pair in zip(got, wanted, strict=True):
                same(*pair)
        case str() | bytes():
            assert got == wanted
        case _:
            np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=1e-5, atol=1e-7)


def n_hooks(round):
    """Return how many hooks the module and the optimizer of PyTorch have, if there are any."""
    if not hasattr(round.seen, "optimizer"):
        return 0
    from tests.torch.conftest import hooks_of

    return hooks_of(round.seen.model, round.seen.optimizer)


def test_a_program_that_is_asked_everything_trains_the_same_and_answers_the_truth(guest):
    rounds = []
    with testing.ask() as asked, sg.init("guest") as run:
        training = guest.train(run)
        n_hooks_before = n_hooks(next(training))  # watched, not asked
        streams = {question: asked.run.stream(question) for question in guest.questions}

        def missing():
            return [question for question, stream in streams.items() if not (stream.latest or "per='run'" in question)]

        wait_until(
            lambda: len(rounds) >= LEAST_ROUNDS and (not missing() or any(stream.error for stream in streams.values())),
            missing,
            pause=lambda: rounds.append(next(training)),
        )
        run.close()
        assert n_hooks(rounds[-1]) == n_hooks_before
        answers = {question: list(stream) for question, stream in streams.items() if not stream.error}
        errors = {question: str(stream.error) for question, stream in streams.items() if stream.error}
        assert errors == {}
        assert [stream.statistics().n_dropped + stream.statistics().n_skipped for stream in streams.values()] == [
            0
        ] * len(streams)
    last = rounds[-1]
    with sg.init("idle") as run:
        idle = after(len(rounds), begun(guest, run))
    plain = after(len(rounds), begun(guest, None))
    assert last.bits() == idle.bits() == plain.bits()

    wrong = {}
    for question, truth in guest.questions.items():
        whole = [record for record in answers[question] if record.closed]
        if not whole:
            wrong[question] = "no record"
        elif truth is not None:
            try:
                same(whole[-1].value, truth(last))
            except AssertionError as error:
                wrong[question] = str(error)
    assert not wrong, "\n".join(f"{question}: {why}" for question, why in wrong.items())
    losses = answers[guest.losses]
    assert [float(record.value) for record in losses] == [last.losses[int(record.step)] for record in losses]


def test_a_control_is_set_and_read_back_and_a_stop_ends_the_training(guest):
    name, value, question = guest.control
    with testing.ask() as asked, sg.init("guest") as run:
        training = begun(guest, run)
        stream = asked.run.stream(question)
        wait_until(lambda: stream.latest, stream, pause=lambda: next(training))
        assert stream.latest.value != value
        asked.run.set(name, value)  # at the next event
        wait_until(lambda: stream.latest.value == value, stream, pause=lambda: next(training))
        asked.run.stop()
        wait_until(lambda: next(training, None) is None, run.history)
        assert [(entry.kind, entry.error) for entry in run.history] == [("set", ""), ("stop", "")]
