"""Saved streams: every record once, with the stages added in the client; and the errors."""

from __future__ import annotations

import errno
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.profiles import examples
from tests.still import Still

import sightglass as sg
from sightglass.client.streams.arrivals import WAIT_S
from sightglass.client.streams.save import Saving
from sightglass.core.errors import StorageError, UnsendableError


@pytest.fixture
def live(begin, ask):
    """Return a run, and a client of it."""
    run = begin()
    return run, ask(run)


def train(run, n=20, start=0):
    for step in range(start, start + n):
        run.observe("batch", step=step, loss=float(step), x=np.full(3, step))


def fields(records):
    return [(r.tag, r.index, r.step, r.wall_time, r.value, r.n_events, r.complete, r.closed, r.steps) for r in records]


STEPS = {
    "as it is": lambda s: s,
    "mapped": lambda s: s.map(lambda x: {"twice": 2 * x, "text": f"✓ {x}"}),
    "windows": lambda s: s.mean(every=7),
    "nested": lambda s: s.sum(every=3).max(every=2),
    "filtered": lambda s: s.where(lambda x: x % 3 == 0),
    "tuples": lambda s: s.map(lambda x: (x, [x, None])),
    "zipped": lambda s: s.zip(s.map(lambda x: -x)),
    "NaN": lambda s: s.map(lambda x: float("nan") if x % 2 else 1),
    "histograms": lambda s: s.histogram(4, every=5),
}


