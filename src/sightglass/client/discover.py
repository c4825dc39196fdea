"""Find runs, and connect to them."""

from __future__ import annotations

import contextlib
import glob
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, get_args

from sightglass.core.description import Description, read_struct
from sightglass.core.errors import (
    RefusedError,
    RunLostError,
    RunNotFoundError,
    SightglassError,
    TransportError,
    WireError,
    unknown,
    warn_user,
)
from sightglass.core.process.current_run import check_wait
from sightglass.core.process.files import runs_folder
from sightglass.protocol import discovery
from sightglass.protocol.transport import Channel
from sightglass.storage.run_listing import runs_in

from .connection import Connection, PendingReply
from .describe import RunInfo, live_info, recorded_info
from .live_runs import ConnectionFile, LiveRuns, OwnRun, Reachable, RegisteredRun, RunRoute, RunsHere, Target, route_to
from .many.rank_group import RankGroup, ranks_of
from .run import RemoteRun
from .session import Session, client_name

if TYPE_CHECKING:
    from sightglass.training.run import Run

    from .hub_runs import RunsOnHub

# A run replies within milliseconds; this leaves it time to import or to compile in a call that holds the interpreter.
CONNECT_S: Final = 5.0
# How late `connect(…, wait_s=…)` may notice a run that starts; reading the registry takes less than a millisecond.
RETRY_S: Final = 0.05
# `sightglass runs` must feel immediate even when one of the runs hangs.
PROBE_S: Final = 1.0
DATE: Final = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]-*"  # behind the name of a run in that of its directory
NO_RUN: Final = "No run is live. Start one with sightglass.init(…), or open a recorded run with open(…)"

OnLost = Literal["resume", "raise"]
"""What to do when the connection to a run is lost."""


def runs(
    dir: str | os.PathLike[str] | None = None,
    *,
    connections: str | os.PathLike[str] | None = None,
    hub: str | os.PathLike[str] | None = None,
    timeout_s: float = PROBE_S,
    deleted: bool = False,
    follow_links: bool = False,
) -> list[RunInfo]:
    """Return the live runs of this user on this machine and the recorded runs in a folder, newest first.

    Args:
        dir: The folder. If given, only the runs recorded there are returned, live ones among them. By default that
            of the environment's `SIGHTGLASS_RUNS`, else "runs", if it exists.
        connections: A folder of connection files, for live runs on other machines.
        hub: A hub, as for `sightglass.init`. If given, only the runs that live there are returned.
        timeout_s: How long to wait for the replies of all live runs together.
        deleted: Return only the runs of the folder that are in the trash: other lists leave them out.
        follow_links: Whether to follow links to directories outside of the folder, too. A folder of links alone is
            warned of, and one so large that the search ended early.

    Raises:
        TransportError: The hub cannot be reached.
        RefusedError: The hub refused this user.
    """
    if hub is not None:
        return live_runs(hub=hub, timeout_s=timeout_s)
    if dir is not None or deleted:
        return _recorded(runs_folder() if dir is None else Path(dir), deleted=deleted, follow_links=follow_links)
    found = live_runs(connections, timeout_s=timeout_s)
    ids = {info.id for info in found}
    if (folder := runs_folder()).is_dir():
        found += [info for info in _recorded(folder, follow_links=follow_links) if info.id not in ids]
    return sorted(found, key=lambda info: -info.started)


def live_runs(
    connections: str | os.PathLike[str] | None = None,
    *,
    hub: str | os.PathLike[str] | None = None,
    timeout_s: float = PROBE_S,
) -> list[RunInfo]:
    """Return the live runs alone, newest first; arguments as for `runs`."""
    with contextlib.closing(RunsHere(connections) if hub is None else runs_on_hub(hub)) as live:
        targets = live.reachable()
    descriptions = _describe_all([(target.route.run, target.route.connect) for target in targets], timeout_s)
    found = [_info(target, description) for target, description in zip(targets, descriptions, strict=True)]
    return sorted(found, key=lambda info: -info.started) if hub is None else found  # on a hub, clocks may differ


