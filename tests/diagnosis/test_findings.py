"""Judgements over curves that are drawn here: what each check finds, and what it leaves alone."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightglass.core.description import Description, Ending, EventInfo, HistoryEntry, StackFrame, StreamInfo
from sightglass.diagnosis.evidence import Curve, Evidence
from sightglass.diagnosis.findings import CHECKS, in_order, judge, not_judged

RNG = np.random.default_rng(0)
AT = np.linspace(0, 1, 400)
FALLS = 2.3 * np.exp(-4 * AT) + 0.3
NOISE = RNG.normal(0, 0.05, 400)


def curve(values, tag="loss", *, every_s=1.0, n=None):
    """A curve whose steps count up, at times that are `every_s` apart: a number, or one for each point."""
    values = np.asarray(values, np.float64)
    times = 1.7e9 + np.cumsum(np.broadcast_to(every_s, values.shape))
    steps = np.arange(len(values), dtype=np.float64)
    return Curve(
        tag=tag, query=f"log['{tag}']", n=n or len(values), steps=steps, times=times, means=values, highest=values
    )


def found(role, *curves, loss=None, **about):
    """Judge curves of a role, beside a loss that falls or another one."""
    curves = {role: list(curves)} | (
        {} if role == "loss" else {"loss": [curve(FALLS + NOISE if loss is None else loss)]}
    )
    return judge(Evidence(description=Description(**about), curves=curves))


def kinds(*given, **about):
    return [finding.kind for finding in found(*given, **about)]


@pytest.mark.parametrize(
    ("kind", "role", "curves"),
    [
        ("divergence", "loss", [curve(np.where(AT < 0.5, FALLS, FALLS + 20 * (AT - 0.5)))]),
        ("divergence", "loss", [curve(np.where(AT < 0.7, FALLS, 2.3) + NOISE)]),  # it forgets all
        ("divergence", "loss", [curve(np.exp(8 * AT))]),
        ("divergence", "loss", [curve(-5 + np.where(AT < 0.5, 2 * np.exp(-4 * AT), 9))]),  # a loss below zero
        ("plateau", "loss", [curve(2.3 + NOISE)]),
        ("plateau", "loss", [curve(2.3 + 0.1 * np.exp(-20 * AT))]),
        ("exploding", "gradients", [curve(np.where(AT < 0.8, 1.0, 1e3) * np.exp(NOISE), "grad_norm")]),
        ("exploding", "gradients", [curve(np.where(np.arange(400) == 250, 1e6, 1.0), "grad_norm")]),
        ("vanishing", "gradients", [curve(np.exp(-15 * AT), "grad_norm")]),
        ("vanishing", "gradients", [curve(0 * AT + 1, "grad/1.norm"), curve(0 * AT + 1e-7, "grad/0.norm")]),
        ("dead units", "dead units", [curve(0.9 * AT, "dead_fraction")]),
        ("dead units", "dead units", [curve(90 * AT, "dead_percent")]),
        ("slower", "progress", [curve(AT, every_s=1 + 2 * AT)]),
        ("waiting for data", "data", [curve(0 * AT + 0.6, "data_time")]),
        ("waiting for data", "data", [curve(0 * AT + 600, "data_ms")]),
        ("memory grows", "machine", [curve(2 + 3 * AT, "system.process_memory_gb", every_s=10)]),
        ("memory full", "machine", [curve(40 + 58 * AT, "system.memory_percent")]),
        ("disk full", "machine", [curve(0 * AT + 99, "system.disk_percent")]),
        ("gpu idle", "machine", [curve(0 * AT + 5, "system.gpu3_percent")]),
    ],
)
def test_a_check_finds_what_it_looks_for_and_nothing_else(kind, role, curves):
    standing = 2.3 - 1.0 * AT if kind == "vanishing" else None
    findings = found(role, *curves, loss=standing)
    assert [finding.kind for finding in findings] == [kind]
    [finding] = findings
    assert finding.figures
    assert finding.query.startswith("log[")
    assert finding.text


@pytest.mark.parametrize(
    ("role", "curves"),
    [
        ("loss", [curve(FALLS + NOISE)]),
        ("loss", [curve(FALLS + 2.3 * (np.arange(400) % 100 > 97))]),  # spikes
        ("loss", [curve(2.3 - 0.5 * AT)]),  # slow
        ("loss", [curve(2.3 + NOISE[:30])]),  # a few steps show nothing
        ("loss", [curve(0 * AT)]),
        ("loss", [curve(np.where(AT < 0.3, FALLS, FALLS + 0.3 * (AT - 0.3)))]),  # validation, which rises a little
        ("gradients", [curve(5 * np.exp(-3 * AT) + 0.1, "grad_norm"), curve(np.exp(-NOISE), "grad_norm2")]),
        ("gradients", [curve(np.exp(-15 * AT), "grad_norm")]),  # the loss went with it
        ("gradients", [curve(1 / (1 + 1e5 * AT) + 1e-6, "grad_norm")]),  # large at first only
        ("gradients", [curve(0 * AT, "grad/frozen.norm"), curve(0 * AT + 1, "grad/head.norm")]),
        ("dead units", [curve(0 * AT + 0.2, "dead_fraction")]),
        ("dead units", [curve(0 * AT + 70, "n_dead")]),  # of how many?
        ("progress", [curve(AT, every_s=np.where(np.arange(400) < 10, 30.0, 1.0))]),  # it compiled
        ("progress", [curve(AT, every_s=np.where((AT > 0.4) & (AT < 0.6), 2.0, 1.0))]),  # and something else ran
        ("progress", [curve(AT, every_s=1e-5 * (1 + AT))]),  # too little to matter
        ("data", [curve(0 * AT + 0.1, "data_time")]),
        ("machine", [curve(5 - 3 * np.exp(-30 * AT), "system.process_memory_gb", every_s=10)]),  # caches fill
        ("machine", [curve(70 + 20 * NOISE, "system.gpu0_percent"), curve(0 * AT + 80, "system.disk_percent")]),
    ],
)
def test_what_is_usual_is_no_finding(role, curves):
    losses = FALLS - 0.3 if role == "gradients" else None
    assert kinds(role, *curves, loss=losses) == []


@given(
    factor=st.floats(1e-3, 1e3), rate=st.floats(1.0, 20.0), noise=st.floats(0, 0.1), seed=st.integers(0, 2**16),
    n=st.integers(40, 512),
)  # fmt: skip
def test_a_loss_that_falls_is_healthy_in_any_unit(factor, rate, noise, seed, n):
    values = np.exp(-rate * np.linspace(0, 1, n)) + np.random.default_rng(seed).normal(0, noise, n)
    assert kinds("loss", curve(factor * (1 + values))) == []


@given(factor=st.floats(1e-3, 1e3), seed=st.integers(0, 2**16), at=st.floats(0.2, 0.8))
def test_a_loss_that_leaves_for_ever_is_found_in_any_unit(factor, seed, at):
    noise = np.random.default_rng(seed).normal(0, 0.05, 400)
    values = np.where(at > AT, FALLS, 6.0) + noise
    assert kinds("loss", curve(factor * values)) == ["divergence"]


def test_one_finding_names_all_series_of_its_kind():
    [finding] = found("loss", *(curve(2.3 + NOISE, f"train/loss{i}") for i in range(20)))
    assert finding.text.startswith("train/loss0 has not fallen: it began at 2.29")
    assert finding.also == tuple(f"log['train/loss{i}']" for i in range(1, 11))


def test_how_a_run_ended_and_what_it_could_not_do_is_found():
    error = Ending(error="RuntimeError: no memory", frames=(StackFrame(file="train.py", line=7, function="step"),))
    stream = StreamInfo(query="batch.loss", recorded=True, n_dropped=3, last_error="no 'loss'", n_errors=2, n_events=9)
    about = Description(
        state="failed", started=100.0, wall_time=160.0, ending=error, failures={"writer": "the disk is full"},
        events={"batch": EventInfo(n_events=200)}, streams=[stream],
    )  # fmt: skip
    history = [HistoryEntry(kind="set", name="lr", error="above 1", step=5, wall_time=120.0), HistoryEntry(kind="stop")]
    findings = judge(Evidence(description=about, history=history, n_damaged=2))
    assert [(one.kind, one.text) for one in findings] == [
        ("ended", "It failed at batch 199 after 1 min: RuntimeError: no memory (train.py, line 7, in step)"),
        ("commands refused", "1 of 2 commands failed, the last one, set lr: above 1"),
        ("records lost", "Failed in writer: the disk is full"),
        ("query fails", "batch.loss: no 'loss'"),
    ]
    assert findings[0].detail == '  File "train.py", line 7, in step\nRuntimeError: no memory'
    died = judge(Evidence(description=Description(state="died")))
    assert "its process is gone, and did not say why" in died[0].text


def test_what_cannot_be_judged_is_said():
    assert not_judged(Evidence(description=Description(), curves={"loss": [curve(FALLS)]})) == [
        check.kind for check in CHECKS if check.of not in (None, "loss")
    ]


def test_errors_come_first_then_the_order_of_the_table():
    findings = found("loss", curve(2.3 + NOISE), state="died")
    assert in_order(reversed(findings)) == findings
    assert [one.level for one in findings] == ["error", "warning"]


def test_the_documentation_has_the_table_of_checks():
    rows = re.findall(
        r"^\| `(.+)` \| (.+) \|$", (Path(__file__).parents[2] / "docs" / "diagnose.md").read_text("utf-8"), re.M
    )
    assert rows == [(check.kind, check.looks_for) for check in CHECKS]
