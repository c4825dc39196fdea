"""Many recorded runs asked at once: chosen, tabulated and reduced, on any executor."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import signal
import sys
import warnings
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from tests.growing import FIXTURES, FOREIGN
from tests.profiles import examples

import sightglass as sg
from sightglass.client.many import folder as many
from sightglass.client.many.table import RunsTable
from sightglass.storage import cache_file
from sightglass.storage.read import run_totals
from sightglass.views.surfaces.terminal.progress import TaskProgress

LOSS = "on('batch').map(lambda b: b.loss)"
ENDS = [
    "count()", "sum()", "mean()", "var()", "std()", "min()", "max()", "first()", "last()", "quantile(0.9)",
    "quantile([0.1, 0.5])", "histogram(16)", "top(4)", "top(3, key=lambda x: -x)", "collect(7)", "distinct(5)",
]  # fmt: skip
BEFORE = ["", ".map(lambda x: x * 2)", ".where(lambda x: x > 0)"]


@pytest.fixture(scope="module")
def losses():
    rng = np.random.default_rng(3)
    return [rng.normal(size=n).round(3).tolist() for n in (50, 1, 35, 1_200)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, losses):
    """Return a folder with the folder `runs`, of which the last began last, and the run `all` with all their events."""
    place = tmp_path_factory.mktemp("many")
    for number, values in enumerate(losses):
        record(place / "runs" / f"r{number}", values, lr=0.1 * number, opt={"name": "adam" if number % 2 else "sgd"})
    record(place / "all", [value for values in losses for value in values])
    return place


@pytest.fixture
def runs(folder):
    with sg.open(folder / "runs") as runs:
        yield runs


def record(directory: Path, values: list[float], **config: object) -> None:
    """Record a run of these losses, of which every third is labelled "c0"."""
    with sg.init(directory.name, dir=directory.parent, config=config, record=["batch.loss", "batch.label"]) as run:
        for i, value in enumerate(values):
            run.observe("batch", step=10 * i, loss=value, label=f"c{int(1000 * value) % 3}")
    run.directory.rename(directory)


def over_run(end: str) -> str:
    return end[:-1] + ("" if end.endswith("()") else ", ") + "per='run')"


def alone(folder: Path, query: str) -> object:
    with sg.open(folder / "all") as run:
        return run.stream(query).latest.value


def same(a: object, b: object) -> bool:
    if isinstance(a, sg.Histogram):
        return np.array_equal(a.counts, b.counts) and np.allclose(a.edges, b.edges)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return np.allclose(a, b, rtol=1e-6, equal_nan=True)


# Reductions


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("before", BEFORE)
def test_a_reduction_over_runs_is_that_of_one_run_with_all_events(folder, runs, before, end):
    assert same(runs.reduce(f"{LOSS}{before}.{end}"), alone(folder, f"{LOSS}{before}.{over_run(end)}"))


@pytest.mark.parametrize("end", [*ENDS, "sample(5)", "argmin()", "rate()"])
def test_the_parts_of_a_large_run_give_what_it_gives_whole(runs, end, monkeypatch):
    whole = runs.reduce(f"{LOSS}.{end}")
    monkeypatch.setattr(many, "PART_BYTES", 3_000)
    assert same(runs.reduce(f"{LOSS}.{end}"), whole)


class Elsewhere(Executor):
    """Works as other processes do: what goes in and out is pickled."""

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        future.set_result(pickle.loads(pickle.dumps(fn(*pickle.loads(pickle.dumps(args))))))
        return future


# What is left of all runs together is never nothing: then there is no value to compare.
STAGES = st.one_of(
    st.sampled_from([0.5, 2.0]).map("map(lambda x: x * {})".format),
    st.sampled_from([0.0, 0.25]).map("map(lambda x: abs(x - {}))".format),
    st.sampled_from([-1.0, -0.3]).map("where(lambda x: x > {})".format),
    st.sampled_from([1, 7, 20]).map("mean(every={})".format),
    st.sampled_from([3, 50]).map("max(every={})".format),
)


@settings(max_examples=examples(25))  # each asks the runs three times
@given(
    stages=st.lists(STAGES, max_size=3),
    end=st.sampled_from([*ENDS, "argmin()", "argmax()"]),
    part_bytes=st.sampled_from([1_000, 3_000, 20_000]),
)
def test_the_plan_never_changes_an_answer(folder, stages, end, part_bytes):
    before = ".".join([LOSS, *stages])

    def answer(**options):
        with sg.open(folder / "runs") as runs:
            return runs.reduce(f"{before}.{end}", **options)

    whole = answer()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(many, "PART_BYTES", part_bytes)
        for found in (answer(), answer(executor=Elsewhere())):
            assert same(found, whole)
    # Windows end with each run, and the one run has other steps.
    if not ("every=" in before or end.startswith("arg")):
        assert same(whole, alone(folder, f"{before}.{over_run(end)}"))


def test_earlier_reducers_end_with_each_run(runs, losses):
    highest = [np.mean(values[i : i + 20]) for values in losses for i in range(0, len(values), 20)]
    assert runs.reduce(f"{LOSS}.mean(every=20).max()") == pytest.approx(max(highest))


def test_a_sample_is_drawn_from_all_runs_and_is_the_same_each_time(runs, losses):
    sample = runs.reduce(f"{LOSS}.sample(200)")
    assert sample == runs.reduce(f"{LOSS}.sample(200)")
    assert set(sample) <= {value for values in losses for value in values}
    assert 5 < len(set(sample) & set(losses[0] + losses[2])) < 30, "about 200 * 85 / 1,286"


def test_the_best_step_of_all_runs(runs, losses):
    best = min(value for values in losses for value in values)
    step = next(10 * values.index(best) for values in losses if best in values)
    assert runs.reduce("batch.loss.argmin(per='run')") == {"step": step, "value": best}


def test_values_are_grouped_by_what_the_event_says_and_runs_by_what_they_say(folder, runs, losses):
    labelled = f"{LOSS}.mean(by=lambda b: b.label)"
    assert same(runs.reduce(labelled), alone(folder, labelled.replace("by=", "per='run', by=")))
    grouped = runs.reduce(f"{LOSS}.mean()", by=lambda run: run.config.opt.name)
    assert same(grouped, {"sgd": np.mean(losses[0] + losses[2]), "adam": np.mean(losses[1] + losses[3])})


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("batch.loss", "reducer"),
        (f"{LOSS}.mean(every=10)", "reducer"),
        (f"{LOSS}.reduce(lambda a, x: a + x, init=0)", "got reduce"),
        (f"{LOSS}.ema(0.1)", "reducer"),
        ("on('batch').map(lambda b: b.lr).mean()", "Recorded: batch"),
    ],
)
def test_what_cannot_be_reduced_over_runs_says_why(runs, query, message):
    with pytest.raises(sg.QueryError, match=message):
        runs.reduce(query)


def test_runs_that_do_not_answer_are_named(folder, tmp_path, losses):
    shutil.copytree(folder / "runs", tmp_path / "runs")
    with sg.init("other", dir=tmp_path / "runs") as other:
        other.log({"x": 1.0})
    runs = sg.open(tmp_path / "runs")
    shutil.rmtree(tmp_path / "runs" / "r0")
    with pytest.warns(RuntimeWarning, match="2 of 5 runs.*r0: .*other"):
        assert runs.reduce(f"{LOSS}.count()") == sum(map(len, losses[1:]))
    table = runs.table(n=f"{LOSS}.count(per='run')")
    assert dict(zip(table.column("run"), table.column("n"), strict=True)) == {
        other.directory.name: None, "r3": 1_200, "r2": 35, "r1": 1, "r0": None
    }  # fmt: skip
    assert [bool(problem) for problem in table.column("problem")] == [True, False, False, False, True]


def test_damaged_parts_are_told(folder, tmp_path):
    shutil.copytree(folder / "runs", tmp_path / "runs")
    (file,) = (tmp_path / "runs" / "r3").glob("*.sgr")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    with pytest.warns(RuntimeWarning, match="r3: .*damaged"):
        sg.open(tmp_path / "runs").reduce(f"{LOSS}.count()")


# Tables


def test_a_table_has_a_row_for_each_run(runs, losses):
    table = runs.table(
        best="batch.loss.min(per='run')",
        at=sg.on("batch").map(lambda b: b.loss).argmin(per="run"),
        last="batch.loss",
        smooth="batch.loss.mean(every=10).last(per='run')",
    )
    assert table.columns == [
        "run",
        "state",
        "config.lr",
        "config.opt.name",
        "best",
        "at.step",
        "at.value",
        "last",
        "smooth",
    ]
    assert table.column("run") == ["r3", "r2", "r1", "r0"]
    assert table.column("best") == table.column("at.value") == [min(values) for values in reversed(losses)]
    assert table.column("at.step") == [10 * int(np.argmin(values)) for values in reversed(losses)]
    assert table.column("last") == [values[-1] for values in reversed(losses)]
    unnamed = runs.table("batch.loss", sg.on("batch").map(lambda b: b.loss).min(per="run"), last="batch.loss")
    assert unnamed.columns[-3:] == ["batch.loss", "on('batch').map(lambda b: b.loss).min(per='run')", "last"]
    assert unnamed.column("batch.loss") == table.column("last")
    assert table[0] == {**table[0], "state": "ended", "config.opt.name": "adam", "config.lr": pytest.approx(0.3)}
    assert [row["run"] for row in table[1:3]] == ["r2", "r1"]


SUMMED = {name: f"batch.loss.{name}(per='run')" for name in ("count", "sum", "mean", "std", "min", "first", "argmax")}


@pytest.fixture
def copy(folder, tmp_path):
    """Return runs that nobody has asked yet."""
    shutil.copytree(folder / "runs", tmp_path / "runs", ignore=shutil.ignore_patterns(".sightglass*"))
    return sg.open(tmp_path / "runs")


def totals_of(copy):
    return sorted(copy["r3"].directory.glob(".sightglass-totals*"))


def test_totals_give_what_the_records_give(copy, monkeypatch):
    read = list(copy.table(last="batch.loss", **SUMMED))
    assert [bool(list(copy[name].directory.glob(".sightglass-totals"))) for name in copy] == [True] * 4
    monkeypatch.setattr("sightglass.client.many.partial.Recording", None)  # nothing is opened
    assert list(copy.table(last="batch.loss", **SUMMED)) == read


def test_a_tag_with_a_reducer_is_a_column(tmp_path, monkeypatch):
    with sg.init("tagged", dir=tmp_path, record=["batch.loss"]) as run:
        for i, loss in enumerate([3.0, 1.0, 2.0]):
            run.observe("batch", loss=loss)
            run.log({"val/acc.max": loss, "val/acc": -loss}, step=i)
    for _ in range(2):  # by its totals, and by its records
        (row,) = sg.open([tmp_path]).table(
            a="val/acc.max", b="val/acc.min", c="batch.loss.mean", d="val/acc.max.last", e="batch.loss.argmin"
        )
        assert [row[name] for name in "abcd"] == [2.0, -3.0, 2.0, 2.0]  # a tag of this name comes first
        assert (row["e.step"], row["e.value"]) == (1, 1.0)
        (run.directory / ".sightglass-totals").unlink(missing_ok=True)
        monkeypatch.setattr(run_totals, "MAX_RUN_BYTES", 0)


@pytest.mark.parametrize("door", ["reduce", "latest", "stream"])
def test_every_door_names_the_runs_that_do_not_answer(tmp_path, door):
    for i, tag in enumerate(["loss", "loss", "other"]):
        with sg.init(f"r{i}", dir=tmp_path) as run:
            run.log({tag: float(i)})
    query = "on('log').map(lambda e: e.loss)" + (".min()" if door == "reduce" else "")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        stream = getattr(sg.open(tmp_path), door)(query)
    told = stream.note if door == "stream" else str(warned[0].message)
    assert len(warned) == (door != "stream")
    assert told.startswith(f"1 of 3 runs do not answer {query} in full: r2")
    assert "Logged: 'other'" in told


def test_a_run_without_the_records_says_so_in_the_words_of_the_question(tmp_path):
    for name, tag in [("whole", "loss"), ("cut", "other")]:
        with sg.init(name, dir=tmp_path) as run:
            run.log({tag: 1.0})
    rows = {row["run"].split("-")[0]: row for row in sg.open(tmp_path).table(best="loss.min")}
    assert rows["whole"]["best"] == 1.0
    assert rows["cut"]["problem"].startswith("best: No records of 'loss' are there to answer 'loss.min' from.")


@pytest.fixture
def read_rows(monkeypatch):
    """Return from where on records were read to make totals."""
    starts = []
    add = run_totals._add
    monkeypatch.setattr(
        run_totals, "_add", lambda builder, series, low, high: starts.append(low) or add(builder, series, low, high)
    )
    return starts


def test_totals_of_a_run_that_grew_are_continued(tmp_path, read_rows):
    with sg.init("grows", dir=tmp_path) as run:
        for i in range(100):
            run.log({"x": i, "y": -float(i)})
        run.flush()
        assert sg.open([tmp_path]).table(sum="x.sum").column("sum") == [4950]
        run.log({"x": 1_000, "y": 0.5})
        run.log({"x": 7, "new": 3.0})
        run.flush()
        del read_rows[:]
        (row,) = sg.open([tmp_path]).table(s="x.sum", m="y.max", n="new.count", e="x.argmax", l="x.last", f="x.first")
        assert read_rows == [0, 100, 100]
        assert (row["s"], row["m"], row["n"], row["e.step"], row["l"], row["f"]) == (5957, 0.5, 1, 100, 7, 0)
    (again,) = sg.open([tmp_path]).table(s="x.sum", m="y.max", n="new.count", e="x.argmax", l="x.last", f="x.first")
    assert {**again, "state": ""} == {**row, "state": ""}


def test_totals_of_a_run_that_went_back_are_made_anew(tmp_path):
    for first, last in ((0, 100), (50, 80)):
        with sg.init("back", dir=tmp_path, files=sg.Files(into=tmp_path / "back")) as run:
            for i in range(first, last):
                run.log({"x": float(i)}, step=i)
        read = sg.open(tmp_path / "back").series("x")
        (row,) = sg.open([tmp_path]).table(n="x.count", last="x.last")
        assert (row["n"], row["last"]) == (len(read), read[-1].value)


def test_totals_of_files_that_changed_otherwise_are_made_anew(copy, read_rows):
    expected = list(copy.table(**SUMMED))
    (file,) = copy["r3"].directory.glob("*.sgr")
    os.utime(file, (1e9, 1e9))
    del read_rows[:]
    assert list(copy.table(**SUMMED)) == expected
    assert read_rows[0] == 0


def refuses(*arguments, **more):
    raise PermissionError


def test_totals_are_cached_where_the_folder_cannot_be_written_to(copy, tmp_path, monkeypatch):
    monkeypatch.setattr(cache_file, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(cache_file, "write", refuses)
    read = list(copy.table(**SUMMED))
    assert len(os.listdir(tmp_path / "cache")) == len(copy)
    monkeypatch.setattr("sightglass.client.many.partial.Recording", None)
    assert list(copy.table(**SUMMED)) == read


def test_the_oldest_of_too_many_cached_totals_are_removed(copy, tmp_path, monkeypatch):
    monkeypatch.setattr(cache_file, "write", refuses)
    monkeypatch.setattr(cache_file, "MAX_CACHED", 2)
    monkeypatch.setattr(cache_file, "cache_folder", lambda: tmp_path / "cache")
    copy.table(**SUMMED)
    assert 0 < len(os.listdir(tmp_path / "cache")) <= 3


def test_the_cache_folder_follows_the_system():
    home = Path.home()
    assert cache_file.cache_folder({"XDG_CACHE_HOME": "/c"}, "linux") == Path("/c/sightglass/runs")
    assert cache_file.cache_folder({}, "linux") == home / ".cache/sightglass/runs"
    assert cache_file.cache_folder({}, "darwin") == home / "Library/Caches/sightglass/runs"
    assert cache_file.cache_folder({"LOCALAPPDATA": "/l"}, "win32") == Path("/l/sightglass/runs")


def test_totals_of_other_files_do_not_count(copy, losses):
    copy.table(**SUMMED)
    shutil.copy(totals_of(copy)[0], copy["r2"].directory)
    assert copy.table(**SUMMED).column("count") == [len(values) for values in reversed(losses)]


def test_a_run_that_grew_has_new_totals(tmp_path):
    with sg.init("grows", dir=tmp_path, record=["batch.loss"]) as run:
        for i in range(10):
            run.observe("batch", loss=float(i))
        run.flush()
        assert sg.open(tmp_path).table(**SUMMED).column("sum") == [45.0]
        run.observe("batch", loss=10.0)
        run.flush()
        assert sg.open(tmp_path).table(**SUMMED).column("sum") == [55.0]
    assert sg.open(tmp_path).table(**SUMMED).column("sum") == [55.0]


@pytest.mark.parametrize(
    "change", [lambda data: data[:-1], lambda data: data[:-9] + b"\0" + data[-8:], lambda data: b""]
)
def test_damaged_totals_are_not_used(copy, change):
    expected = list(copy.table(**SUMMED))
    (file,) = totals_of(copy)
    file.write_bytes(change(file.read_bytes()))
    assert list(copy.table(**SUMMED)) == expected


def test_totals_are_as_private_as_the_records(copy):
    (file,) = copy["r3"].directory.glob("*.sgr")
    file.chmod(0o600)
    copy.table(**SUMMED)
    assert totals_of(copy)[0].stat().st_mode & 0o777 == 0o600


def test_a_sum_beyond_64_bits_costs_itself_alone(tmp_path):
    record(tmp_path / "a", [2**62] * 4)
    for _ in range(2):
        (row,) = sg.open([tmp_path]).table(total=SUMMED["sum"], n=SUMMED["count"])
        assert (row["total"], row["n"]) == (None, 4)
        assert row["problem"].startswith("total: ")


def test_damaged_runs_have_no_totals(copy):
    (file,) = copy["r3"].directory.glob("*.sgr")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    for _ in range(2):
        assert copy.table(n="batch.label.count(per='run')", **SUMMED)[0]["problem"]
    assert totals_of(copy) == []


def test_a_run_that_is_deleted_before_it_is_read_is_a_row_with_a_problem(copy, losses):
    shutil.rmtree(copy._entries["r2"].path)
    table = copy.table(n="batch.loss.count(per='run')")
    assert table.column("n") == [len(losses[3]), None, len(losses[1]), len(losses[0])]
    assert [bool(problem) for problem in table.column("problem")] == [False, True, False, False]
    with pytest.warns(RuntimeWarning, match="1 of 4 runs"):
        assert copy.reduce("batch.loss.count(per='run')") == sum(map(len, losses)) - len(losses[2])


def test_a_run_that_is_deleted_while_it_is_read_is_read_to_its_end(copy, losses, monkeypatch):
    make = run_totals.make

    def delete(recording, files, *, rank):
        shutil.rmtree(recording.path)
        return make(recording, files, rank=rank)

    monkeypatch.setattr(run_totals, "make", delete)
    (row,) = sg.open([copy["r3"].directory]).table(n="batch.loss.count(per='run')", s="batch.loss.sum")
    assert (row["n"], row["s"]) == (len(losses[3]), pytest.approx(sum(losses[3])))


def test_a_table_is_shown_and_saved(runs, tmp_path):
    table = runs.table(best="batch.loss.min(per='run')")
    lines = repr(table).splitlines()
    assert lines[0].split() == table.columns
    assert lines[1].split() == ["r3", "ended", "0.3", "adam", f"{table[0]['best']:.6g}"]
    assert "<td>adam</td>" in table._repr_html_()
    failed = runs.table(best="batch.a_name_that_is_far_too_long_for_a_cell.min(per='run')")
    assert "Recorded: " in failed[0]["problem"][60:]
    assert repr(failed).splitlines()[1].endswith(failed[0]["problem"])
    table.save(tmp_path / "t.parquet")
    table.save(tmp_path / "t.csv")
    assert polars.read_parquet(tmp_path / "t.parquet").equals(table.to_polars())
    assert (tmp_path / "t.csv").read_text().startswith("run,state,config.lr,config.opt.name,best\nr3,ended,")
    with pytest.raises(ValueError, match=r".parquet.*.csv.*'.xlsx'"):
        table.save(tmp_path / "t.xlsx")


VALUES = ((0.1, 1), ("auto", 2.5), (None, 3))


def test_columns_of_several_types_become_text():
    table = RunsTable([{"run": "a", "state": "ended", "lr": value, "n": n} for value, n in VALUES])
    frame = table.to_polars()
    assert frame["lr"].to_list() == ["0.1", "auto", None]
    assert frame["n"].to_list() == [1.0, 2.5, 3.0]


def test_columns_need_names_of_their_own(runs):
    with pytest.raises(ValueError, match="got run"):
        runs.table(run="batch.loss")


def test_runs_without_what_others_are_grouped_by_are_named(copy, losses):
    with sg.init("bare", dir=copy["r3"].directory.parent, record=["batch.loss"]) as run:
        run.observe("batch", loss=1.0)
    runs = sg.open(run.directory.parent)
    with pytest.warns(RuntimeWarning, match=r"1 of 5 runs.*'lr'.*'bare'"):
        grouped = runs.reduce(f"{LOSS}.count()", by=lambda run: run.config.lr > 0)
    assert grouped == {False: 50, True: 1_236}


def test_runs_are_chosen_by_what_they_say(runs):
    assert list(runs.where(lambda run: run.config.lr < 0.15)) == ["r1", "r0"]
    with pytest.raises(TypeError, match=r"'lr < 0[.]15'"):
        runs.where("lr < 0.15")
    assert list(runs.where(lambda run: run.config["opt"]["name"] == "sgd" and run.name != "r0")) == ["r2"]
    with pytest.warns(RuntimeWarning, match="'wd'"):
        assert not list(runs.where(lambda run: run.config.wd > 0))
    assert list(runs.where(lambda run: run.config.get("wd") is None and run.state == "ended")) == list(runs)
    assert runs.where(lambda run: run.config.opt.name == "sgd").table(n="batch.loss.count(per='run')").column("n") == [
        35,
        50,
    ]


def test_several_folders_and_files_of_other_programs_open_together(folder, tmp_path, losses):
    for dialect in ("ms", "tb"):
        source, name = FOREIGN[dialect]
        (tmp_path / dialect).mkdir()
        shutil.copy(FIXTURES / source, tmp_path / dialect / name)
    runs = sg.open([folder / "runs", folder / "all", tmp_path])
    assert len(runs) == 7
    assert str(folder / "all") in runs
    n = runs.table(n="log.loss.count(per='run')").column("n")
    assert sorted(filter(None, n)) == sorted(
        len(sg.open(tmp_path / dialect).series("loss")) for dialect in ("ms", "tb")
    )
    with pytest.warns(RuntimeWarning, match="2 of 7 runs"):
        assert runs.reduce(f"{LOSS}.count()") == 2 * sum(map(len, losses))


# Executors


def n_tags(run: sg.RecordedRun) -> int:
    return len(run.tags())


class Reversed(Executor):
    """Works on the last task first, when the first result is asked for."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future, object, object]] = []

    def submit(self, fn, /, *args, **kwargs):
        executor = self

        class Lazy(Future):
            def result(self, timeout=None):
                while executor.waiting:
                    future, fn, args = executor.waiting.pop()
                    future.set_result(fn(*args))
                return super().result(timeout)

        self.waiting.append((Lazy(), fn, args))
        return self.waiting[-1][0]