def runs_on_hub(
    hub: str | os.PathLike[str], *, until: Callable[[discovery.LiveRun], bool] | None = None, all: bool = False
) -> RunsOnHub:
    """Return the live runs on a hub, once they have replied, or one that is looked for; errors as of `RunsOnHub`.

    With `all`, none is missed that is slow to answer: this takes seconds.
    """
    from .hub_runs import RunsOnHub  # only with a hub

    live = RunsOnHub(hub)
    try:
        if all:
            live.wait_for_all()
        else:
            live.wait(until=until)
    except BaseException:  # an interrupt
        live.close()
        raise
    return live


def _recorded(folder: Path, *, deleted: bool = False, follow_links: bool = False) -> list[RunInfo]:
    entries, note = runs_in(folder, alive=discovery.alive, follow_links=follow_links)
    if note:
        warn_user(note)
    return [recorded_info(entry) for entry in entries if bool(entry.annotations.deleted) == deleted]


def connect(
    target: str | os.PathLike[str] | Run | None = None,
    *,
    hub: str | os.PathLike[str] | None = None,
    wait_s: float = 0.0,
    timeout_s: float = CONNECT_S,
    on_lost: OnLost = "resume",
    pace_s: float = 0.0,
) -> RemoteRun:
    """Connect to a live run.

    Args:
        target: The run's name or id, a connection file, or the run itself if it lives in this process. The name of a
            rank group connects to all its ranks, see `RankGroup`. Omit it if there is exactly one live run of this user
            on this machine, or one group.
        hub: A hub, as for `sightglass.init`: the run is looked for there, by its name or id, and not on this machine.
        wait_s: How long to wait for a run that has not started yet.
        timeout_s: How long to wait for the run's reply.
        on_lost: What to do when the connection is lost, such as after a machine slept. "resume" connects again, and its
            streams go on with the next record; those that the run no longer has are counted as lost. If the process of
            a run that was found by its name died, a run that begins under this name within `reconnect.RESTART_S`
            replaces it. With "raise", streams and requests raise `RunLostError` at once.
        pace_s: How long the run may hold records back to send them together, at most 1 second, if none of its clients
            wants them at once. A program that draws 50 pictures a second saves itself and the run most of the work.

    Raises:
        RunNotFoundError: No run has this name or id, or there are several and none is named; the message lists the
            live runs.
        RunLostError: The run does not answer.
        RefusedError: The run refused this client, or the hub this user.
        TransportError: The hub cannot be reached.
        DeadlockError: The run waits for this thread, such as in one of its functions.
    """
    if on_lost not in get_args(OnLost):
        raise ValueError(f"Expected 'resume' or 'raise' as on_lost, got {on_lost!r}")
    deadline_s = time.monotonic() + wait_s
    while True:
        try:
            return _connect(target, hub, timeout_s, resume=on_lost == "resume", pace_s=pace_s)
        except RunNotFoundError:
            if time.monotonic() >= deadline_s:
                raise
            time.sleep(RETRY_S)


def _connect(
    target: str | os.PathLike[str] | Run | None,
    hub: str | os.PathLike[str] | None,
    timeout_s: float,
    *,
    resume: bool,
    pace_s: float,
) -> RemoteRun:
    run: RemoteRun
    with contextlib.ExitStack() as stack:
        on_hub = None if hub is None else _asked_on(hub, target)
        live: LiveRuns = RunsHere() if on_hub is None else on_hub
        stack.callback(live.close)
        ranks = _ranks(target, live)
        if ranks:
            for one in ranks.values():
                check_wait(one.route.id, f"Connecting to run {one.route.run!r}")
            stack.pop_all()  # the group looks for ranks that begin later
            run = RankGroup(ranks, live, timeout_s=timeout_s, options={"resume": resume, "pace_s": pace_s})
        else:
            found, route = _locate(target) if on_hub is None else _locate_on(str(hub), target, on_hub)
            session = _session(found, route, timeout_s, resume=resume, pace_s=pace_s)
            run = RemoteRun(session, thread=found.run.thread if isinstance(found, OwnRun) else None)
    run._complete_in_ipython()
    return run


