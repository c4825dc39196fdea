"""A web server under load: ask which requests are slow, turn a knob, and stop it, from another process.

Requests are handled on threads of their own, so the control says `thread="any"`: the next request applies it. `stop`
sets `run.stopping`, which the main thread looks at.

    python examples/http_server.py
"""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import urlopen

import sightglass as sg


def serve():
    """Serve until somebody stops the run."""
    run = sg.init("web")
    delay_s = run.control("delay_s", 0.05, min=0.0, max=1.0, thread="any")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            began_s = time.perf_counter()
            time.sleep(delay_s.value)  # the work
            self.send_response(200)
            self.end_headers()
            run.observe("request", path=self.path, ms=(time.perf_counter() - began_s) * 1e3)

        def log_message(self, *args):
            """Print nothing: run.observe tells every client that asks."""

    with run, ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.timeout = 0.1
        print(run.id, server.server_port, flush=True)
        while not run.stopping:
            server.handle_request()


def steer(id, port):
    """Put the server under load, ask, steer and stop it."""

    def load(worker):
        for n in range(10_000):
            try:
                urlopen(f"http://127.0.0.1:{port}/{worker}/{n}", timeout=10).close()
            except OSError:
                return n  # the server has stopped
        return None

    with sg.connect(id) as run, ThreadPoolExecutor(4) as pool:
        loads = [pool.submit(load, worker) for worker in range(4)]
        slow = run.stream(sg.on("request").map(lambda r: r.ms).quantile(0.9, every=20))
        before = slow.wait(1, timeout_s=60)[-1].value
        reply = run.set("delay_s", 0.0)
        after = slow.wait(len(slow.records()) + 3, timeout_s=60)[-1].value
        print(f"90 % of the requests within {before:.0f} ms, from step {reply.step} on within {after:.0f} ms")
        assert reply.applied
        assert before >= 50
        run.stop()
        print(f"{sum(one.result() for one in loads)} requests were answered")


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        server = subprocess.Popen([sys.executable, __file__, "serve"], stdout=subprocess.PIPE, text=True)
        steer(*server.stdout.readline().split())
        assert server.wait() == 0
