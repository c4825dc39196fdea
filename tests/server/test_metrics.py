"""Metrics for Prometheus."""

from __future__ import annotations

import pytest

from .conftest import wait_until


def metrics(page, role="viewer"):
    return page.http.get("/metrics", headers=page.headers(role))


@pytest.mark.parametrize("header", [None, "Bearer wrong"])
def test_metrics_need_a_token(page, header):
    answer = page.http.get("/metrics", headers={"Authorization": header} if header else {})
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert "sightglass_runs" not in answer.text


def test_a_live_run_is_there_with_its_name_and_start(page, begin):
    run = begin('odd "name"\\')
    run.log({"loss": 0.5}, step=7)
    run.flush()
    started = f'sightglass_run_started_seconds{{run="odd \\"name\\"\\\\",id="{run.id}"'
    answer = wait_until(lambda: (got := metrics(page)).text.count(started) and got)
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert any(line.startswith('sightglass_runs{state="running"} ') for line in lines)
    for line in lines:
        assert line.startswith("# ") or float(line.rpartition(" ")[2]) >= 0
