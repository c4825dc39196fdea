"""Queries of 20 kB, which any viewer may ask: no message shows them whole to others."""

from __future__ import annotations

import warnings

import pytest

import sightglass as sg

X = "x" * 80
LONG = "[" + ", ".join(f"b.{X} * {i}.25" for i in range(1, 230)) + "]"
TEXT = f"on('b').map(lambda b: {LONG})"
MAX_CHARS = 1_000
ASKED = {  # what is asked, and of which part of the text somebody may be told
    "unknown name": TEXT.replace(f"b.{X} * 40", "b.nope * 40"), "fails": TEXT.replace(X, "text"),
    "syntax": TEXT[:-1] + "]", "unknown function": TEXT.replace(f"b.{X} * 40", f"nope(b.{X}) * 40"),
    "two windows": f"{TEXT}.mean(every=2, per='epoch')", "no window": f"{TEXT}.mean().map(lambda v: v.nope)",
    "unknown stage": f"{TEXT}.nope()", "event": TEXT.replace("'b'", "'nope'"), "long name": f"b.{'n' * 20_000}",
    "long text": f"b.x == '{'a' * 20_000}'", "long event": f"on({'e' * 20_000!r}).map(lambda b: b.x)",
}  # fmt: skip


OFFERED = {X: 1.0, "x": 1.0, "text": "a"}


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    with sg.init("long", dir=tmp_path_factory.mktemp("long"), budget=None) as run, sg.connect(run) as client:
        run.observe("b", **OFFERED)
        client.record(TEXT)
        run.observe("b", **OFFERED)
        run.flush(30)
        yield run, client


@pytest.mark.parametrize("what", ASKED)
def test_no_message_shows_a_long_query_whole(training, what):
    run, client = training
    told = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with client.stream(ASKED[what]) as stream:
                for _ in range(4):
                    run.observe("b", **OFFERED)
                run.flush(30)
                try:
                    stream.wait(1, timeout_s=0.0)
                except (sg.SightglassError, TimeoutError) as error:
                    told.append(str(error))
                told += [stream.note, repr(stream), str(stream.error or ""), str(stream.statistics().last_error or "")]
        except sg.SightglassError as error:
            told.append(str(error))
    told += [str(one.message) for one in caught]
    assert any(told)
    assert all(len(text) < MAX_CHARS for text in told), max(told, key=len)[:3_000]


@pytest.mark.parametrize("what", ASKED)
def test_no_message_about_a_recorded_run_does(training, what):
    run, _ = training
    with sg.open(run.directory) as old:
        try:
            stream = old.stream(ASKED[what])
            told = [repr(stream), stream.note, str(stream.error or "")]
        except sg.SightglassError as error:
            told = [str(error)]
    assert all(len(text) < MAX_CHARS for text in told), max(told, key=len)[:3_000]
