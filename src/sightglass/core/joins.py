"""Joins: which records of several streams belong together.

Theory of operation
    Records are joined by a key: their step, their index, or their wall time. The first stream leads: each of its
    records gets one partner in every other stream, or counts as unpaired.

    Rule 1: without a tolerance, partners have equal keys. The n-th record with a key is paired with the n-th.
    Rule 2: with a tolerance, the partner is the record with the nearest key; the lower key if two are equally near. Of
    several with that key it is the last one below, or the first one at the record's own key. A record may be the
    partner of several.
    Rule 3: a key that goes back begins a new pass, as in a program that counts its steps from 0 in each epoch. Passes
    are counted from the first record of each stream in each run. Partners are in the same pass of the same run: where
    a run was restarted, a stream that is sparse may not have gone back, and yet its records belong to the new run.
    Rule 4: a record waits until no later record can change its partner. So pairs do not depend on how records arrive.
    Rule 5: a record whose key is not a finite number has no partner.

    Within a pass keys do not go back, so a record whose key the leading stream has passed is never needed again. Only
    the records of streams that are ahead wait.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Positions = npt.NDArray[np.int64]

PASSES: Final = 2.0**32  # of one run: the numbers of passes and the halves between the numbers of runs are both exact


class RecordJoin:
    """Finds the partners of records as they arrive, by their keys alone.

    Attributes:
        n_unpaired: How many records of the first stream have no partner.
    """

    def __init__(self, n_streams: int, *, tolerance: float | None = None) -> None:
        """Begin without records.

        Args:
            n_streams: How many streams are joined.
            tolerance: How far the keys of partners may differ; `None` if they must be equal.
        """
        self.n_unpaired = 0
        self._tolerance = tolerance
        self._lead, *self._others = self._sides = [_Side() for _ in range(n_streams)]

    def add(self, stream: int, keys: npt.ArrayLike, runs: npt.ArrayLike = 0.0) -> None:
        """Add the keys of a stream's next records, of shape (n,), and the numbers of their runs, which ascend."""
        keys = np.asarray(keys, np.float64)
        n_left_out = self._sides[stream].add(keys, np.broadcast_to(np.asarray(runs, np.float64), keys.shape))
        if stream == 0:
            self.n_unpaired += n_left_out

    def end(self, stream: int) -> None:
        """Say that a stream has no more records."""
        self._sides[stream].ended = True

    def take(self) -> Positions:
        """Return the pairs that are certain by now, each once.

        Returns:
            Shape (n_pairs, n_streams): the positions of the records in their streams, counted from 0 as they were
            added.
        """
        lead = self._lead
        self._trim()
        found = [other.partners(lead.places, self._tolerance) for other in self._others]
        n = len(lead.places) if self.over else min((n for _, n in found), default=len(lead.places))
        partners = [at[:n] for at, _ in found]
        paired = np.logical_and.reduce([np.ones(n, bool), *(at >= 0 for at in partners)])
        pairs = np.stack(
            [lead.positions[:n][paired]]
            + [other.positions[at[paired]] for other, at in zip(self._others, partners, strict=True)],
            axis=1,
        )
        self.n_unpaired += n - len(pairs)
        if self._tolerance is None:
            for other in self._others:
                other.drop(other.n_used(lead.places[:n]))
        lead.drop(n)
        self._trim()
        return pairs

    @property
    def over(self) -> bool:
        """Whether no later record can make a pair."""
        return any(side.ended and not len(side.places) for side in self._sides)

    @property
    def n_waiting(self) -> int:
        """How many records of the first stream wait until their partner is certain."""
        return len(self._lead.places)

    def awaits(self, stream: int) -> bool:
        """Return whether nothing is certain before this stream has more records, or has ended."""
        lead, side = self._lead, self._sides[stream]
        if side is lead:
            return not len(lead.places)
        return bool(len(lead.places)) and not side.ended and int(np.searchsorted(lead.places, side.reached)) == 0

    def needed_from(self, stream: int) -> int:
        """Return the position from which on records of a stream may still be in a pair."""
        side = self._sides[stream]
        return int(side.positions[0]) if len(side.positions) else side.n_added

    def _trim(self) -> None:
        """Drop what is below the next record of the first stream, except the nearest record within the tolerance."""
        lead = self._lead
        place = lead.places[0] if len(lead.places) else lead.reached
        for other in self._others:
            n = int(np.searchsorted(other.places, place))
            if n and self._tolerance is not None:
                below = other.places[n - 1]
                n -= bool(below.real == place.real and place.imag - below.imag <= self._tolerance)
            other.drop(n)


