"""What a run of MLflow's file store says of itself: `meta.yaml`, and the folders `params` and `tags` beside it.

The layout is that of `mlflow.store.tracking.file_store`: a file for each parameter, tag and metric, whose path is its
name. It needs neither NumPy nor a reader of YAML: MLflow writes one scalar a line, and the run's name is in a tag, too.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from sightglass.storage.file_system import names_in, open_regular

META: Final = "meta.yaml"
METRICS, PARAMS, TAGS = "metrics", "params", "tags"
FOLDERS: Final = frozenset({METRICS, PARAMS, TAGS})  # which MLflow makes with each run, and an experiment has not
STATES: Final = {3: "ended", 4: "failed", 5: "terminated"}
WORDS: Final = {"True": True, "False": False, "None": None}
MAX_BYTES: Final = 2**16  # of a parameter or a tag; MLflow's own limit is 6,000 characters
MAX_FILES: Final = 100_000
MAX_DEPTH: Final = 16  # of names with slashes
OWN: Final = "mlflow."


def read_mlflow(meta: str | os.PathLike[str]) -> dict[str, Any]:
    """Return fields of `run_file.RunFile`; empty if it is not the `meta.yaml` of a run.

    Raises:
        OSError: It cannot be read.
    """
    said = dict(_lines(_text(meta)))
    if not (said.get("run_id") or said.get("run_uuid")) or "start_time" not in said:
        return {}
    folder = Path(meta).parent
    tags = {name: _text(path) for name, path in files_in(folder / TAGS)}
    told: dict[str, Any] = {
        "name": tags.get(f"{OWN}runName") or said.get("run_name") or "",
        "config": {name: typed(_text(path)) for name, path in files_in(folder / PARAMS)},
        "started": _seconds(said["start_time"]),
        "facts": _facts(tags, said),
    }
    state, ended = STATES.get(_whole(said.get("status"))), _seconds(said.get("end_time"))
    return told | ({"state": state, "ended": ended} if state and ended else {})


def files_in(folder: Path, prefix: str = "", depth: int = MAX_DEPTH) -> Iterator[tuple[str, Path]]:
    """Yield the name and the path of each file below a folder, without links that lead out of it."""
    with contextlib.suppress(OSError):
        for name in names_in(folder)[:MAX_FILES]:
            yield prefix + name, folder / name
        with os.scandir(folder) as entries:
            inner = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        for name in inner if depth else ():
            yield from files_in(folder / name, f"{prefix}{name}/", depth - 1)


def beside(meta: Path) -> Iterator[Path]:
    """Yield what changes with a run, which its `meta.yaml` does not: the files of its values, and their folders."""
    for name in sorted(FOLDERS):
        yield meta.parent / name
        yield from (path for _, path in files_in(meta.parent / name))


def typed(text: str) -> Any:
    """Return the number, the truth value or the text that a parameter was; MLflow writes `str` of each.

    >>> typed("0.1"), typed("True"), typed("adam"), typed("1_000")
    (0.1, True, 'adam', '1_000')
    """
    if text in WORDS:
        return WORDS[text]
    for kind in (int, float) if "_" not in text else ():
        with contextlib.suppress(ValueError):
            return kind(text)
    return text


def _facts(tags: dict[str, str], said: dict[str, Any]) -> dict[str, Any]:
    own = {name.removeprefix(OWN): value for name, value in tags.items() if name.startswith(OWN)}
    commit = own.get("source.git.commit")
    facts = {
        "user": own.get("user") or said.get("user_id"),
        "command": own.get("source.name") or said.get("source_name"),
        "git": {"commit": commit, "branch": own.get("source.git.branch", "")} if commit else None,
        "lifecycle": "deleted" if said.get("lifecycle_stage") == "deleted" else "",
        "tags": {name: value for name, value in tags.items() if not name.startswith(OWN)},
    }
    return {name: value for name, value in facts.items() if value}


def _lines(text: str) -> Iterator[tuple[str, Any]]:
    """Yield the scalars of a mapping as MLflow writes it with PyYAML."""
    for line in text.splitlines():
        name, colon, value = line.partition(":")
        value = value.strip()
        if not colon or not name or name[0] in " #-'\"":
            continue
        if value[:1] == value[-1:] == "'" and len(value) > 1:
            value = value[1:-1].replace("''", "'")
        elif value[:1] == value[-1:] == '"' and len(value) > 1:
            with contextlib.suppress(ValueError):
                value = json.loads(value)
        elif value in ("null", "~"):
            continue
        yield name, value


def _text(path: str | os.PathLike[str]) -> str:
    with contextlib.suppress(OSError), open(path, "rb", opener=open_regular) as file:
        return file.read(MAX_BYTES).decode("utf-8", "replace").removesuffix("\n")
    return ""


def _whole(text: Any) -> int:
    try:
        return int(text)
    except (TypeError, ValueError):
        return 0


def _seconds(milliseconds: Any) -> float:
    return _whole(milliseconds) / 1000
