"""What else programs use to look inside a module at each step, to compare `torch_watch` with: by hand, and trackers.

A rival is a function that has it work in the steps from now on, or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import Protocol

import torch
from torch import nn

Turn = Callable[[bool], None]


class Program(Protocol):
    """A training: its model, and what it does behind each step."""

    model: nn.Module
    behind: Callable[[torch.Tensor], None] | None


@contextmanager
def rivals(program: Program, folder: str) -> Iterator[dict[str, Turn]]:
    """Make the rivals that are installed, by their names."""
    with ExitStack() as stack:
        made = {
            "norms of all gradients by hand, norm().item()": gradients_by_hand(program),
            "means of all activations by hand, mean().item() in hooks": activations_by_hand(program),
        }
        if find_spec("tensorboard"):
            name = "histograms of all gradients by TensorBoard's add_histogram"
            made[name] = stack.enter_context(with_tensorboard(program, folder))
        if find_spec("wandb"):
            made["histograms of all gradients by wandb.watch(log_freq=1)"] = stack.enter_context(
                with_wandb(program, folder)
            )
        yield made


def gradients_by_hand(program: Program) -> Turn:
    """Compute the norms behind the step."""

    def behind(loss: torch.Tensor) -> None:
        for parameter in program.model.parameters():
            parameter.grad.norm().item()

    def turn(on: bool) -> None:
        program.behind = behind if on else None

    return turn


def activations_by_hand(program: Program) -> Turn:
    """Compute the means in forward hooks."""
    handles = []

    def hook(module: nn.Module, inputs: object, output: torch.Tensor) -> None:
        output.mean().item()

    def turn(on: bool) -> None:
        while handles:
            handles.pop().remove()
        for module in program.model.modules() if on else ():
            if not list(module.children()):
                handles.append(module.register_forward_hook(hook))

    return turn


@contextmanager
def with_tensorboard(program: Program, folder: str) -> Iterator[Turn]:
    """Write event files, as PyTorch's own writer does."""
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(f"{folder}/tensorboard") as writer:

        def behind(loss: torch.Tensor) -> None:
            for name, parameter in program.model.named_parameters():
                writer.add_histogram(name, parameter.grad)

        def turn(on: bool) -> None:
            program.behind = behind if on else None

        yield turn


@contextmanager
def with_wandb(program: Program, folder: str) -> Iterator[Turn]:
    """Log to W&B, without a network; `watch` hands its histograms over with the next `log`."""
    import wandb

    settings = wandb.Settings(silent=True)
    with wandb.init(project="bench", mode="offline", dir=folder, settings=settings) as run:

        def turn(on: bool) -> None:
            if program.behind is not None:  # W&B warns of a module that is not watched
                run.unwatch(program.model)
            if on:
                run.watch(program.model, log="gradients", log_freq=1)
            program.behind = (lambda loss: run.log({"loss": loss.item()})) if on else None

        yield turn
