"""Cells of notebooks that run again, in a real kernel: the run of the earlier execution is ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.waiting import PATIENCE_S

jupyter_client = pytest.importorskip("jupyter_client")

pytestmark = pytest.mark.slow


class Kernel:
    """A kernel, and what its cells print."""

    def __init__(self, folder: str) -> None:
        self.manager = jupyter_client.KernelManager(kernel_name="python3")
        self.manager.start_kernel(cwd=folder)
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=PATIENCE_S)

    def run(self, code: str, cell: str | None = None) -> str:
        """Execute a cell, and return what it prints."""
        session = self.client.session
        content = {"code": code, "silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": False}
        message = session.msg("execute_request", content, metadata={} if cell is None else {"cellId": cell})
        self.client.shell_channel.send(message)
        said = ""
        while True:
            answer: Any = self.client.get_iopub_msg(timeout=PATIENCE_S)
            if answer["parent_header"].get("msg_id") != message["header"]["msg_id"]:
                continue
            match answer["msg_type"], answer["content"]:
                case "stream", {"text": text}:
                    said += text
                case "error", {"traceback": lines}:
                    raise AssertionError("\n".join(lines))
                case "status", {"execution_state": "idle"}:
                    return said

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture
def kernel(tmp_path) -> Iterator[Kernel]:
    kernel = Kernel(str(tmp_path))
    yield kernel
    kernel.close()


BEGIN = """
import sightglass as sg
run = sg.init("job", facts=sg.Facts(program=False, system=False))
run.control("lr", 0.1)
run.observe("batch", loss=1.0)
"""
LIVE = """
from sightglass.training.process_runs import _live
print(sorted(run.name for run in _live if not run.ended))
"""


def test_a_cell_that_runs_again_replaces_its_run(kernel):
    assert kernel.run(BEGIN, "a") == ""
    assert "Ended run 'job'" in kernel.run(BEGIN, "a")
    assert "['job']" in kernel.run(LIVE, "b")
    kernel.run('another = sg.init("job")', "c")
    assert "['job', 'job']" in kernel.run(LIVE, "b")
    kernel.run('one, two = (sg.init(name) for name in ("one", "two"))', "d")
    assert "['job', 'job', 'one', 'two']" in kernel.run(LIVE, "b")
    assert kernel.run('one, two = (sg.init(name) for name in ("one", "two"))', "d").count("Ended run") == 2
    assert "['job', 'job', 'one', 'two']" in kernel.run(LIVE, "b")


def test_without_ids_of_cells_a_run_of_the_same_name_and_folder_is_replaced(kernel):
    kernel.run(BEGIN)
    assert "Ended run 'job'" in kernel.run(BEGIN)
    kernel.run('other = sg.init("other")')
    assert "['job', 'other']" in kernel.run(LIVE)


USED = """
import os, threading
print(len(os.listdir("/proc/self/fd")), threading.active_count())
"""


def test_two_hundred_executions_leave_threads_and_descriptors_as_they_were(kernel):
    for _ in range(5):
        kernel.run(BEGIN, "a")
    before = [*map(int, kernel.run(USED, "b").split())]
    for _ in range(200):
        kernel.run(BEGIN, "a")
    after = [*map(int, kernel.run(USED, "b").split())]
    assert all(now <= then + 3 for now, then in zip(after, before, strict=True)), (before, after)
