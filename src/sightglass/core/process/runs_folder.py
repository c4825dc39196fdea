"""The folder of runs where none is named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

STANDARD: Final = "runs"
VARIABLE: Final = "SIGHTGLASS_RUNS"


def runs_folder() -> Path:
    """Return the folder that `SIGHTGLASS_RUNS` in the environment names, else "runs"."""
    return Path(os.environ.get(VARIABLE) or STANDARD)
