"""What a run tells about its program: the command, the versions of Python and packages, the git commit, the machine.

The `io` thread collects it, so that the training does not wait. `git` is a process of its own, which is looked at from
time to time. What cannot be found out is left out.

`MachineMetrics` samples what the machine has to do. `Console` follows what the program prints, `LastLines` holds its
end.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any, Final

from sightglass.core.process.unpatched import subprocess, threading
from sightglass.core.redact import redact_code, redact_command, redact_environment, redact_text

from .options import Facts

MAX_ARGUMENTS: Final = 256
MAX_ARGUMENT: Final = 1_000  # characters; a configuration given as JSON still fits
MAX_PACKAGES: Final = 500
MAX_DIFF_BYTES: Final = 2**20  # hundreds of changed files
GIT_S: Final = 10.0  # a large repository takes a second, on a network's file system some
KILLED_S: Final = 0.1  # a process that hangs in its file system is left behind
LAST_S: Final = 1.0  # a program that ends at once waits this long for git

STATUS: Final = ("status", "--porcelain=v2", "--branch", "--untracked-files=no")
DIFF: Final = ("diff", "HEAD", "--no-color", "--no-ext-diff", "--no-textconv")


class ProgramFacts:
    """Collects the facts about a program.

    Attributes:
        found: What is known so far, as JSON types; a new mapping whenever more is found.
        diff: What differs from the commit, if it was asked for.
    """

    def __init__(self, options: Facts, *, changed: Callable[[], None]) -> None:
        """Note where the program is, and collect nothing yet.

        Args:
            options: What to collect.
            changed: Called on the thread of `tick` when more was found.
        """
        self.found: dict[str, Any] = {}
        self.diff = ""
        self._options = options
        self._changed = changed
        self._folder = _folder()
        self._gits: list[Git] = []
        self._began = False

    def tick(self, now_s: float) -> None:
        """Collect what takes no time, or what git has found out."""
        if not self._began:
            self._begin(now_s)
        for git in [git for git in self._gits if git.ended(now_s)]:
            self._take(git)

    def close(self) -> None:
        """Collect the last: packages that were imported meanwhile, and what git says if it ends now."""
        if not self._began:
            self._begin(0.0)
        for git in tuple(self._gits):
            git.wait(LAST_S)
            self._take(git)
        if self._options.program:
            self._add({"packages": packages()})

    def _begin(self, now_s: float) -> None:
        self._began = True
        self._add(facts_now(self._options, self._folder))
        asked = (STATUS, True), (DIFF, self._options.diff)
        if self._folder and self._options.program:
            self._gits = [Git(command, self._folder, until_s=now_s + GIT_S) for command, wanted in asked if wanted]

    def _take(self, git: Git) -> None:
        self._gits.remove(git)
        output = git.output()
        if output and git.command == STATUS:
            self._add({"git": read_status(output)})
        elif output:
            self.diff = redact_code(output)
            self._changed()

    def _add(self, more: Mapping[str, Any]) -> None:
        found = {**self.found, **more}
        if found != self.found:
            self.found = found
            self._changed()


class Git:
    """A call of git in a process of its own, which does not wait for input, nor write into the repository."""

    def __init__(self, command: tuple[str, ...], folder: str, *, until_s: float) -> None:
        self.command = command
        self._until_s = until_s
        self._output: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError, subprocess.SubprocessError):  # such as no git, or no room for its output
            self._output = tempfile.TemporaryFile()  # noqa: SIM115  `output` closes it
            self._process = subprocess.Popen(
                ["git", "-c", "core.fsmonitor=false", *command], cwd=folder, stdin=subprocess.DEVNULL,
                stdout=self._output, stderr=subprocess.DEVNULL, start_new_session=True,
                env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"},
            )  # fmt: skip

    def ended(self, now_s: float) -> bool:
        """Return whether it is over, or has taken too long."""
        return self._process is None or self._process.poll() is not None or now_s > self._until_s

    def wait(self, timeout_s: float) -> None:
        """Wait for its end, at most for some seconds."""
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout_s)

    def output(self) -> str:
        """End it, and return what it wrote; empty if it failed or did not end by itself."""
        text = ""
        if self._process is not None and self._output is not None:
            if self._process.poll() is None:
                self._process.kill()
                self.wait(KILLED_S)
            elif self._process.returncode == 0:
                self._output.seek(0)
                text = self._output.read(MAX_DIFF_BYTES).decode("utf-8", "replace")
                if self._output.read(1):
                    text += "\n… more was left out\n"
        if self._output is not None:
            self._output.close()
        return text


def facts_now(options: Facts, folder: str) -> dict[str, Any]:
    """Return what is known without waiting."""
    facts: dict[str, Any] = {}
    if options.program:
        command = redact_command(sys.orig_argv[:MAX_ARGUMENTS])
        facts = {
            "command": [argument[:MAX_ARGUMENT] for argument in command],
            "folder": folder,
            "python": platform.python_version(),
            "executable": sys.executable or "",
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "n_cpus": os.cpu_count() or 0,
            "packages": packages(),
        }
    if options.environment:
        facts["environment"] = redact_environment(os.environ, options.environment)
    return facts


def packages() -> dict[str, str]:
    """Return the versions of the packages that are imported so far, by name.

    They are read from the modules, which costs less than to search the installed packages. What has no `__version__`
    is left out.
    """
    found = {}
    for name, module in list(sys.modules.items()):
        if "." in name or name.startswith("_") or name in sys.stdlib_module_names:
            continue
        version = getattr(module, "__dict__", {}).get("__version__")
        if isinstance(version, str) and version:  # `torch.__version__` is a subclass of `str`
            found[name] = version[:MAX_ARGUMENT]
    return dict(sorted(found.items())[:MAX_PACKAGES])


def read_status(output: str) -> dict[str, Any]:
    r"""Return the commit and the branch in the output of `STATUS`, and whether tracked files differ from the commit.

    >>> read_status("# branch.oid 1f0e\n# branch.head main\n1 .M N... 100644 100644 100644 9a 9a train.py\n")
    {'commit': '1f0e', 'branch': 'main', 'dirty': True}
    """
    lines = output.splitlines()
    heads = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# branch.") and line.count(" ") > 1)
    commit, branch = heads.get("branch.oid", ""), heads.get("branch.head", "")
    return {
        "commit": "" if commit == "(initial)" else commit,
        "branch": "" if branch == "(detached)" else branch,
        "dirty": any(line and not line.startswith("#") for line in lines),
    }


def _folder() -> str:
    """Return the working folder; empty if it was deleted."""
    try:
        return os.getcwd()
    except OSError:
        return ""


# What the machine of a run has to do: processors, memory, disk, network, GPUs.
#
# psutil and NVIDIA's library are asked, where they are installed (`sightglass[system]`). Each part is asked by itself,
# and given up when it fails: containers hide some, and machines without a GPU have no library for it.

EVERY_S: Final = 10.0  # a sample takes less than a millisecond: a ten-thousandth of a core
SHORT_S: Final = 1.0  # a run that ends earlier after its last sample has nothing to add

Numbers = Iterator[tuple[str, float]]


class MachineMetrics:
    """Samples the machine from time to time, as long as somebody wants the numbers."""

    def __init__(self, take: Callable[[Mapping[str, float]], None], *, wanted: Callable[[], bool]) -> None:
        """Load nothing yet.

        Args:
            take: Gets the numbers of each sample, by name, on the thread of `tick`.
            wanted: Whether to sample now.
        """
        self._take = take
        self._wanted = wanted
        self._parts: list[Callable[[float], Numbers]] | None = None
        self._sampled_s = self._now_s = 0.0
        self._counts: dict[str, tuple[float, float]] = {}

    def tick(self, now_s: float) -> None:
        """Sample, if it is time."""
        self._now_s = now_s
        if self._parts is None:
            if self._wanted():
                self._parts = [*_of_psutil(self._rate), *_of_nvidia()]
                self._sample(now_s)  # a rate, such as the use of a processor, needs a beginning
        elif now_s - self._sampled_s >= EVERY_S:
            self._take(self._sample(now_s))

    def close(self) -> None:
        """Sample for the last time."""
        if self._parts and self._now_s - self._sampled_s >= SHORT_S:
            self._take(self._sample(self._now_s))

    def _sample(self, now_s: float) -> dict[str, float]:
        self._sampled_s = now_s
        found: dict[str, float] = {}
        for part in tuple(self._parts or ()):
            try:
                found.update(part(now_s))
            except Exception:  # noqa: BLE001  psutil and NVIDIA raise what they like; the other parts go on
                assert self._parts is not None
                self._parts.remove(part)
        return found

    def _rate(self, name: str, count: float, now_s: float) -> Numbers:
        """Yield by how much a count has grown each second since it was last given, in millions."""
        before, at_s = self._counts.get(name, (count, now_s))
        self._counts[name] = count, now_s
        if now_s > at_s:
            yield name, max(0.0, count - before) / (now_s - at_s) / 1e6


Rate = Callable[[str, float, float], Numbers]


def _of_psutil(rate: Rate) -> list[Callable[[float], Numbers]]:
    try:
        import psutil

        process = psutil.Process()
    except Exception:  # noqa: BLE001  a library that is broken is as good as one that is not installed
        return []

    def processors(now_s: float) -> Numbers:
        yield "cpu_percent", psutil.cpu_percent(None)
        yield "process_cpu_percent", process.cpu_percent(None)

    def memory(now_s: float) -> Numbers:
        yield "memory_percent", psutil.virtual_memory().percent
        yield "process_memory_gb", process.memory_info().rss / 1e9

    def disk_space(now_s: float) -> Numbers:
        yield "disk_percent", psutil.disk_usage(".").percent

    def disk(now_s: float) -> Numbers:
        counts = psutil.disk_io_counters()
        yield from rate("disk_read_mb_s", counts.read_bytes, now_s)
        yield from rate("disk_write_mb_s", counts.write_bytes, now_s)

    def network(now_s: float) -> Numbers:
        counts = psutil.net_io_counters()
        yield from rate("network_received_mb_s", counts.bytes_recv, now_s)
        yield from rate("network_sent_mb_s", counts.bytes_sent, now_s)

    return [processors, memory, disk_space, disk, network]


def _of_nvidia() -> list[Callable[[float], Numbers]]:
    try:
        import pynvml as nvml

        nvml.nvmlInit()
        handles = {i: nvml.nvmlDeviceGetHandleByIndex(i) for i in _visible(nvml.nvmlDeviceGetCount())}
    except Exception:  # noqa: BLE001  no library, no driver, or none that this process may use
        return []

    def utilization(now_s: float) -> Numbers:
        for i, handle in handles.items():
            yield f"gpu{i}_percent", nvml.nvmlDeviceGetUtilizationRates(handle).gpu

    def memory(now_s: float) -> Numbers:
        for i, handle in handles.items():
            info = nvml.nvmlDeviceGetMemoryInfo(handle)
            yield f"gpu{i}_memory_percent", 100 * info.used / info.total

    def power(now_s: float) -> Numbers:
        for i, handle in handles.items():
            yield f"gpu{i}_power_w", nvml.nvmlDeviceGetPowerUsage(handle) / 1e3

    def temperature(now_s: float) -> Numbers:
        for i, handle in handles.items():
            yield f"gpu{i}_celsius", nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)

    return [utilization, memory, power, temperature]


def _visible(n: int) -> list[int]:
    """Return the numbers of the GPUs that this process may use; of all, where they are not named by numbers."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return list(range(n))
    parts = [part.strip() for part in named.split(",") if part.strip()]
    if named.strip() == "-1":
        return []
    return [int(part) for part in parts if int(part) < n] if all(map(str.isdecimal, parts)) else list(range(n))


