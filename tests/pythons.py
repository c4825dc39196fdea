"""The package on each supported Python that is found here, with the lowest and the newest dependencies.

`python tests/pythons.py [3.13 ...]`, or `make test-pythons`. For each it makes an environment in `build/pythons`, and
runs there a training that records and is asked, with warnings as errors, and the tests marked `smoke` of some folders.
On the newest of them for which JAX has builds, some tests of `tests/jax` run with the newest JAX: a Python caps the
version that it can have, and `make test` runs on an older one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENVIRONMENTS = ROOT / "build" / "pythons"
UV = (sys.executable, "-m", "uv", "--quiet")
RESOLUTIONS = ("lowest-direct", "highest")
# Without wheels, the lowest version would be one that nobody can install without a compiler; only ours is built.
WHEELS = ("--only-binary", ":all:", "--no-binary", "sightglass")
FOLDERS = ("core", "protocol", "storage/format", "storage/write", "training")  # what differs between versions is here
# Private names of JAX's, which differ between versions, and a query compiled into each kind of program.
# And models of Flax and Equinox, whose newest releases come with it.
JAX_TESTS = tuple(f"tests/jax/test_{name}.py" for name in ("compat", "libraries", "tap", "variant"))
LIBRARIES = ("equinox", "flax", "optax")
TOOLS = ("hypothesis", "protobuf", "pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist")
TRAINING = """
import sys, tempfile
import sightglass as sg

with tempfile.TemporaryDirectory() as folder:
    with sg.init("smoke", dir=folder) as run:
        asked = sg.connect(run).stream("batch.loss.quantile(0.5, every=5)")
        for step in range(20):
            run.observe("batch", step=step, loss=float(step))
            run.log({"loss": float(step)}, step=step)
        assert [record.value for record in asked.wait(4, timeout_s=30)] == [2.0, 7.0, 12.0, 17.0]
    with sg.open(run.directory) as kept:
        assert kept.series("loss").n == 20
import sightglass.cli  # with all of its commands
"""


def supported() -> list[str]:
    """Return the versions that the package declares, such as "3.12"."""
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    return [
        found[1] for line in classifiers if (found := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line))
    ]


def interpreter(version: str) -> str | None:
    """Return the path of an interpreter: this one, one on the path, or one of pyenv; `None` if there is none."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    installed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    return str(installed[-1]) if installed else shutil.which(f"python{version}")


def check(version: str, resolution: str, base: str) -> bool:
    """Make an environment, and return whether everything passes in it."""
    folder = ENVIRONMENTS / f"{version}-{resolution}"
    python = str(folder / "bin" / "python")
    install = [*UV, "pip", "install", "--python", python]
    steps = [
        [*UV, "venv", "--clear", "--python", base, str(folder)],
        [*install, *WHEELS, "--resolution", resolution, "--editable", "."],
        [*install, *TOOLS],
        [python, "-W", "error", "-c", TRAINING],
        [python, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", "-m", "smoke",
         *(f"tests/{name}" for name in FOLDERS)],
    ]  # fmt: skip
    print(f"== Python {version}, {resolution} dependencies", flush=True)
    return all(_runs(step) for step in steps)


def check_jax(version: str, base: str) -> bool | None:
    """Return whether the tests of JAX pass with the newest JAX; `None` if there is none for this Python."""
    folder = ENVIRONMENTS / f"{version}-jax"
    python = str(folder / "bin" / "python")
    install = [*UV, "pip", "install", "--python", python]
    if not _runs([*UV, "venv", "--clear", "--python", base, str(folder)]):
        return False
    if not _runs([*install, *WHEELS, "--editable", ".[jax]", *LIBRARIES, *TOOLS]):
        print(f"== Python {version}: JAX cannot be installed")
        return None
    print(f"== Python {version}, the newest JAX", flush=True)
    tests = [python, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", *JAX_TESTS]
    return _runs(tests)


def _runs(command: list[str]) -> bool:
    # JAX may compute wrong numbers on a CPU without this flag.
    environment = {**os.environ, "XLA_FLAGS": "--xla_cpu_experimental_ynn_fusion_type="}
    return subprocess.run(command, cwd=ROOT, check=False, env=environment).returncode == 0


def main(versions: list[str]) -> int:
    """Check versions, by default all; those that are not found are named."""
    failed = []
    for version in versions or supported():
        base = interpreter(version)
        if base is None:
            print(f"== Python {version}: no interpreter found")
            continue
        chosen = RESOLUTIONS[:1] if base == sys.executable else RESOLUTIONS  # `make test` has the newest on this one
        failed += [f"{version} {how}" for how in chosen if not check(version, how, base)]
    for version in reversed(versions or supported()):
        base = interpreter(version)
        passed = None if base is None else check_jax(version, base)
        if passed is not None:
            failed += [] if passed else [f"{version} jax"]
            break
    print(f"failed: {', '.join(failed)}" if failed else "all passed")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
