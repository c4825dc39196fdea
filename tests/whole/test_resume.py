"""Clients that are stopped or cut off, and runs that end or begin again meanwhile: real processes and sockets."""

from __future__ import annotations

import contextlib
import itertools
import re
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import sightglass as sg
from sightglass.client import connection, reconnect
from sightglass.views.stream_set import StreamSet

RUN = """
from sightglass.training import clients
clients.LEASE_S = 3.0  # a shorter one ends by itself on a busy machine
listen = {"listen": "tcp://127.0.0.1:0"} if sys.argv[1:2] == ["tcp"] else {}
run = sg.init("job", dir=sys.argv[2] if listen else "runs", budget=None, **listen)
say("ready", run.connection_file)
train(run)
"""

READER = """
with sg.connect("job") as run:
    stream = run.stream("batch.n")
    stream.wait(3, timeout_s=60)
    say("reads")
    sums = stream.map(lambda n: n).count(every=1)
    heard = []
    stream.subscribe(heard.append)
    records = list(stream)
    made_once = [record.value for record in records] == sorted({record.value for record in records})
    in_order = [record.index for record in records] == sorted({record.index for record in records})
    until(lambda: len(heard) == len(records))
    say("got", len(records), stream.n_lost, records[-1].index + 1, made_once and in_order, run._session.n_reconnects,
        sum(record.value for record in sums.wait(0)))  # an empty window for each record that is missing
"""


def sleeps(start, until) -> tuple[int, ...]:
    """Stop a reader beyond its lease while the run goes on; return what the reader got, and what was made."""
    child = start(RUN)
    child.hears("ready")
    reader = start(READER)
    reader.hears("reads")
    reader.send(signal.SIGSTOP)
    with sg.connect("job") as run:
        until(lambda: not run.describe().streams)
        child.goes_on()
        reader.send(signal.SIGCONT)
        until(lambda: run.describe().streams)
        child.goes_on()
        run.stop()
    made = int(child.hears("made")[0])
    words = reader.hears("got")
    return (*map(int, words[:3]), words[3] == "True", *map(int, words[4:]), made)


def test_a_client_that_slept_goes_on_behind_a_counted_gap(start, until):
    n, n_lost, end, right, n_reconnects, n_counted, made = sleeps(start, until)
    assert right
    assert n_reconnects >= 1
    assert n_counted == n
    assert n_lost >= 50  # nobody asked meanwhile
    assert n + n_lost == end <= made


RECORDING = """
from sightglass.training import clients
clients.LEASE_S = 3.0  # a shorter one ends by itself on a busy machine
limits = sg.Limits(max_backlog_records=20)
run = sg.init("job", dir=sys.argv[1], budget=None, record=["batch.n"], limits=limits)
say("ready")
train(run, lambda step: {"other": step})
"""

READERS = """
QUERIES = ["batch.n", "batch.n * 2", "batch.n.sum(every=10)", "batch.other"]
with sg.connect("job") as run, sg.fleet("job") as fleet:
    streams = [run.stream(query) for query in QUERIES] + [fleet.stream("batch.n * 3")]
    for stream in streams:
        stream.wait(3, timeout_s=60)
    heard = []
    streams[0].subscribe(heard.append)
    thinned = [stream.statistics().n_thinned for stream in streams]  # of a late stream, when it began
    say("reads")
    for stream, n_thinned in zip(streams[:-1], thinned):
        records = list(stream)
        values = [record.value for record in records]
        indexes, steps = [record.index for record in records], [record.step for record in records]
        say("got", len(records), stream.n_lost, stream.statistics().n_thinned - n_thinned,
            n_thinned + records[0].index, records[-1].index + 1,
            values[0], values[-1], indexes == sorted(set(indexes)) and steps == sorted(set(steps)))
    until(lambda: len(heard) == len(streams[0].records()))
    until(lambda: streams[-1].members[0].ended)
    (part,) = streams[-1].members
    records = part.records()
    say("fleet", len(records), part.n_lost, len(streams[-1].records()), records[-1].value - records[0].value)
    say("again", run.n_reconnects)
"""


def test_a_client_that_slept_gets_what_the_run_recorded(start, until, tmp_path):
    child = start(RECORDING, str(tmp_path))
    child.hears("ready")
    reader = start(READERS)
    reader.hears("reads")
    reader.send(signal.SIGSTOP)
    with sg.connect("job") as run:
        until(lambda: len(run.describe().streams) == 1)  # what is recorded is evaluated on, the rest is not
        child.goes_on()
        reader.send(signal.SIGCONT)
        until(lambda: len(run.describe().streams) == 5)
        child.goes_on()
        run.stop()
    made = int(child.hears("made")[0])
    found = [reader.hears("got") for _ in range(4)]
    for words in found:
        n, n_lost, n_thinned, first, end = map(int, words[:5])
        assert words[7] == "True"
        assert n + n_lost + n_thinned == end - first
    assert [words[1:3] for words in found[:3]] == [["0", "0"]] * 3
    assert int(found[3][1]) >= 50  # nobody asked for it meanwhile, and it is not recorded
    assert int(found[0][4]) <= made
    assert int(found[1][6]) - int(found[1][5]) == 2 * (int(found[1][0]) - 1)
    n, n_lost, n_union, span = map(int, reader.hears("fleet"))
    assert (n_lost, 3 * (n - 1), n_union) == (0, span, n)
    assert int(reader.hears("again")[0]) >= 1


