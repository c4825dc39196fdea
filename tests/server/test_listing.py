"""The list of runs: titles, configurations and starts of all three kinds; history, tables, pictures."""

from __future__ import annotations

import base64
import contextlib
import io
import os
import re
import shutil
import threading
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.growing import FIXTURES

import sightglass as sg
from sightglass.protocol.discovery import LiveRun
from sightglass.server.api import runs as api_runs
from sightglass.server.runs import run_table
from sightglass.server.runs.details import Details, read_outside
from sightglass.server.runs.served_run import ServedRun
from sightglass.storage import run_file, run_listing
from sightglass.storage.foreign.settings import read_settings
from sightglass.storage.format import framing
from sightglass.storage.format.png import encode_png
from sightglass.storage.format.summary import bytes_field, double_field, encode_version, varint_field
from sightglass.storage.format.wav import decode_wav

from .conftest import place_foreign, record, wait_until

pytestmark = pytest.mark.smoke


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(run_table, "FRESH_S", 0.0)


def field(number, *parts):
    return b"".join(bytes_field(number, *parts))


def write_file(path, version, *payloads):
    path.parent.mkdir(parents=True, exist_ok=True)
    every = [b"".join(encode_version(version, 1234.5)), *payloads]
    path.write_bytes(b"".join(bytes(part) for payload in every for part in framing.frame([payload])))


def hparams(**values):
    """What TensorBoard's plugin writes: a value without data, whose metadata bear a SessionStartInfo."""
    kinds = {str: lambda one: field(3, one.encode()), bool: lambda one: varint_field(4, one),
             float: lambda one: double_field(2, one)}  # fmt: skip
    entries = [field(1, field(1, name.encode()), field(2, kinds[type(one)](one))) for name, one in values.items()]
    plugin = field(1, b"hparams") + field(2, field(3, *entries))
    value = field(1, b"_hparams_/session_start_info") + field(9, field(1, plugin))
    return double_field(1, 1300.0) + field(5, field(1, value))


def test_the_list_has_the_sentence_of_each_run(page, begin):
    record("done")
    with contextlib.suppress(OSError), sg.init("broken", record=["batch.loss"]) as broken:
        broken.observe("batch", loss=1.0)
        raise OSError("disk full")
    begin("going").observe("batch", loss=1.0)

    def sentences():
        return {run["own_name"]: run["sentence"] for run in page.json("/runs")["runs"]}

    wait_until(lambda: sentences()["going"] == "running, batch 0")
    listed = sentences()
    recorded = {info.name: info.sentence for info in sg.runs() if not info.live}
    assert {name: listed[name] for name in recorded} == recorded
    assert re.fullmatch(r"failed at batch 0 after .+: OSError: disk full .+", recorded["broken"])


def test_runs_of_one_name_have_distinct_titles(page, begin):
    first, second = record("mnist"), record("mnist", seed=1)
    third = begin("mnist", record=["batch.loss"])
    third.observe("batch", loss=1.0)
    record("other")
    runs = page.json("/runs")["runs"]
    titles = {run["key"]: run["title"] for run in runs}
    assert len(set(titles.values())) == len(runs) >= 4
    assert {first.name, second.name} <= {title.removeprefix("mnist (").removesuffix(")") for title in titles.values()}
    assert "other" in titles.values()
    assert len({run["started"] for run in runs}) == len(runs)
    assert all(run["host"] and run["changed"] for run in runs if run["directory"])


def test_a_run_without_files_keeps_its_name_when_it_is_asked_for_after_its_end():
    source = ServedRun("8970f296b179")
    source.entry = LiveRun(name="brief", id=source.key, pid=1, host="here", started=1.0, endpoint="ipc://x")
    assert source.summary().name == "brief"
    source.entry = None
    assert source.summary().name == "brief"


