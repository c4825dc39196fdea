"""Offline runs of Weights & Biases: files that the package wrote, whole, growing, damaged; and odd ones made here."""

from __future__ import annotations

import json
import math
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from tests.profiles import examples
from tests.storage import wandb_files
from tests.waiting import PATIENCE_S, wait_until

import sightglass as sg
from sightglass.core.errors import DamagedError
from sightglass.core.table import Table
from sightglass.core.values import Audio, Figure, Histogram, Text
from sightglass.storage import run_file, run_listing
from sightglass.storage.foreign.wandb_file import WandbFile
from sightglass.storage.foreign.wandb_log import BLOCK_BYTES, FIRST, FULL, HEADER_BYTES, LAST, MIDDLE
from sightglass.storage.format.summary import bytes_field, varint_field
from sightglass.storage.format.wav import encode_wav
from sightglass.storage.read.recording import Recording

PROGRAM = Path(__file__).with_name("wandb_run.py")
N_ROWS = 100
HEAD = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)

TAGS = {"loss", "count", "val/acc", "val/deep/x", "score", "nan", "inf", "mixed", "text", "big", "long"}
"""Those whose values are numbers and texts."""
PLACES = ["../secret.png", "/etc/hosts", "media/../../secret.png", "link.png", "a\\b", "pipe", ""]

