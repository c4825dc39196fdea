"""The registry of live runs: private, alive as long as the process, cleaned of the dead."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time

import msgspec
import pytest

from sightglass.core.errors import TransportError
from sightglass.protocol import discovery

pytestmark = pytest.mark.smoke


def entry(id="0123456789ab", name="job", started=1.0):
    return discovery.LiveRun(name=name, id=id, pid=os.getpid(), host="here", started=started, endpoint="ipc://x")


@pytest.fixture
def enter(runtime):
    entered = []

    def enter(one):
        folder = discovery.folder()
        discovery.hold(one.id, folder)
        discovery.register(one, folder)
        entered.append(one.id)
        return folder

    yield enter
    for id in entered:
        discovery.unregister(id, runtime)


def test_the_folder_is_the_users_own(runtime, monkeypatch):
    monkeypatch.setenv("SIGHTGLASS_RUNTIME_DIR", str(runtime / "new"))
    mask = os.umask(0)
    try:
        assert discovery.folder() == runtime / "new"
    finally:
        os.umask(mask)
    assert stat.S_IMODE((runtime / "new").stat().st_mode) == 0o700


@pytest.mark.skipif(os.name != "posix", reason="folders have no modes here")
@pytest.mark.parametrize("mode", [0o755, 0o710, 0o770, 0o1777])
def test_a_folder_that_others_can_enter_keeps_its_mode_and_is_passed_over(runtime, monkeypatch, mode):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    shared = runtime / "shared"
    shared.mkdir()
    shared.chmod(mode)
    monkeypatch.setenv("SIGHTGLASS_RUNTIME_DIR", str(shared))
    with pytest.warns(RuntimeWarning, match=r"shared \(.*chmod 700"):
        assert discovery.folder() == runtime / "sightglass"
    assert stat.S_IMODE(shared.stat().st_mode) == mode


@pytest.mark.skipif(os.name != "posix", reason="folders have no modes here")
def test_runs_in_a_folder_that_others_can_write_to_are_not_believed(enter, runtime):
    one = entry()
    enter(one)
    assert discovery.entries() == [one]
    runtime.chmod(0o770)
    try:
        with pytest.warns(RuntimeWarning, match="chmod 700"):
            assert one not in discovery.entries()  # which has those of the folders that are used otherwise, too
    finally:
        runtime.chmod(0o700)


def test_a_folder_that_cannot_be_used_is_passed_over(runtime, tmp_path, monkeypatch):
    taken = tmp_path / "file"
    taken.write_text("")
    monkeypatch.setenv("SIGHTGLASS_RUNTIME_DIR", str(taken))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    with pytest.warns(RuntimeWarning, match="SIGHTGLASS_RUNTIME_DIR"):
        assert discovery.folder() == runtime / "sightglass"


def test_entries_are_private_and_the_newest_comes_first(enter):
    old, new = entry("a" * 12, started=1.0), entry("b" * 12, started=2.0)
    folder = enter(old)
    enter(new)
    assert discovery.entries() == [new, old]
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert discovery.alive(old.id)


@pytest.mark.parametrize("can_be_noted", [True, False])
def test_an_entry_that_ends_is_gone(enter, runtime, can_be_noted):
    one = entry()
    enter(one)
    if not can_be_noted:
        (runtime / f"{one.id}.closed").mkdir()
    discovery.unregister(one.id, runtime)
    assert (discovery.entries(), discovery.alive(one.id)) == ([], False)
    assert [path.name for path in runtime.iterdir()] == [f"{one.id}.closed"]


def test_the_note_of_an_end_is_there_before_the_lock_is_free(enter, runtime, monkeypatch):
    one = entry()
    enter(one)
    assert not discovery.was_closed(one.id)
    _, lock = discovery._held[one.id]
    noted, close = {}, os.close

    def look(descriptor):
        noted[descriptor] = discovery.was_closed(one.id)
        close(descriptor)

    monkeypatch.setattr(os, "close", look)
    discovery.unregister(one.id, runtime)
    assert noted[lock]


def test_a_run_that_never_was_there_leaves_no_note(runtime):
    folder = discovery.folder()
    discovery.hold("a" * 12, folder)
    discovery.unregister("a" * 12, folder)
    assert (list(runtime.iterdir()), discovery.was_closed("a" * 12)) == ([], False)


def test_notes_of_ends_are_few_and_young(enter, runtime, monkeypatch):
    monkeypatch.setattr(discovery, "MAX_CLOSED", 3)
    for n in range(6):
        one = entry(f"{n}" * 12)
        enter(one)
        discovery.unregister(one.id, runtime)
        os.utime(runtime / f"{one.id}.closed", (0, time.time() - 10 + n))
    discovery.entries()
    assert sorted(path.name[0] for path in runtime.iterdir()) == ["3", "4", "5"]
    os.utime(runtime / f"{'4' * 12}.closed", (0, time.time() - 2 * discovery.CLOSED_S))
    discovery.entries()
    assert sorted(path.name[0] for path in runtime.iterdir()) == ["3", "5"]


def test_the_dead_are_cleaned_away(runtime):
    code = (
        "from sightglass.protocol import discovery\n"
        "one = discovery.LiveRun(name='dead', id='d' * 12, pid=1, host='h', started=1.0, endpoint='ipc://x')\n"
        "folder = discovery.folder(); discovery.hold(one.id, folder); discovery.register(one, folder)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert {path.suffix for path in runtime.iterdir()} == {".json", ".lock"}
    assert discovery.entries() == []
    assert list(runtime.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"name": 5}', bytes(1_000_001)])
def test_files_that_are_no_entries_are_passed_over(enter, content):
    one = entry()
    folder = enter(one)
    (folder / "nonsense.json").write_bytes(content)
    assert discovery.entries() == [one]


def test_what_a_later_version_adds_is_skipped(enter):
    one = entry()
    folder = enter(one)
    stored = {**msgspec.json.decode((folder / f"{one.id}.json").read_bytes()), "new": 1}
    (folder / f"{one.id}.json").write_bytes(msgspec.json.encode(stored))
    assert discovery.entries() == [one]


def test_nowhere_to_go_is_said(monkeypatch, tmp_path):
    taken = tmp_path / "file"
    taken.write_text("")
    monkeypatch.setattr(discovery, "_candidates", lambda: iter([taken]))
    with pytest.raises(TransportError, match="folder"):
        discovery.folder()
