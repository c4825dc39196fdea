"""Start the process of a renderer, and wait for its end."""

from __future__ import annotations

import contextlib
import os
import signal
import site
import sys
from pathlib import Path
from typing import Any, Final

from sightglass.core.unpatched import subprocess

from .messages import PRIORITY
from .snapshot import Arena

ENDING_S: Final = 10.0  # for a child that is done: what the user's modules do at an exit is quick

ENVIRONMENT: Final = {
    "SIGHTGLASS_MODE": "disabled",
    "WANDB_MODE": "disabled",
    "MPLBACKEND": "Agg",
    "JAX_PLATFORMS": "cpu",
    "CUDA_VISIBLE_DEVICES": "",
    "HIP_VISIBLE_DEVICES": "",
    "ROCR_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
"""The child's environment: importing a user's module there starts no second run, and takes no accelerator."""


def search_path() -> list[bytes]:
    """Return `sys.path` for a child, without what is not the name of a folder."""
    found = []
    for place in sys.path:
        with contextlib.suppress(TypeError, ValueError):
            found.append(os.fsencode(place))
    return found


def reap(child: subprocess.Popen[bytes]) -> int:
    """Wait for a child that has closed its pipe, and return its status; one that goes on is killed."""
    try:
        child.wait(ENDING_S)
    except subprocess.TimeoutExpired:
        child.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # the system may hold it, such as for a disk
            child.wait(ENDING_S)
    for file in (child.stdout, child.stdin):
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()
    return -signal.SIGTERM if child.returncode is None else child.returncode


def spawn(arena: Arena, *, polite: bool = True) -> subprocess.Popen[bytes]:
    """Start a child that can map the arena; a polite one draws only while a processor has nothing else to do."""
    environment = {**os.environ, **ENVIRONMENT}
    if not polite:
        environment[PRIORITY] = "low"
    home = str(Path(__file__).parents[2])
    if home not in site.getsitepackages():
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [environment.get("PYTHONPATH"), home]))
    options: dict[str, Any] = {"creationflags": getattr(subprocess, "BELOW_NORMAL_PRIORITY_CLASS", 0)}
    if os.name == "posix":
        options = {"process_group": 0, "pass_fds": (arena.descriptor,) if arena.descriptor >= 0 else ()}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "sightglass.figures.renderer"], env=environment, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, **options,
    )  # fmt: skip
