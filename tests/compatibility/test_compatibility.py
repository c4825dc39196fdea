"""What earlier versions left behind is read, and clients and runs of two versions work together."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import pytest

import sightglass as sg
from sightglass.core.errors import WireError
from sightglass.protocol import messages

from . import corpus

ROOT = Path(__file__).parents[2]
VERSIONS = sorted(path.name for path in corpus.STORED.iterdir())
MESSAGES = [
    (version, message)
    for version in VERSIONS
    for message in json.loads((corpus.STORED / version / "wire.json").read_text())
]


def expected(version: str) -> Any:
    return json.loads((corpus.STORED / version / "expected.json").read_text())


def covers(now: Any, then: Any) -> bool:
    """Return whether something says all that it said before; what is new may be there too."""
    if isinstance(then, dict) and isinstance(now, dict):
        if then.keys() == now.keys() and len(then) == 1 and (kind := next(iter(then)))[:1].isupper():
            now = {kind: now[kind][: len(then[kind])]}  # a struct, by its fields: new ones come last
        return all(key in now and covers(now[key], value) for key, value in then.items())
    if isinstance(then, list) and isinstance(now, list):
        return len(now) == len(then) and all(map(covers, now, then))
    return bool(now == then)


def test_this_version_is_stored() -> None:
    """So that later ones are tested with it: `python -m tests.compatibility.make`."""
    assert sg.__version__ in VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("run", corpus.RUNS)
def test_records_of_every_version_are_read(version: str, run: str, tmp_path: Path) -> None:
    folder = tmp_path / run
    folder.mkdir()
    for path in (corpus.STORED / version / run).iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    then = expected(version)[run]
    now = corpus.read(folder)
    assert now["series"].keys() == then["series"].keys()
    for tag, series in then["series"].items():
        assert covers(now["series"][tag], series), tag
    assert covers(now, then)
    assert now["damages"] == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_small_files_of_every_version_are_read(version: str) -> None:
    (name, id, address), live = corpus.read_small(corpus.STORED / version)
    assert (name, id, address) == ("job", "0" * 12, corpus.ADDRESS)
    assert live == corpus.LIVE


@pytest.mark.parametrize(("version", "stored"), MESSAGES, ids=lambda one: one if isinstance(one, str) else one["type"])
def test_messages_of_every_version_are_understood(version: str, stored: Any) -> None:
    frames = [base64.b64decode(frame) for frame in stored["frames"]]
    assert covers(corpus.decoded(stored["from"], frames), {key: stored[key] for key in ("type", "fields")})
    assert covers(corpus.decoded(stored["from"], frames).get("columns", {}), stored.get("columns", {}))


@pytest.mark.parametrize(("version", "stored"), MESSAGES, ids=lambda one: one if isinstance(one, str) else one["type"])
def test_fields_that_a_later_version_adds_are_skipped(version: str, stored: Any) -> None:
    head, *buffers = [base64.b64decode(frame) for frame in stored["frames"]]
    decode = messages.decode_from_client if stored["from"] == "client" else messages.decode_from_run
    (ours,) = messages.encode(decode([head, *buffers])[0])  # with the fields that were added since
    longer = msgspec.msgpack.encode([*msgspec.msgpack.decode(ours), {"new": [1, 2]}, "newer"])
    assert corpus.decoded(stored["from"], [longer, *buffers]) == corpus.decoded(stored["from"], [head, *buffers])


def test_every_type_of_message_is_stored() -> None:
    stored = {(message["from"], message["type"]) for version, message in MESSAGES if version == sg.__version__}
    known = {("client", one.__name__) for one in messages.FromClient.__args__}
    assert stored == known | {("run", one.__name__) for one in messages.FromRun.__args__}


@pytest.mark.parametrize("decode", [messages.decode_from_client, messages.decode_from_run])
def test_types_that_a_later_version_adds_are_refused(decode: Any) -> None:
    """So a peer sends one only to a peer that has said that it knows it."""
    with pytest.raises(WireError, match="'newest'"):
        decode([msgspec.msgpack.encode(["newest", 1])])


CHOOSE = "import sys; sys.path.insert(0, sys.argv.pop(1))\n"
RUN = """
import sys, time, sightglass as sg
with sg.init("both", budget=None, dir=sys.argv[1]) as run:
    lr = run.control("lr", 0.1, min=0.0, max=1.0)
    run.action("double", lambda x: 2 * x)
    print("ready", sg.__file__, flush=True)
    step = 0
    while not run.stopping:
        run.observe("batch", step=step, loss=step * 0.5, x=[1.0, 2.0], lr=lr.value)
        step += 1
        time.sleep(0.001)
"""
CLIENT = """
import sys, sightglass as sg
with sg.connect("both") as run:
    about = run.describe()
    assert {"loss", "x", "lr"} <= about.events["batch"].observables.keys(), about
    losses = run.stream("batch.loss").wait(20, timeout_s=20)
    assert all(record.value == record.step * 0.5 for record in losses), losses
    mean = run.stream("batch.x.mean(every=5)").wait(2, timeout_s=20)
    assert [list(record.value) if hasattr(record.value, "__len__") else record.value for record in mean]
    assert run.set("lr", 0.5).applied
    assert run.call("double", 21).result == 42
    assert run.record("batch.lr") is not None
    assert [one.kind for one in run.history] == ["set", "call"], run.history
    try:
        run.stream("batch.los")
    except sg.QueryError:
        pass
    assert run.stream("batch.loss").statistics().n_dropped == 0
    run.stop()
print("done", sg.__file__, flush=True)
"""


def source(version: str, folder: Path) -> Path:
    """Return the folder of the sources of a version: those here, or those of its tag."""
    if version == sg.__version__:
        return ROOT / "src"
    archive = subprocess.run(["git", "archive", f"v{version}", "src"], cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder / "src"


def sourced() -> list[str]:
    """Return the versions whose sources are here: this one, and those whose tags are in this clone."""
    tags = subprocess.run(["git", "tag", "--list", "v*"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    return [version for version in VERSIONS if version == sg.__version__ or f"v{version}" in tags.split()]


@pytest.mark.slow
@pytest.mark.parametrize("version", sourced()[-2:])
@pytest.mark.parametrize("client_is_older", [True, False])
def test_a_client_and_a_run_of_two_versions_work_together(version: str, client_is_older: bool, tmp_path: Path) -> None:
    older, newer = source(version, tmp_path), ROOT / "src"
    of_client, of_run = (older, newer) if client_is_older else (newer, older)
    environment = {**os.environ, "PYTHONPATH": ""}
    run = [sys.executable, "-c", CHOOSE + RUN, str(of_run), str(tmp_path / "runs")]
    client = [sys.executable, "-c", CHOOSE + CLIENT, str(of_client)]
    with subprocess.Popen(run, stdout=subprocess.PIPE, text=True, env=environment) as running:
        try:
            assert running.stdout is not None
            assert running.stdout.readline().split() == ["ready", str(of_run / "sightglass" / "__init__.py")]
            asked = subprocess.run(client, capture_output=True, text=True, env=environment, check=False, timeout=60)
            assert asked.stdout.split() == ["done", str(of_client / "sightglass" / "__init__.py")], asked.stderr
            assert running.wait(60) == 0
        finally:
            running.kill()
