"""What all tests share: a runtime directory, an environment, Hypothesis profiles, and the choice of `make quick`."""

from __future__ import annotations

import asyncio
import hashlib
import os
import platform
import shutil
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests import gate, profiles

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from tests.hub_server import Hub

__all__ = ["profiles"]


def compiled_folder() -> Path:
    """Return the folder for what JAX compiles, which runs on processors with the same instructions only."""
    described = Path("/proc/cpuinfo")
    lines = described.read_text().splitlines() if described.exists() else [platform.machine()]
    kind = "".join(sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))}) or lines)
    return Path(__file__).parents[1] / "build" / "jax" / hashlib.sha256(kind.encode()).hexdigest()[:12]


# Without it, some releases of jaxlib compute wrong numbers on CPU.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_experimental_ynn_fusion_type=")
os.environ.setdefault("SIGHTGLASS_RENDERER_PRIORITY", "low")  # tests keep all cores busy, and wait for figures
os.environ.setdefault("SIGHTGLASS_FACTS", "off")  # else each run starts git
os.environ.setdefault("KERAS_BACKEND", "torch")  # what is installed; Keras looks for another one by default
# What JAX compiles is kept for all workers and processes of a test run, and for later runs, until `make clean`.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(compiled_folder()))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.05")

# A test run that a shell starts in the background ignores Ctrl-C, and so would the programs that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

BROWSER = ("page", "notebook")
WORKER_BYTES = 5 * 2**30  # of a worker in the end, with the processes that it starts


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", metavar="FOLDERS", help="quick tests of these folders, smoke tests of all others")
    parser.addoption("--report", metavar="FILE", help="write what each test did to a file")


def pytest_xdist_auto_num_workers() -> int:
    """Return how many workers `-n auto` starts: half as many again as processors, since tests wait for a third of their
    time, as far as there is memory for what they import."""
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    n_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 0
    return max(1, min(n_cores + n_cores // 2, n_bytes // WORKER_BYTES or n_cores))


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--report")
    if path and not hasattr(config, "workerinput"):  # workers tell the process that directs them
        config.pluginmanager.register(gate.Reporter(path))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport]:
    report = yield
    gate.note_patience(item, call, report)
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if _folder(item) in BROWSER:
            item.add_marker("browser")
    quick = config.getoption("--quick")
    if quick is not None:
        chosen = [item for item in items if _is_quick(item, quick.split(","))]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
        items[:] = chosen


def _is_quick(item: pytest.Item, folders: list[str]) -> bool:
    slow = any(item.get_closest_marker(name) for name in ("slow", "browser"))
    return not slow and (_folder(item) in folders or item.get_closest_marker("smoke") is not None)


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(Path(__file__).parent).parts[0]


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Give each test a registry of its own, at a path short enough for sockets, and a folder to write into."""
    path = Path(tempfile.mkdtemp(prefix="sg", dir="/tmp" if os.name == "posix" else None))
    monkeypatch.setenv("SIGHTGLASS_RUNTIME_DIR", str(path))
    monkeypatch.setenv("XDG_STATE_HOME", str(path / "state"))
    for name in ("SIGHTGLASS_HUB", "SIGHTGLASS_MODE", "SIGHTGLASS_RUNS", "SIGHTGLASS_ALERT_URL", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """Run a hub with two projects and their users."""
    from tests.hub_server import Hub  # needs what most tests do not

    hub = Hub(tmp_path)
    yield hub
    hub.server.close()


@pytest.fixture(scope="session", autouse=True)
def poisoned() -> None:
    """Let what storage lends turn into nonsense when its time is over."""
    from sightglass.storage.read import segment_reader

    segment_reader.POISON = 0xA5


@pytest.fixture(scope="session")
def chromium() -> Iterator[tuple[Browser, asyncio.AbstractEventLoop]]:
    """Start one browser for all tests of a worker."""
    from tests.browser import started  # needs what most tests do not

    with started() as chromium:
        yield chromium


@pytest.fixture
def browser(chromium: tuple[Browser, asyncio.AbstractEventLoop]) -> Iterator[Browser]:
    """Return the browser; between tests its event loop is not the running one, so that other tests can run theirs."""
    browser, loop = chromium
    asyncio._set_running_loop(loop)
    yield browser
    asyncio._set_running_loop(None)


@pytest.fixture
def not_awaited() -> Callable[[], AbstractContextManager[None]]:
    """Return a context in which a command is not awaited once the run has said what it waits for."""

    from sightglass.client.connection import PendingReply

    @contextmanager
    def not_awaited() -> Iterator[None]:
        told = PendingReply.told
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PendingReply, "told", lambda self, note, *, stuck: told(self, note, stuck=True))
            yield

    return not_awaited
