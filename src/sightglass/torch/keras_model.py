"""A Keras model on PyTorch as a module to watch: Keras keeps its layers where `named_modules` does not find them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from .observables import HOLDERS


class KerasModel(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """The weights of a Keras model by their paths, and its layers by their names: "dense", "encoder/dense"."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.__dict__["model"] = model  # not a child, whose names are Keras' own
        for variable in model.weights:
            if isinstance(variable.value, torch.nn.Parameter):
                self.register_parameter(variable.path.replace(".", "_"), variable.value)

    @property
    def training(self) -> bool:  # type: ignore[override,unused-ignore]
        """Whether Keras trains, and does not evaluate."""
        return bool(self.model.training)

    @training.setter
    def training(self, value: bool) -> None:
        """Do nothing: Keras decides."""

    def named_modules(
        self, memo: set[torch.nn.Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, torch.nn.Module]]:
        """Yield the model and its layers."""
        yield prefix, self.model
        yield from _layers(self.model, prefix)


def _layers(layer: Any, prefix: str) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yield the layers inside a model or a layer, with their names."""
    inside = layer.layers if hasattr(layer, "layers") else layer.children()
    for child in inside:
        if not isinstance(child, HOLDERS):
            yield f"{prefix}{child.name}", child
            yield from _layers(child, f"{prefix}{child.name}/")
