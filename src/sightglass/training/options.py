"""What is rarely set when a run begins, grouped by concern: `Limits`, `Ranks`, `Files` and `Facts`."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from sightglass.core.process.ranks import Agree

EVENT_S: Final = 0.02  # a frame of a film: nobody notices one that is late
# A late client draws a chart of the whole stream from these, and one that was away for seconds continues without a gap.
BACKLOG_RECORDS: Final = 8_192
BACKLOG_BYTES: Final = 16 * 2**20  # images and tensors fill this first; a run may have hundreds of subscriptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What queries may take of a run, and what it keeps for late clients: `sightglass.init(limits=…)`.

    The limits of the backlog apply to each subscription separately; the first one that is reached counts. With either
    at 0, a late client sees only what happens after it has asked.

    Attributes:
        max_event_s: The seconds of its thread that queries may take of an event, all of them together; or a tenth of
            the median time between these events, if that is more.
        max_backlog_records: How many records a subscription retains for clients that open an equal query later: the
            newest, at least a quarter of this number, and of the older ones some, evenly over the whole stream.
        max_backlog_bytes: How many bytes they may take.
        alerts_may: The commands that rules of alerts may send: "stop", "pause", and the names of controls that they may
            set. By default none.

    Raises:
        ValueError: A limit is negative, or the time is not positive.
        TypeError: A limit is not a number, or not an integer; or `alerts_may` is not a list of names.

    >>> Limits(max_backlog_records=100)
    Limits(max_event_s=0.02, max_backlog_records=100, max_backlog_bytes=16777216, alerts_may=())
    """

    max_event_s: float = EVENT_S
    max_backlog_records: int = BACKLOG_RECORDS
    max_backlog_bytes: int = BACKLOG_BYTES
    alerts_may: Sequence[str] = ()

    def __post_init__(self) -> None:
        if type(self.max_event_s) not in (int, float):
            raise TypeError(f"Expected a number as max_event_s, got {self.max_event_s!r:.100}")
        if not 0 < self.max_event_s < math.inf:
            raise ValueError(f"Expected max_event_s to be positive and finite, got {self.max_event_s}")
        if isinstance(self.alerts_may, str) or not all(isinstance(name, str) for name in self.alerts_may):
            raise TypeError(f"Expected a list of names as alerts_may, got {self.alerts_may!r:.100}")
        object.__setattr__(self, "alerts_may", tuple(self.alerts_may))
        for name in ("max_backlog_records", "max_backlog_bytes"):
            limit = getattr(self, name)
            if type(limit) is not int:
                raise TypeError(f"Expected an int as {name}, got {type(limit).__name__} {limit!r:.100}")
            if limit < 0:
                raise ValueError(f"Expected {name} to be at least 0, got {limit}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """How the processes of one distributed program belong and act together, as `sightglass.init(ranks=…)`.

    Clients ask the processes of a program as one: its rank group, see `RankGroup`.

    Attributes:
        agree: How the ranks apply commands at the same event: `None` for the store of `torch.distributed` or of JAX's
            coordinator, where there is one; or a broadcast, which every rank calls with some bytes at every event of
            the thread that called `init`, and which returns the bytes of rank 0 to each. See `sightglass.jax.agree`
            and `sightglass.torch.agree`.
        group: The name of the rank group; by default the run's name.
        rank: The rank of this process; by default what PyTorch, JAX, or the variables of torchrun, Slurm or MPI say.
        size: The number of ranks; likewise.

    Raises:
        TypeError: `agree` is not callable, or `group` is not text.
        ValueError: `rank` is not one of `size` ranks, or only one of them is given.

    >>> Ranks(group="gpt-7", rank=3, size=64)
    Ranks(agree=None, group='gpt-7', rank=3, size=64)
    """

    agree: Agree | None = None
    group: str = ""
    rank: int | None = None
    size: int | None = None

    def __post_init__(self) -> None:
        if self.agree is not None and not callable(self.agree):
            raise TypeError(f"Expected a function as agree, got {type(self.agree).__name__} {self.agree!r:.100}")
        if not isinstance(self.group, str):
            raise TypeError(f"Expected a text as group, got {type(self.group).__name__} {self.group!r:.100}")
        given = self.rank, self.size
        if given != (None, None) and not (type(self.rank) is type(self.size) is int and 0 <= self.rank < self.size):
            raise ValueError(
                f"Expected rank and size as numbers, 0 <= rank < size, got {self.rank!r} and {self.size!r}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """Where a run writes, and who can read it, as `sightglass.init(files=…)`.

    Attributes:
        into: A run directory to write into instead of a new one: that of an earlier run which this one continues, or
            one that several ranks share.
        repeats: Whether a run that continues another one may repeat its steps, as after a crash: it then hides, in each
            series, the earlier records from its own first step on. Otherwise all records are kept, one after the other.
        private: Whether only this user can read what the run writes: files have mode 0600, and new directories 0700.
            By default the umask decides, as for other files.
        compat: "mindspore" to write MindSpore's summary files as well, into the folder `mindspore` of the run
            directory: the same as `init(mirror="mindspore")`.

    Raises:
        TypeError: `into` is not a path.
        ValueError: `compat` is neither `None` nor "mindspore".
    """

    into: str | os.PathLike[str] | None = None
    repeats: bool = True
    private: bool = False
    compat: Literal["mindspore"] | None = None

    def __post_init__(self) -> None:
        if self.compat not in (None, "mindspore"):
            raise ValueError(f"Expected compat='mindspore' or None, got {self.compat!r:.100}")
        if self.into is not None and not isinstance(self.into, str | os.PathLike):
            raise TypeError(f"Expected a path as into, got {type(self.into).__name__} {self.into!r:.100}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a run publishes about its program and its machine, as `sightglass.init(facts=…)`.

    The environment's `SIGHTGLASS_FACTS=off` switches all of it off, whatever the program says. Texts that look like
    secrets are replaced by "[redacted]".

    Attributes:
        program: Whether to tell the command, the working folder, the versions of Python and of the imported packages,
            and the git commit, its branch and whether tracked files differ from it.
        diff: Whether to write these differences, too, into the run directory, as `changes.diff`, which only this user
            can read; at most 1 MiB.
        environment: The names of the environment's variables to tell; no others are.
        system: Whether to record the use of processors, memory, disk, network and NVIDIA's GPUs, every ten seconds, if
            anything else is recorded and `sightglass[system]` is installed.
        console: Whether to record the lines that the program prints, as texts `console.out` and `console.err`. Only
            what goes through Python's `sys.stdout` and `sys.stderr` is seen. Without it, the last 200 lines are written
            as `console.txt` if the run fails, unless the environment has `SIGHTGLASS_CONSOLE=off`.

    Raises:
        TypeError: `environment` is not a list of names.

    >>> Facts(environment=["CUDA_VISIBLE_DEVICES"])
    Facts(program=True, diff=True, environment=('CUDA_VISIBLE_DEVICES',), system=True, console=False)
    """

    program: bool = True
    diff: bool = True
    environment: Sequence[str] = ()
    system: bool = True
    console: bool = False

    def __post_init__(self) -> None:
        names = self.environment
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            raise TypeError(f"Expected a list of names as environment, got {names!r:.100}")
        object.__setattr__(self, "environment", tuple(names))


OFF: Final = Facts(program=False, diff=False, system=False)
