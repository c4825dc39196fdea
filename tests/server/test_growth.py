"""Tabs that come and go leave nothing behind, in the page's server and in the run."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from collections import Counter

import pytest

import sightglass as sg
from sightglass.client.resumable_stream import RecordBuffer
from sightglass.client.streams.stream import Stream
from sightglass.server.live import shared_stream
from sightglass.server.live.frame_queue import FrameQueue
from sightglass.server.live.page_socket import PageSocket
from sightglass.server.live.shared_stream import SharedStream, StreamCursor, StreamReader
from sightglass.training.evaluation.subscription import Subscription
from sightglass.views.encoding import Backlog

from .conftest import wait_until

QUERIES = ("batch.loss", "batch.x", "batch.loss.mean(every=10)")
N_TABS = 12
HELD = {PageSocket, FrameQueue, StreamCursor, SharedStream, StreamReader, Backlog, Stream, RecordBuffer, Subscription}
"""What a tab takes, in the server and in the run, which are both in this process."""


def held():
    gc.collect()
    return Counter(type(one).__name__ for one in gc.get_objects() if type(one) in HELD)


@pytest.mark.parametrize("cut", [False, True], ids=["left", "cut"])
def test_tabs_leave_nothing_behind(page, begin, monkeypatch, cut):
    monkeypatch.setattr(shared_stream, "LINGER_S", 0.05)
    run = begin()
    run.observe("batch", step=0, loss=1.0, x=[1.0, 2.0])
    key, before = page.key("job"), held()
    for i in range(1, N_TABS):
        tab = page.socket()
        for id, query in enumerate(QUERIES):
            tab.send(type="open", id=id, run=key, query=query)
        for id in range(len(QUERIES)):
            tab.hears("opened", id=id)
        run.observe("batch", step=i, loss=1.0, x=[1.0, 2.0])
        tab.hears("data", id=0)
        if i == 1:
            assert set(held() - before) == {kind.__name__ for kind in HELD}  # they are what is counted
        (tab.raw.socket if cut else tab.raw).close()
    wait_until(lambda: not held() - before)


TRAINING = """
import sys, time, sightglass as sg
run = sg.init("fast", mode="live", budget=None)
step = 0
while not run.stopping:
    time.sleep(0.0005)
    run.observe("batch", step=step, loss=float(step), x=[step, 1.0])
    step += 1
"""
N_CLOSED = 200


@pytest.mark.slow
def test_hundreds_of_tabs_that_are_closed_in_the_middle_of_a_backlog_leave_nothing_behind(page, monkeypatch):
    monkeypatch.setattr(shared_stream, "LINGER_S", 0.05)
    with subprocess.Popen([sys.executable, "-c", TRAINING]) as training:
        try:
            key = page.key("fast")
            with sg.connect("fast") as run, run.stream("batch.loss") as stream:
                stream.wait(5_000, timeout_s=60)  # what a tab gets first is longer than it takes in
                before = None
                for i in range(N_CLOSED):
                    tab = page.socket()
                    for id, query in enumerate(QUERIES):
                        tab.send(type="open", id=id, run=key, query=query, points=100_000)
                    tab.hears("data", id=0)  # not acknowledged
                    (tab.raw.socket if i % 2 else tab.raw).close()
                    if before is None:
                        wait_until(lambda: not page.hub.sockets and not page.hub.streams)
                        before = taken(page, run)
                wait_until(lambda: not page.hub.sockets and not page.hub.streams)
                wait_until(lambda: all(n <= before[what] for what, n in taken(page, run).items()))
                assert stream.n_lost == 0
                run.stop()
        finally:
            training.kill()


def taken(page, run):
    """Return what tabs take: tasks, threads and descriptors of this process, streams and clients of the run.

    The threads of pools, whose names end with a number, stay for the next tab.
    """
    loop = page.hub.streams._loop
    about = run.describe()
    return {
        "tasks": len(asyncio.all_tasks(loop)),
        "threads": sum(not thread.name[-1].isdigit() for thread in threading.enumerate()),
        "descriptors": len(os.listdir("/proc/self/fd")), "streams": len(about.streams), "clients": about.n_clients,
    }  # fmt: skip