def test_the_beginning_and_the_configuration_of_foreign_runs(page):
    write_file(Path("runs/hp/events.out.tfevents.1234.host"), "brain.Event:2",
               hparams(lr=0.5, optimizer="adam", bias=True, layers=3.0))  # fmt: skip
    place_foreign(Path("runs/fixtures"))
    Path("runs/fixtures/tb/projector_config.pbtxt").touch()
    reply = page.runs()
    assert reply["hp"]["config"] == {"lr": 0.5, "optimizer": "adam", "bias": True, "layers": 3}
    assert (reply["hp"]["source"], reply["hp"]["started"]) == ("tensorboard", 1234.5)
    write_file(Path("runs/hp/events.out.tfevents.1235.host"), "brain.Event:2", hparams(lr=0.25))
    assert page.runs()["hp"]["config"]["lr"] == 0.25
    assert reply["fixtures/ms"]["started"] > 1e9
    detail = page.json(f"/runs/{reply['hp']['key']}")
    assert (detail["config"]["optimizer"], detail["not_shown"]) == ("adam", {})
    assert page.json(f"/runs/{reply['fixtures/tb']['key']}")["not_shown"] == {"embeddings": 1, "graph": 1}


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("train.events.out.events.summary.1700000000.3.gpu-1.lab_MS", "gpu-1.lab"),
        ("train.events.out.events.summary.1700000000.gpu1_MS", "gpu1"),
        ("events.out.tfevents.1700000000.gpu1.lab.4321.0", "gpu1.lab"),
        ("events.out.tfevents.1700000000.gpu1.4321.12.v2", "gpu1"),
        ("events.out.tfevents.1700000000.gpu1", "gpu1"),
        ("events.out.tfevents.1700000000", ""),
        ("events.out.tfevents.1700000000.gpu1.profile-empty", "gpu1"),
    ],
)
def test_the_host_of_a_foreign_run_is_in_its_file_s_name(name, host):
    write_file(Path("there") / name, "brain.Event:2", hparams(lr=1.0))
    entry = run_listing.RunEntry(path=Path("there"), name="there")
    assert read_outside(entry, Details()).host == host


def test_lineage_is_the_configuration_of_mindspore_s_runs():
    name = "events.out.events.summary.1700000000.0.host"
    single = b"\x15" + np.float32(0.1).tobytes()
    train = field(
        6, field(1, field(1, b"Adam"), single, varint_field(4, 20), varint_field(8, 32)), field(3, field(1, b"LeNet5"))
    )
    number = field(5, field(1, b"momentum") + double_field(2, 0.75))
    user = field(10, field(1, field(4, field(1, b"author") + field(2, b"me")), number))
    write_file(Path(f"ms/{name}_lineage"), "MindSpore.Event:1", train, user, b"\xff\xff")
    assert read_settings(Path("ms")) == {
        "optimizer": "Adam", "learning_rate": 0.1, "epoch": 20, "batch_size": 32, "network": "LeNet5",
        "author": "me", "momentum": 0.75,
    }  # fmt: skip
    assert read_settings(Path("nowhere")) == {}
    Path(f"ms/{name}_lineage").write_bytes(b"\x00" * 100)
    assert read_settings(Path("ms")) == {}


def test_the_history_outlives_the_run(page, begin):
    run = begin("job", record=["batch.loss"])
    run.control("lr", 0.1)
    client = sg.connect(run)
    asking = threading.Thread(target=client.set, args=("lr", 0.5))
    asking.start()
    wait_until(lambda: not asking.is_alive(), "the answer", pause=lambda: run.observe("batch", loss=1.0))
    key = page.key("job")
    live = page.json(f"/runs/{key}")["history"]
    client.close()
    run.close()
    detail = page.json(f"/runs/{key}")
    assert not detail["live"]
    assert detail["history"] == live
    (entry,) = live
    assert (entry["kind"], entry["name"], entry["value"], entry["old"], entry["error"]) == ("set", "lr", 0.5, 0.1, "")
    assert entry["step"] >= 0
    assert entry["wall_time"] > 0
    assert detail["description"]["controls"]["lr"]["value"] == 0.5
    assert [stream["query"] for stream in detail["streams"]] == ["batch.loss"]


