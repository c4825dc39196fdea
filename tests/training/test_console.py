"""What a program prints is recorded line by line, and the program's streams stay its own."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import sightglass as sg
from sightglass.server.runs.details import Details, read_inside
from sightglass.storage.read.recording import Recording
from sightglass.training.facts import (
    LAST_CHARACTERS,
    LAST_LINES,
    MAX_LINE,
    MAX_LINES,
    MAX_WAITING,
    Console,
    LastLines,
)


class Stream(io.StringIO):
    """A stream of its own for a test."""


Lines = list[tuple[str, str]]


def streams(monkeypatch: pytest.MonkeyPatch) -> tuple[Stream, Stream]:
    """Put streams of the test's own in place of those that pytest sets for each phase of a test."""
    out, err = Stream(), Stream()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    monkeypatch.delenv("SIGHTGLASS_FACTS", raising=False)  # off, where tests do not concern it
    return out, err


def following() -> tuple[Console, Lines]:
    lines: Lines = []

    def take(name: str, found: Sequence[str]) -> None:
        lines.extend((name, line) for line in found)

    return Console(take), lines


def test_finished_lines_are_handed_on_and_the_rest_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    (out, _), (console, lines) = streams(monkeypatch), following()
    print("a", 1)
    print("b", end="")
    print("oh", file=sys.stderr)
    console.tick(0.0)
    assert lines == [("out", "a 1"), ("err", "oh")]
    print("c")
    console.tick(0.5)
    sys.stdout.writelines(["d\n", "e"])
    console.close()
    print("not any more")
    assert lines[2:] == [("out", "bc"), ("out", "d"), ("out", "e")]
    assert out.getvalue() == "a 1\nbc\nd\nenot any more\n"
    assert "write" not in vars(out)


def test_of_a_progress_bar_the_last_state_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    _, (console, lines) = streams(monkeypatch), following()
    for i in range(5):
        sys.stderr.write(f"\r{i}: \x1b[32m##\x1b[0m  ")
        console.tick(i)
    assert lines == []
    sys.stderr.write("\nwindows\r\nempty\n\n")
    console.tick(9.0)
    assert lines == [("err", "4: ##"), ("err", "windows"), ("err", "empty"), ("err", "")]


def test_what_holds_a_stream_already_is_followed_and_secrets_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    (_, err), (console, lines) = streams(monkeypatch), following()
    logger = logging.getLogger("of the test")
    logger.addHandler(handler := logging.StreamHandler(err))
    logger.error("key sk-abcdefghijklmnopq12345")
    logger.removeHandler(handler)
    console.tick(0.0)
    assert lines == [("err", "key [redacted]")]


def test_more_than_people_read_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    _, (console, lines) = streams(monkeypatch), following()
    print("x" * 2 * MAX_LINE)
    print("\n".join(map(str, range(MAX_LINES + 9))))
    console.tick(0.0)
    assert lines[0] == ("out", "… 10 lines left out")
    assert lines[1] == ("out", "9")
    assert len(lines) == MAX_LINES + 1
    lines.clear()
    print("y" * MAX_LINE * 3)
    sys.stdout.write("z" * MAX_WAITING)
    console.tick(0.5)
    assert lines == [("out", f"… {MAX_WAITING:,} characters left out"), ("out", "y" * MAX_LINE + "…")]


def test_a_stream_that_cannot_be_followed_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Narrow:
        __slots__ = ()

        def write(self, text: str) -> int:
            return len(text)

    monkeypatch.setattr(sys, "stdout", Narrow())
    monkeypatch.setattr(sys, "stderr", None)
    console = Console(lambda name, lines: pytest.fail("there is nothing to see"))
    print("a")
    console.tick(0.0)
    console.close()


def test_where_lines_cannot_be_recorded_the_streams_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    out, err = streams(monkeypatch)

    def fail(name: str, lines: Sequence[str]) -> None:
        raise OSError("no room")

    console = Console(fail)
    print("a")
    with pytest.raises(OSError, match="no room"):
        console.tick(0.0)
    assert "write" not in vars(out) | vars(err)


def test_somebody_who_follows_later_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    (out, _), (console, _) = streams(monkeypatch), following()
    seen: list[str] = []
    before = out.write

    def write(text: str) -> int:
        seen.append(text)
        return before(text)

    out.write = write  # type: ignore[method-assign]
    console.close()
    sys.stdout.write("a")
    assert (seen, out.getvalue()) == (["a"], "a")


