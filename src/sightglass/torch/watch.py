"""`watch` makes a module's tensors observables of a run; `agree` is the broadcast for ranks that want one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
import torch.distributed as dist

from sightglass.training.controls import declaring_line
from sightglass.training.process_runs import current
from sightglass.training.run import Run, wiring

from .initial import keep_initial
from .observables import HOLDERS, inner
from .optimizer_controls import Bounds, unwrapped
from .watched_module import Watched


def watch(
    module: torch.nn.Module,
    run: Run | None = None,
    *,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
    event: str = "batch",
    name: str = "",
    recompile: bool = True,
    bounds: Bounds | None = None,
    initial: bool = True,
) -> Watched | None:
    """Make a module's parameters, gradients and activations, and its optimizer's state, observables of a run.

    Args:
        module: The module; it may be lazy, compiled, or wrapped for several processes.
        run: The run; `None` for the newest one.
        optimizer: The optimizer of the module's parameters, or a wrapper of it; or all of its optimizers in a list.
            With it, gradients are those that its step used, and its settings become controls: `optimizer.lr`,
            `optimizer.weight_decay`; with several parameter groups `optimizer.GROUP.lr`; with several optimizers
            `optimizer.0.lr` and `optimizer.0.GROUP.lr`.
        event: The event that gets the observables. Call `run.observe` for it after the optimizer's step.
        name: An observable that contains all others, for a program of several modules; by default they are observables
            of the event itself.
        recompile: Whether a query about what modules inside compiled programs return may have these compiled again,
            once a controller confirmed it; otherwise such queries are refused.
        bounds: The bounds of the controls by setting, such as `{"lr": (0.0, 0.1)}`; by default from 0 to 1, or to ten
            times the current value if that is more.
        initial: Whether to keep the norm and the histogram of each parameter as it is now, for queries that come later:
            `initial.norms`, `initial.histograms`.

    Returns:
        The watched module; call its `close` to stop watching before the run ends. `None` if the run is disabled.

    Raises:
        TypeError: `module` is not a module, or `optimizer` is neither an optimizer nor a list of them.
        ValueError: There is no run, `name` contains a dot, or a control of the same name exists.
        CommandError: A setting is out of its bounds.
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"Expected a torch.nn.Module to watch, got {type(module).__name__}")
    if not isinstance(name, str) or "." in name:
        raise ValueError(f"Expected a name without dots, got {name!r}")
    optimizers = unwrapped(optimizer)
    run = run or current()
    if run is None:
        raise ValueError("Expected a live run: call sightglass.init before watch, or pass the run")
    if run.disabled:
        return None
    watched = Watched(module, run, event=event, optimizers=optimizers, name=name, recompile=recompile,
                    bounds=bounds or {}, where=declaring_line())  # fmt: skip
    if initial:
        keep_initial(inner(module), wiring(run).telemetry, name)
    return watched


# A Keras model on PyTorch as a module to watch: Keras keeps its layers where `named_modules` does not find them.


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


HEAD_BYTES: Final = 8  # the length, an uint64
ROOM_BYTES: Final = 248  # most commands fit the first broadcast, 256 bytes with the length


def agree() -> Callable[[bytes], bytes]:
    """Return the function for `sightglass.Ranks(agree=…)`: on every rank it returns the argument of rank 0.

    All ranks call `agree` once, after `init_process_group`; they call the function at the same events. It has a process
    group of its own on the hosts, so it waits for no device: one small broadcast per event, two for large commands.

    Raises:
        RuntimeError: `init_process_group` was not called.
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError("Expected torch.distributed.init_process_group to be called before agree()")
    group = dist.new_group(backend="gloo")

    def broadcast(data: bytes) -> bytes:
        first = torch.zeros(HEAD_BYTES + ROOM_BYTES, dtype=torch.uint8)
        head = len(data).to_bytes(HEAD_BYTES, "little") + data[:ROOM_BYTES]
        first[: len(head)] = torch.frombuffer(bytearray(head), dtype=torch.uint8)
        dist.broadcast(first, src=0, group=group)
        received = bytes(first.numpy())
        n_bytes = int.from_bytes(received[:HEAD_BYTES], "little")
        if n_bytes <= ROOM_BYTES:
            return received[HEAD_BYTES : HEAD_BYTES + n_bytes]
        rest = torch.zeros(n_bytes, dtype=torch.uint8)
        if dist.get_rank() == 0:
            rest[:] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        dist.broadcast(rest, src=0, group=group)
        return bytes(rest.numpy())

    return broadcast
