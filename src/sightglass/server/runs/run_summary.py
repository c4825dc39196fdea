"""A run in the list of runs, as the page gets it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from sightglass.storage.annotation_file import Annotations

from .details import Origin

State = Literal["running", "paused", "stopping", "writing", "ended", "failed", "terminated", "died", "unknown"]


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A run in the list of runs.

    Attributes:
        key: Its key in URLs and messages.
        id: Its id; empty if its files lack one.
        name: What it is called, which other runs may share: what people named it, or its own name.
        own_name: The name that its program gave it, by which a live run is found.
        title: Its name, with what distinguishes it from other runs of that name.
        state: Its state, or how it ended; "writing" if only its files show that it grows.
        live: Whether it is running.
        hub_role: The role of this server on the hub over which it reaches the run: a "viewer" cannot send commands.
            Empty for the runs of this machine.
        source: The program that wrote its files.
        project: Its folder of those that are served, or its project on the hub; else empty.
        directory: Its run directory; empty if it does not record.
        host: Its host.
        started: In seconds since the Unix epoch, or `null` if it is unknown.
        ended: Likewise. Other programs rarely say when they end: then when the last record was made.
        changed: When its files last changed, or `null`.
        version: A text that changes when its files do; empty if it has none.
        described: A number that changes when the description of the live run does.
        last_step: The last known step, or `null`.
        config: Its configuration.
        metrics: The tags that its files call its metrics.
        problem: Its faults, or empty.
        annotations: What people wrote down about it.
    """

    key: str
    id: str
    name: str
    own_name: str
    title: str
    state: State
    live: bool
    hub_role: Literal["", "viewer", "controller"]
    source: Origin
    project: str
    directory: str
    host: str
    started: float | None
    ended: float | None
    changed: float | None
    version: str
    described: int
    last_step: float | None
    config: dict[str, Any]
    metrics: list[str]
    problem: str
    annotations: Annotations
