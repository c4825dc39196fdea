"""MindSpore's and TensorBoard's files as parts of a recording: whole, torn, damaged, growing, restarted."""

from __future__ import annotations

import itertools
import math
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import sightglass as sg
from sightglass.core.errors import DamagedError, QueryError
from sightglass.core.values import Figure, Histogram, Text
from sightglass.storage.foreign import mindspore, tensorboard, tensorboard_charts
from sightglass.storage.foreign.event_columns import LogEvents
from sightglass.storage.foreign.event_file import EventFile
from sightglass.storage.format.block import Key
from sightglass.storage.format.framing import frame
from sightglass.storage.format.png import encode_png
from sightglass.storage.format.summary import (
    MINDSPORE_VERSION,
    SIGHTGLASS_VERSION,
    TENSORBOARD_VERSION,
    bytes_field,
    double_field,
    encode_version,
    varint_field,
)
from sightglass.storage.read.check import check
from sightglass.storage.read.recording import Recording, open_part

FIXTURES = Path(__file__).parents[1] / "fixtures"
DIALECTS = {"mindspore": mindspore, "tensorboard": tensorboard}
VERSIONS = {"mindspore": MINDSPORE_VERSION, "tensorboard": TENSORBOARD_VERSION}
WANDB_FILE = FIXTURES / "wandb.out" / "run-made.wandb"
NAMES = {
    "mindspore": "events.out.events.summary.{}.0.host_MS",
    "tensorboard": "events.out.tfevents.{}.host.1.0",
}
BEGAN = 1_700_000_000


def framed(parts: Any) -> bytes:
    return b"".join(map(bytes, frame(parts)))


def version(dialect: str, wall_time: float = BEGAN + 0.25) -> bytes:
    return framed(encode_version(VERSIONS[dialect], wall_time))


def events(dialect: str, values: dict[str, Any], *, step: int) -> bytes:
    """Return what a writer makes of values: one event, or one for each."""
    each = [values] if dialect == "mindspore" else [{tag: value} for tag, value in values.items()]
    made = [DIALECTS[dialect].encode_event(some, step=step, wall_time=BEGAN + step) for some in each]
    assert not any(left_out for _, left_out in made)
    return b"".join(framed(parts) for parts, _ in made)


def event(dialect: str, value: float, *, step: int, wall_time: float) -> bytes:
    return framed(DIALECTS[dialect].encode_event({"loss": value}, step=step, wall_time=wall_time)[0])


def path_of(folder: Path, dialect: str, began: int = BEGAN) -> Path:
    folder.mkdir(exist_ok=True)
    return folder / NAMES[dialect].format(began)


def write(folder: Path, dialect: str, logged: dict[int, dict[str, Any]], *, began: int = BEGAN) -> Path:
    path = path_of(folder, dialect, began)
    path.write_bytes(version(dialect) + b"".join(events(dialect, v, step=step) for step, v in logged.items()))
    return path


def fixture(folder: Path, name: str, dialect: str) -> Path:
    path = path_of(folder, dialect)
    shutil.copyfile(FIXTURES / name, path)
    return path


def tensors(tag: str) -> Key:
    return Key(kind="logged", tag=tag, values="tensor")


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_a_damaged_step_says_so(tmp_path: Path, dialect: str) -> None:
    path = write(tmp_path / "run", dialect, {step: {"w": np.array([step + 0.3, 5], np.float32)} for step in (1, 2, 3)})
    data = bytearray(path.read_bytes())
    data[data.index(np.float32(2.3).tobytes())] ^= 1
    path.write_bytes(data)

    with sg.open(tmp_path / "run") as run:
        series = run.series("w")
        assert series.steps.tolist() == [1, 3]
        with pytest.raises(DamagedError, match=r"offset \d+, \d+ bytes.*'w', step 2"):
            series.at(2)
        with pytest.raises(DamagedError):
            series.shape_at(2)


HISTOGRAM = np.array([[0, 1, 2], [1, 2, 0], [2, 4, 7.0]])
CURVE = np.array([[9, 4, 1], [5, 2, 0], [0, 3, 5], [0, 5, 8], [0.6, 0.6, 1], [1, 0.4, 0.1]])
PICTURE = encode_png(np.zeros((2, 3), np.uint8))


