"""An asyncio service: ask, drain its queue by an async action, and stop it, from another process.

`await run.apply_async()` is where commands are applied: in the event loop, where nothing else runs meanwhile. Actions
that are `async def` functions are awaited there.

    python examples/asyncio_service.py
"""

import asyncio
import random
import subprocess
import sys

import sightglass as sg


async def serve():
    """Work off jobs until somebody stops the run."""
    queue = asyncio.Queue()
    with sg.init("service") as run:
        rate = run.control("rate", 500.0, min=1.0)  # jobs that arrive in a second

        async def drain():
            """Wait until the queue is empty."""
            n = queue.qsize()
            await queue.join()
            return n

        async def produce():
            while True:
                await asyncio.sleep(random.expovariate(rate.value))
                queue.put_nowait("job")

        async def work():
            while True:
                await queue.get()
                await asyncio.sleep(0.01)
                run.observe("job", waiting=queue.qsize())
                queue.task_done()

        run.action("drain", drain)
        tasks = [asyncio.create_task(one()) for one in (produce, work, work)]
        print(run.id, flush=True)
        while not run.stopping:
            await run.apply_async()
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()


def steer(id):
    """Ask, steer and stop the service."""
    with sg.connect(id) as run:
        print("waiting jobs:", run.stream("job.waiting.mean(every=50)").wait(5, timeout_s=60)[-1].value)
        reply = run.set("rate", 20.0)
        print(f"drained {run.call('drain').result} jobs after the rate went from {reply.old} to {reply.result}")
        assert [entry.event for entry in run.history][-1] == "apply"
        run.stop()


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        asyncio.run(serve())
    else:
        service = subprocess.Popen([sys.executable, __file__, "serve"], stdout=subprocess.PIPE, text=True)
        steer(service.stdout.readline().strip())
        assert service.wait() == 0
