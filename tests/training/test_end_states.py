"""How a `with` block says that a run ended: by itself, by an error, by Ctrl-C, by `sys.exit`."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

import sightglass as sg
from sightglass.storage.run_file import read


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (None, "ended"),
        (SystemExit(), "ended"),
        (SystemExit(0), "ended"),
        (SystemExit(3), "failed"),
        (ValueError("on purpose"), "failed"),
        (KeyboardInterrupt(), "terminated"),
    ],
    ids=repr,
)
def test_the_files_say_how_a_block_ended(tmp_path: Path, error: BaseException | None, state: str) -> None:
    with contextlib.suppress(BaseException), sg.init("job", dir=tmp_path) as run:
        run.log({"a": 1})
        if error is not None:
            raise error
    (directory,) = tmp_path.iterdir()
    assert read(directory / "run.json").state == state
