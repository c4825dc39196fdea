"""Programs of several processes: each looks into its own tensors, and all act together."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.fsdp
from bench.ranks import CALLS, asked, n_right
from tests.waiting import wait_until

import sightglass as sg
import sightglass.torch as sgt
from sightglass.core.process import ranks as launched

PROGRAM = Path(__file__).with_name("ranks_program.py")


@pytest.mark.slow
def test_two_ranks_look_and_act():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    ranks = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), port], stdout=subprocess.PIPE, text=True,
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"},
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        said = [json.loads(rank.communicate(timeout=90)[0].splitlines()[-1]) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    assert [one["ranks"] for one in said] == [[0], [1]]
    assert [one["right"] for one in said] == [True, True]
    assert [(one["first"], one["last"], one["hooks"]) for one in said] == [(0.1, 0.5, 0)] * 2
    assert said[0]["n"] == said[1]["n"] < 20_000
    assert said[0]["at"] == said[1]["at"]  # the same event
    assert said[0]["norm"] == pytest.approx(said[1]["norm"])  # reduced over the ranks
    assert said[0]["mean"] != said[1]["mean"]  # each its own


@pytest.fixture
def agreeing() -> Iterator[Callable[..., list[subprocess.Popen[str]]]]:
    """Begin the ranks of a program that is told nothing of how its ranks agree."""
    begun: list[subprocess.Popen[str]] = []

    def begin(*n_events: int, with_runs: str = "0,1,2,3") -> list[subprocess.Popen[str]]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        begun.extend(
            subprocess.Popen(
                [sys.executable, "-W", "error", str(PROGRAM.with_name("agreeing_program.py")), port, with_runs, str(n)],
                stdout=subprocess.PIPE, text=True,
                env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(len(n_events)), "OMP_NUM_THREADS": "1"},
            )
            for rank, n in enumerate(n_events)
        )  # fmt: skip
        assert [rank.stdout.readline() for rank in begun] == ["ready\n"] * len(begun)
        return begun

    yield begin
    for rank in begun:
        rank.kill()
        rank.communicate()


def said_by(ranks: list[subprocess.Popen[str]]) -> list[Any]:
    return [json.loads(rank.communicate(timeout=90)[0].splitlines()[-1]) for rank in ranks]


@pytest.mark.slow
@pytest.mark.parametrize("n_ranks", [2, 4])
def test_ranks_apply_commands_together_without_being_told_how(agreeing, n_ranks):
    ranks = agreeing(*[20_000] * n_ranks)
    with sg.connect("agreeing") as group:
        assert group.n_ranks == n_ranks
        done = [
            group.set("lr", 0.2), group.set("lr", 0.3, at="epoch"), group.call("note"), group.pause(),
            group.set("lr", 0.4), group.resume(),
        ]  # fmt: skip
        with pytest.raises(sg.RefusedError, match=r"rank 0.*rank 1"):
            group.ranks[1].stop()
        done.append(group.stop())
    assert all(one.applied for one in done)
    first, *others = said_by(ranks)
    assert others == [first] * (n_ranks - 1)
    assert first["n"] == done[-1].index
    assert first["called"] == [done[2].index]
    assert first["changes"] == [[done[0].index, 0.2], [done[1].index * 10, 0.3], [done[3].index, 0.4]]


@pytest.mark.slow
def test_a_run_on_rank_0_only_takes_no_commands_and_goes_on(agreeing):
    ranks = agreeing(3_000, 3_000, with_runs="0")
    with sg.connect("agreeing") as run:
        with pytest.raises(sg.CommandError, match="rank 1"):
            run.stop()
        before = run.describe().events["batch"].n_events
        wait_until(lambda: run.describe().events["batch"].n_events > before)
    assert [one["changes"] for one in said_by(ranks)] == [[], []]


@pytest.mark.slow
def test_a_rank_that_is_stopped_or_killed_costs_a_command_and_holds_nobody_up(agreeing):
    ranks = agreeing(4_000, 20_000)
    with sg.connect("agreeing") as group:
        run = group.ranks[0]
        ranks[1].send_signal(signal.SIGSTOP)
        with pytest.raises(sg.CommandError, match="rank 1"):
            run.set("lr", 0.2)
        ranks[1].send_signal(signal.SIGCONT)
        wait_until(lambda: run.set("lr", 0.5).applied)
        ranks[1].kill()
        with pytest.raises(sg.CommandError, match="rank 1"):
            run.set("lr", 0.7)
        run.close()
    assert [rate for _, rate in said_by(ranks[:1])[0]["changes"]] == [0.5]


@pytest.mark.slow
def test_ranks_with_unequal_numbers_of_events_end(agreeing):
    ranks = agreeing(400, 150)
    # Rank 1 may have passed the event, or ended.
    with sg.connect("agreeing") as group, contextlib.suppress(sg.CommandError):
        group.ranks[0].set("lr", 0.2)
    changes = [[rate for _, rate in one["changes"]] for one in said_by(ranks)]
    assert changes[0] == changes[1] or changes == [[0.2], []]  # agreed on for an event after the last one of rank 1


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(torch.distributed.fsdp, "fully_shard"), reason="FSDP2 is public since PyTorch 2.6")
def test_a_client_asks_all_pieces_of_what_fsdp_spreads():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    ranks = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM.with_name("pieces_program.py")), port],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"},
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        assert [rank.stdout.readline() for rank in ranks] == ["ready\n"] * 2
        with sg.connect("fsdp") as group:
            assert group.n_ranks == len(group.ranks) == 2
            truth = group.ranks[0].stream("batch.norms")
            kinds = ("params", "grads", "updates")
            each = [group.stream(f"batch.{kind}.map(lambda name, x: pieces(x).norm())") for kind in kinds]
            one = group.stream("pieces(batch.w).norm()")
            histogram = group.stream("on('batch').map(lambda b: pieces(b.grads['0.weight'])).histogram(8, every=1)")

            def step() -> None:
                for rank in ranks:
                    rank.stdin.write("1\n")
                    rank.stdin.flush()
                time.sleep(0.1)  # the ranks need a moment for it

            def complete() -> list[list[sg.Record]]:
                known = {record.step for record in truth.records()}
                found = [
                    [record for record in s.records() if record.complete and record.step in known]
                    for s in (*each, one, histogram)
                ]
                return found if all(found) else []

            found = wait_until(complete, pause=step)  # the first events may exceed what queries may take of one
            norms = {record.step: record.value for record in truth.records()}
            for kind, records in zip(kinds, found[:3], strict=True):
                for record in records:
                    assert list(record.value) == ["0.weight", "0.bias", "1.weight", "1.bias"]
                    assert list(record.value.values()) == pytest.approx(norms[record.step][kind], rel=1e-3)
            for record in found[3]:
                assert record.value == pytest.approx(norms[record.step]["params"][0], rel=1e-3)
            assert {record.value.counts.sum() for record in found[4]} == {35}
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


@pytest.mark.slow
def test_a_client_asks_the_ranks_of_a_gloo_group_as_one():
    n_ranks, n_windows = 3, 20
    found = asked(n_ranks, n_windows, gloo=True)
    assert {name: n_right(name, records, n_ranks, n_windows) for name, records in found.items()} == dict.fromkeys(
        CALLS, n_windows
    )
    assert [record.missing for records in found.values() for record in records] == [()] * n_windows * len(CALLS)


def test_a_jax_program_that_imports_pytorch_has_the_store_of_jax(monkeypatch):
    class Coordinator:
        def key_value_try_get_bytes(self, key: str) -> bytes:
            return key.encode()

    monkeypatch.setattr(launched, "_jax_client", Coordinator)
    store = launched.launcher_store()
    assert store is not None
    assert store.get("a") == b"a"


def test_agree_needs_a_process_group():
    with pytest.raises(RuntimeError, match=r"torch\.distributed.init_process_group"):
        sgt.agree()


@pytest.mark.parametrize("n_bytes", [0, 1, 248, 249, 100_000])
def test_one_rank_agrees_with_itself(tmp_path, n_bytes):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        data = bytes(i % 251 for i in range(n_bytes))
        assert sgt.agree()(data) == data
    finally:
        torch.distributed.destroy_process_group()
