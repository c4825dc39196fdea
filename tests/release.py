"""Build a release into `build/dist`, and try what users will install: `make release`, or this file with some extras.

For each extra, by default all of them, it makes an environment with the wheel and that extra alone. There it runs the
first program of the README, asks it, and stops it with the command line; for a framework, it also imports what the
extra is for. It ends with what the commit still lacks, or with the command that tags it.

An extra with PyTorch takes the build that uv finds: on Linux that is 5 GB with CUDA. With `UV_TORCH_BACKEND=cpu make
release` it is a small one.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST, ENVIRONMENTS = ROOT / "build" / "dist", ROOT / "build" / "release"
UV = (sys.executable, "-m", "uv", "--quiet")
PATIENCE_S = 60
FRAMEWORKS = {
    "torch": "torch", "jax": "jax", "flax": "flax", "lightning": "callbacks.lightning",
    "huggingface": "callbacks.huggingface", "wandb": "storage.wandb",
}  # fmt: skip
"""What the extra of a framework is for. That of Keras has no backend: users choose one."""


class UnreadyError(Exception):
    """Something must be done before the release."""


def require(holds: object, what: str) -> None:
    if not holds:
        raise UnreadyError(what)


def output(*command: str | Path, **options: object) -> str:
    """Run a command, and return what it prints."""
    done = subprocess.run(
        [str(part) for part in command], cwd=ROOT, check=False, text=True, capture_output=True, **options  # type: ignore[call-overload]
    )  # fmt: skip
    require(done.returncode == 0, f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return str(done.stdout)


def check_tree(version: str) -> None:
    """Require what the tagged commit must have: all work, notes with a date, and a version that is new."""
    require(not output("git", "status", "--porcelain"), "Commit or remove what `git status` shows")
    heading = re.search(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    require(
        heading and re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d\d-\d\d\)", heading[1]),
        f"Write the date into the first heading of CHANGELOG.md: ## {version} (YYYY-MM-DD)",
    )
    stored = Path("tests/compatibility/stored", version)
    require(
        (ROOT / stored).is_dir(), f"Store what this version writes, as {stored}: python -m tests.compatibility.make"
    )
    require(f"v{version}" not in output("git", "tag").split(), f"{version} is tagged already: set another __version__")


def build(version: str) -> Path:
    """Return the wheel, which is built from the source distribution, as package indexes ask for."""
    for old in DIST.glob("*"):
        old.unlink()
    output(*UV, "build", "--out-dir", DIST)
    output(*UV, "tool", "run", "twine", "check", "--strict", *DIST.glob("sightglass-*"))
    (wheel,) = DIST.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    tracked = {name.removeprefix("src/") for name in output("git", "ls-files", "src").split()}
    require(packed == tracked, f"Expected the wheel to have what is in src: {sorted(packed ^ tracked)} differ")
    require(version in wheel.name, f"Expected version {version} of {wheel.name}")
    return wheel


def try_extra(wheel: Path, extra: str, program: str) -> None:
    """Install the wheel with one extra into a new environment, and do there what the README says."""
    bin = ENVIRONMENTS / (extra or "none") / "bin"
    output(*UV, "venv", "--clear", bin.parent)
    output(*UV, "pip", "install", "--python", bin / "python", f"sightglass[{extra}] @ {wheel.as_uri()}")
    if extra in FRAMEWORKS:
        output(bin / "python", "-c", f"import sightglass.{FRAMEWORKS[extra]}", timeout=PATIENCE_S)
    with tempfile.TemporaryDirectory(prefix="sg") as folder:
        Path(folder, "train.py").write_text(program)
        environment = {"PATH": f"{bin}:/usr/bin:/bin", "HOME": folder, "SIGHTGLASS_RUNTIME_DIR": f"{folder}/r"}
        options = {"env": environment, "timeout": PATIENCE_S}
        with subprocess.Popen([bin / "python", "train.py"], cwd=folder, env=environment, stdout=subprocess.PIPE) as job:
            try:
                assert job.stdout is not None
                job.stdout.readline()
                lines = output(bin / "sightglass", "watch", "mnist", "batch.loss", "-n", "3", **options).splitlines()
                require(len(lines) >= 3, f"Expected three records of batch.loss, got {lines}")
                output(bin / "sightglass", "set", "mnist", "lr=0.01", **options)
                output(bin / "sightglass", "stop", "mnist", **options)
                require(job.wait(PATIENCE_S) == 0, "Expected the program to end well when it was stopped")
            finally:
                job.kill()
        (run,) = Path(folder, "runs").iterdir()
        output(bin / "sightglass", "open", run, **options)


def main(extras: list[str]) -> int:
    """Build and try; return the exit status."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    version = re.findall(r'__version__ = "(.*)"', (ROOT / "src/sightglass/__init__.py").read_text())[0]
    program = re.findall(r'```python title="train.py"\n(.*?)```', (ROOT / "README.md").read_text(), re.DOTALL)[0]
    try:
        wheel = build(version)
        print(f"{wheel.relative_to(ROOT)}, {wheel.stat().st_size / 1e6:.1f} MB", flush=True)
        for extra in extras or ["", *project["optional-dependencies"]]:
            try_extra(wheel, extra, program)
            print(f"The README's program runs and is asked with sightglass[{extra}]", flush=True)
        check_tree(version)
        if not project.get("urls"):
            print("No package index will link to the repository: fill in [project.urls] in pyproject.toml")
    except UnreadyError as error:
        print(error)
        return 1
    print(f"Ready. To release it: git tag v{version} && git push origin v{version} && uvx twine upload build/dist/*")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
