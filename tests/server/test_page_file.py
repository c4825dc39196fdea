"""The page as one file: what stands in it, what is left out, and what is refused."""

from __future__ import annotations

import base64
import gzip
import os
import re
from pathlib import Path

import msgspec
import numpy as np
import plotly.graph_objects as go
import pytest

import sightglass as sg
from sightglass.core.plotly_json import MEDIA_TYPE
from sightglass.server.page_file import content, save
from sightglass.server.page_file.save import _inner
from sightglass.storage.format.wav import decode_wav
from sightglass.storage.object_file import save_view


def record(name: str, *, n: int = 50, **config: object) -> str:
    with sg.init(name, config=config) as run:
        for step in range(n):
            run.log({"loss": 1 / (step + 1), "lr": 0.1}, step=step)
        run.log({"kernel": np.ones((2, 2)), "digits": sg.Images(np.ones((1, 4, 4)))}, step=0)
    return run.directory


def inside(html: str) -> dict:
    packed = re.search(r'id="sightglass-file">([^<]*)<', html)
    assert packed is not None
    return msgspec.msgpack.decode(gzip.decompress(base64.b64decode(packed[1])))


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SIGHTGLASS_RUNS", raising=False)
    for i in range(3):
        record(f"run-{i}", seed=i)
    return Path("runs")


def saved(**options: object) -> tuple[sg.PageFile, dict]:
    made = sg.save_page("page.html", "runs", overwrite=True, **options)
    return made, inside(made.path.read_text())


def test_a_file_has_the_runs_series_and_columns_and_no_path(folder):
    made, found = saved()
    assert (made.n_runs, made.n_series, made.n_thinned, made.n_runs_left_out) == (3, 6, 0, 0)
    assert found["about"]["folders"] == ["runs"]
    replies = {path: reply for path, _, reply in found["answers"]}
    runs = replies["runs"]["runs"]
    assert [run["name"] for run in runs] == ["run-2", "run-1", "run-0"]
    assert all(run["directory"].startswith("runs/run-") for run in runs)
    key = runs[0]["key"]
    assert [tag["tag"] for tag in replies[f"runs/{key}/tags"]["tags"]] == ["loss", "lr"]
    assert replies[f"runs/{key}"]["description"] is None
    series = {(run, tag, x): reply for run, tag, x, reply in found["series"]}
    reply = series[key, "loss", "step"]
    values = np.frombuffer(found["blobs"][reply["y"]])
    assert values.tolist() == [1 / (step + 1) for step in range(50)]
    assert series[key, "loss", "wall"]["y"] == reply["y"]  # each column once
    assert series[key, "loss", "wall"]["x"] == reply["wall"]
    table = found["table"]
    assert table["values"][table["names"].index("loss.min")] == [1 / 50] * 3
    assert str(Path.cwd()) not in str(found)


def test_what_does_not_fit_is_left_out_and_told(folder, monkeypatch):
    monkeypatch.setattr(content, "MAX_RUNS", 2)
    monkeypatch.setattr(content, "ALL_POINTS", 20)
    monkeypatch.setattr(content, "MIN_SERIES_POINTS", 4)
    made, found = saved()
    assert (made.n_runs, made.n_runs_left_out, made.n_series, made.n_thinned) == (2, 1, 4, 4)
    assert str(made).endswith("2 runs, 1 other left out, 4 series, 4 of them thinned")
    assert found["about"]["points"] == 5
    for _, tag, _, reply in found["series"]:
        values = np.frombuffer(found["blobs"][reply["y"]])
        assert 4 <= len(values) < 50 == reply["n"]
        assert tag != "loss" or (values.max(), values.min()) == (1.0, 1 / 50)


def test_pictures_are_those_of_a_view_of_media(folder, monkeypatch):
    assert saved()[1]["media"] == []
    _, found = saved(view="#/media")
    assert [(tag, step, type) for _, tag, step, _, type, _ in found["media"]] == [("digits", 0.0, "image/png")] * 3
    assert found["about"]["pages"] == ["charts", "runs", "media"]
    one = sum(len(data) for *_, data in found["media"]) / 3
    monkeypatch.setattr(content, "MAX_BYTES", 2 * one + 200)  # of one picture, and what is said of it
    made, found = saved(view="#/media")
    assert len(found["media"]) == 1
    assert found["about"]["media_left_out"] == {"image": 2}
    assert str(made).endswith("2 media left out")


