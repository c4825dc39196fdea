"""The inner loop: `python -m tests.quick [FOLDER ...]`, or `make quick`; with `--laws` the properties, `make laws`.

Runs the quick tests of the folders that changed since `main`: those not marked `slow` or `browser`, with few of
Hypothesis's examples. Of the folders above them, by the layers in `.importlinter`, it runs the tests marked `smoke`.
"""

from __future__ import annotations

import configparser
import subprocess
import sys
from pathlib import Path

from tests import gate

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
# Tests that mirror no folder, and the folders that they are about.
ABOUT = {
    "laws": {"core", "query", "training", "client", "storage"},
    "contracts": {"protocol"},
    "fuzz": {"core", "protocol", "query", "storage"},
    "meta": set(),
}


def layers() -> list[list[str]]:
    """Return the folders of the package from high to low, those of one layer together."""
    config = configparser.ConfigParser()
    config.read(ROOT / ".importlinter")
    lines = config["importlinter:contract:layers"]["layers"].split("\n")
    return [[name.strip() for name in line.split("|")] for line in lines if line.strip()]


def changed() -> set[str]:
    """Return the folders with a file that differs from `main`, or from the last commit where `main` is checked out."""
    branch = _git("branch", "--show-current")
    base = "HEAD~1" if branch == "main" and not _git("status", "--porcelain") else "main"
    paths = _git("diff", "--name-only", base).splitlines() + _git("ls-files", "-o", "--exclude-standard").splitlines()
    return {folder for path in paths if (folder := folder_of(path))}


def folder_of(path: str) -> str:
    """Return the folder of the package that a path belongs to; empty if it belongs to none."""
    match Path(path).parts:
        case ("src", "sightglass", folder, _, *_) | ("tests", folder, _, *_):
            return folder
    return ""


def selection(folders: set[str]) -> tuple[list[str], list[str]]:
    """Return the folders of tests to run, and those of which the smoke tests run."""
    ordered = [name for layer in layers() for name in layer]
    depth = max((ordered.index(folder) for folder in folders if folder in ordered), default=len(ordered))
    whole = set(folders) | {tests for tests, about in ABOUT.items() if about & folders}
    above = set(ordered[:depth]) | set(ABOUT)
    return _present(whole), _present(above - whole)


def arguments(folders: set[str]) -> list[str]:
    """Return what pytest is called with after a change in some folders; nothing if no test is to run."""
    whole, smoke = selection(folders)
    # Only files that hold a smoke test are collected: importing all others would take longer than the tests.
    files = [path for name in smoke for path in (TESTS / name).rglob("test_*.py") if "mark.smoke" in path.read_text()]
    paths = [str(path) for path in [*(TESTS / name for name in whole), *files]]
    print(
        f"quick tests of: {', '.join(whole) or 'nothing'}; smoke tests of: {', '.join(smoke) or 'nothing'}", flush=True
    )
    return ["-n", "auto", "--hypothesis-profile=dev", "--quick", ",".join(whole), *paths] if paths else []


def laws(folders: set[str]) -> list[str]:
    """Return what pytest is called with to try the properties of some folders on many more examples."""
    whole, _ = selection(folders)
    paths = [str(TESTS / name) for name in whole]
    return ["-n", "auto", "--hypothesis-profile=release", "-m", "hypothesis", *paths] if paths else []


def main(words: list[str]) -> int:
    """Run them."""
    choose = laws if "--laws" in words else arguments
    chosen = choose({word for word in words if word != "--laws"} or changed())
    if not chosen:
        return 0
    status, report = gate.run(chosen)
    print(report)
    return status


def _present(folders: set[str]) -> list[str]:
    return sorted(folder for folder in folders if (TESTS / folder).is_dir())


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