@pytest.mark.parametrize("name", STEPS)
def test_the_file_holds_the_records_of_the_stream(live, tmp_path, name):
    run, client = live
    stream = STEPS[name](client.stream("batch.loss"))
    saving = stream.save(tmp_path / "s.sgr")
    train(run)
    run.close()
    assert saving.wait(60)
    saving.close()
    records = list(stream)
    assert saving.n_records == len(records) > 0
    assert repr(saving) == f"<Saving {stream.tag!r} into {str(tmp_path / 's.sgr')!r}, {len(records)} records>"
    with sg.open(tmp_path / "s.sgr") as old:
        assert old.tags() == [stream.tag]
        assert repr(fields(old.series(stream.tag))) == repr(fields(records))
        assert repr(fields(old.stream(stream.query or stream.tag))) == repr(fields(records))
        assert old.check().intact


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pauses=st.lists(st.integers(1, 30), max_size=4))
def test_each_record_is_saved_once_whenever_it_arrives(pauses, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "s.sgr"
    with sg.init("job", budget=None) as run, sg.connect(run) as client:
        stream = client.stream("batch.loss")
        with stream.save(path) as saving:
            for i, n in enumerate(pauses):
                train(run, n, start=sum(pauses[:i]))
                stream.wait(sum(pauses[: i + 1]), timeout_s=60)
            run.close()
            assert saving.wait(60)
    with sg.open(path) as old:
        assert [r.value for r in old.series("batch.loss")] == list(range(sum(pauses))) if pauses else not old.tags()


def test_a_saved_stream_answers_further_queries(live, tmp_path):
    run, client = live
    with client.stream("batch.loss").save(tmp_path / "s.sgr") as saving:
        train(run)
        run.close()
        saving.wait(60)
    with sg.open(tmp_path / "s.sgr") as old:
        assert [r.value for r in old.stream("batch.loss.mean(every=10)")] == [4.5, 14.5]
        assert [r.value for r in old.stream(sg.on("batch").map(lambda b: b.loss * 2 + b.step))] == [
            3.0 * n for n in range(20)
        ]
        with pytest.raises(sg.QueryError, match=r"batch\.loss"):
            old.stream("batch.x")


def test_a_recorded_stream_is_saved_too(live, tmp_path):
    run, client = live
    client.record("batch.loss")
    train(run)
    run.close()
    with sg.open(run.directory) as old:
        stream = old.stream("batch.loss.mean(every=5)")
        with stream.save(tmp_path / "s.sgr") as saving:
            assert saving.wait(60)
        with sg.open(tmp_path / "s.sgr") as again:
            assert fields(again.stream("batch.loss.mean(every=5)")) == fields(stream)


def test_joined_streams_are_saved_as_separate_series(live, tmp_path):
    run, client = live
    loss = client.stream("batch.loss")
    union = loss.union(loss.map(lambda x: -x))
    with union.save(tmp_path / "any name") as saving:
        train(run)
        run.close()
        assert saving.wait(60)
    with sg.open(tmp_path / "any name") as old:
        assert old.tags() == ["job/batch.loss", "job/batch.loss.map"]
        assert [r.value for r in old.series("job/batch.loss.map")] == [-float(n) for n in range(20)]
        assert [r.index for r in old.stream("job/batch.loss")] == list(range(20))


def test_closing_before_the_stream_ends_saves_nothing_more(live, tmp_path):
    run, client = live
    stream = client.stream("batch.loss")
    saving = stream.save(tmp_path / "s.sgr")
    train(run)
    stream.wait(20, timeout_s=60)
    saving.close()
    saving.close()
    train(run, start=20)
    stream.wait(40, timeout_s=60)
    with sg.open(tmp_path / "s.sgr") as old:
        assert len(old.series("batch.loss")) == saving.n_records == 20


def test_files_that_cannot_be_created(live, tmp_path):
    _, client = live
    stream = client.stream("batch.loss")
    (tmp_path / "there").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    places = {tmp_path / "there": FileExistsError, tmp_path: FileExistsError, tmp_path / "link": FileExistsError,
              tmp_path / "no" / "such": FileNotFoundError, 3: TypeError}  # fmt: skip
    for path, error in places.items():
        with pytest.raises(error):
            stream.save(path)
    assert (tmp_path / "there").read_text() == "x"


def test_close_raises_for_values_that_cannot_be_saved(live, tmp_path):
    run, client = live
    stream = client.stream("batch.loss").map(lambda x: object())
    with pytest.warns(RuntimeWarning, match="'batch.loss.map'.*got object"):  # noqa: PT031
        saving = stream.save(tmp_path / "s.sgr")
        train(run)
        run.close()
        assert saving.wait(60)
    with pytest.raises(UnsendableError, match="got object"):
        saving.close()
    saving.close()


class Odd:
    """A value that cannot be converted."""

    shape, dtype, ndim = (1,), None, 1

    def __array__(self, *_, **__):
        raise RecursionError("no end")


def test_a_value_that_cannot_be_saved_costs_its_record(live, tmp_path):
    run, client = live
    odd = {3: object(), 7: Odd(), 8: float("nan")}
    stream = client.stream("batch.loss").map(lambda x: odd.get(x, x))
    with pytest.warns(RuntimeWarning, match="record") as warned:  # noqa: PT031
        saving = stream.save(tmp_path / "s.sgr")
        train(run)
        run.close()
        assert saving.wait(60)
    assert len(warned) == 1
    assert (saving.n_records, saving.n_lost) == (18, 2)
    with pytest.raises(UnsendableError, match="got object"):
        saving.close()
    with sg.open(tmp_path / "s.sgr") as old:
        assert [r.index for r in old.series("batch.loss.map")] == [n for n in range(20) if n not in (3, 7)]


class FullDisk:
    """Wraps an open file; writes nothing while the disk is full."""

    def __init__(self, file):
        self.file = file
        self.full = True

    def write(self, buffers):
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self.file.write(buffers)

    def __getattr__(self, name):
        return getattr(self.file, name)


def stopped(live, path):
    """Return a run, and a saving that the test drives, on a disk that is full."""
    run, client = live
    stream = client.stream("batch.loss")
    saving = Saving(stream, path, worker=Still)
    saving._writer._file = disk = FullDisk(saving._writer._file)
    train(run)
    stream.wait(20, timeout_s=60)
    with pytest.warns(RuntimeWarning, match="'batch.loss'.*OSError"):
        assert saving.round(0.0) == WAIT_S
    return run, stream, saving, disk


def test_records_wait_while_the_disk_is_full(live, tmp_path):
    run, stream, saving, disk = stopped(live, tmp_path / "s.sgr")
    train(run, start=20)
    stream.wait(40, timeout_s=60)
    for _ in range(5):
        assert saving.round(0.0) == WAIT_S
        assert (saving.n_records, saving._writer.n_waiting) == (0, 20)
    disk.full = False
    assert saving.round(0.0) == WAIT_S
    assert saving.round(0.0) == 0.0
    saving._closed = True
    assert saving.round(0.0) is None
    saving.close()
    assert (saving.n_records, saving.n_lost) == (40, 0)
    with sg.open(tmp_path / "s.sgr") as old:
        assert [r.value for r in old.series("batch.loss")] == list(range(40))


def test_records_that_find_no_room_until_the_end_are_counted(live, tmp_path):
    run, stream, saving, _ = stopped(live, tmp_path / "s.sgr")
    run.close()
    stream.wait(20, timeout_s=60)
    saving._closed = True
    assert saving.round(0.0) is None
    assert (saving.n_records, saving.n_lost) == (0, 20)
    with pytest.raises(StorageError, match=r"'batch.loss'.*No space"):
        saving.close()


def test_close_raises_the_error_of_a_stage(live, tmp_path):
    run, client = live
    stream = client.stream("batch.loss").map(lambda x: 1 / (x - 3))
    with pytest.warns(RuntimeWarning, match="ZeroDivisionError"):  # noqa: PT031
        saving = stream.save(tmp_path / "s.sgr")
        train(run)
        run.close()
        assert saving.wait(60)
    with pytest.raises(ZeroDivisionError):
        saving.close()
    with sg.open(tmp_path / "s.sgr") as old:
        assert old.check().intact


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning", "ignore:os.fork:RuntimeWarning")
def test_a_fork_writes_nothing(live, tmp_path):
    run, client = live
    stream = client.stream("batch.loss")
    saving = stream.save(tmp_path / "s.sgr")
    train(run, 500)
    child = os.fork()
    if not child:
        try:
            saving.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    train(run, 500, start=500)
    run.close()
    assert saving.wait(60)
    saving.close()
    with sg.open(tmp_path / "s.sgr") as old:
        assert [r.value for r in old.series("batch.loss")] == list(range(1_000))
        assert old.check().intact
