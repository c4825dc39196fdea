"""Recorded runs as users see them: queried, followed, closed in any order; and the errors."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import threading
import time
import warnings

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from tests.growing import FOREIGN, Growing

import sightglass as sg
from sightglass.client.recorded.playback import SETTLED_S
from sightglass.core.errors import UnknownNameError
from sightglass.storage.format import framing, summary


@pytest.fixture
def recorded(begin, tmp_path):
    """Return the directory of a run that recorded series of every kind."""
    run = begin("job", dir=tmp_path / "runs", record=["batch.loss", "epoch.accuracy"])
    run.observe("init", snapshot=True, params={"w": np.eye(2)}, lr=0.1)
    for step in range(20):
        run.observe("batch", step=step, loss=float(step), lr=0.5)
        run.log({"val": {"loss": step / 2}, "kernel": np.full((2, 3), step)}, step=step, epoch=step / 10)
        if step % 10 == 9:
            run.observe("epoch", accuracy=step / 20)
            run.end_group("batch")
    run.close()
    return run.directory


def values(stream):
    return [record.value for record in stream]


# Asking


def test_recorded_series_answer_in_every_spelling(recorded):
    with sg.open(recorded) as old:
        assert old.tags() == ["batch.loss", "epoch.accuracy", "kernel", "val/loss"]
        assert values(old.stream("batch.loss")) == list(range(20))
        assert values(old.stream(sg.on("batch").map(lambda b: b.loss * 2).sum())) == [90, 290]
        assert values(old.stream("batch.loss.mean(per='epoch')")) == [4.5, 14.5]
        assert values(old.stream("val/loss")) == values(old.stream("log['val/loss']")) == [n / 2 for n in range(20)]
        assert values(old.stream(sg.on("init").map(lambda e: e.params["w"][0, 0] + e.lr))) == [1.1]
        assert old.stream("val/loss").latest.steps == {"epoch": 1.9}
        assert old.stream("batch.loss").map(lambda x: x + 1).max(every=10).wait(2)[1].value == 20
        assert old.stream("batch.loss").zip(old.stream("val/loss")).latest.value == (19.0, 9.5)


@pytest.mark.parametrize(("query", "message"), [
    ("val/los", "'val/los'.*'val/loss'.*kernel, val/loss"),
    ("kernl", "'kernl'.*'kernel'"),
    ("some/thing", r"log\['some/thing'\].*series"),
    ("batch.lr", r"batch\.loss, epoch\.accuracy\. .*on\('init'\)\. .*'kernel', 'val/loss'\.$"),
    ("batch.loss.mean(per='epcoh')", "per='epcoh'"),
    ("", "query"),
    (3, "got 3$"),
    (None, "got None$"),
])  # fmt: skip
def test_a_query_that_cannot_be_answered_says_why(recorded, query, message):
    with sg.open(recorded) as old, pytest.raises(sg.QueryError, match=message):
        old.stream(query)


def test_names_that_do_not_exist(recorded, tmp_path):
    with sg.open(recorded) as old:
        with pytest.raises(UnknownNameError, match=r"'kernl'.*'kernel'"):
            old.series("kernl")
        with pytest.raises(UnknownNameError, match="4 and 5"):
            old.series("kernel").at(4.5)
        with pytest.raises(UnknownNameError, match=r"rank 7 .*Known: 0"):
            old.rank(7)
    with pytest.raises(UnknownNameError, match=r"rank 7 .*Known: 0"):
        sg.open(recorded, rank=7)
    with sg.open(recorded.parent, rank=7) as runs:
        assert runs.tags() == []
        with pytest.raises(UnknownNameError, match="rank 7"):
            runs.stream("batch.loss")
        with pytest.raises(UnknownNameError, match=r"'nope'.*job-"):
            runs["nope"]
    with pytest.raises(sg.RunNotFoundError, match="nowhere'"):
        sg.open(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(sg.RunNotFoundError, match="empty'"):
        sg.open(tmp_path / "empty")
    (tmp_path / "text").write_text("hello " * 20)
    with pytest.raises(sg.DamagedError, match=r"text$"):
        sg.open(tmp_path / "text")


def test_snapshots_of_some_events_do_not_hide_records_of_all_events(begin, tmp_path):
    run = begin(dir=tmp_path, record=["batch.loss", "epoch.n"])
    for step in range(20):
        run.observe("batch", **({"snapshot": True} if step == 0 else {}), step=step, loss=float(step))
        if step % 5 == 4:
            run.observe("epoch", **({"snapshot": True} if step == 4 else {}), n=step)
    run.close()
    with sg.open(run.directory) as old:
        assert values(old.stream(sg.on("batch").map(lambda b: b.loss * 2))) == [2.0 * n for n in range(20)]
        assert values(old.stream(sg.on("batch").map(lambda b: b.loss).count(per="epoch"))) == [5, 5, 5, 5]


def test_a_series_that_began_later_is_queried_from_there(begin, ask, tmp_path):
    run = begin(dir=tmp_path, record=["batch.loss"])
    client = ask(run)
    for step in range(30):
        if step == 13:
            client.record("batch.lr")
            late = client.stream(sg.on("batch").map(lambda b: b.loss * b.lr).count(every=10))
        run.observe("batch", step=step, loss=float(step), lr=2.0)
    run.close()
    with sg.open(run.directory) as old:
        assert values(old.stream(sg.on("batch").map(lambda b: b.loss * b.lr))) == [2.0 * n for n in range(13, 30)]
        counted = old.stream(sg.on("batch").map(lambda b: b.loss * b.lr).count(every=10))
        rows = [[(r.step, r.value, r.n_events, r.complete, r.closed) for r in stream] for stream in (late, counted)]
        assert rows[0] == rows[1]
        assert [(value, complete) for _, value, _, complete, _ in rows[1]] == [(7, False), (10, True)]
        assert counted.statistics().n_errors == 0


# Closing


def test_records_read_before_closing_stay_and_the_rest_is_an_error(recorded):
    old = sg.open(recorded)
    read, unread = old.stream("batch.loss"), old.stream("val/loss")
    assert len(list(read)) == 20
    old.close()
    old.close()
    assert len(list(read)) == len(read.to_arrays().values) == 20
    with pytest.raises(sg.RunLostError, match=r"'job'.*'val/loss'"):
        list(unread)
    for use in (old.tags, old.describe, lambda: old.series("kernel"), lambda: old.stream("batch.loss"),
                lambda: old.history):  # fmt: skip
        with pytest.raises(sg.RunLostError, match=r"'job'.*closed"):
            use()
    assert repr(old) == f"<RecordedRun 'job' in {str(recorded)!r}, closed>"
    assert (old.name, old.config, old.ended) == ("job", {}, True)


def test_runs_may_be_closed_recorded_and_written_in_any_order(begin, ask, tmp_path):
    run = begin(dir=tmp_path, record=["batch.loss"])
    client = ask(run)
    run.observe("batch", loss=1.0)
    run.close()
    run.close()
    run.flush()
    run.log({"x": 1})
    run.observe("batch", loss=2.0)
    run.end_group("batch")
    with pytest.raises(sg.RunLostError, match="has ended"):
        client.record("batch.loss")
    with sg.open(run.directory) as old:
        assert (old.tags(), values(old.stream("batch.loss"))) == (["batch.loss"], [1.0])


@pytest.mark.parametrize("options", [{"mode": "disabled", "record": ["batch.loss"]}, {}, {"record": ["batch.loss"]}])
def test_a_run_that_records_nothing_leaves_no_files(begin, tmp_path, options):
    run = begin(dir=tmp_path / "runs", **options)
    run.observe("other", snapshot=options.get("mode") == "disabled", x=1)
    run.end_group("other")
    if options.get("mode"):
        run.log({"x": 1})
    run.flush()
    run.close()
    assert not (tmp_path / "runs").exists()


def test_an_exception_in_the_training_is_recorded(tmp_path):
    for error, state in ((RuntimeError, "failed"), (KeyboardInterrupt, "terminated")):
        with pytest.raises(error), sg.init("bad", dir=tmp_path) as run:  # noqa: PT012
            run.log({"x": 1})
            raise error
        with sg.open(run.directory) as old:
            assert (old.describe().state, values(old.stream("x"))) == (state, [1])


# Following


def test_a_run_is_followed_and_its_directory_vanishes(begin, tmp_path):
    run = begin(dir=tmp_path, record=["batch.loss"])
    for step in range(10):
        run.observe("batch", step=step, loss=float(step))
    run.flush()
    with sg.open(run.directory, follow=True) as old:
        loss = old.stream("batch.loss")
        assert len(loss.wait(10, timeout_s=20)) == 10
        assert not loss.ended
        shutil.rmtree(run.directory)
        assert len(loss.records()) == 10
        run.observe("batch", step=10, loss=10.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # that it was removed
            run.flush()
        run.close()
        assert values(loss)[:10] == list(range(10))
    with sg.open(run.directory) as new:
        assert values(new.stream("batch.loss")) == [10.0]


def test_after_flush_another_process_sees_everything(begin, tmp_path):
    run = begin(dir=tmp_path, record=["batch.loss"])
    code = "import sys, sightglass as sg; print(*(r.value for r in sg.open(sys.argv[1]).stream('batch.loss')))"
    for n in (5, 10):
        for step in range(n - 5, n):
            run.observe("batch", step=step, loss=step)
        run.flush()
        child = subprocess.run([sys.executable, "-O", "-c", code, str(run.directory)], capture_output=True, text=True,
                              timeout=60, check=True)  # fmt: skip
        assert child.stdout.split() == [str(step) for step in range(n)]


def test_joined_series_with_gaps_are_followed_without_a_record_twice(begin, ask, tmp_path, monkeypatch):
    """Records that wait for other series begin after a gap."""
    monkeypatch.setattr("sightglass.client.recorded.run.SETTLED_S", 0.3)
    run = begin(dir=tmp_path, record=["batch.loss"])
    client = ask(run)
    with sg.open(_begun(run), follow=True) as old:
        for round in range(4):
            client.record("batch.lr")
            for _ in range(25):
                run.observe("batch", loss=1.0, lr=2.0)
            run.flush()
            client.unrecord("batch.lr")
            for _ in range(5):
                run.observe("batch", loss=1.0, lr=2.0)
            run.flush()
            if round == 0:
                both = old.stream(sg.on("batch").map(lambda b: b.loss + b.lr))
            both.since(0)
        run.close()
        n = len(list(both))
    assert n == 100


@pytest.mark.parametrize("by_s", [-3600.0, 3600.0])
def test_joined_series_are_followed_whatever_this_machines_clock_says(begin, tmp_path, monkeypatch, by_s):
    clock = FakeTime(by_s)
    monkeypatch.setattr("sightglass.client.recorded.playback.time", clock)
    run = begin(dir=tmp_path, record=["batch.loss", "batch.lr"])
    with sg.open(_begun(run, lr=2.0), follow=True) as old:
        both = old.stream(sg.on("batch").map(lambda b: b.loss + b.lr))
        both.since(0)
        for n in range(2, 30):
            run.observe("batch", loss=1.0, lr=2.0)
            run.flush()
            for _ in range(4):
                both.since(0)
                clock.now_s += SETTLED_S / 3
            assert len(both.records()) == n
            assert both.statistics().n_errors == 0
        run.close()


class FakeTime:
    """A monotonic clock that the test moves, and a wall clock that is set to another time."""

    def __init__(self, by_s):
        self.now_s, self._by_s = 100.0, by_s

    def monotonic(self):
        return self.now_s

    def time(self):
        return time.time() + self._by_s


def test_a_stream_has_what_somebody_else_who_shares_the_files_saw_first(begin, tmp_path):
    run = begin(dir=tmp_path, record=["batch.loss"])
    with sg.open(_begun(run), follow=True) as old:
        stream = old.stream("batch.loss")
        stream.since(0)
        run.observe("batch", loss=1.0)
        run.flush()
        old.tags()  # looks at the files
        assert len(stream.records()) == 2


@pytest.mark.parametrize("dialect", sorted(FOREIGN))
def test_files_that_another_program_writes_are_followed_until_they_stay_as_they_are(tmp_path, dialect):
    file = Growing(tmp_path, dialect)
    with sg.open(file.path.parent, follow=True) as old, sg.open(file.path.parent) as still:
        stream = old.stream("log['loss']")
        assert not stream.ended
        assert still.stream("log['loss']").ended
        while file.parts:
            n = len(stream.records())
            file.append()
            assert len(stream.records()) > n
        assert not stream.ended
        os.utime(file.path, (1e9, 1e9))
        assert [record.step for record in stream] == old.series("loss").steps.tolist()


def _begun(run, **observables):
    run.observe("batch", loss=0.0, **observables)
    run.flush()
    return run.directory


# Folders


def test_the_runs_of_a_folder_are_queried_together(begin, tmp_path):
    for name in "abc":
        with sg.init(name, dir=tmp_path) as run:
            run.log({f"only/{name}": 1.0, "all": name})
    (tmp_path / "newer").mkdir()
    version = framing.frame(summary.encode_version("Sightglass.Event:9", 1.0))
    (tmp_path / "newer" / "1000-rank0-0000.sgr").write_bytes(b"".join(map(bytes, version)))
    for optimized in ("", "-O"):  # nothing hangs on an assertion
        code = "import sys, sightglass as sg; print(*sorted(r.value for r in sg.open(sys.argv[1]).stream('all')))"
        command = [sys.executable, *filter(None, [optimized]), "-c", code, str(tmp_path)]
        child = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
        assert child.stdout.split() == ["a", "b", "c"]
    with sg.open(tmp_path) as runs:
        assert len(runs) == 4
        assert runs.tags() == ["all", "only/a", "only/b", "only/c"]
        assert {record.run for record in runs.stream("all")} == {"a", "b", "c"}
        assert [record.run for record in runs.stream("only/b")] == ["b"]
        with pytest.raises((sg.QueryError, sg.DamagedError)):
            runs.stream("none of them")
        shutil.rmtree(run.directory)
        assert len(list(runs.stream("all"))) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="limits of Unix")
@pytest.mark.parametrize("follow", [False, True])
def test_a_folder_has_more_runs_than_files_may_be_open(tmp_path, follow):
    with sg.init("a", dir=tmp_path) as run:
        run.log({"x": 1})
    for i in range(80):
        shutil.copytree(run.directory, tmp_path / f"copy{i}")
    code = f"""