def test_a_run_records_what_its_program_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    streams(monkeypatch)
    with sg.init("talks", dir=tmp_path, facts=sg.Facts(program=False, system=False, console=True)) as run:
        print("step 1")
        run.log({"loss": 1.0}, step=70_000)
        print("step 2")
    with sg.open(run.directory) as kept:
        assert [record.value for record in kept.series("console.out")] == ["step 1", "step 2"]
        assert [record.value for record in kept.stream("console.out")] == ["step 1", "step 2"]
        assert kept.tags() == ["console.out", "loss"]
    details = read_inside(Details(), Recording(run.directory))
    assert details.last_step == 70_000


def test_nothing_is_recorded_unless_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    streams(monkeypatch)
    with sg.init("silent", dir=tmp_path, facts=sg.Facts()) as run:
        print("step 1")
        run.log({"loss": 1.0}, step=0)
    with sg.open(run.directory) as kept:
        assert kept.tags() == ["loss"]


def held(monkeypatch: pytest.MonkeyPatch) -> tuple[LastLines, Stream, Stream]:
    out, err = streams(monkeypatch)
    lines = LastLines()
    lines.hold()
    return lines, out, err


def test_the_last_lines_of_both_streams_are_held_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    lines, out, err = held(monkeypatch)
    for i in range(500):
        print("step", i)
        print("oh", i, file=sys.stderr)
    print("10 %\r20 %\r\x1b[31m30 %\x1b[0m")
    print("key", "sk-abcdefghij0123456789xyz")
    found = lines.text().split("\n")
    assert len(found) == LAST_LINES
    assert found[:2] == ["step 401", "oh 401"]
    assert found[-2] == "30 %"
    assert "sk-" not in found[-1]
    lines.release()
    assert "write" not in vars(out)
    assert "write" not in vars(err)


@pytest.mark.parametrize("piece", ["x" * 10_000_000, "x" * 100, "."])
def test_the_last_lines_take_little_memory(monkeypatch: pytest.MonkeyPatch, piece: str) -> None:
    lines, _, _ = held(monkeypatch)
    for _ in range(max(3, 300_000 // len(piece))):
        sys.stdout.write(piece)
    assert sum(map(len, lines._pieces)) <= LAST_CHARACTERS
    assert len(lines._pieces) <= LAST_CHARACTERS // 8
    assert len(lines.text()) <= LAST_CHARACTERS
    lines.release()


def test_a_stream_is_followed_once_for_all_runs_and_others_may_follow_it_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines, out, _ = held(monkeypatch)
    ours = out.write
    lines.hold()
    console, found = following()
    assert out.write is ours
    seen: list[str] = []
    out.write = lambda text: (seen.append(text), ours(text))[1]  # type: ignore[method-assign]  # as a tracker does
    print("a")
    console.close()
    lines.release()
    lines.release()
    for _ in range(100):  # as in a notebook whose cells run again
        lines.hold()
        lines.release()
    lines.hold()
    print("b")
    assert (lines.text(), found, seen) == ("b", [("out", "a")], ["a", "\n", "b", "\n"])
    lines.release()
    assert out.getvalue() == "a\nb\n"


def test_a_run_that_fails_leaves_what_it_printed_last(tmp_path: Path) -> None:
    program = """
import sys
import sightglass as sg

for fails in (False, True):
    with sg.init("x", dir="runs") as run:
        run.log({"loss": 1.0})
        print("loss", 1.0)
        print("token", "hf_" + "a1" * 17, file=sys.stderr)
        if fails:
            raise ValueError("too large")
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SIGHTGLASS_", "PYTEST_"))}
    for more, printed in (
        ({}, "loss 1.0\ntoken [redacted]"),
        ({"SIGHTGLASS_CONSOLE": "off"}, ""),
        ({"SIGHTGLASS_FACTS": "off"}, ""),
    ):
        folder = tmp_path / "".join(more)
        folder.mkdir(exist_ok=True)
        failed = subprocess.run(
            [sys.executable, "-c", program],
            cwd=folder,
            env=environment | more,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "too large" in failed.stderr
        good, bad = sorted((folder / "runs").iterdir(), key=lambda path: path.stat().st_mtime)
        with sg.open(good) as one, sg.open(bad) as other:
            assert one.printed == ""
            assert other.printed == printed
        if printed:
            assert (bad / "console.txt").stat().st_mode & 0o777 == 0o600
