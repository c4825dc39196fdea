"""A data pipeline with worker threads: ask each stage, change the batch size, and stop it, from another process.

The workers announce the events, and the main thread none. It calls `run.apply()` between two batches, where nobody
reads what a command changes; the workers need no lock for it.

    python examples/data_pipeline.py
"""

import queue
import subprocess
import sys
import threading
import time
import zlib

import sightglass as sg


def process():
    """Read, compress and write until somebody stops the run."""
    raw, packed = queue.Queue(100), queue.Queue(100)
    with sg.init("pipeline") as run:
        batch = run.control("batch", 1, min=1, max=1_000)

        def compress():
            while (rows := raw.get()) is not None:
                began_s = time.perf_counter()
                packed.put(zlib.compress(b"".join(rows)))
                run.observe("compress", n_rows=len(rows), s=time.perf_counter() - began_s, waiting=raw.qsize())

        def write():
            while (data := packed.get()) is not None:
                run.observe("write", n_bytes=len(data))

        workers = [threading.Thread(target=one, name=one.__name__) for one in (compress, compress, write)]
        for worker in workers:
            worker.start()
        print(run.id, flush=True)
        n = 0
        while not run.stopping:
            run.apply(step=n)
            raw.put([f"row {n + i}\n".encode() * 10 for i in range(batch.value)])
            n += batch.value
            time.sleep(0.002)
        for stage, n_workers in ((raw, 2), (packed, 1)):
            for _ in range(n_workers):
                stage.put(None)
            for worker in workers[:2] if stage is raw else workers[2:]:
                worker.join()


def steer(id):
    """Ask, steer and stop the pipeline."""
    with sg.connect(id) as run:
        written = run.stream("write.n_bytes.mean(every=50)")
        before = written.wait(1, timeout_s=60)[-1].value
        reply = run.set("batch", 100)
        after = written.wait(len(written.records()) + 6, timeout_s=60)[-1].value
        print(f"{before:.0f} bytes a write; from row {reply.step:.0f} on {after:.0f}")
        assert reply.event == "apply"
        assert after > before
        assert run.stop().applied


if __name__ == "__main__":
    if sys.argv[1:] == ["process"]:
        process()
    else:
        pipeline = subprocess.Popen([sys.executable, __file__, "process"], stdout=subprocess.PIPE, text=True)
        steer(pipeline.stdout.readline().strip())
        assert pipeline.wait() == 0
