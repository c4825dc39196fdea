"""The journal: after a kill anywhere, what was told is known, and what may not have arrived is sent again."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightglass.alerts.alert import Alert
from sightglass.core.errors import AlertError
from sightglass.rules.journal import LOG, Journal, Told, read_status


def told(rule, run, n):
    return Told(rule=rule, run=run, n=n, alert=Alert(id=f"{rule}-{run}-{n}", title=rule))


ACTS = st.lists(st.tuples(st.sampled_from(["tell", "sent", "over", "again"]), st.integers(0, 2)), max_size=25)


@given(ACTS, st.integers(0, 60))
def test_a_journal_that_is_opened_again_knows_the_same(tmp_path_factory, acts, torn):
    folder = tmp_path_factory.mktemp("journal")
    journal, n = Journal(folder), 0
    last, holding, waiting = {}, set(), []
    for act, i in acts:
        key = "rule", f"run{i}"
        match act:
            case "tell":
                n += 1
                last[key] = told(*key, n)
                holding.add(key)
                waiting.append(last[key].alert)
                journal.tell(last[key])
            case "sent" if waiting:
                journal.sent(waiting.pop(i % len(waiting)))
            case "over":
                holding.discard(key)
                journal.over(*key)
            case "again":
                journal.close()
                journal = Journal(folder)
        assert (journal.told, journal.holding) == (last, holding)
    journal.close()
    with (folder / LOG).open("ab") as file:  # killed while it wrote a line
        file.write(b'{"told":{"rule":"rule","run":"run0","n":99,"alert":{"id":"never"'[:torn])
    journal = Journal(folder)
    assert (journal.told, journal.holding) == (last, holding)
    assert sorted(alert.id for alert in journal.unsent) == sorted(alert.id for alert in waiting)
    journal.close()


def test_two_watchers_do_not_share_one(tmp_path):
    journal = Journal(tmp_path)
    code = f"from pathlib import Path; from sightglass.rules.journal import Journal; Journal(Path({str(tmp_path)!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "AlertError" in done.stderr
    journal.close()
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_status_says_whether_somebody_watches(tmp_path):
    with pytest.raises(AlertError):
        read_status(tmp_path)
    journal = Journal(tmp_path)
    journal.status({"rows": [object]})
    journal.close()
    status, alive = read_status(tmp_path)
    assert not alive
    assert "object" in status["rows"][0]


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(AlertError, match="file"):
        Journal(tmp_path / "file" / "x")


def test_what_cannot_be_noted_on_a_full_disk_is_noted_later(tmp_path, monkeypatch):
    full, write = [True], os.write

    def write_a_little(file, data):
        if full[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(file, data[:7])

    monkeypatch.setattr(os, "write", write_a_little)
    journal = Journal(tmp_path)
    journal.tell(told("rule", "run", 1))
    assert "No space" in journal.problem
    full[0] = False
    journal.tell(told("rule", "other", 1))
    assert not journal.problem
    journal.close()
    journal.sent(told("rule", "run", 1).alert)  # a delivery that was given up ends late
    again = Journal(tmp_path)
    assert set(again.told) == {("rule", "run"), ("rule", "other")}
    again.close()
