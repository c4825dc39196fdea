"""What a hub keeps: the streams of runs that are gone, for clients that come late or come back."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from tests.hub_server import PATIENCE_S, TRAINING, Service, Trained, needs_server, wait_until

import sightglass as sg
from sightglass.cli import main
from sightglass.client import hub_runs
from sightglass.core.errors import QueryError, RunLostError, RunNotFoundError

pytestmark = needs_server
pytest.importorskip("nats")


PER_S = 500  # records of the training; the run sends once a second what is kept


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path / "hub")
    yield service
    if service.process.poll() is None:
        service.end()


@pytest.fixture
def training(service: Service, start: Any, tmp_path: Path) -> Any:
    """A run in another process, out of reach on this machine."""
    child = start(
        TRAINING, "far", SIGHTGLASS_HUB=str(service.file("run")), SIGHTGLASS_RUNTIME_DIR=str(tmp_path / "there")
    )
    child.hears("ready")
    return child


def watched(service: Service, n: int, *, role: str = "viewer") -> list[int]:
    """Watch the run for some records, and return their values."""
    with sg.connect("far", hub=service.file(role), wait_s=PATIENCE_S) as run:
        return [int(one.value) for one in run.stream("batch.n").wait(n, timeout_s=PATIENCE_S)]


def nobody_asks(service: Service) -> None:
    """Wait until the run has closed its streams, and sent what is kept of them."""
    with sg.connect("far", hub=service.file("viewer")) as run:
        wait_until(lambda: not run.describe().streams, "nobody reads")


def kept_state(service: Service, name: str = "far") -> str:
    return next((run.state for run in sg.runs(hub=service.file("viewer")) if run.name == name and not run.live), "")


def test_a_late_client_gets_what_is_kept_of_a_run_that_has_ended(service: Service, training: Any) -> None:
    with sg.connect("far", hub=service.file("controller"), wait_s=PATIENCE_S) as run:
        stream = run.stream("batch.n")
        stream.wait(50, timeout_s=PATIENCE_S)
        run.stop()
        seen = [int(record.value) for record in stream]
    made = int(training.hears("made")[0])
    wait_until(lambda: kept_state(service) == "ended", "it is told to have ended")
    with sg.connect("far", hub=service.file("viewer")) as gone:
        stream = gone.stream("batch.n")
        assert [int(record.value) for record in stream] == list(range(seen[0], made)) == seen
        assert (stream.n_lost, stream.statistics().n_records) == (0, len(seen))
        description = gone.describe()
        assert (description.state, description.name) == ("ended", "far")
        assert [(one.query, one.n_records) for one in description.streams] == [("batch.n", len(seen))]
        with pytest.raises(QueryError, match=r"'far' has ended.*batch\.n.*batch\.x$"):
            gone.stream("batch.x")
        with pytest.raises(RunLostError, match=r"'far' has ended.*batch\.n$"):
            gone.stop()


def test_a_killed_run_leaves_what_had_reached_the_hub(service: Service, training: Any) -> None:
    with sg.connect("far", hub=service.file("viewer"), wait_s=PATIENCE_S) as run:
        stream = run.stream("batch.n")
        seen = [int(one.value) for one in stream.wait(200, timeout_s=PATIENCE_S)]
        stream.wait(200 + PER_S, timeout_s=PATIENCE_S)
        training.send(signal.SIGKILL)  # while somebody reads
        wait_until(lambda: kept_state(service) == "gone", "it is gone")
    with sg.connect("far", hub=service.file("viewer")) as gone:
        stream = gone.stream("batch.n")
        values = [int(record.value) for record in stream.wait(len(seen), timeout_s=PATIENCE_S)]
        assert values[: len(seen)] == seen
        with pytest.raises(RunLostError, match=r"'far' is gone.*batch\.n$"):
            list(stream)
        assert values == list(range(values[0], values[0] + len(values)))
        assert stream.n_lost == 0
        assert str(gone.describe()).startswith(f"run far ({gone.id})  gone after ")


def test_kept_streams_survive_the_hub(service: Service, training: Any) -> None:
    seen = watched(service, 100)
    nobody_asks(service)
    training.send(signal.SIGKILL)
    service.end()
    service.start()
    with wait_until(lambda: gone_run(service), "it is found") as gone:
        found = gone.stream("batch.n").wait(100, timeout_s=PATIENCE_S)
        assert [int(record.value) for record in found][:100] == seen[:100]


def gone_run(service: Service) -> Any:
    with contextlib.suppress(RunNotFoundError, RunLostError):
        run = sg.connect("far", hub=service.file("viewer"))
        if not run.may_command and run.describe().state in ("gone", "ended"):
            return run
        run.close()
    return None


def test_a_client_that_is_away_when_its_run_ends_gets_the_rest(
    service: Service, training: Any, start: Any, tmp_path: Path
) -> None:
    """The client stands still, so that it misses the run's goodbye, and its connection is lost."""
    client = start(
        """
run = sg.connect("far", hub=sys.argv[1], wait_s=60)
stream = run.stream("batch.n")
stream.wait(20, timeout_s=60)
say("watches")
values = [int(record.value) for record in stream]
say("got", values[0], values[-1], len(values), stream.n_lost, stream.statistics().n_records, run.n_reconnects)
""",
        str(service.file("viewer")), SIGHTGLASS_RUNTIME_DIR=str(tmp_path / "elsewhere"),
    )  # fmt: skip
    client.hears("watches")
    client.send(signal.SIGSTOP)
    with sg.connect("far", hub=service.file("controller")) as run:
        stream = run.stream("batch.n")
        stream.wait(20, timeout_s=PATIENCE_S)
        run.stop()
    made = int(training.hears("made")[0])
    wait_until(lambda: kept_state(service) == "ended", "it has ended")
    service.end()  # what it sent to the client is lost
    client.send(signal.SIGCONT)
    service.start()
    first, last, n, n_lost, n_records, _ = map(int, client.hears("got"))
    assert (last, n, n_lost) == (made - 1, made - first, 0)
    assert n_records == n


