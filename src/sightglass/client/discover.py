"""Find runs, and connect to them."""

from __future__ import annotations

import contextlib
import os
import socket
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, get_args

from sightglass.core.current_run import check_wait
from sightglass.core.errors import RunNotFoundError, SightglassError, TransportError, WireError, unknown
from sightglass.protocol import discovery
from sightglass.protocol.zmq import Address, ZmqChannel, read_connection
from sightglass.storage.run_file import runs_in

from .connection import Connection
from .describe import Description, description_of
from .pending_reply import PendingReply
from .run import RemoteRun
from .session import Session
from .target import ConnectionFile, OwnRun, RegisteredRun, RunRoute, Target, address_of, route_to

if TYPE_CHECKING:
    from sightglass.training.run import Run

# A run replies within milliseconds; this leaves it time to import or to compile in a call that holds the interpreter.
CONNECT_S: Final = 5.0
# How late `connect(…, wait_s=…)` may notice a run that starts; reading the registry takes less than a millisecond.
RETRY_S: Final = 0.05
# `sightglass runs` must feel immediate even when one of the runs hangs.
PROBE_S: Final = 1.0
RUNS: Final = Path("runs")

OnLost = Literal["resume", "raise"]
"""What to do when the connection to a run is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """A run that `runs` found.

    Attributes:
        name: The run's name.
        id: The run's id, 12 hexadecimal digits.
        state: Of a live run "running", "paused" or "stopping"; "silent" if it is alive but does not answer; "out of
            reach" if it is on another machine and does not answer. Of a recorded run "ended", "failed", "terminated"
            if it was sent SIGTERM, "died" if it did not close, "recorded" if its files do not say.
        pid: The number of its process; 0 if that is unknown.
        host: The name of its machine.
        started: When it began, in seconds since the Unix epoch.
        directory: Its run directory, or empty.
        description: The run's description, or `None` if it did not answer.
        changed: When its files were last written to, in seconds since the Unix epoch; 0 for a live run.
        n_bytes: The size of its files.
    """

    name: str
    id: str
    state: str
    pid: int
    host: str
    started: float
    directory: str
    description: Description | None = None
    changed: float = 0.0
    n_bytes: int = 0

    @property
    def live(self) -> bool:
        """Whether the run is live, and not only recorded."""
        return self.changed == 0.0


def runs(
    dir: str | os.PathLike[str] | None = None,
    *,
    connections: str | os.PathLike[str] | None = None,
    timeout_s: float = PROBE_S,
) -> list[RunInfo]:
    """Return the live runs of this user on this machine and the recorded runs in a folder, newest first.

    Args:
        dir: The folder. If given, only the runs recorded there are returned, live ones among them. By default "runs",
            if it exists.
        connections: A folder of connection files, for live runs on other machines.
        timeout_s: How long to wait for the replies of all live runs together.
    """
    if dir is not None:
        return _recorded(Path(dir))
    targets: list[tuple[str, str, Address, discovery.LiveRun | None]]
    targets = [(entry.name, entry.id, address_of(entry), entry) for entry in discovery.entries()]
    if connections is not None:
        seen = {target[1] for target in targets}
        for name, id, address in _connection_files(Path(connections)):
            if id not in seen:
                seen.add(id)
                targets.append((name, id, address, None))
    descriptions = _describe_all([(name, address) for name, _, address, _ in targets], timeout_s)
    found = [
        _info(name, id, entry, description)
        for (name, id, _, entry), description in zip(targets, descriptions, strict=True)
    ]
    ids = {info.id for info in found}
    if RUNS.is_dir():
        found += [info for info in _recorded(RUNS) if info.id not in ids]
    return sorted(found, key=lambda info: -info.started)


def _recorded(folder: Path) -> list[RunInfo]:
    return [
        RunInfo(
            name=entry.name, id=entry.id, state=entry.state, pid=0, host="", started=entry.started,
            directory=str(entry.path), changed=entry.changed, n_bytes=entry.n_bytes,
        )
        for entry in runs_in(folder, alive=discovery.alive)
    ]  # fmt: skip


def connect(
    target: str | os.PathLike[str] | Run,
    *,
    wait_s: float = 0.0,
    timeout_s: float = CONNECT_S,
    on_lost: OnLost = "resume",
    pace_s: float = 0.0,
) -> RemoteRun:
    """Connect to a live run.

    Args:
        target: The run's name or id, a connection file, or the run itself if it lives in this process.
        wait_s: How long to wait for a run that has not started yet.
        timeout_s: How long to wait for the run's reply.
        on_lost: What to do when the connection is lost, such as after a machine slept. "resume" connects again, and its
            streams go on with the next record; those that the run no longer has are counted as lost. If the process of
            a run that was found by its name died, a run that begins under this name within `reconnect.RESTART_S`
            replaces it. With "raise", streams and requests raise `RunLostError` at once.
        pace_s: How long the run may hold records back to send them together, at most 1 second, if none of its clients
            wants them at once. A program that draws 50 pictures a second saves itself and the run most of the work.

    Raises:
        RunNotFoundError: No run has this name or id; the message lists the live runs.
        RunLostError: The run does not answer.
        RefusedError: The run refused this client.
        DeadlockError: The run waits for this thread, such as in one of its functions.
    """
    if on_lost not in get_args(OnLost):
        raise ValueError(f"Expected 'resume' or 'raise' as on_lost, got {on_lost!r}")
    deadline_s = time.monotonic() + wait_s
    while True:
        try:
            return _connect(target, timeout_s, resume=on_lost == "resume", pace_s=pace_s)
        except RunNotFoundError:
            if time.monotonic() >= deadline_s:
                raise
            time.sleep(RETRY_S)


def _connect(target: str | os.PathLike[str] | Run, timeout_s: float, *, resume: bool, pace_s: float) -> RemoteRun:
    found, route = _locate(target)
    check_wait(route.id, f"Connecting to run {route.run!r}")
    session = Session(found, route, client=_client_name(), resume=resume, pace_s=pace_s)
    try:
        session.wait_welcome(timeout_s)
    except SightglassError:
        session.close()
        raise
    run = RemoteRun(session, thread=target.thread if isinstance(found, OwnRun) else None)  # type: ignore[union-attr]
    run._complete_in_ipython()
    return run


def _locate(target: str | os.PathLike[str] | Run) -> tuple[Target, RunRoute]:
    """Return what to connect to, and the way to it."""
    if getattr(target, "memory", None) is not None:
        own = OwnRun(target)  # type: ignore[arg-type]  # its module is imported only where a run exists
        return own, own.find()
    if hasattr(target, "memory"):
        raise RunNotFoundError(f"Expected a live run, got {target!r}")
    if not isinstance(target, str | os.PathLike):
        raise RunNotFoundError(f"Expected a run's name or id, a connection file or a run, got {type(target).__name__}")
    text = os.fspath(target)
    if not (text.endswith(".json") or os.sep in text):
        entry = _find(text)
        return RegisteredRun(by_name=entry.name == text), route_to(entry)
    file = ConnectionFile(Path(text))
    try:
        return file, file.find()
    except OSError as error:
        raise RunNotFoundError(f"Cannot read the connection file {text!r}: {error.strerror}") from None
    except WireError as error:
        raise RunNotFoundError(str(error)) from None


def _find(text: str) -> discovery.LiveRun:
    entries = discovery.entries()
    by_id = [entry for entry in entries if entry.id == text or (len(text) >= 4 and entry.id.startswith(text))]
    named = [entry for entry in entries if entry.name == text]
    if named:
        if len(named) > 1:
            warnings.warn(
                f"{len(named)} live runs are named {text!r}: connected to the newest, {named[0].id}. "
                f"The others: {', '.join(entry.id for entry in named[1:])}",
                stacklevel=4,
            )
        return named[0]
    if by_id:
        return by_id[0]
    message = unknown("run", text, [entry.name for entry in entries], where="among the live runs of this user")
    hint = "" if entries else " Start one with sightglass.init(…), or open a recorded run by its directory."
    raise RunNotFoundError(message + hint)


def _client_name() -> str:
    return f"{os.path.basename(os.environ.get('_', 'python'))} {os.getpid()} on {socket.gethostname()}"


def _connection_files(folder: Path) -> list[tuple[str, str, Address]]:
    found = []
    for path in sorted(folder.rglob("*.json")):
        try:
            found.append(read_connection(path))
        except (WireError, OSError):
            continue  # other JSON files may be there too
    return found


def _describe_all(targets: Sequence[tuple[str, Address]], timeout_s: float) -> list[Description | None]:
    """Ask all runs at once for their descriptions; those that do not answer in time give `None`."""
    deadline_s = time.monotonic() + timeout_s
    connections: list[Connection] = []
    replies: list[PendingReply | None] = []
    for name, address in targets:
        try:
            connection = Connection(ZmqChannel(address), run=name, client=_client_name())
        except TransportError:
            replies.append(None)
            continue
        connections.append(connection)
        replies.append(connection.start_query("describe"))
    descriptions: list[Description | None] = []
    for reply in replies:
        description = None
        if reply is not None and reply.wait(max(0.0, deadline_s - time.monotonic())):
            with contextlib.suppress(SightglassError):
                description = description_of(reply.result())
        descriptions.append(description)
    for wait_s in (0.0, 2.0):  # first tell all threads to end: each needs a moment
        for connection in connections:
            connection.close(wait_s)
    return descriptions


def _info(name: str, id: str, entry: discovery.LiveRun | None, info: Description | None) -> RunInfo:
    if info is not None:
        return RunInfo(name=info.name, id=info.id, state=info.state, pid=info.pid, host=info.host, started=info.started,
                       directory=info.directory, description=info)  # fmt: skip
    if entry is None:
        return RunInfo(name=name, id=id, state="out of reach", pid=0, host="", started=0.0, directory="")
    return RunInfo(name=name, id=id, state="silent", pid=entry.pid, host=entry.host, started=entry.started,
                   directory=entry.directory)  # fmt: skip
