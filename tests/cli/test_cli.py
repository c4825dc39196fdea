"""The command line, against a run that trains in another thread: output for people and programs, exit codes."""

from __future__ import annotations

import importlib
import itertools
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.display import n_blue, virtual_display

import sightglass as sg
from sightglass.cli import main
from sightglass.cli.group import SECTIONS
from sightglass.query.functions import FUNCTIONS


class Trainer:
    """A training in a thread of its own, paced by an event so that it costs little."""

    def __init__(self) -> None:
        self.lr = 0.0
        self.calls: list[tuple[object, ...]] = []
        self._rest = threading.Event()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._train)
        self._thread.start()
        assert self._ready.wait(10)

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

    def _checkpoint(self, *args: object) -> str:
        self.calls.append(args)
        return "saved"

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> None:
        self._thread.join(10)

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
    (line,) = sightglass("runs").output.splitlines()
    name, id, state, *_ = line.split("\t")
    assert (name, state) == ("clirun", "running")
    (row,) = json.loads(sightglass("runs", "--json").output)
    assert row["id"] == id
    assert row["pid"] == os.getpid()
    assert row["events"]["batch"] > 0


def test_runs_without_a_live_run_says_what_to_do(runtime: Path) -> None:
    result = sightglass("runs")
    assert result.exit_code == 0
    assert "No live runs" in result.stderr
    assert result.stdout == ""


@pytest.mark.smoke
def test_describe_shows_everything(trainer: Trainer) -> None:
    text = sightglass("describe", "clirun").output
    for part in ("config  depth=3", "event 'batch'", "loss: float", "control lr = 0.1  float  from 0.0 to 1.0",
                 "action checkpoint", "function double"):  # fmt: skip
        assert part in text
    row = json.loads(sightglass("describe", "clirun", "--json").output)
    assert row["controls"]["lr"]["max"] == 1.0


@pytest.mark.smoke
def test_watch_prints_one_line_per_record(trainer: Trainer) -> None:
    lines = sightglass("watch", "clirun", "batch.loss.mean(every=10)", "-n", "3").output.splitlines()
    assert len(lines) == 3
    steps = [int(line.split("\t")[0]) for line in lines]
    assert steps == [steps[0], steps[0] + 10, steps[0] + 20]


def test_watch_several_names_each_line(trainer: Trainer) -> None:
    lines = sightglass("watch", "clirun", "batch.loss", "batch.grads", "-n", "2").output.splitlines()
    assert {line.split("\t")[0] for line in lines} == {"batch.loss", "batch.grads"}
    assert len(lines) == 4


def test_watch_as_json_has_every_field_and_no_nan(trainer: Trainer) -> None:
    output = sightglass("watch", "clirun", "batch.grads.b", "-n", "1", "--json").output
    row = json.loads(output)
    assert row["value"] is None
    assert set(row) == {"tag", "run", "index", "step", "wall_time", "value", "n_events", "complete", "closed", "steps"}


def test_watch_ends_after_a_time(trainer: Trainer) -> None:
    assert sightglass("watch", "clirun", "batch.loss", "--for", "200 ms").exit_code == 0
    assert sightglass("watch", "clirun", "batch.loss", "--for", "soon").exit_code == 2


def test_watch_prints_the_note_about_an_unknown_event(trainer: Trainer) -> None:
    result = sightglass("watch", "clirun", "bacth.loss", "--for", "10 ms")
    assert "Unknown event 'bacth' so far. Did you mean 'batch'?" in result.stderr


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
    assert re.fullmatch(r"lr: 0\.1 → 0\.25  \(at event 'batch', step \d+\)\n", result.output)
    deadline_s = time.monotonic() + 20  # the command is acknowledged before the training reads the control
    while trainer.lr != 0.25:
        assert time.monotonic() < deadline_s
        time.sleep(0.002)
    result = sightglass("call", "clirun", "checkpoint", "3", "name", "--json")
    assert json.loads(result.output)["result"] == "saved"
    assert trainer.calls == [(3, "name")]
    history = sightglass("history", "clirun").output.splitlines()
    assert [line.split("\t")[1:3] for line in history] == [["set", "lr"], ["call", "checkpoint"]]


def test_pause_resume_stop(trainer: Trainer) -> None:
    assert "paused" in sightglass("pause", "clirun").output
    assert "paused for" in sightglass("describe", "clirun").output
    assert "resumed" in sightglass("resume", "clirun").output
    assert "stopping" in sightglass("stop", "clirun").output
    trainer.join()
    assert not trainer.alive


def test_the_help_text_shows_each_command_once_in_a_section() -> None:
    assert sorted(itertools.chain(*SECTIONS.values())) == sorted(main.commands)
    lines = sightglass("--help").output.splitlines()
    for name in main.commands:
        (line,) = [line for line in lines if re.match(rf"  {name}  +\S", line)]
        assert not line.endswith("...")


@pytest.mark.smoke
def test_functions_lists_the_table() -> None:
    output = sightglass("functions").output
    assert all(function.signature in output for function in FUNCTIONS.values())
    assert sightglass("functions", "norm").output.count("norm(x") == 1


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

    assert "plain,clirun" in complete("sightglass watch c", 2)
    assert "plain,lr=" in complete("sightglass set clirun l", 3)
    assert "plain,checkpoint" in complete("sightglass call clirun c", 3)