def unnamed(tmp_path: Path, tensor: list[Any], *, damaged: bool = True) -> Path:
    """Return a file with a tensor whose metadata an earlier record may have had, which is damaged."""
    path = write(tmp_path / "run", "tensorboard", {0: {"a": 0.5}, 1: {"b": np.arange(2.0)}})
    data = bytearray(path.read_bytes())
    data[data.index(np.float32(0.5).tobytes())] ^= damaged
    value = [*bytes_field(1, b"t"), *bytes_field(8, *tensor)]
    path.write_bytes(
        data + framed([double_field(1, BEGAN), varint_field(2, 7), *bytes_field(5, *bytes_field(1, *value))])
    )
    return path


def proto(array: Any) -> list[Any]:
    strings = [bytes_field(8, item) for item in array] if isinstance(array, list) else []
    if strings:
        return [*tensorboard_charts.encode_tensor(7, (len(array),)), *itertools.chain(*strings)]
    shape = tensorboard_charts.encode_tensor(tensorboard_charts.DATA_TYPES[array.dtype.name], array.shape)
    return [*shape, *bytes_field(4, array.tobytes())]


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (HISTOGRAM, Histogram),
        (CURVE, sg.Table),
        (CURVE.astype(np.float32), sg.Table),
        ([b"3", b"2", PICTURE], Figure),
        ([b"two words"], Text),
        (HISTOGRAM + 0.5, np.ndarray),
        (HISTOGRAM[::-1] - 3, np.ndarray),
        (HISTOGRAM.astype(int), np.ndarray),
        (CURVE - 1, np.ndarray),
        (np.ones((2, 2)), np.ndarray),
    ],
)
def test_what_a_tensor_is_shows_after_the_record_that_says_so_is_damaged(
    tmp_path: Path, content: Any, kind: type[Any]
) -> None:
    unnamed(tmp_path, proto(content))
    with sg.open(tmp_path / "run") as run:
        assert isinstance(run.series("t").at(7), kind)
        assert run.series("b").at(1).tolist() == [0, 1]


@pytest.mark.parametrize("rows", [HISTOGRAM[:1], np.zeros((4, 3)), HISTOGRAM[[0, 2]], np.zeros((6, 4)), CURVE[:, :1]])
def test_a_tensor_that_could_be_two_things_is_damage(tmp_path: Path, rows: Any) -> None:
    unnamed(tmp_path, proto(rows))
    name = "histograms" if rows.shape[1] == 3 else "pr_curves"
    with sg.open(tmp_path / "run") as run:
        assert list(run.tags()) == ["b"]
    _, damage = check(tmp_path / "run").damages
    assert (damage.tag, damage.step) == ("t", 7)
    assert damage.what.startswith(f"an array of shape {rows.shape}, or a value of the plugin {name!r}: ")


def test_a_tensor_without_a_plugin_is_an_array_in_an_undamaged_file(tmp_path: Path) -> None:
    unnamed(tmp_path, proto(HISTOGRAM), damaged=False)
    with sg.open(tmp_path / "run") as run:
        assert run.series("t").at(7).tolist() == HISTOGRAM.tolist()


def test_a_summary_directory_of_mindspore_opens(tmp_path: Path) -> None:
    fixture(tmp_path / "lenet", "mindspore.out.events", "mindspore")
    for other in ("_lineage", "_explain"):
        (tmp_path / "lenet" / f"events.out.events.summary.{BEGAN}.0.host{other}").write_bytes(b"not ours")
    (tmp_path / "lenet" / "ms_output.pb").write_bytes(b"not ours")

    with sg.open(tmp_path / "lenet") as run:
        assert run.name == "lenet"
        assert run.tags() == [
            "bits", "colour", "empty", "grey", "half", "holes", "huge", "ids", "kernel", "kernel:tensor", "loss",
            "mask", "none", "same", "weights", "wide",
        ]  # fmt: skip
        loss = run.series("loss")
        assert (loss.steps.tolist(), [r.value for r in loss]) == ([1, 2, 3, 0], [1.5, 0.75, 0.5, 0.0])
        assert (loss.type, loss.stored_as, loss[0].run) == ("float", "float32", "lenet")
        assert run.series("ids").type == "float32[3]"
        dtypes = {tag: (run.series(tag).dtype, run.series(tag).stored_as) for tag in ("ids", "mask", "half")}
        assert dtypes == {
            tag: (dtype, "float32") for tag, dtype in (("ids", "int64"), ("mask", "bool"), ("half", "float16"))
        }
        assert (run.series("kernel:tensor").dtype, run.series("kernel:tensor").stored_as) == ("float32", "")
        assert run.series("weights").dtype == ""
        kernel = run.series("kernel:tensor")
        np.testing.assert_array_equal(kernel.at(2), np.arange(6).reshape(2, 3) * 2)
        assert kernel.at(2, "[1, 1:]").tolist() == [8, 10]
        assert run.series("kernel").columns().values.tolist() == [1, 2, 3]
        assert isinstance(run.series("weights").at(1), Histogram)
        assert isinstance(run.series("grey").at(1), Figure)
        assert run.series("empty").at(1).shape == (0, 3)
        assert run.check().intact
        assert "log" in run.describe().events


