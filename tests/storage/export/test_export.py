"""What was recorded in other formats, read back by the programs that these are for."""

from __future__ import annotations

import csv
import itertools
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import sightglass as sg
from sightglass.cli import main
from sightglass.core.columns import Columns
from sightglass.core.errors import MissingExtraError, StorageError, UnknownNameError
from sightglass.core.values import Figure, Histogram, Image, Images, Tensor, Text
from sightglass.storage.export import tables
from sightglass.storage.export.export import Exported, Form, export
from sightglass.storage.format.block import Key
from sightglass.storage.format.framing import RandomAccessFile
from sightglass.storage.format.png import encode_png
from sightglass.storage.read.recording import Recording
from sightglass.storage.write.segment import SegmentWriter

from ..blocks import whole_frames  # noqa: TID252  tests are not a package

FIXTURES = Path(__file__).parents[1] / "fixtures"
BEGAN = 1_700_000_000.0
NAN, INF = math.nan, math.inf
PIXELS = np.arange(12, dtype=np.uint8).reshape(2, 2, 3)


def columns(values: Any, *, index: int = 0, steps: Any = None, tracks: Any = None) -> Columns:
    n = len(values)
    places = np.arange(index, index + n)
    return Columns(
        index=index,
        steps=places * 2 if steps is None else np.asarray(steps),
        wall_times=BEGAN + places * 0.25,
        values=values,
        ordinals=places,
        tracks=tracks,
    )


def logged(tag: str) -> Key:
    return Key(kind="logged", tag=tag)


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., Recording]:
    """Return what writes blocks of series into a run directory and opens it."""
    opened: list[Recording] = []

    def record(*blocks: tuple[Key | str, Columns], run: str = "mnist") -> Recording:
        (tmp_path / run).mkdir(exist_ok=True)
        writer = SegmentWriter(tmp_path / run / "1700000000000-rank0-0000.sgr", wall_time=BEGAN)
        for key, content in blocks:
            writer.append(logged(key) if isinstance(key, str) else key, content)
        writer.flush()
        writer.close()
        opened.append(Recording(tmp_path / run))
        return opened[-1]

    yield record  # type: ignore[misc]
    for recording in opened:
        recording.close()


LOSS = np.array([0.1, NAN, INF, -INF, 1e300])
EVERYTHING: Sequence[tuple[Key | str, Columns]] = [
    ("loss", columns(LOSS)),
    ("loss", columns([1.5, 2], index=5)),
    ("n", columns(np.array([1, -(2**53), 3]))),
    ("ok", columns(np.array([True, False]))),
    ("id", columns(np.array([2**53 + 1, -1]))),
    ("hash", columns(np.array([2**64 - 1], np.uint64))),
    ("z", columns(np.array([1 + 2j]))),
    ("kernel", columns(np.arange(12, dtype=np.float32).reshape(2, 2, 3))),
    ("ragged", columns([Tensor(np.arange(2)), Tensor(np.arange(3)), np.ones((1, 1), np.float16)])),
    ("mask", columns([np.array([True, False])])),
    ("wave", columns([np.array([1 + 2j, 3j])])),
    ("h", columns([Histogram([0.0, 1.0, 1.0, NAN], bins=2), Histogram([3.0], bins=3)])),
    ("note", columns(["hello, \"you\"\nthere", Text("ü")])),
    ("digit", columns([Image(PIXELS, "four"), Figure(encode_png(PIXELS))])),
    ("digits", columns([Images(np.zeros((2, 3, 3)))])),
    ("parts", columns([{"a": 1.0, "b": {"c": 2}}, {"a": 3.0, "b": {"c": 4}}])),
    ("pair", columns([(1.0, 2.0), (3.0, 4.0)])),
    ("nothing", columns([None, object.__name__])),
    (Key(kind="stream", tag="batch.loss", query="on('batch').map(lambda e: e.loss)"), columns(LOSS[:1])),
    (Key(kind="groups", tag="batch"), columns([None])),
]  # fmt: skip


