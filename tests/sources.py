"""A source for views: records in a list."""

from __future__ import annotations

import numpy as np

from sightglass.core.columns import Columns, of_records


class ListSource:
    """Gives the records of its list."""

    tag = run = ""
    ended = False

    def since(self, cursor):
        new = [record for record in self.records if record.index >= cursor]
        if not new:
            return cursor, Columns(index=cursor, steps=np.empty(0), wall_times=np.empty(0), values=np.empty(0))
        return new[-1].index + 1, of_records(new, tag=self.tag, run=self.run)
