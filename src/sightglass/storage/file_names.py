"""What the names of files in a run directory say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

NAME: Final = "run.json"
SUFFIX: Final = ".sgr"
OWN_NAME: Final = re.compile(r"run(-.*)?\.json")
FOREIGN_NAME: Final = re.compile(r"summary\.\d+|tfevents|\.wandb$|^meta\.yaml$")  # the last: MLflow's
FOREIGN_START: Final = re.compile(r"(?:summary|tfevents)\.(\d{9,11})\b")  # in seconds since the Unix epoch
EVENT_FILES: Final = "tensorboard"  # the folders in a run directory for copies of its records, which are no runs
SUMMARY_FILES: Final = "mindspore"
WRITER: Final = re.compile(r"tfevents\.\d+\..+\.\d+\.\d+(.*)")  # behind host, process and number: `filename_suffix`
NOT_RECORDS: Final = ("_lineage", "_explain", ".pb")
SEGMENT: Final = re.compile(r"(\d{1,18})-rank(\d{1,9})-(\d{1,9})\.sgr")


def name_of(path: Path) -> tuple[float, int, int] | None:
    """Return when the process of a file began, its rank and the file's number, from the name of the file.

    >>> name_of(Path("1700000000500-rank3-0001.sgr"))
    (1700000000.5, 3, 1)
    """
    match = SEGMENT.fullmatch(path.name)
    return (int(match[1]) / 1000, int(match[2]), int(match[3])) if match else None


def rank_of(path: Path) -> int | None:
    """Return the rank of the process that wrote a file, from its name; `None` if the name does not say."""
    named = name_of(path)
    if named is not None:
        return named[1]
    from .foreign import mindspore  # which a run that writes its own files does without

    found = mindspore.parse_name(path.name)
    return found[1] if found is not None else None


def writer_of(name: str) -> str:
    """Return what tells the writers of event files in one folder apart, or empty.

    >>> writer_of("events.out.tfevents.1700000000.gpu-1.lab.321.0.worker")
    '.worker'
    """
    found = WRITER.search(name)
    return "" if found is None else found[1]


def is_record_file(name: str) -> bool:
    """Return whether a file is a record file, by its name."""
    return kind_of(name) in ("segment", "foreign")


def kind_of(name: str) -> str:
    """Return "segment", "run" (it says what a run is) or "foreign" (of another program); empty for other files."""
    if name.endswith(SUFFIX):
        return "segment"
    if OWN_NAME.fullmatch(name):
        return "run"
    return "foreign" if FOREIGN_NAME.search(name) and not name.endswith(NOT_RECORDS) else ""
