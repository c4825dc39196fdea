"""Hyper-parameters of all kinds that programs have, and what a run's config has of them."""

from __future__ import annotations

import argparse
import collections.abc
import dataclasses
import enum
from pathlib import Path
from typing import NamedTuple

import numpy as np


@dataclasses.dataclass
class Net:
    width: int = 3
    act: str = "relu"
    inner: dict = dataclasses.field(default_factory=lambda: {"depth": 2})


class Pair(NamedTuple):
    x: int = 1
    y: float = 2.5


class Kind(enum.Enum):
    ADAM = "adam"
    OTHER = object()


class Settings(collections.abc.MutableMapping):
    """A mapping that is no dict, and one of whose items is missing, as those of OmegaConf."""

    def __init__(self, items):
        self.items_ = items

    def __getitem__(self, key):
        if type(self.items_[key]) is str and self.items_[key] == "???":
            raise KeyError("it is missing")
        return self.items_[key]

    def __setitem__(self, key, value):
        self.items_[key] = value

    def __delitem__(self, key):
        del self.items_[key]

    def __iter__(self):
        return iter(self.items_)

    def __len__(self):
        return len(self.items_)


class Config:
    """A configuration that is no mapping, as those of Transformers."""

    def to_dict(self):
        return {"layers": 2, "kind": Kind.ADAM}


class Items(collections.abc.Sequence):
    """A sequence that is no list, as those of OmegaConf."""

    def __getitem__(self, index):
        return [1, Settings({"deep": None})][index]

    def __len__(self):
        return 2


CASES = {
    "none": (None, None),
    "bool": (True, True),
    "number": (0.5, 0.5),
    "huge": (2**70, str(2**70)),
    "float32": (np.float32(0.5), 0.5),
    "int64": (np.int64(3), 3),
    "numpy bool": (np.True_, True),
    "array": (np.arange(3), [0, 1, 2]),
    "scalar array": (np.array(0.25), 0.25),
    "large array": (np.zeros((50, 50)), "float64 array of (50, 50)"),
    "path": (Path("data") / "train.csv", str(Path("data") / "train.csv")),
    "tuple": ((0.9, np.float64(0.99)), [0.9, 0.99]),
    "set": ({2, 1}, [1, 2]),
    "range": (range(10**12), "range(0, 1000000000000)"),
    "namespace": (argparse.Namespace(a=1, b=argparse.Namespace(c=[None])), {"a": 1, "b": {"c": [None]}}),
    "dataclass": (Net(), {"width": 3, "act": "relu", "inner": {"depth": 2}}),
    "in a list": ([Net(width=1), {"n": Pair()}], [
        {"width": 1, "act": "relu", "inner": {"depth": 2}}, {"n": {"x": 1, "y": 2.5}},
    ]),
    "mapping": (Settings({"a": Settings({"b": 1}), "items": Items()}), {
        "a": {"b": 1}, "items": [1, {"deep": None}],
    }),
    "config": (Config(), {"layers": 2, "kind": "adam"}),
    "enumeration": ([Kind.ADAM, Kind.OTHER], ["adam", "OTHER"]),
    "class": (Net, f"{__name__}.Net"),
    "object": (object(), "<object object>"),
    "keys": ({1: "a", Kind.ADAM: "b"}, {"1": "a", "adam": "b"}),
}  # fmt: skip
SETTINGS = {name: given for name, (given, _) in CASES.items()}
EXPECTED = {name: expected for name, (_, expected) in CASES.items()}