def test_a_log_directory_of_tensorboard_opens(tmp_path: Path) -> None:
    fixture(tmp_path / "x", "tensorboardx.out.events", "tensorboard")
    fixture(tmp_path / "tf", "tensorflow.out.events", "tensorboard")

    with sg.open(tmp_path) as runs:
        assert isinstance(runs, sg.RecordedRuns)
        assert sorted(runs) == ["tf", "x"]
        x, tf = runs["x"], runs["tf"]
        assert x.tags() == ["default", "digit", "loss", "loss2", "note/text_summary", "weights", "zeros"]
        assert x.series("loss").columns().values.tolist() == [np.float32(0.1 * step) for step in (0, 1, 1000)]
        assert x.series("note/text_summary").at(1000) == Text("step *1000* ü")
        assert tf.series("loss").columns().values.tolist() == [0.0, 0.5, 1.0]
        assert tf.series("array/1").at(2).tolist() == [2**53 + 1, -1, 2]
        assert tf.series("array/1").stored_as == ""
        assert tf.series("array/12").columns().values.tolist() == [0, 1, 2]
        assert tf.series("array/12").columns().values.dtype == np.int64
        assert tf.series("repeated").at(0).tolist() == [7, 7, 7]
        assert len(tf.series("images").at(0)) == 2
        assert sorted(record.value for record in runs.stream("loss")) == sorted(
            [
                *tf.series("loss").columns().values.tolist(),
                *x.series("loss").columns().values.tolist(),
            ]
        )


def test_slices_are_those_of_the_whole(tmp_path: Path) -> None:
    fixture(tmp_path, "tensorflow.out.events", "tensorboard")
    with Recording(tmp_path) as recording:
        for tag in [tag for tag in recording.tags() if tag.startswith("array") and tag != "array/12"]:
            series = recording.series(tag)
            whole = series.at(1)
            part = series.at(1, "[..., 0:1]")
            assert (part.dtype, part.tolist()) == (whole.dtype, whole[..., :1].tolist())


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bool", "int64", "uint8", "complex128", "bfloat16"])
def test_slices_are_read_without_the_rest(tmp_path: Path, dtype: str) -> None:
    array = (np.arange(3 * 400 * 500) % 7).reshape(3, 400, 500).astype(dtype if dtype != "bfloat16" else "float32")
    if dtype == "bfloat16":
        array = array.astype(pytest.importorskip("ml_dtypes").bfloat16)
    part = EventFile(write(tmp_path, "tensorboard", {1: {"a": array, "b": array}}))
    (entry,) = part.entries()[tensors("a")]
    n_read = 0
    read, readinto = part._file.read, part._file.readinto

    def counted(offset: int, buffer: Any) -> int:
        nonlocal n_read
        n_read += len(buffer)
        return readinto(offset, buffer)

    assert part.load_slice(entry, 0, "[0, 0, 0]") == array[0, 0, 0]
    part._file.readinto = counted  # type: ignore[method-assign]
    got = part.load_slice(entry, 0, "[1, 2:4, ::2]")
    assert part._file.read == read
    assert got.dtype == array.dtype
    assert got.tolist() == array[1, 2:4, ::2].tolist()
    assert n_read < array.nbytes / 10
    with pytest.raises(QueryError, match="range"):
        part.load_slice(entry, 0, "[3]")
    part.close()