def losses(exported: Exported) -> dict[str, str]:
    return {loss.tag: loss.why for loss in exported.losses if loss.left_out}


def test_parquet_is_read_back_as_it_was(record: Callable[..., Recording], tmp_path: Path) -> None:
    pl = pytest.importorskip("polars")
    pq = pytest.importorskip("pyarrow.parquet")

    exported = export(record(*EVERYTHING), to="parquet")

    folder = Path("mnist-parquet")
    assert {file.path for file in exported.files} == set(folder.iterdir())
    assert losses(exported) == {
        "nothing": "NoneType is not a number, array, histogram, picture, sound, table or text",
        "batch": "ends of groups are not exported",
    }
    table = pl.read_parquet(folder / "scalars.parquet")
    assert table.columns == [
        "run", "tag", "index", "step", "wall_time", "value", "n_events", "complete", "closed",
    ]  # fmt: skip
    assert table.schema["step"] == pl.Int64
    loss = table.filter(tag="loss")
    np.testing.assert_array_equal(loss["value"].to_numpy(), [*LOSS, 1.5, 2])
    assert loss["step"].to_list() == list(range(0, 14, 2))
    assert loss["index"].to_list() == list(range(7))
    assert loss["wall_time"].to_list() == [BEGAN + 0.25 * i for i in range(7)]
    assert set(loss["run"]) == {"mnist"}
    assert table.filter(tag="n")["value"].to_list() == [1, -(2**53), 3]
    assert table.filter(tag="ok")["value"].to_list() == [1, 0]
    assert table.filter(tag="parts/b/c")["value"].to_list() == [2, 4]
    assert table.filter(tag="batch.loss")["value"].to_list() == [0.1]

    def read(name: str) -> Any:
        return pq.read_table(folder / f"{name}.parquet").to_pydict()

    assert read("id")["value"] == [2**53 + 1, -1]
    assert read("hash")["value"] == [2**64 - 1]
    assert read("z")["value"] == [{"real": 1.0, "imag": 2.0}]
    kernel = read("kernel")
    assert (kernel["value"], kernel["shape"], kernel["dtype"]) == (
        [list(range(6)), list(range(6, 12))], [[2, 3]] * 2, ["float32"] * 2,
    )  # fmt: skip
    assert read("ragged")["value"] == [[0, 1], [0, 1, 2]]
    assert read("ragged.float16")["value"] == [[1.0]]
    assert (read("ragged.float16")["dtype"], read("ragged.float16")["shape"]) == (["float16"], [[1, 1]])
    assert read("mask")["value"] == [[True, False]]
    assert read("wave")["value"] == [[{"real": 1.0, "imag": 2.0}, {"real": 0.0, "imag": 3.0}]]
    assert (read("h")["counts"], read("h")["n_nan"]) == ([[1, 2], [0, 1, 0]], [1, 0])
    assert read("h")["edges"][0] == [0, 0.5, 1]
    assert read("note")["text"] == ['hello, "you"\nthere', "ü"]
    assert read("digit")["files"] == [[encode_png(PIXELS)]] * 2
    assert read("digit")["captions"] == [["four"], []]
    assert len(read("digits")["files"][0]) == 2
    assert read("pair")["value"] == [[1, 2], [3, 4]]


def test_csv_is_read_back_as_it_was(record: Callable[..., Recording], tmp_path: Path) -> None:
    pl = pytest.importorskip("polars")

    exported = export(record(*EVERYTHING), to="csv")

    (file,) = exported.files
    assert file.path == Path() / "mnist.csv"
    with file.path.open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == file.n == 23
    by_tag = {tag: list(group) for tag, group in itertools.groupby(rows, key=lambda row: row["tag"])}
    np.testing.assert_array_equal([float(row["value"]) for row in by_tag["loss"]], [*LOSS, 1.5, 2])
    assert [int(row["value"]) for row in by_tag["id"]] == [2**53 + 1, -1]
    assert [int(row["value"]) for row in by_tag["hash"]] == [2**64 - 1]
    assert [row["value"] for row in by_tag["ok"]] == ["1", "0"]
    assert [row["text"] for row in by_tag["note"]] == ['hello, "you"\nthere', "ü"]
    assert [row["value"] for row in by_tag["note"]] == ["", ""]
    assert by_tag["n"][2] == {
        "run": "mnist", "tag": "n", "index": "2", "step": "4", "wall_time": "1700000000.5", "value": "3", "text": "",
    }  # fmt: skip
    assert pl.read_csv(file.path).filter(tag="loss").height == 7
    reasons = losses(exported)
    assert (reasons["z"], reasons["kernel"]) == ("CSV does not support complex numbers", "CSV does not support arrays")
    assert {"ragged", "mask", "wave", "h", "digit", "digits", "pair", "nothing"} <= reasons.keys()


