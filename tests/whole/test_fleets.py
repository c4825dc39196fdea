"""A fleet of real processes: killed, stopped by a signal, started again under their names."""

from __future__ import annotations

import signal

import pytest

import sightglass as sg

WAIT_S = 60.0


@pytest.fixture
def fleet():
    with sg.fleet("job-*") as fleet:
        yield fleet


def test_a_run_that_is_killed_leaves_and_comes_back_under_its_name(train, until, fleet):
    killed, other = train("job-a"), train("job-b")
    fleet.wait(2, timeout_s=WAIT_S)
    stream = fleet.stream("batch.loss")
    until(lambda: {record.run for record in stream.records()} == {"job-a", "job-b"}, WAIT_S)
    killed.send(signal.SIGKILL)
    killed.ends()
    until(lambda: list(fleet) == ["job-b"], WAIT_S)
    assert "died" in fleet.left["job-a"]
    assert fleet.table(loss="batch.loss", timeout_s=WAIT_S).column("state") == ["died", "running"]
    n = sum(record.run == "job-a" for record in stream.records())
    train("job-a")
    until(lambda: list(fleet) == ["job-a", "job-b"], WAIT_S)
    assert fleet.left == {}
    until(lambda: sum(record.run == "job-a" for record in stream.records()) > n, WAIT_S)
    assert len(stream.restarts) == 1
    assert fleet.joined == ["job-a", "job-b"]
    other.goes_on()


def test_a_run_that_ends_and_begins_again_is_another_run(train, until, fleet):
    first = train("job-a")
    fleet.wait(1, timeout_s=WAIT_S)
    assert fleet.stop().applied.keys() == {"job-a"}
    assert first.ends() == 0
    until(lambda: not fleet, WAIT_S)
    train("job-a")
    fleet.wait(2, timeout_s=WAIT_S)
    (name,) = fleet
    assert name == f"job-a ({fleet[name].id})"


def test_a_run_that_does_not_answer_does_not_hold_up_the_others(train, until):
    stuck, other = train("job-stuck"), train("job-other")
    stuck.send(signal.SIGSTOP)
    with sg.fleet("job-*") as fleet:
        until(lambda: list(fleet) == ["job-other"], WAIT_S)
        assert fleet.silent == ["job-stuck"]
        stream = fleet.stream("batch.loss")
        assert {record.run for record in stream.wait(5, timeout_s=WAIT_S)} == {"job-other"}
        table = fleet.table(loss="batch.loss", timeout_s=WAIT_S)
        assert dict(zip(table.column("run"), table.column("state"), strict=True)) == {
            "job-stuck": "silent", "job-other": "running"
        }  # fmt: skip
        assert dict(zip(table.column("run"), table.column("loss"), strict=True))["job-other"] is not None
        assert fleet.set("lr", 0.5).applied.keys() == {"job-other"}
        stuck.send(signal.SIGCONT)
        until(lambda: set(fleet) == {"job-stuck", "job-other"}, WAIT_S)
        until(lambda: {record.run for record in stream.records()} == {"job-stuck", "job-other"}, WAIT_S)
    other.goes_on()


def test_a_run_that_stops_answering_is_named_by_a_command(train, until, fleet):
    stuck, other = train("job-stuck"), train("job-other")
    fleet.wait(2, timeout_s=WAIT_S)
    stuck.send(signal.SIGSTOP)
    report = fleet.set("lr", 0.25, timeout_s=30.0)
    assert report.applied.keys() == {"job-other"}
    # Its connection may be given up before the command is.
    assert any(said in str(report.failed["job-stuck"]) for said in ("does not answer", "has been silent"))
    stuck.send(signal.SIGCONT)
    other.goes_on()