Values = dict[str, list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a run that the package made."""
    pytest.importorskip("wandb")
    folder = tmp_path_factory.mktemp("made")
    arguments = [sys.executable, PROGRAM, folder, str(N_ROWS)]
    subprocess.run(arguments, env=wandb_files.environment(), check=True, capture_output=True, timeout=PATIENCE_S)
    [directory] = folder.glob("wandb/offline-run-*")
    return directory


@pytest.fixture
def run(made: Path) -> Iterator[Any]:
    with sg.open(made) as opened:
        yield opened


# A log as the format describes it


def item(path: Sequence[str], text: str, *, nested: bool = True) -> bytes:
    keys = [part for name in path for part in bytes_field(2 if nested else 1, name.encode())]
    return b"".join(map(bytes, bytes_field(1, *keys, *bytes_field(16, text.encode()))))


def record(field: int, *body: bytes) -> bytes:
    return b"".join(map(bytes, (varint_field(1, 7), *bytes_field(field, *body))))


def row(step: int, values: dict[str, Any], *, nested: bool = True) -> bytes:
    own = {"_step": step, "_timestamp": 1.7e9 + step}
    items = [item([name], json.dumps(value), nested=nested) for name, value in (values | own).items()]
    return record(2, *items, *bytes_field(2, varint_field(1, step)))


def log(records: Sequence[bytes]) -> bytes:
    data = HEAD
    for whole in records:
        left, kinds = whole, (FULL, FIRST)
        while True:
            room = BLOCK_BYTES - len(data) % BLOCK_BYTES
            if room < HEADER_BYTES:
                data += bytes(room)
                room = BLOCK_BYTES
            part, left = left[: room - HEADER_BYTES], left[room - HEADER_BYTES :]
            chunk = bytes([kinds[bool(left)]]) + part
            data += struct.pack("<IH", crc32(chunk), len(part)) + chunk
            kinds = (LAST, MIDDLE)
            if not left:
                break
    return data


def placed(folder: Path, data: bytes) -> WandbFile:
    path = folder / "run-made.wandb"
    path.write_bytes(data)
    return WandbFile(path)


def plain(value: Any) -> Any:
    """Return a value that equals itself only if all of it does, NaN included."""
    match value:
        case np.ndarray():
            return (value.dtype.name, value.shape, value.tobytes())
        case Table():
            return tuple((name, str(list(column))) for name, column in value.value.items())
        case Histogram():
            return (tuple(value.counts.tolist()), tuple(value.edges.tolist()))
        case float() | np.floating():
            return struct.pack("<d", float(value)) if value == value else "nan"
        case np.bool_() | np.integer():
            return value.item()
    return value


def values_of(file: WandbFile) -> Values:
    """Return (step, wall time, value) of each record of each series; damaged ones are left out."""
    found: Values = {}
    for key, entries in file.entries().items():
        for entry in entries:
            try:
                columns = file.load(entry)
            except DamagedError:
                continue
            rows = zip(columns.steps.tolist(), columns.wall_times.tolist(), map(plain, columns.values), strict=True)
            found.setdefault(key.tag, []).extend(rows)
    return found


# What the package wrote


def test_all_numbers_and_texts_are_those_that_the_package_wrote(made: Path) -> None:
    [path] = made.glob("*.wandb")
    expected: Values = {}
    for written in wandb_files.records_in(path.read_bytes()):
        if written.WhichOneof("record_type") == "history":
            values = {"/".join(one.nested_key): json.loads(one.value_json) for one in written.history.item}
            for tag in TAGS & values.keys():
                value = {"score": -0.0}.get(tag, values[tag])  # -0 is an integer to Python
                value = float(value) if type(value) is int and tag != "big" else value
                expected.setdefault(tag, []).append((written.history.step.num, values["_timestamp"], plain(value)))
    found = values_of(WandbFile(path))
    assert {tag: found[tag] for tag in TAGS} == expected
    assert len(expected["loss"]) == N_ROWS + 2


def test_values_of_other_types(run: Any) -> None:
    weights = run.series("weights").at(N_ROWS + 1)
    counts, edges = np.histogram(np.arange(100.0), bins=64)
    assert (weights.counts.tolist(), weights.edges.tolist()) == (counts.tolist(), edges.tolist())
    np.testing.assert_array_equal(run.series("matrix").at(N_ROWS + 1), np.eye(2))
    assert run.series("matrix").at(N_ROWS + 1, "[1]").tolist() == [0, 1]
    np.testing.assert_array_equal(run.series("list").at(N_ROWS), [1, 2.5])
    one, several = run.series("one").at(N_ROWS + 2), run.series("several").at(N_ROWS + 2)
    assert isinstance(one, Figure)
    assert one.media_type == "image/png"
    assert [type(figure) for figure in several] == [Figure, Figure]
    assert several[0].data == one.data != several[1].data


def test_a_table_that_the_package_wrote(run: Any) -> None:
    table = run.series("table").at(N_ROWS + 3)
    assert repr(table) == "Table(2 rows: a int64, b text, c float64, d text)"
    assert (table["a"].tolist(), table["b"], table["c"].tolist()) == ([1, 2], ["x", None], [0.5, 1.5])
    assert table["d"] == ["[1, 2]", "[3]"]


@pytest.mark.parametrize(
    "text",
    [
        "[]", "{", '{"columns": ["a", "a"], "data": []}', '{"columns": ["a"], "data": [[1], []]}',
        '{"columns": ["a"], "data": [3]}',
    ],
)  # fmt: skip
def test_what_is_no_table_is_damage(tmp_path: Path, text: str) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "t.json").write_text(text)
    file = placed(tmp_path, log([row(4, {"t": {"_type": "table-file", "path": "t.json"}})]))
    [[entry]] = file.entries().values()
    with pytest.raises(DamagedError, match="table"):
        file.load(entry)


def test_what_the_run_says_of_itself(run: Any, made: Path) -> None:
    assert (run.name, run.ended) == ("nice", True)
    assert run.config == {"lr": 0.1, "optimizer": {"name": "adam", "betas": [0.9, 0.99]}, "late": "x"}
    assert run.describe().state == "failed"
    entry = run_listing.run_at(made, alive=lambda _: False)
    assert entry is not None
    assert (entry.name, entry.state, entry.problem) == ("nice", "failed", "")
    assert run_file.read_all(made)[0].config == run.config


def test_console_summary_and_system_metrics(run: Any) -> None:
    console = "\n".join(record.value.value for record in run.series("console/stdout"))
    assert console == "first 1 line\n100 %\nlast"
    assert [type(record.value) for record in run.series("console/stdout")] == [Text] * 3
    assert [tag for tag in run.tags() if tag.startswith("summary/")] == ["summary/best"]
    assert run.series("summary/best").columns().values.tolist() == [0.9]
    assert len(run.series("system/memory_percent")) >= 1


def test_values_that_cannot_be_shown_are_named(run: Any) -> None:
    report = run.check()
    assert report.intact
    [file] = report.files
    assert file.dialect == "wandb"
    assert file.passed_over == {"artifact": 1, "html-file": 1, "list": 1, "null": 1}
    assert "not shown: 1 x artifact, 1 x html-file, 1 x list, 1 x null" in str(report)


def test_queries_and_tables(run: Any, made: Path) -> None:
    assert run.stream("loss").to_arrays().values.tolist()[-2:] == [5, 6]
    with sg.open(made.parent) as runs:
        [answer] = runs.table(best='log.loss.max(per="run")')
        assert (answer["run"], answer["best"]) == (made.name, 6)


# Growing


def test_a_growing_file_is_followed(made: Path, tmp_path: Path) -> None:
    [path] = made.glob("*.wandb")
    data, rng = path.read_bytes(), random.Random(0)
    shutil.copytree(made / "files", tmp_path / "files")
    file = placed(tmp_path, b"")
    assert (file.torn, file.entries()) == (0, {})
    size, seen = 0, 0
    while size < len(data):
        size = min(len(data), size + rng.choice((1, 3, 50, 400, 5_000, 40_000)))
        (tmp_path / "run-made.wandb").write_bytes(data[:size])
        file.refresh()
        n = sum(len(rows) for rows in values_of(file).values())
        assert n >= seen
        seen = n
        assert not file.damages
    whole = WandbFile(path)
    assert values_of(file) == values_of(whole)
    assert (file.torn, file.told, file.passed_over) == (0, whole.told, whole.passed_over)
    assert not file.refresh()


def test_a_run_of_the_package_is_followed(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    arguments = [sys.executable, PROGRAM, tmp_path, str(N_ROWS), "wait"]
    with subprocess.Popen(
        arguments, env=wandb_files.environment(), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as program:
        directory = wait_until(lambda: next(tmp_path.glob("wandb/offline-run-*/*.wandb"), None)).parent
        with Recording(directory) as recording:

            def n_rows() -> int:
                recording.refresh()
                return len(recording.series("loss")) if "loss" in recording.tags() else 0

            assert wait_until(n_rows) <= N_ROWS + 2  # W&B writes blocks of 32 KiB
            assert recording.info.ended is None
            assert program.stdin is not None
            program.stdin.write("\n")
            program.stdin.close()
            wait_until(lambda: n_rows() == N_ROWS + 2 and recording.info.ended)
            assert recording.damages == []


# Damage


def mutate(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 3))):
        at, n = rng.randrange(len(out)), rng.choice((1, 4, 100, 10_000))
        match rng.randrange(6):
            case 0:
                out[at] ^= 1 << rng.randrange(8)
            case 1:
                out[at : at + n] = rng.randbytes(min(n, len(out) - at))
            case 2:
                out[at : at + n] = bytes(min(n, len(out) - at))
            case 3:
                del out[at : at + n]
            case 4:
                out[at:at] = rng.randbytes(n)
            case 5:
                del out[max(1, at) :]
    return bytes(out)


def test_damaged_files_raise_nothing_and_show_no_wrong_value(made: Path, tmp_path: Path) -> None:
    [path] = made.glob("*.wandb")
    data, rng = path.read_bytes(), random.Random(1)
    shutil.copytree(made / "files", tmp_path / "files")
    right = {tag: set(rows) for tag, rows in values_of(WandbFile(path)).items()}
    n, n_opened = examples(1_000), 0
    for _ in range(n):
        mutated = mutate(data, rng)
        try:
            file = placed(tmp_path, mutated)
        except DamagedError:
            continue
        n_opened += 1
        for tag, rows in values_of(file).items():
            assert set(rows) <= right[tag]
        file.close()
    assert n_opened > 0.9 * n


def test_what_takes_the_step_of_a_lost_row_is_lost(tmp_path: Path) -> None:
    best = [record(3, item(["best"], text, nested=False)) for text in ("0.1", "0.2", "0.3")]
    rows = [row(step, {"loss": 0.5, "pad": "x" * (step == 2)}) for step in range(4)]
    data = bytearray(log([rows[1], best[0], rows[2], best[1], rows[3], best[2]]))
    data[bytes(data).index(b'"x"') + 1] ^= 1
    file = placed(tmp_path, bytes(data))
    assert [row[0] for row in values_of(file)["summary/best"]] == [1, 3]
    assert [damage.what for damage in file.damages] == [
        "a part of the log is damaged", "the row whose step it has is damaged",
    ]  # fmt: skip
    file.close()


def test_damage_costs_one_record(tmp_path: Path) -> None:
    data = bytearray(log([row(step, {"loss": float(step), "pad": "x" * 500}) for step in range(400)]))
    hurt = bytes(data).index(b'"' + b"x" * 500, 3 * BLOCK_BYTES)
    data[hurt + 1] ^= 1
    file = placed(tmp_path, bytes(data))
    [damage] = file.damages
    assert damage.offset <= hurt < damage.offset + damage.length
    assert str(damage).startswith(f"{tmp_path / 'run-made.wandb'}, offset {damage.offset}, ")
    steps = [step for step, _, _ in values_of(file)["loss"]]
    assert len(steps) == 399
    assert sorted({*range(400)} - {*steps}) == [next(i for i, step in enumerate(steps) if i != step)]


@pytest.mark.parametrize("place", [4, 5])
def test_a_wrong_length_costs_one_record(tmp_path: Path, place: int) -> None:
    records = [row(step, {"loss": float(step)}) for step in range(50)]
    before = len(log(records[:20]))
    data = bytearray(log(records))
    data[before + place] ^= 0x11
    file = placed(tmp_path, bytes(data))
    assert [step for step, _, _ in values_of(file)["loss"]] == [*range(20), *range(21, 50)]
    assert [damage.offset for damage in file.damages] == [before]


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DamagedError, match="Weights & Biases"):
        placed(tmp_path, b"something else")
    with pytest.raises(DamagedError, match=r"version 0.*got 1"):
        placed(tmp_path, HEAD[:-1] + b"\1")


# Odd records


def test_rows_of_older_versions_are_read_alike(tmp_path: Path) -> None:
    histogram = {"_type": "histogram", "values": [1, 2], "packedBins": {"min": -1, "size": 0.5, "count": 2}}
    values = {"a": 1, "b": {"c": 2.5, "d": {"e": "x"}}, "h": histogram, "nothing": {}}
    summary = record(3, item(["a"], "1", nested=False), item(["best"], "3", nested=False))
    file = placed(tmp_path, log([row(3, values, nested=False), summary]))
    found = {tag: rows[0][2] for tag, rows in values_of(file).items()}
    numbers = {tag: struct.pack("<d", value) for tag, value in {"a": 1, "b/c": 2.5, "summary/best": 3}.items()}
    assert found == {**numbers, "b/d/e": "x", "h": ((1, 2), (-1, -0.5, 0))}


def test_keys_that_would_have_one_tag_are_two_series(tmp_path: Path) -> None:
    both = record(2, item(["a/b"], "1"), item(["a", "b"], "2"))
    file = placed(tmp_path, log([both]))
    assert {tag: rows[0][2] for tag, rows in values_of(file).items()} == {
        "a/b": plain(1.0),
        "a/b (a.b)": plain(2.0),
    }


def test_numbers_stay_what_they_are(tmp_path: Path) -> None:
    texts = ["1e-320", "-0", "-0.0", "NaN", "-Infinity", "9007199254740993", "100000000000000000000", "1e400", "7"]
    file = placed(tmp_path, log([record(2, item(["a"], text), item(["b"], "1")) for text in texts]))
    expected = [1e-320, -0.0, -0.0, math.nan, -math.inf, 9007199254740993, 1e20, math.inf, 7.0]
    found = values_of(file)
    assert [value for _, _, value in found["a"]] == list(map(plain, expected))
    assert len(found["b"]) == len(texts)


def test_keys_that_resemble_those_of_wandb_are_the_programs(tmp_path: Path) -> None:
    names = ("_mine", "_runtime_mine", "__x__", "_n/a", "_")
    rows = [row(step, dict.fromkeys(names, step) | {"_runtime": 1.0, "_wandb": 2}) for step in range(3)]
    config = record(17, *bytes_field(4, item(["_lr"], "0.5"), item(["_wandb"], "{}"), item(["_"], "1")))
    file = placed(tmp_path, log([config, *rows]))
    assert {key.tag for key in file.entries()} == set(names)
    assert file.told["config"] == {"_lr": 0.5, "_": 1}


@pytest.mark.parametrize("text", ["1,2", "", "[1", '{"_type": 5}', "1 2", "tru", "-", "\x00"])
def test_json_that_is_wrong_costs_its_record(tmp_path: Path, text: str) -> None:
    good = row(1, {"a": 1.0})
    file = placed(tmp_path, log([good, record(2, item(["a"], text), item(["b"], "1")), row(2, {"a": 2.0})]))
    assert [(step, value) for step, _, value in values_of(file)["a"]] == [(1, plain(1.0)), (2, plain(2.0))]
    assert len(file.damages) + sum(file.passed_over.values()) == 1


@pytest.mark.parametrize("path", PLACES)
def test_images_are_read_from_the_files_of_the_run_only(tmp_path: Path, path: str) -> None:
    home = tmp_path / "run"
    (home / "files").mkdir(parents=True)
    (tmp_path / "secret.png").write_bytes(b"secret")
    (home / "secret.png").write_bytes(b"secret")
    (home / "files" / "link.png").symlink_to(tmp_path / "secret.png")
    (home / "files" / "pipe").mkdir()
    file = placed(home, log([row(1, {"one": {"_type": "image-file", "path": path}})]))
    [[entry]] = file.entries().values()
    with pytest.raises(DamagedError):
        file.load(entry)
    assert [damage.tag for damage in file.damages] == ["one"]


def test_an_image_that_was_replaced_is_damage(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.png").write_bytes(b"other")
    file = placed(tmp_path, log([row(4, {"one": {"_type": "image-file", "path": "a.png", "sha256": "0" * 64}})]))
    [[entry]] = file.entries().values()
    with pytest.raises(DamagedError, match=r"'one', step 4: .*'a\.png'"):
        file.load(entry)


def test_sounds_are_read_from_wav_files_and_others_are_named(tmp_path: Path) -> None:
    sound = Audio(np.array([[1, -2], [3, 4]], np.int16), 8_000)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.wav").write_bytes(encode_wav(sound))
    rows = {"a": {"_type": "audio-file", "path": "a.wav"}, "b": {"_type": "audio-file", "path": "b.mp3"}}
    file = placed(tmp_path, log([row(4, rows)]))
    [[entry]] = file.entries().values()
    [read] = file.load(entry).values
    assert (entry.type, read.rate, read.value.tolist()) == ("Audio", 8_000, [[1, -2], [3, 4]])
    assert file.passed_over["audio-file"] == 1


def test_a_figure_of_plotly_is_its_file(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.plotly.json").write_text('{"data": []}')
    file = placed(tmp_path, log([row(4, {"a": {"_type": "plotly-file", "path": "a.plotly.json"}})]))
    [[entry]] = file.entries().values()
    [read] = file.load(entry).values
    assert (entry.type, read.data, read.media_type) == ("Figure", b'{"data": []}', "application/vnd.plotly.v1+json")


def test_large_files_are_read_as_small_ones(tmp_path: Path) -> None:
    """Records that continue over blocks and windows, in a file of several windows."""
    rng, records = random.Random(3), []
    for step in range(3_000):
        values = {name: rng.random() for name in rng.sample("abcdefgh", 5)}
        records.append(row(step, values | ({"long": "y" * rng.randrange(90_000)} if step % 100 == 0 else {})))
    file = placed(tmp_path, log(records))
    found = values_of(file)
    assert [step for step, _, _ in found["long"]] == [*range(0, 3_000, 100)]
    assert sum(len(found[name]) for name in "abcdefgh") == 15_000
    assert not file.damages
    for name in "abcdefgh":
        steps = [step for step, _, _ in found[name]]
        assert steps == sorted(set(steps))


def test_a_file_of_an_earlier_release_is_read_without_the_package():
    with Recording(Path(__file__).parents[1] / "fixtures" / "wandb.out") as recording:
        loss = recording.series("loss").columns()
        assert loss.values.tolist() == [*(1 / (i + 1) for i in range(12)), 5.0, 6.0]
        assert loss.steps.tolist() == [*range(12), 1000, 1001]
        assert recording.series("several").at(14)[1].data.startswith(b"\x89PNG")
        assert recording.series("table").at(15)["b"] == ["x", None]
        assert not recording.series("loss").damages
