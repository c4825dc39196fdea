"""LightGBM with a callback: cross-validation, each round a fold, with early stopping and a rate that may be set."""

from __future__ import annotations

from types import SimpleNamespace

import lightgbm
import numpy as np

from .guest import Guest, Round

N_ROWS, N_FOLDS, N_TREES = 1000, 4, 6
OPTIONS = {"objective": "binary", "metric": ["binary_logloss", "auc"], "num_leaves": 7, "min_data_in_leaf": 5}
OPTIONS |= {"deterministic": True, "force_col_wise": True}  # else it times two ways to sum, and takes the faster one
OPTIONS |= {"verbosity": -1, "num_threads": 1, "seed": 0, "bagging_fraction": 0.7, "bagging_freq": 1}


def train(run=None):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N_ROWS, 5))
    y = (x[:, 0] + x[:, 1] * x[:, 2] + 0.3 * rng.normal(size=N_ROWS) > 0).astype(int)
    rate = None
    if run is not None:
        rate = run.control("learning_rate", 0.2, min=0.0, max=1.0)
        run.function("importances", lambda model: model.feature_importance("gain"))
        # As many threads as in the training: LightGBM keeps the number, and with more sums differ in the last bit.
        run.function("predicted", lambda model: model.predict(x, num_threads=1))
        run.function("n_leaves", lambda model: sum(tree["num_leaves"] for tree in model.dump_model()["tree_info"]))
    losses, fold = [], 0
    yield Round(losses=losses, weights=[])
    while run is None or not run.stopping:
        held_out = np.arange(N_ROWS) % N_FOLDS == fold % N_FOLDS
        data = lightgbm.Dataset(x[~held_out], y[~held_out])
        valid = lightgbm.Dataset(x[held_out], y[held_out], reference=data)

        def watch(env, fold=fold):
            found = {f"{name}/{metric}": value for name, metric, value, _ in env.evaluation_result_list}
            losses.append(found["valid/binary_logloss"])
            if run is not None:
                offered = {"fold": fold, "model": env.model, "y": y, "rate": rate.value}
                run.observe("iteration", step=len(losses) - 1, loss=losses[-1], metrics=found, **offered)
                run.log(found, step=len(losses) - 1)

        callbacks = [
            lightgbm.reset_parameter(learning_rate=lambda _: 0.2 if rate is None else rate.value),
            lightgbm.early_stopping(3, verbose=False),
            watch,
        ]
        sets = {"valid_sets": [data, valid], "valid_names": ["train", "valid"]}
        model = lightgbm.train(OPTIONS, data, N_TREES, callbacks=callbacks, **sets)
        if run is not None:
            run.end_group("iteration")
            run.observe("fold", step=fold, best=model.best_iteration, score=dict(model.best_score["valid"]))
        seen = SimpleNamespace(model=model, x=x, y=y, fold=fold, held_out=held_out)
        yield Round(losses=losses, weights=[np.frombuffer(model.model_to_string().encode(), np.uint8)], seen=seen)
        fold += 1


GUEST = Guest(
    train=train,
    control=("learning_rate", 0.5, "iteration.rate"),
    losses="iteration.loss",
    questions={
        "iteration.loss": lambda r: r.losses[-1],
        "iteration.metrics": None,
        "iteration.metrics['train/auc']": None,
        "valid/auc": None,
        "log['train/binary_logloss']": None,
        "on('iteration').map(lambda i: i.metrics['valid/binary_logloss'] - i.metrics['train/binary_logloss'])": None,
        "iteration.loss.argmin(per='fold')": None,
        "on('iteration').map(lambda i: i.loss).min()": None,  # a group is a fold
        "iteration.loss.min(by=lambda i: i.fold, per='run')": None,
        "on('iteration').map(lambda i: i.loss).diff()": lambda r: r.losses[-1] - r.losses[-2],
        "iteration.loss.rolling(3).mean()": lambda r: np.mean(r.losses[-3:]),
        "iteration.rate": lambda r: 0.2,
        "importances(iteration.model)": None,
        "importances(iteration.model).argmax()": None,
        "n_leaves(iteration.model)": None,
        "predicted(iteration.model)[-1]": None,
        "((predicted(iteration.model) > 0.5) == iteration.y).mean()": None,
        "predicted(iteration.model).histogram(8)": None,
        "predicted(iteration.model).quantile([0.1, 0.9])": None,
        "iteration.model.best_iteration": None,
        "iteration.model.params.num_leaves": lambda r: 7,
        "iteration.y.bincount(2)": lambda r: np.bincount(r.seen.y),
        "fold.best": lambda r: r.seen.model.best_iteration,
        "fold.score.auc": lambda r: r.seen.model.best_score["valid"]["auc"],
        "fold.score.auc.mean(per='run')": None,
    },
)