# What a program prints: as texts of its run, and its last lines, in case the run fails.
#
# The `write` of `sys.stdout` and `sys.stderr` is followed, and not the file descriptors: the program keeps its streams,
# with their terminal, buffers and order, and what holds one of them already, such as a handler of `logging`, is
# followed, too. What libraries print in C is not. A stream is followed once, for all runs of the process.

STREAMS: Final = {"out": "stdout", "err": "stderr"}
MAX_WAITING: Final = 2**20  # characters, for half a second
MAX_LINES: Final = 2_000  # in half a second: more is not for people to read
MAX_LINE: Final = 2_000  # characters
LAST_LINES: Final = 200  # a traceback, and what led to it
LAST_CHARACTERS: Final = 2**16
_COLOURS: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")

Take = Callable[[str, Sequence[str]], None]
Note = Callable[[str], None]


class Tap:
    """A text stream whose writes are followed. Where the stream does not allow it, there is nothing to see."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream
        self.notes: tuple[Note, ...] = ()
        self._write: Callable[[str], Any] | None = None
        with contextlib.suppress(AttributeError):  # no console, or a class of the program's without room for it
            before = stream.write

            def write(text: str) -> Any:
                written = before(text)
                if type(text) is str:
                    for note in self.notes:
                        note(text)
                return written

            stream.write = self._write = write

    def leave(self) -> bool:
        """Give the stream its own `write` again; return `False` if somebody else follows it, too."""
        if self._write is not None and getattr(self.stream, "__dict__", {}).get("write") is not self._write:
            return False
        if self._write is not None:
            del self.stream.write
        return True


_taps: list[Tap] = []  # those that somebody else follows, too, stay, so that the next run does not follow them twice
_tapping = threading.Lock()


def follow(stream: Any, note: Note) -> None:
    """Call a function with each text that is written to a stream."""
    with _tapping:
        tap = next((tap for tap in _taps if tap.stream is stream), None)
        if tap is None:
            tap = Tap(stream)
            _taps.append(tap)
        tap.notes = (*tap.notes, note)


def unfollow(note: Note) -> None:
    """Call a function no longer."""
    with _tapping:
        for tap in tuple(_taps):
            if note in tap.notes:
                tap.notes = tuple(other for other in tap.notes if other != note)
                if not tap.notes and tap.leave():
                    _taps.remove(tap)


class Console:
    """Follows both streams, and hands on the lines that were finished."""

    def __init__(self, take: Take) -> None:
        """Begin to follow.

        Args:
            take: Gets "out" or "err" and the lines since the last time, on the thread of `tick`.
        """
        self._take = take
        self._written = {name: Written() for name in STREAMS}
        for name, written in self._written.items():
            follow(getattr(sys, STREAMS[name]), written.note)

    def tick(self, now_s: float) -> None:
        """Hand on the lines that were finished. If that fails, follow no more: nobody will call again."""
        try:
            self._hand_on(at_end=False)
        except BaseException:
            self._leave()
            raise

    def close(self) -> None:
        """Follow no more, and hand on the rest."""
        self._leave()
        self._hand_on(at_end=True)

    def _leave(self) -> None:
        for written in self._written.values():
            unfollow(written.note)

    def _hand_on(self, *, at_end: bool) -> None:
        for name, written in self._written.items():
            if lines := written.lines(at_end=at_end):
                self._take(name, lines)


class Written:
    """What was written to a stream and not read yet."""

    def __init__(self) -> None:
        self._pieces: deque[str] = deque()
        self._n_waiting = self._n_lost = 0
        self._rest = ""

    def note(self, text: str) -> None:
        """Take in a text."""
        if self._n_waiting + len(text) > MAX_WAITING:
            self._n_lost += len(text)
            return
        self._n_waiting += len(text)
        self._pieces.append(text)

    def lines(self, *, at_end: bool) -> list[str]:
        """Return the lines that were finished; of one that was written over, such as a progress bar, the last state."""
        pieces = [self._rest]
        while self._pieces:
            pieces.append(self._pieces.popleft())
        self._n_waiting = 0
        *lines, rest = "".join(pieces).split("\n")
        if at_end and rest:
            lines, rest = [*lines, rest], ""
        self._rest = rest[rest.rfind("\r", 0, -1) + 1 :][-MAX_LINE:]
        n_lost, self._n_lost = self._n_lost, 0
        n_left = max(0, len(lines) - MAX_LINES)
        left_out = [f"… {n:,} {what} left out" for n, what in ((n_left, "lines"), (n_lost, "characters")) if n]
        return left_out + [_plain(line) for line in lines[n_left:]]


class LastLines:
    """The last lines that the process has printed, on both streams, in their order; held while a run wants them."""

    def __init__(self) -> None:
        self._pieces: deque[str] = deque()
        self._n_characters = self._n_runs = 0
        self._cut = False

    def hold(self) -> None:
        """Hold them for one run more."""
        self._n_runs += 1
        if self._n_runs == 1:
            for name in STREAMS.values():
                follow(getattr(sys, name), self._note)

    def release(self) -> None:
        """Hold them for one run less."""
        self._n_runs -= 1
        if not self._n_runs:
            unfollow(self._note)
            self._pieces.clear()
            self._n_characters, self._cut = 0, False

    def text(self) -> str:
        """Return them, as a terminal shows them, without colours and secrets; at most `LAST_LINES`."""
        lines = "".join(tuple(self._pieces)).removesuffix("\n").split("\n")
        if self._cut:  # the rest of a line may be the rest of a secret
            del lines[0]
        return "\n".join(map(_plain, lines[-LAST_LINES:]))[-LAST_CHARACTERS:]

    def _note(self, text: str) -> None:
        pieces = self._pieces
        if len(text) > LAST_CHARACTERS:
            text, self._cut = text[-LAST_CHARACTERS:], True
        pieces.append(text)
        self._n_characters += len(text)
        # Short pieces take more memory than their characters: a progress bar writes many.
        while self._n_characters > LAST_CHARACTERS or len(pieces) > LAST_CHARACTERS // 8:
            self._cut = True
            try:
                self._n_characters -= len(pieces.popleft())
            except IndexError:  # another thread was faster
                self._n_characters = 0
                return


last_lines: Final = LastLines()


def holds_last_lines() -> bool:
    """Return whether the last lines of this process are held: not where another tool captures what is printed."""
    captured = "PYTEST_CURRENT_TEST" in os.environ or "ipykernel" in sys.modules
    return not captured and os.environ.get("SIGHTGLASS_CONSOLE") != "off"


def _plain(line: str) -> str:
    """Return a line as a terminal would show it, without colours and secrets."""
    shown = _COLOURS.sub("", line).rstrip("\r").rpartition("\r")[2].rstrip()
    return redact_text(shown if len(shown) <= MAX_LINE else shown[:MAX_LINE] + "…")
