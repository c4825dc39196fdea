"""Run directories: their names, and who has which."""

from __future__ import annotations

import time
from pathlib import Path


def choose(parent: Path, name: str) -> Path:
    """Return the directory of a new run, `{name}-{date}-{time}`, with a counter when that is taken; nothing is made."""
    safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in name).strip(".") or "run"
    return _free(parent / f"{safe}-{time.strftime('%Y-%m-%d-%H%M%S')}")


def claim(path: Path) -> Path:
    """Make a new run's directory, or one with a counter if another run was faster, and return it.

    Raises:
        OSError: It cannot be made.
    """
    while True:
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            path = _free(path)


def _free(base: Path) -> Path:
    path, n = base, 1
    while path.exists():
        n += 1
        path = base.with_name(f"{base.name}-{n}")
    return path