def test_opening_decodes_no_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dialect: str) -> None:
    path = write(tmp_path, dialect, {1: {"a": np.ones((4, 4)), "h": Histogram([1.0, 2.0]), "loss": 1.0}})
    monkeypatch.setattr("sightglass.storage.format.summary.from_raw", lambda *_: pytest.fail("decoded"))
    monkeypatch.setattr(DIALECTS[dialect], "from_buckets", lambda *_, **__: pytest.fail("decoded"))

    part = EventFile(path)

    assert {key.tag: entry.type for key, (entry,) in part.entries().items()} == {
        "a": "float32[4, 4]" if dialect == "mindspore" else "float64[4, 4]",
        "h": "Histogram",
        "loss": "float",
    }
    part.close()


def test_the_version_record_alone_says_which_program_wrote_a_file(tmp_path: Path) -> None:
    theirs = write(tmp_path / "a", "mindspore", {1: {"loss": 1.0}})
    misnamed = theirs.rename(theirs.with_name(NAMES["tensorboard"].format(1)))
    assert open_part(misnamed).dialect == "mindspore"

    for text, what in (("Foo.Event:1", "file of version"), ("brain.Event:3", "update sightglass")):
        path = path_of(tmp_path / text, "tensorboard")
        path.write_bytes(framed(encode_version(text, 1.0)))
        with pytest.raises(DamagedError, match=what):
            sg.open(path.parent)
        report = check(path)
        assert not report.intact
        assert what in str(report)
    path.write_bytes(b"no records at all, only some text that is long enough")
    with pytest.raises(DamagedError, match="record file"):
        sg.open(path.parent)
    path.write_bytes(framed(encode_version(SIGHTGLASS_VERSION, 1.0)))
    assert open_part(path).dialect == "sightglass"


@pytest.mark.parametrize("at", [0, 9, 14])
def test_a_file_with_a_damaged_first_record_opens_by_its_name(tmp_path: Path, dialect: str, at: int) -> None:
    path = write(tmp_path, dialect, {step: {"loss": float(step)} for step in range(3)})
    data = bytearray(path.read_bytes())
    data[at : at + 16] = bytes(16)
    path.write_bytes(data)
    with Recording(tmp_path) as recording:
        assert recording.series("loss").steps.tolist() == [0, 1, 2]
        assert [damage.offset for damage in recording.damages] == [0]


def test_all_values_of_a_log_event_have_one_ordinal(tmp_path: Path, dialect: str) -> None:
    write(tmp_path, dialect, {step: {"loss": float(step), "lr": 0.5, "a": np.ones(2)} for step in range(9)})

    with sg.open(tmp_path) as run:
        for tag in ("loss", "lr", "a"):
            assert run.series(tag).columns().ordinals.tolist() == list(range(9))
        log = sg.on("log")
        assert [r.value for r in run.stream(log.map(lambda e: e["loss"] * e["lr"]))] == [s * 0.5 for s in range(9)]
        assert [r.value for r in run.stream("loss")] == list(range(9))
        assert [r.value for r in run.stream(log.map(lambda e: e["loss"]).mean(every=3))] == [1, 4, 7]
        assert [r.step for r in run.stream(log.map(lambda e: e.a.sum()))] == list(range(9))


def by_hand(values: list[tuple[int, int, int]]) -> list[int]:
    """Number log events as the rule says."""
    numbers: list[int] = []
    number, at, seen = -1, None, set[int]()
    for event in dict.fromkeys(event for event, _, _ in values):
        members = [(series, step) for e, series, step in values if e == event]
        tags = {series for series, _ in members}
        if members[0][1] != at or seen & tags:
            number, at, seen = number + 1, members[0][1], set()
        seen |= tags
        numbers += [number] * len(members)
    return numbers


@given(
    st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 3), min_size=1, max_size=3)), max_size=30),
    st.sets(st.integers(0, 30)),
)
def test_log_events_are_numbered_by_the_rule_in_any_batches(
    logged_events: list[tuple[int, list[int]]], cuts: set[int]
) -> None:
    values = [(i, series, step) for i, (step, several) in enumerate(logged_events) for series in several]
    log_events, numbers = LogEvents(joins_steps=True), []
    bounds = [0, *sorted(cut for cut in cuts if cut < len(logged_events)), len(logged_events)]
    for low, high in itertools.pairwise(bounds):
        columns = np.array([v for v in values if low <= v[0] < high], np.int64).reshape(-1, 3).T
        numbers += log_events.number(*columns).tolist()

    assert numbers == by_hand(values)


