"""The processes that `bench.latency` measures: a host that is busy in Python and announces events, and its client.

A host is told over its standard input how many events to announce, and says what they cost. A client stamps what
arrives, and says it at the end. The bare ones do what a program without Sightglass would do: the host appends to a
deque and wakes a second thread, which sends each message with pyzmq.
"""

from __future__ import annotations

import json
import struct
import sys
import threading
import time
from collections import deque
from collections.abc import Callable

import zmq

import sightglass as sg

RATE = 1_000  # events a second
QUERY = "batch.sent"
MESSAGE = struct.Struct("<qd")  # the step, and when it was
LAST = -1  # the step of the last message
WAIT_S = 30.0  # for a run to reach its hub

Tell = Callable[[int, float], object]
"""Announces a step, and when it was."""


def announce(tell: Tell, *, first: int, n: int, busy: bool) -> dict[str, float]:
    """Announce events at the rate, and return what they cost this thread.

    Returns:
        `cpu_s`: the processor time that one event took. `n_turns`: how often the loop between the events turned.
        `process_s`: the processor time of all threads.
    """
    cpu_s, n_turns, began_s, process_s = 0.0, 0, time.perf_counter(), time.process_time()
    for i in range(n):
        due_s = began_s + i / RATE
        while (left_s := due_s - time.perf_counter()) > 0:
            if busy:
                n_turns += 1
            else:
                time.sleep(left_s)
        before_s = time.thread_time()
        tell(first + i, time.time())
        cpu_s += time.thread_time() - before_s
    return {"cpu_s": cpu_s / n, "n_turns": n_turns, "process_s": time.process_time() - process_s}


def host(kind: str, name: str, hub: str | None = None) -> None:
    """Announce events whenever a line says so: the first step, how many, and whether to be busy between them."""
    tell, close = bare_sender(name) if kind == "bare" else run(name, hub)
    print("ready", flush=True)
    for line in sys.stdin:
        first, n, busy = map(int, line.split())
        print(json.dumps(announce(tell, first=first, n=n, busy=bool(busy))), flush=True)
    close()


def run(name: str, hub: str | None) -> tuple[Tell, Callable[[], object]]:
    """Return what announces an event to a run, and what ends the run."""
    live = sg.init(name, mode="live", hub=hub)
    live.observe("batch", step=LAST, sent=0.0)
    return lambda step, sent: live.observe("batch", step=step, sent=sent), live.close


def bare_sender(endpoint: str) -> tuple[Tell, Callable[[], object]]:
    """Return what hands a message to a second thread, which sends it, and what ends that thread."""
    waiting: deque[tuple[int, float]] = deque()
    woken = threading.Event()

    def send() -> None:
        socket = zmq.Context.instance().socket(zmq.PUSH)
        socket.connect(endpoint)
        step = 0
        while step != LAST:
            woken.wait()
            woken.clear()
            while waiting:
                step, sent = waiting.popleft()
                socket.send(MESSAGE.pack(step, sent))
        socket.close()

    def tell(step: int, sent: float) -> None:
        waiting.append((step, sent))
        woken.set()

    def close() -> None:
        tell(LAST, 0.0)
        thread.join()

    thread = threading.Thread(target=send)
    thread.start()
    return tell, close


def client(kind: str, name: str, hub: str | None = None) -> None:
    """Stamp what arrives until the host ends, then print its steps and how long each was under way."""
    arrived: list[tuple[int, float]] = []
    if kind == "bare":
        socket = zmq.Context.instance().socket(zmq.PULL)
        socket.bind(name)
        print("ready", flush=True)
        while (message := MESSAGE.unpack(socket.recv()))[0] != LAST:
            arrived.append((message[0], time.time() - message[1]))
    else:
        stream = sg.connect(name, hub=hub, wait_s=WAIT_S).stream(QUERY)
        print("ready", flush=True)
        for record in stream:
            arrived.append((int(record.step), time.time() - record.value))
    print(json.dumps(arrived), flush=True)


if __name__ == "__main__":
    {"host": host, "client": client}[sys.argv[1]](*sys.argv[2:])
