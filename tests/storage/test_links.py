"""Links in a folder of runs: those that lead out of a run's directory are not followed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import sightglass as sg
from sightglass.server.runs.open_files import LEADS_OUT, listing
from sightglass.storage.file_system import names_in

pytestmark = pytest.mark.skipif(os.name != "posix", reason="links need rights elsewhere")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """Return the directory of a run that must not be shown."""
    with sg.init("secret", config={"key": "secret"}, files=sg.Files(into=tmp_path / "private")) as run:
        run.log({"a": 1.0}, step=0)
    return tmp_path / "private"


def test_links_out_of_a_folder_of_runs_are_not_followed(tmp_path: Path, secret: Path) -> None:
    planted = tmp_path / "runs" / "planted"
    planted.mkdir(parents=True)
    (segment,) = secret.glob("*.sgr")
    (planted / segment.name).symlink_to(segment)
    (planted / "run.json").symlink_to(secret / "run.json")
    (tmp_path / "runs" / "linked").symlink_to(secret)
    with pytest.warns(RuntimeWarning, match="linked"):
        assert sg.runs(tmp_path / "runs") == []
    with pytest.raises(sg.RunNotFoundError, match="linked"):
        sg.open(tmp_path / "runs")
    with pytest.raises(sg.RunNotFoundError):
        sg.open(planted)
    assert listing(planted).unreadable == [f"{segment.name}: {LEADS_OUT}", f"run.json: {LEADS_OUT}"]


def test_a_link_among_a_runs_own_files_and_one_that_the_user_names_are_followed(tmp_path: Path, secret: Path) -> None:
    (segment,) = secret.glob("*.sgr")
    (secret / "inside").mkdir()
    segment.rename(secret / "inside" / segment.name)
    segment.symlink_to(Path("inside") / segment.name)
    assert segment.name in names_in(secret)
    (tmp_path / "link").symlink_to(secret)
    with sg.open(tmp_path / "link") as run:
        assert run.series("a").columns().values.tolist() == [1.0]
        assert run.config == {"key": "secret"}


def test_links_that_lead_nowhere_or_round_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "round").symlink_to(tmp_path / "round")
    (tmp_path / "nowhere.sgr").symlink_to(tmp_path / "missing.sgr")
    assert set(names_in(tmp_path)) <= {"round", "nowhere.sgr"}
    with sg.open(tmp_path) as run:
        assert run.tags() == []