def test_a_closed_pipe_is_not_an_error(trainer: Trainer) -> None:
    command = f"{sys.executable} -m sightglass watch clirun batch.loss | head -n 2"
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=60, check=False
    )
    assert len(result.stdout.splitlines()) == 2
    assert "Traceback" not in result.stderr
    assert "BrokenPipe" not in result.stderr


def in_terminal(*arguments: str) -> tuple[int, str]:
    """Run the command in a terminal of its own, and return its exit code and all that it drew."""
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    command = [sys.executable, "-m", "sightglass", *arguments]
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment) as child:
        os.close(slave)
        drawn = b""
        while True:
            try:
                part = os.read(master, 65536)
            except OSError:  # on Linux: the other end is closed
                break
            if not part:
                break
            drawn += part
        os.close(master)
        return child.wait(60), drawn.decode(errors="replace")


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
        with subprocess.Popen([*watch, "--for", "60 s"], env=environment, stderr=subprocess.PIPE) as child:
            deadline, n_drawn = time.monotonic() + 50, 0
            while n_drawn < 100 and time.monotonic() < deadline and child.poll() is None:
                n_drawn = n_blue(display)
                time.sleep(0.05)
            child.send_signal(signal.SIGINT)
            _, said = child.communicate(timeout=30)
    assert n_drawn >= 100, said.decode()
    assert child.returncode == 130, said.decode()


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
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
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
    match = re.fullmatch(r"recording batch\.loss\.mean\(every=10\) in (.*)\n", result.output)
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


def test_runs_in_a_folder(recorded: Path) -> None:
    (line,) = sightglass("runs", str(recorded.parent)).output.splitlines()
    directory, _, state, *_ = line.split("\t")
    assert (directory, state) == (str(recorded), "ended")
    (row,) = json.loads(sightglass("runs", str(recorded.parent), "--json").output)
    assert (row["name"], row["state"], row["directory"]) == ("kept", "ended", str(recorded))
    result = sightglass("runs", str(recorded.parent.parent / "none"))
    assert result.stdout == ""
    assert "none' does not exist" in result.stderr


@pytest.mark.smoke
def test_open_shows_one_line_per_tag(recorded: Path) -> None:
    lines = [line.split("\t") for line in sightglass("open", str(recorded)).output.splitlines()]
    assert [line[1:] for line in lines] == [
        ["a[bold]b[/x]", "1", "1234567 to 1234567", "int", "1"],
        ["batch.loss", "10", "0 to 9", "float", "9.0"],
        ["note", "1", "1234567 to 1234567", "str", "two lines and a tab"],
        ["val/loss", "1", "1234567 to 1234567", "float", "0.5"],
    ]
    rows = json.loads(sightglass("open", str(recorded), "val/loss", "note", "--json").output)
    assert [(row["tag"], row["last"]) for row in rows] == [("note", "two\nlines\tand a tab"), ("val/loss", 0.5)]


def test_open_shows_intact_series_beside_a_damaged_record(recorded: Path) -> None:
    (path,) = recorded.glob("*.sgr")
    data = bytearray(path.read_bytes())
    data[data.rindex(b"two\nlines")] ^= 1
    path.write_bytes(data)
    result = sightglass("open", str(recorded))
    assert result.exit_code == 0
    assert ["kept", "batch.loss", "10", "0 to 9", "float", "9.0"] in [
        li.split("\t") for li in result.output.splitlines()
    ]
    result = sightglass("check", str(recorded))
    assert result.exit_code == 1
    assert re.search(r"damaged: offset \d+, \d+ bytes of 'note' at step \S+: the payload is damaged", result.output)


def test_check_reports_an_intact_recording(recorded: Path) -> None:
    result = sightglass("check", str(recorded.parent))
    assert result.exit_code == 0
    assert "1 file, intact" in result.output
    (row,) = json.loads(sightglass("check", str(recorded), "--json").output)["files"]
    assert sum(row["n_rows"].values() if isinstance(row["n_rows"], dict) else [row["n_rows"]]) == 13


def test_watch_and_describe_read_recorded_runs(recorded: Path) -> None:
    result = sightglass("watch", str(recorded), "batch.loss.mean(every=5)")
    assert (result.exit_code, result.output) == (0, "4\t2\n9\t7\n")
    assert sightglass("watch", str(recorded), "val/loss").output == "1234567\t0.5\n"
    assert sightglass("watch", str(recorded.parent), "batch.loss", "-n", "2").output == "0\t0\n1\t1\n"
    text = sightglass("describe", str(recorded)).output
    for part in ("run kept", "ended", "config  depth=3", "event 'batch', 10 so far", "loss: float"):
        assert part in text


def test_a_live_run_takes_precedence_over_a_folder_of_its_name(trainer: Trainer) -> None:
    Path("clirun").mkdir()
    assert sightglass("watch", "clirun", "batch.loss", "-n", "1").exit_code == 0
    assert sightglass("set", "clirun", "lr=0.25").exit_code == 0
    assert "control lr" in sightglass("describe", "clirun").output


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("open", "DIR/nowhere"), 3, "nowhere' does not exist"),
        (("check", "DIR/nowhere"), 3, "nowhere' does not exist"),
        (("watch", "DIR/nowhere", "batch.loss"), 3, "Cannot read the connection file"),
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