@pytest.mark.parametrize("end", ["close", "kill"])
def test_a_run_that_ends_while_the_client_sleeps_is_told_as_what_it_was(start, until, end):
    child = start(RUN)
    child.hears("ready")
    reader = start(
        """
        from sightglass.client import reconnect
        reconnect.RESTART_S = 0.5
        with sg.connect("job") as run:
            stream = run.stream("batch.n")
            stream.wait(3, timeout_s=60)
            say("reads")
            until(lambda: stream.ended, 30)
            say("ended", repr(stream.error))
        """.replace("\n        ", "\n")
    )
    reader.hears("reads")
    reader.send(signal.SIGSTOP)
    with sg.connect("job", on_lost="raise") as run:
        until(lambda: not run.describe().streams)
        if end == "close":
            run.stop()
            child.hears("made")
        else:
            child.send(signal.SIGKILL)
    child.ends()
    reader.send(signal.SIGCONT)
    told = " ".join(reader.hears("ended"))
    assert told == "None" if end == "close" else "RunLostError" in told


def test_a_run_that_is_started_again_goes_on_in_the_same_stream(start, until):
    first = start(RUN)
    first.hears("ready")
    with sg.connect("job") as run, sg.connect(run.id) as by_id:
        stream, other = run.stream("batch.n"), by_id.stream("batch.n")
        n = len(stream.wait(20, timeout_s=60))
        first.send(signal.SIGKILL)
        with pytest.raises(sg.RunLostError, match="died"):
            list(other)  # this one was asked for by its id
        old = run.id
        until(lambda: stream.note.endswith("; connecting again"))
        second = start(RUN)
        second.hears("ready")
        until(lambda: stream.restarts)
        until(lambda: stream.latest.index >= stream.restarts[0].index + 20)
        (restart,) = stream.restarts
        assert (restart.run_id, run.id == old) == (run.id, False)
        records = stream.wait(0)
        assert [record.index for record in records] == sorted({record.index for record in records})
        before = [record.value for record in records if record.index < restart.index]
        after = [record.value for record in records if record.index >= restart.index]
        assert before == [before[0] + i for i in range(len(before))]
        assert after == [after[0] + i for i in range(len(after))]
        assert len(before) >= n
        drawn = StreamSet([stream])
        drawn.pull()
        assert "connecting" not in stream.note
        # No line crosses the restart. Steps that both runs made are drawn twice, so there may be three parts.
        assert len(drawn.scene.restarts) == 1
        *earlier, newest = drawn.scene.series
        assert earlier
        assert newest.x[0] == after[0]
        assert {x for line in earlier for x in line.x} <= set(before)
        assert run.stop().applied
        assert list(stream)[-1].value == after[0] + len(list(stream)) - len(before) - 1
    assert second.ends() == 0


def test_two_connections_go_on_with_a_run_that_is_started_again_and_pair_its_records_only(start, until):
    """Each process counts its steps from 0, and one connection gets nothing of the second process."""
    script = RUN.replace("run)", "run, lambda _: {'process': os.getpid(), 'told': sys.argv[3:] != ['mute']})")
    children = [start(script)]
    children[0].hears("ready")
    with sg.connect("job") as one, sg.connect("job") as other:
        # The second joins later, so the numbers of its records are other ones.
        first = one.stream("(batch.process, batch.n)")
        first.wait(20, timeout_s=60)
        second = other.stream(sg.on("batch").where(lambda b: b.told).map(lambda b: (b.process, b.n * 2)))
        pairs = first.zip(second)
        pairs.wait(20, timeout_s=60)
        for told in ("mute", "told"):
            children[-1].send(signal.SIGKILL)
            children[-1].ends()
            children.append(start(script, "unix", "runs", told))
            children[-1].hears("ready")
            pid = children[-1].pid
            until(lambda pid=pid: first.latest.value[0] == pid and one.id == other.id, 60)
            until(lambda: len(one.describe().streams) == 2, 60)
            children[-1].goes_on()
        until(lambda: sum(record.value[0][0] == pid for record in pairs.wait(0)) >= 20, 60)
        assert one.stop().applied
        until(lambda: first.ended and second.ended and pairs.ended, 60)
        heard = [children[0], children[2]]
        for run, stream, made_by in ((one, first, children), (other, second, heard)):
            assert [restart.run_id for restart in stream.restarts][-1] == run.id
            records = list(stream)
            assert [record.index for record in records] == sorted({record.index for record in records})
            starts = [0, *(restart.index for restart in stream.restarts), records[-1].index + 1]
            for child, (low, high) in zip(children, itertools.pairwise(starts), strict=True):
                made = [record.value for record in records if low <= record.index < high]
                assert {process for process, _ in made} == ({child.pid} if child in made_by else set())
                assert [n for _, n in made] == sorted({n for _, n in made})
        found = [record.value for record in pairs]
    assert {(p == q, 2 * n == twice) for (p, n), (q, twice) in found} == {(True, True)}
    assert len({(p, n) for (p, n), _ in found}) == len(found)
    assert [child.pid for child in heard] == list(dict.fromkeys(p for (p, _), _ in found))