def test_bfloat16_becomes_float32(record: Callable[..., Recording]) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    pq = pytest.importorskip("pyarrow.parquet")
    recording = record(
        ("w", columns([np.array([1.5, -2], ml_dtypes.bfloat16)])),
        ("x", columns([ml_dtypes.bfloat16(0.5), ml_dtypes.bfloat16(2)])),
    )

    files = {file.path.stem: file.path for file in export(recording, to="parquet").files}
    assert pq.read_table(files["w"])["value"].to_pylist() == [[1.5, -2]]
    assert pq.read_table(files["scalars"])["value"].to_pylist() == [0.5, 2]


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_later_records_add_columns(record: Callable[..., Recording], form: Form) -> None:
    pl = pytest.importorskip("polars")
    recording = record(
        ("a", columns(np.array([1.0]))),
        ("a", columns(np.array([2.0]), index=1, steps=[0.5])),
        ("a", columns(np.array([3.0]), index=2, tracks=[{"epoch": 7.0, "step": 1.0}])),
        ("z", columns([None])),
    )

    exported = export(recording, to=form)

    (file,) = exported.files
    table = pl.read_parquet(file.path) if form == "parquet" else pl.read_csv(file.path)
    assert table["step"].to_list() == [0, 0.5, 4]
    assert table["value"].to_list() == [1, 2, 3]
    assert table["epoch"].to_list() == [None, None, 7]
    assert table["track_step"].to_list() == [None, None, 1]
    assert [(loss.tag, loss.n) for loss in exported.losses] == [("z", 1)]


def test_large_series_are_written_in_row_groups(
    record: Callable[..., Recording], monkeypatch: pytest.MonkeyPatch
) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(tables, "ROW_GROUP_ROWS", 1000)
    recording = record(*(("a", columns(np.arange(i, i + 600.0), index=i)) for i in range(0, 6000, 600)))

    exported = export(recording, to="parquet")

    file = pq.ParquetFile(exported.files[0].path)
    assert file.num_row_groups == 5
    assert file.read()["value"].to_pylist() == list(range(6000))


def test_any_tag_gets_a_file(record: Callable[..., Recording]) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    tags = ["a/b", "a:b", "A_b", "scalars", "../up", "", "x" * 300]
    recording = record(*((tag, columns([np.arange(i + 1)])) for i, tag in enumerate(tags)))

    exported = export(recording, to="parquet")

    found = {pq.read_table(file.path)["tag"][0].as_py(): file.path for file in exported.files}
    assert sorted(found) == sorted(tags)
    assert len({str(path).lower() for path in found.values()}) == len(tags)
    assert len({path.parent for path in found.values()}) == 1


