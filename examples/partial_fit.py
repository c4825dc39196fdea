"""A classifier that learns from a stream with `partial_fit`, as scikit-learn's do: ask, steer and stop it from outside.

The classifier is written in NumPy with the names of scikit-learn, so that the example needs no more. Its attributes are
queries and, with `controls="attributes"`, knobs.

    python examples/partial_fit.py
"""

import subprocess
import sys
import time

import numpy as np

import sightglass as sg


class SGDClassifier:
    """Logistic regression by gradient descent."""

    def __init__(self, eta0=0.001):
        self.eta0 = eta0
        self.coef_ = np.zeros(20)

    def partial_fit(self, x, y):
        """Take one step on a batch."""
        self.coef_ += self.eta0 * x.T @ (y - self.predict_proba(x)) / len(x)
        return self

    def predict_proba(self, x):
        """Return the probability of class 1."""
        return 1 / (1 + np.exp(-x @ self.coef_))


def learn():
    """Learn from batches until somebody stops the run."""
    rng = np.random.default_rng(0)
    truth, model = rng.normal(size=20), SGDClassifier()
    with sg.init("stream-learner", controls="attributes") as run:
        print(run.id, flush=True)
        while not run.stopping:
            truth = 0.99 * truth + 0.1 * rng.normal(size=20)  # the world changes
            x = rng.normal(size=(64, 20))
            y = (x @ truth > 0).astype(float)
            accuracy = ((model.predict_proba(x) > 0.5) == y).mean()  # before it has seen the batch
            run.observe("batch", accuracy=accuracy, model=model.partial_fit(x, y))
            time.sleep(0.001)


def steer(id):
    """Ask, steer and stop the learner."""
    with sg.connect(id) as run:
        norm = run.stream(sg.on("batch").map(lambda b: b.model.coef_.norm()))
        accuracy = run.stream("batch.accuracy.mean(every=100)")
        before = accuracy.wait(10, timeout_s=60)[-1].value
        reply = run.set("batch.model.eta0", 1.0)
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
        assert learner.wait(60) == 0
