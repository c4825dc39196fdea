"""Finding runs and connecting to them."""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sightglass.core.errors import RunLostError, RunNotFoundError, SightglassError, TransportError, WireError, unknown
from sightglass.protocol import discovery
from sightglass.protocol.zmq import Address, Keys, ZmqChannel, read_connection
from sightglass.storage.run_file import runs_in

from .connection import Connection, PendingReply
from .describe import Description, description
from .run import RemoteRun

if TYPE_CHECKING:
    from sightglass.training.run import Run

CONNECT_S: Final = 5.0
RETRY_S: Final = 0.05
PROBE_S: Final = 1.0
RUNS: Final = Path("runs")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """A run that was found.

    Attributes:
        name: Its name.
        id: Its id, 12 hexadecimal digits.
        state: Of a live run "running", "paused", "stopping"; "silent" if it lives but does not answer; "out of reach".
            Of a recorded one "ended", "failed", "died" if it never came to its end, "recorded" if that is not known.
        pid: Its process; 0 if it is on another machine and does not answer.
        host: Its machine.
        started: When it began, in seconds since the Unix epoch.
        directory: Its run directory, or empty.
        description: What it told of itself, or `None` if it did not answer.
        changed: When its files were last written to, in seconds since the Unix epoch; 0 if it has none that were read.
        n_bytes: How much they hold.
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
        """Whether it was found by its lock or its connection file, and not only by what it recorded."""
        return self.changed == 0.0


def runs(
    dir: str | os.PathLike[str] | None = None,
    *,
    connections: str | os.PathLike[str] | None = None,
    timeout_s: float = PROBE_S,
) -> list[RunInfo]:
    """Return the live runs of this user on this machine, and the recorded ones in a folder, the newest first.

    Args:
        dir: The folder; then only what was recorded there, by live runs too. By default "runs", if there is one.
        connections: A folder of connection files; the runs on other machines that they lead to come too.
        timeout_s: How long the runs have to answer, all of them together.
    """
    if dir is not None:
        return _recorded(Path(dir))
    targets: list[tuple[str, str, Address, discovery.LiveRun | None]]
    targets = [(entry.name, entry.id, _address(entry), entry) for entry in discovery.entries()]
    if connections is not None:
        seen = {target[1] for target in targets}
        for name, id, address in _connection_files(Path(connections)):
            if id not in seen:
                seen.add(id)
                targets.append((name, id, address, None))
    told = _probe([(name, address) for name, _, address, _ in targets], timeout_s)
    found = [_info(name, id, entry, about) for (name, id, _, entry), about in zip(targets, told, strict=True)]
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


def connect(target: str | os.PathLike[str] | Run, *, wait_s: float = 0.0, timeout_s: float = CONNECT_S) -> RemoteRun:
    """Connect to a live run.

    Args:
        target: Its name or id, a connection file, or the run itself if it lives in this process.
        wait_s: How long to wait for a run that is only starting.
        timeout_s: How long it has to answer.

    Raises:
        RunNotFoundError: There is no such run; the message lists those there are.
        RunLostError: It does not answer.
        RefusedError: It does not want this client.
    """
    deadline_s = time.monotonic() + wait_s
    while True:
        try:
            return _connect(target, timeout_s)
        except RunNotFoundError:
            if time.monotonic() >= deadline_s:
                raise
            time.sleep(RETRY_S)


def _connect(target: str | os.PathLike[str] | Run, timeout_s: float) -> RemoteRun:
    memory = getattr(target, "memory", None)
    if memory is not None:
        run: Any = target
        link = Connection(memory.connect(), run=run.name, client=_client_name(), alive=lambda: True)
        return _welcomed(RemoteRun(link, thread=run.thread), link, timeout_s)
    if hasattr(target, "memory"):
        raise RunNotFoundError(f"Expected a live run, got {target!r}")
    if not isinstance(target, str | os.PathLike):
        raise RunNotFoundError(f"Expected a run's name or id, a connection file or a run, got {type(target).__name__}")
    text = os.fspath(target)
    if text.endswith(".json") or os.sep in text:
        return _connect_file(Path(text), timeout_s)
    entry = _find(text)
    channel = ZmqChannel(_address(entry))
    link = Connection(channel, run=entry.name, client=_client_name(), alive=lambda: discovery.alive(entry.id))
    return _welcomed(RemoteRun(link), link, timeout_s)


def _welcomed(run: RemoteRun, link: Connection, timeout_s: float) -> RemoteRun:
    try:
        link.wait_welcome(timeout_s)
    except SightglassError:
        link.close()
        raise
    run._name_for_people()
    return run


def _connect_file(path: Path, timeout_s: float) -> RemoteRun:
    try:
        name, _, address = read_connection(path)
    except OSError as error:
        raise RunNotFoundError(f"Cannot read the connection file {str(path)!r}: {error.strerror}") from None
    except WireError as error:
        raise RunNotFoundError(str(error)) from None
    link = Connection(ZmqChannel(address), run=name, client=_client_name())
    return _welcomed(RemoteRun(link), link, timeout_s)


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
    names = [entry.name for entry in entries]
    raise RunNotFoundError(unknown("run", text, names, where="among the live runs of this user"))


def _address(entry: discovery.LiveRun) -> Address:
    if not entry.server_key:
        return Address(endpoint=entry.endpoint)
    keys = Keys(public=entry.client_public, secret=entry.client_secret)
    return Address(endpoint=entry.endpoint, server=entry.server_key, client=keys)


def _client_name() -> str:
    return f"{os.path.basename(os.environ.get('_', 'python'))} {os.getpid()} on {socket.gethostname()}"


def _connection_files(folder: Path) -> list[tuple[str, str, Address]]:
    found = []
    for path in sorted(folder.rglob("*.json")):
        try:
            found.append(read_connection(path))
        except (WireError, OSError):
            continue  # other JSON files may lie there too
    return found


def _probe(targets: Sequence[tuple[str, Address]], timeout_s: float) -> list[Description | None]:
    """Ask all runs at once what they are; those that do not answer in time give `None`."""
    deadline_s = time.monotonic() + timeout_s
    links: list[Connection | None] = []
    asked: list[PendingReply | None] = []
    for name, address in targets:
        try:
            link = Connection(ZmqChannel(address), run=name, client=_client_name())
        except TransportError:
            links.append(None)
            asked.append(None)
            continue
        links.append(link)
        asked.append(link.ask("describe"))
    told: list[Description | None] = []
    for pending in asked:
        answered = pending is not None and pending.wait(max(0.0, deadline_s - time.monotonic()))
        try:
            told.append(description(pending.result()) if answered and pending is not None else None)
        except (RunLostError, SightglassError):
            told.append(None)
    leaving = [link for link in links if link is not None]
    for wait_s in (0.0, 2.0):  # first all at once: each that is silent takes a moment
        for link in leaving:
            link.close(wait_s)
    return told


def _info(name: str, id: str, entry: discovery.LiveRun | None, told: Description | None) -> RunInfo:
    if told is not None:
        return RunInfo(name=told.name, id=told.id, state=told.state, pid=told.pid, host=told.host, started=told.started,
                       directory=told.directory, description=told)  # fmt: skip
    if entry is None:
        return RunInfo(name=name, id=id, state="out of reach", pid=0, host="", started=0.0, directory="")
    return RunInfo(name=name, id=id, state="silent", pid=entry.pid, host=entry.host, started=entry.started,
                   directory=entry.directory)  # fmt: skip
