"""What the tests of `sightglass.jax` share."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from sightglass.jax import tap


def mesh(name: str = "d") -> jax.sharding.Mesh:
    """Return a mesh of four devices whose axis is explicit, as JAX makes them by default."""
    return jax.make_mesh((4,), (name,), axis_types=(jax.sharding.AxisType.Explicit,))


def divided(x: Any, name: str = "d") -> jax.Array:
    """Divide an array along its first axis between the devices of that mesh."""
    return jax.device_put(x, jax.sharding.NamedSharding(mesh(name), jax.sharding.PartitionSpec(name)))


def read(logs: Any) -> dict[str, Any]:
    """Read a logdict into lists, masked entries as `None`."""
    out = {}
    for key in logs:
        rows = np.asarray(logs[key]).tolist()
        valid = np.asarray(logs.valid[key]).tolist() if key in logs.valid else [True] * len(rows)
        out[key] = [row if ok else None for row, ok in zip(rows, valid, strict=True)]
    return out


def watch(f: Callable[..., Any], *args: Any, **options: Any) -> tuple[Any, list[dict[str, Any]]]:
    """Run a function under `tap`; return its value and what was seen."""
    seen: list[Any] = []
    out = jax.block_until_ready(tap(f, seen.append, **options)(*args))
    jax.effects_barrier()
    return out, [read(logs) for logs in seen]


def program(f: Callable[..., Any], *args: Any) -> str:
    """Return the compiled program of a function without names and places."""
    text = jax.jit(f).lower(*args).compile().as_text()
    text = re.sub(r", metadata=\{[^}]*\}", "", re.sub(r"jit_\w+", "jit", text))
    return re.sub(r"(?ms)^(FileNames|FunctionNames|FileLocations|StackFrames)\n.*?(?=^\n|^%|^ENTRY)", "", text)