@pytest.mark.parametrize("make", [ThreadPoolExecutor, Reversed])
def test_any_executor_gives_the_same(runs, make):
    with make() as executor:
        assert runs.reduce(f"{LOSS}.first()", executor=executor) == runs.reduce(f"{LOSS}.first()")
        query = "batch.loss.quantile(0.5, per='run')"
        assert list(runs.table(q=query, executor=executor)) == list(runs.table(q=query))
        assert runs.map(n_tags, executor=executor) == dict.fromkeys(["r3", "r2", "r1", "r0"], 2)


def test_processes_give_the_same(runs):
    for query in (f"{LOSS}.histogram(16)", f"{LOSS}.quantile(0.3)"):
        assert same(runs.reduce(query, executor="processes"), runs.reduce(query))


def dies(run: sg.RecordedRun) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_is_killed_says_what_to_do(runs):
    with pytest.raises(sg.WorkerLostError, match="__main__"):
        runs.map(dies, executor="processes")


class Ticks:
    """A clock that goes on by some seconds whenever it is read."""

    def __init__(self, step_s):
        self.now_s, self.step_s = 0.0, step_s

    def monotonic(self):
        self.now_s += self.step_s
        return self.now_s

    wall = monotonic


@pytest.mark.parametrize(("step_s", "shown"), [(0.4, True), (0.01, False)])
def test_work_that_takes_long_shows_a_bar(step_s, shown):
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with TaskProgress("Reading runs", 6, console=console, clock=Ticks(step_s)) as progress:
        for _ in range(6):
            progress.advance()
    drawn = console.file.getvalue()
    assert ("Reading runs" in drawn) == shown
    assert ("6/6" in drawn) == shown


def test_nothing_is_shown_where_no_terminal_is(runs, capsys):
    runs.table(n=f"{LOSS}.count(per='run')")
    runs.reduce(f"{LOSS}.count()", executor=Elsewhere())
    assert capsys.readouterr() == ("", "")


def test_a_bar_counts_the_tasks_on_a_terminal(runs, monkeypatch):
    begun, n_done = [], []

    class Counted(TaskProgress):
        def __init__(self, what, n):
            begun.append((what, n))
            super().__init__(what, n, console=Console(file=io.StringIO(), force_terminal=True))

        def advance(self):
            n_done.append(1)

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("sightglass.views.surfaces.terminal.progress.TaskProgress", Counted)
    for executor in (None, Elsewhere()):
        runs.reduce(f"{LOSS}.count()", executor=executor)
        assert len(n_done) == 4
        n_done.clear()
    assert begun == [("Reading runs", 4)] * 2


def test_an_exception_of_a_mapped_function_is_raised(runs):
    with pytest.raises(ZeroDivisionError):
        runs.map(lambda run: 1 / 0)
