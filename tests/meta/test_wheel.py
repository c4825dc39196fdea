"""What users install: a wheel with the page, the notices of everything in it, and a list of what was built in."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
STATIC = ("server/static", "views/static")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Build the wheel; return the texts in it by name, without the version in names."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-c", BUILD, str(folder)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stderr
    with zipfile.ZipFile(folder / built.stdout.split()[-1]) as archive:
        version = built.stdout.split()[-1].split("-")[1]
        return {
            name.replace(f"sightglass-{version}.dist-info", "dist-info"): archive.read(name).decode("utf-8", "replace")
            for name in archive.namelist()
        }


def bundled() -> dict[str, str]:
    """Return the versions of the packages that the front end is built with."""
    packages = json.loads((ROOT / "frontend/package-lock.json").read_text())["packages"]
    return {
        place.removeprefix("node_modules/"): about["version"]
        for place, about in packages.items()
        if place and not about.get("dev")
    }


@pytest.mark.slow
@pytest.mark.parametrize("folder", STATIC)
def test_the_wheel_has_a_notice_of_each_library_in_a_bundle(wheel: dict[str, str], folder: str) -> None:
    notices = wheel[f"sightglass/{folder}/THIRD_PARTY.md"]
    assert wheel[f"dist-info/licenses/src/sightglass/{folder}/THIRD_PARTY.md"] == notices
    sections = dict(section.split("\n", 1) for section in notices.split("\n## ")[1:])
    of_page = {f"{name} - {version}" for name, version in bundled().items()}
    assert {head.rsplit(" (", 1)[0] for head in sections} == of_page
    for head, text in sections.items():
        assert "Copyright" in text, head
        assert "ermission" in text, head
    assert any(name.startswith(f"sightglass/{folder}/") and name.endswith(".js") for name in wheel)


@pytest.mark.slow
def test_the_wheel_lists_what_was_built_in(wheel: dict[str, str]) -> None:
    components = json.loads(wheel["dist-info/sboms/javascript.cdx.json"])["components"]
    assert {component["name"]: component["version"] for component in components} == bundled()


@pytest.mark.slow
def test_the_metadata_names_the_licences(wheel: dict[str, str]) -> None:
    assert "\nLicense-Expression: Apache-2.0\n" in wheel["dist-info/METADATA"]
    assert {name for name in wheel if name.startswith("dist-info/licenses/")} >= {
        "dist-info/licenses/LICENSE",
        "dist-info/licenses/NOTICE",
    }
