"""Metrics for operations, in Prometheus' text format: how many runs there are, and how far the live ones are.

The format: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from sightglass import __version__
from sightglass.server.runs.run_summary import RunSummary

MEDIA_TYPE: Final = "text/plain; version=0.0.4"


def written(runs: Sequence[RunSummary]) -> bytes:
    """Return the metrics of some runs."""
    live = [run for run in runs if run.live]
    states = sorted(Counter(run.state for run in runs).items())
    lines = [
        *_gauge("sightglass_info", "The version of Sightglass.", [({"version": __version__}, 1)]),
        *_gauge("sightglass_runs", "Runs by state.", [({"state": state}, n) for state, n in states]),
        *_gauge("sightglass_run_started_seconds", "When a live run began, in Unix time.", _of(live, "started")),
        *_gauge("sightglass_run_changed_seconds", "When its files last changed, in Unix time.", _of(live, "changed")),
        *_gauge("sightglass_run_last_step", "The last known step of a live run.", _of(live, "last_step")),
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def _of(runs: Iterable[RunSummary], field: str) -> Iterator[tuple[dict[str, str], float]]:
    for run in runs:
        number: float | None = getattr(run, field)
        if number is not None:
            yield {"run": run.name, "id": run.id, "host": run.host}, number


def _gauge(name: str, told: str, samples: Iterable[tuple[dict[str, str], float]]) -> Iterator[str]:
    yield f"# HELP {name} {told}"
    yield f"# TYPE {name} gauge"
    for labels, number in samples:
        shown = ",".join(f'{label}="{_escaped(value)}"' for label, value in labels.items())
        yield f"{name}{{{shown}}} {number!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
