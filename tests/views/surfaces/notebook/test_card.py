"""What a card tells of a run, and what becomes of acts."""

from __future__ import annotations

import pytest

import sightglass as sg
from sightglass.core.errors import SightglassError
from sightglass.views.surfaces.notebook.card import act, told_of


@pytest.fixture
def run():
    with sg.init("card", config={"lr": 0.1}) as run:
        run.control("lr", 0.1, min=0.0, max=1.0)
        run.control("n", 3, min=0, max=10)
        run.control("kind", "a", choices=["a", "b"])
        run.action("save", lambda: "saved")
        run.observe("batch", loss=1.0, step=0)
        sg.connect(run).describe()
        run.observe("batch", loss=1.0, step=1)
        yield run


def test_a_card_tells_what_the_run_offers(run):
    told = told_of(sg.connect(run))
    assert (told["name"], told["state"], told["acts"], told["over"]) == ("card", "running", True, False)
    [event] = [event for event in told["events"] if event["name"] == "batch"]
    assert event["n"] == 2
    assert {one["name"]: (one["type"], one["query"]) for one in event["observables"]}["loss"] == ("float", "batch.loss")
    assert [(one["name"], one["value"]) for one in told["controls"]] == [("lr", 0.1), ("n", 3), ("kind", "a")]
    assert [one["name"] for one in told["actions"]] == ["save"]


def test_a_card_goes_on_showing_what_it_knew_of_a_run_that_is_gone(run):
    client = sg.connect(run)
    before = told_of(client)
    run.close()
    after = told_of(client, before=before)
    assert (after["over"], after["acts"], after["controls"]) == (True, False, before["controls"])
    with pytest.raises(SightglassError):
        told_of(client)


def test_a_recorded_run_has_a_card_that_does_not_act(run):
    run.log({"val/loss": 1.0}, step=1)
    run.flush()
    with sg.open(run.directory) as recorded:
        told = told_of(recorded)
    assert not told["acts"]
    [event] = [event for event in told["events"] if event["name"] == "log"]
    assert event["observables"][0]["query"] == "log['val/loss']"


class Acted:
    """A run that notes what it is asked to do."""

    def __init__(self, *, note=""):
        self.asked, self.note = [], note

    def _done(self, *asked):
        from sightglass.client.run import Acknowledgement

        self.asked.append(asked)
        if self.note:
            return Acknowledgement(applied=False, note=self.note)
        return Acknowledgement(applied=True, event="batch", step=1234.0, old=0.1, result=asked[-1])

    def set(self, name, value):
        return self._done("set", name, value)

    def call(self, name):
        return self._done("call", name, "saved")

    def pause(self):
        return self._done("pause")

    def resume(self):
        return self._done("resume")

    def stop(self):
        return self._done("stop")


CONTROLS = {
    "controls": [
        {"name": "lr", "type": "float", "choices": None},
        {"name": "n", "type": "int", "choices": None},
        {"name": "kind", "type": "str", "choices": ["a", "b"]},
    ]
}


@pytest.mark.parametrize(
    ("name", "given", "value"), [("lr", 1, 1.0), ("n", 4.0, 4), ("n", 4.5, 4.5), ("kind", 1, "b"), ("new", 3, 3)]
)
def test_values_have_the_type_of_their_control(name, given, value):
    run = Acted()
    act(run, {"do": "set", "name": name, "value": given}, CONTROLS)
    [(_, _, got)] = run.asked
    assert (got, type(got)) == (value, type(value))


def test_acts_are_told_with_the_step_at_which_they_took_effect():
    run = Acted()
    assert act(run, {"do": "set", "name": "lr", "value": 0.5}, CONTROLS) == "lr = 0.5 since batch 1,234, before 0.1"
    assert act(run, {"do": "call", "name": "save"}, CONTROLS) == "save() was called at batch 1,234, returned 'saved'"
    assert act(run, {"do": "pause"}, CONTROLS) == "Paused at batch 1,234"
    assert act(run, {"do": "stop"}, CONTROLS) == "Asked to stop at batch 1,234"
    assert act(Acted(note="waits for 'epoch'"), {"do": "pause"}, CONTROLS) == "waits for 'epoch'"


@pytest.mark.parametrize("kind", ["close", "__class__", "", None, "describe"])
def test_nothing_else_can_be_done(kind):
    with pytest.raises(SightglassError, match="Expected one of"):
        act(Acted(), {"do": kind}, CONTROLS)
