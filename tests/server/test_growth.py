"""Tabs that come and go leave nothing behind, in the page's server and in the run."""

from __future__ import annotations

import gc
from collections import Counter

import pytest

from sightglass.client.record_buffer import RecordBuffer
from sightglass.client.stream import Stream
from sightglass.server.live import shared_stream
from sightglass.server.live.frame_queue import FrameQueue
from sightglass.server.live.page_socket import PageSocket
from sightglass.server.live.shared_stream import SharedStream, StreamCursor
from sightglass.server.live.stream_reader import StreamReader
from sightglass.training.subscription import Subscription
from sightglass.views.backlog import Backlog

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
