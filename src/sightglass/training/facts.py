"""What a run tells about its program: the command, the versions of Python and packages, the git commit, the machine.

The `io` thread collects it, so that the training does not wait. `git` is a process of its own, which is looked at from
time to time. What cannot be found out is left out.
"""

from __future__ import annotations

import contextlib
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping
from typing import IO, Any, Final

from sightglass.core.redact import redact_code, redact_command, redact_environment
from sightglass.core.unpatched import subprocess

from .options import Facts

MAX_ARGUMENTS: Final = 256
MAX_ARGUMENT: Final = 1_000  # characters; a configuration given as JSON still fits
MAX_PACKAGES: Final = 500
MAX_DIFF_BYTES: Final = 2**20  # hundreds of changed files
GIT_S: Final = 30.0  # a large repository on a network's file system
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
        asked = (STATUS, self._options.program), (DIFF, self._options.diff)
        if self._folder:
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
