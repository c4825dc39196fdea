"""The programs of `wandb_programs` with W&B and with ours: what they saw, and what `sightglass.open` reads of both."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import sightglass as sg

from . import wandb_programs

PROGRAMS = wandb_programs.PROGRAMS
ON_PURPOSE = {
    ("pages_and_alerts", "page"): "a page is kept, as a text; our reader of W&B's files passes pages over",
    ("texts_in_lists", "names"): "lists of texts are kept; our reader of W&B's files passes them over",
    ("texts_in_lists", "mixed"): "as `names`",
}
"""What differs: the program and the tag, and why."""


def both(folder):
    """Run all programs, with W&B offline and with ours; return what each saw."""
    told = {}
    for module in ("wandb", "sightglass.wandb"):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
        environment |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "SIGHTGLASS_FACTS": "off"}
        command = [sys.executable, wandb_programs.__file__, module, os.fspath(folder / module)]
        child = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        told[module] = json.loads(child.stdout)
    return told


def differences(folder, told, program):
    """Return what differs between the two of a program, but what differs on purpose."""
    theirs, ours = (kept(folder / module / program, program) for module in ("wandb", "sightglass.wandb"))
    found = [] if same(told["wandb"][program], told["sightglass.wandb"][program]) else ["what it saw"]
    if len(theirs) != len(ours):
        return [*found, f"{len(theirs)} and {len(ours)} runs"]
    for (their_config, their_series), (our_config, our_series) in zip(theirs, ours, strict=True):
        found += [] if same(their_config, our_config) else [f"config: {their_config} and {our_config}"]
        for tag in sorted(their_series.keys() | our_series.keys()):
            a, b = their_series.get(tag), our_series.get(tag)
            if not same(a, b):
                found.append(f"{tag}: {a!s:.300} and {b!s:.300}")
    return found


def kept(folder, program):
    """Return the runs in a folder in their order: config, and series by tag; a run that was resumed is one."""
    runs = {}
    for run in sorted(opened(folder), key=lambda run: run.describe().started):
        identity = run.directory.name.rpartition(".")[2] if (run.directory / "run.json").exists() else id_of(run)
        config, series = runs.setdefault(identity, ({}, {}))
        config.update(run.config)
        for tag in run.tags():
            if tag.startswith(("console/", "system")) or (program, tag) in ON_PURPOSE:
                continue
            records = [(float(record.step), value_of(record.value)) for record in run.series(tag)]
            series[tag] = series.get(tag, []) + records
    return [*runs.values()]


def opened(folder):
    """Return the runs in a folder."""
    if not any(path.is_file() and path.suffix in (".sgr", ".wandb") for path in Path(folder).rglob("*")):
        return []
    found = sg.open(folder)
    return [found[path] for path in found] if hasattr(found, "where") else [found]


def id_of(run):
    """Return the id of a run of W&B, from the name of its file."""
    return next(run.directory.glob("run-*.wandb")).stem.removeprefix("run-")


def value_of(value):
    """Return a value as one of JSON's, so that equal ones are equal; pictures by their pixels."""
    match value:
        case sg.Histogram():
            return {"counts": value.counts.tolist(), "edges": value.edges.tolist()}
        case sg.Image():
            pixels = np.asarray(value.value)
            return (pixels if pixels.dtype == np.uint8 else np.rint(pixels * 255)).squeeze().tolist()
        case sg.Images():
            return [value_of(sg.Image(pixels)) for pixels in value.value]
        case sg.Figure():
            from PIL import Image

            return np.asarray(Image.open(io.BytesIO(value.data))).tolist()
        case sg.Audio():
            return {"rate": value.rate, "samples": np.asarray(value.value).tolist()}
        case sg.Table():
            return {name: value_of(column) for name, column in value.value.items()}
        case sg.Text():
            return value.value
        case np.ndarray() if value.size > 32:  # W&B keeps a histogram of these
            return value_of(sg.Histogram(value, bins=32))
        case np.ndarray() | np.generic():
            return value.tolist()
        case list() | tuple():
            return [value_of(item) for item in value]
        case dict():
            return {name: value_of(item) for name, item in value.items()}
    return value


def same(one, other):
    """Return whether two values are equal; numbers of any type by their value, NaN to NaN."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float) and isinstance(other, float) and not (math.isfinite(one) and math.isfinite(other)):
        return str(one) == str(other)
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-12)
    return one == other