def test_a_run_in_another_folder_is_read_after_its_end(page, begin, tmp_path, fresh):
    run = begin("far", dir=tmp_path / "elsewhere")
    run.log({"loss": 1.0}, step=0)
    key = page.key("far")
    assert page.runs()["far"]["live"]
    run.close()
    far = page.runs()["far"]
    assert (far["key"], far["live"], far["state"], far["problem"]) == (key, False, "ended", "")
    assert [tag["name"] for tag in page.json(f"/runs/{key}/tags")["tags"] if tag["name"] == "loss"] == ["loss"]
    shutil.rmtree(run.directory)
    assert "is gone" in page.runs()["far"]["problem"]


def test_all_live_runs_in_other_folders_are_read_and_the_last_that_ended(page, begin, tmp_path, fresh, monkeypatch):
    monkeypatch.setattr(run_table, "MAX_ELSEWHERE", 1)
    runs = [begin(name, dir=tmp_path / "elsewhere") for name in ("one", "two", "three")]
    for run in runs:
        run.log({"loss": 1.0}, step=0)
        run.flush()
    assert {one["problem"] for one in page.runs().values()} == {""}
    for run in runs:
        run.close()
        page.runs()
    assert [name for name, one in page.runs().items() if not one["problem"]] == ["three"]


def test_the_page_is_sent_the_last_commands_of_a_long_history(page, begin, monkeypatch):
    monkeypatch.setattr(api_runs, "MAX_HISTORY", 3)
    run = begin("job", record=["batch.loss"])
    run.action("double", lambda n: 2 * n)

    def ask():
        with sg.connect(run) as client:
            for n in range(8):
                client.call("double", n)

    asking = threading.Thread(target=ask)
    asking.start()
    wait_until(lambda: not asking.is_alive(), "the answer", pause=lambda: run.observe("batch", loss=1.0))
    key = page.key("job")
    assert [entry["result"] for entry in page.json(f"/runs/{key}")["history"]] == [10, 12, 14]
    run.close()
    assert [entry["result"] for entry in page.json(f"/runs/{key}")["history"]] == [10, 12, 14]


@pytest.fixture
def large(page):
    values = np.arange(4 * 300 * 200, dtype=np.float32).reshape(4, 300, 200)
    with sg.init("large") as run:
        run.log({"w": sg.Tensor(values)}, step=0)
        run.log({"w": sg.Tensor(values * 2)}, step=1)
    key = page.key("large")
    return values, lambda path="tensor", **query: page.get(f"/runs/{key}/{path}", tag="w", **query)


def test_a_window_of_a_large_table(large):
    values, ask = large
    reply = ask(step=0, slice="[1, ::2, 10:]", rows="5:8", columns="185:999").json()
    assert reply["values"] == values[1, ::2, 10:][5:8, 185:].tolist()
    assert (reply["n_rows"], reply["n_columns"], reply["rows"]) == (150, 190, [10, 12, 14])
    assert reply["statistics"]["slice"]["n"] == 150 * 190
    assert reply["statistics"]["slice"]["max"] == values[1, ::2, 10:].max()
    assert reply["statistics"]["whole"]["n"] == values.size
    backwards = ask(step=0, slice="[0, ::-1]", rows="298:300", columns="0:2", statistics=False).json()
    assert backwards["values"] == values[0, ::-1][298:300, :2].tolist()
    assert backwards["statistics"] is None
    assert ask(step=0, slice="[0, 0]", rows="7:7").json()["values"] == []
    assert ask(step=0, slice="[0]").status_code == 413
    assert ask(step=0, slice="[0]", rows="7-9").status_code == 400


