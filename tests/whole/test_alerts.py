"""The watcher as a process: 50 runs, a receiver that is down, a watcher that is killed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
from tests.receiving import http_server, mail_server
from tests.waiting import wait_until

N_RUNS = 50
RULES = """
states = []
[[rule]]
name = "too high"
when = "batch.loss > 3"
runs = "sweep-*"
level = "error"
"""

PROGRAM = """
import sys, time, sightglass as sg
runs = [sg.init(f"sweep-{i}", dir=sys.argv[1]) for i in range(int(sys.argv[2]))]
print("ready", flush=True)
step = 0
while True:
    for run in runs:
        run.observe("batch", loss=4.0 if step > 20 else 1.0, step=step)
    step += 1
    time.sleep(0.1)
"""


@pytest.fixture
def start():
    started = []

    def begin(*command, **environment):
        process = subprocess.Popen(
            [sys.executable, *command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, **environment},
        )  # fmt: skip
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def status(rules):
    done = subprocess.run(
        [sys.executable, "-m", "sightglass", "alerts", "status", str(rules), "--json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return json.loads(done.stdout) if done.returncode == 0 else {"watching": False, "rows": [], "waiting": 0}


def test_every_run_is_told_of_although_the_receiver_is_down_and_the_watcher_is_killed(start, tmp_path):
    rules = tmp_path / "rules.toml"
    rules.write_text(RULES)
    program = start("-c", PROGRAM, str(tmp_path), str(N_RUNS))
    assert program.stdout.readline() == "ready\n"
    with http_server() as posts:
        posts.status = 503
        watch = ("-m", "sightglass", "alerts", str(rules))
        address = {"SIGHTGLASS_ALERT_URL": f"json://127.0.0.1:{posts.server_port}/"}
        first = start(*watch, **address)
        wait_until(lambda: status(rules)["waiting"] == N_RUNS, "alerts of all runs, which wait")
        assert posts.n_refused
        assert not posts.got
        first.kill()
        first.wait()
        assert not status(rules)["watching"]
        posts.status = 200
        start(*watch, **address)
        wait_until(lambda: len(posts.got) >= N_RUNS, "all alerts")
        wait_until(lambda: (now := status(rules))["watching"] and now["waiting"] == 0, "the status")
        ids = [re.search(r"alert (\S+)", body["message"])[1] for _, body in posts.got]
        runs = [body["title"].partition(":")[0] for _, body in posts.got]
        assert len(set(ids)) == N_RUNS
        assert sorted(set(runs)) == sorted(f"sweep-{i}" for i in range(N_RUNS))


def test_a_test_alert_arrives_by_mail(start):
    with mail_server() as mails:
        address = f"mailto://127.0.0.1:{mails.port}?from=run@here.org&to=me@here.org&mode=insecure"
        process = start("-m", "sightglass", "alerts", "test", SIGHTGLASS_ALERT_URL=address)
        assert process.communicate(timeout=90)[0] == "mailto: sent\n"
        assert process.returncode == 0
        assert mails.got[0]["Subject"] == "a test"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["test"], 1), (["status"], 2), (["nothing.toml"], 1), (["a.toml", "b.toml"], 2), (["status", "nothing.toml"], 1)],
)
def test_misuse_is_told(start, arguments, code):
    process = start("-m", "sightglass", "alerts", *arguments)
    process.communicate(timeout=90)
    assert process.returncode == code
