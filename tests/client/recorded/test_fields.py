"""Named tuples and structured arrays keep their fields: asked live, and of what was recorded."""

from __future__ import annotations

import pickle
from collections import namedtuple

import numpy as np
import pytest

import sightglass as sg

Point = namedtuple("Point", "x y")
TABLE = np.array([(1, 2.0), (3, 4.0)], [("f", "i4"), ("g", "f8")])
OFFERED = {
    "point": Point(1, 2.5), "deep": {"a": [Point(1, Point(2, 3))]}, "table": TABLE, "row": TABLE[0],
    "records": TABLE.view(np.recarray), "points": [Point(1, 2), Point(3, 4)],
}  # fmt: skip
QUERIES = {
    "b.point.y": 2.5, "b.point.x + 1": 2, "b.point[1]": 2.5, "b.deep.a[0].y.x": 2, "b.points[1].x": 3,
    "b.table.f.sum()": 4, "b.table['g'].max()": 4.0, "b.row.g": 2.0, "b.records.f.max()": 3,
    "b.points.map(lambda p: p.y)": [2, 4], "b.point.y.mean(every=2)": 2.5, "b.point.mean(every=2)": (1.0, 2.5),
    "b.table.map(lambda v: v.max())": {"f": 3, "g": 4.0}, "b.point": (1, 2.5), "len(b.table)": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """Return the live and the recorded answers to each query."""
    folder = tmp_path_factory.mktemp("fields")
    with (
        sg.init("fields", dir=folder, budget=None, record=[f"b.{name}" for name in OFFERED]) as run,
        sg.connect(run) as client,
    ):
        streams = {query: client.stream(query) for query in QUERIES}
        for _ in range(2):
            run.observe("b", **OFFERED)
        live = {query: stream.wait(1, timeout_s=30)[0].value for query, stream in streams.items()}
    with sg.open(run.directory) as old:
        return live, {query: old.stream(query).wait(1, timeout_s=30)[0].value for query in QUERIES}


@pytest.mark.parametrize("query", QUERIES)
def test_fields_are_there_live_and_recorded(asked, query):
    live, recorded = asked
    assert live[query] == recorded[query] == QUERIES[query]
    assert type(live[query]) is type(recorded[query])


def test_a_client_gets_the_fields_and_may_pass_them_to_another_process(asked):
    for answers in asked:
        point = pickle.loads(pickle.dumps(answers["b.point"]))
        assert (point.x, point.y, repr(point)) == (1, 2.5, "Fields(x=1, y=2.5)")