def connect_to(found: Reachable, *, timeout_s: float = CONNECT_S, pace_s: float = 0.0) -> RemoteRun:
    """Connect to a run that was found; arguments and errors as of `connect`."""
    return RemoteRun(_session(found.target, found.route, timeout_s, resume=True, pace_s=pace_s))


def _session(target: Target, route: RunRoute, timeout_s: float, *, resume: bool, pace_s: float) -> Session:
    check_wait(route.id, f"Connecting to run {route.run!r}")
    made = Session(target, route, resume=resume, pace_s=pace_s)
    try:
        made.wait_welcome(timeout_s)
    except SightglassError as error:
        silent = isinstance(error, RunLostError) and not made.connection.ended
        made.close()
        if silent and route.address:
            raise RunLostError(
                f"Run {route.run!r} does not answer at {route.address}, the address in its connection file; it may "
                "have ended, be busy in one long call, or be out of reach. If its machine has another address here, as "
                "through a tunnel, change the endpoint in a copy of the file"
            ) from None
        raise
    return made


def _asked_on(hub: str | os.PathLike[str], target: object) -> RunsOnHub:
    """Return the live runs on a hub, once the target has replied."""
    if target is not None and not isinstance(target, str):
        raise RunNotFoundError(f"Expected the name or id of a run on a hub, got {type(target).__name__}")
    return runs_on_hub(
        hub, until=None if target is None else lambda entry: target == entry.group or _means(target, entry)
    )  # fmt: skip


def _ranks(target: object, live: LiveRuns) -> dict[int, Reachable]:
    """Return the ranks of the group that is asked for by its name, or without a name if it is all that lives."""
    runs = live.reachable() if target is None or isinstance(target, str) else []
    if target is not None:
        return ranks_of(str(target), runs)
    groups = {(run.entry.group, run.entry.job) for run in runs if run.entry}
    return ranks_of(groups.pop()[0], runs) if len(groups) == 1 and len(runs) > 1 else {}


def _locate(target: str | os.PathLike[str] | Run | None) -> tuple[Target, RunRoute]:
    """Return what to connect to, and the way to it."""
    if target is None:
        entry = _only(discovery.entries(), NO_RUN)
        return RegisteredRun(by_name=True), route_to(entry)
    if getattr(target, "memory", None) is not None:
        own = OwnRun(target)  # type: ignore[arg-type]  # its module is imported only where a run exists
        return own, own.find()
    if hasattr(target, "memory"):
        raise RunNotFoundError(f"Expected a live run, got {target!r}")
    if not isinstance(target, str | os.PathLike):
        raise RunNotFoundError(f"Expected a run's name or id, a connection file or a run, got {type(target).__name__}")
    text = os.fspath(target)
    is_file = text.endswith(".json") or os.sep in text
    if not is_file or any(entry.name == target for entry in discovery.entries()):  # a name such as "sweep/lr=0.1"
        entry = _find(text, discovery.entries(), "among the live runs of this user")
        return RegisteredRun(by_name=entry.name == text), route_to(entry)
    file = ConnectionFile(Path(text))
    try:
        return file, file.find()
    except IsADirectoryError:
        raise RunNotFoundError(
            f"Expected a live run or a connection file, got the folder {text!r}; sightglass.open reads a recorded run"
        ) from None
    except OSError as error:
        if text.endswith(".json"):
            raise RunNotFoundError(f"Cannot read the connection file {text!r}: {error.strerror}") from None
        message = f"Expected a live run, a connection file or a run directory, got {text!r}: {error.strerror}"
        raise RunNotFoundError(message) from None
    except WireError as error:
        raise RunNotFoundError(str(error)) from None