def test_a_slice_that_was_made_for_another_shape_is_fitted(large):
    values, ask = large
    reply = ask(step=0, slice="[7, 0:9, 0:900, 3]", fit=True, rows="0:2", columns="0:2").json()
    assert len(reply["shape"]) == 3
    assert np.shape(reply["values"]) == (2, 2)
    whole = ask(step=0, fit=True, rows="0:2", columns="0:2").json()
    assert whole["values"] == values[0, :2, :2].tolist()
    assert whole["slice"].startswith("[0")


def test_differences_have_windows_and_files(large):
    values, ask = large
    reply = ask("tensor", step=1, other_step=0, slice="[2]", rows="1:2", columns="0:3").json()
    assert reply["values"] == values[2, 1:2, :3].tolist()
    saved = ask("tensor", step=1, other_step=0, slice="[2]", format="npy")
    assert np.array_equal(np.load(io.BytesIO(saved.content)), values[2])


def test_a_thinned_file_keeps_values_far_from_zero(page):
    values = np.zeros((1000, 700), np.float32)
    values[123, 456], values[999, 699], values[500, 0], values[0, 0] = 9.0, -7.0, np.nan, np.inf
    with sg.init("map") as run:
        run.log({"w": sg.Tensor(values)}, step=0)
    answer = page.get(f"/runs/{page.key('map')}/tensor", tag="w", format="npy", thin=64)
    thin = np.load(io.BytesIO(answer.content))
    assert (thin.shape, thin.dtype) == ((64, 64), np.float32)
    assert thin[-1, -1] == -7.0
    assert (thin == 9.0).sum() == np.isnan(thin).sum() == np.isposinf(thin).sum() == 1


def test_pictures_are_listed(page):
    record()
    key = page.key("mnist")
    reply = page.json(f"/runs/{key}/pictures", tag="digits", step=100)
    assert reply["step"] == 100
    assert reply["pictures"] == [{"media_type": "image/png", "caption": "", "width": 8, "height": 8}] * 4
    figure = page.json(f"/runs/{key}/pictures", tag="figure")
    assert (figure["step"], figure["pictures"][0]["media_type"]) == (200, "application/pdf")
    assert page.get(f"/runs/{key}/pictures", tag="note").status_code == 400
    assert page.get(f"/runs/{key}/pictures", tag="digits", step=5).status_code == 404
    assert page.get(f"/runs/{key}/pictures", tag="digits", step="nan").status_code == 400


def test_sounds_are_listed_and_sent_as_wav(page):
    tone = np.array([0, 2**14, -(2**14), 0], np.int16)
    with sg.init("heard") as run:
        run.log({"tone": sg.Audio(tone, 8), "both": (sg.Audio(tone, 8), sg.Audio(tone / 2**15, 4))}, step=3)
        run.log({"note": "quiet"}, step=3)
    key = page.key("heard")
    tags = page.json(f"/runs/{key}/tags")["tags"]
    assert {tag["tag"]: tag["type"] for tag in tags} == {"both": "audio", "note": "text", "tone": "audio"}
    reply = page.json(f"/runs/{key}/sounds", tag="tone", step=3)
    assert reply["sounds"] == [
        {
            "about": "0.5 s, 8 Hz, mono, int16, peak 0.5", "seconds": 0.5, "rate": 8, "n_samples": 4, "dtype": "int16",
            "peak": 0.5, "peaks": [[[0, 0], [0.5, 0.5], [-0.5, -0.5], [0, 0]]],
        }
    ]  # fmt: skip
    assert [one["dtype"] for one in page.json(f"/runs/{key}/sounds", tag="both")["sounds"]] == ["int16", "float64"]
    sent = page.get(f"/runs/{key}/media", tag="tone")
    assert sent.headers["content-type"] == "audio/wav"
    assert decode_wav(sent.content).value.tolist() == tone.tolist()
    assert decode_wav(page.get(f"/runs/{key}/media", tag="both", index=1).content).rate == 4
    assert page.get(f"/runs/{key}/media", tag="both", index=2).status_code == 404
    assert page.get(f"/runs/{key}/sounds", tag="note").status_code == 400


