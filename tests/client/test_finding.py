"""Finding runs: several of one name, connection files that lead nowhere, and many that do not answer."""

from __future__ import annotations

import json
import socket
import warnings
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import wait_until

import sightglass as sg
from sightglass.client import discover
from sightglass.client.connection import PendingReply
from sightglass.protocol.transport import MemoryListener
from sightglass.protocol.zmq import new_keys


def test_a_warning_points_at_the_line_of_the_program(begin: Any) -> None:
    begin("twin"), begin("twin")
    with pytest.warns(UserWarning, match="'twin'") as caught:
        sg.connect("twin").close()
    assert [warning.filename for warning in caught] == [__file__]


def test_two_runs_of_one_name(begin: Any) -> None:
    older, newer = begin("job"), begin("job")
    with pytest.warns(UserWarning, match="2 live runs.*'job'"), sg.connect("job") as client:
        assert client.id == newer.id
    infos = sg.runs()
    assert [info.id for info in infos] == [newer.id, older.id]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for info in infos:
            with sg.connect(info.id) as client:
                assert client.id == info.id


def test_in_a_fleet_a_run_that_ends_and_begins_again_is_another_run(begin: Any) -> None:
    with sg.fleet("job-*") as fleet:
        first = begin("job-a")
        fleet.wait(1, timeout_s=60)
        first.close()
        wait_until(lambda: not fleet, fleet)
        second = begin("job-a")
        fleet.wait(2, timeout_s=60)
        (name,) = fleet
        assert name == f"job-a ({second.id})"


def test_a_connection_file_that_leads_nowhere(tmp_path: Path) -> None:
    with pytest.raises(sg.RunNotFoundError, match="No such file"):
        sg.connect(tmp_path / "none.json")
    (tmp_path / "other.json").write_text('{"a": 1}')
    with pytest.raises(sg.RunNotFoundError, match="connection file"):
        sg.connect(tmp_path / "other.json")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    keys = new_keys()
    (tmp_path / "gone.json").write_text(
        json.dumps({"run": "job", "id": "1", "endpoint": endpoint, "server_key": keys.public,
                    "client_public": keys.public, "client_secret": keys.secret})
    )  # fmt: skip
    with pytest.raises(sg.RunLostError, match=endpoint):
        sg.connect(tmp_path / "gone.json", timeout_s=0.1)
    (info,) = sg.runs(connections=tmp_path, timeout_s=0.1)
    assert (info.name, info.state) == ("job", "out of reach")


def test_runs_that_do_not_answer_are_asked_before_any_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    listeners: list[MemoryListener] = []

    def connect() -> Any:
        done.append("ask")
        listeners.append(MemoryListener())
        return listeners[-1].connect()

    def wait(reply: PendingReply, timeout_s: float) -> bool:
        done.append("wait")
        for listener in listeners:
            listener.close()
        return False

    monkeypatch.setattr(PendingReply, "wait", wait)
    assert discover._describe_all([("job", connect)] * 3, timeout_s=60.0) == [None] * 3
    assert done[:6] == ["ask"] * 3 + ["wait"] * 3


def test_a_folder_for_live_runs_that_is_not_private_is_told_once(monkeypatch, tmp_path) -> None:
    open_to_all = tmp_path / "open"
    open_to_all.mkdir(mode=0o755)
    open_to_all.chmod(0o755)
    monkeypatch.setenv("SIGHTGLASS_RUNTIME_DIR", str(open_to_all))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.warns(RuntimeWarning, match="chmod 700"):
        sg.runs()
    sg.runs()  # another warning would be an error
