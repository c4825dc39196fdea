"""Where the library spends the time of the thread that trains, by phases: sampled by a timer, so that it costs little.

The signal arrives when the interpreter comes back from C, in the frame that called it. So the time of PyTorch's
operators counts for the module of Sightglass that called them. What the program runs inside a call of Sightglass, such
as the forward pass of a watched module, is the program's.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Collection
from pathlib import Path
from types import CodeType, FrameType
from typing import Self

import sightglass

INTERVAL_S = 0.0005
ROOT = f"{Path(sightglass.__file__).parent}/"
PHASES = (
    ("copies: core", ("core/copies", "core/device_copy", "core/guarded")),
    ("hooks: torch.calls, hooks, optimizer_steps", ("torch/calls", "torch/hooks", "torch/optimizer_steps")),
    ("parts of queries and their tensors: torch", ("torch/",)),
    ("evaluation, with PyTorch's operators: query", ("query/",)),
    ("rows, budget and lock: training", ("training/",)),
)


class Sampler:
    """A context in which the frames of the main thread are sampled.

    A sample counts for the processor time since the one before: while C is busy, signals wait and become one.

    Attributes:
        seconds: By phase, the seconds of the main thread's processor time that were spent in it.
    """

    def __init__(self, *, program: Collection[CodeType] = ()) -> None:
        """Sample nothing yet; the functions of `program` and what they call are the program's."""
        self.seconds = {phase: 0.0 for phase, _ in PHASES}
        self._program = program

    def __enter__(self) -> Self:
        self._sampled_s = time.thread_time()
        self._before = signal.signal(signal.SIGALRM, self._sample)
        signal.setitimer(signal.ITIMER_REAL, INTERVAL_S, INTERVAL_S)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, self._before)

    def _sample(self, signum: int, frame: FrameType | None) -> None:
        now_s, before_s = time.thread_time(), self._sampled_s
        self._sampled_s = now_s
        while frame is not None and frame.f_code not in self._program:
            name = frame.f_code.co_filename
            if name.startswith(ROOT):
                for phase, places in PHASES:
                    if name.startswith(places, len(ROOT)):
                        self.seconds[phase] += now_s - before_s
                        return
            frame = frame.f_back
