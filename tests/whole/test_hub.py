"""Runs that meet their clients on a hub: found, asked and commanded, whatever becomes of the hub."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.hub_server import PATIENCE_S, HubServer, Trained, needs_server, wait_until

import sightglass as sg
from sightglass.core.errors import RefusedError, RunNotFoundError, SightglassError, TransportError

pytestmark = needs_server
pytest.importorskip("nats")

TRAINING = """
import sys, time
import sightglass as sg

with sg.init("far", dir=sys.argv[1]) as run:
    lr = run.control("lr", 0.5)
    step = 0
    while not run.stopping:
        run.observe("batch", step=step, loss=1.0 / (step + 1), lr=lr.value)
        step += 1
        time.sleep(0.002)
"""


@pytest.fixture
def server() -> Iterator[HubServer]:
    server = HubServer()
    yield server
    server.close()


@pytest.fixture
def run(server: HubServer) -> Iterator[Any]:
    # To copy 20 MB takes longer than 20 ms on a busy machine; and what the budget thins would be missed.
    limits = sg.Limits(max_event_s=10.0)
    with sg.init("near", hub=server.url, config={"lr": 0.1}, limits=limits, budget=None) as run:
        run.control("lr", 0.1, thread="any")
        wait_until(lambda: [info.name for info in sg.runs(hub=server.url)] == ["near"], "it is found")
        yield run


@pytest.fixture
def training(server: HubServer, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A training in another process, which learns of the hub from its environment, and has a registry of its own."""
    environment = os.environ | {"SIGHTGLASS_HUB": server.url, "SIGHTGLASS_RUNTIME_DIR": str(tmp_path / "other")}
    process = subprocess.Popen([sys.executable, "-c", TRAINING, str(tmp_path / "runs")], env=environment)
    yield process
    process.kill()
    process.wait(PATIENCE_S)


def test_a_run_is_found_asked_and_commanded_on_its_hub(server: HubServer, run: Any) -> None:
    (info,) = sg.runs(hub=server.url)
    assert (info.name, info.id, info.state) == ("near", run.id, "running")
    with Trained(run), sg.connect("near", hub=server.url) as remote:
        assert remote.describe().config == {"lr": 0.1}
        found = remote.stream("batch.loss.mean(every=10)").wait(6, timeout_s=PATIENCE_S)
        assert [record.value for record in found[1:]] == [found[1].value + 10.0 * n for n in range(5)]
        remote.set("lr", 0.25)
        assert remote.describe().controls["lr"].value == 0.25
    with sg.connect(run.id[:6], hub=server.url) as by_id, sg.connect(hub=server.url) as only:
        assert by_id.id == only.id == run.id


def test_a_large_value_comes_through_the_hub(server: HubServer, run: Any) -> None:
    import numpy as np

    array = np.arange(2_500_000.0)  # 20 MB
    with sg.connect("near", hub=server.url) as remote:
        stream = remote.stream("batch.params")

        def arrived() -> Any:
            run.observe("batch", params=array)
            return stream.latest

        np.testing.assert_array_equal(wait_until(arrived, stream).value, array)


def test_a_run_that_is_not_there_is_named_with_those_that_are(server: HubServer, run: Any) -> None:
    with pytest.raises(RunNotFoundError, match=r"'neer'.*'near'"):
        sg.connect("neer", hub=server.url)
    with pytest.raises(RunNotFoundError, match="got Run"):
        sg.connect(run, hub=server.url)


def test_without_a_hub_clients_say_so() -> None:
    with pytest.raises(TransportError, match=r"nats://127.0.0.1:9"):
        sg.runs(hub="nats://127.0.0.1:9")


def test_a_run_without_its_hub_goes_on_says_so_once_and_is_found_later(server: HubServer) -> None:
    server.kill()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with sg.init("patient", hub=server.url) as run:
            with sg.connect(run) as local:  # on this machine, nothing has changed
                failures = wait_until(lambda: local.describe().failures, "the hub was not reached")
                assert failures["The hub"].endswith(
                    "run 'patient' continues without it, and connects when it can: "
                    f"no hub answers at nats://127.0.0.1:{server.port}"
                )
                stream = local.stream("batch.loss")
                run.observe("batch", loss=1.0)
                assert [record.value for record in stream.wait(1, timeout_s=PATIENCE_S)] == [1.0]
            server.start()
            with wait_until(lambda: try_connect("patient", server), "it is found") as remote:
                assert remote.id == run.id
            with sg.connect(run) as local:  # again: counted, and not said again
                n = int(local.describe().failures["The hub"].partition(";")[0])
                server.kill()
                wait_until(lambda: int(local.describe().failures["The hub"].partition(";")[0]) > n, "it is counted")
    told = [str(one.message) for one in caught if str(one.message).startswith("The hub")]
    assert len(told) == 1, told


