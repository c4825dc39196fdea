"""The base classes of models that draw figures.

Rule 1: `plot` is a static function from arrays to figures. It is called in another process, without the model and its
weights. A `plot` that is a method raises an error where the class is defined.
Rule 2: a model draws if its class has a `plot` other than the default below.
Rule 3: values sown outside of a capture are not recorded. Linen does this itself; NNX would store them in the model, so
`NNXModule` ignores them.
"""

from __future__ import annotations

from typing import Any

from sightglass.figures import no_plot

from .compat import PLOTS, Plots, PyTree, linen, nnx


class Module(linen.Module):  # type: ignore[misc]
    """A Linen module that can draw: override its static `plot(intermediates)`, which returns figures by name.

    `plot` is called with the `meta` of `forward`, whose arrays are on the host. Derive the whole model from this class;
    modules inside it may be plain `flax.linen.Module`s and sow as well.
    """

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        _check_static(cls)

    plot = staticmethod(no_plot)


class NNXModule(nnx.Module):  # type: ignore[misc]
    """An NNX module that can draw: override its static `plot(intermediates)`, which returns figures by name.

    `plot` is called with the `meta` of `forward`, whose arrays are on the host. Also derive every module that sows into
    "plots" from this class: outside of a capture, a plain `nnx.Module` stores sown values in its state.
    """

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        _check_static(cls)

    plot = staticmethod(no_plot)

    def sow(self, variable_type: type[Any] | str, name: str, value: PyTree, *args: object, **options: object) -> bool:
        """Record a value in a collection while it is captured; see `flax.nnx.Module.sow`.

        Returns:
            Whether it was recorded.
        """
        if variable_type in (PLOTS, Plots) and not hasattr(self, "__captures__"):
            return False
        recorded: bool = super().sow(variable_type, name, value, *args, **options)
        return recorded


def draws(model: object) -> bool:
    """Return whether a model draws figures: whether it has a `plot` other than the default.

    Args:
        model: A model or its class.
    """
    plot = getattr(model, "plot", None)
    return plot is not None and plot is not no_plot


def _check_static(cls: type) -> None:
    """Check that `plot` is static.

    Raises:
        TypeError: `plot` is a method.
    """
    plot = cls.__dict__.get("plot")
    if plot is not None and not isinstance(plot, staticmethod):
        raise TypeError(
            f"Expected a static method as {cls.__qualname__}.plot, got a {type(plot).__name__}: figures are drawn in "
            "another process, from arrays alone; write @staticmethod above def plot(intermediates)"
        )
