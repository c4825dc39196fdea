"""The gate forgives patience of few tests of real processes, and nothing else; the sizes are held."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from bench import sizes
from tests import gate

FORGIVEN = """
from pathlib import Path
from tests.waiting import wait_until

def test_it(tmp_path_factory):
    seen = Path(__file__).with_suffix(".seen")
    first = not seen.exists()
    seen.touch()
    {body}
"""


@pytest.mark.smoke
def test_few_tests_may_run_again(request: pytest.FixtureRequest) -> None:
    assert sum(map(gate.is_real, request.session.items)) <= gate.MAX_REAL


@pytest.fixture
def checked():
    """Return a function that runs the gate over a file of a folder of tests, and returns what it prints."""
    made: list[Path] = []

    def checked(folder: str, name: str, text: str) -> tuple[int, str]:
        path = Path(gate.__file__).parent / folder / f"test_{name}.py"
        made.extend([path, path.with_suffix(".seen")])
        path.write_text(text)
        command = [sys.executable, "-m", "tests.gate", "-n0", "-p", "no:cacheprovider", str(path)]
        done = subprocess.run(command, cwd=gate.ROOT, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    yield checked
    for path in made:
        path.unlink(missing_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "body", "passes"),
    [
        ("whole", "wait_until(lambda: not first, timeout_s=0.01)", True),
        ("whole", "assert not first", False),  # a wrong value is final
        ("whole", "wait_until(lambda: False, timeout_s=0.01)", False),  # it runs again once, not more often
        ("core", "wait_until(lambda: not first, timeout_s=0.01)", False),  # nothing real in it
    ],
)
def test_only_patience_of_a_real_test_is_forgiven_and_named(checked, worker_id, folder, body, passes) -> None:
    name = f"planted_{worker_id}"
    status, printed = checked(folder, name, FORGIVEN.format(body=body))
    assert (status == 0) is passes, printed
    assert (f"UNSTEADY: tests/{folder}/test_{name}.py::test_it" in printed) is (
        "wait_until" in body and folder == "whole"
    )
    assert "at speed index" in printed


def test_three_failures_are_too_many() -> None:
    assert gate.Report(failed={"a": True, "b": True}).again == ["a", "b"]
    assert gate.Report(failed={"a": True, "b": False}).again == []
    assert gate.Report(failed={"a": True, "b": True, "c": True}).again == []


# Sizes


@pytest.mark.smoke
def test_no_part_outgrows_its_entry_and_every_folder_has_one() -> None:
    parts = sizes.parts()
    assert [line for part in parts for line in part.excess(part.size())] == []
    listed = {path for part in parts for path in part.paths}
    package = sizes.ROOT / "src" / "sightglass"
    present = {path for path in package.iterdir() if path.suffix == ".py" or (path.is_dir() and any(path.glob("*.py")))}
    assert {f"src/sightglass/{path.name}" for path in present} <= listed


@pytest.mark.parametrize(
    ("lines", "files", "code", "wrong"),
    [
        (900, 5, 600, 0), (900, 5, 601, 1), (900, 6, 600, 1), (900, 5, 599, 1),  # within its budget of lines
        (1001, 5, 612, 0), (1001, 5, 613, 1),  # above it, 2 % more are allowed
    ],
)  # fmt: skip
def test_growth_is_found(lines: int, files: int, code: int, wrong: int) -> None:
    part = sizes.Part(name="core", paths=(), budget=1000, files=5, code=600)
    assert len(list(part.excess(sizes.Size(files=files, lines=lines, code=code)))) == wrong


def test_lines_of_code_are_neither_blank_nor_comments_nor_docstrings() -> None:
    python = '"""A\n\nb."""\n\n# c\nx = """d\ne"""\n\n\ndef f():\n    """G."""\n    return (\n        x\n    )\n'
    assert sizes.n_code_of_python(python) == 6
    assert sizes.n_code_of_typescript("/* a\nb */\n// c\n\nconst x = 1 // d\n") == 1