def test_a_run_that_is_not_started_again_is_lost(start, monkeypatch):
    monkeypatch.setattr(reconnect, "RESTART_S", 0.5)
    child = start(RUN)
    child.hears("ready")
    with sg.connect("job") as run:
        stream = run.stream("batch.n")
        stream.wait(3, timeout_s=60)
        child.send(signal.SIGKILL)
        with pytest.raises(sg.RunLostError, match="died"):
            list(stream)
        with pytest.raises(sg.RunLostError, match="died"):
            run.describe()
        assert run.ended


class Proxy:
    """A TCP proxy whose cable can be pulled: what is on its way is lost, and nobody is told."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.cut = threading.Event()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._listener.accept()
            except OSError:
                return
            there = socket.create_connection(("127.0.0.1", self._port))
            self._pairs.append((here, there))
            for source, sink in ((here, there), (there, here)):
                thread = threading.Thread(target=self._carry, args=(source, sink, self.cut.is_set()))
                self._threads.append(thread)
                thread.start()

    def _carry(self, source: socket.socket, sink: socket.socket, dead: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                dead = dead or self.cut.is_set()
                if not dead:  # what was lost breaks a connection for ever
                    sink.sendall(data)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for pair in self._pairs:
            for one in pair:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def proxied(start, tmp_path) -> Iterator[tuple[object, Path, Proxy]]:
    """Start a run behind a proxy; gives its process, a connection file that leads through the proxy, and the proxy."""
    import json

    child = start(RUN, "tcp", str(tmp_path))
    file = Path(child.hears("ready")[0])
    content = json.loads(file.read_text())
    proxy = Proxy(int(content["endpoint"].rpartition(":")[2]))
    through = tmp_path / "through.json"
    through.write_text(json.dumps({**content, "endpoint": f"tcp://127.0.0.1:{proxy.port}"}))
    yield child, through, proxy
    proxy.close()


def test_a_network_that_is_cut_and_healed(proxied, until, monkeypatch):
    monkeypatch.setattr(connection, "SILENCE_S", 3.0)
    monkeypatch.setattr(connection, "PING_S", 0.2)
    monkeypatch.setattr("sightglass.client.presence.SILENCE_S", 3.0)
    monkeypatch.setattr(reconnect, "GREET_S", 0.5)
    child, file, proxy = proxied
    with sg.connect(file) as run:
        stream = run.stream("batch.n")
        stream.wait(20, timeout_s=60)
        proxy.cut.set()
        until(lambda: run.lost)
        assert run.lost == "Run 'job' has been silent for 3 s"
        assert not run.ended
        with sg.connect("job") as near:
            until(lambda: not near.describe().streams)  # the lease has ended
        child.goes_on()
        proxy.cut.clear()
        until(lambda: not run.lost)
        n = stream.statistics().n_records
        stream.wait(n + 100, timeout_s=60)
        assert run.stop().applied
        records = list(stream)
        until(lambda: run.ended)
    made = int(child.hears("made")[0])
    assert [record.value for record in records] == sorted({record.value for record in records})
    assert stream.n_lost > 0
    assert len(records) + stream.n_lost == records[-1].index + 1 <= made


def test_the_command_says_what_is_missing(start, until):
    child = start(RUN)
    child.hears("ready")
    watch = start("from sightglass.__main__ import main; sys.argv[1:] = ['watch', 'job', 'batch.n', '--plain']; main()")
    said = re.compile(r"^Connected again: ([\d,]+) records are missing so far\.$", re.MULTILINE)
    with sg.connect("job") as run:
        until(lambda: run.describe().streams)
        watch.send(signal.SIGSTOP)
        until(lambda: not run.describe().streams)
        child.goes_on()
        watch.send(signal.SIGCONT)
        # On a busy machine the short lease may have ended before, when nothing was missing.
        until(lambda: any(int(n.replace(",", "")) >= 50 for n in said.findall(watch.complaints)))
        run.stop()
    assert watch.ends() == 0
