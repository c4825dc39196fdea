"""The order of the runs of several sources: which of their records are of the same process of a program.

A run that is restarted under its name has another id. A source says which run made its first records, and where others
begin. Sources of one client, and those that share an id, are kin: they follow one program through its restarts, and
each may have missed some. Others follow different programs, whose restarts have nothing to do with each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .source import Source, client_of, runs_of


class RunOrder:
    """Numbers runs, so that equal numbers mean the same run, and those of a source ascend.

    A number once given stays. A run that is learned of late gets one between others, so the numbers are floats.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self._family_of: list[dict[str, float]] = []
        self._own: list[dict[str, float]] = [{} for _ in sources]
        for i, source in enumerate(sources):
            ids = runs_of(source)
            client = client_of(source)
            kin = (
                family
                for other, family in zip(sources, self._family_of, strict=False)
                if not family.keys().isdisjoint(ids) or (client is not None and client is client_of(other))
            )
            self._family_of.append(next(kin, {}))
            self.of(i, ids)

    @property
    def n_programs(self) -> int:
        """How many programs the sources follow."""
        return len({id(family) for family in self._family_of})

    def of(self, source: int, ids: Sequence[str]) -> list[float]:
        """Return the numbers of the runs of a source, given their ids so far, in order."""
        family, own, last = self._family_of[source], self._own[source], -math.inf
        for i, id in enumerate(ids):
            if id not in own:
                number = family.get(id, -math.inf)
                if number <= last:  # not known
                    later = [known for other in ids[i + 1 :] if (known := family.get(other, last)) > last]
                    number = _unused(family, last, later[0] if later else None)
                own[id] = family[id] = number
            last = own[id]
        return [own[id] for id in ids]


def _unused(family: dict[str, float], last: float, later: float | None) -> float:
    """Return a number that no run of a family has, above `last` and below `later`."""
    if later is not None:
        return (max((one for one in family.values() if last <= one < later), default=later - 2) + later) / 2
    if last == -math.inf:
        return max(family.values(), default=-1.0) + 1
    return (last + min((one for one in family.values() if one > last), default=last + 2)) / 2