def test_a_client_of_a_run_that_was_killed_ends_soon(
    service: Service, training: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before its machine could have been cut off for a while, and healed."""
    monkeypatch.setattr(hub_runs, "GONE_AFTER_S", 5.0)
    with sg.connect(training_id(service), hub=service.file("viewer"), wait_s=PATIENCE_S) as run:
        stream = run.stream("batch.n")
        stream.wait(100, timeout_s=PATIENCE_S)
        training.send(signal.SIGKILL)
        with pytest.raises(RunLostError, match="'far' is gone"):
            list(stream)
        values = [int(record.value) for record in stream.records()]
        assert values == list(range(values[0], values[0] + len(values)))
        wait_until(lambda: run.ended, "it is over")


def training_id(service: Service) -> str:
    """Return the id of the run: who asks for it by its id follows no other run of its name."""
    return wait_until(lambda: [run.id for run in sg.runs(hub=service.file("viewer"))], "it is found")[0]


def test_a_hub_that_keeps_nothing_costs_nothing_and_says_so(service: Service, start: Any, tmp_path: Path) -> None:
    service.end()
    service.start("--keep", "off")
    assert json.loads(service.file("run").read_text())["keeps"] is False
    assert "jetstream" not in json.loads((service.folder / "hub.conf").read_text())["accounts"]["default"]
    with sg.init("here", hub=service.file("run")) as run, Trained(run):
        with sg.connect("here", hub=service.file("viewer"), wait_s=PATIENCE_S) as remote:
            remote.stream("batch.loss").wait(5, timeout_s=PATIENCE_S)
        assert run._wiring.agent._keeping._told_s is None
    wait_until(lambda: not sg.runs(hub=service.file("viewer")), "it is gone")
    with pytest.raises(RunNotFoundError):
        sg.connect("here", hub=service.file("viewer"))
    service.end()
    service.start("--keep", "2 days", "--keep-bytes", str(2**22))
    assert json.loads(service.file("run").read_text())["keeps"] is True


def test_the_store_has_limits_and_what_they_left_out_is_not_silent(service: Service) -> None:
    service.end()
    service.start("--keep-bytes", str(2**20))
    with (
        sg.init("here", hub=service.file("run"), budget=None) as run,
        sg.connect("here", hub=service.file("viewer"), wait_s=PATIENCE_S) as remote,
    ):
        stream = remote.stream("batch.x")
        for n in range(200):
            run.observe("batch", step=n, x=np.full(2_000, float(n)))
            stream.wait(n + 1, timeout_s=PATIENCE_S)
    wait_until(lambda: kept_state(service, "here") == "ended", "it has ended")
    with sg.connect("here", hub=service.file("viewer")) as gone:
        stream = gone.stream("batch.x")
        values = [int(record.value[0]) for record in stream]
        assert values == list(range(values[0], 200))
        assert 20 < len(values) < 70  # of 16 kB each, in 1 MiB
        assert stream.note.startswith(f"from step {values[0]}, ")


def test_what_is_opened_again_goes_on_behind_what_was_kept_before(service: Service, training: Any) -> None:
    first, second = watched(service, 50), watched(service, 50)
    nobody_asks(service)
    training.send(signal.SIGKILL)
    wait_until(lambda: kept_state(service) == "gone", "it is gone")
    with sg.connect("far", hub=service.file("viewer")) as gone:
        stream = gone.stream("batch.n")
        wait_until(lambda: stream.ended, "all is read")
        values = [int(record.value) for record in stream.records()]
        assert values == sorted(set(values))
        assert {*first, *second} <= set(values)
        assert (len(gone.describe().streams), stream.n_lost) == (2, 0)


def test_how_long_to_keep_is_checked_and_remembered(tmp_path: Path) -> None:
    def hub(*arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(main, ["hub", *arguments, "--dir", str(tmp_path / "hub")])
        assert done.exit_code == code, done.output
        return done.output

    assert "--keep: Expected a duration such as" in hub("--keep", "a while", "--config-only", code=2)
    hub("--keep", "off", "--config-only")
    assert "keeps nothing" in hub("store", code=1)
    hub("--keep", "2 days", "--keep-bytes", "5000000", "--config-only")
    hub("--listen", "127.0.0.1:4333", "--config-only")
    settings = json.loads((tmp_path / "hub" / "hub.json").read_text())
    assert (settings["keep_s"], settings["keep_bytes"]) == (2 * 86_400, 5_000_000)
