"""Figures of arrays that are spread over several devices, and of arrays that the next step overwrites."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import sightglass as sg
from sightglass.figures.figure_files import read_inputs

pytest.importorskip("matplotlib")


def draw(scores):
    """Draw a matrix; in the renderer's process, which sees what the arrays came as."""
    import matplotlib.pyplot as plt

    assert isinstance(scores, np.ndarray)
    figure, axes = plt.subplots()
    axes.imshow(np.atleast_2d(scores))
    return figure


SPREAD = {"rows": P("x"), "both": P("x", "y"), "columns": P(None, "y"), "blocks": P(("x", "y")), "copies": P()}


def test_arrays_spread_over_devices_are_drawn_whole(tmp_path):
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))
    whole = np.arange(64.0, dtype=np.float32).reshape(8, 8)
    with sg.init("spread", dir=tmp_path) as run:
        for name, spec in SPREAD.items():
            run.figure(name, draw, jax.device_put(whole, NamedSharding(mesh, spec)), step=3)
    found = [read_inputs(path)[1] for path in run.directory.rglob("*.npz")]
    assert len(found) == len(SPREAD)
    for [array] in found:
        np.testing.assert_array_equal(array, whole)


def test_a_buffer_that_the_next_step_overwrites_is_drawn_as_it_was(tmp_path):
    @partial(jax.jit, donate_argnums=0)
    def step(state):
        return state + jnp.linalg.norm(state @ state) * 0 + 1

    state = jnp.zeros((512, 512))
    with sg.init("donated", dir=tmp_path) as run:
        for i in range(3):
            state = step(state)
            if i == 1:
                run.figure("scores", draw, state, step=i)
    [path] = run.directory.rglob("*.npz")
    [found] = read_inputs(path)[1]
    np.testing.assert_array_equal(found, np.full((512, 512), 2, np.float32))
