"""Every stored input passes through its target, and reaches deep into it; one command replays a finding."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from . import __main__ as replay
from .seeds import dictionaries, seeds
from .targets import CORPUS, HERE, TARGETS, stored

# For each target, a function deep below it that some stored input reaches.
DEEP = {
    "wire": "sightglass.protocol.messages._steps",
    "service": "sightglass.training.serving.clients.PublishedStreams.take",
    "client": "sightglass.client.resumable_stream.RecordBuffer.add",
    "codec": "sightglass.core.codec._unpack_kind",
    "segment": "sightglass.storage.read.segment_reader.raw_values",
    "blocks": "sightglass.storage.format.block._unpack",
    "index": "sightglass.storage.format.index._is_sound",
    "recording": "sightglass.storage.write.merge.Merge.finish_all",
    "foreign": "sightglass.storage.foreign.event_file.EventFile._read",
    "events": "sightglass.storage.foreign.event_file.EventFile._raw",
    "event": "sightglass.storage.format.summary.from_raw",
    "picture": "sightglass.storage.format.png._jpeg",
    "runfile": "sightglass.storage.run_file.together",
    "query": "sightglass.query.windows.Fold.close",
    "slice": "sightglass.storage.tensors.slices._number",
    "page": "sightglass.query.parser._Reader.short",
}


class Planted(BaseException):
    """No target expects it."""


@pytest.mark.parametrize("name", TARGETS)
def test_stored_inputs_pass(name):
    for path in stored(name):
        try:
            TARGETS[name].run(path.read_bytes())
        except Exception as error:
            raise AssertionError(f"python -m tests.fuzz {name} {path}") from error


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_pass(name):
    for data in seeds()[name]:
        assert len(data) <= TARGETS[name].max_len
        TARGETS[name].run(data)


@pytest.mark.parametrize("name", TARGETS)
def test_a_bug_fails_on_a_stored_input(name, monkeypatch):
    def bug(*args, **kwargs):
        raise Planted

    monkeypatch.setattr(DEEP[name], bug)
    with pytest.raises(Planted):
        replay.main(name, *map(str, stored(name)))


def test_the_corpus_is_small_and_named_by_its_content():
    paths = [path for path in CORPUS.rglob("*") if path.is_file()]
    assert {path.parent.name for path in paths} == set(TARGETS)
    assert sum(path.stat().st_size for path in paths) < 300_000
    for path in paths:
        assert path.name == hashlib.sha1(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("file", dictionaries())
def test_dictionaries_have_the_words_of_the_language(file):
    assert (HERE / file).read_text() == dictionaries()[file]


def test_an_input_is_replayed_by_one_command():
    command = [sys.executable, "-m", "tests.fuzz", "query", str(stored("query")[0])]
    done = subprocess.run(command, cwd=Path(HERE).parents[1], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert str(stored("query")[0]) in done.stdout
    assert subprocess.run(command[:-1], cwd=HERE.parents[1], capture_output=True, check=False).returncode == 1
