"""`control`: reads a control of the run inside a JAX program, where an attribute would be a constant of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.extend.core import Primitive
from jax.interpreters import mlir

from sightglass.core.errors import LogError
from sightglass.training.controls import Control

from . import compat
from .survey import equations

TYPES = {"bool": bool, "int": int, "float": float}

control_p: Any = Primitive("control")


def control(control: Control) -> jax.Array:
    """Read the present value of a control inside a JAX program.

    `control.value` would be read once, while JAX traces, and stay what it was. In the loop of `chunked`, the value is
    read before each chunk and is an argument of it. Elsewhere the program asks the host each time it gets there.

    Args:
        control: What `run.control` returned, for a bool, int or float.

    Raises:
        LogError: It is another object, or a control of text.

    Example:
        >>> import jax, sightglass as sg
        >>> from sightglass.jax import control
        >>> with sg.init("tuned") as run:
        ...     lr = run.control("lr", 0.1, min=0.0)
        ...     step = jax.jit(lambda w, gradient: w - control(lr) * gradient)
        ...     _ = lr.set(0.5)
        ...     float(step(1.0, 1.0))
        0.5
    """
    if not isinstance(control, Control) or control.type not in TYPES:
        raise LogError(f"Expected a bool, int or float that run.control() returned, got {control!r:.120}")
    value: jax.Array = control_p.bind(control=control)
    return value


def number(control: Control) -> npt.NDArray[Any]:
    """Return the present value of a control, as JAX has it."""
    return np.asarray(control.value, _dtype(control))


def controls_in(jaxpr: compat.AnyJaxpr) -> Iterator[Control]:
    """Return the controls that a jaxpr reads, at any depth."""
    eqns = compat.opened(jaxpr)[0].eqns
    return (eqn.params["control"] for eqn, _ in equations(eqns) if eqn.primitive is control_p)


def _dtype(control: Control) -> Any:
    return jax.dtypes.canonicalize_dtype(TYPES[control.type])


def _lower(context: mlir.LoweringRuleContext, *, control: Control) -> Any:
    return compat.emit_callback(context, lambda: (number(control),), ())


# Weak, as a number of Python's is: it takes the dtype of what it meets.
control_p.def_abstract_eval(lambda control: jax.core.ShapedArray((), _dtype(control), weak_type=True))
control_p.def_impl(lambda control: jnp.asarray(control.value))
mlir.register_lowering(control_p, _lower)
