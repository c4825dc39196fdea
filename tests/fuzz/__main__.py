"""Replay inputs: `python -m tests.fuzz TARGET FILE ...`. Needs no fuzzer."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

from .targets import TARGETS


def main(name: str = "", *paths: str) -> None:
    """Replay inputs through a target; an error is a finding."""
    if name not in TARGETS or not paths:
        sys.exit(f"Usage: python -m tests.fuzz TARGET FILE ...\nTargets: {', '.join(TARGETS)}")
    warnings.simplefilter("error")  # as in the tests
    for path in paths:
        print(f"{name}: {path}", flush=True)
        TARGETS[name].run(Path(path).read_bytes())


if __name__ == "__main__":
    main(*sys.argv[1:])