@pytest.mark.parametrize(
    ("config", "says", "message"),
    [
        ("authorization {user: ann, password: secret}", b"", "refuses user 'anyone'"),
        ("max_connections: 1", b"", "is full"),
        (None, b"HTTP/1.1 400 Bad Request\r\n\r\n", "not a hub"),
        pytest.param(None, b"", "within 5 s", marks=pytest.mark.slow),
    ],
    ids=["unknown user", "full", "another program", "silent"],
)
@pytest.mark.filterwarnings("ignore:The hub")
def test_each_fault_is_named_and_the_training_goes_on(config: str | None, says: bytes, message: str) -> None:
    with contextlib.ExitStack() as stack:
        if config is not None:
            server = HubServer(config=config)
            stack.callback(server.close)
            url = server.url
            held = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), PATIENCE_S))
            assert held.recv(1)  # the one place is taken
        else:
            url = stack.enter_context(listener_that(says))
        with sg.init("lone", hub=url) as run, sg.connect(run) as local:
            stream = local.stream("batch.loss")
            run.observe("batch", loss=2.0)
            assert [record.value for record in stream.wait(1, timeout_s=PATIENCE_S)] == [2.0]
            failures = wait_until(lambda: local.describe().failures, "it is counted")
        assert re.search(f"run 'lone' continues without it.*{message}", failures["The hub"])
        error = RefusedError if message.startswith("refuses") else TransportError
        with pytest.raises(error, match=f"{message}|no answer from"):
            sg.runs(hub=url)


@contextlib.contextmanager
def listener_that(says: bytes) -> Iterator[str]:
    """Listen on a port of the system's, say this to each that connects, and then nothing."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

        def serve() -> None:
            while True:
                try:
                    connection = stack.enter_context(listener.accept()[0])
                except OSError:  # it was closed
                    return
                connection.sendall(says)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"nats://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE_S)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The hub")
def test_a_hub_that_stands_still_holds_neither_the_training_nor_its_end(server: HubServer) -> None:
    run = sg.init("steady", hub=server.url)
    wait_until(lambda: try_connect("steady", server), "it is found").close()
    with sg.connect(run) as local, Trained(run) as trained:
        server.stop()
        try:
            n = trained.n
            wait_until(lambda: trained.n > n + 500, "the training goes on")
            with (
                sg.init("second", hub=server.url) as second,
                sg.connect(second) as other,
            ):  # does not wait for it, either
                n = trained.n
                wait_until(lambda: trained.n > n + 500, "the training goes on")
                assert local.describe().name == "steady"
                wait_until(lambda: other.describe().failures, "it is counted")
        finally:
            server.go_on()
    run.close()


def test_without_a_hub_nothing_of_it_is_imported(tmp_path: Path) -> None:
    program = f"""
import sys
import sightglass as sg
with sg.init("plain", dir={str(tmp_path)!r}) as run, sg.connect(run) as client:
    stream = client.stream("batch.loss")
    run.observe("batch", loss=1.0)
    stream.wait(1, timeout_s={PATIENCE_S})