def _locate_on(hub: str, target: object, live: RunsOnHub) -> tuple[Target, RunRoute]:
    """Return a run on a hub, and the way to it."""
    runs = live.reachable()
    entries = [run.entry for run in runs if run.entry]
    if target is None:
        entry = _only(entries, f"No run is live on the hub {hub!r}")
    else:
        entry = _find(str(target), entries, "on this hub")
    found = runs[entries.index(entry)]
    from .hub_runs import RunOnHub

    if isinstance(found.target, RunOnHub):
        found.target.by_name &= target in (None, entry.name)
    return found.target, found.route


def _only(entries: Sequence[discovery.LiveRun], otherwise: str) -> discovery.LiveRun:
    """Return the only live run."""
    if len(entries) == 1:
        return entries[0]
    if not entries:
        raise RunNotFoundError(otherwise)
    known = ", ".join(f"{entry.name!r} ({entry.id})" for entry in entries)
    raise RunNotFoundError(f"Expected the name or id of one of {len(entries)} live runs: {known}")


def _find(text: str, entries: Sequence[discovery.LiveRun], where: str) -> discovery.LiveRun:
    meant = [entry for entry in entries if _means(text, entry)]
    named = [entry for entry in meant if entry.name == text]
    if named:
        if len(named) > 1:
            warn_user(
                f"{len(named)} live runs are named {text!r}: connected to the newest, {named[0].id}. "
                f"The others: {', '.join(entry.id for entry in named[1:])}",
                UserWarning,
            )
        return named[0]
    if meant:
        return meant[0]
    message = unknown("run", text, [entry.name for entry in entries], where=where)
    hint = "" if entries else " Start one with sightglass.init(…), or open a recorded run by its directory."
    if recorded := max(glob.glob(f"{glob.escape(str(runs_folder() / text))}-{DATE}"), default=""):
        hint = f" A run of this name is recorded in {recorded!r}."
    raise RunNotFoundError(message + hint)


def _means(text: str, entry: discovery.LiveRun) -> bool:
    """Return whether a text is a run's name or id, or the beginning of its id."""
    return text in (entry.name, entry.id) or (len(text) >= 4 and entry.id.startswith(text))


def describe(target: str | os.PathLike[str], *, timeout_s: float) -> Description | None:
    """Return the description of a live run, or `None` if it does not answer in time.

    Raises:
        RunNotFoundError: No run has this name or id.
    """
    route = _locate(target)[1]
    return _describe_all([(route.run, route.connect)], timeout_s)[0]


def _describe_all(targets: Sequence[tuple[str, Callable[[], Channel]]], timeout_s: float) -> list[Description | None]:
    """Ask all runs at once for their descriptions; those that do not answer in time give `None`."""
    deadline_s = time.monotonic() + timeout_s
    connections: list[Connection] = []
    replies: list[PendingReply | None] = []
    for name, open_channel in targets:
        try:
            connection = Connection(open_channel(), run=name, client=client_name())
        except (TransportError, RefusedError):
            replies.append(None)
            continue
        connections.append(connection)
        replies.append(connection.start_query("describe"))
    descriptions: list[Description | None] = []
    for reply in replies:
        description = None
        if reply is not None and reply.wait(max(0.0, deadline_s - time.monotonic())):
            with contextlib.suppress(SightglassError):
                description = read_struct(Description, reply.result())
        descriptions.append(description)
    for wait_s in (0.0, 2.0):  # first tell all threads to end: each needs a moment
        for connection in connections:
            connection.close(wait_s)
    return descriptions


def _info(found: Reachable, description: Description | None) -> RunInfo:
    route, entry = found.route, found.entry
    if description is not None:
        return live_info(description)
    if entry is None:
        return RunInfo(name=route.run, id=route.id, state="out of reach", pid=0, host="", started=0.0, directory="")
    return RunInfo(name=entry.name, id=entry.id, state="silent", pid=entry.pid, host=entry.host, started=entry.started,
                   directory=entry.directory)  # fmt: skip
