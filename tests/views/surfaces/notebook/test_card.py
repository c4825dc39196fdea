"""The description of a run on its card, and the results of commands."""

from __future__ import annotations

import pytest

import sightglass as sg
from sightglass.core.errors import SightglassError
from sightglass.views.surfaces.notebook.card import info_of, send_command


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


def test_a_card_describes_the_run(run):
    info = info_of(sg.connect(run))
    assert (info["name"], info["state"], info["takes_commands"], info["ended"]) == ("card", "running", True, False)
    [event] = [event for event in info["events"] if event["name"] == "batch"]
    assert event["n"] == 2
    assert {one["name"]: (one["type"], one["query"]) for one in event["observables"]}["loss"] == ("float", "batch.loss")
    assert [(one["name"], one["value"]) for one in info["controls"]] == [("lr", 0.1), ("n", 3), ("kind", "a")]
    assert [one["name"] for one in info["actions"]] == ["save"]


def test_a_card_keeps_the_last_description_of_a_run_that_is_gone(run):
    client = sg.connect(run)
    before = info_of(client)
    run.close()
    after = info_of(client, before=before)
    assert (after["ended"], after["takes_commands"], after["controls"]) == (True, False, before["controls"])
    with pytest.raises(SightglassError):
        info_of(client)


def test_the_card_of_a_recorded_run_takes_no_commands(run):
    run.log({"val/loss": 1.0}, step=1)
    run.flush()
    with sg.open(run.directory) as recorded:
        info = info_of(recorded)
    assert not info["takes_commands"]
    [event] = [event for event in info["events"] if event["name"] == "log"]
    assert event["observables"][0]["query"] == "log['val/loss']"


class CommandedRun:
    """A run that remembers the commands it gets."""

    def __init__(self, *, note=""):
        self.commands, self.note = [], note

    def _done(self, *command):
        from sightglass.client.run import Acknowledgement

        self.commands.append(command)
        if self.note:
            return Acknowledgement(applied=False, note=self.note)
        return Acknowledgement(applied=True, event="batch", step=1234.0, old=0.1, result=command[-1])

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
    run = CommandedRun()
    send_command(run, {"do": "set", "name": name, "value": given}, CONTROLS)
    [(_, _, got)] = run.commands
    assert (got, type(got)) == (value, type(value))


def test_results_name_the_step_at_which_the_command_took_effect():
    run = CommandedRun()
    assert send_command(run, {"do": "set", "name": "lr", "value": 0.5}, CONTROLS) == "lr = 0.5 at batch 1,234, was 0.1"
    assert (
        send_command(run, {"do": "call", "name": "save"}, CONTROLS) == "Called save() at batch 1,234, returned 'saved'"
    )
    assert send_command(run, {"do": "pause"}, CONTROLS) == "Paused at batch 1,234"
    assert send_command(run, {"do": "stop"}, CONTROLS) == "Stop requested at batch 1,234"
    assert send_command(CommandedRun(note="waits for 'epoch'"), {"do": "pause"}, CONTROLS) == "waits for 'epoch'"


@pytest.mark.parametrize("kind", ["close", "__class__", "", None, "describe"])
def test_other_commands_are_refused(kind):
    with pytest.raises(SightglassError, match="Expected one of"):
        send_command(CommandedRun(), {"do": kind}, CONTROLS)
