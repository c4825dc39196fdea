"""The command `sightglass demo`: a training in a child process, and this process as one of its clients.

It charts the loss, the mean absolute gradient of each layer and the accuracy per epoch, and lists commands to try in
another terminal. The page shows the same run in a browser: it opens on two queries that are answered, and once turns
the learning rate up, so that there is an effect to see. In a terminal, all of it lasts until Ctrl-C.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

import sightglass as sg
from sightglass.core.errors import RunLostError, RunNotFoundError
from sightglass.storage.object_file import save_view

if TYPE_CHECKING:
    from sightglass.client.run import RemoteRun
    from sightglass.client.streams.stream import Stream
    from sightglass.core.columns import Record
    from sightglass.views.surfaces.terminal import TerminalView


REFRESHES_PER_SECOND: Final = 8  # a terminal chart looks continuous, and the training keeps its core
MAX_CHART_ROWS: Final = 19  # a taller chart would only stretch the same lines

QUERIES: Final = {
    "loss": sg.on("batch").map(lambda b: b.loss),
    "loss, mean of 20": sg.on("batch").map(lambda b: b.loss).mean(every=20),
    "mean |gradient| per layer": sg.on("batch")
    .map(lambda b: b.grads.map(lambda layer, grads: abs(grads.kernel).mean()))
    .mean(every=20),
    "accuracy per epoch": sg.on("epoch").map(lambda e: e.accuracy),
}


ASKED: Final = ("batch.loss", "batch.grads.map(lambda layer, grads: abs(grads.kernel).mean()).mean(every=20)")
VIEW: Final = "demo"
TURN_EPOCH, TURN_BY = 2, 4.0  # when the learning rate is turned up, and by how much


def show(arguments: Sequence[str], *, browser: bool = True, serve: bool = False) -> int:
    """Run the demo.

    Args:
        arguments: The arguments of the training.
        browser: Whether to open the page in a browser, if there is a terminal and a display.
        serve: Whether to train and serve until Ctrl-C, as in a terminal where the arguments do not limit the epochs.

    Returns:
        The exit code.
    """
    is_finite = any(argument.startswith("--epochs") for argument in arguments)
    serve = serve or (sys.stdout.isatty() and not is_finite)
    arguments = [*arguments, *(["--forever"] if serve and not is_finite else [])]
    taken = {info.name for info in sg.runs()}
    name = next(name for name in ("demo", f"demo-{time.strftime('%H%M%S')}") if name not in taken)
    training = [sys.executable, "-m", "sightglass.demo.train", "--name", name, "--quiet", "--until-eof", *arguments]
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # else the children would outlive it
    with subprocess.Popen(training, stdin=subprocess.PIPE) as child:
        try:
            run = _connect(name, child)
            return _ended_early(child) if run is None else _show(run, child, browser=browser, serve=serve)
        except RunLostError as error:
            return _ended_early(child, error)
        except KeyboardInterrupt:
            return 130
        finally:
            child.terminate()  # it may go on for ever
            signal.signal(signal.SIGTERM, before)


def _show(run: RemoteRun, child: subprocess.Popen[bytes], *, browser: bool, serve: bool) -> int:
    """Watch the training, and serve the page; return the exit code."""
    with run:
        directory = Path(run.describe().directory)
        directory.parent.mkdir(parents=True, exist_ok=True)  # the run makes it with its first record
        save_view([directory.parent], VIEW, _address(run.id))
        streams = {title: run.stream(query) for title, query in QUERIES.items()}
        with page(directory.parent, browser=browser and _has_display(), view=VIEW) as (server, link):
            here: AbstractContextManager[list[int]] = _interrupted(child, server) if serve else nullcontext([])
            with here as interrupts:
                try:
                    _watch(run, streams, link, turn=serve)
                except RunLostError:  # it had no time to say that it ends
                    if not interrupts:
                        raise
                code = child.wait()
                _print_recording(directory)
                if server is not None and serve and not interrupts:
                    print(f"\nThe page is still at {link}\nCtrl-C ends it.", flush=True)
                    server.wait()
            return 0 if interrupts else code


@contextmanager
def _interrupted(*processes: subprocess.Popen[Any] | None) -> Iterator[list[int]]:
    """Let Ctrl-C or SIGTERM end processes, which ends what waits for them: so the program goes on from there, in order.

    Yields:
        The signals that came.
    """
    received: list[int] = []

    def end(number: int, frame: object) -> None:
        received.append(number)
        for process in processes:
            if process is not None:
                process.terminate()

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _address(run: str) -> str:
    """Return the address of the page on which the queries are answered."""
    return f"#/charts?{urlencode([('asked', run), *(('ask', f'{run}||{query}') for query in ASKED)])}"


def _ended_early(child: subprocess.Popen[bytes], error: RunLostError | None = None) -> int:
    """Say why the charts end, or did not begin; return the exit code of the training."""
    if error is not None:
        child.terminate()
    if (code := child.wait()) == 0:
        print("The training ended before it could be watched: give it more --epochs, or a --delay-ms", file=sys.stderr)
    elif error is not None:
        print(f"The training ended early: {error}", file=sys.stderr)
    return code


def _has_display() -> bool:
    """Return whether a person would see a browser: this is a terminal, and windows have a display."""
    display = bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys()) or sys.platform in ("darwin", "win32")
    return sys.stdout.isatty() and display


def _print_recording(directory: Path) -> None:
    if directory.exists():
        print(f"\nThe run is recorded in {directory}. To look at it again:")
        for command, rest in {"open": "", "watch": " val/accuracy val/loss", "export": " --to csv", "ui": ""}.items():
            path = directory.parent if command == "ui" else directory
            print(f"  sightglass {command} {shlex.quote(str(path))}{rest}")


def _connect(name: str, child: subprocess.Popen[bytes]) -> RemoteRun | None:
    """Connect to the training when it has started; return `None` if it ended before."""
    while child.poll() is None:
        with suppress(RunNotFoundError):
            return sg.connect(name, wait_s=0.5)
    return None


def _watch(run: RemoteRun, streams: dict[str, Stream], link: str | None, *, turn: bool) -> None:
    """Show the streams until the run ends; turn the learning rate up once, if that is wanted."""
    if link:
        print(f"In the browser: {link}\n", flush=True)
    epochs = _turning(run, streams["accuracy per epoch"]) if turn else iter(streams["accuracy per epoch"])
    if sys.stdout.isatty():
        _draw(run, streams, epochs)
    else:
        for record in epochs:
            loss = streams["loss, mean of 20"].latest
            suffix = f", loss {loss.value:.4f}" if loss else ""
            print(f"epoch {record.index}: accuracy {record.value:.3f}{suffix}", flush=True)
        for view in _views(streams):
            print(f"\n{view}")


def _turning(run: RemoteRun, epochs: Iterable[Record]) -> Iterator[Record]:
    """Yield the epochs, and turn the learning rate up after some: the charts mark it, and show what it does."""
    for record in epochs:
        yield record
        if record.index == TURN_EPOCH:
            lr = run.describe().controls["lr"]
            run.set("lr", min(TURN_BY * lr.value, lr.max or 1.0))


def _views(streams: dict[str, Stream]) -> list[TerminalView]:
    from sightglass.views.surfaces.terminal import TerminalView

    loss, smooth, gradients, accuracy = streams.values()
    return [
        TerminalView([loss, smooth], title="loss"),
        TerminalView([gradients], title="mean |gradient| per layer", view="line", log_y=True),
        TerminalView([accuracy], title="accuracy per epoch"),
    ]


def _draw(run: RemoteRun, streams: dict[str, Stream], epochs: Iterator[Record]) -> None:
    """Draw the charts until the training ends; Ctrl-C ends it."""
    console = Console()
    views = _views(streams)

    def drawing() -> RenderableType:
        for view in views:
            view.pull()
        wide = console.width >= 100
        rows = max(6, (console.height - 4) // 2 if wide else (console.height - 12) // 3)
        loss, gradients, accuracy = (view.draw(height=min(rows, MAX_CHART_ROWS)) for view in views)
        grid = Table.grid(expand=True, padding=(0, 2))
        if wide:
            grid.add_column(ratio=5)
            grid.add_column(ratio=4)
            grid.add_row(loss, gradients)
            grid.add_row(accuracy, _hints(run))
            return grid
        return Group(loss, gradients, accuracy, _hints(run))

    with Live(get_renderable=drawing, console=console, refresh_per_second=REFRESHES_PER_SECOND, screen=False):
        for _ in epochs:
            pass


def _hints(run: RemoteRun) -> Text:
    """Return commands to try next."""
    name = shlex.quote(run.name)
    commands = {
        "list": "sightglass runs",
        "inspect": f"sightglass describe {name}",
        "query": f"sightglass watch {name} batch.loss",
        "": f"sightglass watch {name} batch.grads.dense1.bias",
        "set": f"sightglass set {name} lr=0.5",
        "call": f"sightglass call {name} checkpoint",
        "record": f"sightglass record {name} batch.loss",
        "stop": f"sightglass stop {name}",
    }
    text = Text("Try in another terminal\n", style="bold")
    for verb, command in commands.items():
        text.append(f"\n  {verb:<9}", style="not bold dim")
        text.append(command, style="not bold")
    return text


# Serve the page beside the demo: `sightglass ui` in a process of its own.

NEEDS: Final = ("starlette", "uvicorn", "websockets")


@contextmanager
def page(directory: Path, *, browser: bool, view: str) -> Iterator[tuple[subprocess.Popen[str] | None, str | None]]:
    """Serve the page while the context lasts.

    Args:
        directory: The folder of the run directories.
        browser: Whether to open the page in a browser.
        view: The saved view on which it opens.

    Yields:
        The server and the controller's link; `None` if the page's requirements are not installed or it does not start.
    """
    if not all(find_spec(name) for name in NEEDS):
        yield None, None
        return
    options = ["--view", view, *([] if browser else ["--no-browser"])]
    command = [sys.executable, "-m", "sightglass", "ui", str(directory), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield server, _link(server)
        finally:
            server.terminate()


def _link(server: subprocess.Popen[str]) -> str | None:
    """Read the controller's link, which the server prints first."""
    assert server.stdout is not None
    role, _, link = server.stdout.readline().partition(":")
    return link.strip() if role == "controller" else None
