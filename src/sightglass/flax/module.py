"""The base classes of models that draw.

Rule 1: `plot` is a static function from arrays to figures. It is called in another process, which has neither the model
nor its weights. Whoever writes it as a method is told so where the class is defined.
Rule 2: whether a model draws is a matter of its class, asked once: it has a `plot` that is not the one below.
Rule 3: what is sown while nobody captures is not recorded. Linen has it so; NNX writes it into the model, so
`NNXModule` does not let it come to that.
"""

from __future__ import annotations

from typing import Any

from sightglass.figures import no_plot

from .compat import PLOTS, Plots, linen, nnx


class Module(linen.Module):  # type: ignore[misc]
    """A Linen module that may draw: override its static `plot(intermediates)`, which returns figures by their names.

    `plot` is called with the `meta` of `forward`, its arrays on the host. Derive the whole model from this class; the
    modules within it may be plain `flax.linen.Module`s, and sow all the same.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _check_static(cls)

    plot = staticmethod(no_plot)


class NNXModule(nnx.Module):  # type: ignore[misc]
    """An NNX module that may draw: override its static `plot(intermediates)`, which returns figures by their names.

    `plot` is called with the `meta` of `forward`, its arrays on the host. Derive from this class every module that sows
    into "plots", too: outside of a capture, a plain `nnx.Module` keeps what is sown as a part of its state.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        _check_static(cls)

    plot = staticmethod(no_plot)

    def sow(self, variable_type: type[Any] | str, name: str, value: Any, *args: Any, **options: Any) -> bool:
        """Record a value in a collection, if somebody captures it; see `flax.nnx.Module.sow`.

        Returns:
            Whether it was recorded.
        """
        if variable_type in (PLOTS, Plots) and not hasattr(self, "__captures__"):
            return False
        recorded: bool = super().sow(variable_type, name, value, *args, **options)
        return recorded


def draws(model: Any) -> bool:
    """Tell whether a model has figures to draw: a `plot` that is not the default.

    Args:
        model: A model, or its class.
    """
    plot = getattr(model, "plot", None)
    return plot is not None and plot is not no_plot


def _check_static(cls: type) -> None:
    """Refuse a `plot` that would be given a model.

    Raises:
        TypeError: It is a method.
    """
    plot = cls.__dict__.get("plot")
    if plot is not None and not isinstance(plot, staticmethod):
        raise TypeError(
            f"Expected a static method as {cls.__qualname__}.plot, got a {type(plot).__name__}: figures are drawn in "
            "another process, from arrays alone; write @staticmethod above def plot(intermediates)"
        )