class _Side:
    """The records of one stream that may still be in a pair.

    A place is a run, a pass and a key, as a complex number: NumPy orders them by the real part, which is the number of
    the run times `PASSES` plus that of the pass, then by the imaginary part.

    Attributes:
        places: Shape (n,), complex128, ascending.
        positions: Shape (n,): where the records are in the stream.
        reached: The place of the newest record.
        n_added: How many records were added.
        ended: Whether no more can come.
    """

    def __init__(self) -> None:
        self.places: Any = np.zeros(0, np.complex128)
        self.positions: Positions = np.zeros(0, np.int64)
        self.reached = np.complex128(complex(-math.inf, -math.inf))
        self.n_added = 0
        self.ended = False
        self._run, self._pass = math.nan, 0

    def add(self, keys: npt.NDArray[np.float64], runs: npt.NDArray[np.float64]) -> int:
        """Add records, and return how many were left out because their key is not finite."""
        positions = np.arange(self.n_added, self.n_added + len(keys))
        self.n_added += len(keys)
        known = np.isfinite(keys)
        keys, positions, runs = keys[known], positions[known], runs[known]
        if len(keys):
            begins = runs != np.concatenate(([self._run], runs[:-1]))
            goes_back = (keys < np.concatenate(([self.reached.imag], keys[:-1]))) & ~begins
            passes, rows = np.cumsum(goes_back), np.arange(len(keys))
            first = np.maximum.accumulate(np.where(begins, rows, -1))  # row of each run, -1 if it was added before
            passes += np.where(first < 0, self._pass, -passes[first])
            self._run, self._pass = float(runs[-1]), int(passes[-1])
            places = np.empty(len(keys), np.complex128)
            places.real, places.imag = runs * PASSES + passes, keys
            self.reached = places[-1]
            self.places = np.concatenate((self.places, places))
            self.positions = np.concatenate((self.positions, positions))
        return len(known) - len(keys)

    def drop(self, n: int) -> None:
        """Drop the first `n` records."""
        if n:
            self.places, self.positions = self.places[n:], self.positions[n:]

    def partners(self, places: Any, tolerance: float | None) -> tuple[Positions, int]:
        """Return which record of this side belongs to each place, -1 for none; and for how many this is certain."""
        at, certain = self._equal(places) if tolerance is None else self._nearest(places, tolerance)
        return at, len(places) if self.ended else certain

    def _equal(self, places: Any) -> tuple[Positions, int]:
        at = self._turns(places)
        found = at < len(self.places)
        found[found] = self.places[at[found]] == places[found]
        n_found = int(np.flatnonzero(found)[-1]) + 1 if found.any() else 0
        return np.where(found, at, -1), max(n_found, int(np.searchsorted(places, self.reached)))

    def _nearest(self, places: Any, tolerance: float) -> tuple[Positions, int]:
        above = _search(self.places, places)
        distances = []
        for at in (above - 1, above):
            distance = np.full(len(places), np.inf)
            there = (at >= 0) & (at < len(self.places))
            there[there] = self.places[at[there]].real == places[there].real
            distance[there] = np.abs(self.places[at[there]].imag - places[there].imag)
            distances.append(distance)
        nearest = np.where(distances[0] <= distances[1], above - 1, above)
        within = np.minimum(*distances) <= tolerance
        return np.where(within, nearest, -1), int(np.count_nonzero(above < len(self.places)))

    def n_used(self, places: Any) -> int:
        """Return how many records are used up by these places, each of which takes an equal one."""
        if not len(places):
            return 0
        last = places[-1]
        first, after = np.searchsorted(self.places, last), np.searchsorted(self.places, last, side="right")
        return int(min(first + len(places) - np.searchsorted(places, last), after))

    def _turns(self, places: Any) -> Positions:
        """Return where the n-th record of each place would be, for the n-th of these places."""
        first, own = _search(self.places, places), _search(places, places)
        turns: Positions = first + np.arange(len(places)) - own
        return turns


def _search(places: Any, wanted: Any) -> Positions:
    """Return `np.searchsorted(places, wanted)`; floats are compared where all are in one pass, which is faster."""
    if len(places) and len(wanted) and places[0].real == places[-1].real == wanted[0].real == wanted[-1].real:
        places, wanted = places.imag, wanted.imag
    at: Positions = np.searchsorted(places, wanted)
    return at
