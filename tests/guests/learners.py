"""scikit-learn: a network that learns from a stream by `partial_fit`, and a forest that grows by `warm_start`."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import confusion_matrix
from sklearn.neural_network import MLPClassifier

from .guest import Guest, Round

N_BATCH, N_STEPS, N_FEATURES, CLASSES = 32, 5, 6, [0, 1, 2]


def train(run=None):
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(3, N_FEATURES))
    network = MLPClassifier((8,), learning_rate_init=0.01, random_state=0)
    if run is not None:
        run.control("alpha", bind=(network, "alpha"), min=0.0)
        run.function("importances", lambda forest: forest.feature_importances_)
        run.function("confusion", lambda y, predicted: confusion_matrix(y, predicted, labels=CLASSES))
    losses, epoch = [], 0
    y = rng.integers(3, size=N_STEPS * N_BATCH)
    x = centers[y] + rng.normal(size=(len(y), N_FEATURES))
    yield Round(losses=losses, weights=[])
    while run is None or not run.stopping:
        for rows in np.arange(len(y)).reshape(N_STEPS, N_BATCH):
            network.partial_fit(x[rows], y[rows], classes=CLASSES)
            losses.append(float(network.loss_))
            if run is not None:
                run.observe("batch", step=len(losses) - 1, loss=network.loss_, model=network, x=x[rows], y=y[rows])
        if epoch % 5 == 0:
            forest = RandomForestClassifier(n_estimators=0, warm_start=True, max_depth=3, random_state=epoch)
        forest.set_params(n_estimators=forest.n_estimators + 2).fit(x, y)
        predicted, scores = forest.predict(x), {"network": network.score(x, y), "forest": forest.score(x, y)}
        if run is not None:
            run.observe("epoch", step=epoch, scores=scores, forest=forest, predicted=predicted, y=y)
            run.log({"accuracy": scores}, step=epoch)
        yield Round(
            losses=losses,
            weights=[*network.coefs_, *network.intercepts_, forest.predict_proba(x)],
            seen=SimpleNamespace(network=network, forest=forest, x=x, y=y, predicted=predicted),
        )
        epoch += 1


GUEST = Guest(
    train=train,
    control=("alpha", 0.5, "batch.model.alpha"),
    questions={
        "batch.loss": lambda r: r.losses[-1],
        "batch.model.loss_": lambda r: r.losses[-1],
        "batch.model.loss_curve_[-1]": lambda r: r.losses[-1],
        "batch.loss.mean(per='epoch')": None,
        "batch.loss.mean(every=5)": lambda r: np.mean(r.losses[-N_STEPS:]),
        "batch.loss.quantile(0.9, every=5)": lambda r: np.quantile(r.losses[-N_STEPS:], 0.9),
        "batch.loss.argmin(per='run')": lambda r: {"step": np.argmin(r.losses), "value": min(r.losses)},
        "batch.model.coefs_[0].norm()": lambda r: np.linalg.norm(r.seen.network.coefs_[0]),
        "batch.model.coefs_.map(lambda i, w: w.norm())": lambda r: [np.linalg.norm(w) for w in r.seen.network.coefs_],
        "batch.model.coefs_[0][2, :4]": lambda r: r.seen.network.coefs_[0][2, :4],
        "batch.model.coefs_[1].histogram(8)": None,
        "batch.model.coefs_[0].quantile(0.9)": lambda r: np.quantile(r.seen.network.coefs_[0], 0.9),
        "batch.model.intercepts_[1]": lambda r: r.seen.network.intercepts_[1],
        "(batch.x @ batch.model.coefs_[0] + batch.model.intercepts_[0]).max(axis=0)": lambda r: (
            r.seen.x[-N_BATCH:] @ r.seen.network.coefs_[0] + r.seen.network.intercepts_[0]
        ).max(axis=0),
        "batch.model.t_": lambda r: r.seen.network.t_,
        "batch.model.alpha": lambda r: 1e-4,
        "batch.model.learning_rate_init": lambda r: 0.01,
        "batch.y.bincount(3)": lambda r: np.bincount(r.seen.y[-N_BATCH:], minlength=3),
        "on('batch').map(lambda b: (b.x.mean(), b.x.std()))": None,
        "epoch.scores": lambda r: {n: getattr(r.seen, n).score(r.seen.x, r.seen.y) for n in ("network", "forest")},
        "accuracy/network": lambda r: r.seen.network.score(r.seen.x, r.seen.y),
        "epoch.scores.network.max(per='run')": None,
        "epoch.forest.n_estimators": lambda r: len(r.seen.forest.estimators_),
        "importances(epoch.forest)": lambda r: r.seen.forest.feature_importances_,
        "confusion(epoch.y, epoch.predicted)": lambda r: confusion_matrix(r.seen.y, r.seen.predicted),
        "(epoch.predicted == epoch.y).mean()": lambda r: (r.seen.predicted == r.seen.y).mean(),
        "epoch.predicted[-1]": lambda r: r.seen.predicted[-1],
        "epoch.predicted[epoch.y == 2].bincount(3)": lambda r: np.bincount(
            r.seen.predicted[r.seen.y == 2], minlength=3
        ),
        "on('epoch').map(lambda e: e.forest.estimators_.len())": lambda r: r.seen.forest.n_estimators,
    },
)