VALUES = {"loss": 0.25, "kernel": np.arange(40.0, dtype=np.float32), "h": Histogram([1.0, 2.0, 4.0])}


def everything(part: EventFile) -> dict[tuple[str, int], Any]:
    """Return all values that can be read, as something to compare, by tag and step."""
    found = {}
    for key, entries in part.entries().items():
        for entry in entries:
            try:
                columns = part.load(entry)
            except DamagedError:
                continue
            for step, value in zip(columns.steps.tolist(), columns.values, strict=True):
                found[key.tag, step] = repr(value.tolist() if isinstance(value, np.ndarray) else value)
    return found


def test_any_wrong_bit_costs_one_frame_and_is_never_a_value(tmp_path: Path, dialect: str) -> None:
    path = write(tmp_path, dialect, {step: VALUES | {"loss": step / 4} for step in range(1, 7)})
    good = path.read_bytes()
    part = EventFile(path)
    whole = everything(part)
    n_per_frame = 3 if dialect == "mindspore" else 1
    n_last = len(events(dialect, VALUES if dialect == "mindspore" else {"h": VALUES["h"]}, step=6))
    part.close()
    assert len(whole) == 18
    rng = random.Random(dialect)

    for place in [*range(60), *rng.sample(range(60, len(good)), 150)]:
        bad = bytearray(good)
        bad[place] ^= 1 << rng.randrange(8)
        path.write_bytes(bad)
        part = EventFile(path)
        seen = everything(part)
        lost = whole.keys() - seen.keys()
        assert seen.items() <= whole.items()
        last = place >= len(good) - n_last
        assert part.dialect == dialect
        assert (len(lost) in (0, n_per_frame) and len(part.damages) == 1) or (last and part.torn)
        for damage in part.damages:
            assert damage.path == path
            assert damage.offset <= place < damage.offset + damage.length
            assert not damage.tag or damage.tag in VALUES
        part.close()


def test_damage_is_named_and_skipped(tmp_path: Path, dialect: str) -> None:
    before = {step: {"loss": step / 4} for step in range(1, 4)}
    path = write(tmp_path, dialect, before)
    place = len(path.read_bytes())
    path.write_bytes(path.read_bytes() + events(dialect, {"kernel": np.ones(5000)}, step=4) * 2)
    bad = bytearray(path.read_bytes())
    bad[place + 3000] ^= 1
    bad[place - 8] ^= 1  # the value of the last loss
    path.write_bytes(bad)

    with sg.open(tmp_path) as run:
        assert run.series("loss").steps.tolist() == [1, 2]
        assert run.series("kernel").n == 1
        report = run.check()
    assert [(d.tag, d.step) for d in report.damages] == [("loss", 3), ("", None)]
    assert [d.offset for d in report.damages][1] == place
    assert "damaged" in str(report)


def test_bytes_that_change_after_the_scan_are_never_values(tmp_path: Path, dialect: str) -> None:
    path = write(tmp_path, dialect, {1: {"kernel": np.zeros(5000), "other": np.zeros(10)}})
    part = EventFile(path)
    (entry,) = part.entries()[tensors("kernel")]
    bad = bytearray(path.read_bytes())
    bad[3000] = 1
    path.write_bytes(bad)

    for read in (lambda: part.load(entry), lambda: part.load_slice(entry, 0, "[1]")):
        with pytest.raises(DamagedError, match=f"offset {entry.offset}, .*'kernel', step 1"):
            read()
    assert len(part.damages) == 1
    part.close()


def test_an_empty_array_cannot_claim_more_than_numpy_allows(tmp_path: Path) -> None:
    parts, _ = tensorboard.encode_event({"a": np.zeros((0, 2**21, 2**21, 2**20), np.int8)}, step=1, wall_time=BEGAN)
    sizes = b"".join(map(bytes, parts)).replace(b"\x80\x80\x80\x01", b"\xff\xff\xff\x7f")  # 2**21 becomes 2**28 - 1
    path = tmp_path / NAMES["tensorboard"].format(BEGAN)
    path.write_bytes(version("tensorboard") + framed([sizes]))
    part = EventFile(path)
    (entry,) = part.entries()[tensors("a")]
    for read in (lambda: part.load(entry), lambda: part.load_slice(entry, 0, "[..., ::2]")):
        with pytest.raises(DamagedError):
            read()
    part.close()


