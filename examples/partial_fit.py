"""A classifier of scikit-learn that learns from a stream with `partial_fit`: ask, steer and stop it from outside.

Its attributes are queries and, with `controls="attributes"`, knobs.

    pip install scikit-learn
    python examples/partial_fit.py
"""

import subprocess
import sys
import time

import numpy as np

import sightglass as sg


def learn():
    """Learn from batches until somebody stops the run."""
    from sklearn.linear_model import SGDClassifier

    rng = np.random.default_rng(0)
    truth = rng.normal(size=20)
    model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=1e-5)
    with sg.init("stream-learner", controls="attributes") as run:
        print(run.id, flush=True)
        while not run.stopping:
            truth = 0.99 * truth + 0.1 * rng.normal(size=20)  # the world changes
            x = rng.normal(size=(64, 20))
            y = x @ truth > 0
            accuracy = model.score(x, y) if hasattr(model, "coef_") else 0.5  # before it has seen the batch
            run.observe("batch", accuracy=accuracy, model=model.partial_fit(x, y, classes=[False, True]))
            time.sleep(0.001)


def steer(id):
    """Ask, steer and stop the learner."""
    with sg.connect(id) as run:
        norm = run.stream(sg.on("batch").map(lambda b: b.model.coef_.norm()))
        accuracy = run.stream("batch.accuracy.mean(every=100)")
        before = accuracy.wait(10, timeout_s=60)[-1].value
        reply = run.set("batch.model.eta0", 0.1)
        after = accuracy.wait(len(accuracy.records()) + 5, timeout_s=60)[-1].value
        print(f"accuracy {before:.2f} with eta0={reply.old}, {after:.2f} with eta0={reply.result}")
        print(f"the weights have norm {norm.latest.value:.2f} at step {norm.latest.step}")
        assert after > before
        assert run.stop().applied


if __name__ == "__main__":
    if sys.argv[1:] == ["learn"]:
        learn()
    else:
        learner = subprocess.Popen([sys.executable, __file__, "learn"], stdout=subprocess.PIPE, text=True)
        steer(learner.stdout.readline().strip())
        assert learner.wait() == 0
