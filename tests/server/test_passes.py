"""Charts of recorded runs: in the order of recording, in parts where a clock was set back or the run began again."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sightglass as sg
from sightglass.core.columns import Columns
from sightglass.server.runs import scalar_lines
from sightglass.server.runs.scalar_lines import Overview

SMALL = {"CHUNK_ROWS": 256, "MAX_ROWS": 128, "RUN_ROWS": 4, "TAIL_ROWS": 16}
EVERYTHING = {"low": -np.inf, "high": np.inf, "origin": 0.0}


class Rows:
    """A series in blocks of some rows, as it lies in files."""

    tag = "y"

    def __init__(self, walls, steps=None, restarts=(), block=100, damaged=()):
        self.walls = np.asarray(walls, float)
        self.steps = np.arange(len(walls)) if steps is None else np.asarray(steps)
        self.values = np.random.default_rng(len(walls)).normal(size=len(walls))
        self.restarts, self.block, self.n, self.damaged = tuple(restarts), block, len(walls), damaged

    def __len__(self):
        return self.n

    def blocks(self, start, stop):
        for number in range(start // self.block, -(-stop // self.block)):
            low = max(start, number * self.block)
            rows = slice(low, min(stop, (number + 1) * self.block))
            if number in self.damaged:
                continue
            yield Columns(index=low, steps=self.steps[rows], wall_times=self.walls[rows], values=self.values[rows])


def walls_of(lengths, setbacks):
    """Return wall times at one row a second, set back between parts of some lengths."""
    walls = np.arange(sum(lengths), dtype=float) + 1e9
    for row, by in zip(np.cumsum(lengths)[:-1], setbacks, strict=True):
        walls[row:] -= by + 1
    return walls


@st.composite
def recordings(draw):
    lengths = draw(st.lists(st.integers(8, 400), min_size=1, max_size=6))
    setbacks = draw(st.lists(st.integers(1, 500), min_size=len(lengths) - 1, max_size=len(lengths) - 1))
    starts = np.cumsum(lengths)[:-1].tolist()
    restarts = draw(st.lists(st.sampled_from(starts), unique=True).map(sorted)) if starts else []
    return walls_of(lengths, setbacks), starts, restarts


def overview_of(rows, cuts=()):
    """Return the overview of a series that was read whenever it had grown to some lengths."""
    found = Overview(0)
    for n in (*sorted(cuts), len(rows.walls)):
        rows.n = n
        found.extend(rows)
    return found


@pytest.fixture(scope="module", autouse=True)
def small():
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL.items():
            patch.setattr(scalar_lines, name, value)
        yield


def recorded_rows(line, rows):
    """Return the row of each point; values are all different."""
    order = np.argsort(rows.values)
    return order[np.searchsorted(rows.values, line.y, sorter=order)]


@given(
    recording=recordings(), x=st.sampled_from(["relative", "wall", "step"]), points=st.integers(2, 2000), data=st.data()
)
def test_points_come_in_the_order_of_recording_in_parts(recording, x, points, data):
    walls, setbacks, restarts = recording
    rows = Rows(walls, restarts=restarts, block=data.draw(st.integers(1, 300)))
    found = overview_of(rows, data.draw(st.lists(st.integers(1, len(walls) - 1), max_size=3)))
    whole = found.line(rows, x=x, points=points, **EVERYTHING)
    low, high = sorted(data.draw(st.tuples(*[st.floats(float(whole.x.min()), float(whole.x.max()))] * 2)))
    starts = sorted({0, *(setbacks if x == "wall" else restarts)})
    places = {"step": rows.steps, "wall": walls}.get(x)
    if places is None:
        places = walls - np.cumsum(np.minimum(0, np.diff(walls, prepend=walls[0])))
        assert (np.diff(places) >= 0).all()
    for bounds in ((-np.inf, np.inf), (low, high)):
        line = found.line(rows, x=x, points=points, low=bounds[0], high=bounds[1], origin=0.0)
        shown = recorded_rows(line, rows)
        inside = np.flatnonzero((places >= bounds[0]) & (places <= bounds[1]))
        assert (np.diff(shown) > 0).all()
        assert set(shown) <= set(inside)
        np.testing.assert_allclose(line.x, places[shown], rtol=0, atol=1e-3)
        if not line.thinned:
            assert shown.tolist() == inside.tolist()
        elif len(inside):
            assert {np.argmin(rows.values[inside]), np.argmax(rows.values[inside])} <= set(
                np.searchsorted(inside, shown)
            )
        # Each part is of one pass, and of each pass all points are in a part, at least once.
        numbers = np.searchsorted(starts, shown, side="right") - 1
        for part in line.parts:
            assert set(numbers[part.rows]) <= {part.number}
            assert (np.diff(line.x[part.rows]) >= 0).all()
        assert {i for part in line.parts for i in range(part.rows.start, part.rows.stop)} == set(range(len(shown)))
        assert line.parts[-1].number == len(starts) - 1
        np.testing.assert_allclose(line.restarts, places[list(restarts)], rtol=0, atol=1e-3)


@pytest.mark.parametrize(("x", "first"), [("relative", 1e9), ("wall", 1e9), ("step", 0.0)])
def test_a_spike_at_the_edge_of_a_range_is_not_hidden_by_one_beyond_it(x, first):
    rows = Rows(1e9 + np.arange(1000.0))
    low, high = 402, 598
    rows.values[[low - 1, low, high, high + 1]] = 100.0, 10.0, -10.0, -100.0
    found = overview_of(rows)
    line = found.line(rows, x=x, points=2, low=first + low, high=first + high, origin=0.0)
    assert (found.run_rows, line.thinned) == (16, True)
    assert (line.y.max(), line.y.min()) == (10.0, -10.0)


def test_a_range_of_few_rows_in_a_chunk_of_many_has_all_of_them():
    ages = np.concatenate([np.arange(248) / 248, np.arange(300.0, 1100.0, 100.0), np.arange(2000.0, 2744.0)])
    rows = Rows(1e9 + ages)
    line = overview_of(rows).line(rows, x="wall", points=4, low=1e9 + 350, high=1e9 + 1000, origin=0.0)
    assert recorded_rows(line, rows).tolist() == list(range(249, 256))


@given(recording=recordings(), x=st.sampled_from(["relative", "wall", "step"]), data=st.data())
def test_a_line_that_grew_is_the_line_that_is_read_at_once(recording, x, data):
    walls, _, _ = recording
    rows = Rows(walls)
    found, n, line = Overview(0), 0, None
    while n < len(walls):
        n = data.draw(st.integers(n + 1, len(walls)))
        rows.n = n
        found.extend(rows)
        more = found.line(rows, x=x, points=5000, since=0 if line is None else line.n_rows, **EVERYTHING)
        if line is None or not more.since:
            xs, shown = more.x, recorded_rows(more, rows)
        else:
            assert more.since == line.n_rows
            xs, shown = np.append(xs, more.x), np.append(shown, recorded_rows(more, rows))
        line = more
    assert shown.tolist() == list(range(n))
    np.testing.assert_allclose(xs, found.line(rows, x=x, points=5000, **EVERYTHING).x)


def test_what_a_later_pass_did_again_fades_at_every_zoom():
    steps = [*range(300), *range(100, 180)]
    rows = Rows(1e9 + np.arange(380.0), steps=steps, restarts=[300])
    found = overview_of(rows)
    for low, high in ((-np.inf, np.inf), (90, 400), (150, 170), (200, 250)):
        line = found.line(rows, x="step", low=low, high=high, points=1000, origin=0.0)
        strength = {(line.x[i], part.number): part.alpha for part in line.parts for i in range(*part.rows.indices(999))}
        for (at, number), alpha in strength.items():
            assert alpha == (1 if number == 1 or at < 100 else pytest.approx(0.31)), (at, number)


@pytest.mark.parametrize("damaged", [(), (0,), (0, 1, 2), (1,), (3,), range(4)])
def test_damaged_blocks_leave_the_parts_of_the_rest(damaged):
    walls = walls_of([200, 190], [150])
    rows = Rows(walls, restarts=[200], block=100, damaged=damaged)
    found = overview_of(rows)
    for x in ("wall", "relative"):
        line = found.line(rows, x=x, points=500, **EVERYTHING)
        shown = recorded_rows(line, rows)
        assert set(range(390)) - set(shown) == {row for row in range(390) if row // 100 in damaged}
        assert (np.diff(shown) > 0).all()
        for part in line.parts:
            assert len(set(shown[part.rows] >= 200)) <= 1
            assert (np.diff(line.x[part.rows]) > 0).all()


def test_records_out_of_order_are_one_line_in_the_order_of_x():
    walls = 1e9 + np.random.default_rng(0).permutation(1000)
    found = overview_of(rows := Rows(walls))
    for x in ("relative", "wall"):
        line = found.line(rows, x=x, points=2000, **EVERYTHING)
        assert (np.diff(line.x) > 0).all()
        assert [part.rows for part in line.parts] == [slice(0, 1000)]
        assert found.line(rows, x=x, points=2000, since=999, **EVERYTHING).since == 0


def test_a_run_that_continues_in_its_directory_is_marked(page):
    for begin, loss in ((0, 1.0), (60, 2.0)):
        with sg.init("again", files=sg.Files(into="runs/again")) as run:
            for step in range(begin, begin + 100):
                run.log({"loss": loss + step}, step=step)
    path = f"/runs/{page.key('again')}/scalars"
    whole = page.json(path, tag="loss")
    assert whole["parts"] == [[0, 60, 1.0, 0], [60, 160, 1.0, 1]]
    assert whole["restarts"] == [60]
    assert page.json(path, tag="loss", x="wall")["restarts"] == [whole["wall"][60]]
    with sg.init("again", files=sg.Files(into="runs/again")) as run:
        run.log({"loss": 0.0}, step=160)
        run.flush()
        again = page.json(path, tag="loss", since=whole["cursor"])
        assert (again["continued"], again["n"], again["restarts"]) == (False, 161, [60, 160])
        run.log({"loss": 5.0}, step=161)
        run.flush()
        more = page.json(path, tag="loss", since=again["cursor"])
        assert (more["continued"], more["y"], more["parts"][-1]) == (True, [5.0], [0, 1, 1.0, 2])
        reply = page.post(
            "/scalars", {"requests": [{"run": page.key("again"), "tag": "loss", "since": more["cursor"]}]}
        )
        [packed] = msgspec.msgpack.decode(reply.content)
        assert (packed["continued"], packed["n"], packed["x"]) == (True, 0, b"")
