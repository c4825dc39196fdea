"""Callbacks and loggers that users copy, pickle and send to other processes, with the objects that hold them."""

from __future__ import annotations

import copy
import importlib
import pickle

import pytest

import sightglass as sg
from sightglass.core.process import current_run

KINDS = {
    "sightglass.callbacks.huggingface": "SightglassCallback",
    "sightglass.callbacks.lightning": "SightglassCallback",
    "sightglass.callbacks.keras": "SightglassCallback",
    "sightglass.trackers.lightning": "SightglassLogger",
    "sightglass.trackers.accelerate": "SightglassTracker",
    "sightglass.jax.loggers": "RunLogger",
}
pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries, at their import


@pytest.mark.parametrize("module", KINDS)
def test_a_copy_is_the_same_one_and_another_process_gets_one_that_does_nothing(module, tmp_path, monkeypatch):
    try:
        kind = getattr(importlib.import_module(module), KINDS[module])
    except sg.MissingExtraError:
        pytest.skip(f"{module} needs its library")
    with sg.init("job", dir=tmp_path) as run:
        one = kind(run)
        assert copy.copy(one) is one
        assert copy.deepcopy({"in": [one]})["in"][0] is one
        sent = pickle.dumps([one, run])
        assert pickle.loads(sent)[0] is one
        monkeypatch.setattr(current_run, "_pickled", {})  # as in another process
        other, mute = pickle.loads(sent)
        assert other is not one
        assert mute.disabled
        assert (mute.id, mute.stopping) == (run.id, False)
        if hasattr(other, "_callback_run"):
            assert other._callback_run.run is not run
            assert other._callback_run.run.id == run.id
        elif not other.closed:
            other.close()
        if hasattr(one, "close"):
            one.close()
