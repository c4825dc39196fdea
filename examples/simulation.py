"""A discrete simulation of a bank: ask how long customers wait, open a counter while it runs, and stop it.

The objects of the simulation are offered as they are, and `controls="attributes"` turns their numbers into knobs that
nobody had to foresee. The step is the simulated time.

    python examples/simulation.py
"""

import heapq
import random
import subprocess
import sys
import time

import sightglass as sg


class Bank:
    """Customers, and the counters that serve them."""

    def __init__(self):
        self.n_counters, self.mean_service_s, self.mean_gap_s = 2, 100.0, 60.0
        self.n_busy, self.waiting = 0, []


def simulate():
    """Simulate until somebody stops the run."""
    bank, events, now_s = Bank(), [(0.0, "arrive")], 0.0
    with sg.init("bank", controls="attributes") as run:
        print(run.id, flush=True)
        while not run.stopping:
            now_s, what = heapq.heappop(events)
            if what == "arrive":
                bank.waiting.append(now_s)
                heapq.heappush(events, (now_s + random.expovariate(1 / bank.mean_gap_s), "arrive"))
            else:
                bank.n_busy -= 1
            while bank.waiting and bank.n_busy < bank.n_counters:
                bank.n_busy += 1
                began_s = bank.waiting.pop(0)
                heapq.heappush(events, (now_s + random.expovariate(1 / bank.mean_service_s), "leave"))
                run.observe("customer", step=now_s, waited_s=now_s - began_s, bank=bank)
            time.sleep(0.0005)  # so that somebody can watch


def steer(id):
    """Ask, steer and stop the simulation."""
    with sg.connect(id) as run:
        waits = run.stream(sg.on("customer").map(lambda c: c.waited_s).mean(every=500))
        before = waits.wait(2, timeout_s=60)[-1].value  # the first window may have begun in its middle
        reply = run.set("customer.bank.n_counters", 4)
        after = waits.wait(len(waits.records()) + 3, timeout_s=60)[-1].value
        print(f"customers wait {before:.0f} s with {reply.old} counters, {after:.0f} s with {reply.result}")
        assert after < before
        assert reply.result == 4
        assert run.stop().applied


if __name__ == "__main__":
    if sys.argv[1:] == ["simulate"]:
        simulate()
    else:
        bank = subprocess.Popen([sys.executable, __file__, "simulate"], stdout=subprocess.PIPE, text=True)
        steer(bank.stdout.readline().strip())
        assert bank.wait() == 0
