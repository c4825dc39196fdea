"""The files of each library in each situation: every number is the one that the library's own reader reads."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from .catalogue import CASES, LIBRARIES, PROGRAMS, check, check_program

Written = Callable[[str], Path]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """Return a function that returns the folder in which a library has written a run."""
    known: dict[str, Path] = {}

    def folder_of(library: str) -> Path:
        if library not in known:
            folder = tmp_path_factory.mktemp(library)
            LIBRARIES[library].write(folder / "run")
            known[library] = folder
        return known[library]

    return folder_of


@pytest.mark.parametrize(("library", "situation"), CASES)
def test_every_number_is_the_one_that_the_library_reads(
    made: Written, tmp_path: Path, library: str, situation: str
) -> None:
    assert check(shutil.copytree(made(library), tmp_path / "copy"), library, situation)


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_number_of_a_program_is_the_one_that_tensorboard_reads(tmp_path: Path, program: str) -> None:
    assert check_program(tmp_path / "run", program)
