"""How many messages of clients a process with runs takes in a second. The rest waits at the hub.

NATS has no quotas on rates: a user with a key may send as fast as they can. Each message, with its answer, costs the
process some 100 µs of the interpreter, which the training needs. What waits at the hub is bounded there: the hub ends
the connection, as of any slow reader, and the process makes a new one.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

MAX_RATE: Final = 1_000  # a tenth of a core; as many clients that ask at once are all answered within a second


class Pace:
    """The pace at which messages of clients are taken.

    Attributes:
        n_full: In how many seconds more came than are taken.
        sender: The user who sent most of them in the last of these seconds.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.n_full = 0
        self.sender = ""
        self._clock = clock
        self._end_s = -math.inf  # of this second
        self._n = 0
        self._senders: Counter[str] = Counter()

    def count(self, user: str) -> None:
        """Count a message of a user."""
        if (now_s := self._clock()) >= self._end_s:
            self._end_s = now_s + 1.0
            self._n = 0
            self._senders.clear()
        self._n += 1
        self._senders[user] += 1

    def rest_s(self) -> float:
        """Return how long to take nothing more."""
        if self._n < MAX_RATE or (left_s := self._end_s - self._clock()) <= 0:
            return 0.0
        self.n_full += 1
        ((self.sender, _),) = self._senders.most_common(1)
        return left_s
