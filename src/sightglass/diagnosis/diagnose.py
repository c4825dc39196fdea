"""What looks wrong in a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from sightglass.client.discover import connect
from sightglass.client.recorded.run import RecordedRun
from sightglass.client.run import RemoteRun
from sightglass.core.description import Description
from sightglass.core.errors import SightglassError
from sightglass.core.process.stacks import Stacks
from sightglass.core.redact import visible
from sightglass.storage.read.recording import Recording
from sightglass.training.run import Run

from .evidence import Evidence, evidence_of
from .findings import Finding, judge, not_judged


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """What looks wrong in a run; `print` shows it.

    Attributes:
        run: The run's name.
        sentence: How it is, see `Description.sentence`.
        findings: What looks wrong, errors first; empty if nothing does.
        n_series: How many series of numbers were looked through.
        not_judged: The checks that had nothing to look at, such as "exploding" without norms of gradients.
        unread: What could not be read, and why.
    """

    run: str
    sentence: str
    findings: Sequence[Finding] = ()
    n_series: int = 0
    not_judged: Sequence[str] = ()
    unread: Sequence[str] = ()

    def __str__(self) -> str:
        lines = [f"run {self.run}: {self.sentence}"]
        for one in self.findings:
            lines.append(f"  {one.level}  {one.kind}: {one.text}")
            lines.extend([f"    ask: {one.query}"] if one.query else [])
            lines.extend([f"    also: {', '.join(one.also)}"] if one.also else [])
            lines.extend(f"    {line}" for line in one.detail.splitlines())
        found = "" if self.findings else "nothing looks wrong, "
        lines.append(f"  {found}{self.n_series:,} series of numbers were looked through")
        lines.extend([f"  nothing to look at for: {', '.join(self.not_judged)}"] if self.not_judged else [])
        lines.extend(f"  not read: {what}" for what in self.unread)
        return visible("\n".join(lines))


def diagnose(run: RemoteRun | RecordedRun | Run) -> Diagnosis:
    """Say what looks wrong in a run: why it ended, NaN, a loss that diverges, a full disk, and what else is known.

    What a live run recorded is read from its files, where this machine has them; the findings are those that its
    recording has later.

    Args:
        run: A run that `connect` or `open` returned, or one of this program.

    Raises:
        RunLostError: A live run does not answer, or has ended.
        TypeError: `run` is something else.
    """
    match run:
        case RecordedRun():
            return diagnosis_of(evidence_of(run.describe(), run.history, recording=run._recording))
        case RemoteRun():
            return _of_live(run)
        case Run():
            with connect(run) as remote:
                return _of_live(remote)
    raise TypeError(f"Expected a run that sg.connect or sg.open returned, got {run!r:.100}")


def diagnosis_of(evidence: Evidence) -> Diagnosis:
    """Judge what was read of a run."""
    about = evidence.description
    return Diagnosis(
        run=about.name, sentence=about.sentence, findings=judge(evidence), n_series=evidence.n_series,
        not_judged=not_judged(evidence), unread=evidence.unread,
    )  # fmt: skip


def _of_live(run: RemoteRun) -> Diagnosis:
    description, history = run.describe(), run.history
    stacks = _stacks(run) if description.state == "quiet" else None
    recording = _recording_of(description)
    try:
        return diagnosis_of(evidence_of(description, history, recording=recording, stacks=stacks))
    finally:
        if recording is not None:
            recording.close()


def _stacks(run: RemoteRun) -> Stacks | None:
    try:
        return run.stacks()
    except SightglassError:  # a viewer may not, or C code holds the interpreter's lock
        return None


def _recording_of(about: Description) -> Recording | None:
    """Open the files of a live run; `None` if it has none, or they are not on this machine."""
    try:
        return Recording(Path(about.directory)) if about.directory and Path(about.directory).exists() else None
    except (SightglassError, OSError):
        return None