def test_a_table_is_found_sorted_and_paged(page):
    rng = np.random.default_rng(0)
    loss = rng.random(1_000).round(3)
    labels = [("cat", "dog", "bird")[i % 3] for i in range(1_000)]
    pixels = rng.integers(0, 255, (1_000, 2, 2), dtype=np.uint8)
    with sg.init("sheets") as run:
        run.log({"worst": sg.Table({"loss": loss, "label": labels, "seen": sg.Images(pixels)}), "note": "x"}, step=4)
    key = page.key("sheets")
    assert {tag["tag"]: tag["type"] for tag in page.json(f"/runs/{key}/tags")["tags"]} == {
        "note": "text", "worst": "table",
    }  # fmt: skip
    rows = lambda **query: page.json(f"/runs/{key}/rows", tag="worst", **query)  # noqa: E731
    reply = rows(step=4)
    assert (reply["step"], reply["n_rows"], reply["n_found"], len(reply["rows"])) == (4, 1_000, 1_000, 100)
    assert reply["columns"] == [
        {"name": "loss", "type": "float64"}, {"name": "label", "type": "text"}, {"name": "seen", "type": "image"},
    ]  # fmt: skip
    assert [row[0] for row in reply["rows"]] == loss[:100].tolist()
    assert reply["rows"][7][2] == {"png": base64.b64encode(encode_png(pixels[7])).decode(), "caption": ""}
    reply = rows(find="loss > 0.5 and label = dog", sort="loss", descending=True, offset=10, limit=5)
    dogs = sorted((x for x, label in zip(loss, labels, strict=True) if label == "dog" and x > 0.5), reverse=True)
    assert (reply["n_found"], [row[0] for row in reply["rows"]]) == (len(dogs), dogs[10:15])
    for query, status in (
        ({"sort": "los"}, 404),
        ({"find": "loss > x"}, 400),
        ({"step": 5}, 404),
        ({"limit": 2001}, 400),
    ):
        assert page.get(f"/runs/{key}/rows", tag="worst", **query).status_code == status
    assert page.get(f"/runs/{key}/rows", tag="note").status_code == 400


def test_a_long_recorded_stream_is_thinned_and_its_memory_bounded(page, monkeypatch):
    from sightglass.server.live import shared_stream
    from sightglass.views import encoding

    monkeypatch.setattr(encoding, "MAX_POINTS", 4096)
    monkeypatch.setattr(shared_stream, "CHUNK_ROWS", 1000)
    with sg.init("long") as run:
        for step in range(20_000):
            run.log({"y": 50.0 if step == 7777 else float(step % 3)}, step=step)
    socket = page.socket()
    socket.send(type="open", id=1, run=page.key("long"), query="y", points=100_000)
    message = socket.hears("data")
    y = np.frombuffer(message["y"], "<f8")
    assert (message["n"], message["first"]) == (20_000, 0)
    assert len(y) <= 4096
    assert y.max() == 50.0
    assert np.frombuffer(message["step"], "<f8")[y.argmax()] == 7777
    assert "error" not in socket.hears("ended", id=1)


