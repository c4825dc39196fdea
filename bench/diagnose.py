"""How well `sg.diagnose` judges: generated trainings, half of them with a planted fault.

The limits of `diagnosis/findings.py` were fixed before these trainings were made.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import sightglass as sg
from bench.row import Row
from bench.trainings import HEALTHY, PLANTED, record
from sightglass.client.recorded.run import opened

MAX_WRONG: Final = 2


def measure() -> Iterator[Row]:
    """Judge the trainings."""
    with tempfile.TemporaryDirectory() as folder:
        missed: list[str] = []
        wrong: list[str] = []
        for training in (*HEALTHY, *PLANTED):
            with opened(record(training, Path(folder)), rank=None, follow=False) as run:
                kinds = {finding.kind for finding in sg.diagnose(run).findings} - {"ended"}
            if training.fault and training.fault not in kinds:
                missed.append(f"{training.name} ({training.fault}, found {', '.join(sorted(kinds)) or 'nothing'})")
            if not training.fault:
                wrong.extend(f"{training.name} ({kind})" for kind in sorted(kinds))
        for name in (*missed, *wrong):
            print(f"  {name}")
        yield Row(f"planted faults missed, of {len(PLANTED)}", len(missed), "", 0)
        yield Row(f"findings in {len(HEALTHY)} healthy trainings", len(wrong), "", MAX_WRONG)
