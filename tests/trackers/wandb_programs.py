"""Forty small programs for Weights & Biases' interface, each of a situation of its own.

Each takes the module, `wandb` or `sightglass.wandb`, and may leave its run to `play`. What a program returns, and what
`play` reads of a run that is left, is what the program sees: it is equal with both.

As a program: `python wandb_programs.py MODULE FOLDER` runs all of them, each in a folder of its own, and prints
what they saw as JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import enum
import importlib
import inspect
import io
import json
import math
import os
import sys
import tempfile
import warnings
import wave
from datetime import date
from pathlib import Path

import numpy as np

PIXELS = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
SAMPLES = np.sin(np.arange(1000.0))


class Color(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Optimizer:
    name: str = "adam"
    lr: float = 0.1


def plain_loop(wandb):
    run = wandb.init(project="p", name="plain", config={"lr": 0.1, "layers": 3})
    for i in range(20):
        wandb.log({"loss": 1 / (i + 1), "accuracy": i / 20})
    return run.name, run.project, run.step


def nested_values(wandb):
    wandb.init(config={"model": {"width": 8, "act": {"name": "relu"}}})
    for i in range(3):
        wandb.log({"train": {"loss": i, "deep": {"x": -i}}, "val/acc": i, "a.b": {"c": i}})


def own_steps(wandb):
    run = wandb.init()
    steps = []
    for step in (0, 10, 20, 50):
        wandb.log({"loss": step * 0.5}, step=step)
        steps.append(run.step)
    return steps


def late_steps(wandb):
    wandb.init()
    wandb.log({"loss": 1}, step=5)
    wandb.log({"loss": 2, "late": 1}, step=3)
    wandb.log({"loss": 3}, step=6)
    wandb.log({"early": 3}, step=-1)


def one_row_of_several_calls(wandb):
    wandb.init()
    for step in range(3):
        wandb.log({"loss": step}, step=step)
        wandb.log({"accuracy": 2 * step}, step=step)
        wandb.log({"loss": step + 0.5}, step=step)


def commit_by_hand(wandb):
    run = wandb.init()
    steps = []
    for i in range(3):
        wandb.log({"loss": i}, commit=False)
        steps.append(run.step)
        wandb.log({"accuracy": i}, commit=False)
        wandb.log({"lr": 0.1})
        steps.append(run.step)
    wandb.log({"last": 1}, commit=False)
    return steps


def step_and_commit(wandb):
    run = wandb.init()
    wandb.log({"a": 1}, step=4, commit=True)
    after = run.step
    wandb.log({"a": 2})
    wandb.log({"a": 3}, 9)
    wandb.log({"b": 3})
    wandb.log({})
    wandb.log({"c": 3})
    return after, run.step


def merged_mappings(wandb):
    wandb.init()
    wandb.log({"d": {"a": 1}, "e": {"q": 1}}, commit=False)
    wandb.log({"d": {"b": 2}, "e": 3})


def nan_and_infinity(wandb):
    wandb.init()
    for value in (1.0, math.nan, math.inf, -math.inf, -0.0, 1e-320, 1e308):
        wandb.log({"x": value, "y": np.float32(value)})


def none_is_nothing(wandb):
    wandb.init(config={"opt": None})
    wandb.log({"a": 1, "b": None, "c": {"d": None, "e": 2}})
    wandb.log({"b": 2})


def large_integers(wandb):
    wandb.init(config={"seed": 2**60 + 1})
    for value in (2**53, 2**53 + 1, 2**62, -(2**60) - 1):
        wandb.log({"n": value, "m": np.int64(value)})


def names_of_all_kinds(wandb):
    wandb.init(name="größer 数", config={"größe": 1, "a b": 2, "x.y": 3})
    wandb.log({"ключ": 1, "sp ace": 2, "é/ß": 3, "/lead": 4, "trail/": 5, "a//b": 6, "%$[]": 7})
    wandb.log({"text": "äöü\n数", "empty": ""})


def texts_and_bools(wandb):
    wandb.init()
    for i in range(3):
        wandb.log({"phase": "train" if i else "warm up", "done": i == 2, "np": np.bool_(i == 1), "s": np.str_("x")})


def numbers_of_numpy(wandb):
    wandb.init(config={"lr": np.float32(0.5), "n": np.int16(3), "on": np.bool_(True), "sizes": np.arange(3)})
    for i in range(3):
        wandb.log({"f16": np.float16(i), "f32": np.float32(i + 0.5), "i8": np.int8(-i), "zero_d": np.array(i + 0.25)})


def numbers_of_torch(wandb):
    import torch

    wandb.init(config={"lr": torch.tensor(0.5).item()})
    for i in range(3):
        loss = torch.tensor(i + 0.5, requires_grad=True)
        wandb.log({"loss": loss, "n": torch.tensor(i), "item": loss.item(), "w": torch.arange(4.0)})


def small_arrays(wandb):
    wandb.init()
    wandb.log(
        {"list": [1, 2.5, 3], "tuple": (1, 2), "array": np.arange(3), "matrix": np.eye(2), "set": {1}, "none": []}
    )


def large_arrays(wandb):
    wandb.init()
    wandb.log({"weights": SAMPLES, "few": SAMPLES[:32]})


def odd_values(wandb):
    wandb.init()
    wandb.log({"dc": Optimizer(), "date": date(2020, 1, 2), "path": Path("/x/y"), "bytes": b"xx", "enum": Color.RED})


def texts_in_lists(wandb):
    wandb.init()
    wandb.log({"names": ["a", "b"], "mixed": [1, "a", {"b": 2}], "loss": 1})


def config_forms(wandb):
    run = wandb.init(config=argparse.Namespace(lr=0.1, layers=[1, 2], pair=(1, 2), opt=None, odd=math.nan))
    run.config.width = 8
    run.config["depth"] = 3
    wandb.config.update({"nested": {"a": 1, 2: "b"}, "dc": Optimizer(), "color": Color.RED, "path": Path("/x")})
    wandb.config.update(argparse.Namespace(late=1))
    wandb.config.setdefaults({"lr": 5, "default": 6})
    with contextlib.suppress(wandb.Error):
        wandb.config.lr = 0.5
    wandb.config.update({"lr": 0.2}, allow_val_change=True)
    seen = [wandb.config.lr, wandb.config["width"], wandb.config.get("no", 1), "depth" in wandb.config, run.config.dc]
    with contextlib.suppress(AttributeError):
        seen.append(wandb.config.nothing)
    with contextlib.suppress(KeyError):
        seen.append(wandb.config["nothing"])
    wandb.log({"loss": 1})
    return seen, sorted(wandb.config.keys()), wandb.config.as_dict()


def config_of_some_keys(wandb):
    wandb.init(config={"a": 1, "b": 2, "c": 3}, config_exclude_keys=["b"], allow_val_change=True)
    wandb.config.update({"a": 4}, allow_val_change=True)
    wandb.log({"loss": 1})


def summary_by_hand(wandb):
    run = wandb.init()
    best = 0.0
    for i in range(5):
        run.log({"accuracy": i * 0.1, "loss": i})
        if i * 0.1 > best:
            best = i * 0.1
            run.summary["best"] = best
            wandb.summary["at"] = i
    run.summary.update({"nested": {"a": 1}, "text": "done", "array": np.arange(3)})
    run.summary.flag = True
    return run.summary["best"], wandb.summary["loss"], run.summary.get("nothing"), run.summary["nested"]["a"]


def summary_and_a_later_row(wandb):
    run = wandb.init()
    run.summary["before"] = 1
    run.log({"a": 1}, step=5)
    run.summary["a"] = 7
    seen = [run.summary["a"]]
    run.log({"a": 2}, step=6)
    run.summary["after"] = 2
    run.log({"b": 2})
    return seen, run.summary["a"]


def summary_of_metrics(wandb):
    run = wandb.init()
    run.define_metric("loss", summary="min")
    run.define_metric("accuracy", summary="max,mean")
    wandb.define_metric("val/*", summary="max")
    wandb.define_metric("hidden", summary="none")
    wandb.define_metric("in.side", summary="max")
    wandb.define_metric("last", summary="first,last")
    for i in range(5):
        wandb.log(
            {"loss": abs(i - 3), "accuracy": i, "val/x": -i, "hidden": i, "in": {"side": 4 - i}, "last": i, "n": i}
        )
    return run.summary["loss"]["min"], dict(run.summary["accuracy"])


def own_x_axis(wandb):
    wandb.init()
    wandb.define_metric("epoch")
    wandb.define_metric("val/*", step_metric="epoch")
    wandb.define_metric("train/*", step_metric="global_step")
    for i in range(6):
        wandb.log({"train/loss": 1 / (i + 1), "global_step": 10 * i})
        if i % 2:
            wandb.log({"val/acc": i, "epoch": i // 2})
            wandb.log({"val/later": i})


def histograms(wandb):
    wandb.init()
    wandb.log({"h": wandb.Histogram(SAMPLES), "few": wandb.Histogram([1, 2, 2, 3], num_bins=3)})
    wandb.log(
        {"made": wandb.Histogram(np_histogram=np.histogram(SAMPLES, bins=10)), "nested": {"h": wandb.Histogram([5])}}
    )


def pictures(wandb):
    import torch
    from PIL import Image

    wandb.init()
    a, b = wandb.Image(PIXELS, caption="a cat"), wandb.Image(PIXELS + 9)
    wandb.log({"rgb": a, "gray": wandb.Image(PIXELS[..., 0]), "several": [a, b], "nested": {"p": a}})
    wandb.log({"sizes": [a, wandb.Image(PIXELS[:2])], "floats": wandb.Image(PIXELS * 1.5)})
    wandb.log({"pillow": wandb.Image(Image.fromarray(PIXELS)), "again": wandb.Image(b)})
    wandb.log({"tensor": wandb.Image(torch.tensor(PIXELS).permute(2, 0, 1))})
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.png")
        Image.fromarray(PIXELS).save(path)
        wandb.log({"file": wandb.Image(path, caption="a file")})


def tables(wandb):
    import pandas

    wandb.init()
    table = wandb.Table(columns=["id", "name", "score"])
    for i in range(4):
        table.add_data(i, f"x{i}", i * 0.5)
    wandb.log({"table": table, "loss": 1})
    wandb.log({"given": wandb.Table(columns=["a", "b"], data=[[1, "x"], [None, "y"]])})
    wandb.log({"array": wandb.Table(data=np.arange(6.0).reshape(3, 2), columns=["p", "q"])})
    frame = pandas.DataFrame({"a": [1, 2], "b": ["x", "y"], "c": [0.5, 1.5]})
    wandb.log({"frame": wandb.Table(dataframe=frame)})
    added = wandb.Table(columns=["a"], data=[[1], [2]])
    added.add_column("b", ["x", "y"])
    wandb.log({"added": added})
    return table.columns, table.get_column("name"), [row for _, row in table.iterrows()]


def charts(wandb):
    wandb.init()
    table = wandb.Table(columns=["x", "y"], data=[[i, i * i] for i in range(5)])
    wandb.log({"line": wandb.plot.line(table, "x", "y", title="t")})
    wandb.log({"scatter": wandb.plot.scatter(table, "x", "y")})
    wandb.log({"bars": wandb.plot.bar(table, "x", "y"), "histogram": wandb.plot.histogram(table, "y")})
    wandb.log({"lines": wandb.plot.line_series([0, 1], [[1, 2], [3, 4]], keys=["a", "b"])})
    wandb.log({"cm": wandb.plot.confusion_matrix(y_true=[0, 1, 1, 2], preds=[0, 1, 0, 2], class_names=["a", "b", "c"])})


def sounds(wandb):
    wandb.init()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x.wav")
        with wave.open(path, "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", ""))
            file.writeframes((SAMPLES * 20_000).astype(np.int16).tobytes())
        wandb.log({"sound": wandb.Audio(path, caption="beep")})


def pages_and_alerts(wandb):
    wandb.init()
    wandb.log({"page": wandb.Html("<b>x</b>", inject=False), "loss": 1})
    wandb.alert(title="Low accuracy", text="below 0.5", level=wandb.AlertLevel.WARN)
    wandb.alert("again", "x")


def groups_and_tags(wandb):
    run = wandb.init(project="p", group="g", job_type="train", tags=["b", "a", "a"], notes="some", name="tagged")
    run.tags = (*run.tags, "c")
    run.log({"loss": 1})
    return run.group, run.job_type, sorted({*run.tags}), run.notes, run.name


def with_statement(wandb):
    with wandb.init(project="p") as run:
        run.log({"loss": 1})
        seen = wandb.run is run
    return seen, wandb.run is None


def exception_inside(wandb):
    with contextlib.suppress(ZeroDivisionError), wandb.init(project="p") as run:
        run.log({"loss": 1}, step=3)
        1 / 0
    return wandb.run is None


def two_runs(wandb):
    for lr in (0.1, 0.2):
        run = wandb.init(project="p", name=f"lr{lr}", config={"lr": lr}, reinit=True)
        for i in range(3):
            wandb.log({"loss": lr * i})
        run.finish(exit_code=int(lr > 0.1))
    return wandb.run


def the_active_run_again(wandb):
    one = wandb.init(config={"a": 1})
    two = wandb.init(project="other")
    two.log({"loss": 1})
    return one is two


def resumed_by_its_id(wandb):
    with wandb.init(project="p", id="mine", config={"lr": 0.1}) as run:
        for step in range(3):
            run.log({"loss": step}, step=step)
    with wandb.init(project="p", id="mine", config={"lr": 0.1}, resume="allow") as run:
        for step in range(3, 6):
            run.log({"loss": step}, step=step)


def of_the_environment(wandb):
    wandb.teardown()  # W&B reads the environment once
    os.environ |= {"WANDB_PROJECT": "ours", "WANDB_NAME": "named", "WANDB_RUN_GROUP": "g", "WANDB_TAGS": "a,b"}
    try:
        run = wandb.init()
        run.log({"loss": 1})
        return run.project, run.name, run.group, sorted(run.tags)
    finally:
        for name in ("PROJECT", "NAME", "RUN_GROUP", "TAGS"):
            del os.environ[f"WANDB_{name}"]


def disabled(wandb):
    run = wandb.init(mode="disabled", config={"a": 1})
    run.log({"loss": 1, "h": wandb.Histogram([1])})
    run.config.update({"b": 2})
    run.summary["x"] = 1
    return run.config["b"], run.disabled


def misuse(wandb):
    seen = []
    with contextlib.suppress(wandb.Error):
        wandb.log({"a": 1})
        seen.append("log before init")
    with contextlib.suppress(wandb.Error):
        wandb.config.update({"a": 1})
        seen.append("config before init")
    run = wandb.init()
    for data in ("x", None, {1: 2}):
        with contextlib.suppress(TypeError):
            run.log(data)
            seen.append(data)
    run.log({"a": 1})
    run.finish()
    run.finish()
    wandb.finish()
    return seen, wandb.run


PROGRAMS = {
    name: value for name, value in list(globals().items()) if inspect.isfunction(value) and value.__module__ == __name__
}


class InFolder:
    """A module whose runs begin in a folder: W&B reads `WANDB_DIR` once for a process."""

    def __init__(self, module, folder):
        self.module, self.folder = module, folder

    def __getattr__(self, name):
        return getattr(self.module, name)

    def init(self, **options):
        return self.module.init(**{"dir": self.folder, **options})


def play(program, module, folder):
    """Run a program in a folder, and return what it saw; finish the run that it leaves."""
    os.makedirs(folder)
    wandb = InFolder(module, folder)
    told = {"returned": program(wandb)}
    run = wandb.run
    if run is not None:
        told |= {"summary": seen(run.summary), "config": seen(run.config), "step": run.step}
        wandb.finish()
    return told


def seen(entries):
    """Return a summary or a config without what W&B adds; of media, only that they are there."""
    found = {}
    for name in [*entries.keys()]:
        value = entries[name]
        names = [*value.keys()] if hasattr(value, "keys") else None
        if names is not None:
            found[str(name)] = "…" if "_type" in names else seen(value)
        else:
            found[str(name)] = value if isinstance(value, int | float | str | None) else "…"
    return {name: value for name, value in found.items() if not name.startswith("_")}


def main(module, folder):
    wandb = importlib.import_module(module)
    warnings.simplefilter("ignore")
    told = {}
    for name, program in PROGRAMS.items():
        with contextlib.redirect_stderr(io.StringIO()):
            told[name] = play(program, wandb, os.path.join(folder, name))
    print(json.dumps(told, default=str))


if __name__ == "__main__":
    main(*sys.argv[1:])