@pytest.mark.parametrize("odd", ["", "empty", "torn", "link", "folder", "hidden", "wandb"])
def test_a_second_look_into_a_plain_directory_finds_nothing_else(tmp_path, odd):
    directory = tmp_path / "runs" / "one"
    directory.mkdir(parents=True)
    run = run_file.RunFile(name="one", id="0" * 12, started=1.0, ended=2.0, state="ended", host="h", config={"lr": 0.1})
    run_file.create(directory, run)
    (directory / "1-rank0-0000.sgr").write_bytes(b"record")
    match odd:
        case "empty":
            (directory / "2-rank0-0000.sgr").touch()
        case "torn":
            (directory / "run-2-rank0.json").write_bytes(b"{")
        case "link":
            (tmp_path / "elsewhere").touch()
            (directory / "3-rank0-0000.sgr").symlink_to(tmp_path / "elsewhere")
        case "folder":
            (directory / "figures").mkdir()
        case "hidden":
            (directory / ".sightglass-totals").write_bytes(b"totals")
        case "wandb":
            (directory / "run-2-rank0.json").write_bytes(b"{")
            (directory / "run-x.wandb").write_bytes(b"W&B")
    [entry] = run_listing.runs_in(directory, alive=lambda id: False).runs
    assert entry.plain is (odd in ("", "hidden"))
    looked_again = read_outside(msgspec.structs.replace(entry, plain=False), Details())
    if entry.plain:
        assert read_outside(entry, Details()) == looked_again
    else:
        assert odd in ("folder",) or looked_again.problem(over=True)


def test_runs_of_mindspore_have_a_host_an_end_and_a_duration(page):
    place_foreign(Path("runs"))
    path = next(Path("runs/ms").iterdir())
    os.utime(path, (1_700_000_100.0, 1_700_000_100.0))
    run = page.runs()["ms"]
    last = sg.open("runs/ms").series("loss").wall_times.max()
    assert (run["host"], run["state"], run["ended"]) == ("host", "recorded", last)
    os.utime(path)
    growing = wait_until(lambda: (one := page.runs()["ms"])["state"] == "writing" and one)
    assert growing["ended"] is None
    with sg.open("runs/ms") as opened:
        described = opened.describe()
    assert described.host == "host"


def test_hparams_of_tensorboard_name_the_metrics_of_a_run(page):
    Path("runs/torch").mkdir(parents=True)
    shutil.copy(FIXTURES / "torch.out.events", "runs/torch/events.out.tfevents.1700000000.host")
    run = page.runs()["torch"]
    assert (run["config"], run["metrics"]) == ({"lr": 0.1, "kind": "sgd"}, ["accuracy"])
    record("own")
    assert page.runs()["own"]["metrics"] == []


def test_pictures_of_other_programs_have_sizes(page):
    place_foreign(Path("runs"))
    found = page.json(f"/runs/{page.key('ms')}/pictures", tag="colour:image", step=1)["pictures"]
    assert [(one["width"], one["height"]) for one in found] == [(5, 4)]


def finding(page, run, kind):
    return next((one for one in page.json(f"/runs/{page.key(run)}")["findings"] if one["kind"] == kind), None)


def test_what_looks_wrong_in_a_run_is_told(page):
    with sg.init("diverges") as run:
        for step in range(40):
            value = {33: float("inf"), 34: -float("inf")}.get(step, float(step))
            run.log({"late": float("nan") if step > 30 else 1.0, "early": value, "n": step}, step=step)
            run.log({"first": float("nan") if step == 20 else value}, step=step)
    with sg.init("converges") as run:
        run.log({"a": float("inf"), "b": -float("inf"), "n": 1})
    assert finding(page, "converges", "nan") is None
    with sg.open(next(Path("runs").glob("diverges*"))) as run:
        record = next(record for record in run.series("first") if record.value != record.value)
    nan, infinity = (finding(page, "diverges", kind) for kind in ("nan", "infinity"))
    assert (nan["query"], nan["step"], nan["wall_time"]) == ('log["first"]', 20.0, record.wall_time)
    assert (infinity["step"], infinity["level"], nan["level"]) == (33.0, "warning", "error")


def test_a_nan_of_a_run_that_grows_is_told_once_it_is_there(page, monkeypatch):
    monkeypatch.setattr(api_runs, "LOOK_S", 1e-3)
    with sg.init("grows") as run:
        run.log({"a": 1.0}, step=0)
        run.flush()
        assert finding(page, "grows", "nan") is None
        run.log({"a": float("nan")}, step=1)
        run.flush()
        wait_until(lambda: (found := finding(page, "grows", "nan")) and found["step"] == 1)