def test_malformed_values_are_damage(tmp_path: Path) -> None:
    bad = [*bytes_field(1, b"h"), *bytes_field(9, *bytes_field(1, double_field(1, 1.0), varint_field(3, 2**63)))]
    path = path_of(tmp_path, "mindspore")
    event = [double_field(1, 1.0), varint_field(2, 7), *bytes_field(5, *bytes_field(1, *bad))]
    path.write_bytes(version("mindspore") + framed(event) + framed([b"\xff\xff"]) + framed(event))

    with Recording(tmp_path) as recording:
        with pytest.raises(DamagedError, match="'h', step 7"):
            recording.series("h").at(7)
        assert [d.what.partition(":")[0] for d in recording.damages] == [
            "it is not an event",
            "Expected counts from 0 to 2**62 in the buckets of a histogram",
        ]


def test_a_file_grows_from_nothing_byte_by_byte(tmp_path: Path, dialect: str) -> None:
    whole = write(tmp_path, dialect, dict.fromkeys(range(1, 4), VALUES)).read_bytes()
    path = path_of(tmp_path, dialect)
    path.write_bytes(b"")
    rng = random.Random(1)
    cuts = sorted(rng.sample(range(1, len(whole)), 60))

    with Recording(tmp_path) as recording, path.open("ab", buffering=0) as file:
        n_seen = 0
        for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
            file.write(whole[start:end])
            recording.refresh()
            n = sum(recording.series(tag).n for tag in recording.tags())
            assert n >= n_seen
            n_seen = n
            assert not recording.damages
        assert (n_seen, recording.torn) == (9, 0)
        assert recording.series("kernel").columns().values.shape == (3, 40)
        assert not recording.refresh()


def test_a_restart_at_a_lower_step_hides_the_tail(tmp_path: Path, dialect: str) -> None:
    write(tmp_path, dialect, {step: {"loss": float(step), "a": np.ones(2)} for step in range(6)})
    write(tmp_path, dialect, {step: {"loss": -float(step)} for step in range(3, 8)}, began=BEGAN + 60)

    with Recording(tmp_path) as recording:
        loss = recording.series("loss").columns()
        assert loss.steps.tolist() == list(range(8))
        assert loss.values.tolist() == [0, 1, 2, -3, -4, -5, -6, -7]
        assert loss.ordinals.tolist() == list(range(8))
        assert recording.info.started == BEGAN + 0.25
        assert recording.series("a").n == 6


@pytest.mark.parametrize("steps", [range(3, 5), range(3, 9)])
def test_the_greatest_step_is_one_that_a_restart_left(tmp_path: Path, dialect: str, steps: range) -> None:
    write(tmp_path, dialect, {step: {"loss": float(step)} for step in range(8)})
    write(tmp_path, dialect, {step: {"loss": -float(step)} for step in steps}, began=BEGAN + 60)

    with Recording(tmp_path) as recording:
        loss = recording.series("loss")
        assert loss.span == (loss.steps.min(), loss.steps.max()) == (0, steps[-1])


def test_files_that_began_within_one_second_stay_apart(tmp_path: Path) -> None:
    for number, began in enumerate((0.5, 0.75)):
        path = tmp_path / f"events.out.tfevents.{BEGAN}.host.{9 - number}.{number}"
        content = b"".join(
            event("tensorboard", float(number), step=step, wall_time=BEGAN + began + step / 100)
            for step in range(number, number + 3)
        )
        path.write_bytes(version("tensorboard", BEGAN + began) + content)

    with Recording(tmp_path) as recording:
        assert recording.series("loss").columns().values.tolist() == [0, 1, 1, 1]
        assert recording.overlap == ""
    assert check(tmp_path).intact