def test_tensorboard_reads_what_was_written(record: Callable[..., Recording], tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")

    exported = export(record(*EVERYTHING), to="tensorboard", out=tmp_path / "logs")

    (file,) = exported.files
    assert file.path.name == "events.out.tfevents.1700000000.sightglass.0.0"
    events = accumulator.EventAccumulator(
        str(tmp_path / "logs"), size_guidance=accumulator.STORE_EVERYTHING_SIZE_GUIDANCE
    )
    events.Reload()
    tags = events.Tags()
    assert set(tags["scalars"]) == {"loss", "n", "ok", "id", "hash", "parts/a", "parts/b/c", "batch.loss"}
    assert set(tags["histograms"]) == {"h"}
    assert set(tags["images"]) == {"digit", "digits"}
    assert set(tags["tensors"]) == {"kernel", "ragged", "mask", "wave", "note", "pair", "nothing"}
    loss = events.Scalars("loss")
    assert [item.step for item in loss] == list(range(0, 14, 2))
    assert [item.wall_time for item in loss] == [BEGAN + 0.25 * i for i in range(7)]
    np.testing.assert_array_equal([item.value for item in loss], [*LOSS[:4].astype(np.float32), INF, 1.5, 2])
    assert list(events.Histograms("h")[0].histogram_value.bucket) == [1, 2]
    assert events.Images("digit")[0].encoded_image_string == encode_png(PIXELS)
    assert events.Tensors("note")[1].tensor_proto.string_val == ["ü".encode()]
    changed = {loss.tag: (loss.n, loss.why) for loss in exported.losses if not loss.left_out}
    assert changed == {
        "loss": (1, "numbers beyond float32 became infinite"),
        **dict.fromkeys(("id", "hash", "batch.loss"), (1, "numbers were rounded to float32")),
        "h": (1, "TensorBoard's histograms do not count the samples that were not finite"),
    }
    assert losses(exported) == {
        "z": "Expected a number, array, histogram, image, sound, figure or text, got complex128",
        "nothing": "Expected a number, array, histogram, image, sound, figure or text, got NoneType",
        "batch": "ends of groups are not exported",
    }


def test_mindspore_reads_what_was_written(record: Callable[..., Recording], tmp_path: Path) -> None:
    pool = DescriptorPool()
    for name in ("anf_ir", "summary"):
        described = pool.AddSerializedFile((FIXTURES / f"mindspore_{name}.desc").read_bytes())
    theirs = GetMessageClass(pool.FindMessageTypeByName(f"{described.package}.Event"))

    exported = export(record(*EVERYTHING), to="mindspore", tags=["loss", "n", "kernel", "h", "note", "digit", "wave"])

    (file,) = exported.files
    assert file.path.name == "events.out.events.summary.1700000000.0.sightglass_MS"
    source = RandomAccessFile(file.path)
    events = [theirs.FromString(bytes(payload)) for _, payload in whole_frames(source)]
    source.close()
    assert events[0].version == "MindSpore.Event:1"
    first = {value.tag: value.scalar_value for value in events[1].summary.value}
    assert first == {"loss": np.float32(0.1), "n": 1}
    kernel = [e.summary.value[0].tensor for e in events[1:] if e.summary.value[0].tag == "kernel"]
    assert (list(kernel[1].dims), list(kernel[1].float_data)) == ([2, 3], list(range(6, 12)))
    assert losses(exported) == {
        "note": "MindSpore summary files do not support Text",
        "wave": "MindSpore summary files do not support arrays of complex128",
    }


@pytest.mark.parametrize("form", ["tensorboard", "mindspore"])
def test_exported_files_open_as_recordings(record: Callable[..., Recording], tmp_path: Path, form: Form) -> None:
    rng = np.random.default_rng(0)
    values = {tag: rng.normal(size=50) for tag in ("loss", "accuracy")}
    kernels = rng.normal(size=(5, 3, 4)).astype(np.float32)
    recording = record(
        *((tag, columns(numbers)) for tag, numbers in values.items()),
        ("kernel", columns(kernels)),
        ("h", columns([Histogram(row, bins=5) for row in kernels])),
    )
    export(recording, to=form, out=tmp_path / "out")

    with sg.open(tmp_path / "out") as run:
        assert run.check().intact
        for tag, numbers in values.items():
            again = run.series(tag).columns()
            np.testing.assert_array_equal(again.values, numbers.astype(np.float32))
            assert again.steps.tolist() == list(range(0, 100, 2))
            assert again.ordinals.tolist() == list(range(50))
            np.testing.assert_array_equal(again.wall_times, BEGAN + np.arange(50) * 0.25)
        np.testing.assert_array_equal(run.series("kernel").columns().values, kernels)
        assert [h.value.total for h in run.series("h")] == [12] * 5
        both = run.stream(sg.on("log").map(lambda e: e["loss"] + e["accuracy"]))
        np.testing.assert_allclose([r.value for r in both], values["loss"] + values["accuracy"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", ["tensorboard", "mindspore"])
def test_steps_that_are_not_integers_are_cut_and_reported(record: Callable[..., Recording], form: Form) -> None:
    recording = record(("a", columns(np.arange(4.0), steps=[0.5, NAN, 1e300, 3.0])))

    exported = export(recording, to=form)

    assert [(loss.tag, loss.n, loss.left_out) for loss in exported.losses] == [("a", 3, False)]
    with Recording(exported.files[0].path) as again:
        assert again.series("a").steps.tolist() == [0, 0, 2**63 - 1024, 3]


def test_only_chosen_tags_are_written(record: Callable[..., Recording]) -> None:
    recording = record(*EVERYTHING)
    exported = export(recording, to="csv", tags=["n", "batch.loss"])

    assert exported.files[0].n == 4
    assert exported.losses == []
    with pytest.raises(UnknownNameError, match=r"'los'.*'loss'"):
        export(recording, to="csv", tags=["los"])


def test_series_of_one_tag_have_names_of_their_own(record: Callable[..., Recording]) -> None:
    queries = [f"on('a').map(lambda e: e.{name})" for name in ("b", "c")]
    recording = record(
        ("loss", columns(np.array([1.0]))),
        *((Key(kind="stream", tag="loss", query=query), columns(np.array([2.0]))) for query in queries),
    )

    pq = pytest.importorskip("pyarrow.parquet")
    (file,) = export(recording, to="parquet").files
    assert set(pq.read_table(file.path)["tag"].to_pylist()) == {"loss", *queries}


@pytest.mark.parametrize("form", ["parquet", "csv", "tensorboard", "mindspore"])
def test_files_are_replaced_only_with_overwrite(record: Callable[..., Recording], tmp_path: Path, form: Form) -> None:
    recording = record(("a", columns(np.arange(3.0))))
    first = export(recording, to=form)
    before = {file.path: file.path.read_bytes() for file in first.files}
    (first.files[0].path.parent / "mine").write_text("mine")

    with pytest.raises(StorageError, match="exists already"):
        export(recording, to=form)
    assert export(recording, to=form, overwrite=True) == first
    assert {path: path.read_bytes() for path in before} == before
    assert (first.files[0].path.parent / "mine").read_text() == "mine"
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]


@pytest.mark.parametrize("form", ["parquet", "csv", "tensorboard", "mindspore"])
def test_a_failure_leaves_nothing(
    record: Callable[..., Recording], tmp_path: Path, form: Form, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = record(("a", columns(np.arange(3.0))), ("b", columns([np.ones(3)])))
    series = recording.series("b")
    monkeypatch.setattr(type(series), "blocks", lambda self: iter([1 / 0]))

    with pytest.raises(ZeroDivisionError):
        export(recording, to=form)
    assert os.listdir(tmp_path) == ["mnist"]


def test_damaged_records_are_reported(record: Callable[..., Recording], tmp_path: Path) -> None:
    record(("a", columns(np.arange(3.0))), ("a", columns(np.full(1000, 7.0), index=3)))
    (path,) = (tmp_path / "mnist").iterdir()
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)

    with Recording(tmp_path / "mnist") as recording:
        exported = export(recording, to="csv")
    assert exported.files[0].n == 3
    assert [str(loss) for loss in exported.losses] == [
        "left out 'a' of mnist: 1,000 records: they are damaged; `sightglass check` shows where"
    ]


def test_without_pyarrow_the_package_is_named(
    record: Callable[..., Recording], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"'pyarrow'.*'sightglass\[export\]'"):
        export(record(("a", columns(np.ones(1)))), to="parquet")


@pytest.mark.parametrize("form", ["parquet", "csv", "tensorboard", "mindspore"])
def test_the_command_exports_runs_and_folders_of_runs(
    record: Callable[..., Recording], tmp_path: Path, form: Form
) -> None:
    for run in ("one", "two"):
        record(("a", columns(np.arange(3.0))), ("t", columns([None])), run=run)

    out = ["--out", str(tmp_path / "out" / "one")]
    alone = CliRunner().invoke(main, ["export", str(tmp_path / "one"), "--to", form, "--tag", "a", *out])
    again = CliRunner().invoke(main, ["export", str(tmp_path / "one"), "--to", form, *out])
    (tmp_path / "out").rename(tmp_path / ".out")
    both = CliRunner().invoke(main, ["export", str(tmp_path), "--to", form, "--out", str(tmp_path / "out" / "all")])

    assert (alone.exit_code, both.exit_code, again.exit_code) == (0, 0, 1)
    assert alone.output.startswith("wrote ")
    assert alone.output.count("\n") == 1
    assert both.output.count("left out 't' of ") == 2
    assert "exists already" in again.output
    if form in ("tensorboard", "mindspore"):
        assert both.output.count("wrote") == 2


def test_the_command_opens_folders_of_runs(record: Callable[..., Recording], tmp_path: Path) -> None:
    for run in ("one", "two"):
        record(("a", columns(np.arange(3.0))), ("b", columns(np.arange(2.0))), run=run)

    folder = CliRunner().invoke(main, ["open", str(tmp_path), "--no-header"])
    tag = CliRunner().invoke(main, ["open", str(tmp_path), "a", "--json"])
    wrong = CliRunner().invoke(main, ["open", str(tmp_path), "c"])

    assert sorted(line.split("\t")[0] for line in folder.output.splitlines()) == ["one", "two"]
    assert tag.output.count('"tag": "a"') == 2
    assert wrong.exit_code == 1
    assert "Unknown tag 'c'" in wrong.output


MIXED = {
    "float": lambda i: np.float32(i).item() / 8,
    "int": lambda i: i,
    "array": lambda i: np.full((4, 4), i, np.float32),
    "large": lambda i: np.full((40, 40), i, np.float32),  # a block of its own buffer
    "small": lambda i: np.array([i, -i], np.float32),
}


@pytest.mark.parametrize("form", ["tensorboard", "mindspore"])
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(st.tuples(st.sampled_from([*MIXED]), st.integers(1, 4)), min_size=1, max_size=6))
@example(parts=[("large", 4), ("large", 4), ("float", 2)])
def test_an_export_has_no_number_that_nobody_recorded(
    tmp_path_factory: pytest.TempPathFactory, form: Form, parts: list[tuple[str, int]]
) -> None:
    """Each part is a block, so what a tag has changes from block to block; the last one must not decide for all."""
    folder = tmp_path_factory.mktemp("mixed")
    writer = SegmentWriter(folder / "1700000000000-rank0-0000.sgr", wall_time=BEGAN)
    given: dict[int, Any] = {}
    for kind, n in parts:
        values = [MIXED[kind](len(given) + i) for i in range(n)]
        stacked = np.stack(values) if isinstance(values[0], np.ndarray) else np.array(values)
        writer.append(logged("t"), columns(stacked, index=len(given)))
        given |= {len(given) + i: value for i, value in enumerate(values)}
    writer.flush()
    writer.close()
    with Recording(folder) as recording:
        done = export(recording, to=form, out=folder / "out")
    found = of_events(folder)
    assert not [loss for loss in done.losses if loss.left_out]
    assert sum(map(len, found.values())) == len(given)
    for i, value in given.items():
        assert [np.asarray(one).tolist() for one in found[2 * i]] == [np.asarray(value).tolist()]


def of_events(folder: Path) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    with Recording(folder / "out") as recording:
        for key in recording.keys():  # noqa: SIM118  not a mapping
            series = recording.series(key)
            for i in range(len(series)):
                value = series[i].value
                found.setdefault(int(series[i].step), []).append(value.value if isinstance(value, Tensor) else value)
    return found