def test_sounds_tables_texts_and_figures_are_those_of_a_view_of_media(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with sg.init("all", dir="runs") as run:
        for step in range(2):
            run.log(
                {
                    "tone": sg.Audio(np.full(100, step, np.int16), 8_000), "note": f"note {step}",
                    "worst": sg.Table({"loss": np.arange(3_000.0)}), "drawn": go.Figure(go.Bar(y=[step])),
                },
                step=step,
            )  # fmt: skip
    made, found = saved(view="#/media")
    answers = {(path.partition("/")[2].partition("/")[2], query.get("tag"), query.get("step")): reply
               for path, query, reply in found["answers"]}  # fmt: skip
    files = {(tag, step): (media_type, data) for _, tag, step, _, media_type, data in found["media"]}
    for step in range(2):
        media_type, data = files["tone", step]
        assert (media_type, decode_wav(data).value.tolist()) == ("audio/wav", [step] * 100)
        assert answers["sounds", "tone", step]["sounds"][0]["n_samples"] == 100
        assert files["drawn", step][0] == MEDIA_TYPE
        rows = answers["rows", "worst", step]
        assert (rows["n_rows"], len(rows["rows"]), rows["rows"][-1]) == (3_000, 2_000, [1_999.0])
    assert [one["text"] for one in answers["texts", "note", None]["texts"]] == ["note 0", "note 1"]
    assert answers["steps", "worst", None]["steps"] == [0, 1]
    assert (found["about"]["media_left_out"], found["about"]["n_tables_cut"], made.n_media_left_out) == ({}, 2, 0)
    assert "Plotly" in found["frame"]
    assert saved()[1]["frame"] == ""  # no figure, no script


def test_media_that_are_too_large_or_damaged_are_left_out_and_the_others_are_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with sg.init("some", dir="runs") as run:
        run.log({"long": sg.Audio(np.zeros(10_000, np.int16), 8_000), "text": "x" * 9_000, "many": "y"}, step=0)
        for step in range(30):
            run.log({"short": sg.Audio(np.zeros(10, np.int16), 8_000)}, step=step)
    monkeypatch.setattr(content, "MAX_BYTES", 8_000)
    _, found = saved(view="#/media")
    left = found["about"]["media_left_out"]
    assert left["audio"] > 10
    assert left["text"] == 1
    steps = sorted(step for _, tag, step, *_ in found["media"] if tag == "short")
    assert (steps[0], steps[-1]) == (0, 29)
    assert not [one for one in found["media"] if one[1] == "long"]


def test_the_runs_of_a_view_come_first(folder):
    sg.open(next(Path("runs").glob("run-1-*"))).annotate(deleted=True)
    runs = next(reply for path, _, reply in saved()[1]["answers"] if path == "runs")["runs"]
    assert [run["name"] for run in runs] == ["run-2", "run-0"]
    save_view([Path("runs")], "first", f"#/charts?runs={runs[1]['key']}")
    _, found = saved(view="first")
    runs = next(reply for path, _, reply in found["answers"] if path == "runs")["runs"]
    assert [run["name"] for run in runs] == ["run-0", "run-2"]
    assert found["about"]["address"] == f"#/charts?runs={runs[0]['key']}"


def test_errors_say_what_to_do(folder, monkeypatch):
    with pytest.raises(ValueError, match="Ask"):
        saved(view="#/ask")
    with pytest.raises(sg.UnknownNameError):
        saved(view="none")
    with pytest.raises(sg.RunNotFoundError):
        sg.save_page("other.html", "nowhere")
    os.mkdir("empty")
    with pytest.raises(sg.RunNotFoundError, match="recorded"):
        sg.save_page("other.html", "empty")
    saved()
    with pytest.raises(sg.StorageError, match="exists already"):
        sg.save_page("page.html", "runs")
    monkeypatch.setattr(save, "MAX_BYTES", 1000)
    with pytest.raises(ValueError, match="1,000 bytes"):
        saved()
    assert sorted(path.name for path in Path().glob("*.html")) == ["page.html"]


def test_viewers_may_save_and_unknown_runs_and_pages_are_refused(page):
    record("mnist")
    key = page.key("mnist")
    answer = page.post("/page-file", {"address": "#/charts", "runs": [key, "gone"]}, role="viewer")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-disposition"] == 'attachment; filename="sightglass.html"'
    assert inside(answer.text)["about"]["n_runs"] == 1
    for address, runs in [("#/ask", [key]), ("#/charts", []), ("#/charts", ["gone"]), ("https://example.org", [key])]:
        assert page.post("/page-file", {"address": address, "runs": runs}).status_code == 400


def test_a_script_cannot_end_its_element():
    assert _inner('"</script>" + "<!-- x" + "</SCRIPT "') == '"\\x3c/script>" + "\\x3c!-- x" + "\\x3c/SCRIPT "'
