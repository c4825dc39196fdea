"""What a run tells about its program: collected beside the training, shown to clients, and kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import wait_until

import sightglass as sg
from sightglass.training.facts import STATUS, Git, ProgramFacts, packages, read_status
from sightglass.training.serving.io_loop import Chores

AUTHOR = {
    f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
}  # fmt: skip


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIGHTGLASS_FACTS")


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Path]:
    """A folder with one commit, whose only file was changed afterwards; the tests' working folder."""
    file = tmp_path / "train.py"
    file.write_text("lr = 0.1\n")
    for command in (["init", "-q", "-b", "main"], ["add", "train.py"], ["commit", "-q", "-m", "one"]):
        subprocess.run(["git", *command], cwd=tmp_path, env={**os.environ, **AUTHOR}, check=True)
    file.write_text("lr = 0.2\napi_key = 'abc-123-def'\n")
    return tmp_path


@pytest.mark.usefixtures("told")
def test_a_run_tells_its_program_live_and_recorded(repository: Path) -> None:
    with sg.init("x", config={"hub_token": "abcdefgh"}) as run:
        run.log({"loss": 1.0})
        with sg.connect(run) as client:
            live = wait_until(lambda: client.describe().facts.get("git") and client.describe().facts, "git's answer")
        run.flush(30)
        kept = wait_until(
            lambda: json.loads((run.directory / "run.json").read_text())["facts"].get("git"), "git in run.json"
        )
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=repository, text=True).strip()
    assert kept == live["git"] == {"commit": commit, "branch": "main", "dirty": True}
    old = sg.open(run.directory)
    assert isinstance(old, sg.RecordedRun)
    assert old.facts["command"] == live["command"]
    assert old.facts["folder"] == str(repository)
    assert old.facts["python"] == ".".join(map(str, sys.version_info[:3]))
    assert old.facts["packages"]["sightglass"] == sg.__version__
    assert "json" not in old.facts["packages"]
    assert "environment" not in old.facts
    assert "+lr = 0.2" in old.changes
    assert "abc-123" not in old.changes
    assert (run.directory / "changes.diff").stat().st_mode & 0o777 == 0o600
    assert old.config == {"hub_token": "[redacted]"}
    assert run.config == {"hub_token": "abcdefgh"}
    shown = str(old.describe())
    assert f"commit  {commit} on main, with changes" in shown
    assert "versions  Python 3" in shown


@pytest.mark.usefixtures("told", "repository")
def test_a_run_that_ends_at_once_waits_for_git_and_writes_what_it_was_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sightglass.training.facts.LAST_S", 60.0)
    monkeypatch.setattr("sightglass.training.wiring.IO_CLOSE_S", 130.0)
    monkeypatch.setenv("MY_TOKEN", "abcdefgh")
    monkeypatch.setenv("MY_SEED", "7")
    with sg.init("x", facts=sg.Facts(environment=["MY_TOKEN", "MY_SEED", "MY_ABSENT"])) as run:
        run.log({"loss": 1.0})
    facts = sg.open(run.directory).facts  # type: ignore[union-attr]
    assert facts["git"]["dirty"]
    assert facts["environment"] == {"MY_TOKEN": "[redacted]", "MY_SEED": "7"}
    diff = sg.open(run.directory).changes  # type: ignore[union-attr]
    assert "+lr = 0.2" in diff
    assert "+api_key = '[redacted]'" in diff


@pytest.mark.usefixtures("told", "repository")
def test_the_changes_can_be_left_out() -> None:
    with sg.init("x", facts=sg.Facts(diff=False)) as run:
        run.log({"loss": 1.0})
    assert not (run.directory / "changes.diff").exists()


def test_facts_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    with sg.init("x") as run:  # by the environment, see tests/conftest.py
        run.log({"loss": 1.0})
    monkeypatch.delenv("SIGHTGLASS_FACTS")
    with sg.init("y", facts=sg.Facts(program=False)) as other:
        other.log({"loss": 1.0})
    for each in (run, other):
        assert sg.open(each.directory).facts == {}  # type: ignore[union-attr]


def test_without_git_or_a_repository_the_rest_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changes: list[None] = []
    monkeypatch.setenv("PATH", str(tmp_path))
    facts = ProgramFacts(sg.Facts(diff=True), changed=lambda: changes.append(None))
    facts.tick(0.0)
    facts.close()
    assert facts.found["packages"]
    assert "git" not in facts.found
    assert not facts.diff
    assert len(changes) == 1


def test_git_that_does_not_end_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "git"
    script.write_text("#!/bin/sh\nexec sleep 600\n")
    script.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    git = Git(STATUS, str(tmp_path), until_s=5.0)
    assert not git.ended(4.0)
    assert git.ended(6.0)
    assert git.output() == ""


def test_what_git_says_is_read() -> None:
    assert read_status("# branch.oid (initial)\n# branch.head (detached)\n") == {
        "commit": "", "branch": "", "dirty": False,
    }  # fmt: skip
    assert read_status("") == {"commit": "", "branch": "", "dirty": False}


def test_only_versions_that_are_texts_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd:
        __version__ = property(lambda self: 1 / 0)

    class Version(str):  # as in PyTorch
        __slots__ = ()

    class Package:
        def __init__(self) -> None:
            self.__version__ = Version("2.13.0+cpu")

    monkeypatch.setitem(sys.modules, "odd_package", Odd())
    monkeypatch.setitem(sys.modules, "gone_package", None)
    monkeypatch.setitem(sys.modules, "some_package", Package())  # type: ignore[arg-type]
    assert "numpy" in packages()
    assert type(packages()["some_package"]) is str
    assert "odd_package" not in packages()


def test_environment_is_a_list_of_names() -> None:
    with pytest.raises(TypeError, match="'PATH'"):
        sg.Facts(environment="PATH")
    with pytest.raises(TypeError, match=r"sg\.Facts\(…\).*got bool"):
        sg.init("x", facts=True)  # type: ignore[arg-type]


def test_a_chore_that_fails_is_given_up_and_the_others_go_on() -> None:
    ticks: list[float] = []

    class Broken:
        def tick(self, now_s: float) -> None:
            raise ValueError("no")

        close = tick  # type: ignore[assignment]

    class Whole:
        def tick(self, now_s: float) -> None:
            ticks.append(now_s)

        def close(self) -> None:
            ticks.append(-1.0)

    chores = Chores([Broken(), Whole()], run="x")
    with pytest.warns(RuntimeWarning, match="'x': Broken .*ValueError: no"):
        chores.tick(1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for now_s in (1.1, 2.0):
            chores.tick(now_s)
        chores.close()
        chores.tick(3.0)
    assert ticks == [1.0, 2.0, -1.0]
    assert chores.failures.n == 1