print([name for name in sys.modules if name.split(".")[0] == "nats" or "hub" in name])
"""
    environment = os.environ | {"SIGHTGLASS_RUNTIME_DIR": str(tmp_path / "other")}
    environment.pop("SIGHTGLASS_HUB", None)
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, env=environment, capture_output=True, timeout=PATIENCE_S
    )
    assert done.stdout == b"[]\n", (done.stdout, done.stderr)


def try_connect(name: str, server: HubServer) -> Any:
    try:
        return sg.connect(name, hub=server.url)
    except SightglassError:
        return None


@pytest.mark.slow
def test_a_stream_goes_on_when_the_hub_is_back_and_its_holes_are_counted(server: HubServer, run: Any) -> None:
    with sg.connect("near", hub=server.url) as remote:
        stream = remote.stream("batch.loss")
        with Trained(run) as trained:
            first = stream.wait(100, timeout_s=PATIENCE_S)[0]
            for _ in range(2):
                server.kill()
                n = trained.n
                wait_until(lambda n=n: trained.n > n + 50, "the training goes on without it")
                server.start()
                n = trained.n
                wait_until(lambda n=n: stream.latest is not None and stream.latest.value > n, "the stream goes on")
        wait_until(lambda: stream.latest.value == trained.n - 1, "all have arrived")
        counts, values = stream.statistics(), stream.to_arrays().values
        assert list(values) == sorted(set(values))  # none twice
        assert counts.n_records == len(values)
        assert values[-1] - first.value + 1 == counts.n_records + counts.n_lost


@pytest.mark.slow
def test_a_stream_that_many_ask_is_sent_once_and_each_gets_all_of_it(server: HubServer, run: Any) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(sg.connect("near", hub=server.url)) for _ in range(6)]
        trained = stack.enter_context(Trained(run))
        streams = [client.stream("batch.loss") for client in clients]
        readers = run._wiring.agent.publications._readers

        def shared_by(n: int) -> bool:
            return [len(one) for one in list(readers.values())] == [n]

        wait_until(lambda: shared_by(6), "all have entered")
        clients[0].close()
        streams[1].close()
        wait_until(lambda: shared_by(4), "two have left")
        again = clients[2].stream("batch.loss")  # of the same query: it gets the records of the past first
        wait_until(lambda: shared_by(4), "it has entered again")
        n = trained.n
        for stream in [*streams[2:], again]:
            wait_until(lambda stream=stream: stream.latest is not None and stream.latest.value > n + 50, stream)
            records = stream.to_arrays().values
            assert list(records) == list(range(int(records[0]), int(records[0]) + len(records)))
            assert stream.statistics().n_lost == 0
        assert again.to_arrays().values[0] <= streams[3].to_arrays().values[0]


@pytest.mark.slow
def test_a_killed_run_is_gone_and_one_that_ends_at_once(server: HubServer, training: Any) -> None:
    from sightglass.protocol.hub_address import hub_address
    from sightglass.protocol.hub_presence import HubDirectory

    directory = HubDirectory(hub_address(server.url))

    def names() -> list[str]:
        return sorted(run.entry.name for run in directory.runs())

    wait_until(lambda: names() == ["far"], "it comes by itself")
    with sg.init("short", hub=server.url):
        wait_until(lambda: names() == ["far", "short"], "a second one")
        training.send_signal(signal.SIGKILL)
    wait_until(lambda: "short" not in names(), "it said that it ended")
    wait_until(lambda: names() == [], "the killed one is not heard any more")
    directory.close()


@pytest.mark.slow
def test_the_command_line_reaches_the_runs_of_a_hub(server: HubServer, training: Any) -> None:
    def call(*arguments: str, code: int = 0) -> str:
        from sightglass.cli import main

        done = CliRunner().invoke(main, ["--hub", server.url, *arguments])
        assert done.exit_code == code, done.output
        return done.stdout if code == 0 else done.output

    wait_until(lambda: "far" in CliRunner().invoke(_main(), ["--hub", server.url, "runs"]).output, "it begins")
    assert "event 'batch'" in call("describe", "far")
    rows = [json.loads(line) for line in call("watch", "far", "batch.loss", "-n", "3", "--json").splitlines()]
    assert len(rows) == 3
    assert "lr" in call("set", "far", "lr=0.125")
    (row,) = json.loads(call("top", "batch.lr", "--every", "0.5", "--json"))
    assert row["name"] == "far"
    assert "Expected one of these commands with --hub" in call("check", "runs", code=2)
    assert "Expected neither DIR nor --connections with --hub" in call("runs", ".", code=2)
    call("stop", "far")
    wait_until(lambda: training.poll() == 0, "it stops")
    assert f"No live runs on {server.url}." in CliRunner().invoke(_main(), ["--hub", server.url, "runs"]).output


def _main() -> Any:
    from sightglass.cli import main

    return main


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"sightglass_hub": 1}', "'nats://host:4222', got '.*': "),
        ("junk", "'nats://host:4222'"),
        (None, "hub file '.*': No such file"),
    ],
)
def test_a_hub_file_that_is_none_is_refused(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "a.hub").write_text(content)
    with pytest.raises(TransportError, match=message):
        sg.runs(hub=tmp_path / "a.hub")
    with pytest.warns(RuntimeWarning, match="'lone'"):
        run = sg.init("lone", hub=tmp_path / "a.hub")
    run.observe("batch", loss=1.0)
    run.close()


@pytest.mark.parametrize(
    "url",
    [
        *("http://a:1", "nats://", "nats://a:x", "nats://a/path", "nats://ann:secret@a:4222", "nats://a:99999"),
        *("nats://a:1,", "nats://a:1,tls://b:1", "nats://a:1,nats://ann:secret@b:1"),
    ],
)
def test_a_url_that_is_no_hubs_is_refused(url: str) -> None:
    from sightglass.protocol.hub_address import hub_address

    with pytest.raises(TransportError, match=r"^Expected ") as caught:
        hub_address(url)
    assert "secret" not in str(caught.value)


def test_a_hub_of_another_type_is_refused_at_the_call() -> None:
    with pytest.raises(TypeError, match="int 4222"):
        sg.init("x", hub=4222)  # type: ignore[arg-type]


def test_the_url_of_a_cluster_names_several_servers() -> None:
    from sightglass.protocol.hub_address import hub_address

    assert hub_address("nats://a,nats://b:1").url == "nats://a:4222,nats://b:1"


def test_another_server_of_a_cluster_answers(server: HubServer, run: Any) -> None:
    for url in (f"nats://127.0.0.1:9,{server.url}", f"{server.url},nats://127.0.0.1:9"):
        assert [info.id for info in sg.runs(hub=url)] == [run.id]
