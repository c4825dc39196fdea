"""What `sg.diagnose` says of real runs: live and recorded, in a program and in a terminal."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

import sightglass as sg
from sightglass.cli import main
from sightglass.diagnosis import evidence
from sightglass.diagnosis.evidence import role_of
from sightglass.storage.format.block import Key

NONE = "its numbers: this machine has no files of it"


def train(run):
    """Log a loss that diverges, gradients that explode, and a NaN."""
    for step in range(300):
        loss = 2.3 * np.exp(-step / 40) if step < 200 else 3.0 + step
        run.log({"train/loss": loss, "grad_norm": 1e5 if step > 250 else 1.0, "lr": 0.1}, step=step)
        run.observe("batch", step=step, loss=loss)
    run.log({"val/score": float("nan"), "note": "text"}, step=300)
    run.flush()


def test_a_live_run_and_its_recording_have_the_same_findings(tmp_path):
    with sg.init("sick", dir=tmp_path) as run:
        train(run)
        inside = sg.diagnose(run)
        with sg.connect(run) as client:
            live = sg.diagnose(client)
        directory = run.directory
    with sg.open(directory) as recorded:
        after = sg.diagnose(recorded)
    assert [one.kind for one in live.findings] == ["nan", "divergence", "exploding"]
    assert inside.findings == live.findings == after.findings
    assert live.sentence.startswith("running")
    assert after.sentence.startswith("ended")
    assert live.n_series == after.n_series == 4


def test_each_query_of_a_finding_can_be_asked(tmp_path):
    with sg.init("sick", dir=tmp_path, record=["batch.loss"]) as run:
        train(run)
    with sg.open(run.directory) as recorded:
        for finding in sg.diagnose(recorded).findings:
            assert recorded.ask(finding.query).value is not None


def test_a_run_without_files_is_judged_by_what_it_says():
    with sg.init("bare") as run, sg.connect(run) as client:
        run.observe("batch", loss=float("nan"))
        found = sg.diagnose(client)
    assert (found.findings, found.n_series, list(found.unread)) == ([], 0, [NONE])
    assert "nothing looks wrong" in str(found)
    assert f"not read: {NONE}" in str(found)


def test_a_run_that_failed_says_why_and_what_was_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(evidence, "MAX_ROWS", 220)
    monkeypatch.setattr(evidence, "MAX_CURVES", 2)
    with pytest.raises(ZeroDivisionError):
        train_until_it_fails(tmp_path)
    with sg.open(next(tmp_path.glob("odd*"))) as recorded:
        found = sg.diagnose(recorded)
    assert found.findings[0].kind == "ended"
    assert "ZeroDivisionError: division by zero" in found.findings[0].detail
    assert any("3 of 5 series of gradients" in what for what in found.unread)
    assert any("trends of 1 series, such as loss" in what for what in found.unread)


def train_until_it_fails(folder):
    with sg.init("odd", dir=folder) as run:
        for step in range(200):
            run.log({"loss": 1.0} | {f"grad_norm/{i}": 1.0 for i in range(5) if step < 50}, step=step)
        raise ZeroDivisionError("division by zero")


def test_a_growing_run_is_read_as_it_is_now(tmp_path):
    with sg.init("grows", dir=tmp_path) as run:
        run.log({"a": 1.0})
        run.flush()
        with sg.open(run.directory, follow=True) as recorded:
            assert sg.diagnose(recorded).findings == []
            run.log({"a": float("inf")})
            run.flush()
            [finding] = sg.diagnose(recorded).findings
    assert (finding.kind, finding.step, finding.query) == ("infinity", 1.0, 'log["a"]')


def test_only_runs_can_be_diagnosed():
    with pytest.raises(TypeError, match=r"sg\.connect or sg\.open"):
        sg.diagnose("sick")


def test_the_command_says_the_same_for_people_and_for_programs(tmp_path):
    with sg.init("sick", dir=tmp_path) as run:
        train(run)
    with sg.open(run.directory) as recorded:
        found = sg.diagnose(recorded)
    said = CliRunner().invoke(main, ["diagnose", str(run.directory)])
    assert said.output == f"{found}\n"
    written = json.loads(CliRunner().invoke(main, ["diagnose", str(run.directory), "--json"]).output)
    assert [one["kind"] for one in written["findings"]] == [one.kind for one in found.findings]
    assert written["findings"][1]["figures"] == dict(found.findings[1].figures)
    assert "error  nan: The first NaN is in val/score, at step 300" in said.output


@pytest.mark.parametrize(
    ("tag", "role"),
    [
        ("loss", "loss"),
        ("train/loss", "loss"),
        ("Val_Loss", "loss"),
        ("eval/perplexity", "loss"),
        ("epoch.loss", "loss"),
        ("policy_loss", None),
        ("gloss", None),
        ("train/grad_norm", "gradients"),
        ("gradients/layer0/norm", "gradients"),
        ("norm(grads)", "gradients"),
        ("dead_fraction", "dead units"),
        ("relu/dead", "dead units"),
        ("data_time", "data"),
        ("train/loader_wait_s", "data"),
        ("metadata_time", None),
        ("lr", None),
    ],
)
def test_names_say_what_numbers_are_about(tag, role):
    assert role_of(Key(kind="logged", tag=tag)) == role
