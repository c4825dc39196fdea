"""Programs of several processes: each looks into its own tensors, and all act together."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed.fsdp
from bench.ranks import CALLS, asked, n_right
from tests.waiting import wait_until

import sightglass as sg
import sightglass.torch as sgt

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
