"""How well `sg.diagnose` judges: generated trainings, half of them with a planted fault, and how long it takes.

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

MAX_WRONG: Final = 2
N_SERIES, N_RECORDS = 100, 100_000


def measure() -> Iterator[Row]:
    """Judge the trainings, and time the judgement of a long one."""
    with tempfile.TemporaryDirectory() as folder:
        missed, wrong = [], []
        for training in (*HEALTHY, *PLANTED):
            with sg.open(record(training, Path(folder))) as run:
                kinds = {finding.kind for finding in sg.diagnose(run).findings} - {"ended"}
            if training.fault and training.fault not in kinds:
                missed.append(f"{training.name} ({training.fault}, found {', '.join(sorted(kinds)) or 'nothing'})")
            if not training.fault:
                wrong.extend(f"{training.name} ({kind})" for kind in sorted(kinds))
        for name in (*missed, *wrong):
            print(f"  {name}")
        yield Row(f"planted faults missed, of {len(PLANTED)}", len(missed), "", 0)
        yield Row(f"findings in {len(HEALTHY)} healthy trainings", len(wrong), "", MAX_WRONG)
