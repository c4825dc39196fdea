"""What the tests of callbacks share: which of them there is something to test with."""

from __future__ import annotations

import importlib.util

import pytest

from sightglass.training.commands import Command
from sightglass.training.run import wiring

# Each of these libraries may be missing, as `make test TORCH=` goes without PyTorch.
_NEEDED = {"test_lightning.py": "lightning", "test_huggingface.py": "transformers", "test_keras.py": "keras"}
_HAS_TORCH = importlib.util.find_spec("torch") is not None
collect_ignore = [file for file, name in _NEEDED.items() if not (_HAS_TORCH and importlib.util.find_spec(name))]


@pytest.fixture
def act_on():
    """Return a function that lets an act wait for the next event, as a client's does."""

    def act_on(run, kind, name="", value=None):
        wiring(run).telemetry.commands.add(Command(id=1, client="test", kind=kind, name=name, value=value))

    return act_on