import resource, sys, sightglass as sg
resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))
with sg.open(sys.argv[1], follow={follow}) as runs:
    print(len(list(runs.stream("x"))), runs.tags())
"""
    child = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60,
                          check=True)  # fmt: skip
    assert child.stdout == "81 ['x']\n"


# Values

RNG = np.random.default_rng(0)
ODD = {
    "jax": None, "torch": None, "half": None,
    "bfloat16": np.array([1.5, -2.5], ml_dtypes.bfloat16), "complex": np.array([1 + 2j]), "empty": np.zeros((0, 3)),
    "scalar": np.float32(0.1), "huge": 2**200, "negative": -(2**63), "uint64": np.array([2**64 - 1], np.uint64),
    "day": np.array(["2020-02-29", "NaT"], "datetime64[D]"), "nan": float("nan"), "none": None, "flag": True,
    "text": "ü✓\n\t\x00" * 20_000, "bytes": b"\x00\xff", "nested": [1, [2.5, "x"]], "tuple": (1, 2.0),
    "imaginary": 1 + 2j, "fortran": np.asfortranarray(RNG.normal(size=(3, 4))), "strided": np.arange(20)[::-3],
    "zero": np.array(7), "big": RNG.normal(size=(300, 300)),
}  # fmt: skip


def same(a, b):
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and (a == b or (a != a and b != b))


@pytest.mark.parametrize("name", ODD)
def test_odd_values_come_back_as_they_were_logged(begin, tmp_path, name):
    given = ODD[name]
    if name == "jax":
        given = jnp.arange(6.0).reshape(2, 3)  # not before: it would begin with the devices that there are
    if name in ("torch", "half"):
        torch = pytest.importorskip("torch")
        given = {"torch": lambda: torch.arange(6).reshape(2, 3), "half": lambda: torch.ones(3, dtype=torch.half)}[
            name
        ]()
    run = begin(dir=tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run.log({name: given})
        run.log({name: 1})  # another type under the same tag
        run.close()
    expected = np.asarray(given) if getattr(given, "shape", ()) else given
    with sg.open(run.directory) as old:
        first, second = old.series(name)[0].value, old.stream(name).latest.value
        if not getattr(ODD[name], "shape", True):
            assert first == expected
        else:
            assert same(list(expected) if isinstance(expected, tuple) and isinstance(first, list) else expected, first)
        assert second == 1
        assert len(list(old.stream(name))) == 2


TAGS = ["", " ", "a'b", 'a"b', "new\nline", "ünï/✓", "x" * 5_000, "[red]", "loss[train]", "batch.loss", "3",
        "on('batch')", "a{b}", "\\", "\x00", "step2", "a/b/c", "lambda"]  # fmt: skip


def test_odd_tags_are_queried_by_name(begin, tmp_path):
    run = begin(dir=tmp_path)
    run.log({tag: i for i, tag in enumerate(TAGS)})
    run.close()
    with sg.open(run.directory) as old:
        assert old.tags() == sorted(TAGS)
        assert [old.series(tag)[0].value for tag in TAGS] == list(range(len(TAGS)))
        assert [old.stream(tag).latest.value for tag in TAGS] == list(range(len(TAGS)))


def test_many_rows(begin, tmp_path):
    n = 100_000
    run = begin(dir=tmp_path, record=["batch.loss"])
    for step in range(n):
        run.observe("batch", step=step, loss=step * 0.5)
        if step % 1_000 == 999:
            run.flush()
    run.close()
    with sg.open(run.directory) as old:
        arrays = old.stream("batch.loss").to_arrays()
        assert np.array_equal(arrays.steps, np.arange(n))
        assert np.array_equal(arrays.values, np.arange(n) * 0.5)
        assert values(old.stream(sg.on("batch").map(lambda b: b.loss).count())) == [n]
        assert values(old.stream("batch.loss.max(every=50000)")) == [24_999.5, 49_999.5]
        assert old.stream("batch.loss").statistics().n_lost == 0


# Several at once


def test_two_runs_of_one_process_write_side_by_side(begin, tmp_path):
    one, two = (begin("same", dir=tmp_path, record=["batch.loss"]) for _ in range(2))
    for step in range(100):
        one.observe("batch", loss=step)
        two.observe("batch", loss=-step)
    one.close()
    two.close()
    assert one.directory != two.directory
    for run, sign in ((one, 1), (two, -1)):
        with sg.open(run.directory) as old:
            assert old.id == run.id
            assert values(old.stream("batch.loss")) == [sign * step for step in range(100)]


def test_events_of_several_threads_are_recorded_in_order(begin, tmp_path):
    run = begin(dir=tmp_path, record=["batch.who"])

    def train(who):
        for step in range(500):
            run.observe("batch", who=1_000 * who + step)
            run.log({"who": 1_000 * who + step})

    threads = [threading.Thread(target=train, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    run.close()
    with sg.open(run.directory) as old:
        for tag in ("batch.who", "who"):
            records = list(old.stream(tag))
            assert [record.index for record in records] == list(range(2_000))
            assert sorted(record.value for record in records) == [1_000 * w + s for w in range(4) for s in range(500)]
            assert all(a.wall_time <= b.wall_time for a, b in itertools.pairwise(records))
            for who in range(4):
                mine = [record.value for record in records if record.value // 1_000 == who]
                assert mine == sorted(mine)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning", "ignore:os.fork:RuntimeWarning")
def test_a_fork_writes_nothing_and_disturbs_nothing(begin, tmp_path):
    run = begin(dir=tmp_path, record=["batch.loss"])
    for step in range(50):
        run.observe("batch", loss=step)
    child = os.fork()
    if not child:
        status = 1
        try:
            for _ in range(1_000):
                run.observe("batch", loss=-1)
                run.log({"child": 1})
            run.flush()
            run.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for step in range(50, 100):
        run.observe("batch", loss=step)
    run.close()
    with sg.open(run.directory) as old:
        assert old.tags() == ["batch.loss"]
        assert values(old.stream("batch.loss")) == list(range(100))
        assert old.check().intact


def test_names_may_be_long(begin):
    run = begin("long" * 100, record=["batch.loss"])
    run.observe("batch", loss=1)
    run.close()
    with sg.open(run.directory) as old:
        assert old.name == "long" * 100
        assert values(old.stream("batch.loss")) == [1]


def test_stages_run_on_records_of_registered_functions(begin, ask, tmp_path):
    run = begin(dir=tmp_path)
    run.function("double", lambda x: 2 * x)
    ask(run).record("double(batch.loss)")
    for step in range(20):
        run.observe("batch", loss=step)
    run.close()
    with sg.open(run.directory) as old:
        assert values(old.stream("double(batch.loss)")) == [2 * step for step in range(20)]
        assert values(old.stream("on('batch').map(lambda b: double(b.loss)).max(every=10)")) == [18, 38]


def test_the_described_directory_is_the_one_that_is_written(begin, ask, tmp_path):
    runs = [begin("same", dir=tmp_path) for _ in range(3)]  # within a second, at least two of them
    for run in runs:
        run.log({"id": run.id})
        run.flush()
    assert [ask(run).describe().directory for run in runs] == [str(run.directory) for run in runs]