@given(
    dialect=st.sampled_from([*DIALECTS]),
    logged=st.lists(st.tuples(st.sampled_from([0, 1, 2]), st.integers(0, 9)), min_size=2, max_size=20),
)
def test_writers_of_one_folder_hide_nothing_of_each_other_unless_one_began_after_the_other(
    tmp_path_factory: pytest.TempPathFactory, dialect: str, logged: list[tuple[int, int]]
) -> None:
    """Each writer has a file, which begins with its first event; an event takes ten seconds."""
    folder = tmp_path_factory.mktemp("shared")
    files: dict[int, list[tuple[int, int, int]]] = {}
    for number, (writer, step) in enumerate(logged):
        files.setdefault(writer, []).append((BEGAN + 10 * number, step, 100 * writer + step))
    for rows in files.values():
        content = b"".join(event(dialect, float(value), step=step, wall_time=wall) for wall, step, value in rows)
        path_of(folder, dialect, rows[0][0]).write_bytes(version(dialect, rows[0][0]) + content)
    writers = [*files.values()]  # in the order in which they began
    expected: list[float] = []
    for k, rows in enumerate(writers):
        after = [later for later in writers[k + 1 :] if later[0][0] > rows[-1][0]]
        limit = min((later[0][1] for later in after), default=math.inf)
        expected += [float(value) for _, step, value in rows if step < limit]
    at_once = any(later[0][0] < rows[-1][0] for k, rows in enumerate(writers) for later in writers[k + 1 :])
    with Recording(folder) as recording:
        assert bool(recording.overlap) == at_once
        if expected:
            assert recording.series("loss").columns().values.tolist() == expected


def test_the_lowest_rank_is_opened_by_default(tmp_path: Path) -> None:
    for rank in (3, 5):
        path = tmp_path / f"events.out.events.summary.{BEGAN}.{rank}.host_MS"
        path.write_bytes(version("mindspore") + events("mindspore", {"rank": float(rank)}, step=1))

    with sg.open(tmp_path) as lowest, sg.open(tmp_path, rank=5) as other:
        assert (lowest.ranks, other.ranks) == ([3, 5], [3, 5])
        assert (lowest.series("rank")[0].value, other.series("rank")[0].value) == (3, 5)


def test_values_that_cannot_be_shown_are_counted(tmp_path: Path) -> None:
    fixture(tmp_path, "tensorflow.out.events", "tensorboard")
    with Recording(tmp_path) as recording:
        (part,) = recording.parts
        assert isinstance(part, EventFile)
        assert part.passed_over == {"graph": 1}
    (tmp_path / "projector_config.pbtxt").write_text("embeddings {}")
    report = str(check(tmp_path))
    assert "not shown: 1 x graph" in report
    assert report.endswith("\n  projector_config.pbtxt: embeddings, not shown")


def test_what_pytorch_writes_is_shown_or_named(tmp_path: Path) -> None:
    fixture(tmp_path, "torch.out.events", "tensorboard")
    with Recording(tmp_path) as recording:
        assert set(recording.tags()) == {"note/text_summary", "pr", "tone"}
        tone = recording.series("tone")[1].value
        assert (tone.rate, tone.value.dtype, len(tone.value)) == (8_000, np.int16, 400)
        sine = np.sin(2 * np.pi * 880 * np.arange(400) / 8_000)  # as in make_torch.py
        np.testing.assert_allclose(tone.value / 32_767, 0.5 * sine, atol=1 / 32_767)
        curve = recording.series("pr")[1].value
        assert list(curve.value) == ["threshold", *tensorboard_charts.ROWS]
        rng = np.random.default_rng(1)  # as in make_torch.py
        labels = rng.integers(0, 2, 200)
        sure = np.clip(labels * 0.4 + rng.normal(0.3, 0.2, 200), 0, 1)
        for threshold, hits, precision, recall in zip(
            *(curve[name] for name in ("threshold", "true_positives", "precision", "recall")), strict=True
        ):
            chosen = np.floor(sure * 20) >= round(threshold * 20)
            assert hits == (found := (chosen & (labels == 1)).sum())
            assert (precision, recall) == pytest.approx((found / max(1, chosen.sum()), found / labels.sum()), abs=1e-6)
        assert recording.charts == [
            tensorboard_charts.ChartLayout(category="Both", title="loss", tags=("loss/train", "loss/test"))
        ]
        named = {"graph": 1, "mesh": 1, "run metadata": 1}
        assert (recording.passed_over, recording.damages) == (named, [])
    assert check(tmp_path).intact


