"""Fixtures of the callbacks' tests, which are skipped where a library is missing."""

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
def queue_command():
    """Return a function that queues a command for the next event of a run, as a client would."""

    def queue_command(run, kind, name="", value=None):
        wiring(run).telemetry.commands.add(Command(id=1, client="test", kind=kind, name=name, value=value))

    return queue_command
