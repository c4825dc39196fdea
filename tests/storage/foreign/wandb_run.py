"""A program that makes an offline run of Weights & Biases in a directory, with all that is read of one.

Its arguments: the directory, and how many rows of numbers. With "wait", it waits for a line of input before it ends.
"""

import math
import sys

import numpy as np
import wandb


def main(folder: str, n_rows: int, *, wait: bool) -> None:
    settings = wandb.Settings(console="wrap", silent=True, x_disable_meta=True)
    config = {"lr": 0.1, "optimizer": {"name": "adam", "betas": [0.9, 0.99]}}
    run = wandb.init(dir=folder, mode="offline", project="p", name="nice", config=config, settings=settings)
    run.config.update({"late": "x"})
    run.define_metric("score", summary="max")
    for i in range(n_rows):
        row = {"loss": 1 / (i + 1), "count": i, "val": {"acc": i * 0.1, "deep": {"x": -i}}, "score": -0.0}
        run.log(row | {"nan": math.nan, "inf": math.inf} if i % 3 else row)
    run.log({"mixed": True, "text": "größer\n", "none": None, "big": 2**60 + 1, "list": [1, 2.5], "odd": [1, "a"]})
    run.log({"weights": wandb.Histogram(np.arange(100.0)), "long": "x" * 40_000, "matrix": np.eye(2)})
    picture = np.arange(192, dtype=np.uint8).reshape(8, 8, 3)
    run.log({"one": wandb.Image(picture), "several": [wandb.Image(picture), wandb.Image(picture + 9)]})
    rows = [[1, "x", 0.5, [1, 2]], [2, None, 1.5, [3]]]
    run.log({"table": wandb.Table(columns=["a", "b", "c", "d"], data=rows), "page": wandb.Html("<b>x</b>")})
    run.log({"loss": 5.0}, step=1000)
    run.log({"loss": 6.0}, step=1001)
    run.summary["best"] = 0.9
    print("first", 1, "line")
    print("10 %\r100 %\nlast")
    if wait:
        sys.stdin.readline()
    run.finish(exit_code=3)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), wait="wait" in sys.argv)
