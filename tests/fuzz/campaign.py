"""Fuzz every target for a while: `make fuzz`, or `python -m tests.fuzz.campaign [--seconds=60] [TARGET ...]`.

Each target begins with its stored inputs. New ones that reach more code are kept in `build/fuzz/TARGET`, and used the
next time. A crash is saved in `build/fuzz/crashes`; mend its cause, and move the input to `tests/fuzz/crashes/TARGET`,
where the tests replay it.

`python -m tests.fuzz.campaign --merge [TARGET ...]` makes the stored corpus again: from the seeds, from what is stored
and from what was found, it chooses few and small inputs that together reach the same code.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .seeds import dictionaries, seeds
from .targets import CORPUS, CRASHES, HERE, PLANTED, TARGETS

ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "fuzz"
TIMEOUT_S = 25  # most inputs take milliseconds; a query may do a second of work for an event, and tracing slows it down
RSS_MB = 2048  # 100 MB are usual, but a query's state may take 256 MiB, and a result 64 MiB
PLANTED_S = 60  # it is found in two seconds
MAX_STORED = 100  # inputs of a target: all together are replayed in seconds
MAX_STORED_BYTES = 40_000

TRACEBACK = re.compile(r"=== Uncaught Python exception: ===\n(.*?)\n==", re.DOTALL)
SAVED = re.compile(r"Test unit written to (\S+)")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of fuzzing a target.

    Attributes:
        name: The target.
        n_executions: How many inputs were tried.
        coverage: How many places of the code they reached, as libFuzzer counts them.
        n_corpus: How many inputs the next campaign begins with.
        crash: The input that failed, or `None`.
        reason: Why it failed.
    """

    name: str
    n_executions: int
    coverage: int
    n_corpus: int
    crash: Path | None
    reason: str

    def __str__(self) -> str:
        counts = f"{self.n_executions:>10,} executions  coverage {self.coverage:>5,}  corpus {self.n_corpus:>5,}"
        return f"{self.name:8} {counts}  {1 if self.crash else 0} crashes"


def fuzz(name: str, seconds: int, *, corpora: Sequence[Path] = ()) -> Outcome:
    """Fuzz a target until it crashes, or for this long; the first corpus receives what is found."""
    crashes = BUILD / "crashes"
    crashes.mkdir(parents=True, exist_ok=True)
    log = _libfuzzer(
        name, f"-max_total_time={seconds}", f"-artifact_prefix={crashes}/{name}-", "-print_final_stats=1",
        *map(str, corpora),
    )  # fmt: skip
    saved, traceback = SAVED.search(log), TRACEBACK.search(log)
    return Outcome(
        name=name,
        n_executions=_largest(r"^#(\d+)|number_of_executed_units: (\d+)", log),
        coverage=_largest(r"\bcov: (\d+)()", log),
        n_corpus=sum(1 for corpus in corpora for _ in corpus.iterdir()),
        crash=Path(saved[1]) if saved else None,
        reason=traceback[1] if traceback else "\n".join(re.findall(r"^.*ERROR: .*", log, re.MULTILINE)),
    )


def corpora_of(name: str) -> list[Path]:
    """Return the folders of a target's inputs; the first is that of this checkout, which has the seeds, too."""
    found = BUILD / name
    for data in seeds()[name]:
        _keep(found, data)
    return [found, *(root / name for root in (CORPUS, CRASHES) if (root / name).is_dir())]


def merge(name: str) -> None:
    """Choose the inputs of a target that the repository keeps."""
    with tempfile.TemporaryDirectory() as folder:
        _libfuzzer(name, "-set_cover_merge=1", "-use_counters=0", folder, *map(str, corpora_of(name)))
        inputs = sorted((path.read_bytes() for path in Path(folder).iterdir()), key=len)
    shutil.rmtree(CORPUS / name, ignore_errors=True)
    n_bytes = 0
    for data in inputs[:MAX_STORED]:
        n_bytes += len(data)
        if n_bytes <= MAX_STORED_BYTES:
            _keep(CORPUS / name, data)
    print(f"{name:8} {len(list((CORPUS / name).iterdir())):>3} of {len(inputs):>3} inputs", flush=True)


def _keep(folder: Path, data: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / hashlib.sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)


def _libfuzzer(name: str, *options: str) -> str:
    """Run libFuzzer on a target, and return what it prints."""
    target = {**TARGETS, **PLANTED}[name]
    command = [
        sys.executable, "-m", "tests.fuzz.fuzzer", name, f"-max_len={target.max_len}", f"-timeout={TIMEOUT_S}",
        f"-rss_limit_mb={RSS_MB}", f"-dict={HERE / target.words}", *options,
    ]  # fmt: skip
    done = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False
    )
    if done.returncode and not SAVED.search(done.stdout):
        sys.exit(f"Expected libFuzzer to fuzz {name!r}, got exit code {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


def _largest(pattern: str, log: str) -> int:
    return max((int(a or b) for a, b in re.findall(pattern, log, re.MULTILINE)), default=0)


def main() -> None:
    """Fuzz, or choose inputs; exit with 1 if there is a crash."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.campaign")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; all by default")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--merge", action="store_true", help="choose the inputs that the repository keeps")
    options = parser.parse_args()
    names = options.targets or list(TARGETS)
    if unknown := set(names) - set(TARGETS):
        parser.error(f"Expected targets of {', '.join(TARGETS)}, got {', '.join(sorted(unknown))}")
    if options.merge:
        for file, text in dictionaries().items():
            (HERE / file).write_text(text)
        for name in names:
            merge(name)
        return
    if (planted := fuzz("planted", PLANTED_S)).crash is None:
        sys.exit(f"Expected the fuzzer to find the planted error, got none in {planted.n_executions:,} executions")
    planted.crash.unlink()
    outcomes = []
    for name in names:
        outcomes.append(outcome := fuzz(name, options.seconds, corpora=corpora_of(name)))
        print(outcome, flush=True)
        if outcome.crash:
            print(f"{outcome.reason}\nReplay: {sys.executable} -m tests.fuzz {name} {outcome.crash}", flush=True)
    sys.exit(any(outcome.crash for outcome in outcomes))


if __name__ == "__main__":
    main()
