"""Hyper-parameters, in whatever form a program has them, as a config: nested, with their types, and nothing else.

What has named parts becomes a mapping: mappings such as OmegaConf's, `argparse.Namespace`, dataclasses, named tuples,
classes of attrs and pydantic, objects with `to_dict`. Other sequences and sets become lists; numbers of NumPy and
PyTorch Python's; paths texts; enumerations their values; classes and functions their names. Any other object is its
text.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import enum
import functools
import os
import re
import types
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, Final

import numpy as np

from sightglass.core.program_values.guarded import (
    FAILURES,
    LostValue,
    class_name,
    exact,
    fields_of,
    message,
    parts,
    text,
)
from sightglass.core.values import array_kind, to_host

MAX_DEPTH: Final = 32  # as deep as `run.json` nests
MAX_NUMBERS: Final = 1_000  # of an array; more are no setting, and nobody compares runs by them
MAX_INT: Final = 2**63  # what JSON readers take
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")


def as_config(parameters: object) -> dict[str, Any]:
    """Return hyper-parameters as a config.

    Args:
        parameters: What has named parts, see above; `None` for no hyper-parameters; of anything else the config has the
            value under the name `hparams`.

    >>> as_config(argparse.Namespace(lr=np.float64(0.1), net={"act": "relu", "sizes": (8, 8)}, seed=None))
    {'lr': 0.1, 'net': {'act': 'relu', 'sizes': [8, 8]}, 'seed': None}
    """
    found = _plain(parameters, ())
    return found if type(found) is dict else {} if found is None else {"hparams": found}


def _plain(value: Any, within: tuple[int, ...]) -> Any:
    """Return a value as nested dicts and lists of Python's numbers and texts; `within` are the ids of what holds it."""
    try:
        if type(value) is LostValue:
            return value.why
        if isinstance(value, enum.Enum):
            return value.value if type(value.value) in (bool, int, float, str) else value.name
        value = exact(value)
        if value is None or type(value) in (bool, float, str):
            return value
        if type(value) is int:
            return value if -MAX_INT <= value < MAX_INT else str(value)
        if id(value) in within:
            return f"{class_name(value)} that contains itself"
        if len(within) == MAX_DEPTH:
            return _text(value)
        inside = (*within, id(value))
        named = _named(value)
        if named is not None:
            return {str(_plain(name, inside)): _plain(item, inside) for name, item in named}
        if isinstance(value, Set):
            return sorted((_plain(item, inside) for item in value), key=str)
        if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview | range):
            return [_plain(item, inside) for item in value]
        return _leaf(value, inside)
    except FAILURES as error:  # an object of the program, such as a setting of OmegaConf that is missing
        return message(error)


def _named(value: Any) -> Iterable[tuple[Any, Any]] | None:
    """Return the names and values of the parts of an object; `None` for one that has no named parts."""
    if isinstance(value, type):
        return None
    if isinstance(value, tuple) and (names := fields_of(type(value), len(value))):
        return zip(names, value, strict=True)
    if isinstance(value, Mapping) or dataclasses.is_dataclass(value):
        level = parts(value)
        return None if level is None else level.pairs
    if isinstance(value, argparse.Namespace | types.SimpleNamespace):
        return vars(value).items()
    if hasattr(type(value), "__attrs_attrs__"):
        return [(field.name, getattr(value, field.name)) for field in value.__attrs_attrs__]
    if hasattr(type(value), "to_dict") and not hasattr(type(value), "shape"):  # no data frame, but a config
        found = value.to_dict()
        return found.items() if isinstance(found, Mapping) else None
    if hasattr(type(value), "model_fields"):  # pydantic's
        return [(name, getattr(value, name)) for name in type(value).model_fields]
    return None


def _leaf(value: Any, inside: tuple[int, ...]) -> Any:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, functools.partial):
        return {"function": _plain(value.func, inside), **{k: _plain(v, inside) for k, v in value.keywords.items()}}
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType | types.MethodType):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, np.generic):
        item = value.item()
        return _text(value) if isinstance(item, np.generic) else _plain(item, inside)
    if array_kind(value) is not None:
        array = np.asarray(to_host(value))
        return _plain(array.tolist(), inside) if array.size <= MAX_NUMBERS else f"{array.dtype} array of {array.shape}"
    return _text(value)


def _text(value: object) -> str:
    """Return the text of an object, without the address of its memory, which differs between equal runs."""
    return _ADDRESS.sub("", text(value))
