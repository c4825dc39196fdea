"""The runs that an agent may ask: those recorded in some folders, and those that live on this machine or on a hub."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sightglass.client.describe import RunInfo, recorded_info
from sightglass.client.discover import connect, live_runs
from sightglass.client.many.folder import found
from sightglass.client.recorded.run import RecordedRun, opened
from sightglass.client.run import RemoteRun
from sightglass.core.errors import RunNotFoundError, SightglassError, unknown
from sightglass.storage.run_listing import RunEntry


class AgentRuns:
    """Runs by keys that stay the same: the path in its folder, or the name of a run without files here."""

    def __init__(self, folders: Sequence[Path], *, hub: str | None = None) -> None:
        """Name the places to look.

        Args:
            folders: Folders of runs; one that does not exist so far is looked for again.
            hub: A hub, for the runs that live there.
        """
        self._folders = folders
        self._hub = hub

    def entries(self) -> dict[str, RunEntry]:
        """Return the runs that have files here and are not in the trash, newest first."""
        entries: dict[str, RunEntry] = {}
        for folder in self._folders:
            for entry in found(folder) if folder.is_dir() else ():
                path = entry.path.relative_to(folder).as_posix()
                key = path if len(self._folders) == 1 else f"{folder.name}/{path}"
                entries[str(entry.path) if key in entries else key] = entry
        return entries

    def infos(self, entries: Mapping[str, RunEntry] | None = None) -> dict[str, RunInfo]:
        """Return all runs, newest first; of one that lives here and has files, what the live run says.

        Args:
            entries: Those that have files, if they were listed before.
        """
        live = {info.id: info for info in live_runs(hub=self._hub)}
        listed = self.entries() if entries is None else entries
        infos = {key: live.pop(entry.id) if entry.id in live else recorded_info(entry) for key, entry in listed.items()}
        for info in live.values():
            infos[info.name if info.name not in infos else f"{info.name}:{info.id}"] = info
        return dict(sorted(infos.items(), key=lambda item: -item[1].started))

    def find(self, run: str, infos: Mapping[str, RunInfo] | None = None) -> tuple[str, RunInfo]:
        """Return the run that is named by its key, its name, or the beginning of its id; `infos` if they are known.

        Raises:
            RunNotFoundError: There is none, or several; the message names some.
        """
        infos = self.infos() if infos is None else infos
        if run in infos:
            return run, infos[run]
        named = [key for key, info in infos.items() if info.name == run or (len(run) >= 4 and info.id.startswith(run))]
        if len(named) != 1:
            several = f"{len(named)} runs are called {run!r}: {', '.join(named[:10])}"
            raise RunNotFoundError(several if named else unknown("run", run, {info.name for info in infos.values()}))
        return named[0], infos[named[0]]

    @contextlib.contextmanager
    def opened(self, run: str, infos: Mapping[str, RunInfo] | None = None) -> Iterator[RemoteRun | RecordedRun]:
        """Connect to a run that lives, or open the files of one that is over; errors as of `find`."""
        _, info = self.find(run, infos)
        with self._live(info) if info.live else opened(Path(info.directory), rank=None, follow=True) as opened_run:
            yield opened_run

    @contextlib.contextmanager
    def live(self, run: str) -> Iterator[RemoteRun]:
        """Connect to a live run.

        Raises:
            RunNotFoundError: As of `find`; or the run is over.
        """
        key, info = self.find(run)
        if not info.live:
            raise RunNotFoundError(f"{key!r} is over: only live runs take commands")
        with self._live(info) as opened_run:
            yield opened_run

    @contextlib.contextmanager
    def recorded(self, run: str) -> Iterator[RecordedRun]:
        """Open the files of a run.

        Raises:
            RunNotFoundError: As of `find`; or it has no files on this machine.
        """
        key, info = self.find(run)
        if not info.directory or not Path(info.directory).exists():
            raise RunNotFoundError(f"{key!r} has no files here: ask it instead")
        with opened(Path(info.directory), rank=None, follow=False) as opened_run:
            yield opened_run

    def _live(self, info: RunInfo) -> RemoteRun:
        found = connect(info.id or info.name, hub=self._hub)
        if isinstance(found, RemoteRun):
            return found
        raise SightglassError(f"{info.name!r} is a group of ranks: name one of them")
