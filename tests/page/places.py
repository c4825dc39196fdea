"""A place of its own for tests: a folder of runs, trainings and servers in processes, and no other live runs."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tests.waiting import wait_until

from ..whole.conftest import Child  # noqa: TID252  tests are no package

TRAINING = Path(__file__).with_name("training.py")


def remove(folder: Path) -> None:
    """Delete a folder of runs, into which a server may write what its series come to at the same moment."""
    wait_until(lambda: shutil.rmtree(folder, ignore_errors=True) or not folder.exists())


class Server(Child):
    """`sightglass ui` in a process.

    Attributes:
        controller: The link of whoever may act.
        viewer: The link of whoever may only look.
        base: The address without a token.
        port: At which port it listens.
    """

    def __init__(self, directories: list[Path], environment: dict[str, str], *options: str) -> None:
        for folder in directories:
            folder.mkdir(parents=True, exist_ok=True)  # or it would remark that there is none
        command = [sys.executable, "-m", "sightglass", "ui", *map(str, directories), "--no-browser", *options]
        super().__init__(command, environment)

    def listens(self) -> Server:
        """Wait until it has printed its links."""
        [self.controller] = self.hears("controller:")
        [self.viewer] = self.hears("viewer:")
        self.base = self.controller.partition("/#")[0]
        self.port = int(self.base.rpartition(":")[2])
        return self


class Place:
    """Where things happen; all that was started there is killed when it is closed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runs = folder / "runs"
        self.runtime = tempfile.mkdtemp(prefix="sg", dir="/tmp" if os.name == "posix" else None)
        self.children: list[Child] = []

    @property
    def environment(self) -> dict[str, str]:
        """What its processes run with."""
        return {
            "SIGHTGLASS_RUNTIME_DIR": self.runtime,
            "XDG_STATE_HOME": f"{self.runtime}/state",
            "SIGHTGLASS_MODE": "live",
        }

    def serve(self, *options: str, port: int = 0) -> Server:
        """Start a server over all runs."""
        server = Server([self.runs], self.environment, "--port", str(port), *options)
        self.children.append(server)
        return server.listens()

    def train(self, name: str = "training", *, pace_s: float = 0.01) -> Child:
        """Start a training, and wait until it offers things."""
        command = [sys.executable, str(TRAINING), name, str(self.runs), str(pace_s)]
        training = Child(command, self.environment)
        self.children.append(training)
        training.hears("ready")
        return training

    @contextmanager
    def recording(self) -> Iterator[Path]:
        """Let this process begin runs here; yields the folder for them."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in self.environment.items():
                patch.setenv(name, value)
            for name in ("RANK", "WORLD_SIZE"):
                patch.delenv(name, raising=False)
            yield self.runs

    def close(self) -> None:
        """Kill the processes; what they complained of is an error."""
        complaints = []
        for child in self.children:
            try:
                child.finish()
            except AssertionError as error:
                complaints.append(str(error))
        shutil.rmtree(self.runtime, ignore_errors=True)
        assert not complaints, "\n".join(complaints)


class Shelf(Place):
    """Recorded runs under one server, which tests only look at: each file of tests has a project of its own there."""

    _server: Server | None = None

    @property
    def server(self) -> Server:
        """The server, which starts when it is first asked for."""
        if self._server is None:
            self._server = self.serve()
        return self._server

    @contextmanager
    def project(self, name: str) -> Iterator[Path]:
        """Let this process record runs of a project; yields the folder for them. The server knows them afterwards."""
        with self.recording() as folder:
            yield folder / name
        n_runs = len(list((folder / name).iterdir()))
        wait_until(lambda: self._n_listed(name) == n_runs, f"{n_runs} runs of {name} are listed")

    def _n_listed(self, project: str) -> int:
        token = self.server.viewer.partition("token=")[2]
        answer = httpx.get(f"{self.server.base}/api/v1/runs", headers={"Authorization": f"Bearer {token}"})
        return sum(run["project"] == project for run in answer.json()["runs"])