def test_several_numbers_of_a_tag_in_one_event_are_several_records(tmp_path: Path) -> None:
    one = [*bytes_field(1, b"a"), *tensorboard_charts.encode_value(1.0)]
    arrays = [[*bytes_field(1, b"b"), *tensorboard_charts.encode_value(np.full(n, n))] for n in (1, 2)]
    event = [
        double_field(1, 1.0),
        *(part for value in (one, one, *arrays) for part in bytes_field(5, *bytes_field(1, *value))),
    ]
    path_of(tmp_path, "tensorboard").write_bytes(version("tensorboard") + framed(event) * 2)

    with Recording(tmp_path) as recording:
        assert recording.series("a").columns().values.tolist() == [1, 1, 1, 1]
        assert [record.value.tolist() for record in recording.series("b")] == [[1], [2, 2], [1], [2, 2]]
        assert recording.series("b").columns().index == 0


@given(st.data())
def test_scalars_mixed_with_anything_come_in_order(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    kinds = st.sampled_from([0.5, 1.25, np.int64(3), True, np.ones(2), Text("a")])
    logged_events = data.draw(st.lists(st.tuples(st.sampled_from("ab"), kinds), max_size=40))
    folder = tmp_path_factory.mktemp("f")
    path = path_of(folder, "tensorboard")
    parts = [version("tensorboard")]
    for step, (tag, value) in enumerate(logged_events):
        if isinstance(value, np.int64 | bool):
            shaped = [varint_field(1, 9 if value is not True else 10), *bytes_field(4, np.asarray(value).tobytes())]
            content = [*bytes_field(1, tag.encode()), *bytes_field(8, *shaped)]
            event = [double_field(1, 1.0), varint_field(2, step), *bytes_field(5, *bytes_field(1, *content))]
            parts.append(framed(event))
        else:
            parts.append(events("tensorboard", {tag: value}, step=step))
    path.write_bytes(b"".join(parts))

    with Recording(folder) as recording:
        found = sorted(
            ((record.step, tag, record.value) for tag in recording.tags() for record in recording.series(tag)),
            key=lambda item: item[0],
        )
        assert [step for step, _, _ in found] == list(range(len(logged_events)))
        for (_, name, got), (tag, value) in zip(found, logged_events, strict=True):
            assert name.partition(":")[0] == tag
            assert type(got) is type(value.item() if isinstance(value, np.generic) else value)
            assert np.array_equal(got, value) if isinstance(got, np.ndarray) else got == value
        assert not recording.damages


@given(
    dialect=st.sampled_from([*DIALECTS, "wandb"]),
    steps=st.lists(
        st.tuples(st.floats(0, 1), st.sampled_from(["append", "rename", "rewrite"])), min_size=1, max_size=6
    ),
)
def test_a_file_that_is_synced_is_followed_however_it_is_copied(
    tmp_path_factory: pytest.TempPathFactory, dialect: str, steps: list[tuple[float, str]]
) -> None:
    """rsync, Syncthing and most cloud drives copy to another name and rename; shorter copies may come in between."""
    folder = tmp_path_factory.mktemp("synced")
    if dialect == "wandb":
        data, path = WANDB_FILE.read_bytes(), folder / WANDB_FILE.name
        with Recording(WANDB_FILE) as whole:
            tag = next(key.tag for key in whole.keys() if key.values == "scalar")  # noqa: SIM118  not a mapping
            expected = whole.series(tag).columns().values.tolist()
    else:
        path, tag, expected = path_of(folder, dialect), "loss", [float(i) for i in range(30)]
        data = version(dialect) + b"".join(events(dialect, {"loss": x}, step=i) for i, x in enumerate(expected))
    path.write_bytes(data[:12])
    with Recording(folder) as recording:
        most = 0
        for share, how in [*steps, (1.0, steps[-1][1])]:
            end = max(12, round(share * len(data)))
            if how == "rename":
                beside = folder / ".copy.tmp"
                beside.write_bytes(data[:end])
                beside.replace(path)
            elif how == "rewrite":
                path.write_bytes(data[: max(end, path.stat().st_size)])
            else:
                with path.open("ab") as file:
                    file.write(data[path.stat().st_size : end])
            if recording.changed():
                recording.refresh()
            n = len(recording.series(tag)) if tag in recording.tags() else 0
            assert n >= most
            most = n
            if n:
                assert recording.series(tag).columns().values.tolist() == expected[:n]
        assert most == len(expected)
