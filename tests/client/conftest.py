"""Fixtures of the client's tests: Hypothesis without a deadline, and runs of this process with clients."""

from __future__ import annotations

import pytest

import sightglass as sg


@pytest.fixture
def begin():
    """Return a function that begins runs; all are closed at the end."""
    begun = []

    def begin(name="job", **options):
        begun.append(sg.init(name, **{"budget": None, **options}))
        return begun[-1]

    yield begin
    for run in begun:
        run.close()


@pytest.fixture
def ask():
    """Return a function that connects to runs; all connections are closed at the end."""
    made = []

    def ask(target):
        made.append(sg.connect(target))
        return made[-1]

    yield ask
    for client in made:
        client.close()
