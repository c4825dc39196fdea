"""How the files say that a program ended: with and without `with`, by an error, by Ctrl-C, by `sys.exit`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sightglass.storage.run_file import read

PLAIN = """
import sys, sightglass as sg
run = sg.init("job", dir=sys.argv[1])
run.log({"a": 1})
"""
WITHIN = """
import sys, sightglass as sg
with sg.init("job", dir=sys.argv[1]) as run:
    run.log({"a": 1})
    """
EARLIER = "sys.last_value = ValueError(); sys.ps1 = '>>> '"  # as at a prompt


@pytest.mark.parametrize("program", [PLAIN, WITHIN], ids=["plain", "within"])
@pytest.mark.parametrize(("end", "state"), [
    ("", "ended"),
    ("sys.exit()", "ended"),
    ("sys.exit(0)", "ended"),
    ("raise ValueError", "failed"),
    ("raise KeyboardInterrupt", "terminated"),
    (EARLIER, "ended"),
])  # fmt: skip
def test_the_files_say_how_a_program_ended(tmp_path: Path, program: str, end: str, state: str) -> None:
    subprocess.run([sys.executable, "-c", program + end, str(tmp_path)], check=False, capture_output=True, timeout=100)
    (directory,) = tmp_path.iterdir()
    assert read(directory / "run.json").state == state


def test_an_exit_with_an_error_within_a_run_is_a_failure(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", WITHIN + "sys.exit(3)", str(tmp_path)], check=False, timeout=100)
    (directory,) = tmp_path.iterdir()
    assert read(directory / "run.json").state == "failed"
